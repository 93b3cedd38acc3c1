"""A causal language model that ranks a list of passages by the identifiers that it would name next."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol, get_args

import numpy as np
import torch
from transformers import PreTrainedModel

from backpack_rank.checks import one_of
from backpack_rank.models.utils import eval_mode, pick_device
from backpack_rank.position.lists.base import ListwiseRanker, Ranking, Usage
from backpack_rank.position.lists.decoding import (
    DecodingState,
    TokenTrie,
    check_temperature,
    list_rngs,
    read,
    sample_scores,
)
from backpack_rank.position.lists.passages import PassageList
from backpack_rank.position.lists.prompt import EncodedPrompt, PromptTokenizer

ListwiseMode = Literal["first_token", "generate"]
MODES = get_args(ListwiseMode)
CPU_TOKENS, GPU_TOKENS = 4096, 32_768
"""Tokens of prompts that are read at once."""


class Calibration(Protocol):
    """What a ranker asks of a correction of identifier probabilities (:mod:`.calibration`)."""

    @property
    def label(self) -> str:
        """Label in tables."""

    @property
    def active(self) -> bool:
        """Whether it changes anything; if not, the ranker does without it and its passes."""

    def content_free(self, shown: PassageList) -> PassageList:
        """The list with its passages replaced."""

    def priors(
        self,
        lists: Sequence[PassageList],
        compute: Callable[[list[PassageList]], list[np.ndarray]],
        owner: object,
    ) -> list[np.ndarray]:
        """Log-probabilities of identifiers in the content-free lists, from memory where ``owner``
        had them computed.
        """

    def scores(self, log_probabilities: np.ndarray, log_prior: np.ndarray) -> np.ndarray:
        """Corrected probabilities of the remaining candidates from both; they sum to 1, some may be
        negative. [m]
        """


class CausalLmRanker(ListwiseRanker):
    """Ranks lists by a causal language model of transformers; results do not depend on how lists
    are batched.

    ``first_token`` (FIRST; DebiasFirst, 2) asks once, at the first identifier of the answer. Where
    each identifier is one token, its score is the token's log-probability: the logit that FIRST
    takes, less a number that is the same for the whole list, in a single forward pass. Where one
    has several tokens ("1", "0"), the score of each is that of all its tokens and the closing
    bracket (CapCal, eq. 2), because "1" alone would count for 10 as well; this takes a second,
    short pass over the tree of identifiers, which shares the prompt's keys and values.

    ``generate`` writes the whole permutation, greedily: at each step the remaining identifier of
    the highest probability, all tokens and the closing bracket together. The tokens before an
    identifier and the tree of all that remain are read in one pass, so a list of m passages takes m
    passes; constrained decoding token by token takes more, and can enter an identifier whose
    beginning is likely and whose end is not. No scores.

    At a temperature T above 0, the next passage is drawn: each of those that remain with the
    probability of its whole identifier to the power of 1 / T, renormalised. ``generate`` draws at
    every step. ``first_token`` draws the whole order from its one set of scores by adding T times
    Gumbel noise to them, which is the same distribution
    (:func:`~backpack_rank.position.lists.decoding.add_gumbel`); ``scores`` are then those with the
    noise, so that they sort into the order. With a calibration, corrected probabilities take the
    place of probabilities. The draws depend
    on the seed and the list as it is shown: the same list gives the same ranking again, whatever is
        ranked beside it.

    Attributes:
        model: it is moved to the device, nothing else about it changes.
        mode: ``first_token`` or ``generate``.
        passages: that the model was trained to rank at once; None: not known. Longer lists are
            ranked all the same.
        temperature: T; at 0 the most probable passage is always the next.
        seed: of draws.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        pair_tokenizer: PromptTokenizer,
        mode: ListwiseMode = "first_token",
        calibration: Calibration | None = None,
        device: str = "auto",
        tokens_per_batch: int | None = None,
        *,
        label: str | None = None,
        passages: int | None = None,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        """A ranker of a model.

        Args:
            pair_tokenizer: of its tokenizer and a prompt.
            calibration: a correction of the probabilities, or None.
            device: ``auto`` (a GPU where there is one), ``cpu``, ``cuda:1`` ...
            tokens_per_batch: of prompts; None chooses by device.
            label: in tables; None: the model's name.
            temperature: of sampling; 0: none.
            seed: of sampling.

        Raises:
            ValueError: an unknown mode; a temperature below 0; a model that reads in both
                directions or has an encoder; a tokenizer or a ``max_length`` that is too large for
                it; no such device.
        """
        one_of("listwise ranker: mode", mode, MODES)
        chosen = pick_device(device, "device")
        _check_fit(model, pair_tokenizer)
        self.model: PreTrainedModel = model.to(chosen)  # type: ignore[arg-type]
        _check_causal(self.model)
        self.pair_tokenizer, self.mode, self.calibration = pair_tokenizer, mode, calibration
        self.tokens_per_batch = tokens_per_batch or (
            CPU_TOKENS if chosen.type == "cpu" else GPU_TOKENS
        )
        self.label, self.passages = label or _model_name(model), passages
        self.temperature, self.seed = check_temperature(temperature), seed
        self._usage = Usage()

    def sharing_model(
        self, *, calibration: Calibration | None = None, temperature: float = 0.0, seed: int = 0
    ) -> CausalLmRanker:
        """Another ranker with the same model in memory: its correction, its draws and its usage are
        its own.

        Raises:
            ValueError: a temperature below 0.
        """
        other = copy.copy(self)
        other.calibration, other._usage = calibration, Usage()
        other.temperature, other.seed = check_temperature(temperature), seed
        return other

    @property
    def name(self) -> str:
        label = f"{self.label} T={self.temperature:g}" if self.temperature else self.label
        return f"{label} {self.calibration.label}" if self.calibration is not None else label

    @property
    def usage(self) -> Usage:
        return self._usage

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """One ranking for each list. Raises ``ValueError`` for a prompt that cannot fit; the query
        is named.
        """
        prompts = self.pair_tokenizer.encode_all(lists)
        self._usage.lists += len(lists)
        self._usage.shortened += sum(prompt.shortened for prompt in prompts)
        with torch.inference_mode(), eval_mode(self.model):
            if self.mode == "generate":
                return self._generated(lists, prompts)
            scores = self._first_tokens(prompts)
            if self._calibrates:
                assert self.calibration is not None
                priors = self.calibration.priors(lists, self._content_free_scores, self)
                scores = [
                    self.calibration.scores(s, p) for s, p in zip(scores, priors, strict=True)
                ]
        chances = list_rngs(lists, self.temperature, self.seed)
        return [
            Ranking.of_scores(self._drawn(score, rng))
            for score, rng in zip(scores, chances, strict=True)
        ]

    def _drawn(self, scores: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        return sample_scores(scores, self.temperature, rng, corrected=self._calibrates)

    @property
    def _calibrates(self) -> bool:
        return self.calibration is not None and self.calibration.active

    def _content_free_scores(self, lists: list[PassageList]) -> list[np.ndarray]:
        return self._first_tokens(self.pair_tokenizer.encode_all(lists))

    def _first_tokens(self, prompts: Sequence[EncodedPrompt]) -> list[np.ndarray]:
        """Log-probabilities of the identifiers at the beginning of the answer, for each prompt.
        float64 [m]
        """
        found: list[np.ndarray] = [np.empty(0)] * len(prompts)
        for rows in self._batches(prompts):
            trees = [self._first_tree(prompts[row].count) for row in rows]
            context = self._read([prompts[row] for row in rows], once=not any(map(len, trees)))
            for row, values in zip(rows, context.step([[]] * len(rows), trees), strict=True):
                found[row] = values
            self._usage.passes += context.passes
            self._usage.generated_tokens += len(rows)
        return found

    def _first_tree(self, count: int) -> TokenTrie:
        identifiers = self.pair_tokenizer.identifiers(count)
        if all(len(ids) == 1 for ids in identifiers):
            return TokenTrie.of(identifiers)
        return self._tree(range(count))

    def _tree(self, positions: Sequence[int]) -> TokenTrie:
        identifiers = self.pair_tokenizer.identifiers(max(positions) + 1)
        return TokenTrie.of(
            [[*identifiers[position], *self.pair_tokenizer.closing] for position in positions]
        )

    def _generated(
        self, lists: Sequence[PassageList], prompts: Sequence[EncodedPrompt]
    ) -> list[Ranking]:
        orders: list[list[int]] = [[] for _ in lists]
        for rows in self._batches(prompts):
            context = self._read([prompts[row] for row in rows])
            free = (
                self._content_free_context([lists[row] for row in rows])
                if self._calibrates
                else None
            )
            shown = [lists[row] for row in rows]
            for row, order in zip(rows, self._decoded(context, free, shown), strict=True):
                orders[row] = order
                self._usage.generated_tokens += len(self.pair_tokenizer.answer(order))
        return [Ranking(np.array(order)) for order in orders]

    def _content_free_context(self, lists: Sequence[PassageList]) -> DecodingState:
        """The content-free prompts of a batch, equal ones read once."""
        assert self.calibration is not None
        free = [self.calibration.content_free(shown) for shown in lists]
        distinct = {(one.query, one.passages): one for one in free}
        number = {key: row for row, key in enumerate(distinct)}
        context = self._read(self.pair_tokenizer.encode_all(list(distinct.values())))
        return context.select([number[one.query, one.passages] for one in free])

    def _decoded(
        self, context: DecodingState, free: DecodingState | None, lists: Sequence[PassageList]
    ) -> list[list[int]]:
        """Whole permutations of a batch, step by step together; lists that are finished leave the
        batch.
        """
        counts, chances = (
            [len(shown) for shown in lists],
            list_rngs(lists, self.temperature, self.seed),
        )
        orders: list[list[int]] = [[] for _ in counts]
        remaining = [list(range(count)) for count in counts]
        active = [row for row, count in enumerate(counts) if count > 1]
        contexts = [context] if free is None else [context, free]
        kept = list(range(len(counts)))
        forced: list[list[int]] = [[] for _ in counts]
        while active:
            if kept != active:
                contexts = [one.select([kept.index(row) for row in active]) for one in contexts]
                kept = active
            trees = [self._tree(remaining[row]) for row in active]
            steps = [one.step([forced[row] for row in active], trees) for one in contexts]
            for number, row in enumerate(active):
                scores = self._drawn(
                    self._step_scores([step[number] for step in steps]), chances[row]
                )
                position = remaining[row].pop(int(np.argmax(scores)))
                orders[row].append(position)
                forced[row] = [
                    *self.pair_tokenizer.identifiers(counts[row])[position],
                    *self.pair_tokenizer.closing,
                    *self.pair_tokenizer.between,
                ]
            active = [row for row in active if len(remaining[row]) > 1]
        self._usage.passes += sum(one.passes for one in contexts)
        return [order + rest for order, rest in zip(orders, remaining, strict=True)]

    def _step_scores(self, log_probabilities: Sequence[np.ndarray]) -> np.ndarray:
        if len(log_probabilities) == 1:
            return log_probabilities[0]
        assert self.calibration is not None
        return self.calibration.scores(*log_probabilities)

    def _read(self, prompts: Sequence[EncodedPrompt], once: bool = False) -> DecodingState:
        self._usage.prompt_tokens += sum(map(len, prompts))
        return read(
            self.model, [prompt.ids for prompt in prompts], self.pair_tokenizer.max_length, once
        )

    def _batches(self, prompts: Sequence[EncodedPrompt]) -> Iterator[list[int]]:
        """Rows of prompts of about equal length, the longest first: what does not fit into memory
        fails at once.
        """
        order = sorted(range(len(prompts)), key=lambda row: -len(prompts[row]))
        while order:
            size = max(1, self.tokens_per_batch // len(prompts[order[0]]))
            yield order[:size]
            order = order[size:]


def position_limit(model: PreTrainedModel) -> int | None:
    """The number of tokens that a model has positions for, where its configuration says so."""
    limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return int(limit) if limit else None


def _check_fit(model: PreTrainedModel, pair_tokenizer: PromptTokenizer) -> None:
    limit = position_limit(model)
    if limit is not None and pair_tokenizer.max_length > limit:
        raise ValueError(
            f"max_length={pair_tokenizer.max_length} exceeds the model's {limit} positions; lower "
            "max_length"
        )
    rows = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
    if len(pair_tokenizer.tokenizer) > rows:
        raise ValueError(
            f"the tokenizer has {len(pair_tokenizer.tokenizer)} tokens, but {_model_name(model)} "
            f"embeds {rows}: give the tokenizer that belongs to the model"
        )


@torch.inference_mode()
def _check_causal(model: PreTrainedModel) -> None:
    """What stands behind a token must not change the logits at it; configurations do not say so
    reliably.
    """
    if model.config.is_encoder_decoder:
        raise ValueError(
            f"{_model_name(model)} has an encoder and a decoder; a listwise ranker takes a causal "
            "LM"
        )
    with eval_mode(model):
        first, other = (
            model(input_ids=torch.tensor([[1, 1], [1, 2]], device=model.device))
            .logits[:, 0]
            .float()
        )
    if (first - other).abs().max() > 10 * torch.finfo(model.dtype).eps * first.abs().max():
        raise ValueError(
            f"{_model_name(model)} reads in both directions, so it cannot write an answer; use a "
            "causal language model, or set is_decoder=true in its config.json when it was trained "
            "as one"
        )


def _model_name(model: PreTrainedModel) -> str:
    return str(model.config.name_or_path).rstrip("/").rsplit("/", 1)[-1] or type(model).__name__
