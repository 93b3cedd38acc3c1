"""``certificate=true``: which candidates should keep their score under a swap of words, and if so.

At alpha = 0 a policy promises one score to both wordings of some texts (:mod:`.promises`).

Every candidate whose words a swap replaces is scored in both wordings. As a check that shares no
renditions, pairs of texts that people wrote are counted and scored too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.counterfactual import LexiconSwap, Swapped
from backpack_rank.attributes.own_renditions import OwnRenditions
from backpack_rank.attributes.renditions import Renditions
from backpack_rank.attributes.wording_variants import WordingVariants
from backpack_rank.data.batching import Pairs
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.json_lines import read_jsonl, text_under
from backpack_rank.data.public.names import how_to_get
from backpack_rank.data.words import word_tokens
from backpack_rank.files import write_text
from backpack_rank.pipelines.promises import Promise, in_order, promise_of, promise_of_whole_texts
from backpack_rank.reporting.writers import csv_text
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import log as scorer_log
from backpack_rank.senses.policies import Policy
from backpack_rank.senses.renditions import MeanOfRenditions

log = logging.getLogger(__name__)
FILE, PAIRS_FILE = "certificate.json", "certificate.csv"
LARGEST = 1e-6
"""Largest difference of two fp32 scores that count as equal, over the size of the largest score.

