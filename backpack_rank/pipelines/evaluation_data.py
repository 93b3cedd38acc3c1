"""What an evaluation ranks: queries and candidates, and the same documents in other wordings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.attributes.lexicon import Lexicon, load_lexicon
from backpack_rank.attributes.neutral_queries import load_neutral_queries, neutral_by_lexicon
from backpack_rank.attributes.wording_variants import WordingVariants
from backpack_rank.checks import located
from backpack_rank.data.collection import Collection, Run, select_queries
from backpack_rank.data.dataset import Dataset
from backpack_rank.digests import digest
from backpack_rank.evaluation.swap_stability import SwapCounts, swapped_collection


@dataclass(frozen=True)
class CounterfactualSet:
    """The candidates of the bias set that a lexicon swap changes.

    Attributes:
        collection: texts of all candidates, swapped, under the ids of the originals.
        candidates: the changed documents of each query; queries without any are left out.
        counts: how much was swapped.
    """

    collection: Collection
    candidates: Run
    counts: SwapCounts


@dataclass(frozen=True)
class VariantSet:
    """A collection that holds every document in a wording for each group (Grep-BiasIR)."""

    collection: Collection
    candidates: Run
    variants: WordingVariants


@dataclass(frozen=True)
class EvaluationData:
    """Everything that a system ranks.

    Attributes:
        test: queries with judgements.
        bias: neutral queries; part of ``test`` unless the data has a bias collection of its own.
        separate: whether the bias set is of another collection than ``test``.
        stage: name of the first stage.
        candidates: of ``test``.
        bias_candidates: of ``bias``.
        swapped: for the stability under swaps, or None.
        variants: for score gaps between wordings, or None.
        neutral: what queries of the bias set are neutral to, such as ``gender-``; for its name.
    """

    test: Collection
    bias: Collection
    separate: bool
    stage: str
    candidates: Run
    bias_candidates: Run
    swapped: CounterfactualSet | None = None
    variants: VariantSet | None = None
    neutral: str = ""

    @property
    def bias_set(self) -> str:
        """Name and size of the bias set, such as ``dl19/test: 30 gender-neutral queries``."""
        return self.bias_set_of(len(self.bias.queries))

    def bias_set_of(self, measured: int) -> str:
        """The same where only so many of its queries have a ranking:
        ``dl19/test: 1 of 30 gender-neutral queries``.
        """
        number = len(self.bias.queries)
        some = f"{measured} of " if measured < number else ""
        return f"{self.bias.name}: {some}{number} {self.neutral}neutral {'query' if number == 1 else 'queries'}"


def load_evaluation_data(
    dataset: Dataset,
    attribute: Attribute,
    lexicon: str,
    split: str = "test",
    *,
    swap: bool = True,
    variants: Dataset | None = None,
    halve_variants: bool = False,
    needs_candidates: bool = True,
    cut: Callable[[str], str] | None = None,
) -> EvaluationData:
    """Queries and candidates of a split, its bias set, and their counterparts.

    Args:
        dataset: splits and first stage.
        attribute: whose words are swapped.
        lexicon: queries with one of its words are not neutral.
        split: ``test`` or ``dev``.
        swap: also swap the words of the attribute in the bias set's candidates.
        variants: documents in a wording for each group; None takes those of the dataset, if it has
            some.
        halve_variants: only half of the variants' queries, chosen by a hash: one half belongs to
            ``dev``.
        needs_candidates: whether anything is to be ranked; else there are no candidates.
        cut: gives what of a text is read, so that no more of it is swapped.

    Raises:
        ValueError: the data has no such split, or no query of it is neutral.
    """
    test = dataset.split(split)
    separate = split == "test" and dataset.has("bias")
    bias = _bias_set(
        dataset, attribute, dataset.split("bias") if separate else test, lexicon, split
    )
    stage, candidates, bias_candidates = "", Run(), Run()
    if needs_candidates:
        stage, candidates = dataset.candidates(split, test)
        own = separate and dataset.candidates("bias", bias)[1]
        bias_candidates = own or select_queries(candidates, bias)
    neutral = f"{_name_of_words(attribute, lexicon)}-"
    data = EvaluationData(test, bias, separate, stage, candidates, bias_candidates, neutral=neutral)
    if swap:
        data = replace(data, swapped=_swapped(attribute, bias, bias_candidates, cut))
    variants = variants or (dataset if dataset.variants is not None else None)
    if variants is not None:
        data = replace(data, variants=_variants(variants, split if halve_variants else None))
    return data


def _name_of_words(attribute: Attribute, lexicon: str) -> str:
    """What a query without a word of the lexicon is neutral to: the attribute, if the lexicon has
    its groups.
    """
    words = _words_of(lexicon)
    return (
        attribute.name
        if set(words.group_names) == set(attribute.lexicon().group_names)
        else words.name
    )


def _words_of(lexicon: str) -> Lexicon:
    with located("bias.lexicon"):
        return load_lexicon(lexicon)


def _bias_set(
    dataset: Dataset, attribute: Attribute, collection: Collection, lexicon: str, split: str
) -> Collection:
    # The published sets are of test collections, and neutral as to gender alone.
    if split == "test" and dataset.bias_queries is not None and attribute.name == "gender":
        wanted: Iterable[str] = load_neutral_queries(dataset.bias_queries)
        why = f"none of the queries of {dataset.bias_queries} is in {collection.name}"
    else:
        wanted = neutral_by_lexicon(collection.queries, _words_of(lexicon))
        why = f"every query of {collection.name} has a word of {lexicon}"
    chosen = collection.select_queries(wanted)
    if not chosen.queries:
        raise ValueError(f"the bias set is empty: {why}; set data.bias and data.bias_queries")
    return chosen


def _swapped(
    attribute: Attribute, bias: Collection, candidates: Run, cut: Callable[[str], str] | None
) -> CounterfactualSet | None:
    ids = list(dict.fromkeys(doc_id for documents in candidates.values() for doc_id in documents))
    if not ids:
        return None
    collection, counts = swapped_collection(bias, attribute.swap(), ids, cut)
    changed = {
        query_id: {doc_id: score for doc_id, score in documents.items() if doc_id in counts.changed}
        for query_id, documents in candidates.items()
    }
    return CounterfactualSet(
        collection,
        {query_id: documents for query_id, documents in changed.items() if documents},
        counts,
    )


def _variants(dataset: Dataset, half: str | None) -> VariantSet:
    load: Callable[[], WordingVariants] | None = dataset.variants
    assert load is not None
    # Never rotated: each wording would be cut at another place.
    collection = dataset.with_rotation("none").split("test")
    if half is not None:
        dev = half == "dev"
        collection = collection.select_queries(
            query for query in collection.queries if _in_dev_half(query) == dev
        )
    return VariantSet(collection, dataset.candidates("test", collection)[1], load())


def _in_dev_half(query_id: str) -> bool:
    first_byte = int(digest(query_id, size=4)[:2], 16)
    return first_byte % 2 == 0
