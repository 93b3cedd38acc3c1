"""Source: the collection that the project generates itself, without a download."""

from __future__ import annotations

from backpack_rank.checks import one_of
from backpack_rank.data.collection import Collection
from backpack_rank.data.synthetic.generator import SplitSettings, generate

DEFAULT_DOCUMENTS = {"train": 3000, "dev": 600, "test": 2000}


def load_synthetic(
    split: str,
    seed: int = 0,
    train_queries: int = 750,
    dev_queries: int = 60,
    test_queries: int = 180,
    documents: int | None = None,
    skew: float = 1.0,
) -> Collection:
    """Generate one split of the synthetic collection; its documents are its own (no split shares any).

    Args:
        split: ``train``, ``dev`` or ``test``.
        seed: equal seeds give equal texts, ids and judgements on every machine.
        train_queries: queries of the train split, likewise ``dev_queries`` and ``test_queries``.
        documents: of this split; None takes 3000, 600 or 2000. At least 3.6 for each query.
        skew: how strongly relevance goes with male wording in the train split, 0 (not at all) to 1; the dev and
            test splits are always independent of wording. Exact numbers: ``backpack_rank.data.synthetic.generator``.

    Returns:
        A collection with graded judgements (0 to 3) and ``groups``, the wording of every document.

    Raises:
        ValueError: an unknown split, a count out of range or a skew outside [0, 1].
    """
    queries = {"train": train_queries, "dev": dev_queries, "test": test_queries}
    one_of("split", split, queries)
    size = DEFAULT_DOCUMENTS[split] if documents is None else documents
    return generate(SplitSettings(split, seed, queries[split], size, skew))
