"""An attribute such as gender: the words that stand for it.

The files of ``conf/attribute/`` name an attribute's lexicon, word classes and pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Annotated

from backpack_rank.attributes.counterfactual import LexiconSwap
from backpack_rank.attributes.first_names import FirstNames, clear_names
from backpack_rank.attributes.group_queries import GroupQueries
from backpack_rank.attributes.lexicon import (
    Lexicon,
    WordPairs,
    load_lexicon,
    load_neutral,
    load_one_way,
    load_pairs,
)
from backpack_rank.attributes.renditions import RELATIONS, Renditions, groups_of_swap
from backpack_rank.attributes.word_classes import WordClasses, class_of_names, load_all_classes
from backpack_rank.checks import located
from backpack_rank.constructors import Called, FilePath, Length, Name
from backpack_rank.files import read_yaml, resource_folder

Sides = Annotated[
    Sequence[Name], Length(2, 2), Called("the two columns of the pairs, such as [female,male]")
]


class Attribute:
    """Everything that hangs on words of an attribute: counts, swaps, pairs, classes.

        >>> gender = Attribute.named("gender")
        >>> gender.swap()("she saw her father").text
        'he saw his mother'
        >>> gender.lexicon().group_names
        ('female', 'male')

    Files are names in ``lexicons/`` or paths; each is read when it is asked for, and errors of a
    file are raised then.

    Attributes:
        name: such as ``gender``.
        sides: the groups that pairs have words of, such as ``("female", "male")``.
        sign: the difference of two groups that a positive measure stands for, such as
            ``("male", "female")``.
        class_files, wide_class_files, names_file, neutral_file, contrast_file: as they were given.
    """

    def __init__(
        self,
        name: Name,
        *,
        lexicon: FilePath,
        sign: Name,
        pairs: FilePath,
        sides: Sides,
        swap_pairs: FilePath | None = None,
        one_way: FilePath | None = None,
        classes: Sequence[FilePath] = (),
        wide_classes: Sequence[FilePath] | None = (),
        names: FilePath | None = None,
        neutral: FilePath | None = None,
        needs: FilePath | None = None,
        contrast: FilePath | None = None,
    ) -> None:
        """
        Args:
            name: shown in reports.
            lexicon: words by group, which measures count.
            sign: ``<group>_minus_<group>`` of the lexicon.
            pairs: word pairs of the sensitivity (Afzali et al., eq. 4).
            sides: columns of the pairs.
            swap_pairs: word pairs of counterfactual texts, with the same columns; ``pairs`` when
                None.
            one_way: further words that are swapped, with nothing swapped into them.
            classes: words that are equal up to the attribute.
            wide_classes: joined to them on request.
            names: first names, which swaps leave alone.
            neutral: neutral forms of words, for a rendition of no group.
            needs: words by group of what one group alone needs, such as "pregnancy"; a query with
                one of them asks for the group.
            contrast: queries that ask for a group, each with a right text and a text on the other
                group (:mod:`backpack_rank.evaluation.contrast`).

        Raises:
            ValueError: ``sign`` is no difference, or there are not two sides.
        """
        first, minus, second = str(sign).partition("_minus_")
        if not (first and minus and second):
            raise ValueError(f"attribute.sign={sign}: give two groups, such as male_minus_female")
        if len(sides) != 2 or isinstance(sides, str):
            raise ValueError(
                f"attribute.sides={sides}: give the two columns of the pairs, such as [female, "
                "male]"
            )
        self.name = name
        self.sides = (str(sides[0]), str(sides[1]))
        self.sign = (first, second)
        self._lexicon = lexicon
        self._pairs = pairs
        self._swap_pairs = swap_pairs
        self._one_way = one_way
        self.class_files = tuple(classes)
        self.wide_class_files = tuple(wide_classes or ())
        self.names_file = names
        self.neutral_file = neutral
        self._needs = needs
        self.contrast_file = contrast

    @classmethod
    def named(cls, name: str) -> Attribute:
        """One of ``conf/attribute/``, or a YAML file of the same form by its path.

        Raises:
            FileNotFoundError: there is none of that name; lists those that there are.
            ValueError: a value is missing or unknown; the file is named.
        """
        folder = resource_folder("conf") / "attribute"
        path = Path(name).expanduser() if name.endswith(".yaml") else folder / f"{name}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
            raise FileNotFoundError(
                f"there is no attribute {name!r}: use one of {known}, or the path of a .yaml file"
            )
        values = read_yaml(path)
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error

    def lexicon(self) -> Lexicon:
        """The words by group."""
        with located("attribute.lexicon"):
            return load_lexicon(self._lexicon)

    def pairs(self) -> WordPairs:
        """The word pairs of the sensitivity."""
        with located("attribute.pairs"):
            return load_pairs(self._pairs, self.sides)

    def all_pairs(self) -> tuple[tuple[str, str], ...]:
        """The word pairs of the sensitivity, of all groups that an attribute has.

        Words of a third group are paired with the words of the two sides that stand in one class
        with them.
        """
        pairs = list(self.pairs().pairs)
        if not self.class_files:
            return tuple(pairs)
        classes = self._classes()
        group_of = classes.group_of
        for word_class in classes.classes:
            words_of_sides: list[str] = []
            words_of_other_groups: list[str] = []
            for word in word_class.words:
                # A word without a group ("sibling") is paired with nothing.
                if word not in group_of:
                    continue
                if group_of[word] in self.sides:
                    words_of_sides.append(word)
                else:
                    words_of_other_groups.append(word)
            pairs += product(words_of_sides, words_of_other_groups)
        return tuple(pairs)

    def names(self) -> Lexicon | None:
        """The first names that are nothing else; None where the attribute has none."""
        return self._clear_names

    @cached_property
    def _clear_names(self) -> Lexicon | None:
        if self.names_file is None:
            return None
        with located("attribute.names"):
            return clear_names(self.names_file)

    def swap(self, names: bool = False) -> LexiconSwap:
        """What makes the counterfactual of a text.

        Args:
            names: replace first names too, where they stand as names
                (:mod:`backpack_rank.attributes.first_names`).

        Raises:
            ValueError: names are asked for, and the attribute has none; or a file is malformed.
        """
        one_way = None
        if self._one_way is not None:
            with located("attribute.one_way"):
                one_way = load_one_way(self._one_way)
        with located("attribute.pairs" if self._swap_pairs is None else "attribute.swap_pairs"):
            pairs = load_pairs(self._swap_pairs or self._pairs, self.sides)
        if not names:
            return LexiconSwap(pairs, self.names(), one_way)
        if self.names_file is None:
            raise ValueError(f"the attribute {self.name} has no list of first names")
        # A word that is swapped or in a class ("king") is no first name, even if somebody has it.
        other_words = LexiconSwap(pairs, None, one_way).words
        if self.class_files:
            other_words |= self._classes(wide=True).words
        with located("attribute.names"):
            first_names = FirstNames.of(self.names_file, self.sides, but=other_words)
        return LexiconSwap(pairs, None, one_way, first_names)

    def renditions(
        self, relations: str = RELATIONS[0], *, wide: bool = False, names: bool = False
    ) -> Renditions:
        """What writes texts once for each group.

        Args:
            relations: one of :data:`~backpack_rank.attributes.renditions.RELATIONS`.
            wide: join words by the wide classes too.
            names: write first names for the group too.

        Raises:
            FileNotFoundError: a file does not exist.
            ValueError: as :class:`Renditions`, or a file is malformed.
        """
        swap = self.swap(names)
        neutral = None
        if self.neutral_file is not None:
            with located("attribute.neutral"):
                neutral = load_neutral(self.neutral_file)
        has_classes = self.class_files or (wide and self.wide_class_files)
        classes = self._classes(wide) if has_classes else None
        return Renditions(swap, classes, relations, neutral)

    @cached_property
    def group_queries(self) -> GroupQueries:
        """Which queries ask for a group: those with a word of any of its lists, or of a need."""
        words = set(self.lexicon().words)
        if self.class_files:
            words |= self.group_of_words().keys()
        if self._needs is not None:
            with located("attribute.needs"):
                words |= load_lexicon(self._needs).words
        return GroupQueries(frozenset(words))

    def group_of_words(self) -> dict[str, str]:
        """Group by word: of words of the classes that say it, and of those that a swap replaces.

        A word that none of them knows ("sibling") has no group.
        """
        group_of, _ = groups_of_swap(self.swap())
        return group_of | self.classes(wide=True).group_of

    def classes(self, *, wide: bool = False, names: bool = False) -> WordClasses:
        """Words that are equal up to the attribute.

        Args:
            wide: with titles, occupations, kinship and other words of the wide list.
            names: with first names as one class; names are identity, so nothing does that unasked.

        Raises:
            ValueError: the attribute has no classes, or no names where they are asked for.
        """
        classes = self._classes(wide)
        if not names:
            return classes
        first_names = self.names()
        if first_names is None:
            raise ValueError(f"the attribute {self.name} has no list of first names")
        return classes.merged(class_of_names(first_names))

    def _classes(self, wide: bool = False) -> WordClasses:
        return self._wide_classes if wide else self._own_classes

    @cached_property
    def _own_classes(self) -> WordClasses:
        with located("attribute.classes"):
            return load_all_classes(self.class_files)

    @cached_property
    def _wide_classes(self) -> WordClasses:
        with located("attribute.classes"):
            return load_all_classes([*self.class_files, *self.wide_class_files])
