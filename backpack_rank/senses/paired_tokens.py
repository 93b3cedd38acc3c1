"""The policy ``paired_tokens``: words of a lexicon moved towards the mean of their class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backpack_rank.data.lexicon import load_lexicon
from backpack_rank.data.word_classes import WordClasses, class_of_names, load_all_classes
from backpack_rank.senses.control import Control
from backpack_rank.senses.policy import check_alpha
from backpack_rank.senses.subject import Subject
from backpack_rank.senses.tokens import PLACES, TokenMove, token_classes


@dataclass(frozen=True)
class PairedTokens:
    """Every token of a class v(x) becomes v_bar + alpha (v(x) - v_bar); see :mod:`backpack_rank.senses.tokens`.

    Attributes:
        classes: files of word classes, names in ``lexicons/`` or paths.
        wide_classes: further files (titles, occupations, kinship), used when ``wide`` is set.
        names: a lexicon of first names, which become one class when ``with_names`` is set: names are identity.
        where: ``senses``, ``weights`` or ``both``.
    """

    classes: Sequence[str]
    wide_classes: Sequence[str] = ()
    names: str | None = None
    where: str = "both"
    wide: bool = False
    with_names: bool = False

    def __post_init__(self) -> None:
        if self.where not in PLACES:
            raise ValueError(f"policy.where={self.where!r}: use one of {', '.join(PLACES)}")
        if not self.classes:
            raise ValueError("policy.classes is empty: name at least one file of word classes, such as gender_classes")
        if self.with_names and self.names is None:
            raise ValueError("policy.with_names=true needs policy.names, a lexicon of first names such as gender_names")

    @property
    def name(self) -> str:
        return f"paired_tokens_{self.where}" + "_wide" * self.wide + "_names" * self.with_names

    def words(self) -> WordClasses:
        """The word classes of all files in use."""
        found = load_all_classes([*self.classes, *(self.wide_classes if self.wide else ())])
        if self.with_names and self.names is not None:
            found = found.merged(class_of_names(load_lexicon(self.names)))
        return found

    def control(self, subject: Subject, alpha: float) -> Control:
        """The moved tokens; nothing at alpha = 1.

        Raises:
            ValueError: alpha is not a number >= 0, or the tokenizer knows no class.
        """
        alpha = check_alpha(alpha)
        classes = token_classes(subject.tokenizer, self.words())
        return Control(self.name, alpha, tokens=None if alpha == 1 else TokenMove(classes, self.where, alpha))
