"""How a causal language model reads prompts and weighs the identifiers that may follow.

It reads with a cache of keys and values where the model has a usable one, and without one
elsewhere. Rankings may be drawn in place of the most probable one (sampling temperature; Tang et
al., section 4.1).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from backpack_rank.checks import finite
from backpack_rank.position.lists.base import list_rng
from backpack_rank.position.lists.passages import PassageList

_PURPOSE = "sampling"


class TokenTrie:
    """Scores m candidates of several tokens: where a model is asked for the next token.

    >>> tree = TokenTrie([[1, 9], [1, 0, 9]])  # "1]" and "10]"
    >>> tree.tokens.tolist()  # behind "1" and behind "10"; the root is known
    [1, 0]
    >>> tree.path(1)
    [1, 0]

    A candidate's probability is a product over its tokens (CapCal, eq. 2), each asked for behind
    those before it. What follows the text itself (the root) is known; the nodes are the distinct
    proper beginnings of the candidates.

    Attributes:
        count: m.
        tokens: the last token of each node. int64 [N]
        depths: tokens between the root and the node. int64 [N]
        above: [i, j] whether node j is node i or on the way to it. bool [N, N]
        candidate, at, next: one entry per token of a candidate: which candidate, behind which node
            (0: the root, 1 + i: node i), and the token. int64 [total]
    """

    def __init__(self, candidates: Sequence[Sequence[int]]) -> None:
        """The tree of token ids of candidates; none of them is empty, two may be equal."""
        # Numbers of the nodes by their tokens from the root; shorter paths come first.
        nodes: dict[tuple[int, ...], int] = {}
        entries = []
        for number, ids in enumerate(map(tuple, candidates)):
            for length, token in enumerate(ids):
                at = 0
                if length > 0:
                    at = 1 + nodes.setdefault(ids[:length], len(nodes))
                entries.append((number, at, token))
        self.count = len(candidates)
        # The shape is given for the case of no candidate.
        columns = np.array(entries, dtype=np.int64).reshape(-1, 3).T.copy()
        self.candidate, self.at, self.next = columns

        self.tokens = np.zeros(len(nodes), dtype=np.int64)
        self.depths = np.zeros(len(nodes), dtype=np.int64)
        self.above = np.zeros((len(nodes), len(nodes)), dtype=bool)
        for path, node in nodes.items():
            self.tokens[node] = path[-1]
            self.depths[node] = len(path) - 1
            for length in range(1, len(path) + 1):
                self.above[node, nodes[path[:length]]] = True

    def __len__(self) -> int:
        return len(self.tokens)

    def path(self, node: int) -> list[int]:
        """Tokens from the root to a node, the node's last."""
        return self.tokens[self.above[node]].tolist()


class DecodingState(ABC):
    """B texts that a model has read, which can be continued together.

    Attributes:
        passes: forward passes so far, summed over the texts.
    """

    passes: int

    @abstractmethod
    def step(self, forced: Sequence[Sequence[int]], trees: Sequence[TokenTrie]) -> list[np.ndarray]:
        """Read on, then weigh what may follow.

        Args:
            forced: tokens to append to each text for good; for all of them or for none.
            trees: the candidates of each text; nothing of them is appended.

        Returns:
            For each text the log-probability of every candidate of its tree, all its tokens
            together. float64 [m]
        """

    @abstractmethod
    def select(self, rows: Sequence[int]) -> DecodingState:
        """Only these texts, in this order; a text may be taken several times.

        The old state must not be used any more.
        """


def read(
    model: PreTrainedModel, prompts: Sequence[np.ndarray], max_length: int, once: bool = False
) -> DecodingState:
    """Read prompts of different lengths in one pass, and go on from there::

        state = read(model, prompt_ids, max_length=4096)
        log_probabilities = state.step(forced=[[]] * len(prompt_ids), trees=trees)

    The model must be in evaluation mode.

    Args:
        prompts: token ids of each text. int64 [n]
        max_length: of a text with all that will be appended.
        once: whether nothing will be read behind them, so that keys and values need not be kept.
    """
    if once or not can_share(model, max_length):
        return RereadState(model, prompts)
    return KVCacheState(model, prompts)


