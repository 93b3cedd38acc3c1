"""What a sense is about: words near in it, words typical of it, what it adds to which documents.

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
    """A word and how strongly it belongs to a sense; its list says what the value is."""

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
    """Choose the words that senses are described by: words of letters of one token.

    Args:
        pair_tokenizer: of the ranker.
        texts: keep only words that stand in these texts; None keeps all.

    Raises:
        ValueError: no word is left.
    """
    tokenizer = pair_tokenizer.tokenizer
    wanted: set[int] = set(range(len(tokenizer)))
    if texts is not None:
        wanted = set()
        for text in texts:
            wanted.update(whole_word_ids(pair_tokenizer, text).tolist())
    word_of: dict[int, str] = {}
    for token in sorted(wanted):
        word = str(tokenizer.decode([token])).strip()
        if _is_word(word):
            word_of[token] = word
    # What a token decodes to need not be tokenised as this token, such as a word without a space.
    encoded = pair_tokenizer.encode(list(word_of.values()))
    tokens = [token for token, ids in zip(word_of, encoded, strict=True) if ids.tolist() == [token]]
    # Lower case last, so that it takes the place of other cases.
    tokens.sort(key=lambda token: (word_of[token].islower(), token))
    token_by_word = {word_of[token].lower(): token for token in tokens}
    if not token_by_word:
        raise ValueError(
            "no word of the texts is one token of the tokenizer; give more texts or a larger "
            "vocabulary"
        )
    ids = sorted(token_by_word.values())
    return Vocabulary(tuple(word_of[token] for token in ids), torch.tensor(ids))


@torch.no_grad()
def nearest_words(
    backpack: BackpackModel,
    pair_tokenizer: PairTokenizer,
    vocabulary: Vocabulary,
    probes: Sequence[str],
    count: int = 8,
    senses: WordSenses | None = None,
) -> list[dict[str, tuple[RelatedWord, ...]]]:
    """What a word means in each sense, by its neighbours.

    Per sense and probe word x, these are the words y with the largest cos(C(x)_l, C(y)_l), the
    probe left out. A probe of several tokens stands for the mean of their vectors, as in the
    sensitivities. In the k senses, the words of a class that a ranker has attribute senses for are
    their mean; an attribute sense has words of its group alone.

    Args:
        backpack: the model.
        pair_tokenizer: of the ranker.
        vocabulary: the V words to choose from.
        probes: p words; those that the tokenizer does not know are left out with a warning.
        count: words of a list.
        senses: those of the vocabulary, where they are known already.

    Returns:
        k + G dictionaries ``{probe: words, nearest first}``.
    """
    ids_of_probes: dict[str, np.ndarray] = {}
    for probe in dict.fromkeys(probes):
        ids = _known_ids(pair_tokenizer, probe)
        if len(ids):
            ids_of_probes[probe] = ids
    if not ids_of_probes:
        return [{} for _ in range(backpack.config.total_senses)]
    probe_senses: list[Tensor] = []  # [k, d] of each probe
    probe_differences: list[Tensor] = []  # [G, k d] of each probe
    with eval_mode(backpack):
        for ids in ids_of_probes.values():
            vectors, differences = backpack.word_senses(ids.tolist())
            probe_senses.append(vectors)
            probe_differences.append(differences)
    targets = F.normalize(torch.stack(probe_senses), dim=-1)  # [p, k, d]
    targets_apart = F.normalize(torch.stack(probe_differences), dim=-1)  # [p, G, k d]
    word_senses = senses or WordSenses(backpack, vocabulary)
    # In any case: "He" is no neighbour of "he".
    words = np.array([word.lower() for word in vocabulary.words])
    rows_of_probes = [words == probe.lower() for probe in ids_of_probes]
    is_probe = torch.from_numpy(np.stack(rows_of_probes))  # [p, V]

    def cosines_to_probes(senses: Tensor, start: int) -> Tensor:
        cosines = torch.einsum("pkd,ckd->kpc", targets, F.normalize(senses, dim=-1))
        cosines_apart = word_senses.cosines_apart(targets_apart, start, len(senses))
        all_cosines = torch.cat([cosines, cosines_apart])  # [k + G, p, c]
        is_probe_here = is_probe[None, :, start : start + len(senses)].to(backpack.device)
        return all_cosines.masked_fill(is_probe_here, float("-inf"))

    values, rows = _best(word_senses, cosines_to_probes, count)  # [k + G, p, count]
    neighbours = []
    for sense_values, sense_rows in zip(values, rows, strict=True):
        of_sense = {}
        for place, probe in enumerate(ids_of_probes):
            of_sense[probe] = _related(vocabulary, sense_values[place], sense_rows[place])
        neighbours.append(of_sense)
    return neighbours


@torch.no_grad()
def typical_words(
    backpack: BackpackModel,
    vocabulary: Vocabulary,
    count: int = 8,
    senses: WordSenses | None = None,
) -> list[tuple[RelatedWord, ...]]:
    """What a sense is about, by the words that are more of it than of other senses.

    The share of sense l in a word x is |C(x)_l - m_l| / sum_l' |C(x)_l' - m_l'| with m_l the mean
    over the vocabulary: what all words have in common in a sense says nothing about a word. In an
    attribute sense, where most words have nothing, m_l is 0.

    Args:
        backpack: the model.
        vocabulary: words to choose from.
        count: words of a list.
        senses: those of the vocabulary, where they are known already.

    Returns:
        For each sense the words with the largest shares, in [0, 1].
    """
    word_senses = senses or WordSenses(backpack, vocabulary)
    # In double, because a vocabulary has tens of thousands of words.
    sums = [chunk.double().sum(dim=0) for _, chunk in word_senses]
    mean = (torch.stack(sums).sum(dim=0) / len(vocabulary)).float()  # [k, d]

    def shares_of_words(senses: Tensor, start: int) -> Tensor:
        apart = word_senses.norms_apart[start : start + len(senses)]  # [c, G]
        norms = torch.cat([(senses - mean).norm(dim=-1), apart], dim=1)
        shares = norms / norms.sum(dim=-1, keepdim=True).clamp(min=1e-30)
        # A word that an attribute sense does not set apart is not typical of it, not even last.
        shares[:, senses.shape[1] :].masked_fill_(apart == 0, float("-inf"))
        return shares.T[:, None]  # [k + G, 1, c]: no probes here

    values, rows = _best(word_senses, shares_of_words, count)  # [k + G, 1, count]
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
    """Describe every sense of a ranker, over a sample of (query, document) texts.

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
    # A ranker without senses was refused with its contributions.
    assert isinstance(ranker, BackpackForRanking)
    documents = [document for _, document in pairs]
    vocabulary = vocabulary or one_token_words(pair_tokenizer, dict.fromkeys(documents))
    rows_by_group = _rows_by_group(count_groups(documents, lexicon, tokenizer), lexicon)
    ids_by_group: dict[str, list[int]] = {}
    for group, words in lexicon.groups.items():
        ids_by_group[group] = _variant_ids(pair_tokenizer, words)
    senses = WordSenses(ranker.backpack, vocabulary)
    near = nearest_words(ranker.backpack, pair_tokenizer, vocabulary, probes, count, senses)
    typical = typical_words(ranker.backpack, vocabulary, count, senses)
    per_word = table.per_word(vocabulary.ids.numpy(), min_count)  # [V, k], NaN for rare words
    profiles = []
    for sense in range(ranker.config.total_senses):
        mean_contribution: dict[str, float] = {}
        for group, rows in rows_by_group.items():
            mean_contribution[group] = float(table.per_text[rows, sense].mean())
        word_contribution: dict[str, float] = {}
        for group, ids in ids_by_group.items():
            mean = table.mean_of(ids, sense)
            if mean is not None:
                word_contribution[group] = mean
        profiles.append(
            SenseProfile(
                index=sense,
                name=ranker.config.sense_names[sense],
                sensitivity=None if sensitivity is None else float(sensitivity[sense]),
                typical_words=typical[sense],
                neighbours=near[sense],
                raising=_extreme(vocabulary, per_word[:, sense], count),
                lowering=_extreme(vocabulary, per_word[:, sense], count, lowest=True),
                mean_contribution=mean_contribution,
                word_contribution=word_contribution,
            )
        )
    documents_by_group = {group: len(rows) for group, rows in rows_by_group.items()}
    return SenseProfiles(tuple(profiles), documents_by_group)


