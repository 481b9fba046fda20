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

$(STAMP): pyproject.toml constraints.txt clients/coterie/pyproject.toml clients/lab/pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Coterie needs Python 3.11 or newer: make PYTHON=python3.11"'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 -c constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e 'clients/coterie[torch,demo,accounting]' -e '.[dev,console]' -e clients/lab
	touch $(STAMP)

.PHONY: install
install: $(STAMP) ## make the virtual environment with pinned dependencies

.PHONY: protos
protos: $(STAMP) ## generate Python from the protobuf files
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python -m grpc_tools.protoc -I protos --python_out=protos --mypy_out=quiet:protos \
		--grpc_python_out=protos --mypy_grpc_out=quiet:protos $(PROTOS)
