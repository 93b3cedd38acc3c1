"""What a training will take: steps, memory and time, said before it starts.

Nothing is trained for it. A few texts of the first lists are read forward, once each, and what
autograd keeps of them for the backward pass is counted: bytes of storage that are no parameters.
Between a small and a larger batch this grows by the activations of the further texts; what is left
at no text at all are copies of weights in half precision. From there a step has

    memory = weights + AdamW's two averages + gradients + activations
    work   = 3 times the multiplications of the forward pass (the backward pass has twice as many)

Gradients grow while activations are given back, so that the sum is an upper bound. Not counted are
terms of the loss beside the ranking loss, buffers of kernels, and what a GPU needs for itself.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from backpack_rank.data.datamodule import ListDataset, RankingData, collate_lists
from backpack_rank.data.packing import PackedBatch
from backpack_rank.models.rankers import Ranker

log = logging.getLogger(__name__)
DRAWN = 64
"""Lists that are drawn to know how long the texts of a step are."""
TRIED = (4, 8)
"""Texts of the two batches that are read."""
LARGEST = 1_000_000_000
"""Parameters of rankers that are tried; larger ones are too slow for it on a CPU."""
GPU_RATE = 50e12
"""Operations a second in bf16 that a time on a GPU is guessed by: a sixth of an A100's peak."""
LEAST_GPU_STEP = 0.04
"""Seconds in which Python starts the kernels of a step; small rankers take them whatever they read.

On an H200, 0.04 of a ranker of two layers and of GPT-2-small, 0.06 and 0.09 of MiniLM-L6.
"""


@dataclass(frozen=True)
class Tried:
    """What reading a batch forward took.

    Attributes:
        texts, tokens: of the batch.
        kept: bytes that autograd keeps for the backward pass, without parameters.
        operations: of matrix products, two for each multiplication and addition.
    """

    texts: int
    tokens: int
    kept: int
    operations: int


def try_forward(ranker: Ranker, batch: PackedBatch, precision: str = "32-true") -> Tried:
    """What a forward pass keeps and computes; the ranker stays as it is.

        try_forward(ranker, PackedBatch.from_sequences(sequences)).kept  # bytes

    Args:
        ranker: on the CPU, in the mode in which it is trained.
        batch: texts to read.
        precision: of Lightning's trainer.
    """
    parameters = {parameter.untyped_storage().data_ptr() for parameter in ranker.parameters()}
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        # Not the tensor itself: an output that holds itself is never given back.
        return tensor.detach()

    operations = FlopCounterMode(display=False)
    # Dropout draws here, and the training draws what it would have drawn without this.
    with (
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor),
        _format_of_products(precision),
        operations,
    ):
        output = ranker(batch)  # holds what is kept
        del output
    return Tried(
        len(batch.lengths),
        len(batch.input_ids),
        sum(kept.values()),
        operations.get_total_flops(),
    )


