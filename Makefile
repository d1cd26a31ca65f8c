SHELL := bash
PYTHON ?= python3
BIN := .venv/bin

ISAS := SSE4_2 AVX2

.PHONY: sweep test test-all portable attack slurm versions bench accelerators study study-long papers docs docs-check lint lock clean

sweep: .venv/installed  ## set up, run the small shipped grid, end with a table and a picture
	$(BIN)/python -m jaxrecall.sweep --grid sweeps/quickstart.yaml

test: .venv/installed-dev  ## set up and pass the tests of every change, 3 minutes on 2 fast cores, 5 with nothing compiled before, 22 on crowded ones; ARGS="tests/analysis/test_fit.py" for some
	$(BIN)/python -m pytest -q -n 2 --dist loadfile $(ARGS)

test-all: .venv/installed-dev  ## all tests: also those that take minutes, kill processes or fill disks
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --slow $(ARGS)

portable: $(ISAS:%=portable-%)  ## tests/model and tests/simulator on x86, compiled for older processors, with room for the rounding of others; 3 minutes each

portable-%: .venv/installed-dev
	XLA_FLAGS=--xla_cpu_max_isa=$* $(BIN)/python -m pytest -q -n 2 --dist loadfile --margins $(or $(ARGS),tests/model tests/simulator)

attack: .venv/installed-dev  ## try to make the package fail for 30 minutes, save results/attack.md; ARGS="--hours 3" for the full counts
	PYTHONPATH=.:tests $(BIN)/python -m attack $(ARGS)

slurm: .venv/installed-dev  ## run the launch script in a real Slurm of one node, 10 minutes or more, save results/slurm.md; ARGS="--only search" for some
	PYTHONPATH=.:tests $(BIN)/python -m slurm $(ARGS)

VERSIONS := lowest-3.11.2 newest-3.12.1 newest-3.13.0
RESOLUTION-lowest := --resolution lowest-direct
WARNINGS := Deprecation PendingDeprecation Future

versions: $(VERSIONS:%=versions-%)  ## quickstart, fit, report and all tests of every change at the lowest and at the newest versions; each Python at an early patch release; versions-lowest-3.11.2 for one

versions-%: .venv-%/resolved  # what other packages deprecate is told, and is no error
	rm -rf .venv-$*/results
	.venv-$*/bin/python -c "from jaxrecall.cli.command import versions; print('$*:', *map('=='.join, versions().items()))"
	.venv-$*/bin/python -m jaxrecall.sweep --grid sweeps/quickstart.yaml --out .venv-$*/results
	.venv-$*/bin/python -m jaxrecall.fit .venv-$*/results --theta 0.5
	.venv-$*/bin/python -m jaxrecall.report .venv-$*/results
	ls .venv-$*/results/accuracy.png .venv-$*/results/report.html
	.venv-$*/bin/python -m pytest -q -n 2 --dist loadfile $(WARNINGS:%=-W default::%Warning) $(ARGS)

bench: .venv/installed-bench  ## set up, run the peers side by side, save results/benchmarks.md; ARGS="--only R1" for parts
	$(BIN)/python -m benchmarks $(ARGS)

accelerators: .venv-tpu/installed .venv-cuda/installed  ## set up, compile all programs for TPUs and a GPU that need not be there
	.venv-tpu/bin/python -m benchmarks.accelerators tpu
	.venv-cuda/bin/python -m benchmarks.accelerators cuda

