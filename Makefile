# `make` lists the targets. Needs Python 3.11 or newer and make; uses uv where it is installed, pip otherwise.

VENV := .venv
BIN := $(VENV)/bin
# The first of these that is new enough; `make PYTHON=...` overrides.
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$name && break; done)
UV := $(shell command -v uv 2>/dev/null)
ARGS ?=

# An environment that lost its interpreter, or was moved with its checkout, is set up again.
$(shell [ -x $(BIN)/python ] && [ "`cat $(VENV)/.checkout 2>/dev/null`" = "$(CURDIR)" ] || rm -f $(VENV)/.ready-*)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check format bench diagrams clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.ready-local ## Set up, then solve one real task with real tools on a local model (no API key)
	@$(BIN)/fsm-agent demo $(ARGS)

test: check ## Set up, then lint, check types and module order, and run all tests (ARGS='-m "not slow"' for fewer)
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.ready-dev ## Set up, then lint, check format, types and module order only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.ready-dev ## Format, and mend what the linter can mend
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(VENV)/.ready-bench ## Set up with the peers, then measure the speed (ARGS=reliability, memory, bfcl, faults, trail, local for others)
	$(BIN)/python -m tests.benchmarks $(ARGS)

diagrams: $(VENV)/.ready-dev ## Draw diagrams/ and the generated parts of the READMEs anew
	$(BIN)/python -m fsm_agent.diagrams $(ARGS)
	$(BIN)/python -m tests.diagram_examples
	$(BIN)/python -m tests.readme_parts

clean: ## Remove the environment and every cache of the checkout (the weights stay in the user's cache)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- set-up: one environment; each stamp stands for what has been installed into it.

$(VENV)/.ready-local: EXTRAS := local
$(VENV)/.ready-dev: EXTRAS := dev,local
$(VENV)/.ready-bench: EXTRAS := dev,local,bench

# An unpacked sdist has no link; the package is installed from its folder, so it needs one.
fsm_agent/states:
	@ln -s ../states $@

$(VENV)/.ready-local $(VENV)/.ready-dev $(VENV)/.ready-bench: pyproject.toml | fsm_agent/states
	@test -n "$(PYTHON)" || { echo "fsm-agent needs Python 3.11 or newer; none found. Name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fsm-agent needs Python 3.11 or newer, not $(PYTHON). Name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Setting up $(VENV) with [$(EXTRAS)]: once, takes a minute or two." >&2
	@$(create-venv)
	@$(install) -e '.[$(EXTRAS)]'
	@touch $@
	@case $(EXTRAS) in dev*) touch $(VENV)/.ready-local;; esac
	@case $(EXTRAS) in *bench) touch $(VENV)/.ready-dev;; esac

# pip stays in the environment, whoever made it: the weights can come through it. Some Linux distributions split venv's
# pip into a package of its own; there, the outer pip fills an environment that was made without one.
define create-venv
if [ "`cat $(VENV)/.checkout 2>/dev/null`" = "$(CURDIR)" ] && $(BIN)/python -m pip --version >/dev/null 2>&1; then :; else \
	rm -rf $(VENV); \
	{ { test -n "$(UV)" && $(UV) venv --quiet --seed --python "$(PYTHON)" $(VENV); } || \
	$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || \
	{ rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }; } && \
	printf '%s' "$(CURDIR)" > $(VENV)/.checkout; fi
endef

define install
install() { { test -n "$(UV)" && $(UV) pip install --quiet --python $(BIN)/python "$$@"; } || \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --prefer-binary "$$@"; }; install
endef