A GPU adds up in another order each time: 3.8e-6 between two readings of a text of score 20.
"""
SAYS = "Invariance to the listed words, not fairness."
SAYS_OWN = "Invariance to the renditions that are given, not fairness."
SAYS_NAMES = (
    "First names: invariance to one swap, each name and its partner, where the rule of "
    "policy.names finds them."
)
NO_WORDS = "without class words"
COVERED = "covered"
OPEN = "may change"
QUERY = "query that asks for a group"
NAME = "first name"
NAME_OF_QUERY = "first name of the query"
OUTSIDE = "gendered word outside the classes"
CUT = "cut at different places"
UNLIKE = "the swap changes what the policy cannot"
NOT_CLOSED = "rewriting a rendition gives others"
REASONS = (QUERY, CUT, NAME, NAME_OF_QUERY, OUTSIDE, NOT_CLOSED, UNLIKE)
"""Why nothing is promised of a candidate with class words, in the order of :func:`_kind`."""
_WORDINGS = (("masculine", "feminine"), ("male", "female"), ("first", "second"))


@dataclass(frozen=True)
class Part:
    """The candidates of one kind, and the largest difference among them.

        Part("covered", 120, 2e-7)

    Attributes:
        kind: :data:`NO_WORDS`, :data:`COVERED`, or one of :data:`REASONS`.
        candidates: how many pairs of query and document.
        largest: largest absolute difference of the scores of the two wordings; None where nothing
            is swapped.
    """

    kind: str
    candidates: int
    largest: float | None


@dataclass(frozen=True)
class HumanPairs:
    """Pairs of texts in two wordings that people wrote, and what was measured on them.

    Attributes:
        source: collection or file.
        pairs: how many.
        alike: how many of them the policy promises equal scores.
        largest_alike: largest absolute difference of scores among these, None where there are none.
        mean_others, largest_others: absolute differences among the others.
        largest_score: size of the largest score.
    """

    source: str
    pairs: int
    alike: int
    largest_alike: float | None
    mean_others: float | None
    largest_others: float | None
    largest_score: float = 0.0


@dataclass(frozen=True)
class Certificate:
    """What a policy promises, and what was measured: :func:`certify` makes it.

        certificate = certify(reranker, collection, candidates, folder)
        print(*certificate.sentences, sep="\n")

    Attributes:
        policy, ranker, collection, number_format: what it is about.
        parts: all candidates by kind.
        human: pairs that share nothing with the renditions.
        names: whether first names are swapped too.
        own: whether the other wordings are renditions of one's own, and not swaps of listed words.
        pipeline: what is promised of first stage and reranker together.
        allowed: differences below it are rounding.
    """

    policy: str
    ranker: str
    collection: str
    number_format: str
    parts: tuple[Part, ...]
    human: tuple[HumanPairs, ...] = ()
    names: bool = False
    own: bool = False
    pipeline: str = ""
    allowed: float = LARGEST

    @property
    def kept(self) -> bool | None:
        """Whether everything that is covered has equal scores in both wordings.

        None where nothing is covered, or scores are not fp32 of this machine.
        """
        if not self._promised or not self.number_format.startswith("float32"):
            return None
        return max(self._promised) < self.allowed

    @property
    def _promised(self) -> list[float]:
        """Differences that should be 0."""
        differences: list[float] = []
        for part in self.parts:
            if part.kind == COVERED and part.largest is not None:
                differences.append(part.largest)
        for pairs in self.human:
            if pairs.largest_alike is not None:
                differences.append(pairs.largest_alike)
        return differences

    @property
    def closed(self) -> int:
        """Rewritten candidates of which rewriting any rendition gives the same set again."""
        kinds = (NO_WORDS, NOT_CLOSED)
        return sum(part.candidates for part in self.parts if part.kind not in kinds)

    @property
    def sentences(self) -> list[str]:
        """For the terminal and the report."""
        with_words = covered = 0
        for part in self.parts:
            if part.kind != NO_WORDS:
                with_words += part.candidates
            if part.kind == COVERED:
                covered += part.candidates
        if self.kept is not None:
            verdict = "certified" if self.kept else "NOT KEPT"
        elif self._promised:
            verdict = f"measured in {self.number_format}, not certified"
        else:
            verdict = "nothing to certify"
        which, says = ("that are rewritten", SAYS_OWN) if self.own else ("with class words", SAYS)
        among = "among renditions" if self.own else "under the swap"
        lines = [
            f"Certificate of {self.policy} at alpha 0 over {self.collection}: {verdict}. {covered} "
            f"of {with_words} candidates {which} are covered. {says}"
        ]
        if self.own and with_words:
            lines.append(
                "  closure: rewriting a rendition gives the same set for "
                f"{self.closed} of {with_words} candidates ({self.closed / with_words:.0%})"
            )
        if self.pipeline:
            lines.append(f"  {self.pipeline}")
        if self.names:
            lines.append(f"  {SAYS_NAMES}")
        for part in self.parts:
            if not part.candidates:
                continue
            line = f"  {part.kind}: {part.candidates} candidates"
            if part.largest is not None:
                line += f", largest difference {among} {part.largest:.1e}"
            lines.append(line)
        for pairs in self.human:
            line = f"  {pairs.source}: {pairs.alike} of {pairs.pairs} human pairs are covered"
            if pairs.largest_alike is not None:
                line += f" (largest difference {pairs.largest_alike:.1e})"
            if pairs.mean_others is not None:
                line += f"; mean difference of the others {pairs.mean_others:.3f}"
            lines.append(line)
        return lines

    def write(self, folder: Path) -> None:
        """``certificate.json``."""
        content = {
            **asdict(self),
            "certified": self.kept,
            "largest difference allowed": self.allowed,
            "says": SAYS_OWN if self.own else f"{SAYS} {SAYS_NAMES}" if self.names else SAYS,
        }
        write_text(folder / FILE, json.dumps(content, indent=2) + "\n")


def check_certificate(reranker: PointwiseReranker, files: Sequence[str | Path] = ()) -> None:
    """Refuse what :func:`certify` refuses, before anything is ranked.

        check_certificate(reranker, files=["pairs.jsonl"])

    Args:
        reranker, files: as of :func:`certify`.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: as :func:`certify`.
    """
    promise_of(reranker)
    for file in map(Path, files):
        if not file.is_file():
            raise FileNotFoundError(f"certificate_pairs: there is no file {file}{how_to_get(file)}")
        # Read for its errors alone: a malformed line is named before an hour of ranking.
        for _ in read_jsonl(file, _two_wordings):
            pass


def certify(
    reranker: PointwiseReranker,
    collection: Collection,
    candidates: Run,
    folder: Path,
    *,
    variants: tuple[WordingVariants, Collection] | None = None,
    files: Sequence[str | Path] = (),
    stage: Any = None,
) -> Certificate:
    """Score the candidates in both wordings and see whether a promise is kept.

        reranker = backpack_rank.load("outputs/train/DATE/ranker").at(0)
        certificate = certify(reranker, collection, candidates, Path("certificate"))

    Writes ``certificate.json`` and ``certificate.csv``.

    Args:
        reranker: under a policy at alpha = 0.
        collection: texts of the candidates.
        candidates: first stage.
        folder: of the results.
        variants: a collection with documents in several wordings.
        files: JSON Lines with two wordings of a sentence, as ``masculine`` and ``feminine``,
            ``male`` and ``female``, or ``first`` and ``second``.
        stage: the first stage, where what it promises is said too.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: another alpha, a policy that promises nothing, or a malformed file.
    """
    promise = promise_of(reranker)
    policy = reranker.hook.policy
    assert policy is not None
    pairs = Pairs.from_run(candidates, collection)
    kinds, others = _kinds_and_wordings(reranker, policy, promise, pairs)
    differences, largest_score = _largest_differences(reranker, promise, pairs, others)
    human = []
    if variants is not None:
        wordings, texts = variants
        human.append(_human_pairs(reranker, promise, wordings.name, _wordings(wordings, texts)))
    for file in map(Path, files):
        sentences = _sentences(file, reranker.attribute.swap())
        human.append(_human_pairs(reranker, promise, file.name, sentences))
    candidacy, pipeline = _of_pipeline(stage, policy, kinds, pairs, others)
    certificate = Certificate(
        policy=policy.name,
        ranker=reranker.scorer.ranker.label,
        collection=collection.name,
        number_format=reranker.scorer.number_format,
        parts=_parts(kinds, differences),
        human=tuple(human),
        names=isinstance(policy, MeanOfRenditions) and policy.names,
        own=isinstance(policy, MeanOfRenditions) and policy.own is not None,
        pipeline=pipeline,
        allowed=LARGEST * max(1.0, largest_score, *(found.largest_score for found in human)),
    )
    certificate.write(folder)
    shown = [f"{difference:.3g}" for difference in differences]
    lines = zip(pairs.query_ids, pairs.doc_ids, kinds, shown, candidacy, strict=True)
    columns = ("query", "document", "kind", "difference", "candidacy")
    write_text(folder / PAIRS_FILE, csv_text(columns, list(lines)))
    return certificate


def _of_pipeline(
    stage: Any, policy: Policy, kinds: Sequence[str], pairs: Pairs, others: Sequence[Sequence[str]]
) -> tuple[list[str], str]:
    """Whether each document stays a candidate in its other wordings, and a sentence on all."""
    if stage is None:
        return [""] * len(kinds), ""
    reason = getattr(stage, "not_promised", "has no dial")
    if reason is not None:
        sentence = f"pipeline: re-ranking alone is covered. The first stage {stage.name} {reason}"
        return ["" if kind == NO_WORDS else OPEN for kind in kinds], sentence
    candidacy = []
    with_words = covered = 0
    for kind, (query, text), wordings in zip(kinds, pairs.texts(), others, strict=True):
        if kind == NO_WORDS:
            candidacy.append("")
            continue
        stays = all(stage.same_score(query, text, other) for other in wordings)
        candidacy.append(COVERED if stays else OPEN)
        with_words += 1
        covered += stays and kind == COVERED
    return candidacy, (
        f"pipeline: the first stage {stage.name} is at alpha 0 too. Of {covered} of {with_words} "
        f"candidates neither candidacy nor final place can change when {_what_is_done(policy)}"
    )


def _what_is_done(policy: Policy) -> str:
    """What the other wordings of a document are."""
    if isinstance(policy, MeanOfRenditions) and policy.own is not None:
        return "they are rewritten as the policy rewrites them"
    if isinstance(policy, MeanOfRenditions) and policy.names:
        return "their class words and first names are swapped"
    return "their class words are swapped"


def _kinds_and_wordings(
    reranker: PointwiseReranker, policy: Policy, promise: Promise, pairs: Pairs
) -> tuple[list[str], list[list[str]]]:
    """The kind of every candidate, and its other wordings: none where nothing is swapped."""
    if isinstance(policy, MeanOfRenditions) and policy.own is not None:
        return _among_renditions(reranker, policy, policy.own, pairs)
    swap = reranker.attribute.swap()
    gendered_words = _words_outside_swaps(reranker.attribute)
    promise_of_whole = promise_of_whole_texts(reranker, promise)
    leaves_out = reranker.hook.views[0].leaves_out
    kinds: list[str] = []
    others: list[list[str]] = []
    for query, text in pairs.texts():
        if isinstance(policy, MeanOfRenditions) and policy.names:
            assert isinstance(policy.renditions, Renditions)  # renditions of one's own: above
            swapped = policy.renditions.swapped(query, text)
        else:
            swapped = swap(text)
        kind = _kind(
            policy, leaves_out, promise, promise_of_whole, gendered_words, query, text, swapped
        )
        kinds.append(kind)
        others.append([] if kind == NO_WORDS else [swapped.text])
    return kinds, others


def _among_renditions(
    reranker: PointwiseReranker, policy: MeanOfRenditions, own: OwnRenditions, pairs: Pairs
) -> tuple[list[str], list[list[str]]]:
    """The same of renditions of one's own, which give several other wordings."""
    kinds: list[str] = []
    others: list[list[str]] = []
    for query, text in pairs.texts():
        kinds.append(_own_kind(policy, own, query, text, in_order(reranker, own, query)))
        others.append([written for written in dict.fromkeys(own.texts(text)) if written != text])
    return kinds, others


