"""Sentence-transformers' ``CrossEncoder`` in a process of its own, which :mod:`benchmarks.peers`
asks for scores.

Its backends need other versions of transformers than this package, so the process may run in
another environment, and nothing of this package is imported. Requests and answers are lines of JSON
on the standard streams:

    {"make": NAME, "variant": {...}, "folder": PATH, "threads": 1, "pairs": [[query, document],
    ...]} {"score": NAME, "query": TEXT, "documents": [...]}
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def main() -> None:
    """Answer until the input ends. What a library prints goes to the standard error."""
    made: dict[str, Any] = {}
    answers = sys.stdout
    for line in sys.stdin:
        request = json.loads(line)
        with redirect_stdout(sys.stderr):
            try:
                answer = _make(request, made) if "make" in request else _score(request, made)
            except (
                Exception
            ) as error:  # whatever a library raises is the reason for leaving a variant out
                answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        print(json.dumps(answer), file=answers, flush=True)


def _make(request: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    import sentence_transformers
    import torch
    import transformers

    torch.set_num_threads(request["threads"])
    variant, folder = request["variant"], Path(request["folder"])
    found = {
        "sentence-transformers": sentence_transformers,
        "torch": torch,
        "transformers": transformers,
    }
    versions = {name: module.__version__ for name, module in found.items()}
    make = {"torch": _torch, "onnx": _onnx, "openvino": _openvino}[variant["backend"]]
    made[request["make"]] = make(variant["dtype"], folder, request, versions)
    return {"versions": versions}


def _score(request: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    """Raw logits from texts, with the seconds of processor time and of the clock that they took."""
    import torch

    pairs = [(request["query"], document) for document in request["documents"]]
    clock, processor = time.perf_counter(), time.process_time()
    scores = made[request["score"]].predict(pairs, activation_fn=torch.nn.Identity())
    seconds = time.process_time() - processor
    return {"scores": scores.tolist(), "seconds": seconds, "clock": time.perf_counter() - clock}


def _encoder(folder: Path, **options: Any) -> Any:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu", num_labels=1, **options)


def _torch(dtype: str, folder: Path, request: dict[str, Any], versions: dict[str, str]) -> Any:
    import torch

    model = _encoder(folder, model_kwargs={"dtype": getattr(torch, dtype)})
    assert next(model.parameters()).dtype == getattr(torch, dtype)
    return model


def _onnx(dtype: str, folder: Path, request: dict[str, Any], versions: dict[str, str]) -> Any:
    import onnxruntime
    from sentence_transformers import export_dynamic_quantized_onnx_model

    versions["onnxruntime"] = onnxruntime.__version__
    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads = request["threads"]
    options: dict[str, Any] = {"session_options": session, "provider": "CPUExecutionProvider"}
    if not (folder / "onnx" / "model.onnx").is_file():
        _encoder(folder, backend="onnx", model_kwargs=options).save_pretrained(str(folder))
    file = "onnx/model.onnx"
    if dtype == "int8":
        plain = _encoder(folder, backend="onnx", model_kwargs=options | {"file_name": file})
        export_dynamic_quantized_onnx_model(plain, "avx512_vnni", str(folder))
        file = "onnx/model_qint8_avx512_vnni.onnx"
    return _encoder(folder, backend="onnx", model_kwargs=options | {"file_name": file})


def _openvino(dtype: str, folder: Path, request: dict[str, Any], versions: dict[str, str]) -> Any:
    import openvino

    versions["openvino"] = openvino.__version__
    # Without a hint OpenVINO computes in bfloat16 wherever the processor can.
    hint = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}[dtype]
    settings = {
        "INFERENCE_NUM_THREADS": request["threads"],
        "INFERENCE_PRECISION_HINT": hint,
        "NUM_STREAMS": "1",
    }
    options: dict[str, Any] = {"ov_config": settings}
    if not (folder / "openvino" / "openvino_model.xml").is_file():
        _encoder(folder, backend="openvino", model_kwargs=options).save_pretrained(str(folder))
    file = "openvino/openvino_model.xml"
    if dtype == "int8":
        file = "openvino/openvino_model_qint8_quantized.xml"
        _quantise(
            _encoder(folder, backend="openvino", model_kwargs=options),
            folder / file,
            request["pairs"],
        )
    return _encoder(folder, backend="openvino", model_kwargs=options | {"file_name": file})


def _quantise(model: Any, file: Path, pairs: list[list[str]]) -> None:
    """The static quantisation of ``export_static_quantized_openvino_model``, calibrated on given
    pairs of texts.
    """
    import nncf
    import openvino

    network = model.model.model if hasattr(model, "model") else model[0].model.model
    names = {name for port in network.inputs for name in port.get_names()}
    read = [model.tokenizer([pair], truncation=True, return_tensors="np") for pair in pairs]
    inputs = [{name: values for name, values in one.items() if name in names} for one in read]
    quantised = nncf.quantize(
        network,
        nncf.Dataset(inputs),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(inputs),
    )
    openvino.save_model(quantised, file)


if __name__ == "__main__":
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    main()
