"""A language model behind a server that speaks OpenAI's chat protocol, as a listwise ranker."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
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
from backpack_rank.position.lists.parsing import parse_ranking
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.prompt import Prompt

log = logging.getLogger(__name__)
OPENAI = "https://api.openai.com/v1"
LONGEST_WAIT = 1e6
"""Seconds, more than eleven days; no system waits for 1e30."""
Seconds = Annotated[float, Range(least=0, most=LONGEST_WAIT)]
_MANY_REPAIRED = 0.1
"""Share of repaired answers from which on there is a warning."""
_REPORT_EVERY = 30.0
"""Seconds between two reports."""
_RESERVED_FIELDS = ("model", "messages", "stream", "n")


class OpenAiRanker(ListwiseRanker):
    """Ranks by a model that only a server has, a commercial one or your own vLLM::

        ranker = OpenAiRanker("gpt-4o", prompt, passage_words=200, prompt_price=2.5)
        rankings = ranker.rank(lists)
        ranker.usage.cost  # 0.0 where no price is given

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
        """A ranker that asks a server.

        Args:
            model: as the server calls it.
            prompt: its messages are sent; ``answer`` and ``chat`` play no part.
            base_url: of the server, up to and with ``/v1``.
            key_variable: environment variable that holds the key; None for a server without keys.
            concurrency: most requests on their way at the same time.
            timeout, retries, backoff, longest_wait: as in
                :class:`~backpack_rank.position.lists.chat_server.RetryPolicy`.
            temperature: of the answer; None leaves it to the server, which reasoning models need.
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
        at_least("concurrency", concurrency, 1, null="")
        at_least("max_tokens", max_tokens, 1, null="")
        at_least("passage_words", passage_words, 1, null="")
        at_least("prompt_price", prompt_price, 0)
        at_least("answer_price", answer_price, 0)
        retry_policy = RetryPolicy(timeout, retries, backoff, longest_wait)
        self._server = ChatServer(base_url, key_variable, retry_policy)
        self._concurrency = concurrency
        # Over all calls of ``rank`` together, which may come from several threads.
        self._request_slots = BoundedSemaphore(concurrency)
        options = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens}
        self._fields = {name: value for name, value in options.items() if value is not None}
        self._fields.update(_plain_json(extra))  # they win over the options above
        self._passage_words = passage_words
        self._prompt_price = prompt_price
        self._answer_price = answer_price
        folder = Path(responses).expanduser() if responses else cache_dir() / "responses"
        self._store = ResponseStore(folder)
        self._usage = Usage()
        self._usage_lock = Lock()
        self._warned_of_unknown_cost = False

    @property
    def name(self) -> str:
        return self.model

    @property
    def usage(self) -> Usage:
        return self._usage

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """A ranking for each list; passages that an answer leaves out follow in input order.

        Raises:
            ServerError: the server failed for good. Answers that came are kept.
            ValueError: there is no key, or the server refuses a list.
        """
        bodies: dict[str, dict[str, Any]] = {}
        job = _RankingJob(lists)
        for index, shown in enumerate(lists):
            body = self._body(shown)
            key = self._store.key(self._server.url, body)
            bodies.setdefault(key, body)
            job.lists_by_key.setdefault(key, []).append(index)
        for key in job.lists_by_key:
            answer = self._store.read(key)
            if answer is not None:
                del bodies[key]
                self._add_answer(job, key, answer, sent=False)
        if bodies:
            self._fetch_all(job, bodies)
        if job.refused:
            raise ValueError(self._refusal(job))
        return self._rankings(job)

    def _body(self, shown: PassageList) -> dict[str, Any]:
        """The request that asks for the order of a list."""
        passages = []
        shortened = 0
        for passage in shown.passages:
            words = passage.split()
            if self._passage_words is not None and len(words) > self._passage_words:
                passage = " ".join(words[: self._passage_words])
                shortened += 1
            passages.append(passage)
        with self._usage_lock:
            self._usage.shortened += shortened
        cut = PassageList(shown.query, tuple(passages), shown.ids, shown.query_id)
        return {"model": self.model, "messages": self.prompt.messages(cut), **self._fields}

    def _fetch_all(self, job: _RankingJob, bodies: Mapping[str, dict[str, Any]]) -> None:
        """Send requests side by side, and put their answers into the job.

        When one fails for good, those on their way are waited for and kept.
        """
        stop = Event()
        failure: Exception | None = None
        with ThreadPoolExecutor(min(self._concurrency, len(bodies))) as pool:
            keys_by_future = {}
            for key, body in bodies.items():
                keys_by_future[pool.submit(self._fetch, key, body, stop)] = key
            reported = time.monotonic()
            try:
                for future in as_completed(keys_by_future):
                    error = self._collect(job, keys_by_future[future], future)
                    # The first error is the one to report: later ones may come from stopping.
                    if error is not None and failure is None:
                        failure = error
                        stop.set()
                    if time.monotonic() - reported > _REPORT_EVERY:
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
        self, job: _RankingJob, key: str, future: Future[tuple[Answer, bool]]
    ) -> Exception | None:
        """Put the answer or the refusal of a request into the job.

        Returns:
            An error that ends the job, or None.
        """
        try:
            answer, sent = future.result()
        except StoppedError:
            return None
        except ServerError as error:
            # Refused before anything was answered: it is the options that are wrong, not this list.
            if error.of_list and (job.answers or self._usage.lists):
                job.refused.append((job.lists_by_key[key][0], error))
                return None
            return error
        except Exception as error:
            return error
        self._add_answer(job, key, answer, sent)
        return None

    def _fetch(self, key: str, body: Mapping[str, Any], stop: Event) -> tuple[Answer, bool]:
        """The answer, and whether it was this thread that asked for it."""
        if stop.is_set():
            raise StoppedError
        try:
            # Another process may have sent the same request: its answer is then read from disk.
            with self._store.locked(key):
                saved = self._store.read(key)
                if saved is not None:
                    return saved, False
                with self._request_slots:
                    answer = self._server.complete(body, stop)
                self._store.write(key, answer)
                return answer, True
        except Exception as error:
            if not (isinstance(error, ServerError) and error.of_list):
                stop.set()  # here, so that this thread does not begin with the next request
            raise

    def _add_answer(self, job: _RankingJob, key: str, answer: Answer, sent: bool) -> None:
        """Put an answer into the job and count it; ``sent``: a request was sent for it."""
        job.answers[key] = answer
        with self._usage_lock:
            # Of several lists with the same request, a single request was sent.
            self._usage.cached += len(job.lists_by_key[key]) - sent
            if not sent:
                return
            self._count_request(answer)
            has_prices = bool(self._prompt_price or self._answer_price)
            warn = answer.prompt_tokens is None and has_prices and not self._warned_of_unknown_cost
            if warn:
                self._warned_of_unknown_cost = True
        if warn:
            log.warning(
                "%s does not say how many tokens a request takes: the cost is not known",
                self._server.url,
            )

    def _count_request(self, answer: Answer) -> None:
        """Add what a request took to the usage; the caller holds the lock."""
        prompt_tokens = answer.prompt_tokens or 0
        generated_tokens = answer.generated_tokens or 0
        usage = self._usage
        usage.requests += 1
        usage.prompt_tokens += prompt_tokens
        usage.generated_tokens += generated_tokens
        usage.passes += generated_tokens
        # Prices are per million tokens.
        cost = prompt_tokens * self._prompt_price + generated_tokens * self._answer_price
        usage.cost += cost / 1e6

    def _rankings(self, job: _RankingJob) -> list[Ranking]:
        """The ranking of each list of a job whose lists all have an answer."""
        parsed_answers = []
        for shown, text in zip(job.lists, job.texts(), strict=True):
            parsed_answers.append(parse_ranking(text, len(shown), self.prompt.identifiers))
        missing = repeated = invented = repaired = 0
        for parsed in parsed_answers:
            missing += parsed.missing
            repeated += parsed.repeated
            invented += parsed.invented
            repaired += parsed.repaired
        with self._usage_lock:
            self._usage.lists += len(parsed_answers)
            self._usage.missing += missing
            self._usage.repeated += repeated
            self._usage.invented += invented

        if repaired > _MANY_REPAIRED * len(parsed_answers):
            log.warning(
                "%s: %d of %d answers had to be repaired (%d passages missing, %d identifiers "
                "repeated, %d invented); passages that are left out follow in input order",
                self.model,
                repaired,
                len(parsed_answers),
                missing,
                repeated,
                invented,
            )
            if job.cut_off:
                log.warning(
                    "%s: %d of %d answers ended at max_tokens; raise it",
                    self.model,
                    job.cut_off,
                    len(parsed_answers),
                )
        return [parsed.ranking() for parsed in parsed_answers]

    def _failure(self, job: _RankingJob, error: ServerError) -> str:
        return (
            f"{self._server.url} (model {self.model}): {error}. {job.answered} of {len(job.lists)} "
            f"lists are answered, {self._usage.lists} before them; the answers are kept in "
            f"{self._store.folder}, and running again continues from there"
        )

    def _refusal(self, job: _RankingJob) -> str:
        index, error = job.refused[0]
        shown = job.lists[index]
        return (
            f"{self._server.url} (model {self.model}) refuses {len(job.refused)} of "
            f"{len(job.lists)} lists, first that of query {shown.query_id or shown.query[:80]!r}: "
            f"{error}. Are its passages too long (passage_words) or too many (windows)? "
            f"{job.answered} lists are answered and kept in {self._store.folder}"
        )


class _RankingJob:
    """One call of ``rank``: its lists by request, and the answers so far.

    Attributes:
        lists: of the call.
        lists_by_key: indices of the lists with the same request, by its key. They have the same
            texts, but may have other ids.
        answers: by key.
        refused: index of the first list of a request that was refused, with the error.
    """

    def __init__(self, lists: Sequence[PassageList]) -> None:
        self.lists = lists
        self.lists_by_key: dict[str, list[int]] = {}
        self.answers: dict[str, Answer] = {}
        self.refused: list[tuple[int, ServerError]] = []

    @property
    def answered(self) -> int:
        """Lists with an answer."""
        return sum(len(self.lists_by_key[key]) for key in self.answers)

    @property
    def cut_off(self) -> int:
        """Lists whose answer ended at ``max_tokens``."""
        count = 0
        for key, answer in self.answers.items():
            if answer.finish == "length":
                count += len(self.lists_by_key[key])
        return count

    def texts(self) -> list[str]:
        """The answer of each list; all have one."""
        texts = [""] * len(self.lists)
        for key, indices in self.lists_by_key.items():
            for index in indices:
                texts[index] = self.answers[key].text
        return texts


def _plain_json(extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The extra fields of a request as plain values; raises ``ValueError`` where they are none."""
    given = dict(extra or {})
    for name in _RESERVED_FIELDS:
        if name in given:
            raise ValueError(f"extra must not hold {name!r}, which is the ranker's own")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(given))
    except TypeError as error:
        raise ValueError(f"extra must hold plain values that JSON has: {error}") from error
    return plain
