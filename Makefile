# Both of these set themselves up: `make demo` trains a model, `make test` tests barnraise. The rest: `make help`.
#
# PYTHON=python3.12   which Python to use (default: the first one that is 3.11 or newer)
# TORCH=cpu           which PyTorch build to install (cpu, cu126, cu130 ...; default: what the package index offers)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo wheel install test campaigns check lint types layers format intrude chaos histories bench bench-quick bench-miles gpu gpu-miles docs docs-site pictures coverage matrix clean

VENV := .venv
BENCH_VENV := .venv-bench
BIN := $(VENV)/bin
export PYTHON
unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of processes, which find compiled modules

TORCH_INDEX = $(if $(TORCH),--extra-index-url https://download.pytorch.org/whl/$(TORCH))
PIP_INSTALL = $(BIN)/python -m pip --disable-pip-version-check install --constraint constraints.txt
NUM_TEST_PROCESSES ?= 2

# Where tests write: in memory where that has room for it, since they wait for the disk for a quarter of their time.
ENOUGH_KILOBYTES := 16000000
TEST_TEMP ?= $(shell free=$$(df -kP /dev/shm 2>/dev/null | awk 'NR == 2 { print $$4 }'); \
	[ -w /dev/shm ] && [ "$${free:-0}" -gt $(ENOUGH_KILOBYTES) ] && echo /dev/shm || echo "$${TMPDIR:-/tmp}")
PYTEST := PYTEST_DEBUG_TEMPROOT=$(TEST_TEMP) $(BIN)/python -m pytest -n $(NUM_TEST_PROCESSES) --dist worksteal --durations 20

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime  ## set up, then train a SAT solver by imitation on four unequal workers (some minutes)
	$(BIN)/barnraise train examples/sat-neo.yaml
	@echo
	@echo "To have the barnraise command in this terminal: . $(BIN)/activate"

wheel: install  ## write the package to dist/, for hosts and guests to install with pip
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

install: $(VENV)/.dev  ## set up .venv with the development tools

test: install  ## set up, then run the tests (those over many seeds in short: campaigns)
	$(PYTEST)

campaigns: install  ## the long forms of tests: more seeds, each boundary of the journal, slow attacks (half an hour)
	$(PYTEST) -m campaign tests

check: lint types layers test campaigns  ## lint, types, layers, tests and campaigns

lint: install  ## ruff: lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install  ## mypy, strict
	$(BIN)/mypy

layers: install  ## import-linter: imports point downward, without cycles
	$(BIN)/lint-imports --no-cache

format: install  ## let ruff fix and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

intrude: install  ## attack a live controller with 360,000 frames, sybils and 10,000 intrusions, state machines with 5 million events (half an hour)
	$(BIN)/python -m tests.intrude

SEEDS ?= 10000
chaos: install  ## play SEEDS=10000 small clusters under random fault plans, with all that must hold checked (ten minutes)
	$(BIN)/python -m tests.chaos --seeds $(SEEDS) --processes $(NUM_TEST_PROCESSES)

HISTORIES ?= 10000
histories: install  ## play HISTORIES=10000 random histories of masked updates: the exact sum or a clean abort (ten minutes)
	$(BIN)/python -m tests.state_machine --histories $(HISTORIES) --processes $(NUM_TEST_PROCESSES)

BENCHMARKS = $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py))

bench: install  ## run the benchmarks, each prints its comparison (an hour; those over slow links: bench-miles; the demo's recipes and links: benchmarks/sat_search.py, demo_links.py)
	@set -e; for script in $(filter-out benchmarks/miles% benchmarks/reach.py benchmarks/gpu_miles.py benchmarks/sat_search.py benchmarks/demo_links.py,$(BENCHMARKS)); do \
		echo "== $$script"; $(BIN)/python $$script; \
	done

bench-quick: install  ## see that every benchmark runs, in small (twenty minutes)
	@printf '%s\n' $(BENCHMARKS) | xargs -P $(NUM_TEST_PROCESSES) -I SCRIPT sh -c ' \
		said=$$(timeout 600 $(BIN)/python SCRIPT --quick 2>&1); code=$$?; \
		printf "== SCRIPT\n%s\n" "$$said"; \
		[ $$code = 0 ] || { echo "SCRIPT ended with $$code"; exit 255; }'