class _Contributions:
    """Contributions of senses to scores, by text and by token.

    Attributes:
        per_text: of each text. [N, k]
        sums: of each token id, over its places where it is a whole word of a document.
            [vocabulary, k]
        counts: how many such places each token id has. [vocabulary]
    """

    def __init__(self, texts: int, tokens: int, senses: int) -> None:
        self.per_text = np.zeros((texts, senses))
        self.sums = np.zeros((tokens, senses))
        self.counts = np.zeros(tokens, dtype=np.int64)

    def per_word(self, ids: np.ndarray, min_count: int) -> np.ndarray:
        """Mean per occurrence of each token; NaN for fewer than ``min_count``. [V, k]"""
        counts = self.counts[ids, None]
        means = self.sums[ids] / np.maximum(counts, 1)
        return np.where(counts >= max(min_count, 1), means, np.nan)

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
    alignments = [align_tokens(pair_tokenizer, query, document) for query, document in pairs]
    sequences = [np.array(alignment.ids) for alignment in alignments]
    # Special tokens may have ids behind those that the tokenizer counts.
    largest = max(int(ids.max()) for ids in sequences)
    tokens = max(len(pair_tokenizer.tokenizer), largest + 1)
    table: _Contributions | None = None
    for rows, batch in pack_by_length(np.arange(len(pairs)), sequences, CPU_TOKENS):
        contributions = attribute_batch(ranker, batch, view).contributions.cpu().numpy()
        if table is None:
            table = _Contributions(len(pairs), tokens, senses=contributions.shape[1])
        table.per_text[rows] = contributions.sum(axis=2)
        for row, values in zip(rows, contributions, strict=True):  # values [k, n]
            places = np.flatnonzero(alignments[row].whole_words())
            ids = sequences[row][places]
            # Not sums[ids] += ..., which counts a token that stands twice in a text once.
            np.add.at(table.sums, ids, values[:, places].T)
            np.add.at(table.counts, ids, 1)
    assert table is not None
    return table


