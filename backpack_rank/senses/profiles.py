"""What a sense is about: the words that are near in it, typical of it, and what it contributes to
which documents.

Hewitt et al. 2023 read senses in the vocabulary, by the words that a sense vector predicts. A
ranker's senses are no predictions any more, so three other views: the neighbours of a word in one
sense (:func:`nearest_words`), the words that differ from the average word in this sense more than
in the others (:func:`typical_words`), and the words and documents whose scores a sense moves
(:func:`sense_profiles`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from backpack_rank.attributes.lexicon import Lexicon, count_groups
from backpack_rank.data.batching import CPU_TOKENS, pack_by_length
from backpack_rank.data.tokenisation import PairTokenizer
from backpack_rank.data.words import Tokenizer, word_tokens
from backpack_rank.models.attribute_senses import AttributeSenses
from backpack_rank.models.backpack import BackpackModel
from backpack_rank.models.rankers import BackpackForRanking, Ranker
from backpack_rank.models.utils import eval_mode
from backpack_rank.senses.alignment import align_tokens, whole_word_ids
from backpack_rank.senses.attribution import attribute_batch
from backpack_rank.senses.views import View

log = logging.getLogger(__name__)

PROBES = ("he", "she", "nurse", "engineer")
NEUTRAL, MIXED = "neutral", "mixed"
CHUNK = 1024
"""Tokens whose sense vectors are held at once: 50 MB at k = 16 and d = 768 in float32."""
KEPT = 2**28
"""Bytes of sense vectors up to which those of all words are computed once and held."""

_Measure: TypeAlias = Callable[[Tensor, int], Tensor]
"""(sense vectors [c, k, d] of some words, row of the first) -> a value per sense, probe and word
[k, p, c]
"""


@dataclass(frozen=True)
class RelatedWord:
    """A word and how strongly it belongs to a sense; the list it stands in says what the value
    is.
    """

    word: str
    value: float


@dataclass(frozen=True)
class SenseProfile:
    """What one sense is about.

    Attributes:
        index: number of the sense, from 0.
        name: the number, or what an attribute sense sets apart, such as ``gender: female``.
        sensitivity: s_l, None where it is not known.
        typical_words: words with the largest share of their difference from the average word in
            this sense.
        neighbours: for each probe word, the words whose vectors of this sense have the largest
            cosine to its own.
        raising: words of documents that raise scores most through this sense, mean contribution per
            occurrence.
        lowering: words of documents that lower scores most through it.
        mean_contribution: mean contribution to the score of documents of each group.
        word_contribution: mean contribution per occurrence of the lexicon's words of each group.
    """

    index: int
    name: str
    sensitivity: float | None
    typical_words: tuple[RelatedWord, ...]
    neighbours: Mapping[str, tuple[RelatedWord, ...]]
    raising: tuple[RelatedWord, ...]
    lowering: tuple[RelatedWord, ...]
    mean_contribution: Mapping[str, float]
    word_contribution: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Words that are one token in running text.

    Attributes:
        words: as they are written, in lower case where that is a token; no word twice in two cases.
        ids: their token ids. [V]
    """

    words: tuple[str, ...]
    ids: Tensor

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class SenseProfiles:
    """What all senses are about.

    Attributes:
        senses: one profile per sense, by index.
        documents: documents of each group in the sample; groups without one are absent.
    """

    senses: tuple[SenseProfile, ...]
    documents: Mapping[str, int]


