# make run: set up, train on the synthetic collection, sweep alpha, show the result.
# make serve: set up, answer rerank requests with the ranker of make run, or with RANKER=FOLDER.
# make test: set up, the quick tests.   make test-all: those that take a second or more, or need a browser, a wheel, other
# libraries or several processes, and the benchmarks.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
INTEGRATIONS := $(VENV)/.integrations
# Images of containers often forbid Python to keep what it compiles. Each process would compile the package anew, and a run of
# the tests starts hundreds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run serve test test-all test-oldest lint docs wheel format clean

run: $(STAMP)
	$(BIN)/python train.py
	$(BIN)/python evaluate.py -m policy=lowest_senses,uniform,renditions alpha=1,0.5,0

serve: $(STAMP)
	$(BIN)/backpack-rank serve $(RANKER)

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile
	@echo "Left out: what takes a second or more, needs a browser, a wheel, other libraries or several processes, and the benchmarks: make test-all."

# Those on a GPU run alone, where there is one: they measure its memory.
test-all: $(INTEGRATIONS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile -m "browser or packaging or processes or slow or benchmarks"
	$(if $(shell command -v nvidia-smi),$(BIN)/python -m pytest -m cuda)

# The core tests with the oldest releases of all dependencies: make test-oldest PYTHON=python3.10
OLDEST := .venv-oldest
CORE_TESTS := tests/test_cli.py tests/data/test_sources.py tests/data/test_irds.py tests/data/test_bm25_index.py \
  tests/models/test_backpack.py tests/models/test_attribute_senses.py tests/senses/test_policies.py \
  tests/evaluation/test_effectiveness.py tests/evaluation/test_fairness_measures.py tests/end_to_end/test_main_path.py

test-oldest: $(OLDEST)/.installed
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -m "not (browser or packaging or processes or benchmarks or cuda)" $(CORE_TESTS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site of the documentation, in outputs/docs.
docs: $(INTEGRATIONS)
	$(BIN)/python -m sphinx -W --keep-going -E -q docs outputs/docs

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# torch comes first and alone, so that a CPU build that is already on the machine is taken when pip knows of one. Of the 20,000
# modules that come in, few are ever imported: Python compiles those, where pip would take minutes for all of them.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

$(OLDEST)/.installed: pyproject.toml constraints/oldest.txt
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --no-compile --constraint constraints/oldest.txt torch
	$(OLDEST)/bin/python -m pip install --quiet --no-compile --constraint constraints/oldest.txt --editable . pytest hypothesis psutil httpx tensorboard
	touch $@

$(INTEGRATIONS): $(STAMP)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[integrations]'
	touch $(INTEGRATIONS)

# The package in dist/, for machines without a checkout: docs/begin.md.
wheel: $(STAMP)
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) $(OLDEST) outputs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

# make demo: set up, serve the ranker of make run, or RANKER=FOLDER, open its page.
.PHONY: demo
demo: $(STAMP)
	@(for second in $$(seq 60); do sleep 1; $(BIN)/python -c 'import urllib.request as web; web.urlopen("http://127.0.0.1:8000/", timeout=5)' \
	  2>/dev/null && exec $(BIN)/python -m webbrowser http://127.0.0.1:8000/; done) &
	$(BIN)/backpack-rank serve $(RANKER) --port 8000
