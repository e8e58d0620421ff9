# Every target sets up .venv by itself; a second call finds it there.

PYTHON ?= python3
VENV ?= .venv
RUN := runs/demo
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test lint format wheel clean

help: ## Say what can be made.
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' $(MAKEFILE_LIST)

setup: $(READY) ## Create .venv with the package and the pinned versions of all it needs.

$(READY): pyproject.toml constraints.txt normlab/recording/native.cpp $(wildcard normlab/recording/one_pass/*.h normlab/recording/hooks/*.h)
	@command -v $(PYTHON) >/dev/null || { \
	  echo "There is no $(PYTHON) here: install Python 3.11 or later, or name it, as in: make PYTHON=python3.12 demo" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), and normlab needs 3.11 or later: name one, as in: make PYTHON=python3.12 demo" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments: install its venv module (Debian and Ubuntu: python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# compat: by a path, so that a folder named normlab beside a script is not taken for the package.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  --config-settings editable_mode=compat -e '.[dev]'
	@touch $@

demo: $(READY) ## Run the main job: a depth sweep on real text, with plots, verdicts and a report.
	$(BIN)/normlab sweep --placement pre --placement post --norm layernorm --depths 2,4,8,16,32,64 \
	  --width 128 --seeds 5 --batch 4 --tokens 64 --out $(RUN)

test: $(READY) ## Run the tests; what this machine lacks is skipped with the reason.
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(READY) ## Check style, types and the direction of imports.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY) ## Put the source into the one format.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: $(READY) ## Build the wheel and the source archive into dist/.
	rm -rf build dist
	$(BIN)/python -m build

clean: ## Remove what was built and run here.
	rm -rf $(VENV) build dist runs *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
