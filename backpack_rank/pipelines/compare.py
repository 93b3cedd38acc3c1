"""``backpack_rank.evaluate``: rerankers over a collection, measured, without a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.collection import Collection
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.first_stage import FirstStage
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.measure_names import split_measures
from backpack_rank.evaluation.result_table import ResultTable
from backpack_rank.pipelines.evaluation_data import load_evaluation_data
from backpack_rank.pipelines.metrics import MetricSuite
from backpack_rank.reranking.rerankers import FirstStageOrder, Reranker


def evaluate(
    rerankers: Reranker | Sequence[Reranker],
    data: Collection | Dataset,
    *,
    first_stage: FirstStage | None = None,
    measures: Sequence[str] | None = None,
    attribute: str | Attribute = "gender",
    bias: FairnessMeasures | None = None,
    swap: bool = True,
    split: str = "test",
) -> ResultTable:
    """Rank the candidates of a collection by every reranker, and measure all rankings.

    The first stage itself comes first.

    >>> reranker = backpack_rank.load("outputs/train/DATE/ranker")  # doctest: +SKIP
    >>> dials = []  # doctest: +SKIP
    >>> for alpha in (1, 0.5, 0):  # doctest: +SKIP
    ...     dials.append(reranker.with_policy("paired_tokens", alpha))
    >>> from backpack_rank.data.sources.beir import load_beir  # doctest: +SKIP
    >>> evaluate(dials, load_beir("my_collection", "test")).summary()  # doctest: +SKIP

    Args:
        rerankers: anything with ``rerank(run, collection)``, see
            :mod:`backpack_rank.reranking.rerankers`; their names must differ.
        data: queries, documents and judgements; a dataset has splits and a first stage of its own.
        first_stage: of a collection; None takes the collection's own candidates where it has some,
            else BM25.
        measures: ir_measures strings, those of fairness (``RaB(tf)@10``) among them; None: those of
            the dataset.
        attribute: a name of ``conf/attribute``, or an attribute.
        bias: measures of bias; None: the preset ``default``.
        swap: score the bias set's candidates in swapped wording too.
        split: of a dataset.

    Raises:
        ValueError: a measure that does not exist, no neutral query, or two rerankers of one name.
    """
    given = [rerankers] if isinstance(rerankers, Reranker) else list(rerankers)
    names = [reranker.name for reranker in given]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ValueError(
            f"two rerankers are called {repeated[0]!r}: set reranker.name, or the rows could not "
            "be told apart"
        )
    attribute = Attribute.named(attribute) if isinstance(attribute, str) else attribute
    dataset = Dataset.of(data, first_stage) if isinstance(data, Collection) else data
    ranking, fairness = split_measures(measures if measures is not None else dataset.measures)
    if bias is None:
        sign = "_minus_".join(attribute.sign)
        bias = FairnessMeasures(lexicon=str(attribute.lexicon().path), sign=sign, extra=fairness)
    metrics = MetricSuite(tuple(ranking), bias, attribute.sign)
    evaluated = load_evaluation_data(dataset, attribute, bias.lexicon, split, swap=swap)
    return metrics.evaluate([FirstStageOrder(evaluated.stage), *given], evaluated)