def can_share(model: PreTrainedModel, max_length: int) -> bool:
    """Whether texts of that length can be continued in several ways from a cache.

    The model must attend to all tokens before, and take given positions and masks.
    """
    config = model.config.get_text_config()
    if not {"past_key_values", "position_ids"} <= _forward_options(model):
        return False
    # Other kinds of attention do not take a mask of four dimensions.
    if getattr(config, "_attn_implementation", "sdpa") not in ("sdpa", "eager"):
        return False
    # Recurrent or chunked layers keep a state that cannot branch.
    layer_types = set(getattr(config, "layer_types", None) or ())
    if not layer_types <= {"full_attention", "sliding_attention"}:
        return False
    window = getattr(config, "sliding_window", None)
    if window is None or not getattr(config, "use_sliding_window", True):
        return True
    # A window as long as the text hides nothing of it.
    return bool(window >= max_length)


class KVCacheState(DecodingState):
    """Keeps keys and values of the texts, so that a step reads only what is new, in one pass.

    New are the forced tokens and the nodes of the trees. Each node sees its text and the nodes
    above it (a mask of four dimensions), and leaves the cache afterwards.

    Attributes:
        mask: where the cache has a token. bool [B, cached]
        lengths: tokens of each text. [B]
        last: logits behind each text. [B, 1, vocabulary]
    """

    def __init__(self, model: PreTrainedModel, prompts: Sequence[np.ndarray]) -> None:
        self.model = model
        self.cache = DynamicCache()
        ids, mask = _left_padded(prompts)
        self.passes = len(prompts)
        self.mask = mask.to(model.device)
        self.lengths = self.mask.sum(dim=1)
        positions = (self.mask.cumsum(dim=1) - 1).clamp(min=0)
        self.last = _logits(
            model,
            ids,
            1,
            attention_mask=self.mask.long(),
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
        )

    def step(self, forced: Sequence[Sequence[int]], trees: Sequence[TokenTrie]) -> list[np.ndarray]:
        """As :meth:`DecodingState.step`, in one pass over the new tokens and all nodes."""
        width = max(map(len, forced))
        nodes = max(map(len, trees))
        if not width + nodes:
            return _candidates(self.last, trees)
        logits = self._append(forced, trees, width, nodes)
        if nodes:
            self.cache.crop(-nodes)
        if width:
            self.last = logits[:, :1]
        return _candidates(torch.cat([self.last, logits[:, 1:]], dim=1), trees)

    def select(self, rows: Sequence[int]) -> KVCacheState:
        index = torch.tensor(rows, device=self.mask.device)
        self.cache.batch_select_indices(index)
        self.mask = self.mask[index]
        self.lengths = self.lengths[index]
        self.last = self.last[index]
        return self

    def _append(
        self, forced: Sequence[Sequence[int]], trees: Sequence[TokenTrie], width: int, nodes: int
    ) -> Tensor:
        """Logits behind the last forced token and behind every node. [B, 1 + nodes, vocabulary]

        New columns are the forced tokens, aligned on the right, then the nodes, aligned on the
        left.
        """
        ids = np.zeros((len(trees), width + nodes), dtype=np.int64)
        offsets = np.zeros_like(ids)
        sees = np.zeros((len(trees), width + nodes, width + nodes), dtype=bool)
        # Padding sees itself, so that its softmax has something to sum to 1.
        sees[:] = np.eye(width + nodes, dtype=bool)
        for row, (tokens, tree) in enumerate(zip(forced, trees, strict=True)):
            start = width - len(tokens)
            end = width + len(tree)
            ids[row, start:end] = [*tokens, *tree.tokens]
            offsets[row, start:end] = [*range(len(tokens)), *(len(tokens) + tree.depths)]
            sees[row, start:width, start:width] = np.tri(len(tokens), dtype=bool)
            sees[row, width:end, start:width] = True
            sees[row, width:end, width:end] = tree.above
        device = self.mask.device
        past = self.mask[:, None].expand(-1, width + nodes, -1)
        allowed = torch.cat([past, torch.from_numpy(sees).to(device)], dim=2)
        logits = _logits(
            self.model,
            torch.from_numpy(ids),
            nodes + 1,
            attention_mask=self._mask(allowed)[:, None],
            position_ids=self.lengths[:, None] + torch.from_numpy(offsets).to(device),
            past_key_values=self.cache,
            use_cache=True,
        )
        counts = torch.tensor([len(tokens) for tokens in forced], device=device)
        new = torch.arange(width, device=device) >= width - counts[:, None]
        # Only forced tokens stay: the caller takes the nodes out of the cache.
        self.mask = torch.cat([self.mask, new], dim=1)
        self.lengths = self.lengths + counts
        # A text with nothing new is read only because the batch has others, so it costs no pass.
        for tokens, tree in zip(forced, trees, strict=True):
            if len(tokens) + len(tree):
                self.passes += 1
        if width:
            return logits
        # Nothing was appended, so what may follow the texts is known from the step before.
        return torch.cat([self.last, logits[:, -nodes:]], dim=1)

    def _mask(self, allowed: Tensor) -> Tensor:
        """The mask as the model's attention takes it.

        Torch's attention takes booleans in any number format; transformers' "eager" adds the mask
        to its logits.
        """
        if self.model.config.get_text_config()._attn_implementation == "sdpa":
            return allowed
        mask = torch.zeros(allowed.shape, dtype=self.model.dtype, device=allowed.device)
        return mask.masked_fill_(~allowed, torch.finfo(mask.dtype).min)


