# hookline: `make demo` trains the bundled digits run, `make test` checks what a user needs. Both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_READY := $(VENV)/.demo-ready
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Tests run side by side, and small nets gain nothing from more threads.
TEST_ENV := OMP_NUM_THREADS=1
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest -n 2

# The number of runs that `make faults` kills.
N ?= 20
# How long `make fuzz-configs` and `make fuzz-checkpoints` make inputs, and from which seed.
SECONDS ?= 60
SEED ?= 0

.PHONY: help setup demo lint test quick test-long test-all docs faults fuzz fuzz-configs fuzz-checkpoints bench clean

help:
	@echo "make demo       install what the demo needs, and train the bundled digits run"
	@echo "make test       install the rest, and check style, types and behavior (under six minutes on two cores)"
	@echo "make quick      unit tests of the core (under one minute)"
	@echo "make test-long  the rest: long suites of the dialects, and tests that start processes"
	@echo "make test-all   make test and make test-long"
	@echo "make faults     measure what bad inputs and $(N) kills do (N=200 for more)"
	@echo "make fuzz       random configs and checkpoints, $(SECONDS) s each (SECONDS=600 for more, SEED=1 for others);"
	@echo "                make fuzz-configs and make fuzz-checkpoints run one of them"
	@echo "make docs       generate the page about the built-in hooks and the stub for editors"
	@echo "make bench      cost per step against a bare loop, of a save against torch.save, of recording, of dialects, of DDP"
	@echo "make clean      remove the environment and the demo's run"

$(BIN)/python:
	@echo "== creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(DEMO_READY): pyproject.toml constraints.txt | $(BIN)/python
	@echo "== installing torch and hookline into $(VENV): the first time this takes about a minute"
	@$(PIP) -e .
	@touch $(DEMO_READY)

$(READY): pyproject.toml constraints.txt | $(DEMO_READY)
	@echo "== installing what the tests need into $(VENV): the first time this takes about a minute"
	@$(PIP) -e '.[dev]'
	@touch $(READY)

setup: $(READY)

demo: $(DEMO_READY)
	@echo "== training the bundled digits run into runs/digits"
	@$(BIN)/hookline train

lint: setup
	@echo "== ruff: style and layout"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== mypy --strict: types"
	@$(BIN)/mypy

test: lint
	@echo "== pytest: behavior (the long suites of the dialects and of processes: make test-long)"
	@$(PYTEST) -m "not long"

quick: setup
	@$(PYTEST) -m "not processes and not long" tests/common tests/plan tests/record tests/checkpoint tests/engine tests/config

test-long: setup
	@echo "== pytest: the long suites"
	@$(PYTEST) -m long

test-all: test test-long

docs: setup
	@$(BIN)/hookline hooks --markdown > docs/built-in-hooks.md
	@$(BIN)/python -c "from hookline.cli import documentation as d; print(d.stub(), end='')" > src/hookline/hooks/__init__.pyi

faults: setup
	@$(TEST_ENV) $(BIN)/python -m tests.faults.figures --kills $(N)

fuzz: fuzz-configs fuzz-checkpoints

fuzz-configs fuzz-checkpoints: setup
	@$(TEST_ENV) $(BIN)/python -m tests.faults.fuzz $(@:fuzz-%=%) --seconds $(SECONDS) --seed $(SEED)

bench: setup
	@$(BIN)/python benchmarks/overhead.py
	@$(BIN)/python benchmarks/checkpoint.py
	@$(BIN)/python benchmarks/recording.py
	@$(BIN)/python benchmarks/dialects.py
	@$(BIN)/python benchmarks/distributed.py

clean:
	rm -rf $(VENV) runs/digits