def one_token_words(
    pair_tokenizer: PairTokenizer, texts: Iterable[str] | None = None
) -> Vocabulary:
    """Words of letters that are one token.

    Args:
        pair_tokenizer: of the ranker.
        texts: keep only words that stand in these texts; None keeps all.

    Raises:
        ValueError: no word is left.
    """
    tokenizer = pair_tokenizer.tokenizer
    wanted: Iterable[int] = range(len(tokenizer))
    if texts is not None:
        wanted = sorted(
            {int(index) for text in texts for index in whole_word_ids(pair_tokenizer, text)}
        )
    spelled = {index: str(tokenizer.decode([index])).strip() for index in wanted}
    candidates = [index for index, word in spelled.items() if _is_word(word)]
    encoded = pair_tokenizer.encode([spelled[index] for index in candidates])
    single = {
        index for index, ids in zip(candidates, encoded, strict=True) if ids.tolist() == [index]
    }
    # Lower case last, so that it takes the place of other cases.
    by_word = {
        spelled[i].lower(): i for i in sorted(single, key=lambda i: (spelled[i].islower(), i))
    }
    if not by_word:
        raise ValueError(
            "no word of the texts is one token of the tokenizer; give more texts or a larger "
            "vocabulary"
        )
    ids = sorted(by_word.values())
    return Vocabulary(tuple(spelled[index] for index in ids), torch.tensor(ids))


@torch.no_grad()
def nearest_words(
    backpack: BackpackModel,
    pair_tokenizer: PairTokenizer,
    vocabulary: Vocabulary,
    probes: Sequence[str],
    count: int = 8,
    senses: WordSenses | None = None,
) -> list[dict[str, tuple[RelatedWord, ...]]]:
    """Per sense and probe word x, the words y with the largest cos(C(x)_l, C(y)_l), the probe
    itself left out.

    A probe of several tokens stands for the mean of their vectors, as in the sensitivities; one
    that the tokenizer does not know is left out with a warning. ``senses`` are those of the
    vocabulary where they are known already. In the k senses, the words of a class that a ranker has
    attribute senses for are their mean; an attribute sense has words of its group alone.

    Returns:
        k + G dictionaries ``{probe: words, nearest first}``.
    """
    known = {
        probe: ids
        for probe in dict.fromkeys(probes)
        if len(ids := _known_ids(pair_tokenizer, probe))
    }
    count_of_senses = backpack.config.total_senses
    if not known:
        return [{} for _ in range(count_of_senses)]
    device = backpack.device
    with eval_mode(backpack):
        parts = [backpack.word_senses(ids.tolist()) for ids in known.values()]
    targets, apart = (F.normalize(torch.stack(part), dim=-1) for part in zip(*parts, strict=True))
    word_senses = senses or WordSenses(backpack, vocabulary)
    folded = [word.lower() for word in vocabulary.words]
    own = torch.tensor([[word == probe.lower() for word in folded] for probe in known])  # [p, V]

    def cosines(senses: Tensor, start: int) -> Tensor:
        found = torch.einsum("pkd,ckd->kpc", targets, F.normalize(senses, dim=-1))
        found = torch.cat([found, word_senses.cosines_apart(apart, start, len(senses))])
        return found.masked_fill(
            own[None, :, start : start + len(senses)].to(device), float("-inf")
        )

    values, rows = _best(word_senses, cosines, count)  # [k + G, p, count]
    return [
        {
            probe: _related(vocabulary, values[sense, p], rows[sense, p])
            for p, probe in enumerate(known)
        }
        for sense in range(count_of_senses)
    ]


@torch.no_grad()
def typical_words(
    backpack: BackpackModel,
    vocabulary: Vocabulary,
    count: int = 8,
    senses: WordSenses | None = None,
) -> list[tuple[RelatedWord, ...]]:
    """Per sense the words that it tells from others more than the other senses do, with their
    shares in [0, 1].

    The share of sense l in a word x is |C(x)_l - m_l| / sum_l' |C(x)_l' - m_l'| with m_l the mean
    over the vocabulary: what all words have in common in a sense says nothing about a word. In an
    attribute sense, where most words have nothing, m_l is 0. ``senses`` as in
    :func:`nearest_words`.
    """
    known = senses or WordSenses(backpack, vocabulary)
    sums = [chunk.double().sum(dim=0) for _, chunk in known]
    mean = (torch.stack(sums).sum(dim=0) / len(vocabulary)).float()  # [k, d]

    def shares(senses: Tensor, start: int) -> Tensor:
        apart = known.norms_apart[start : start + len(senses)]  # [c, G]
        norms = torch.cat([(senses - mean).norm(dim=-1), apart], dim=1)
        found = norms / norms.sum(dim=-1, keepdim=True).clamp(min=1e-30)
        found[:, senses.shape[1] :].masked_fill_(apart == 0, float("-inf"))
        return found.T[:, None]

    values, rows = _best(known, shares, count)
    return [_related(vocabulary, values[sense, 0], rows[sense, 0]) for sense in range(len(values))]


