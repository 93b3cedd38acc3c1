"""Which attention kernels a job calls, as torch's profiler sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True)
class AttentionKernels:
    """Operators of attention that ran, and whether one is torch's variable-length flash attention."""

    operators: tuple[str, ...]
    variable_length: bool

    @property
    def text(self) -> str:
        """One sentence for the terminal."""
        form = (
            "variable-length flash attention in use"
            if self.variable_length
            else "no variable-length form"
        )
        return f"{form} ({', '.join(self.operators)})"


def attention_kernels(job: Callable[[], object], device: str) -> AttentionKernels:
    """Run the job once under the profiler."""
    activities = [ProfilerActivity.CPU]
    if device.startswith("cuda"):
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        job()
    names = {
        event.key
        for event in profiler.key_averages()
        if "attention" in event.key or "attn" in event.key
    }
    return AttentionKernels(
        tuple(sorted(names)), any("varlen" in name or "var_len" in name for name in names)
    )
