"""Senses that training has set apart for an attribute.

Training with ``specialise=attribute`` (:mod:`backpack_rank.training.specialisation`) leaves an attribute such as gender
to a few senses S and writes them into the ranker's configuration, so a saved ranker knows its S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedConfig

KEY = "specialised"


@dataclass(frozen=True)
class Specialised:
    """The senses of a ranker that were trained to hold an attribute.

    Attributes:
        attribute: name of the attribute, such as ``gender``.
        senses: S, ascending.
    """

    attribute: str
    senses: tuple[int, ...]

    def write(self, config: PreTrainedConfig) -> None:
        """Put it into a ranker's configuration, which is saved with the ranker."""
        setattr(config, KEY, {"attribute": self.attribute, "senses": list(self.senses)})


def specialised_senses(config: PreTrainedConfig) -> Specialised | None:
    """What a ranker's configuration says, or None.

    Raises:
        ValueError: the entry is not what :meth:`Specialised.write` writes.
    """
    entry = getattr(config, KEY, None)
    if entry is None:
        return None
    try:
        found = Specialised(str(entry["attribute"]), tuple(int(sense) for sense in entry["senses"]))
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"the ranker's configuration has {KEY}={entry!r}, without attribute and senses") from error
    check_senses(found.senses, config.num_senses, f"the ranker's configuration, {KEY}.senses")
    return found


def check_senses(senses: Sequence[int], count: int, where: str) -> None:
    """Raise ``ValueError`` unless these are some, not all, of the senses 0 to ``count`` - 1, each once."""
    unknown = [sense for sense in senses if not 0 <= sense < count]
    if unknown:
        raise ValueError(f"{where}={list(senses)}: the ranker has senses 0 to {count - 1}, not {unknown[0]}")
    if not senses or len(set(senses)) != len(senses):
        raise ValueError(f"{where}={list(senses)}: name one sense or more, each once")
    if len(senses) == count:
        raise ValueError(f"{where}={list(senses)}: all {count} senses; at least one must be left without the attribute")
