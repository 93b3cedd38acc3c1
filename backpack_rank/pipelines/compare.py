"""``backpack_rank.evaluate``: rerankers over a collection, measured, without a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.data.collection import Collection
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.first_stage import FirstStage
from backpack_rank.evaluation.fairness_measures import FairnessMeasures
from backpack_rank.evaluation.result_table import ResultTable
from backpack_rank.pipelines.chosen_data import named_dataset
from backpack_rank.pipelines.evaluation_data import load_evaluation_data
from backpack_rank.pipelines.metrics import metrics_of
from backpack_rank.reranking.rerankers import FirstStageOrder, Reranker
from backpack_rank.reranking.together import common_scorer


def evaluate(
    rerankers: Reranker | Sequence[Reranker],
    data: Collection | Dataset | str,
    *,
    first_stage: FirstStage | None = None,
    measures: Sequence[str] | None = None,
    attribute: str | Attribute = "gender",
    bias: FairnessMeasures | None = None,
    swap: bool = True,
    split: str = "test",
) -> ResultTable:
    """Rank the candidates of a collection by every reranker, and measure all rankings.

    The first stage itself comes first. A ranker at several alphas reads every text as rarely as its
    policies allow. The numbers are those of ``evaluate.py`` on the same data.

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
            A name is that of ``data=NAME`` on the command line, with its measures and bias set.
        first_stage: None takes that of the dataset; of a collection its own candidates where it has
            some, else BM25.
        measures: ir_measures strings, those of fairness (``RaB(tf)@10``) among them; None: those of
            the dataset.
        attribute: a name of ``conf/attribute``, or an attribute.
        bias: measures of bias, which those of fairness among ``measures`` join; None: the preset
            ``default``.
        swap: score the bias set's candidates in swapped wording too.
        split: of a dataset.

    Raises:
        ValueError: a measure that does not exist, no neutral query, or two rerankers of one name.
        TypeError: something else than a reranker.
    """
    given = [rerankers] if isinstance(rerankers, Reranker) else list(rerankers)
    for number, reranker in enumerate(given):
        if not isinstance(reranker, Reranker):
            raise TypeError(
                f"rerankers[{number}] is {reranker!r:.80}: give what backpack_rank.load gives, or "
                "another Reranker"
            )
    names = [reranker.name for reranker in given]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ValueError(
            f"two rerankers are called {repeated[0]!r}: set reranker.name, or the rows could not "
            "be told apart"
        )
    attribute = Attribute.named(attribute) if isinstance(attribute, str) else attribute
    dataset = named_dataset(data) if isinstance(data, str) else data
    if isinstance(dataset, Collection):
        dataset = Dataset.of(dataset, first_stage)
    elif first_stage is not None:
        stage = first_stage
        dataset = replace(dataset, first_stages={"": lambda: stage})
    if bias is None:
        sign = "_minus_".join(attribute.sign)
        bias = FairnessMeasures(lexicon=str(attribute.lexicon().path), sign=sign)
    metrics = metrics_of(measures, bias, attribute, dataset)
    # What one ranker reads of a text is swapped; of several rankers each reads another part.
    scorer = common_scorer(given)
    cut = None if scorer is None else scorer.cut
    evaluated = load_evaluation_data(dataset, attribute, bias.lexicon, split, swap=swap, cut=cut)
    return metrics.evaluate([FirstStageOrder(evaluated.stage), *given], evaluated)