def sense_profiles(
    ranker: Ranker,
    pair_tokenizer: PairTokenizer,
    pairs: Sequence[tuple[str, str]],
    lexicon: Lexicon,
    *,
    sensitivity: Tensor | None = None,
    view: View | None = None,
    probes: Sequence[str] = PROBES,
    vocabulary: Vocabulary | None = None,
    tokenizer: Tokenizer = word_tokens,
    count: int = 8,
    min_count: int = 3,
) -> SenseProfiles:
    """What every sense is about, seen over a sample of (query, document) texts.

    A document belongs to the group of the lexicon that most of its lexicon words are of, to
    ``neutral`` when it has none, and to ``mixed`` when no group leads.

    Args:
        ranker: a ranker with senses.
        pair_tokenizer: joins the texts, as for scoring.
        pairs: (query, document) texts; contributions are averaged over them.
        lexicon: groups of words.
        sensitivity: s_l [k], passed on to the profiles.
        view: weights per sense and token shift, as in
            :func:`backpack_rank.senses.attribution.attribute`.
        probes: words whose neighbours are shown.
        vocabulary: words to choose from; by default those of the sample's documents.
        tokenizer: how documents are split to count lexicon words.
        count: words per list.
        min_count: occurrences in documents that a word needs to be listed as raising or lowering.

    Raises:
        TypeError: the ranker has no senses.
        ValueError: no pair, an empty query, or no word of the documents is one token.
    """
    if not pairs:
        raise ValueError("there is no (query, document) pair to look at")
    table = _contributions(ranker, pair_tokenizer, pairs, view)
    assert isinstance(ranker, BackpackForRanking)  # or there were no contributions
    documents = [document for _, document in pairs]
    vocabulary = vocabulary or one_token_words(pair_tokenizer, dict.fromkeys(documents))
    groups = _groups(count_groups(documents, lexicon, tokenizer), lexicon)
    lexicon_ids = {
        name: _variant_ids(pair_tokenizer, words) for name, words in lexicon.groups.items()
    }
    senses = WordSenses(ranker.backpack, vocabulary)
    near = nearest_words(ranker.backpack, pair_tokenizer, vocabulary, probes, count, senses)
    typical = typical_words(ranker.backpack, vocabulary, count, senses)
    moved = table.per_word(vocabulary.ids.numpy(), min_count)  # [V, k], NaN for rare words
    profiles = tuple(
        SenseProfile(
            sense,
            ranker.config.sense_names[sense],
            None if sensitivity is None else float(sensitivity[sense]),
            typical[sense],
            near[sense],
            _extreme(vocabulary, moved[:, sense], count),
            _extreme(vocabulary, moved[:, sense], count, lowest=True),
            {name: float(table.per_text[rows, sense].mean()) for name, rows in groups.items()},
            {
                name: mean
                for name, ids in lexicon_ids.items()
                if (mean := table.mean_of(ids, sense)) is not None
            },
        )
        for sense in range(ranker.config.total_senses)
    )
    return SenseProfiles(profiles, {name: len(rows) for name, rows in groups.items()})


@dataclass(frozen=True, eq=False)
class _Contributions:
    """Contributions of each text [N, k], and of each token id where it is a word of a document
    [vocabulary, k].
    """

    per_text: np.ndarray
    sums: np.ndarray
    counts: np.ndarray

    def per_word(self, ids: np.ndarray, min_count: int) -> np.ndarray:
        counts = self.counts[ids, None]
        return np.where(counts >= max(min_count, 1), self.sums[ids] / np.maximum(counts, 1), np.nan)

    def mean_of(self, ids: list[int], sense: int) -> float | None:
        """Mean per occurrence of any of these tokens; None when there is no occurrence."""
        total = int(self.counts[ids].sum())
        return float(self.sums[ids, sense].sum() / total) if total else None


