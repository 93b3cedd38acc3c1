"""From the composed configuration of ``backpack-rank rerank`` to typed objects, once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import torch

from backpack_rank.attributes.attribute import Attribute
from backpack_rank.constructors import (
    BELOW,
    Called,
    Count,
    CountOrZero,
    FilePath,
    Name,
    Options,
    PathText,
    Range,
)
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.first_stage import RunFile
from backpack_rank.data.trec import run_rows
from backpack_rank.digests import digest
from backpack_rank.models.prompted_ranker import PromptTemplate
from backpack_rank.models.utils import pick_device
from backpack_rank.pipelines.chosen_data import ChosenData
from backpack_rank.pipelines.chosen_ranker import ChosenRanker
from backpack_rank.pipelines.nodes import build, check_options, made_options, plain_options
from backpack_rank.pipelines.option_types import (
    Alpha,
    Alphas,
    DataOptions,
    FirstStageNode,
    Labels,
    Pooling,
)
from backpack_rank.pipelines.settings import slugify
from backpack_rank.reranking.rankings import check_threshold
from backpack_rank.reranking.text_scorer import ScoringSettings
from backpack_rank.scale.alpha_sweep import AlphaSweep
from backpack_rank.scale.shard_plan import Candidates, Plan, Sharding
from backpack_rank.scale.shards import open_shards
from backpack_rank.scale.store import Store
from backpack_rank.senses.policies import Policy


class RerankOptions(Options):
    """Checks composed options of ``conf/rerank.yaml``, which says what each is."""

    data: DataOptions | None
    first_stage: FirstStageNode | None
    attribute: Annotated[Attribute, BELOW]
    policy: Annotated[Policy, Called("one of list=policy")]
    action: Literal["plan", "score", "merge", "status", "all"]
    folder: FilePath | None
    run: FilePath | None
    split: Literal["test", "dev", "train"]
    alpha: Alpha | Alphas
    shards: Annotated[int, Range(least=1, most=1_000_000)] | None
    pairs_per_shard: Count | None
    shard: CountOrZero | None
    claim: Literal["locks", "static"] | None
    part: CountOrZero
    parts: Annotated[int, Range(least=1, most=1_000_000)]
    store: PathText | None
    workers: Annotated[int, Range(least=1, most=4096)] | None
    threads: Annotated[int, Range(least=1, most=1024)]
    score_threshold: float | None
    scoring: ScoringSettings
    output: FilePath
    checkpoint: FilePath | None
    template: Annotated[PromptTemplate, Called("one of list=template")] | None
    labels: Labels | None
    server_model: Name | None
    pooling: Pooling


class RerankSettings:
    """What ``backpack-rank rerank`` is asked for.

        settings = RerankSettings.of(config)  # config: composed from conf/rerank.yaml

    Every option is described in ``conf/rerank.yaml``.

    Attributes:
        options: all of them, as plain values, for workers to read again.
        action: what to do, see ``conf/rerank.yaml``.
        run: TREC run whose documents are ranked, or None.
        split: of the data.
        alphas: to score every pair at.
        sharding: how many shards.
        shard: the only one to score, or None.
        claim: ``locks``: a process takes any shard that no other one holds; ``static``: shard i is
            of part i mod parts.
        part, parts: which of how many this command scores.
        workers: processes.
        threads: of each.
        score_threshold: documents with lower scores are left out of the runs, or None.
        folder: of the plan, the scores and the runs.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        """
        Args:
            options: those of ``conf/rerank.yaml``, as plain values.

        Raises:
            ValueError: options that do not go together.
        """
        self.options = options
        self.action: str = options["action"]
        self.shard: int | None = options["shard"]
        if self.shard is not None and self.action != "score":
            raise ValueError(
                f"shard={self.shard} is for action=score: add it, or leave out the shard"
            )
        self._set_claim(options)
        alphas = options["alpha"]
        if not isinstance(alphas, list):
            alphas = [alphas]
        self.alphas = tuple(float(alpha) for alpha in alphas)
        self.score_threshold: float | None = options["score_threshold"]
        check_threshold(self.score_threshold)
        self.split: str = options["split"]
        self.sharding = Sharding(options["shards"], options["pairs_per_shard"])
        self.run: Path | None = None
        if options["run"] is not None:
            self.run = Path(options["run"]).expanduser()
        self.threads: int = options["threads"]
        workers: int | None = options["workers"]
        self.workers = workers or _default_workers(options["scoring"]["device"], self.threads)
        self.folder = self._folder()

        self._policy: Policy = build(options["policy"], "policy")
        self._data = ChosenData(options.get("data"), options.get("first_stage"))
        # No cache of sense vectors: a pair is scored at all alphas before the next one is read.
        self._ranker = ChosenRanker(**made_options(options, ChosenRanker))

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> RerankSettings:
        """From composed options. Raises ``ValueError`` for one that is wrong."""
        check_options(config, RerankOptions)
        return cls(plain_options(config))

    def _set_claim(self, options: Mapping[str, Any]) -> None:
        self.part: int = options["part"]
        self.parts: int = options["parts"]
        url = options["store"]
        self.claim: str = options["claim"] or ("locks" if url is None else "static")
        if self.part >= self.parts:
            raise ValueError(
                f"part={self.part} is none of parts={self.parts}, which are 0 to {self.parts - 1}"
            )
        if url is not None and self.claim == "locks":
            raise ValueError("a store has no locks: leave out claim=locks, or store=...")
        if self.parts > 1:
            if self.claim == "locks":
                raise ValueError(
                    f"parts={self.parts} share shards out beforehand: add claim=static, or leave "
                    "them out for tasks that take open shards"
                )
            if self.shard is not None:
                raise ValueError(
                    f"shard={self.shard} and parts={self.parts} both say what to score: leave one "
                    "out"
                )
            if self.action == "all":
                raise ValueError(
                    "action=all waits for every shard: give action=plan, then action=score to "
                    "each task, and action=merge when they are done"
                )
        self.store = None if url is None else Store(str(url))

    def shards(self, plan: Plan, place: int = 0, workers: int = 1) -> list[int]:
        """Numbers of the shards that a process may score, the scored ones among them where a store
        has to be asked.

        Args:
            plan: of the folder.
            place: number of the process within its task.
            workers: processes of the task.
        """
        if self.claim == "locks":
            return open_shards(plan)
        # Nobody else is given these, so no two processes need to agree on anything.
        return list(range(len(plan)))[self.part :: self.parts][place::workers]

    def _folder(self) -> Path:
        """The folder that is given, or one of the output folder with the name of the candidates."""
        if self.options["folder"] is not None:
            return Path(self.options["folder"]).expanduser()
        if self.run is not None:
            name = self.run.name.removesuffix(".gz")
        else:
            name = str((self.options.get("data") or {}).get("name", "trained"))
        return Path(self.options["output"]).expanduser() / "rerank" / slugify(name)

    @cached_property
    def checkpoint(self) -> Path | str:
        """Folder of the ranker. Raises ``FileNotFoundError`` where there is none."""
        return self._ranker.find_ranker()

    @cached_property
    def dataset(self) -> Dataset:
        """The data asked for, or that of the ranker."""
        return self._data.of(self.checkpoint)

    @cached_property
    def collection(self) -> Collection:
        """Texts of queries and documents. Raises ``ValueError`` if the data has no such split."""
        return self.dataset.split(self.split)

    def sweep(self) -> AlphaSweep:
        """The ranker at the alphas. Raises ``ValueError`` where the policy does not fit it."""
        return AlphaSweep(self._ranker.load_ranker(self.checkpoint), self.alphas, self._policy)

    def candidates(self) -> Candidates:
        """What is ranked anew, from the run or from the first stage of the data.

        Raises:
            FileNotFoundError: there is no such run.
        """
        if self.run is not None:
            if not self.run.is_file():
                raise FileNotFoundError(f"run={self.run}: there is no such file")
            path = self.run
            with open(path, "rb") as handle:
                file_digest = digest(handle)
            return Candidates(str(path), lambda: _pairs_of_file(path), file_digest)
        stage, run = self.dataset.candidates(self.split, self.collection)
        name = f"{stage} of {self.collection.name}"
        total = sum(map(len, run.values()))
        return Candidates(name, lambda: _pairs_of(run), _run_digest(run), total)

    @property
    def stage(self) -> str:
        """Name of what the candidates come from."""
        if self.run is not None:
            return self.run.name
        stage = self.dataset.first_stage(self.split)
        return stage.path.name if isinstance(stage, RunFile) else stage.name


def _default_workers(device: str, threads: int) -> int:
    """A process for each GPU, or for every so many cores."""
    if pick_device(device, "scoring.device").type == "cuda":
        return torch.cuda.device_count() if device in ("auto", "cuda") else 1
    # What this process may use, which in a container or under SLURM is less than there is.
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, cores // threads)


def _pairs_of_file(path: Path) -> Iterator[tuple[str, str]]:
    for _, query_id, doc_id, _, _ in run_rows(path):
        yield query_id, doc_id


def _pairs_of(run: Run) -> Iterator[tuple[str, str]]:
    for query_id, documents in run.items():
        for doc_id in documents:
            yield query_id, doc_id


def _run_digest(run: Run) -> str:
    """Hash of which documents are candidates of which query; scores and orders do not count."""
    # Line by line: a large run would take as much memory again as one text.
    return digest(json.dumps([query_id, sorted(run[query_id])]) for query_id in sorted(run))
