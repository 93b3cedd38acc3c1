"""A language model behind a server that speaks OpenAI's chat protocol, as a listwise ranker."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore, Event, Lock
from typing import Annotated, Any

from backpack_rank.checks import at_least
from backpack_rank.constructors import Count, FilePath, Length, Name, NonNegative, Range
from backpack_rank.files import cache_dir
from backpack_rank.position.lists.base import ListwiseRanker, Ranking, Usage
from backpack_rank.position.lists.chat_server import (
    Answer,
    ChatServer,
    ResponseStore,
    RetryPolicy,
    ServerError,
    StoppedError,
)
from backpack_rank.position.lists.parsing import Parsed, parse_ranking
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.prompt import Prompt

log = logging.getLogger(__name__)
OPENAI = "https://api.openai.com/v1"
LONGEST_WAIT = 1e6
"""Seconds, more than eleven days; no system waits for 1e30."""
Seconds = Annotated[float, Range(least=0, most=LONGEST_WAIT)]
_NOTED = 0.1
"""Share of repaired answers from which on there is a warning."""
_PROGRESS = 30.0
"""Seconds between two reports."""
_OWN_FIELDS = ("model", "messages", "stream", "n")


@dataclass
class _Job:
    """One call of ``rank``: its lists by request, and what has come so far.

    Attributes:
        lists: of the call.
        asked: indices of the lists with the same request, by its key.
        answers: by key.
        refused: index of the first list of a request that was refused, with the error.
    """

    lists: Sequence[PassageList]
    asked: dict[str, list[int]]
    answers: dict[str, Answer] = field(default_factory=dict)
    refused: list[tuple[int, ServerError]] = field(default_factory=list)

    @property
    def answered(self) -> int:
        """Lists with an answer."""
        return sum(len(self.asked[key]) for key in self.answers)


class OpenAiRanker(ListwiseRanker):
    """Asks a server for the order of every list.

    Answers are kept on disk as they come, and a request whose answer is there is not sent: a job
    that was interrupted continues, and nothing is paid for twice. Usage counts tokens and cost as
    the server reports them; what came from disk counts in ``cached`` alone. A generated token
    counts as a pass.
    """

    def __init__(
        self,
        model: Name,
        prompt: Prompt | Mapping[str, Any],
        *,
        base_url: Annotated[str, Length(1, 4000)] = OPENAI,
        key_variable: Name | None = "OPENAI_API_KEY",
        concurrency: Annotated[int, Range(least=1, most=1000)] = 8,
        timeout: Annotated[float, Range(above=0, most=LONGEST_WAIT)] = 120.0,
        retries: Annotated[int, Range(least=0, most=1000)] = 5,
        backoff: Seconds = 1.0,
        longest_wait: Seconds = 300.0,
        temperature: NonNegative | None = 0.0,
        seed: int | None = 0,
        max_tokens: Count | None = 1024,
        extra: Mapping[str, Any] | None = None,
        passage_words: Count | None = 300,
        prompt_price: NonNegative = 0.0,
        answer_price: NonNegative = 0.0,
        responses: FilePath | None = None,
    ) -> None:
        """
        Args:
            model: as the server calls it.
            prompt: its messages are sent; ``answer`` and ``chat`` play no part.
            base_url: of the server, up to and with ``/v1``.
            key_variable: environment variable that holds the key; None for a server without keys.
            concurrency: requests on their way at the same time, at most.
            timeout, retries, backoff, longest_wait: as in
                :class:`~backpack_rank.position.lists.chat_server.RetryPolicy`.
            temperature: of the answer; None leaves it to the server, as models that think ask for.
            seed: for servers that take one; None sends none.
            max_tokens: of an answer, thoughts included; None leaves it to the server.
            extra: more fields of the request, such as ``{"max_completion_tokens": 2000}``; they go
                before the others.
            passage_words: longer passages are cut after so many words; None cuts none.
            prompt_price: per million tokens read.
            answer_price: per million tokens generated.
            responses: folder of the answers; None: ``responses`` in the cache folder.

        Raises:
            ValueError: an option is out of range, or the URL is none.
            ImportError: the ``openai`` package is not installed.
        """
        self.model = model
        self.prompt = prompt if isinstance(prompt, Prompt) else Prompt.of(prompt)
        for name, value in (
            ("concurrency", concurrency),
            ("max_tokens", max_tokens),
            ("passage_words", passage_words),
        ):
            at_least(name, value, 1, null="")
        for name, price in (("prompt_price", prompt_price), ("answer_price", answer_price)):
            at_least(name, price, 0)
        patience = RetryPolicy(timeout, retries, backoff, longest_wait)
        self._server = ChatServer(base_url, key_variable, patience)
        self._concurrency = concurrency
        self._places = BoundedSemaphore(concurrency)
        self._fields = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens}
        self._fields = {
            name: value for name, value in self._fields.items() if value is not None
        } | _checked(extra)
        self._words = passage_words
        self._prices = (prompt_price, answer_price)
        self._store = ResponseStore(
            Path(responses).expanduser() if responses else cache_dir() / "responses"
        )
        self._usage = Usage()
        self._counting = Lock()
        self._uncounted = False

    @property
    def name(self) -> str:
        return self.model

    @property
    def usage(self) -> Usage:
        return self._usage

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """As every listwise ranker; what the answers leave out follows in input order, as ``named``
        tells.

        Raises:
            ServerError: the server failed for good. Answers that came are kept.
            ValueError: there is no key, or the server refuses a list.
        """
        bodies: dict[str, dict[str, Any]] = {}
        job = _Job(lists, {})
        for index, shown in enumerate(lists):
            body = self._body(shown)
            key = self._store.key(self._server.url, body)
            bodies.setdefault(key, body)
            job.asked.setdefault(key, []).append(index)
        for key in job.asked:
            if (answer := self._store.read(key)) is not None:
                self._take(job, key, answer, sent=False)
        self._fetch_all(job, {key: body for key, body in bodies.items() if key not in job.answers})
        if job.refused:
            raise ValueError(self._refusal(job))
        return self._rankings(job)

    def _body(self, shown: PassageList) -> dict[str, Any]:
        passages = [self._cut(passage) for passage in shown.passages]
        with self._counting:
            self._usage.shortened += sum(
                cut is not whole for cut, whole in zip(passages, shown.passages, strict=True)
            )
        messages = self.prompt.messages(
            PassageList(shown.query, tuple(passages), shown.ids, shown.query_id)
        )
        return {"model": self.model, "messages": messages, **self._fields}

    def _cut(self, passage: str) -> str:
        words = passage.split()
        return (
            passage
            if self._words is None or len(words) <= self._words
            else " ".join(words[: self._words])
        )

    def _fetch_all(self, job: _Job, bodies: Mapping[str, dict[str, Any]]) -> None:
        """Send requests side by side; when one fails for good, those on their way are waited for
        and kept.
        """
        if not bodies:
            return
        stop = Event()
        failure: Exception | None = None
        with ThreadPoolExecutor(min(self._concurrency, len(bodies))) as pool:
            futures = {
                pool.submit(self._fetch, key, body, stop): key for key, body in bodies.items()
            }
            reported = time.monotonic()
            try:
                for future in as_completed(futures):
                    trouble = self._collect(job, futures[future], future)
                    if trouble is not None and failure is None:
                        failure = trouble
                        stop.set()
                    if time.monotonic() - reported > _PROGRESS:
                        reported = time.monotonic()
                        log.info(
                            "%s: %d of %d lists answered", self.model, job.answered, len(job.lists)
                        )
            except BaseException:  # Ctrl-C: nothing more is sent
                stop.set()
                raise
        if isinstance(failure, ServerError):
            raise ServerError(self._failure(job, failure)) from failure
        if failure is not None:
            raise failure

    def _collect(
        self, job: _Job, key: str, future: Future[tuple[Answer, bool]]
    ) -> Exception | None:
        """Take what a request gave; returns an error that ends the job."""
        try:
            answer, sent = future.result()
        except StoppedError:
            return None
        except ServerError as error:
            # Refused before anything was answered: it is the options that are wrong, not this list.
            if error.of_list and (job.answers or self._usage.lists):
                job.refused.append((job.asked[key][0], error))
                return None
            return error
        except Exception as error:
            return error
        self._take(job, key, answer, sent)
        return None

    def _fetch(self, key: str, body: Mapping[str, Any], stop: Event) -> tuple[Answer, bool]:
        """The answer, and whether it was this thread that asked for it."""
        if stop.is_set():
            raise StoppedError
        try:
            with self._store.only_one(key):
                saved = self._store.read(key)
                if saved is not None:
                    return saved, False
                with self._places:
                    answer = self._server.complete(body, stop)
                self._store.write(key, answer)
                return answer, True
        except Exception as error:
            if not (isinstance(error, ServerError) and error.of_list):
                stop.set()  # here, so that this thread does not begin with the next request
            raise

    def _take(self, job: _Job, key: str, answer: Answer, sent: bool) -> None:
        job.answers[key] = answer
        read, generated = answer.prompt_tokens or 0, answer.generated_tokens or 0
        with self._counting:
            usage = self._usage
            usage.cached += len(job.asked[key]) - sent
            if not sent:
                return
            usage.requests += 1
            usage.prompt_tokens += read
            usage.generated_tokens += generated
            usage.passes += generated
            usage.cost += (read * self._prices[0] + generated * self._prices[1]) / 1e6
            unknown = answer.prompt_tokens is None and any(self._prices)
            warn, self._uncounted = unknown and not self._uncounted, self._uncounted or unknown
        if warn:
            log.warning(
                "%s does not say how many tokens a request takes: the cost is not known",
                self._server.url,
            )

    def _rankings(self, job: _Job) -> list[Ranking]:
        parsed: list[Parsed | None] = [None] * len(job.lists)
        for key, indices in job.asked.items():
            for index in indices:  # lists with the same request have the same size
                parsed[index] = parse_ranking(
                    job.answers[key].text, len(job.lists[index]), self.prompt.identifiers
                )
        read = [one for one in parsed if one is not None]
        with self._counting:
            self._usage.lists += len(read)
            self._usage.missing += sum(one.missing for one in read)
            self._usage.repeated += sum(one.repeated for one in read)
            self._usage.invented += sum(one.invented for one in read)
        self._note(job, read)
        return [one.ranking() for one in read]

    def _note(self, job: _Job, parsed: Sequence[Parsed]) -> None:
        repaired = sum(one.repaired for one in parsed)
        if repaired <= _NOTED * len(parsed):
            return
        log.warning(
            "%s: %d of %d answers had to be repaired (%d passages missing, %d identifiers "
            "repeated, %d invented); passages that are left out follow in input order",
            *(self.model, repaired, len(parsed), sum(one.missing for one in parsed)),
            *(sum(one.repeated for one in parsed), sum(one.invented for one in parsed)),
        )
        cut = sum(
            len(job.asked[key]) for key, answer in job.answers.items() if answer.finish == "length"
        )
        if cut:
            log.warning(
                "%s: %d of %d answers ended at max_tokens; raise it", self.model, cut, len(parsed)
            )

    def _failure(self, job: _Job, error: ServerError) -> str:
        return (
            f"{self._server.url} (model {self.model}): {error}. {job.answered} of {len(job.lists)} "
            f"lists are answered, {self._usage.lists} before them; the answers are kept in "
            f"{self._store.folder}, and running again continues from there"
        )

    def _refusal(self, job: _Job) -> str:
        index, error = job.refused[0]
        shown = job.lists[index]
        return (
            f"{self._server.url} (model {self.model}) refuses {len(job.refused)} of "
            f"{len(job.lists)} lists, first that of query {shown.query_id or shown.query[:80]!r}: "
            f"{error}. Are its passages too long (passage_words) or too many (windows)? "
            f"{job.answered} lists are answered and kept in {self._store.folder}"
        )


def _checked(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    given = dict(extra or {})
    if own := [name for name in _OWN_FIELDS if name in given]:
        raise ValueError(f"extra must not hold {own[0]!r}, which is the ranker's own")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(given))
    except TypeError as error:
        raise ValueError(f"extra must hold plain values that JSON has: {error}") from error
    return plain