def _largest_differences(
    reranker: PointwiseReranker, promise: Promise, pairs: Pairs, others: Sequence[Sequence[str]]
) -> tuple[list[float], float]:
    """How far the scores of each candidate and of its other wordings are apart, at most.

    A candidate without another wording has exactly 0. The second number is the largest score.
    """
    rows: list[int] = []
    triples: list[tuple[str, str, str]] = []
    for row, (query, text) in enumerate(pairs.texts()):
        for other in others[row]:
            rows.append(row)
            triples.append((query, text, other))
    found, _, largest_score = _differences(reranker, promise, triples)
    largest = np.zeros(len(others))
    np.maximum.at(largest, rows, found)
    return [float(difference) for difference in largest], largest_score


def _own_kind(
    policy: MeanOfRenditions, own: OwnRenditions, query: str, text: str, in_order: bool
) -> str:
    if not own.moves(text):
        return NO_WORDS
    # First, so that the share that is closed is of all candidates that are rewritten.
    if not own.is_closed(text, in_order):
        return NOT_CLOSED
    return COVERED if policy.covers(query) else QUERY


def _parts(kinds: Sequence[str], differences: Sequence[float]) -> tuple[Part, ...]:
    """How many candidates of each kind there are, and their largest difference."""
    differences_by_kind: dict[str, list[float]] = {}
    for kind, difference in zip(kinds, differences, strict=True):
        differences_by_kind.setdefault(kind, []).append(difference)
    parts = []
    for kind in (NO_WORDS, COVERED, *REASONS):
        of_kind = differences_by_kind.get(kind, [])
        # Of candidates without class words nothing is swapped, so nothing is measured.
        largest = max(of_kind) if of_kind and kind != NO_WORDS else None
        parts.append(Part(kind, len(of_kind), largest))
    return tuple(parts)