class RereadState(DecodingState):
    """Reads the text behind every node from its beginning, for models without a usable cache."""

    def __init__(self, model: PreTrainedModel, prompts: Sequence[np.ndarray]) -> None:
        self.model = model
        self.texts = [prompt.tolist() for prompt in prompts]
        self.passes = len(prompts)
        self.last = self._read(self.texts)

    def step(self, forced: Sequence[Sequence[int]], trees: Sequence[TokenTrie]) -> list[np.ndarray]:
        """As :meth:`DecodingState.step`, in a pass for each node of the trees."""
        if max(map(len, forced)):
            for text, tokens in zip(self.texts, forced, strict=True):
                text.extend(tokens)
            self.last = self._read(self.texts)
            self.passes += len(self.texts)
        nodes = max(map(len, trees))
        after = self.last.new_zeros((len(trees), nodes, self.last.shape[-1]))
        # Node by node, so that the batch stays as large as the one that was asked for.
        for node in range(nodes):
            rows = []
            texts = []
            for row, tree in enumerate(trees):
                if node < len(tree):
                    rows.append(row)
                    texts.append([*self.texts[row], *tree.path(node)])
            after[rows, node] = self._read(texts)[:, 0]
            self.passes += len(rows)
        return _candidates(torch.cat([self.last, after], dim=1), trees)

    def select(self, rows: Sequence[int]) -> RereadState:
        # Copies, because a text that is taken several times goes on in several ways.
        self.texts = [list(self.texts[row]) for row in rows]
        self.last = self.last[torch.tensor(rows, device=self.last.device)]
        return self

    def _read(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Logits behind the last token of each text. [B, 1, vocabulary]"""
        ids, mask = _left_padded([np.asarray(text) for text in texts])
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0).to(self.model.device)
        options = {
            "attention_mask": mask.long().to(self.model.device),
            "position_ids": positions,
            "use_cache": False,
        }
        # Models of other architectures may count positions for themselves.
        for name in options.keys() - _forward_options(self.model):
            del options[name]
        return _logits(self.model, ids, 1, **options)


def _forward_options(model: PreTrainedModel) -> set[str]:
    """Names of what a model's forward pass takes; an adapter around it passes everything on."""
    inner: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    return set(inspect.signature(inner.forward).parameters)


def _logits(model: PreTrainedModel, ids: Tensor, keep: int, **options) -> Tensor:
    """Logits at the last ``keep`` positions, as the model gives them. [B, keep, vocabulary]"""
    if "logits_to_keep" in _forward_options(model):
        # Logits of every token of the prompts would take more memory than the model.
        options["logits_to_keep"] = keep
    return model(input_ids=ids.to(model.device), **options).logits[:, -keep:]


def _candidates(logits: Tensor, trees: Sequence[TokenTrie]) -> list[np.ndarray]:
    """Log-probabilities of the trees' candidates. float64 [m] each

    Args:
        logits: behind the texts and the nodes. [B, 1 + nodes, V]
        trees: of the texts.
    """
    if bool(logits[:, 0].isnan().any()):
        raise ValueError("the model's logits are not numbers; load it with dtype=float32")
    logits = logits.float()
    # The tokens of all candidates of all trees at once, so that the device is asked once: the text
    # of each token, the node that it stands behind, and its id. [3, total]
    sizes = [len(tree.at) for tree in trees]
    index = np.stack(
        [
            np.repeat(np.arange(len(trees)), sizes),
            np.concatenate([tree.at for tree in trees]),
            np.concatenate([tree.next for tree in trees]),
        ]
    )
    rows, at, tokens = torch.from_numpy(index).to(logits.device)
    norms = logits.logsumexp(dim=-1)
    of_tokens = (logits[rows, at, tokens] - norms[rows, at]).double().cpu().numpy()
    # A candidate's log-probability is the sum over its tokens (CapCal, eq. 2).
    scores = []
    for tree, values in zip(trees, np.split(of_tokens, np.cumsum(sizes)[:-1]), strict=True):
        scores.append(np.bincount(tree.candidate, weights=values, minlength=tree.count))
    return scores


def _left_padded(texts: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Token ids [B, n] with zeros on the left, and where there are tokens, bool [B, n]."""
    width = max(map(len, texts))
    ids = np.zeros((len(texts), width), dtype=np.int64)
    mask = np.zeros((len(texts), width), dtype=bool)
    for row, text in enumerate(texts):
        ids[row, width - len(text) :] = text
        mask[row, width - len(text) :] = True
    return torch.from_numpy(ids), torch.from_numpy(mask)


def check_temperature(temperature: float) -> float:
    """The temperature as a number; ``ValueError`` unless it is finite and at least 0.

    >>> check_temperature(1)
    1.0
    """
    number = float(temperature)
    finite("listwise ranker: temperature", number, 0)
    return number


def list_rngs(
    lists: Sequence[PassageList], temperature: float, seed: int
) -> list[np.random.Generator | None]:
    """A random generator for each list; None at temperature 0, where none is needed.

    It depends on the seed, the query and the passages in their order; neither other lists nor
    batches change it. The shuffles that permutation self-consistency draws with the same seed are
    independent of it.
    """
    if not temperature:
        return [None] * len(lists)
    return [list_rng(shown, seed, _PURPOSE) for shown in lists]


def add_gumbel(scores: np.ndarray, temperature: float, rng: np.random.Generator) -> np.ndarray:
    """Draw an order: scores plus T times standard Gumbel noise. [m] -> [m]

    >>> scores = np.log([0.9, 0.1])
    >>> rng = np.random.default_rng(0)
    >>> firsts = [int(add_gumbel(scores, 1.0, rng).argmax()) for _ in range(1_000)]
    >>> round(firsts.count(0) / 1_000, 1)
    0.9

    The largest of them is candidate i with probability exp(s_i / T) / sum_j exp(s_j / T) (the
    Gumbel-max trick). Sorted, they are a draw from the Plackett-Luce distribution with weights
    exp(s / T), in which every next place goes to one of the remaining candidates with these
    probabilities, renormalised: which candidate is the largest says nothing about the order of the
    others.
    """
    return scores + temperature * rng.gumbel(size=scores.shape)


def log_scores(corrected: np.ndarray) -> np.ndarray:
    """Corrected probabilities as log-probabilities, -inf at and below 0. [m] -> [m]

    Corrected probabilities sum to 1, and some may be negative.
    """
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(corrected, 0.0))


def sample_scores(
    scores: np.ndarray,
    temperature: float,
    rng: np.random.Generator | None,
    *,
    corrected: bool = False,
) -> np.ndarray:
    """Scores that sort into a random order; at temperature 0 those that were given.

    Args:
        scores: log-probabilities of the candidates; with ``corrected`` what a calibration made of
            their probabilities. float64 [m]
        temperature: T, 0 or above.
        rng: of the list; None at temperature 0.
        corrected: a candidate's weight is then its corrected probability to the power of 1 / T, as
            it is without a correction; those at or below 0 have no weight and stand behind all
            others, best first.

    Returns:
        Sorted from the largest, they are a draw as of :func:`add_gumbel`. Finite. float64 [m]
    """
    if rng is None or not temperature:
        return scores
    if not corrected:
        return add_gumbel(scores, temperature, rng)
    weightless = scores <= 0
    if weightless.all():
        return scores
    noisy = add_gumbel(log_scores(scores), temperature, rng)
    # -inf would leave their order open, so they go below the lowest of the others.
    noisy[weightless] = noisy[~weightless].min() - 1 + scores[weightless]
    return noisy
