# hookline: `make demo` trains the bundled digits run, `make test` checks what a user needs. Both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OPENMMLAB := .venv-openmmlab
DEMO_READY := $(VENV)/.demo-ready
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The other engines have an environment of their own, because nothing else needs them.
PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready
PEERS_PIP := $(PEERS)/$(PIP:$(VENV)/%=%)

# Tests save thousands of small files, each of which waits for the disk. A file system in memory does not wait.
IN_MEMORY := $(shell df --output=avail -k /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4000000 { print "TMPDIR=/dev/shm" }')
# Tests run side by side, and small nets gain nothing from more threads.
TEST_ENV := OMP_NUM_THREADS=1
PYTEST := $(TEST_ENV) $(IN_MEMORY) $(BIN)/python -m pytest -n 2

# The number of runs that `make faults` kills.
N ?= 20
# The checkout or sdist whose tests `make test-originals` runs.
SOURCE ?=
# How long `make fuzz-configs` and `make fuzz-checkpoints` make inputs, and from which seed.
SECONDS ?= 60
SEED ?= 0

.PHONY: help setup browser demo lint behavior test quick test-long test-distributed test-exhaustive test-all test-originals test-openmmlab docs site package faults fuzz fuzz-configs fuzz-checkpoints bench bench-watch bench-peers bench-docs clean

help:
	@echo "make demo       install what the demo needs, and train the bundled digits run"
	@echo "make test       install the rest, and check style, types and behavior (under six minutes on two cores)"
	@echo "make quick      unit tests of the core (under one minute)"
	@echo "make test-long  the rest: long suites of the dialects, and tests that start processes"
	@echo "make test-distributed  several processes: DDP, FSDP, accelerate, launchers, signals, restarts, ranks that fail"
	@echo "make test-exhaustive  the breadth that takes longer still: every combination of kills, forks, restarts and random inputs"
	@echo "make test-all   make test and all the suites after it"
	@echo "make browser    install Chromium, which the tests of pages need, if it is missing"
	@echo "make test-originals SOURCE=...  the test suite of MMEngine or RoboOrchardLab, from a checkout or an sdist, through"
	@echo "                its dialect"
	@echo "make test-openmmlab   real projects (mmpretrain, mmdet, mmpose, ...) in $(OPENMMLAB), and all their configs"
	@echo "make faults     measure what bad inputs and $(N) kills do (N=200 for more)"
	@echo "make fuzz       random configs and checkpoints, $(SECONDS) s each (SECONDS=600 for more, SEED=1 for others);"
	@echo "                make fuzz-configs and make fuzz-checkpoints run one of them"
	@echo "make docs       generate the page about the built-in hooks, the API pages and the stub for editors"
	@echo "make site       build the documentation into site/, and check its links"
	@echo "make package    build the wheel and the sdist, install them into an empty environment, and train there"
	@echo "make bench      cost per step against a bare loop, of a save against torch.save, of recording, of a config, of DDP, and"
	@echo "                counted instructions of loops, loaders, evaluations and dialects (needs valgrind)"
	@echo "make bench-watch  what 20 open pages of hookline watch cost a training (about two minutes)"
	@echo "make bench-peers  the same training in six other engines, in an environment of its own (about six minutes)"
	@echo "make bench-docs   measure what docs/performance.md and the README show, and write it there"
	@echo "make clean      remove the environment, the demo's run, the site and the packages"

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

browser:
	@.ci/browser

demo: $(DEMO_READY)
	@echo "== training the bundled digits run into runs/digits"
	@$(BIN)/hookline train

lint: setup
	@echo "== ruff: style and layout"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== mypy --strict: types"
	@$(BIN)/mypy

# Types are checked on one core while the tests begin on the other.
test: setup browser
	@$(MAKE) --no-print-directory -j2 lint behavior

behavior: setup browser
	@echo "== pytest: behavior (the long suites of the dialects and of processes: make test-long)"
	@$(PYTEST) -m "not long and not distributed and not exhaustive"

quick: setup
	@$(PYTEST) -m "not processes and not long and not distributed and not exhaustive" tests/common tests/plan tests/record tests/checkpoint tests/engine tests/config

test-long: setup browser
	@echo "== pytest: the long suites"
	@$(PYTEST) -m "long and not distributed and not exhaustive"

test-distributed: setup browser
	@echo "== pytest: several processes"
	@$(PYTEST) -m "distributed and not exhaustive"

test-exhaustive: setup browser
	@echo "== pytest: more of the same"
	@$(PYTEST) -m exhaustive

test-all: test test-long test-distributed test-exhaustive

test-originals: setup
	@$(PIP) -e '.[dev,originals]'
	@$(TEST_ENV) $(BIN)/python -m tests.dialects.originals $(SOURCE) --markdown

test-openmmlab: setup
	@echo "== the OpenMMLab projects, in an environment of their own: $(OPENMMLAB)"
	@$(BIN)/python -m tests.openmmlab.environment $(OPENMMLAB)
	@$(TEST_ENV) $(BIN)/python -m tests.openmmlab.run --environment $(OPENMMLAB)

docs: setup
	@$(BIN)/hookline hooks --markdown > docs/built-in-hooks.md
	@$(BIN)/python -c "from hookline.cli import documentation as d; print(d.stub(), end='')" > src/hookline/hooks/__init__.pyi
	@$(BIN)/python -m website.reference
	@$(BIN)/python -m tests.integrations.hosts

site: setup
	@echo "== mkdocs: the documentation as a site"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@$(BIN)/python -m website.check site

package: setup
	@.ci/package $(BIN)/python

faults: setup
	@$(TEST_ENV) $(BIN)/python -m tests.faults.figures --kills $(N)

fuzz: fuzz-configs fuzz-checkpoints

fuzz-configs fuzz-checkpoints: setup
	@$(TEST_ENV) $(BIN)/python -m tests.faults.fuzz $(@:fuzz-%=%) --seconds $(SECONDS) --seed $(SEED)

bench: setup
	@$(BIN)/python benchmarks/overhead.py
	@$(BIN)/python benchmarks/checkpoint.py
	@$(BIN)/python benchmarks/recording.py
	@$(BIN)/python benchmarks/from_config.py
	@$(BIN)/python benchmarks/distributed.py
	@$(BIN)/python benchmarks/instructions.py

bench-watch: setup
	@$(BIN)/python benchmarks/watching.py

$(PEERS_READY): benchmarks/peers.txt pyproject.toml constraints.txt
	@echo "== installing hookline and the other engines into $(PEERS): the first time this takes some minutes"
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@$(PEERS_PIP) -e '.[tensorboard]'
	@sed 's/#.*//; /^ *$$/d' benchmarks/peers.txt | while read -r peer; do \
		$(PEERS_PIP) "$$peer" < /dev/null || echo "== $$peer cannot be installed, and will be listed as failed"; done
	@touch $(PEERS_READY)

bench-peers: $(PEERS_READY)
	@$(PEERS)/bin/python benchmarks/peers.py

# On a quiet machine: the figures are published.
bench-docs: setup $(PEERS_READY)
	@$(BIN)/python benchmarks/startup.py --write
	@$(BIN)/python benchmarks/from_config.py --write
	@$(BIN)/python benchmarks/checkpoint.py --write
	@$(BIN)/python benchmarks/growth.py --write
	@$(PEERS)/bin/python benchmarks/instructions.py --write
	@$(PEERS)/bin/python benchmarks/peers.py --write

clean:
	rm -rf $(VENV) $(PEERS) $(OPENMMLAB) runs/digits site dist