def _rows_by_group(counts: np.ndarray, lexicon: Lexicon) -> dict[str, np.ndarray]:
    """Rows of the documents of each group that has some.

    Groups are in the order of the lexicon, then mixed and neutral.

    Args:
        counts: lexicon words of each group in each document. [N, groups]
    """
    most = counts.max(axis=1)
    has_words = most > 0
    leads = (counts == most[:, None]).sum(axis=1) == 1
    masks: dict[str, np.ndarray] = {}
    for number, group in enumerate(lexicon.groups):
        masks[group] = has_words & leads & (counts.argmax(axis=1) == number)
    masks[MIXED] = has_words & ~leads
    masks[NEUTRAL] = ~has_words
    return {group: np.flatnonzero(mask) for group, mask in masks.items() if mask.any()}


def _variant_ids(pair_tokenizer: PairTokenizer, words: Iterable[str]) -> list[int]:
    """One-token variants of words in running text: lower case, Capitalised, UPPER."""
    variants: list[str] = []
    for word in words:
        variants += [word.lower(), word.capitalize(), word.upper()]
    unknown = _unknown(pair_tokenizer)
    one_token_ids: set[int] = set()
    for ids in pair_tokenizer.encode(variants):
        if len(ids) == 1 and ids[0] != unknown:
            one_token_ids.add(int(ids[0]))
    return sorted(one_token_ids)


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
    """Goes through the sense vectors of a vocabulary, :data:`CHUNK` words at a time.

    It gives (row of the first word, sense vectors [c, k, d] in float32). Where those of all words
    take :data:`KEPT` bytes at most, they are computed once, for any number of loops.

    Of a word that attribute senses set apart from its class, these are the mean of the class. The
    difference d from it, in all k senses side by side (W_1 d ... W_k d), is the word's vector in
    the attribute sense of its group: see :mod:`backpack_rank.models.backpack`.

    Attributes:
        norms_apart: length of each word in each attribute sense. [V, G]
    """

    def __init__(self, backpack: BackpackModel, vocabulary: Vocabulary) -> None:
        self._backpack = backpack
        self._ids = vocabulary.ids
        config = backpack.config
        size = 4 * len(vocabulary) * config.num_senses * config.hidden_size
        self._is_kept = size <= KEPT
        self._known: dict[int, Tensor] = {}
        self.norms_apart = torch.zeros(
            (len(vocabulary), len(config.groups)), device=backpack.device
        )
        # The w words with a vector in an attribute sense: rows in the vocabulary, groups. [w]
        # Their means [w, k, d] and vectors [w, k d] are set by _set_apart(), and read only where
        # there are such words.
        self._rows = torch.zeros(0, dtype=torch.long)
        self._groups = torch.zeros(0, dtype=torch.long)
        if backpack.attribute_senses is not None:
            self._set_apart(backpack.attribute_senses)

    @torch.no_grad()
    def _set_apart(self, senses: AttributeSenses) -> None:
        """Compute class means, and stacks of W_l d of words with a vector in an attribute sense."""
        # A form is a word of a class, in one token or several; words here are one token.
        form_of_token: dict[int, int] = {}
        for number, form in enumerate(senses.rows()):
            if len(form.pieces) == 1:
                form_of_token[form.pieces[0]] = number
        rows: list[int] = []
        numbers: list[int] = []
        for row, token in enumerate(self._ids.tolist()):
            if token in form_of_token:
                rows.append(row)
                numbers.append(form_of_token[token])
        forms = torch.tensor(numbers, dtype=torch.long, device=senses.pieces.device)
        network = self._backpack.sense_network
        with eval_mode(self._backpack):
            means, differences = senses.split(forms, self._backpack.token_hidden)
            self._means = network.expand(means).float()  # [w, k, d]
            self._apart = network.project_differences(differences).float().flatten(1)  # [w, k d]
        self._rows = torch.tensor(rows, dtype=torch.long, device=forms.device)
        self._groups = senses.group_of[forms].long()
        self.norms_apart[self._rows, self._groups] = self._apart.norm(dim=-1)

    def cosines_apart(self, probes: Tensor, start: int, count: int) -> Tensor:
        """Cosines of probes and the words from ``start`` on, in the attribute senses.

        Args:
            probes: vectors of length 1 or 0. [p, G, k d]
            start, count: rows of the words.

        Returns:
            [G, p, count], -inf where a word or the probe has no vector in the sense.
        """
        all_cosines = probes.new_full((probes.shape[1], len(probes), count), float("-inf"))
        inside = (self._rows >= start) & (self._rows < start + count)
        if not bool(inside.any()):
            return all_cosines
        groups, places = self._groups[inside], self._rows[inside] - start
        # Each word has a vector in the sense of its group alone.
        probes_of_words = probes[:, groups]  # [p, m, k d]
        cosines = (probes_of_words * F.normalize(self._apart[inside], dim=-1)).sum(dim=-1)
        has_no_vector = ~probes_of_words.any(dim=-1)
        all_cosines[groups, :, places] = cosines.masked_fill(has_no_vector, float("-inf")).T
        return all_cosines

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        for start in range(0, len(self._ids), CHUNK):
            senses = self._known.get(start)
            if senses is None:
                senses = self._computed(start)
            if self._is_kept:
                self._known[start] = senses
            yield start, senses

    def _computed(self, start: int) -> Tensor:
        """Sense vectors of the words from ``start`` on. [c, k, d]"""
        ids = self._ids[start : start + CHUNK].to(self._backpack.device)
        with torch.no_grad(), eval_mode(self._backpack):
            senses = self._backpack.senses(ids).float()
        inside = (self._rows >= start) & (self._rows < start + len(senses))
        if bool(inside.any()):
            senses[self._rows[inside] - start] = self._means[inside]
        return senses


