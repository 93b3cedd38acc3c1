"""Servers with tiny rankers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rerank_servers import Running, running

from backpack_rank.models.loading import save_ranker
from backpack_rank.reranking.pointwise import PointwiseReranker
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.serving.kinds import served


@pytest.fixture(scope="session")
def pointwise(make_backpack, pair_tokenizer):
    """Makes a reranker with weights of its own seed."""
    return lambda seed=0: PointwiseReranker(Scorer(make_backpack(seed), pair_tokenizer))


@pytest.fixture(scope="session")
def reranker(pointwise):
    """The one that is served as ``tiny``."""
    return pointwise()


@pytest.fixture(scope="session")
def tiny(pointwise):
    """What a server of one tiny Backpack loads."""
    return {"tiny": lambda: served("tiny", pointwise())}


@pytest.fixture(scope="session")
def server(tiny) -> Iterator[Running]:
    """A server of one tiny Backpack."""
    with running(tiny) as running_server:
        yield running_server


@pytest.fixture(scope="session")
def folder(tmp_path_factory, make_backpack, pair_tokenizer) -> Path:
    """A saved tiny Backpack."""
    path = tmp_path_factory.mktemp("saved") / "ranker"
    save_ranker(path, make_backpack(), pair_tokenizer)
    return path
