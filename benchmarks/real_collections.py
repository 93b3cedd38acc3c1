"""What each policy does to rankers of real passages, with seeds and intervals: trains, measures,
prints the tables.

::

    python -m benchmarks.real_collections                       # sentence-transformers/all-MiniLM-L6-v2 from the hub
    python -m benchmarks.real_collections --weights FOLDER      # the same weights from a folder
    python -m benchmarks.real_collections --tables              # from what is measured already

Three rankers for each seed: the Backpack of ``recipe=minilm_without_similarity``, which has attribute senses, one
without them whose keys are read as the paper's Backpack reads them
(``model.ranker.attribute_senses=null model.ranker.keys=last``), and the plain cross-encoder on the
same weights. Each is measured on TREC DL 2019, DL 2020 and Grep-BiasIR under its policies. All of it
takes hours on one core; whatever is already in the JSON files of ``--records`` (one for each ranker
and seed) or among the rankers below ``--rankers`` is taken as it is. A ranker whose file is
complete is not needed any more.

Texts that a policy leaves alone are not read again, and texts that several policies read are read
once, so the time of the measurement is not the time of a policy. That is measured apart, on some
lists, without any cache.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose, initialize_config_dir
from torch import nn

from backpack_rank.attributes.renditions import RELATIONS
from backpack_rank.data.batching import Pairs, join_pairs
from backpack_rank.files import resource_folder, write_text
from backpack_rank.pipelines.alpha import choose_alpha
from backpack_rank.pipelines.evaluate import evaluation_loader
from backpack_rank.pipelines.evaluation_data import EvaluationData, load_evaluation_data
from backpack_rank.pipelines.metrics import MetricSuite, rank_all
from backpack_rank.pipelines.output_folder import register_resolvers
from backpack_rank.pipelines.settings import EvaluationSettings
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.rerankers import FirstStageOrder, Reranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import UNCHANGED, TextScorer
from backpack_rank.senses.cache import SenseCache
from backpack_rank.senses.views import View
from benchmarks.policy_tables import tables
from benchmarks.report import machine

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks" / "results" / "real_collections"
WEIGHTS = "sentence-transformers/all-MiniLM-L6-v2"
SEEDS = (0, 1, 2)
COLLECTIONS = ("dl19", "dl20")
MEASURES = (
    *("nDCG@10", "swap change/std (swapped)", "swap change/std", "|gap|/std", "gap/std"),
    *("RaB(tf)@10", "ARaB(tf)@10", "NFaiRR@10"),
)
BUDGET = "nDCG@10 loss<=1%"
TIMED = 20
"""Of each list, every so many-th candidate is scored for the cost of a policy."""


@dataclass(frozen=True)
class Setting:
    """A policy and the alphas other than 1 that it is measured at.

    Attributes:
        policy: its name in the tables.
        options: of evaluate.py; empty: ``policy=<policy>``.
        alphas: positions of the dial.
        chosen: whether ``alpha=auto`` is tried too.
    """

    policy: str
    options: tuple[str, ...] = ()
    alphas: tuple[float, ...] = (0.5, 0.0)
    chosen: bool = True

    @property
    def overrides(self) -> tuple[str, ...]:
        """What evaluate.py is told."""
        return self.options or (f"policy={self.policy}",)


def _control(name: str, *options: str) -> Setting:
    return Setting(name, options, alphas=(0.0,), chosen=False)


PAIRED_TOKENS = (
    Setting("paired_tokens"),
    Setting("paired_tokens_wide", ("policy=paired_tokens", "policy.wide=true")),
)
UNIFORM = Setting("uniform", alphas=(0.5,), chosen=False)
MERGE = ("policy=renditions", "policy.relations=merge")
RENDITIONS = (
    Setting("renditions_keep", ("policy=renditions",)),
    Setting("renditions_merge", MERGE),
    _control("renditions_keep_female", "policy=renditions", "policy.only=female"),
    _control("renditions_keep_male", "policy=renditions", "policy.only=male"),
    _control("renditions_merge_female", *MERGE, "policy.only=female"),
    _control("renditions_merge_male", *MERGE, "policy.only=male"),
    _control("renditions_keep_wide", "policy=renditions", "policy.wide=true"),
    _control("renditions_keep_queries", "policy=renditions", "policy.queries=all"),
    _control("renditions_merge_wide", *MERGE, "policy.wide=true"),
)
"""Any ranker's."""
POLICIES: Mapping[str, tuple[Setting, ...]] = {
    "attribute_senses": (Setting("lowest_senses"), UNIFORM, RENDITIONS[0]),
    "backpack": (
        Setting("lowest_senses"),
        UNIFORM,
        *PAIRED_TOKENS,
        *RENDITIONS,
    ),
    "cross_encoder": (
        *PAIRED_TOKENS,
        *RENDITIONS,
    ),
}
"""By ranker, in the order of the tables."""


