# Two commands on a fresh machine: `make demo` and `make test`. Both create .venv once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Test processes side by side.
JOBS ?= 2
# What needs libraries that `make test` does without.
INTEGRATIONS := tests/integrations src/nscl/integrations $(addprefix tests/training/tracking/,\
  test_tensorboard_files.py test_wandb_run.py)

.PHONY: help demo test test-slow test-integrations test-browser bench docs dist lint format clean
.DEFAULT_GOAL := help

help:  ## what can be done here
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 20

$(READY): pyproject.toml constraints.txt
	@echo "Creating the environment in $(VENV) (once; a few minutes, mostly PyTorch) ..."
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || { \
	  echo "nscl needs Python 3.11, 3.12 or 3.13; say which: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable ".[lab]" --group dev
	@touch $@

DEMO := split-digits-5 --out runs/demo

demo: $(READY)  ## five tasks on the embedded digits, with and without protection; a table and a report
	@$(BIN)/nscl run $(DEMO) --method finetune
	@$(BIN)/nscl run $(DEMO) --method nscl
	@$(BIN)/nscl compare $(DEMO) --methods finetune,nscl --seeds 1 --quiet
	@$(BIN)/nscl report runs/demo --out runs/demo-report --quiet
	@echo "report: runs/demo-report/report.html"

test: lint  ## everything that must hold before a change lands (under 10 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n $(JOBS) --dist worksteal --durations 15 \
	  $(addprefix --ignore ,$(INTEGRATIONS))

test-integrations: $(READY)  ## with transformers, PEFT, Lightning, TensorBoard, W&B ...: installs them (under 10 minutes)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  --editable ".[lab,hf,peft,lightning,text,tensorboard,wandb]" pytorch-lightning
	@# Avalanche needs torchvision, and one that was built for another torch breaks transformers too.
	@if $(BIN)/python -c "import torchvision" 2>/dev/null; then \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt avalanche-lib; \
	else echo "no torchvision here: Avalanche itself is not tested, its interface is"; fi
	NSCL_REQUIRE_INTEGRATIONS=1 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -m "not slow" \
	  -n $(JOBS) --dist worksteal --durations 15 $(INTEGRATIONS)

test-slow: $(READY)  ## the long proofs, and the notebooks
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  --editable ".[lab,ray,hf,peft,text]" --group notebooks --group dist
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -m slow

test-browser: $(READY)  ## the report's page in a real browser; installs chromium where it may
	@command -v chromedriver >/dev/null && { command -v chromium || command -v google-chrome; } >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { \
	    echo "no chromium and chromedriver here, and no right to install them: ask your administrator" >&2; exit 1; }; \
	  apt-get update -qq && apt-get install -qq -y chromium chromium-driver; }
	$(BIN)/python -m pytest -m browser

bench: $(READY)  ## speed and memory, as ratios against the dense way in the same run
	$(BIN)/python -m benchmarks

docs: $(READY)  ## the documentation as a site in site/, every link checked; installs MkDocs
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group docs
	@$(BIN)/mkdocs build --strict --quiet
	@echo "site: python3 -m http.server --directory site"

dist: $(READY)  ## wheel and sdist in dist/, checked, and the wheel run in an empty environment (minutes)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group dist
	@rm -rf dist
	PIP_CONSTRAINT=$(abspath constraints.txt) $(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	NSCL_DIST=$(abspath dist) $(BIN)/python -m pytest -m "slow or not slow" tests/test_dist.py

lint: $(READY)  ## style, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis build dist site