class TrainingEstimate:
    """Says what a training takes before it starts.

        estimate = TrainingEstimate(ranker, data, epochs=4, precision="bf16-mixed", on_gpu=True)
        print("\\n".join(estimate.lines()))

    Attributes:
        parameters, trained: numbers of weights, all and those that training changes.
        steps_per_epoch, epochs: of the training.
        tokens: of a step, for each step that was drawn.
        texts: of a step.
        activations: bytes that a step keeps, on average; None where the ranker was not tried.
        most_activations: the same if all texts had ``max_length`` tokens.
        operations: of a step.
        seconds: of a step, roughly.
    """

    def __init__(
        self,
        ranker: Ranker,
        data: RankingData,
        *,
        epochs: int,
        precision: str = "32-true",
        on_gpu: bool = False,
        lists: int | None = None,
    ) -> None:
        """
        Args:
            ranker: which is trained, with its adapters and frozen parts.
            data: of the training.
            precision: of Lightning's trainer.
            on_gpu: whether a GPU computes.
            lists: of an epoch, in place of those that are there.
        """
        self.epochs = epochs
        self.on_gpu = on_gpu
        self.lists = len(data.lists) if lists is None else lists
        self.steps_per_epoch = math.ceil(self.lists / data.lists_per_batch)
        self.parameters = 0
        self.trained = 0
        self._bytes_of_weights = 0
        self._bytes_of_gradients = 0
        for parameter in ranker.parameters():
            size = parameter.numel()
            self.parameters += size
            self._bytes_of_weights += size * parameter.element_size()
            if parameter.requires_grad:
                self.trained += size
                self._bytes_of_gradients += size * parameter.element_size()

        dataset = ListDataset(
            data.train,
            data.lists,
            data.pair_tokenizer,
            augment=data.augment,
            leaning=data.leaning,
        )
        drawn = [dataset[0, query_id] for query_id in islice(data.lists.order(0), DRAWN)]
        self.tokens: list[int] = []
        self.texts = 0
        for start in range(0, len(drawn), data.lists_per_batch):
            of_step = drawn[start : start + data.lists_per_batch]
            if len(of_step) == data.lists_per_batch or not self.tokens:
                texts = collate_lists(of_step).texts
                self.tokens.append(len(texts.input_ids))
                self.texts = max(self.texts, len(texts.lengths))

        self.activations: float | None = None
        self.most_activations: float | None = None
        self.operations: float | None = None
        self.seconds: float | None = None
        if self.parameters <= LARGEST:
            sequences = [sequence for item in drawn for sequence in item.sequences]
            self._try(ranker, sequences, data.pair_tokenizer.max_length, precision)

    def _try(
        self, ranker: Ranker, sequences: Sequence[np.ndarray], max_length: int, precision: str
    ) -> None:
        smaller, larger = (PackedBatch.from_sequences(list(sequences[:number])) for number in TRIED)
        few = try_forward(ranker, smaller, precision)
        more = try_forward(ranker, larger, precision)
        tokens = float(np.mean(self.tokens))
        per_token = (more.kept - few.kept) / max(1, more.tokens - few.tokens)
        constant = max(0.0, more.kept - per_token * more.tokens)
        self.activations = constant + per_token * tokens
        longest = PackedBatch.from_sequences([_lengthened(sequences[0], max_length)])
        per_text = max(0.0, try_forward(ranker, longest, precision).kept - constant)
        self.most_activations = constant + self.texts * per_text
        self.operations = 3 * more.operations / more.tokens * tokens
        if self.on_gpu:
            self.seconds = max(self.operations / GPU_RATE, LEAST_GPU_STEP)
        else:
            self.seconds = 3 * _forward_seconds(ranker, larger, precision) / more.tokens * tokens

    @property
    def steps(self) -> int:
        """Of all epochs, at most: a training may stop earlier."""
        return self.steps_per_epoch * self.epochs

    @property
    def state(self) -> int:
        """Bytes that are there all the time: weights and AdamW's two averages."""
        return self._bytes_of_weights + 2 * self._bytes_of_gradients

    @property
    def memory(self) -> float | None:
        """Bytes of a step of average length, at most."""
        if self.activations is None:
            return None
        return self.state + self._bytes_of_gradients + self.activations

    def lines(self) -> list[str]:
        """The estimate in sentences, each with what it rests on."""
        lines = [
            f"steps: {self.steps_per_epoch:,} an epoch ({self.lists:,} lists), "
            f"{self.steps:,} in {self.epochs} epochs at most; a step reads "
            f"{np.mean(self.tokens):,.0f} tokens in {self.texts} texts (mean of {len(self.tokens)} "
            f"that were drawn; the longest {max(self.tokens):,})"
        ]
        weights = (
            f"weights {_gigabytes(self._bytes_of_weights)} ({self.parameters:,}, of which "
            f"{self.trained:,} are trained), AdamW {_gigabytes(2 * self._bytes_of_gradients)}, "
            f"gradients {_gigabytes(self._bytes_of_gradients)}"
        )
        if self.activations is None or self.memory is None or self.most_activations is None:
            return [*lines, f"memory: {weights}; activations not tried, the ranker is too large"]
        most = self.memory - self.activations + self.most_activations
        beside = "; a GPU takes about 1 GB more for itself" if self.on_gpu else ""
        lines.append(
            f"memory: about {_gigabytes(self.memory)} of tensors in a step: {weights}, "
            f"activations {_gigabytes(self.activations)} (counted over {TRIED[1]} texts that were "
            f"read, in proportion to tokens); at most {_gigabytes(most)} if all texts were "
            f"as long as they may be{beside}"
        )
        assert self.seconds is not None
        assert self.operations is not None
        if self.on_gpu:
            rests = (
                f"{self.operations / 1e12:,.3g} million million operations a step at "
                f"{GPU_RATE / 1e12:.0f} million million a second, which is a guess: a sixth of an "
                f"A100's peak; at least {LEAST_GPU_STEP:g} s"
            )
        else:
            rests = f"3 times the forward pass over {TRIED[1]} texts on this machine"
        lines.append(
            f"time: very roughly {_duration(self.seconds * self.steps)} ({rests}), without "
            f"validation; step {TimedSteps.FIRST + TimedSteps.COUNT} says what steps really take"
        )
        return lines


