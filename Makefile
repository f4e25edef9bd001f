# What a newcomer runs: `make demo`, `make test`. Needs Python >= 3.11 and make, nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test lint types check bench docs mcpb clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/contextstash demo

test: $(STAMP)
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

check: lint types test

bench: $(STAMP)
	@for script in bench/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

# The pages that come out of the code; a test compares them with it.
docs: $(STAMP)
	$(BIN)/python docs/generate.py

# A bundle that Claude Desktop and others install with a click. Needs node: its packer is an npm package.
mcpb:
	rm -rf build/mcpb && mkdir -p build/mcpb
	git archive HEAD pyproject.toml README.md CHANGELOG.md LICENSE server storage | tar -x -C build/mcpb
	cp mcpb/manifest.json build/mcpb/
	npx --yes @anthropic-ai/mcpb pack build/mcpb build/contextstash.mcpb

clean:
	rm -rf $(VENV) build