bench-miles: install $(BENCH_VENV)/.bench  ## as root: codecs, transports, time to a loss, and DDP, DiLoCo, torchft, hivemind beside us
	$(BIN)/python benchmarks/codecs.py
	$(BIN)/python benchmarks/gradient.py
	$(BIN)/python benchmarks/transports.py
	$(BIN)/python benchmarks/miles.py --results runs/miles.jsonl --pictures runs/figures
	$(BIN)/python benchmarks/reach.py --results runs/reach.jsonl --pictures runs/figures
	$(BIN)/python benchmarks/miles_peers.py
	$(BIN)/python benchmarks/miles_race.py --results runs/race.jsonl --pictures runs/figures
	$(BIN)/python benchmarks/miles_joiner.py

gpu: install  ## what only a CUDA device can show, in nine minutes at most; skipped with the reason where there is none
	$(BIN)/python benchmarks/gpu.py

gpu-miles: install  ## on a CUDA device: time of four workers behind slow links to a lone one's loss; resumes, PART=NAME plays one part
	$(BIN)/python benchmarks/gpu_miles.py --results runs/gpu-miles.jsonl $(if $(PART),--part $(PART))

docs: install  ## write the generated pages under docs/
	$(BIN)/python -m barnraise.cli.reference

pictures: install  ## take the pictures of the page in the documentation, in Chromium
	mkdir -p docs/assets
	BARNRAISE_PICTURES=$(CURDIR)/docs/assets $(BIN)/python -m pytest -q tests/e2e/test_page.py

docs-site: $(VENV)/.docs  ## build the documentation site in build/site; broken links fail, nothing is fetched
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --site-dir build/site

coverage: $(VENV)/.coverage  ## print the share of lines that the unit and property tests run, by package (ten minutes)
	$(BIN)/python -m pytest -q -n $(NUM_TEST_PROCESSES) --dist worksteal --cov=barnraise --cov-branch --cov-report= $(COVERED)
	$(BIN)/python scripts/coverage-by-package

COVERED ?= tests/unit tests/properties tests/state_machine tests/protocol src

MATRIX ?= python3.11 python3.12 python3.13
matrix:  ## install and run the unit tests with each Python of MATRIX="python3.11 python3.12 python3.13" that is here
	@set -e; for python in $(MATRIX); do \
		if "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
			venv=build/$$(basename $$python); \
			$(MAKE) install VENV=$$venv PYTHON=$$python; \
			$$venv/bin/python -m pytest -q -n $(NUM_TEST_PROCESSES) tests/unit tests/protocol; \
		else echo "$$python is not here: skipped"; fi; \
	done

clean:  ## remove what the other targets made, except runs/
	rm -rf $(VENV) $(BENCH_VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The two stamps make a second call instant; a change of what is installed makes them stale. The build backend goes in
# first, under the constraints too, because pip does not apply them to the environments it builds packages in.
$(VENV)/.runtime: pyproject.toml constraints.txt scripts/make-venv
	@sh scripts/make-venv $(VENV)
	$(PIP_INSTALL) hatchling editables
	$(PIP_INSTALL) $(TORCH_INDEX) --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(PIP_INSTALL) --no-build-isolation --editable '.[dev]'
	@touch $@

$(VENV)/.coverage: $(VENV)/.dev
	$(PIP_INSTALL) --no-build-isolation --editable '.[coverage]'
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP_INSTALL) --no-build-isolation --editable '.[docs]'
	@touch $@

# The peers' own environment: what they pin is no business of barnraise's. Some of what they need comes without wheels.
BENCH_INSTALL = $(subst constraints.txt,constraints-bench.txt,$(PIP_INSTALL))
$(BENCH_VENV)/.bench: BIN := $(BENCH_VENV)/bin
$(BENCH_VENV)/.bench: pyproject.toml constraints-bench.txt scripts/make-venv
	@sh scripts/make-venv $(BENCH_VENV)
	$(BENCH_INSTALL) hatchling editables setuptools
	$(BENCH_INSTALL) $(TORCH_INDEX) --no-build-isolation --editable '.[bench]'
	@touch $@
