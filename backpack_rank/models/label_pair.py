"""Which of a classifier's two labels means relevant: their logits' difference is then the score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backpack_rank.data.model_files import read_settings

LABELS = "reranker_labels.yaml"
"""The file of a folder that says what its two labels mean."""


class LabelPair:
    """Ranks with a classifier of two labels.

    >>> LabelPair(["yes", "no"]).columns({0: "no", 1: "yes"}, "folder")
    (1, 0)

    Nothing in a folder says which label is the good one, and taking the wrong one turns every
    ranking upside down; so it has to be said. The score is the difference of the two logits, whose
    sigmoid is the probability of the first label.

    Attributes:
        relevant: label of relevant documents.
        not_relevant: label of all others.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        """
        Args:
            labels: the relevant one first.

        Raises:
            ValueError: there are not two.
        """
        names = [labels] if isinstance(labels, str) else [str(name) for name in labels]
        if len(names) != 2 or names[0] == names[1]:
            raise ValueError(
                f"labels={names}: give two, that of relevant documents first, such as "
                "labels=[relevant,not_relevant]"
            )
        self.relevant, self.not_relevant = names

    @classmethod
    def of_folder(cls, folder: Path) -> LabelPair | None:
        """What ``reranker_labels.yaml`` says; None where a folder has no such file.

        Raises:
            ValueError: the file holds something else than two labels.
        """
        file = folder / LABELS
        if not file.is_file():
            return None
        content = read_settings(file)
        if set(content) != {"relevant", "not_relevant"}:
            raise ValueError(
                f"{file} must hold relevant: LABEL and not_relevant: LABEL, and nothing else"
            )
        return cls([str(content["relevant"]), str(content["not_relevant"])])

    def columns(self, names: Mapping[int, str], folder: str | Path) -> tuple[int, int]:
        """Places of the two logits.

        Args:
            names: of the classifier's labels, by place.
            folder: of the classifier, for the error.

        Raises:
            ValueError: it has no label of one of these names.
        """
        places = {str(name): place for place, name in names.items()}
        for label in (self.relevant, self.not_relevant):
            if label not in places:
                raise ValueError(
                    f"{folder} has no label {label!r}; its labels are {', '.join(places)}"
                )
        return places[self.relevant], places[self.not_relevant]


def score_columns(
    config: Any, labels: Sequence[str] | None, *folders: Path
) -> tuple[int] | tuple[int, int]:
    """Which of a classifier's logits make the score: the only one, or one less another.

    Args:
        config: of the classifier.
        labels: what the user says; None: what a folder says.
        folders: of the classifier; the first one with a file counts.

    Raises:
        ValueError: the classifier has neither one label nor two that were named.
    """
    count = config.num_labels
    names = ", ".join(map(str, config.id2label.values()))
    if count == 1:
        if labels is not None:
            raise ValueError(
                f"labels={list(labels)} are for classifiers with two labels, and {folders[0]} has "
                "one: leave them out"
            )
        return (0,)
    if count != 2:
        raise ValueError(
            f"{folders[0]} is a classifier with {count} labels ({names[:200]}); a ranker has one, "
            "the score of a pair, or two of which one is named relevant"
        )
    pair = None if labels is None else LabelPair(labels)
    for folder in folders:
        pair = pair or LabelPair.of_folder(folder)
    if pair is None:
        raise ValueError(
            f"{folders[0]} is a classifier with 2 labels ({names}), and nothing says which one "
            "means relevant: name it first, as labels=[RELEVANT,OTHER] "
            "(load(folder, labels=(...))), or put relevant: and not_relevant: into its folder as "
            f"{LABELS}"
        )
    return pair.columns(config.id2label, folders[0])
