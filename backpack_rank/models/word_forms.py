"""The words of classes as a tokenizer writes them, in one token or several.

Of {he, she} these are " she", " She", '"she' and so on, each with its partner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from backpack_rank.attributes.word_classes import WordClasses
from backpack_rank.models.token_shift import CASES, Variant, class_variants, normal
from backpack_rank.models.word_boundaries import piece_texts


@dataclass(frozen=True)
class WordForm:
    """A word of a class as a tokenizer writes it.

    Attributes:
        pieces: its token ids.
        word_class: number of its class.
        group: name of its group, such as ``female``.
        word: lower-cased.
    """

    pieces: tuple[int, ...]
    word_class: int
    group: str
    word: str


def word_forms(
    tokenizer: PreTrainedTokenizerBase,
    classes: WordClasses,
    group_of: Mapping[str, str],
    several_tokens: bool = True,
) -> list[WordForm]:
    """Find the words of classes in a tokenizer's vocabulary.

    Words are looked for in lower, Capitalised and UPPER case, behind a space and behind other
    signs. Each of these variants is a class of forms: its forms differ in the word alone, not in
    case or in what stands before it.

    Args:
        tokenizer: of the ranker.
        classes: words that are equal up to the attribute.
        group_of: group by word; a word without a group is left out.
        several_tokens: also words that the tokenizer cuts into pieces.

    Raises:
        ValueError: no class has two forms of different words.
    """
    texts = piece_texts(tokenizer)
    words_of: dict[Variant, dict[tuple[int, ...], str]] = defaultdict(dict)  # word by pieces
    for variant, tokens in class_variants(tokenizer, classes, texts).items():
        for token, word in tokens.items():
            words_of[variant][(token,)] = word
    if several_tokens:
        for variant, pieces, word in _in_pieces(tokenizer, classes, texts):
            words_of[variant].setdefault(pieces, word)

    forms: list[WordForm] = []
    # "fiances" and "fiancés" have the same pieces where the tokenizer takes accents off. The first
    # class has the form.
    taken: set[tuple[int, ...]] = set()
    number = 0
    for _, words in sorted(words_of.items()):
        free = {}
        for pieces, word in sorted(words.items()):
            if word in group_of and pieces not in taken:
                free[pieces] = word
        # A word alone has no partner that it could be told apart from.
        if len(set(free.values())) < 2:
            continue
        taken.update(free)
        for pieces, word in free.items():
            forms.append(WordForm(pieces, number, group_of[word], word))
        number += 1
    if not forms:
        raise ValueError(
            f"word classes {classes.name!r}: the tokenizer knows no two words of a class, for "
            f"example {classes.classes[0].words[:4]}, so there is no attribute sense; "
            "model.ranker.attribute_senses=null trains without"
        )
    return forms


def _in_pieces(
    tokenizer: PreTrainedTokenizerBase, classes: WordClasses, texts: Sequence[str]
) -> Iterator[tuple[Variant, tuple[int, ...], str]]:
    """Words of several tokens, behind a space and behind a quotation mark."""
    places: list[tuple[int, str]] = []
    for index, word_class in enumerate(classes.classes):
        places += [(index, word) for word in word_class.words]
    in_cases = [change(word) for _, word in places for change in CASES]
    behind_signs = [_pieces_behind(tokenizer, before, in_cases) for before in ("a ", '"')]
    ways = zip(*behind_signs, strict=True)  # word by word, of each its three cases
    for index, word in places:
        # A tokenizer that lowers texts writes all three cases in the same way. The first
        # counts.
        written = [normal(tokenizer, change(word)) for change in CASES]
        for spelling in written:
            for pieces in next(ways):
                if len(pieces) < 2 or tokenizer.unk_token_id in pieces:
                    continue
                spelled = "".join(texts[piece] for piece in pieces)
                # Pieces may hold more than the word, such as a quotation mark.
                if spelled.strip() != spelling:
                    continue
                variant = Variant(
                    place=index,
                    elsewhere=not spelled.startswith(" "),
                    before=" " if spelled.startswith(" ") else "",
                    behind=" " if spelled.endswith(" ") else "",
                    case=written.index(spelling),
                )
                yield variant, pieces, word


def pieces_of_words(
    tokenizer: PreTrainedTokenizerBase, words: Sequence[str]
) -> list[tuple[int, ...]]:
    """All ways in which a tokenizer writes words: token ids, each way once.

    In lower, Capitalised and UPPER case, behind a space and behind other signs. A word that the
    tokenizer does not know has none.
    """
    in_cases = [change(word) for word in words for change in CASES]
    behind_signs = [_pieces_behind(tokenizer, before, in_cases) for before in ("a ", '"', "(")]
    found: dict[tuple[int, ...], None] = {}
    for ways in zip(*behind_signs, strict=True):
        for pieces in ways:
            if pieces and tokenizer.unk_token_id not in pieces:
                found[pieces] = None
    return list(found)


def _pieces_behind(
    tokenizer: PreTrainedTokenizerBase, before: str, words: Sequence[str]
) -> list[tuple[int, ...]]:
    """Token ids of each word behind a text; none where the text is not tokenised apart from it."""
    if not words:
        return []
    start = tokenizer(before.strip(), add_special_tokens=False, verbose=False)["input_ids"]
    # In one call: thousands of words one by one took over a second. Their masks and types would be
    # thousands of lists more for Python to keep count of.
    behind = tokenizer(
        [before + word for word in words],
        add_special_tokens=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    found: list[tuple[int, ...]] = []
    for ids in behind["input_ids"]:
        apart = list(ids[: len(start)]) == list(start)
        found.append(tuple(ids[len(start) :]) if apart else ())
    return found
