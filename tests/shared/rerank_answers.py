"""Scores of documents for one query, by a rerank server and by Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import httpx

from backpack_rank.reranking.pointwise import PointwiseReranker

QUERY = "doctor in the ward"


def raw(response: httpx.Response) -> list[float]:
    """Scores of an answer in the order of the documents."""
    assert response.status_code == 200, response.text
    rows = {row["index"]: row["relevance_score"] for row in response.json()["results"]}
    return [rows[place] for place in range(len(rows))]


def in_python(reranker: PointwiseReranker, texts: Iterable[str], **options: Any) -> list[float]:
    """Scores of the documents by the package."""
    return reranker.predict([(QUERY, text) for text in texts], **options).tolist()