def main() -> None:
    """Train and measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--weights", default=WEIGHTS, help="folder or hub id of the pretrained weights"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=None, help="0 to 2; quick: 0")
    parser.add_argument("--models", nargs="+", choices=list(POLICIES), default=list(POLICIES))
    parser.add_argument(
        "--rankers",
        type=Path,
        default=Path("outputs/real_collections"),
        help="folder of the rankers",
    )
    parser.add_argument("--records", type=Path, default=None, help="folder of the JSON files")
    parser.add_argument(
        "--tables", action="store_true", help="train and measure nothing, only print"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one seed, few lists: checks that all runs"
    )
    given = parser.parse_args()
    folder = given.records or (ROOT / "build" / "real_collections" if given.quick else RECORDS)
    seeds = given.seeds or (SEEDS[:1] if given.quick else SEEDS)
    if not given.tables:
        register_resolvers()
        for seed in seeds:
            for model in given.models:
                measure(
                    Job(model, seed, given.weights, given.rankers.absolute(), given.quick), folder
                )
    records = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*-*.json"))
    ]
    shown = tables(records)
    write_text(folder / "tables.md", shown)
    print(shown)


@dataclass(frozen=True)
class Job:
    """One ranker of one seed."""

    model: str
    seed: int
    weights: str
    rankers: Path
    quick: bool = False

    @property
    def name(self) -> str:
        """Of its folder and its record."""
        return f"{self.model}-{self.seed}"

    @cached_property
    def options(self) -> tuple[str, ...]:
        """What train.py is told, beside where the output goes."""
        recipe = (
            "recipe=minilm_without_similarity",
            f"seed={self.seed}",
            f"model.ranker.name={self.weights}",
        )
        return recipe + OPTIONS[self.model]

    def ranker(self) -> Path:
        """Its folder, trained if it is not there."""
        folder = self.rankers / self.name
        if not list(folder.glob("train/*/ranker/config.json")):
            small = QUICK if self.quick else ()
            subprocess.run(
                [sys.executable, "train.py", *self.options, *small, f"output={folder}"],
                cwd=ROOT,
                check=True,
            )
        return max(folder.glob("train/*/ranker"))


OPTIONS: Mapping[str, tuple[str, ...]] = {
    "attribute_senses": (),
    "backpack": ("model.ranker.attribute_senses=null", "model.ranker.keys=last"),
    "cross_encoder": ("model=cross_encoder", "reconstruct.steps=0"),
}
"""What train.py is told besides the recipe."""
QUICK = ("lists.per_epoch=4", "reconstruct.texts=20", "reconstruct.held_out=10")


class Record:
    """The JSON file of one ranker: a line for each thing that is known, written whenever one more
    is.
    """

    def __init__(self, path: Path, about: Mapping[str, object]) -> None:
        self.path = path
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self.content: dict[str, Any] = {**about, **known}

    def need(self, key: str, find: Callable[[], Any]) -> None:
        """Find and write what is not known yet."""
        if key not in self.content:
            self.content[key] = find()
            lines = [
                f"{json.dumps(name)}: {json.dumps(value)}" for name, value in self.content.items()
            ]
            write_text(self.path, "{\n" + ",\n".join(lines) + "\n}\n")


def measure(job: Job, folder: Path) -> None:
    """Measure one ranker under all its policies, as far as its record does not have it."""
    record = Record(
        folder / f"{job.name}.json",
        {"model": job.model, "seed": job.seed, "machine": machine("cpu")},
    )
    for name in COLLECTIONS:
        Measurement(job, name, record).run()


@dataclass
class Measurement:
    """One ranker on one collection; the ranker and the texts are loaded when something has to be
    measured.
    """

    job: Job
    collection: str
    record: Record
    _policies: dict[tuple[str, ...], EvaluationSettings] = field(default_factory=dict)

    def run(self) -> None:
        """Find what the record lacks."""
        self.record.need(f"{self.collection} unchanged 1", lambda: self.values(self.reranker))
        self.record.need(
            f"{self.collection} BM25 1", lambda: self.values(FirstStageOrder(self.data.stage))
        )
        if self.collection == COLLECTIONS[0]:
            self.record.need("equal forms", self.equal_forms)
        for setting in POLICIES[self.job.model]:
            for alpha in setting.alphas:
                self._at(setting, alpha)
            if self.collection == COLLECTIONS[0]:
                self.record.need(
                    f"cost {setting.policy}", lambda setting=setting: self.cost(setting)
                )
            if setting.chosen:
                self.record.need(
                    f"auto {setting.policy}", lambda setting=setting: self.chosen(setting)
                )
                if (alpha := self.record.content[f"auto {setting.policy}"]["alpha"]) != 1:
                    self._at(setting, alpha)

    def _at(self, setting: Setting, alpha: float) -> None:
        key = f"{self.collection} {setting.policy} {alpha:g}"
        self.record.need(key, lambda: self.values(self.turned(setting, alpha)))

    def values(self, reranker: Reranker) -> dict[str, dict[str, float]]:
        """``{measure: {query id: value}}``, five digits."""
        started = time.perf_counter()
        (system,) = self.metrics.measure([rank_all(reranker, self.data)], self.data).systems
        print(
            f"{self.job.name} {self.collection} {reranker.name}: "
            f"{time.perf_counter() - started:.0f} s",
            flush=True,
        )
        return {
            measure: {
                query_id: float(f"{value:.5g}") for query_id, value in of.values[measure].items()
            }
            for of in system.values.values()
            for measure in of.measures
            if measure in MEASURES
        }

    def turned(self, setting: Setting, alpha: float) -> PointwiseReranker:
        """The ranker under a policy."""
        return self.reranker.with_policy(self.settings(setting.overrides).policy, alpha)

    def equal_forms(self) -> dict[str, list[str]]:
        """Queries of Grep-BiasIR whose relevant document has one canonical form in both wordings,
        by kind of form.
        """
        variants = self.data.variants
        assert variants is not None
        pairs = [pair for pair in variants.variants.pairs() if pair.relevance]
        found: dict[str, list[str]] = {}
        for relations, wide in product(RELATIONS, (False, True)):
            canonical = self.settings().attribute.renditions(relations, wide=wide).canonical
            name = f"{relations}_wide" if wide else relations
            found[name] = []
            for pair in pairs:
                first, second = variants.collection.documents.get_many(
                    [pair.first, pair.second]
                ).values()
                if canonical(first) == canonical(second):
                    found[name].append(pair.query_id)
        return found

    def cost(self, setting: Setting) -> dict[str, float]:
        """Texts that the network reads per candidate, and CPU seconds per candidate beside those of
        alpha 1.
        """
        candidates = {
            query_id: {doc_id: documents[doc_id] for doc_id in islice(documents, 0, None, TIMED)}
            for query_id, documents in self.data.candidates.items()
        }
        scorer = self.reranker.scorer.scorer
        plain = PointwiseReranker(scorer, attribute=self.reranker.attribute)
        turned = plain.with_policy(self.settings(setting.overrides).policy, min(setting.alphas))
        number = sum(map(len, candidates.values()))
        found: dict[str, float] = {"candidates": number}
        for name, reranker in (("unchanged", plain), ("turned", turned)):
            with counted(scorer.ranker) as count:
                started = time.process_time()
                reranker.rerank(candidates, self.data.test)
                found[f"{name} ms"] = round(1000 * (time.process_time() - started) / number, 3)
            found[f"{name} passes"] = round(sum(count) / number, 4)
        return found

    def chosen(self, setting: Setting) -> dict[str, Any]:
        """The largest change of alpha within the budget on dev."""
        settings = self.settings(
            (*setting.overrides, "alpha=auto", f"budget='{BUDGET}'", "swap=false")
        )
        dataset = settings.dataset(self.checkpoint)
        lexicon = self.metrics.fairness.lexicon
        dev = load_evaluation_data(dataset, settings.attribute, lexicon, "dev", swap=settings.swap)
        alpha, (note, *_) = choose_alpha(
            settings.budget, settings.policy, self.reranker, dev, self.metrics
        )
        return {"alpha": alpha, "budget": BUDGET, "note": note}

    def settings(self, options: tuple[str, ...] = ()) -> EvaluationSettings:
        """Of evaluate.py with these options, as they were composed first."""
        if options not in self._policies:
            variants = ("variants=grep_biasir",) if self.collection == COLLECTIONS[0] else ()
            folder = f"cache.folder={self.job.rankers / 'senses'}"
            # The Backpack without attribute senses is measured under the paper's rule on the senses
            # that it has.
            variants = (*variants, "split_attribute=false")
            with initialize_config_dir(str(resource_folder("conf")), version_base="1.3"):
                config = compose(
                    "evaluate", overrides=[f"data={self.collection}", folder, *variants, *options]
                )
            self._policies[options] = EvaluationSettings.of(config)
        return self._policies[options]

    @cached_property
    def checkpoint(self) -> Path:
        return self.job.ranker()

    @cached_property
    def metrics(self) -> MetricSuite:
        return self.settings().metrics(self.settings().dataset(self.checkpoint))

    @cached_property
    def data(self) -> EvaluationData:
        settings = self.settings()
        return evaluation_loader(settings, settings.dataset(self.checkpoint), self.metrics)("test")

    @cached_property
    def reranker(self) -> PointwiseReranker:
        own = self.settings().reranker(self.checkpoint)
        return PointwiseReranker(
            SparingScorer(own.local_scorer), attribute=own.attribute, cache=own.cache
        )


class SparingScorer(TextScorer):
    """The scores of another scorer, which reads no text twice under one view.

    Under a view that moves tokens, texts without such a token keep the score that they have without
    the shift; a rewritten text that was read before has the score that it had.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer, self.ranker, self.tokenizer = scorer, scorer.ranker, scorer.tokenizer
        self._known: dict[tuple[str, str], float] = {}

    def score_texts(self, pairs: Sequence[tuple[str, str]], view: View = UNCHANGED) -> np.ndarray:
        """As of the other scorer."""
        return self.scorer.score_texts(pairs, view)

    def scores(
        self, pairs: Pairs, view: View = UNCHANGED, cache: SenseCache | None = None
    ) -> np.ndarray:
        """Raw logits of all rows. [N] float32"""
        if view.token_shift is not None:
            return self._moved(pairs, view, cache)
        if view.sense_weights is not None:
            return self.scorer.scores(pairs, view, cache)
        texts = list(pairs.texts())
        distinct = dict.fromkeys(texts)
        missing = [pair for pair in distinct if pair not in self._known]
        if len(missing) == len(distinct):  # the cache keeps them for policies that weigh senses
            self._known.update(
                zip(texts, self.scorer.scores(pairs, view, cache).tolist(), strict=True)
            )
        elif missing:
            self._known.update(zip(missing, self.scorer.score_texts(missing).tolist(), strict=True))
        return np.array([self._known[pair] for pair in texts], dtype=np.float32)

    def _moved(self, pairs: Pairs, view: View, cache: SenseCache | None) -> np.ndarray:
        shift, scores = view.token_shift, self.scores(pairs, replace(view, token_shift=None), cache)
        assert shift is not None
        names = [f"query {query_id}" for query_id in pairs.query_ids]
        sequences = join_pairs(
            self.scorer.pair_tokenizer, list(pairs.texts()), names=names
        ).sequences
        if moved := [row for row, ids in enumerate(sequences) if shift.moves(ids)]:
            scores = scores.copy()
            scores[moved] = self.scorer.score_tokens([sequences[row] for row in moved], view)
        return scores


@contextmanager
def counted(ranker: nn.Module) -> Iterator[list[int]]:
    """The sizes of the batches that a ranker reads within the block."""
    sizes: list[int] = []
    handle = ranker.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    try:
        yield sizes
    finally:
        handle.remove()


if __name__ == "__main__":
    main()