def _contributions(
    ranker: Ranker,
    pair_tokenizer: PairTokenizer,
    pairs: Sequence[tuple[str, str]],
    view: View | None,
) -> _Contributions:
    pieces = [align_tokens(pair_tokenizer, query, document) for query, document in pairs]
    sequences = [np.array(piece.ids) for piece in pieces]
    size = max(len(pair_tokenizer.tokenizer), max(int(ids.max()) for ids in sequences) + 1)
    per_text: np.ndarray | None = None
    for rows, batch in pack_by_length(np.arange(len(pairs)), sequences, CPU_TOKENS):
        found = attribute_batch(ranker, batch, view).contributions.cpu().numpy()  # [B, k, n]
        if per_text is None:
            k = found.shape[1]
            per_text, sums = np.zeros((len(pairs), k)), np.zeros((size, k))
            counts = np.zeros(size, dtype=np.int64)
        per_text[rows] = found.sum(axis=2)
        for row, values in zip(rows, found, strict=True):
            whole = np.flatnonzero(pieces[row].whole_words())
            np.add.at(sums, sequences[row][whole], values[:, whole].T)
            np.add.at(counts, sequences[row][whole], 1)
    assert per_text is not None
    return _Contributions(per_text, sums, counts)


def _groups(counts: np.ndarray, lexicon: Lexicon) -> dict[str, np.ndarray]:
    """Rows of the documents of each group, groups in the order of the lexicon, then mixed and
    neutral.
    """
    most = counts.max(axis=1)
    leads = (counts == most[:, None]).sum(axis=1) == 1
    named = {
        name: (most > 0) & leads & (counts.argmax(axis=1) == i)
        for i, name in enumerate(lexicon.groups)
    }
    masks = {**named, MIXED: (most > 0) & ~leads, NEUTRAL: most == 0}
    return {name: np.flatnonzero(mask) for name, mask in masks.items() if mask.any()}


def _variant_ids(pair_tokenizer: PairTokenizer, words: Iterable[str]) -> list[int]:
    """One-token variants of words in running text: lower case, Capitalised, UPPER."""
    variants = [case(word) for word in words for case in (str.lower, str.capitalize, str.upper)]
    return sorted(
        {
            int(ids[0])
            for ids in pair_tokenizer.encode(variants)
            if len(ids) == 1 and ids[0] != _unknown(pair_tokenizer)
        }
    )


def _known_ids(pair_tokenizer: PairTokenizer, word: str) -> np.ndarray:
    (ids,) = pair_tokenizer.encode([word])
    if not len(ids) or _unknown(pair_tokenizer) in ids:
        log.warning("the tokenizer does not know the probe word %r; it is left out", word)
        return ids[:0]
    return ids


def _unknown(pair_tokenizer: PairTokenizer) -> int:
    unknown = pair_tokenizer.tokenizer.unk_token_id
    return -1 if unknown is None else int(unknown)


def _is_word(text: str) -> bool:
    return text.isalpha() and (len(text) > 1 or text in ("a", "I", "i") or not text.isascii())


