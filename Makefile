PYTHON ?= python3
BIN := .venv/bin

.PHONY: sweep test bench lint clean

sweep: .venv/installed  ## set up, run the small shipped grid, end with a table and a picture
	$(BIN)/python -m jaxrecall.sweep --grid sweeps/quickstart.yaml

test: .venv/installed-dev  ## set up and pass the tests; ARGS=--slow for all of them
	$(BIN)/python -m pytest -q -n 2 $(ARGS)

bench: .venv/installed-bench  ## set up, run the peers side by side, save results/benchmarks.md; ARGS="--only R1" for parts
	$(BIN)/python -m benchmarks $(ARGS)

lint: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

.venv/installed: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'Python >= 3.11 is needed, this is ' + sys.version.split()[0] + '; choose one with make PYTHON=python3.12')"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

.venv/installed-bench: .venv/installed
	$(BIN)/python -m pip install --quiet --editable ".[bench]"
	touch $@

clean:
	rm -rf .venv
