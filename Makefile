# hookline: `make demo` trains the bundled digits run, `make test` checks everything. Both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The tests run side by side, and small nets gain nothing from more threads.
TEST_ENV := OMP_NUM_THREADS=1

# How many runs `make faults` kills.
N ?= 20

.PHONY: help setup demo test docs faults bench clean

help:
	@echo "make demo    set up, and train the bundled digits run"
	@echo "make test    set up, and run all checks: ruff, mypy --strict, pytest"
	@echo "make faults  set up, and measure what bad inputs and $(N) kills do (N=200 for more)"
	@echo "make docs    make the page about the built-in hooks from the code"
	@echo "make bench   what the engine costs a step against a bare loop, a save against torch.save, recording, dialects"
	@echo "make clean   remove the environment and the demo's run"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@echo "== setting up $(VENV): the first time this installs torch and takes a minute or two"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

demo: setup
	@echo "== training the bundled digits run into runs/digits"
	@$(BIN)/hookline train

test: setup
	@echo "== ruff: style and layout"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== mypy --strict: types"
	@$(BIN)/mypy
	@echo "== pytest: behaviour"
	@$(TEST_ENV) $(BIN)/python -m pytest -n 2

docs: setup
	@$(BIN)/hookline hooks --markdown > docs/built-in-hooks.md
	@$(BIN)/python -c "from hookline.cli import documentation as d; print(d.stub(), end='')" > src/hookline/hooks/__init__.pyi

faults: setup
	@$(TEST_ENV) $(BIN)/python -m tests.faults.figures --kills $(N)

bench: setup
	@$(BIN)/python benchmarks/overhead.py
	@$(BIN)/python benchmarks/checkpoint.py
	@$(BIN)/python benchmarks/recording.py
	@$(BIN)/python benchmarks/dialects.py

clean:
	rm -rf $(VENV) runs/digits
