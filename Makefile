# Coterie. `make` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PROTOS := $(shell find protos -name '*.proto')
# Keep bytecode beside the sources; otherwise each of the six processes compiles everything at every start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

# Packages of the platform, devices and demos. One process compiles the bytecode, so that services starting together do not.
$(RUNS): pyproject.toml constraints.txt clients/coterie/pyproject.toml clients/cli/pyproject.toml
	@echo "installing what the platform needs, once: about a minute, most of it torch …"
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Coterie needs Python 3.11 or newer: make PYTHON=python3.11"'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --no-compile -e 'clients/coterie[torch,demo]' -e clients/cli -e .
	@$(BIN)/python -c 'import coterie.learning.torch_learner; [__import__(f"services.{name}.app") for name in ("trust", "topology", "pricing", "aggregation", "gateway")]'
	@touch $(RUNS)

# Further packages of tests, checks, the lab and drawings; compile the planners.
$(STAMP): $(RUNS) clients/lab/pyproject.toml
	@echo "installing what tests, checks and the lab need, once …"
	$(PIP) -e 'clients/coterie[torch,demo]' -e 'clients/cli[drawing]' -e '.[dev,docs]' -e 'clients/lab[ray]'
	# An oracle of the tests. Its demos need a torchvision that does not load beside a torch without CUDA.
	$(PIP) --no-deps byzfl
	$(BIN)/python -m services.topology warm
	touch $(STAMP)

.PHONY: install
install: $(STAMP) ## make the virtual environment with pinned dependencies, those of tests and the lab included

.PHONY: protos
protos: $(STAMP) ## generate Python from the protobuf files
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python -m grpc_tools.protoc -I protos --python_out=protos --mypy_out=quiet:protos \
		--grpc_python_out=protos --mypy_grpc_out=quiet:protos $(PROTOS)

.PHONY: migrations
migrations: $(STAMP) ## write the initial revision of every service from its tables (until the first release only)
	$(BIN)/python deploy/make_migrations.py

.PHONY: check
check: $(STAMP) ## lint, strict types, generated protobuf code up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	deploy/check-protos $(BIN)

# One worker more than cores, because tests partly wait for the disk and for child processes.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --durations=15

.PHONY: test
test: $(STAMP) ## the tests of every change (minutes); real processes, real PostgreSQL
	$(PYTEST) --dist worksteal -m 'not full and not slow'

.PHONY: test-full
test-full: $(STAMP) ## platforms, browser, demos, documentation's commands, SDK in an empty environment, chaos
	# Files stay whole, because the tests of a file share a platform.
	$(PYTEST) --dist loadfile --no-loadscope-reorder -m 'full and not slow'

.PHONY: test-all
test-all: test test-full ## `make test`, then `make test-full`

.PHONY: test-slow
test-slow: $(STAMP) ## tests that take minutes each, and more examples of every property (nightly)
	$(BIN)/python -m pytest -q -m slow
	HYPOTHESIS_PROFILE=thorough $(PYTEST) --dist worksteal tests/unit tests/golden -m 'not full and not slow'

.PHONY: chaos
chaos: $(STAMP) ## every preset under faults: kills, stops, clocks, networks, disk, database (ten minutes; CHAOS_SEED=N repeats one)
	$(BIN)/python -m pytest -q -s -m slow tests/chaos

.PHONY: demo
demo: $(RUNS) ## start a platform, train 12 devices together, show the results
	$(BIN)/coterie demo

.PHONY: up
up: $(RUNS) ## start the whole platform on this machine (Ctrl-C stops it)
	$(BIN)/coterie up

.PHONY: bench
bench: $(STAMP) ## run the benchmarks; prints figures and ratios
	$(BIN)/python -m bench

.PHONY: bench-lab
bench-lab: $(STAMP) ## compare the lab with pfl, Flower and a plain torch loop; creates their environments once
	$(BIN)/python bench/lab.py
	$(BIN)/python bench/lab_scale.py

.PHONY: data
data: $(STAMP) ## download and verify the experiments' data sets into data/; lists the manual ones
	$(BIN)/lab data --fetch data

.PHONY: lab
lab: $(STAMP) ## the papers' experiments, quick versions, on data/ or COTERIE_DATA; writes docs/results/lab-*.md
	# What is missing or failed is named, shown on the pages and in the exit code; the other experiments go on.
	$(BIN)/lab run all --data $${COTERIE_DATA:-data}; ran=$$?; $(BIN)/lab report all && exit $$ran

.PHONY: compose-up
compose-up: ## start the platform with Docker Compose on PostgreSQL
	deploy/draw-passwords
	COTERIE_COMMIT=$$(git rev-parse --short=7 HEAD 2>/dev/null) docker compose up -d --build

.PHONY: compose-test
compose-test: ## build and run docker-compose.yml, kill a service, check that a task finishes
	deploy/compose-test $(ENGINE)

.PHONY: watch-test
watch-test: ## run docker-compose.yml with the observability overlay: Prometheus scrapes every service (minutes)
	deploy/watch-test $(ENGINE)

.PHONY: swarm-test
swarm-test: $(STAMP) ## deploy the compose file on a Docker Swarm of one node, replace and kill containers under a task (minutes)
	deploy/swarm-test $(ENGINE)

.PHONY: docs
docs: $(STAMP) ## build the documentation into site/ (open with: python -m http.server -d site)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean

.PHONY: dist
dist: $(STAMP) ## build wheels and a source archive of the last commit into dist/
	deploy/dist $(BIN)/python

.PHONY: clean
clean: ## remove the virtual environment and everything generated
	rm -rf $(VENV) .coterie .mypy_cache .ruff_cache .pytest_cache .hypothesis
