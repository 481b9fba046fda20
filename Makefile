# Coterie. `make` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROTOS := $(shell find protos -name '*.proto')

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'

$(STAMP): pyproject.toml constraints.txt clients/coterie/pyproject.toml clients/cli/pyproject.toml clients/lab/pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Coterie needs Python 3.11 or newer: make PYTHON=python3.11"'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 -c constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e 'clients/coterie[torch,demo]' -e 'clients/cli[drawing]' -e '.[dev]' -e clients/lab
	# An oracle of the tests. Its demos need a torchvision that does not load beside a torch without CUDA.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps byzfl -c constraints.txt
	$(BIN)/python -m services.topology warm
	touch $(STAMP)

.PHONY: install
install: $(STAMP) ## make the virtual environment with pinned dependencies

.PHONY: protos
protos: $(STAMP) ## generate Python from the protobuf files
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python -m grpc_tools.protoc -I protos --python_out=protos --mypy_out=quiet:protos \
		--grpc_python_out=protos --mypy_grpc_out=quiet:protos $(PROTOS)

.PHONY: check
check: $(STAMP) ## lint, strict types, generated protobuf code up to date
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	deploy/check-protos $(BIN)

.PHONY: test
test: $(STAMP) ## all tests (minutes); real processes, real PostgreSQL
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m 'not slow'

.PHONY: test-slow
test-slow: $(STAMP) ## the tests that take minutes each
	$(BIN)/python -m pytest -q -m slow

.PHONY: demo
demo: $(STAMP) ## start the platform, let twelve devices train together, show what happened
	$(BIN)/coterie demo

.PHONY: up
up: $(STAMP) ## start the whole platform on this machine (Ctrl-C stops it)
	$(BIN)/coterie up

.PHONY: bench
bench: $(STAMP) ## measure speed; prints figures with ratios
	$(BIN)/python -m bench

.PHONY: lab
lab: $(STAMP) ## the papers' experiments, quick versions (minutes each); writes docs/results
	for name in clusters cluster_agents mesh market survey multitask; do $(BIN)/python -m coterie_lab.$$name || exit 1; done

.PHONY: compose-up
compose-up: ## start the platform with Docker Compose on PostgreSQL
	test -f .env || { sed "s/^POSTGRES_PASSWORD=.*/POSTGRES_PASSWORD=$$(head -c 18 /dev/urandom | base64 | tr -d '+\/')/" .env.example > .env; chmod 600 .env; }
	docker compose up -d --build

.PHONY: compose-test
compose-test: ## build and run docker-compose.yml for real, kill a service, see a task finish
	deploy/compose-test $(ENGINE)

.PHONY: clean
clean: ## remove the virtual environment and everything generated
	rm -rf $(VENV) .coterie .mypy_cache .ruff_cache .pytest_cache .hypothesis
