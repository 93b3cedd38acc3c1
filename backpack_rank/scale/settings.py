"""From the composed configuration of ``backpack-rank rerank`` to typed objects, once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from omegaconf import DictConfig, ListConfig, OmegaConf

from backpack_rank.constructors import Count, CountOrZero, FilePath, Options, Range
from backpack_rank.data.collection import Collection, Run
from backpack_rank.data.dataset import Dataset
from backpack_rank.data.first_stage import RunFile
from backpack_rank.data.trec import run_rows
from backpack_rank.digests import digest
from backpack_rank.files import resource_folder
from backpack_rank.models.utils import pick_device
from backpack_rank.pipelines.nodes import check_options
from backpack_rank.pipelines.option_types import Alpha, Alphas
from backpack_rank.pipelines.settings import EvaluationSettings, slugify
from backpack_rank.reranking.scorer import ScoringSettings
from backpack_rank.scale.alpha_sweep import AlphaSweep
from backpack_rank.scale.shard_plan import Candidates, Sharding


class RerankOptions(Options):
    """``conf/rerank.yaml``; what is asked of an evaluation too is declared there."""

    action: Literal["plan", "score", "merge", "status", "all"]
    folder: FilePath | None
    run: FilePath | None
    split: Literal["test", "dev", "train"]
    alpha: Alpha | Alphas
    shards: Annotated[int, Range(least=1, most=1_000_000)] | None
    pairs_per_shard: Count | None
    shard: CountOrZero | None
    engine: Literal["local", "datatrove"]
    workers: Annotated[int, Range(least=1, most=4096)] | None
    threads: Annotated[int, Range(least=1, most=1024)]
    executor: Literal["local", "slurm", "ray"]
    executor_options: Mapping[str, Any]
    scoring: ScoringSettings
    output: FilePath
    checkpoint: FilePath | None


@dataclass(frozen=True)
class RerankSettings:
    """What ``backpack-rank rerank`` is asked for; every option is described in ``conf/rerank.yaml``.

    Attributes:
        action: what to do, see ``conf/rerank.yaml``.
        run: TREC run whose documents are ranked, or None.
        split: of the data.
        alphas: positions of the dial.
        cut: how many shards.
        shard: the only one to score, or None.
        engine, executor, executor_options: what calls the workers.
        workers: processes.
        threads: of each.
        config: what all of it was made of, for the workers.
    """

    action: str
    run: Path | None
    split: str
    alphas: tuple[float, ...]
    sharding: Sharding
    shard: int | None
    engine: str
    executor: str
    executor_options: dict[str, Any]
    workers: int
    threads: int
    config: DictConfig

    @classmethod
    def of(cls, config: DictConfig) -> RerankSettings:
        """From a composed configuration. Raises ``ValueError`` for an option that is wrong in itself."""
        check_options(config, RerankOptions)
        if (config.action, config.engine, config.executor) == ("all", "datatrove", "slurm"):
            raise ValueError(
                "executor=slurm only hands jobs in: give action=plan, action=score, and action=merge when they are done"
            )
        if config.shard is not None and config.action != "score":
            raise ValueError(f"shard={config.shard} is for action=score: add it, or leave out the shard")
        alphas = config.alpha if isinstance(config.alpha, ListConfig) else [config.alpha]
        options = OmegaConf.to_container(config.executor_options, resolve=True)
        assert isinstance(options, dict)
        return cls(
            action=config.action,
            run=None if config.run is None else Path(config.run).expanduser(),
            split=config.split,
            alphas=tuple(float(alpha) for alpha in alphas),
            sharding=Sharding(config.shards, config.pairs_per_shard),
            shard=config.shard,
            engine=config.engine,
            executor=config.executor,
            executor_options={str(name): value for name, value in options.items()},
            workers=config.workers or _workers(config.scoring.device, config.threads),
            threads=config.threads,
            config=config,
        )

    @property
    def folder(self) -> Path:
        """Of the plan, the scores and the runs."""
        if self.config.folder is not None:
            return Path(self.config.folder).expanduser()
        if self.run is not None:
            name = self.run.name.removesuffix(".gz")
        else:
            name = str((self.config.get("data") or {}).get("name", "trained"))
        return Path(self.config.output).expanduser() / "rerank" / slugify(name)

    @cached_property
    def evaluation(self) -> EvaluationSettings:
        """What ``evaluate.py`` is asked for by the same options: the ranker, its data, its policy."""
        rest = OmegaConf.load(resource_folder("conf") / "evaluate.yaml")
        assert isinstance(rest, DictConfig)
        del rest["defaults"], rest["hydra"]
        own = OmegaConf.to_container(self.config)
        merged = OmegaConf.merge(rest, own, {"run": None, "alpha": 1.0, "data": self.config.get("data")})
        assert isinstance(merged, DictConfig)
        return EvaluationSettings.of(merged)

    @cached_property
    def checkpoint(self) -> Path | str:
        """Folder of the ranker. Raises ``FileNotFoundError`` where there is none."""
        return self.evaluation.find_ranker()

    @cached_property
    def dataset(self) -> Dataset:
        """The data asked for, or that of the ranker."""
        return self.evaluation.dataset(self.checkpoint)

    @cached_property
    def collection(self) -> Collection:
        """Texts of queries and documents. Raises ``ValueError`` where the data has no such split."""
        return self.dataset.split(self.split)

    def sweep(self) -> AlphaSweep:
        """The ranker at the alphas. Raises ``ValueError`` where the policy does not fit it."""
        reranker = self.evaluation.reranker(self.checkpoint)
        return AlphaSweep(reranker, self.alphas, self.evaluation.policy)

    def candidates(self) -> Candidates:
        """What is ranked anew.

        Raises:
            FileNotFoundError: there is no such run.
        """
        if self.run is not None:
            if not self.run.is_file():
                raise FileNotFoundError(f"run={self.run}: there is no such file")
            path = self.run
            return Candidates(str(path), lambda: _pairs_of_file(path), _file_digest(path))
        name, found = self.dataset.candidates(self.split, self.collection)
        total = sum(map(len, found.values()))
        return Candidates(f"{name} of {self.collection.name}", lambda: _pairs_of(found), _run_digest(found), total)

    @property
    def stage(self) -> str:
        """Name of what the candidates come from."""
        if self.run is not None:
            return self.run.name
        stage = self.dataset.first_stage(self.split)
        return stage.path.name if isinstance(stage, RunFile) else stage.name


def _workers(device: str, threads: int) -> int:
    """A process for each GPU, or for every so many cores."""
    if pick_device(device, "scoring.device").type == "cuda":
        return torch.cuda.device_count() if device in ("auto", "cuda") else 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // threads)


def _pairs_of_file(path: Path) -> Iterator[tuple[str, str]]:
    return ((query_id, doc_id) for _, query_id, doc_id, _, _ in run_rows(path))


def _pairs_of(run: Run) -> Iterable[tuple[str, str]]:
    return ((query_id, doc_id) for query_id, documents in run.items() for doc_id in documents)


def _file_digest(path: Path) -> str:
    with open(path, "rb") as handle:
        return digest(handle)


def _run_digest(run: Run) -> str:
    return digest(json.dumps([query_id, sorted(run[query_id])]) for query_id in sorted(run))
