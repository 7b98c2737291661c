# The workbook's commands. `make` alone lists them.

VENV := .venv
RUN := $(VENV)/bin/python

# Where torch came from the last time stays valid until another index is named.
TORCH_INDEX ?= $(shell cat $(VENV)/.torch-index 2>/dev/null)

# A .venv whose Python is gone, that was copied here, or filled from another index, is made anew.
# The shell compares: make would take two spaces in a path for one.
STALE := $(shell { test -x $(RUN) && test "$$(cat $(VENV)/.made)" = "$$(pwd)" && \
    test "$$(cat $(VENV)/.torch-index)" = "$(TORCH_INDEX)"; } 2>/dev/null || echo anew)

# The learner's own copy of the notebooks.
WORKBOOK := workbook

# Kernels talk to JupyterLab through files that only their user can open, not through ports.
PRIVATE := --KernelManager.transport=ipc

# Modules of a cluster put packages of other Pythons here; kernels of other installations shadow ours.
unexport PYTHONPATH PYTHONHOME
# Hundreds of processes import the package: what one of them has compiled, the others find.
unexport PYTHONDONTWRITEBYTECODE
export JUPYTER_PREFER_ENV_PATH := 1

# The first of these that works and is recent enough; PYTHON=... names another.
PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11)
# Tests wait as much as they compute: some run at the same time.
SIDE_BY_SIDE ?= 3

# Slides and hub are tested where npm can install what they need.
NPM := $(shell command -v npm)
MARP := $(and $(NPM),$(wildcard slides/package.json),slides/node_modules/.made)
HUB := $(and $(NPM),$(wildcard hub/package.json),$(VENV)/.hub hub/node_modules/.made)

RECENT := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

.PHONY: help lab check test workbook notebooks record slides site bench kernel hub hub-test anew

help:           ## list the commands
	@awk -F '##' '/^[a-z-]+:.*##/ {sub(/:.*/, "", $$1); printf "make %-12s%s\n", $$1, $$2}' Makefile
	@echo "Options go into ARGS=, another source of PyTorch into TORCH_INDEX=: see README.md."

lab: workbook   ## install what is missing, open JupyterLab on your own copy of the notebooks
	@exec $(RUN) -m jupyterlab --ServerApp.ip=127.0.0.1 --ServerApp.root_dir="$(WORKBOOK)" \
	    --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --LabApp.news_url=None \
	    $(PRIVATE) $$([ "$$(id -u)" != 0 ] || echo --allow-root) $(ARGS)

check: $(VENV)/.test   ## check style, types, shape and what you changed (SINCE=main: since then)
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	@tests=$$($(RUN) .ci/affected.py $(SINCE)) && set -x && $(RUN) -m pytest $$tests $(ARGS)

test: $(VENV)/.test $(MARP) $(HUB)   ## check everything: style, unit tests, every notebook, links, environment
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) -m pytest -n $(SIDE_BY_SIDE) --dist worksteal --ignore=tests/hub $(ARGS)
	@# Three learners in browsers need the machine for themselves.
	$(if $(ARGS),,$(RUN) -m pytest tests/hub)

workbook: $(VENV)/.lab   ## only copy the notebooks that your workbook/ lacks
	@$(RUN) -m course.classroom.workbook "$(WORKBOOK)"

notebooks: $(VENV)/.test   ## run the originals again and store their outputs (ARGS=FILE: only these)
	$(RUN) .ci/store_outputs.py $(ARGS)

record: $(VENV)/.test   ## measure anew what notebooks show where a world is missing (ARGS=NAME: only that)
	$(RUN) -m course.classroom.record $(ARGS)

slides: $(VENV)/.lab slides/node_modules/.made   ## make slides/build: HTML and PDF of every deck (needs npm)
	$(RUN) slides/build.py $(ARGS)

site: $(VENV)/.site   ## make site/build: the book with its stored outputs, to be read in a browser
	$(RUN) site/build.py $(ARGS)

bench: $(VENV)/.lab   ## print the table of measured ratios
	$(RUN) -m benchmarks $(ARGS)

kernel: $(VENV)/.lab   ## offer this installation as the kernel «Course» in a JupyterLab you have
	@$(RUN) -m ipykernel install --user --name course --display-name Course
	@echo "On a machine that you share, start your JupyterLab with $(PRIVATE):" \
	    "else every user of it can read what your notebooks show."

hub: $(VENV)/.hub hub/node_modules/.made   ## start a JupyterHub with the book, as hub/jupyterhub_config.py says (needs npm)
	@exec $(RUN) -m jupyterhub -f hub/jupyterhub_config.py $(ARGS)

hub-test: $(VENV)/.test $(VENV)/.hub hub/node_modules/.made   ## check the hub from a login in a browser to the end of all jobs
	$(RUN) -m pytest tests/hub $(ARGS)

$(VENV)/.made: $(STALE)
	@for python in $(PYTHONS); do \
	    if "$$python" -c '$(RECENT)' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "No Python 3.11 or later with venv was found (tried: $(PYTHONS))." \
	        "Install one (Debian, Ubuntu: apt install python3-venv) or name one: PYTHON=..." >&2; \
	    exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$found" --version)."; \
	"$$found" -m venv --clear $(VENV)
	@echo "$(TORCH_INDEX)" > $(VENV)/.torch-index
	@pwd > $@

INSTALL = $(RUN) -m pip install --constraint constraints.txt \
    $(addprefix --extra-index-url ,$(TORCH_INDEX)) --editable
BROKEN = { echo "The installation broke off: see above. The same command tries again." >&2; exit 1; }

$(VENV)/.lab: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing the book into $(VENV), some minutes: PyTorch is large, above all on Linux" \
	    "with CUDA (README, «Install», has the sizes and how to take the CPU build)."
	@$(INSTALL) '.[lab]' || $(BROKEN)
	@touch $@

$(VENV)/.test: $(VENV)/.lab
	@echo "Installing what the tests need, about a minute."
	@$(INSTALL) '.[site,test]' || $(BROKEN)
	@touch $@

$(VENV)/.site: $(VENV)/.lab
	@echo "Installing what makes the site, half a minute."
	@$(INSTALL) '.[site]' || $(BROKEN)
	@touch $@

$(VENV)/.hub: $(VENV)/.lab
	@echo "Installing JupyterHub, half a minute."
	@$(INSTALL) '.[hub]' || $(BROKEN)
	@touch $@

%/node_modules/.made: %/package.json
	@command -v npm >/dev/null || { echo "npm installs what $* needs (Marp makes the slides, a proxy" \
	    "stands before a hub): there is no npm here (Debian, Ubuntu: apt install npm)." >&2; exit 1; }
	@echo "Installing $*/node_modules, half a minute."
	@cd $* && npm install --no-audit --no-fund --no-package-lock --loglevel=error
	@touch $@
