"""LitServe in front of the same ranker: ``python -m benchmarks.serving_litserve RANKER PORT DEVICE
THREADS``.

What ``benchmarks.serving --litserve`` compares with: one worker, LitServe's own batching by number
of requests, its queue between processes over ZeroMQ, and the deadline of ``backpack-rank serve``.
Needs the package ``litserve``.
"""

from __future__ import annotations

import sys
from typing import Any

import litserve
import numpy as np
import torch

from backpack_rank.reranking.load import load
from backpack_rank.reranking.pointwise import sigmoid

BATCH_REQUESTS = 8
BATCH_SECONDS = 0.005


class RerankAPI(litserve.LitAPI):
    """Bodies of ``benchmarks.serving`` in, results in the same form out; requests of one alpha are
    scored together.
    """

    def __init__(self, ranker: str, threads: int) -> None:
        super().__init__(
            max_batch_size=BATCH_REQUESTS, batch_timeout=BATCH_SECONDS, api_path="/v1/rerank"
        )
        self._folder, self._threads = ranker, threads

    def setup(self, device: str) -> None:
        """Load the ranker in the worker and warm it up."""
        torch.set_num_threads(self._threads)
        self._reranker = load(self._folder, device=device)
        self._reranker.predict([("a", "a " * 200)] * 100)

    def predict(self, x: list[dict[str, Any]], **_: Any) -> list[dict[str, Any]]:
        """Results of each request from best to worst."""
        found: list[dict[str, Any]] = [{} for _ in x]
        for alpha in {body.get("alpha") for body in x}:
            places = [place for place, body in enumerate(x) if body.get("alpha") == alpha]
            pairs = [
                (x[place]["query"], document)
                for place in places
                for document in x[place]["documents"]
            ]
            scores = sigmoid(self._reranker.predict(pairs, alpha=alpha))
            ends = np.cumsum([len(x[place]["documents"]) for place in places])
            for place, own in zip(places, np.split(scores, ends[:-1]), strict=True):
                order = np.argsort(-own, kind="stable").tolist()
                found[place] = {
                    "results": [{"index": row, "relevance_score": float(own[row])} for row in order]
                }
        return found


def main() -> None:
    """Serve until the process is told to stop."""
    ranker, port, device, threads = sys.argv[1:]
    server = litserve.LitServer(
        RerankAPI(ranker, int(threads)),
        accelerator=device.partition(":")[0],
        devices=1,
        workers_per_device=1,
        timeout=60,
        fast_queue=True,
    )
    server.run(host="127.0.0.1", port=int(port), generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    main()
