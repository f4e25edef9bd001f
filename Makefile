# What a newcomer runs: `make demo`, `make test`. Needs Python >= 3.11 and make, nothing else.

PYTHON ?= python3
# The tests start some hundred interpreters: each would compile the whole product again.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
PRODUCT := $(VENV)/.product-installed
DEVELOPMENT := $(VENV)/.development-installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: setup demo test test-all hunt test-adapters lint types check bench docs pictures mcpb clean

# The product alone: the test tools are three times its size.
setup: $(PRODUCT)
	@echo "contextstash is $(BIN)/contextstash. Next: $(BIN)/contextstash install CLIENT"

$(PRODUCT): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	@echo "Creating a virtual environment in $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@echo "Installing contextstash and what it needs into it (half a minute, once) …"
	@$(PIP) --editable .
	@# For processes that must not write it: a hook would compile 170 modules each time, a third of its work.
	@$(BIN)/python -m compileall -q server storage
	@touch $@

$(DEVELOPMENT): $(PRODUCT)
	@echo "Installing the test tools (half a minute, once) …"
	@$(PIP) --editable '.[test]'
	@touch $@

demo: $(PRODUCT)
	@$(BIN)/contextstash demo

# Quick: a few examples of each property and a few of the recorded sessions. See CONTRIBUTING.md.
test: $(DEVELOPMENT)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

# Everything, with all examples; what CI runs.
test-all: $(DEVELOPMENT)
	TEST_EFFORT=thorough $(BIN)/python -m pytest --numprocesses auto --dist worksteal

# The properties with new random examples each time: what they find becomes an `@example`.
hunt: $(DEVELOPMENT)
	TEST_EFFORT=thorough $(BIN)/python -m pytest --hypothesis-profile random --numprocesses auto --dist worksteal

# The adapters in their real frameworks, which no other test needs.
test-adapters: $(DEVELOPMENT)
	@$(PIP) --editable '.[adapters-test]'
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal tests/adapters

lint: $(DEVELOPMENT)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

types: $(DEVELOPMENT)
	$(BIN)/mypy

check: lint types test-all

bench: $(DEVELOPMENT)
	$(BIN)/python -m bench.speed --lengths 1000,20000
	$(BIN)/python bench/start_up.py
	$(BIN)/python bench/kills.py

# The pages that come out of the code; a test compares them with it.
docs: $(DEVELOPMENT)
	$(BIN)/python docs/generate.py

# The pictures of the README, drawn from the real program. Needs Chromium.
pictures: $(DEVELOPMENT)
	PYTHONPATH=. $(BIN)/python docs/pictures.py

# A bundle that Claude Desktop and others install with a click. Needs node: its packer is an npm package.
mcpb:
	rm -rf build/mcpb && mkdir -p build/mcpb
	git archive HEAD pyproject.toml README.md CHANGELOG.md LICENSE server storage | tar -x -C build/mcpb
	cp mcpb/manifest.json build/mcpb/
	npx --yes @anthropic-ai/mcpb pack build/mcpb build/contextstash.mcpb

clean:
	rm -rf $(VENV) build
