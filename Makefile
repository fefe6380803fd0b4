# Every target does its own set-up: `make demo` on a fresh machine is one command.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test check format bench bench-wire chaos fuzz compatibility clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: $(STAMP) ## virtual environment in .venv with everything the other targets need

$(STAMP): pyproject.toml src/prefold/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "prefold needs Python 3.11 or newer; say: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[demo]' --group test --group lint
	@touch $(STAMP)

demo: $(STAMP) ## the main job on two real engines; make demo ARGS="--json FILE" passes arguments
	@$(BIN)/prefold demo $(ARGS)

test: $(STAMP) ## all tests, on real engines where this machine can run them
	$(BIN)/pytest $(ARGS)

check: $(STAMP) ## lint, format, types, architecture: changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/unit/test_architecture.py

format: $(STAMP) ## apply the format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## the benchmarks of tests/benchmark, one after the other
	$(BIN)/python tests/benchmark/bench_encode.py
	$(BIN)/python tests/benchmark/bench_match.py
	$(BIN)/python tests/benchmark/bench_proxy.py

bench-wire: $(STAMP) ## what the proxy costs beside its peers; make bench-wire ARGS="--quick"
	$(BIN)/python -m tests.benchmark.wire $(ARGS)

chaos: $(STAMP) ## backends that are killed, stopped and cut off under load, for a minute
	$(BIN)/python -m tests.chaos $(ARGS)

fuzz: $(STAMP) ## 100,000 generated requests and streams
	$(BIN)/python -m tests.fuzz $(ARGS)

compatibility: $(STAMP) ## docs/compatibility.md, from a run of the wire cases
	$(BIN)/python -m tests.wire.compatibility $(ARGS)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
