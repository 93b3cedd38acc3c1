#!/usr/bin/env bash
# All that waits for a machine with a data-centre GPU, one step after the other: bash benchmarks/gpu.sh
#
# Every step leaves benchmarks/results/gpu-STEP.json with device, commit and seconds. Start it again after anything: a
# step whose record is there, of the same commit, is not run again. A step that fails is named, and the others run.
#
#   DEVICE=cuda:1 bash benchmarks/gpu.sh            another GPU (the training run takes the first)
#   DEVICE=cpu QUICK=1 bash benchmarks/gpu.sh       a dry run, small
#   WEIGHTS=FOLDER bash benchmarks/gpu.sh           the encoder of recipe=minilm from a folder
#
# A copy without .git: COMMIT=HASH names the commit that it is of.
#
# The training run needs BACKPACK_RANK_DATA (docs/train-a-ranker.md). PYTHON, RESULTS, OUTPUT:
# interpreter, folder of records, folder of the training run.
set -uo pipefail
cd "$(dirname "$0")/.."
DEVICE=${DEVICE:-cuda}
PYTHON=${PYTHON:-python}
RESULTS=${RESULTS:-benchmarks/results}
failed=()

step() {
  local name=$1
  shift
  "$PYTHON" -m benchmarks.gpu_step --name "$name" --device "$DEVICE" --results "$RESULTS" -- "$@" || failed+=("$name")
}

bench() {
  local name=$1 module=$2
  shift 2
  step "$name" "$PYTHON" -m "benchmarks.$module" ${QUICK:+--quick} --device "$DEVICE" --output '{output}' "$@"
}

if [[ $DEVICE == cuda* ]]; then
  "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available() and "torch sees no GPU: DEVICE=cpu QUICK=1 is a dry run")' || exit 2
  trainer=gpu
else
  trainer=cpu
fi
run=(recipe=minilm trainer=$trainer trainer.precision=bf16-mixed "output=${OUTPUT:-outputs/gpu}")
[[ -z ${WEIGHTS:-} ]] || run+=("model.ranker.name=$WEIGHTS")
parts=() one=(--backbones tiny) many=(--backbones tiny) sizes=() texts=8192 tests=(tests)
if [[ -n ${QUICK:-} ]]; then
  parts=(--parts scoring)
  sizes=(--texts 10 --repeats 1 --no-compile)
  texts=16
  tests=(tests/models/test_pooled_layer.py)
else
  # A few batches: a GPU is not busy with less.
  parts=(--documents 512 --batch 64 --sweep-documents 4096 --parts scoring sweep training)
  one=(--backbones bert-base gpt2 --goal 0.95 --documents 4096)
  many=(--backbones qwen3-0.6b --goal 0.95 --documents 2048)
fi
encoder=()
[[ -z ${WEIGHTS:-} ]] || encoder=(--encoder "$WEIGHTS" --texts "$texts")

# The tests that need a GPU: first which they are.
"$PYTHON" -m pytest -m cuda --collect-only -q "${tests[@]}"
[[ $DEVICE == cpu ]] || step tests "$PYTHON" -m pytest -m cuda "${tests[@]}"
bench scoring scoring "${parts[@]}"
# Goal: the Backpack trains and scores at least .95 of the plain cross-encoder's texts per second.
bench backbones backbones --dtype bfloat16 "${one[@]}"
bench decoder backbones --dtype bfloat16 "${many[@]}"
# Goal: twice the pairs per second that sentence-transformers publishes; hours of the paper's training.
bench pairs pairs
[[ $DEVICE == cpu ]] || bench pairs-compiled pairs --compile
# Goal: exact search at the speed of one product and topk; texts that an encoder reads in a second.
bench retrieval retrieval "${encoder[@]}"
# Goal: matrix products at .7 or more of the rate that they reach alone; with and without torch.compile.
bench utilisation utilisation "${sizes[@]}"
step training "$PYTHON" train.py "${run[@]}"

"$PYTHON" -m benchmarks.gpu_step --summary --results "$RESULTS"
if ((${#failed[@]})); then
  echo "failed: ${failed[*]}; start again to run these alone" >&2
  exit 1
fi