REPORT-capacity := --x d --lines L --panels V
FIT-mlp := --along m
REPORT-mlp := --along m --x d --lines V --panels trigger_in_value activation
REPORT-bound := --x V --lines L
REPORT-phase := --x d --lines L --panels V
REPORT-late := --x d --panels optimizer trains
REPORTED := late capacity mlp bound phase
DRAWN := first-steps storage law width phase-mlp map structure noise zipf law-exact embeddings sensitivity
DRAWN += held-out held-out-levels orthogonal width-gaussian width-undecided theory-held-out
DRAWN += budget precision precision-small pool
LONG_STUDIES := $(filter-out $(REPORTED) $(DRAWN),$(notdir $(wildcard results/study/*)))

study: .venv/installed-dev  ## run most of the shipped studies, two at a time, and draw all figures, about two hours on 2 cores; names those that it leaves out
	$(MAKE) --jobs 2 $(REPORTED:%=results/study/%/report.html) $(DRAWN:%=results/study/%/table.parquet)
	cp results/study/capacity/report-figures/critical-n.png results/study/capacity/figures/
	$(BIN)/python results/figures.py
	@echo "Studies left out (make study-long runs them): $(LONG_STUDIES)"

study-long: .venv/installed-dev  ## run the studies that `make study` leaves out, two at a time, about six hours on 2 cores
	$(MAKE) --jobs 2 $(LONG_STUDIES:%=results/study/%/table.parquet)

LONG_PAPERS := muon muon-iterates muon-two-steps
PAPERS := $(filter-out $(LONG_PAPERS),$(patsubst sweeps/papers/%.yaml,%,$(wildcard sweeps/papers/*.yaml)))

papers: .venv/installed-dev  ## run the grids of docs/papers.md, two at a time, and draw its figures, within 30 minutes on 2 cores
	$(BIN)/python sweeps/papers/real.py
	$(MAKE) --jobs 2 $(PAPERS:%=results/papers/%/table.parquet)
	for part in muon rows spectral real; do $(BIN)/python results/papers/$$part.py --draw || exit 1; done

.PRECIOUS: results/papers/%/table.parquet results/study/%/table.parquet .venv-%/resolved

define sweep_and_compact
@set -o pipefail; $(BIN)/python -m jaxrecall.sweep --grid $< --out $(@D) 2>&1 | sed "s/^/$*: /"
$(BIN)/python -m jaxrecall.compact $(@D) --prune
endef

results/study/%/table.parquet: sweeps/%.yaml
	$(sweep_and_compact)

results/study/%/table.parquet: examples/%.yaml
	$(sweep_and_compact)

results/papers/%/table.parquet: sweeps/papers/%.yaml
	$(sweep_and_compact)

results/study/%/report.html: results/study/%/table.parquet
	$(BIN)/python -m jaxrecall.fit results/study/$* --theta 0.5 0.9 $(FIT-$*)
	$(BIN)/python -m jaxrecall.report results/study/$* $(REPORT-$*)

lint: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

lock: .venv/installed  ## write uv.lock and constraints.txt again; ARGS=--upgrade takes the newest versions
	$(BIN)/uv lock $(ARGS)
	$(BIN)/uv export --quiet --locked --all-extras --no-hashes --no-annotate --no-header --no-emit-project --output-file constraints.txt

docs: .venv/installed-docs  ## build the documentation site, docs/_build/index.html
	$(BIN)/sphinx-build -W --keep-going --quiet -E -a -c docs . docs/_build

docs-check: docs  ## open every page of the site in Chromium, in light and dark, wide and narrow, and count what is wrong
	$(BIN)/python docs/check.py docs/_build

# uv takes a third of the time of pip; pip is the fallback where uv is missing or fails
install = $(BIN)/uv pip install --quiet --python $(BIN)/python --editable $(1) || $(BIN)/python -m pip install --quiet --editable $(1)

.venv/installed: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(0 if sys.version_info >= (3, 11) else 'Python >= 3.11 is needed, this is ' + sys.version.split()[0] + '; choose one with make PYTHON=python3.12')"
	$(PYTHON) -m venv .venv
	-$(BIN)/python -m pip install --quiet uv
	$(call install,.)
	touch $@

.venv/installed-dev: .venv/installed
	$(call install,".[dev]")
	touch $@

.venv/installed-docs: .venv/installed
	$(call install,".[docs]")
	touch $@

.venv/installed-bench: .venv/installed
	$(call install,".[bench]")
	touch $@

WHEELS-tpu := tpu
WHEELS-cuda := cuda12

.venv-%/installed: .venv/installed  # some gigabytes each: the wheels that carry the compilers, at the version of JAX in use
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet --editable . "jax[$(WHEELS-$*)]==$$($(BIN)/python -c 'import jax; print(jax.__version__)')"
	touch $@

.venv-%/resolved: .venv/installed pyproject.toml  # uv finds the Python, pyenv's too, or downloads it; dev leaves what is there as it is
	PYENV_VERSION=$(lastword $(subst -, ,$*)) $(BIN)/uv venv --quiet --clear --python $(lastword $(subst -, ,$*)) .venv-$*
	$(BIN)/uv pip install --quiet --python .venv-$*/bin/python $(RESOLUTION-$(firstword $(subst -, ,$*))) --editable .
	$(BIN)/uv pip install --quiet --python .venv-$*/bin/python --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv .venv-*