def _kind(
    policy: Policy,
    leaves_out: Callable[[str], bool] | None,
    promise: Promise,
    promise_of_whole: Promise,
    gendered_words: Container[str],
    query: str,
    text: str,
    swapped: Swapped,
) -> str:
    """What is promised of a candidate, or the first reason why nothing is."""
    # The order of the reasons is that of the table: a candidate counts for the first that holds.
    if swapped.text == text:
        return NO_WORDS
    if leaves_out is not None and leaves_out(query):
        return QUERY
    is_promised = promise(query, text, swapped.text)
    if not is_promised and promise_of_whole(query, text, swapped.text):
        return CUT
    if swapped.names:
        # With policy.names=true, only the names of persons whom the query names are left alone.
        swaps_names = isinstance(policy, MeanOfRenditions) and policy.names
        return NAME_OF_QUERY if swaps_names else NAME
    if any(word in gendered_words for word in word_tokens(text)):
        return OUTSIDE
    return COVERED if is_promised else UNLIKE


def _words_outside_swaps(attribute: Attribute) -> frozenset[str]:
    """Words of the attribute that no swap replaces and no swap ends at."""
    swap = attribute.swap()
    words = attribute.lexicon().words
    if attribute.class_files:
        words |= attribute.classes(wide=True).words
    return words - swap.words - frozenset(swap.one_way.values())


