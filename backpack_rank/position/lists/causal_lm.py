"""A causal language model that ranks a list by the identifiers that it would name next."""

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
    """What to implement for a correction of identifier probabilities (:mod:`.calibration`)."""

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
        """Log-probabilities of identifiers in the content-free lists.

        Those that ``owner`` had computed before come from memory.
        """

    def scores(self, log_probabilities: np.ndarray, log_prior: np.ndarray) -> np.ndarray:
        """Corrected probabilities of the remaining candidates. [m]

        They sum to 1; some may be negative.
        """


class CausalLmRanker(ListwiseRanker):
    """Ranks lists by a causal language model of transformers, on this machine::

        ranker = CausalLmRanker(model, PromptTokenizer(prompt, tokenizer), mode="generate")
        rankings = ranker.rank(lists)

    Results do not depend on how lists are batched.

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
    place of probabilities. The draws depend on the seed and the list in the order in which it is
    shown: the same list gives the same ranking again, whatever is ranked beside it.

    Attributes:
        model: it is moved to the device; nothing else of it changes.
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
        place = pick_device(device, "device")
        _check_fit(model, pair_tokenizer)
        self.model: PreTrainedModel = model.to(place)  # type: ignore[arg-type]
        _check_causal(self.model)
        if not tokens_per_batch:
            tokens_per_batch = CPU_TOKENS if place.type == "cpu" else GPU_TOKENS
        self.pair_tokenizer = pair_tokenizer
        self.mode = mode
        self.calibration = calibration
        self.tokens_per_batch = tokens_per_batch
        self.label = label or _model_name(model)
        self.passages = passages
        self.temperature = check_temperature(temperature)
        self.seed = seed
        self._usage = Usage()

    def sharing_model(
        self, *, calibration: Calibration | None = None, temperature: float = 0.0, seed: int = 0
    ) -> CausalLmRanker:
        """A ranker with the same model in memory, but another calibration, draws and usage.

        Raises:
            ValueError: a temperature below 0.
        """
        other = copy.copy(self)
        other.calibration = calibration
        other.temperature = check_temperature(temperature)
        other.seed = seed
        other._usage = Usage()
        return other

    @property
    def name(self) -> str:
        name = self.label
        if self.temperature:
            name += f" T={self.temperature:g}"
        if self.calibration is not None:
            name += f" {self.calibration.label}"
        return name

    @property
    def usage(self) -> Usage:
        return self._usage

    def rank(self, lists: Sequence[PassageList]) -> list[Ranking]:
        """A ranking for each list.

        Raises:
            ValueError: a prompt cannot fit; the query is named.
        """
        prompts = self.pair_tokenizer.encode_all(lists)
        self._usage.lists += len(lists)
        self._usage.shortened += sum(prompt.shortened for prompt in prompts)
        with torch.inference_mode(), eval_mode(self.model):
            if self.mode == "generate":
                return self._generated(lists, prompts)
            scores = self._first_tokens(prompts)
            calibration = self._active_calibration
            if calibration is not None:
                scores = self._calibrated(calibration, lists, scores)
        rankings = []
        rngs = list_rngs(lists, self.temperature, self.seed)
        for values, rng in zip(scores, rngs, strict=True):
            rankings.append(Ranking.of_scores(self._sample(values, rng)))
        return rankings

    @property
    def _active_calibration(self) -> Calibration | None:
        """The calibration, unless it changes nothing: its passes are then saved."""
        if self.calibration is None or not self.calibration.active:
            return None
        return self.calibration

    def _calibrated(
        self,
        calibration: Calibration,
        lists: Sequence[PassageList],
        log_probabilities: Sequence[np.ndarray],
    ) -> list[np.ndarray]:
        """Corrected probabilities of the first identifiers of each list. float64 [m] each"""

        def content_free_scores(lists: list[PassageList]) -> list[np.ndarray]:
            return self._first_tokens(self.pair_tokenizer.encode_all(lists))

        log_priors = calibration.priors(lists, content_free_scores, owner=self)
        corrected = []
        for values, log_prior in zip(log_probabilities, log_priors, strict=True):
            corrected.append(calibration.scores(values, log_prior))
        return corrected

    def _sample(self, scores: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        corrected = self._active_calibration is not None
        return sample_scores(scores, self.temperature, rng, corrected=corrected)

    def _first_tokens(self, prompts: Sequence[EncodedPrompt]) -> list[np.ndarray]:
        """Log-probabilities of the identifiers at the beginning of each answer. float64 [m] each"""
        scores: list[np.ndarray] = [np.empty(0)] * len(prompts)
        for rows in self._batches(prompts):
            prompts_of_batch = [prompts[row] for row in rows]
            trees = [self._first_tree(prompt.count) for prompt in prompts_of_batch]
            # Trees without nodes have identifiers of one token: the prompt's logits suffice.
            once = not any(map(len, trees))
            state = self._read(prompts_of_batch, once)
            nothing_forced: list[list[int]] = [[]] * len(rows)
            scores_of_batch = state.step(nothing_forced, trees)
            for row, scores_of_list in zip(rows, scores_of_batch, strict=True):
                scores[row] = scores_of_list
            self._usage.passes += state.passes
            self._usage.generated_tokens += len(rows)
        return scores

    def _first_tree(self, count: int) -> TokenTrie:
        """The candidates at the beginning of an answer.

        The closing bracket counts where "1" alone would count for "10" as well.
        """
        identifiers = self.pair_tokenizer.identifiers(count)
        if all(len(ids) == 1 for ids in identifiers):
            return TokenTrie(identifiers)
        return self._tree(range(count))

    def _tree(self, positions: Sequence[int]) -> TokenTrie:
        """The identifiers of these input positions, each with its closing bracket."""
        identifiers = self.pair_tokenizer.identifiers(max(positions) + 1)
        candidates = []
        for position in positions:
            candidates.append([*identifiers[position], *self.pair_tokenizer.closing])
        return TokenTrie(candidates)

    def _generated(
        self, lists: Sequence[PassageList], prompts: Sequence[EncodedPrompt]
    ) -> list[Ranking]:
        """Rankings whose permutations are written passage by passage."""
        rankings: list[Ranking | None] = [None] * len(lists)
        calibration = self._active_calibration
        for rows in self._batches(prompts):
            shown = [lists[row] for row in rows]
            states = [self._read([prompts[row] for row in rows])]
            if calibration is not None:
                states.append(self._read_content_free(calibration, shown))
            for row, order in zip(rows, self._decode(states, shown), strict=True):
                rankings[row] = Ranking(np.array(order))
                self._usage.generated_tokens += len(self.pair_tokenizer.answer(order))
        # Batches hold every row once, so no ranking is None.
        return [ranking for ranking in rankings if ranking is not None]

    def _read_content_free(
        self, calibration: Calibration, lists: Sequence[PassageList]
    ) -> DecodingState:
        """The content-free prompts of a batch; equal ones are read once."""
        distinct: dict[tuple[str, tuple[str, ...]], int] = {}
        prompts: list[PassageList] = []
        rows = []
        for shown in lists:
            content_free = calibration.content_free(shown)
            key = (content_free.query, content_free.passages)
            if key not in distinct:
                distinct[key] = len(prompts)
                prompts.append(content_free)
            rows.append(distinct[key])
        return self._read(self.pair_tokenizer.encode_all(prompts)).select(rows)

    def _decode(self, states: list[DecodingState], lists: Sequence[PassageList]) -> list[list[int]]:
        """Permutations of a batch of lists, step by step together.

        Args:
            states: the prompts as read, and with a calibration their content-free prompts.
            lists: of the batch.
        """
        rngs = list_rngs(lists, self.temperature, self.seed)
        orders: list[list[int]] = [[] for _ in lists]
        remaining = [list(range(len(shown))) for shown in lists]
        # Tokens to read before the next identifier: the identifier written last, and what follows.
        forced: list[list[int]] = [[] for _ in lists]
        in_states = list(range(len(lists)))
        # The model need not be asked about the last passage of a list.
        active = [row for row in in_states if len(remaining[row]) > 1]
        while active:
            # Lists that are finished leave the batch.
            if in_states != active:
                kept = [in_states.index(row) for row in active]
                states = [state.select(kept) for state in states]
                in_states = active
            trees = []
            forced_tokens = []
            for row in active:
                trees.append(self._tree(remaining[row]))
                forced_tokens.append(forced[row])
            steps = [state.step(forced_tokens, trees) for state in states]
            # One array for each list, or two: behind its prompt, and behind its content-free one.
            for row, *log_probabilities in zip(active, *steps, strict=True):
                if len(log_probabilities) == 1:
                    (scores,) = log_probabilities
                else:
                    assert self.calibration is not None
                    scores = self.calibration.scores(*log_probabilities)
                best = int(np.argmax(self._sample(scores, rngs[row])))
                position = remaining[row].pop(best)
                orders[row].append(position)
                forced[row] = [
                    *self.pair_tokenizer.identifiers(len(lists[row]))[position],
                    *self.pair_tokenizer.closing,
                    *self.pair_tokenizer.between,
                ]
            active = [row for row in active if len(remaining[row]) > 1]
        self._usage.passes += sum(state.passes for state in states)
        return [order + rest for order, rest in zip(orders, remaining, strict=True)]

    def _read(self, prompts: Sequence[EncodedPrompt], once: bool = False) -> DecodingState:
        """Read prompts and count their tokens; ``once``: nothing will be read behind them."""
        self._usage.prompt_tokens += sum(map(len, prompts))
        ids = [prompt.ids for prompt in prompts]
        return read(self.model, ids, self.pair_tokenizer.max_length, once)

    def _batches(self, prompts: Sequence[EncodedPrompt]) -> Iterator[list[int]]:
        """Rows of prompts of about equal length."""
        # The longest first: what does not fit into memory fails at once.
        order = sorted(range(len(prompts)), key=lambda row: -len(prompts[row]))
        while order:
            size = max(1, self.tokens_per_batch // len(prompts[order[0]]))
            yield order[:size]
            order = order[size:]


def position_limit(model: PreTrainedModel) -> int | None:
    """The number of tokens that a model has positions for; None: not known."""
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
    """Raise ``ValueError`` where what stands behind a token changes the logits at it.

    The model is asked, since configurations do not say so reliably.
    """
    if model.config.is_encoder_decoder:
        raise ValueError(
            f"{_model_name(model)} has an encoder and a decoder; a listwise ranker takes a causal "
            "LM"
        )
    with eval_mode(model):
        # Two texts that differ behind their first token.
        ids = torch.tensor([[1, 1], [1, 2]], device=model.device)
        first, other = model(input_ids=ids).logits[:, 0].float()
    tolerance = 10 * torch.finfo(model.dtype).eps * first.abs().max()
    if (first - other).abs().max() > tolerance:
        raise ValueError(
            f"{_model_name(model)} reads in both directions, so it cannot write an answer; use a "
            "causal language model, or set is_decoder=true in its config.json when it was trained "
            "as one"
        )


def _model_name(model: PreTrainedModel) -> str:
    """The last part of the path or repository that it was loaded from, or its class."""
    name = str(model.config.name_or_path).rstrip("/").rsplit("/", 1)[-1]
    return name or type(model).__name__