class WordSenses:
    """(row of the first, sense vectors [c, k, d] in float32) of :data:`CHUNK` words of a vocabulary
    at a time.

    Where all of them take :data:`KEPT` bytes at most, they are computed once, however often they
    are gone through. Of words that attribute senses set apart, these are the means of their
    classes.

    Attributes:
        norms_apart: length of each word in each attribute sense. [V, G]
    """

    def __init__(self, backpack: BackpackModel, vocabulary: Vocabulary) -> None:
        self._backpack, self._ids = backpack, vocabulary.ids
        config = backpack.config
        self._small = 4 * len(vocabulary) * config.num_senses * config.hidden_size <= KEPT
        self._known: dict[int, Tensor] = {}
        self.norms_apart = torch.zeros(
            (len(vocabulary), len(config.groups)), device=backpack.device
        )
        self._forms = self._groups = torch.zeros(0, dtype=torch.long)
        if backpack.attribute_senses is not None:
            self._set_apart(backpack.attribute_senses)

    @torch.no_grad()
    def _set_apart(self, own: AttributeSenses) -> None:
        """The words with a vector in an attribute sense: their rows, groups, class means and stacks
        of W_l d.
        """
        number_of = {
            row.pieces[0]: number for number, row in enumerate(own.rows()) if len(row.pieces) == 1
        }
        rows = [row for row, token in enumerate(self._ids.tolist()) if token in number_of]
        forms = torch.tensor(
            [number_of[int(self._ids[row])] for row in rows],
            dtype=torch.long,
            device=own.pieces.device,
        )
        network = self._backpack.sense_network
        with eval_mode(self._backpack):
            means, differences = own.split(forms, self._backpack.token_hidden)
            self._means = network.expand(means).float()  # [w, k, d]
            self._apart = network.project_differences(differences).float().flatten(1)  # [w, k d]
        self._forms = torch.tensor(rows, dtype=torch.long, device=forms.device)
        self._groups = own.group_of[forms].long()
        self.norms_apart[self._forms, self._groups] = self._apart.norm(dim=-1)

    def cosines_apart(self, probes: Tensor, start: int, count: int) -> Tensor:
        """Cosines of probes [p, G, k d] of length 1 or 0 and the words from ``start`` on. [G, p,
        count]

        -inf where a word or the probe has no vector in the sense.
        """
        found = probes.new_full((probes.shape[1], len(probes), count), float("-inf"))
        inside = (self._forms >= start) & (self._forms < start + count)
        if not bool(inside.any()):
            return found
        groups, rows = self._groups[inside], self._forms[inside] - start
        of_group = probes[:, groups]  # [p, m, k d]
        cosines = (of_group * F.normalize(self._apart[inside], dim=-1)).sum(dim=-1)
        found[groups, :, rows] = cosines.masked_fill(~of_group.any(dim=-1), float("-inf")).T
        return found

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, len(self._ids), CHUNK):
            senses = self._known.get(start)
            if senses is None:
                with torch.no_grad(), eval_mode(self._backpack):
                    senses = self._backpack.senses(
                        self._ids[start : start + CHUNK].to(self._backpack.device)
                    ).float()
                inside = (self._forms >= start) & (self._forms < start + len(senses))
                if bool(inside.any()):
                    senses[self._forms[inside] - start] = self._means[inside]
            if self._small:
                self._known[start] = senses
            yield start, senses


def _best(word_senses: WordSenses, measure: _Measure, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` largest values of ``measure`` and the rows of their words, each [k, p,
    count].
    """
    values, rows = torch.zeros(0), torch.zeros(0)
    for start, senses in word_senses:
        found = measure(senses, start)
        numbers = torch.arange(start, start + len(senses), device=found.device).expand_as(found)
        if start:
            found, numbers = torch.cat([values, found], dim=-1), torch.cat([rows, numbers], dim=-1)
        values, places = found.topk(min(count, found.shape[-1]), dim=-1)
        rows = numbers.gather(-1, places)
    return values.cpu(), rows.cpu()


def _related(vocabulary: Vocabulary, values: Tensor, rows: Tensor) -> tuple[RelatedWord, ...]:
    found = zip(rows.tolist(), values.tolist(), strict=True)
    return tuple(
        RelatedWord(vocabulary.words[row], value) for row, value in found if value != float("-inf")
    )


def _extreme(
    vocabulary: Vocabulary, values: np.ndarray, count: int, lowest: bool = False
) -> tuple[RelatedWord, ...]:
    """Words with the largest values above 0, or with ``lowest`` the smallest below 0. Values [V],
    NaN left out.
    """
    signed = np.nan_to_num(-values if lowest else values, nan=0.0)
    order = np.argsort(-signed, kind="stable")[:count]
    return tuple(
        RelatedWord(vocabulary.words[row], float(values[row])) for row in order if signed[row] > 0
    )