def _differences(
    reranker: PointwiseReranker, promise: Promise, triples: Sequence[tuple[str, str, str]]
) -> tuple[np.ndarray, np.ndarray, float]:
    """Differences of the scores of two documents of a query.

    Args:
        reranker, promise: what scores, and what it promises.
        triples: a query and two documents each. [N]

    Returns:
        Absolute differences [N], whether one score is promised [N], and the size of the largest
        score.
    """
    promised = np.array([promise(*triple) for triple in triples], dtype=bool)
    differences = np.empty(len(triples))
    largest_score = 0.0
    # Pairs that are promised one score are packed apart from the others: paired tokens promise
    # equal scores in batches of equal composition, and texts with as many tokens as their partner
    # make such batches when each side is a call of its own.
    for rows in (np.flatnonzero(promised).tolist(), np.flatnonzero(~promised).tolist()):
        first: list[tuple[str, str]] = []
        second: list[tuple[str, str]] = []
        for row in rows:
            query, document, other = triples[row]
            first.append((query, document))
            second.append((query, other))
        if reranker.hook.reads_one_text:
            first_scores = reranker.predict(first)
            second_scores = reranker.predict(second)
        else:
            # Renditions of both are scored in one call, so that equal texts are read once.
            first_scores, second_scores = np.split(reranker.predict(first + second), 2)
        differences[rows] = np.abs(first_scores.astype(np.float64) - second_scores)
        largest_score = max(largest_score, np.abs(first_scores).max(initial=0.0))

    # A score depends on its batch in the last bits, and with attribute senses the two wordings may
    # have different numbers of tokens, so that they come into different batches. Texts that differ
    # although one score is promised are scored once more, each by itself.
    for row in np.flatnonzero(promised & (differences > 0)).tolist():
        query, document, other = triples[row]
        score = _score_by_itself(reranker, query, document)
        differences[row] = abs(score - _score_by_itself(reranker, query, other))
    return differences, promised, float(largest_score)


def _score_by_itself(reranker: PointwiseReranker, query: str, document: str) -> float:
    """A score from a batch of one."""
    # That the document is long was said when all were scored.
    scorer_log.disabled = True
    try:
        return float(reranker.predict([(query, document)])[0])
    finally:
        scorer_log.disabled = False


def _human_pairs(
    reranker: PointwiseReranker,
    promise: Promise,
    source: str,
    triples: Iterable[tuple[str, str, str]],
) -> HumanPairs:
    """Measure pairs from a file or a collection."""
    texts = list(triples)
    differences, promised, largest_score = _differences(reranker, promise, texts)
    covered = differences[promised]
    others = differences[~promised]
    return HumanPairs(
        source=source,
        pairs=len(texts),
        alike=int(promised.sum()),
        largest_alike=float(covered.max()) if len(covered) else None,
        mean_others=float(others.mean()) if len(others) else None,
        largest_others=float(others.max()) if len(others) else None,
        largest_score=largest_score,
    )


def _wordings(wordings: WordingVariants, collection: Collection) -> Iterator[tuple[str, str, str]]:
    """A query, and the male and the female wording of a document."""
    for pair in wordings.pairs():
        # As for the score gaps, which are measured on relevant documents.
        if pair.relevance == 0:
            continue
        texts = collection.documents.get_many([pair.first, pair.second])
        yield collection.queries[pair.query_id], texts[pair.first], texts[pair.second]


def _sentences(path: Path, swap: LexiconSwap) -> Iterator[tuple[str, str, str]]:
    """Two wordings of each sentence, with a query.

    The query is made of the words that both have and that no swap replaces.
    """
    left_out = 0
    for _, (first, second) in read_jsonl(path, _two_wordings):
        shared = set(word_tokens(first)) & set(word_tokens(second))
        kept = []
        for word in dict.fromkeys(word_tokens(first)):
            if word in shared and not swap(word).swaps:
                kept.append(word)
        if kept:
            yield " ".join(kept), first, second
        else:
            left_out += 1
    if left_out:
        log.warning(
            "%s: %d pairs are left out, because their wordings share no word for a query",
            path,
            left_out,
        )


def _two_wordings(row: dict[str, Any]) -> tuple[str, str]:
    for first, second in _WORDINGS:
        if first in row and second in row:
            return text_under(row, first), text_under(row, second)
    keys = " or ".join(" and ".join(names) for names in _WORDINGS)
    raise ValueError(f"two wordings are expected, under {keys}; found {', '.join(row)}")
