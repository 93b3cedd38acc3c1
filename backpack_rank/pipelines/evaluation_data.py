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
from backpack_rank.evaluation.contrast import ContrastSet, load_contrast
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
    """Everything that a system ranks: what :func:`load_evaluation_data` gives.

    Attributes:
        test: queries with judgements.
        bias: neutral queries; part of ``test`` unless the data has a bias collection of its own.
        neutral_to: what queries of the bias set are neutral to, such as ``gender``; for its name.
        separate: whether the bias set is of another collection than ``test``.
        stage: name of the first stage.
        candidates: of ``test``.
        bias_candidates: of ``bias``.
        swapped: for the stability under swaps, or None.
        variants: for score gaps between wordings, or None.
        contrast: queries that ask for a group, each with a right text and wrong ones, or None.
    """

    test: Collection
    bias: Collection
    neutral_to: str
    separate: bool
    stage: str
    candidates: Run
    bias_candidates: Run
    swapped: CounterfactualSet | None = None
    variants: VariantSet | None = None
    contrast: ContrastSet | None = None

    @property
    def bias_set(self) -> str:
        """Name and size of the bias set, such as ``dl19/test: 30 gender-neutral queries``."""
        return self.bias_set_of(len(self.bias.queries))

    def bias_set_of(self, measured: int) -> str:
        """The same where only so many of its queries have a ranking.

        Such as ``dl19/test: 1 of 30 gender-neutral queries``.
        """
        number = len(self.bias.queries)
        count = f"{measured} of {number}" if measured < number else f"{number}"
        noun = "query" if number == 1 else "queries"
        return f"{self.bias.name}: {count} {self.neutral_to}-neutral {noun}"


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
    contrast: str | bool = False,
) -> EvaluationData:
    """All that an evaluation of a split ranks: queries, candidates and counterparts.

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
        contrast: also the contrast set of the attribute (True), or of a file.

    Raises:
        ValueError: the data has no such split, or no query of it is neutral.
    """
    test = dataset.split(split)
    separate = split == "test" and dataset.has("bias")
    bias_collection = dataset.split("bias") if separate else test
    bias = _bias_set(dataset, attribute, bias_collection, lexicon, split)

    stage, candidates, bias_candidates = "", Run(), Run()
    if needs_candidates:
        stage, candidates = dataset.candidates(split, test)
        if separate:
            _, bias_candidates = dataset.candidates("bias", bias)
        if not bias_candidates:
            bias_candidates = select_queries(candidates, bias)

    data = EvaluationData(
        test=test,
        bias=bias,
        neutral_to=_name_of_words(attribute, lexicon),
        separate=separate,
        stage=stage,
        candidates=candidates,
        bias_candidates=bias_candidates,
    )
    if swap:
        data = replace(data, swapped=swapped_candidates(attribute, bias, bias_candidates, cut))
    if variants is None and dataset.variants is not None:
        variants = dataset
    if variants is not None:
        data = replace(data, variants=_variants(variants, split if halve_variants else None))
    if contrast:
        data = replace(data, contrast=attribute_contrast(attribute, contrast))
    return data


def attribute_contrast(attribute: Attribute, contrast: str | bool) -> ContrastSet:
    """The contrast set of an attribute (True), or one of a file.

    Raises ``ValueError`` where the attribute has none.
    """
    file = attribute.contrast_file if contrast is True else contrast
    if not file:
        raise ValueError(
            f"contrast=true: the attribute {attribute.name} has no contrast set; "
            "attribute.contrast=FILE names one, or contrast=FILE"
        )
    swap = attribute.swap()
    with located("contrast"):
        return load_contrast(str(file), lambda text: swap(text).text)


def _name_of_words(attribute: Attribute, lexicon: str) -> str:
    """What a query without a word of the lexicon is neutral to.

    The attribute if the lexicon has its groups, else the lexicon.
    """
    words = _words_of(lexicon)
    if set(words.group_names) == set(attribute.lexicon().group_names):
        return attribute.name
    return words.name


def _words_of(lexicon: str) -> Lexicon:
    with located("bias.lexicon"):
        return load_lexicon(lexicon)


def _bias_set(
    dataset: Dataset, attribute: Attribute, collection: Collection, lexicon: str, split: str
) -> Collection:
    """The neutral queries of a collection: the published ones, or those without a listed word."""
    # The published sets are of test collections, and neutral as to gender alone.
    if split == "test" and dataset.bias_queries is not None and attribute.name == "gender":
        wanted: Iterable[str] = load_neutral_queries(dataset.bias_queries)
        why = f"none of the queries of {dataset.bias_queries} is in {collection.name}"
    else:
        # One idea of a neutral query for measures and policies; a lexicon of one's own may have
        # further words.
        neutral = attribute.group_queries.neutral(collection.queries)
        wanted = neutral_by_lexicon(neutral, _words_of(lexicon))
        why = f"every query of {collection.name} has a word of {lexicon}"
    chosen = collection.select_queries(wanted)
    if not chosen.queries:
        raise ValueError(f"the bias set is empty: {why}; set data.bias and data.bias_queries")
    return chosen


def swapped_candidates(
    attribute: Attribute, bias: Collection, candidates: Run, cut: Callable[[str], str] | None = None
) -> CounterfactualSet | None:
    """The candidates in their swapped wording; None where there are none."""
    doc_ids: dict[str, None] = {}
    for documents in candidates.values():
        doc_ids |= dict.fromkeys(documents)
    if not doc_ids:
        return None
    collection, counts = swapped_collection(bias, attribute.swap(), list(doc_ids), cut)
    changed = {}
    for query_id, documents in candidates.items():
        changed_documents = {}
        for doc_id, score in documents.items():
            if doc_id in counts.changed:
                changed_documents[doc_id] = score
        if changed_documents:
            changed[query_id] = changed_documents
    return CounterfactualSet(collection, changed, counts)


def _variants(dataset: Dataset, half: str | None) -> VariantSet:
    load: Callable[[], WordingVariants] | None = dataset.variants
    assert load is not None
    # Never rotated: each wording would be cut at another place.
    collection = dataset.with_rotation("none").split("test")
    if half is not None:
        chosen = []
        for query_id in collection.queries:
            # By a hash, so that a query stays in its half whatever other queries there are.
            first_byte = int(digest(query_id, size=4)[:2], 16)
            in_dev_half = first_byte % 2 == 0
            if in_dev_half == (half == "dev"):
                chosen.append(query_id)
        collection = collection.select_queries(chosen)
    _, candidates = dataset.candidates("test", collection)
    return VariantSet(collection, candidates, load())