def _best(word_senses: WordSenses, measure: _Measure, count: int) -> tuple[Tensor, Tensor]:
    """The largest values of ``measure`` and the rows of their words, each [k, p, count]."""
    best_values, best_rows = torch.zeros(0), torch.zeros(0)
    for start, senses in word_senses:
        values = measure(senses, start)
        rows = torch.arange(start, start + len(senses), device=values.device).expand_as(values)
        # The best so far and a chunk: a table of all words would not fit into memory.
        if start > 0:
            values = torch.cat([best_values, values], dim=-1)
            rows = torch.cat([best_rows, rows], dim=-1)
        best_values, places = values.topk(min(count, values.shape[-1]), dim=-1)
        best_rows = rows.gather(-1, places)
    return best_values.cpu(), best_rows.cpu()


def _related(vocabulary: Vocabulary, values: Tensor, rows: Tensor) -> tuple[RelatedWord, ...]:
    """Words by row; those with -inf, which have no value, are left out."""
    related = []
    for row, value in zip(rows.tolist(), values.tolist(), strict=True):
        if value != float("-inf"):
            related.append(RelatedWord(vocabulary.words[row], value))
    return tuple(related)


def _extreme(
    vocabulary: Vocabulary, values: np.ndarray, count: int, lowest: bool = False
) -> tuple[RelatedWord, ...]:
    """Words with the largest values above 0, or with ``lowest`` the smallest below 0.

    Args:
        vocabulary: the words.
        values: of each word; NaN is left out. [V]
        count: words at most.
        lowest: which end of the order.
    """
    signed = np.nan_to_num(-values if lowest else values, nan=0.0)
    extreme = []
    for row in np.argsort(-signed, kind="stable")[:count]:
        if signed[row] > 0:
            extreme.append(RelatedWord(vocabulary.words[row], float(values[row])))
    return tuple(extreme)
