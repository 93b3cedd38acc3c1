"""Number formats: the one that is said, what auto takes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from backpack_rank.models.number_formats import computes_in_bf16, resolved_format
from backpack_rank.reranking.scorer import Scorer
from backpack_rank.reranking.text_scorer import ScoringSettings

CPU = torch.device("cpu")


def test_the_format_that_is_said_is_the_one_computed_in(make_backpack, pair_tokenizer):
    ranker = make_backpack()
    first = Scorer(ranker, pair_tokenizer, ScoringSettings(device="cpu"))
    assert first.number_format == "float32 on cpu"
    Scorer(ranker, pair_tokenizer, ScoringSettings(device="cpu", dtype="bfloat16"))
    assert first.number_format == "bfloat16 on cpu", "both have the same ranker"


def test_auto_takes_what_the_processor_computes_in():
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if computes_in_bf16(True) else ""
    assert resolved_format("auto", CPU, "scoring.dtype") == ("bfloat16" if flags else "float32")
    assert not flags or "avx512_bf16" in flags or "amx_bf16" in flags
    assert resolved_format("float16", CPU, "scoring.dtype") == "float16"


@pytest.mark.parametrize("name", ["int4", "int8"])
def test_eight_bits_and_fewer_are_refused(name):
    with pytest.raises(
        ValueError,
        match=rf"scoring\.dtype={name}: use one of float32, bfloat16, float16, auto",
    ):
        resolved_format(name, CPU, "scoring.dtype")