class TimedSteps(Callback):
    """A callback that says after some steps how long the training will take.

        lightning.Trainer(callbacks=[TimedSteps()])

    The first steps, in which memory is allocated, do not count. On a GPU it says the largest
    memory so far too.
    """

    FIRST = 5
    """Steps that are not timed."""
    COUNT = 20
    """Steps that are timed."""

    def __init__(self) -> None:
        self._steps = 0
        self._begun = 0.0

    def on_train_batch_end(
        self, trainer: L.Trainer, module: L.LightningModule, outputs: Any, batch: Any, n: int
    ) -> None:
        """Time and say it once."""
        self._steps += 1
        if self._steps == self.FIRST:
            self._begun = time.perf_counter()
        elif self._steps == self.FIRST + self.COUNT and trainer.is_global_zero:
            seconds = (time.perf_counter() - self._begun) / self.COUNT
            left = trainer.estimated_stepping_batches - trainer.global_step
            memory = ""
            if module.device.type == "cuda":
                most = torch.cuda.max_memory_allocated(module.device)
                memory = f"; at most {_gigabytes(most)} of the GPU's memory so far"
            log.info(
                "a step takes %.3g s (mean of %d): about %s for the %s that are left, without "
                "validation%s",
                seconds,
                self.COUNT,
                _duration(seconds * left),
                f"{left:,.0f}",
                memory,
            )


def _format_of_products(precision: str) -> AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16) if "16" in precision else nullcontext()


def _forward_seconds(ranker: Ranker, batch: PackedBatch, precision: str) -> float:
    """Of a forward pass that keeps what the backward pass needs; the batch was read before."""
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), _format_of_products(precision):
        begun = time.perf_counter()
        ranker(batch)
        return time.perf_counter() - begun


def _lengthened(sequence: np.ndarray, length: int) -> np.ndarray:
    """A text of exactly so many tokens: its last tokens come again."""
    if len(sequence) >= length:
        return sequence[:length]
    # The last but one is the document's, whatever ends the text.
    more = np.full(length - len(sequence), sequence[-2], dtype=sequence.dtype)
    return np.concatenate([sequence[:-1], more, sequence[-1:]])


def _gigabytes(number: float) -> str:
    return f"{number / 1e9:.3g} GB" if number >= 1e8 else f"{number / 1e6:.3g} MB"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} seconds"
    if seconds < 6000:
        return f"{seconds / 60:.2g} minutes"
    if seconds < 100 * 3600:
        return f"{seconds / 3600:.2g} hours"
    return f"{seconds / 86400:,.2g} days"
