# Everything a fresh clone needs: Python 3.11+ and make. Installs happen once; stamps in .venv remember them.
#
#   make demo       run the main job on real input
#   make test       formatter, linter, types, layers and the core tests
#   make test-all   what needs heavy frameworks, servers or long kills
#   make lint       the checks without the tests;   make format   mend what can be mended
#   make docs       write docs/reference from the code
#   make bench BENCH=start-up     one benchmark (see `python -m benchmarks --list`)

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
VENV ?= .venv
PY := $(VENV)/bin/python
BENCH ?= --list
PYTEST_ARGS ?=
# No byte of the checkout is installed: the package is editable, so stamps depend on its metadata alone.
INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all lint format docs bench clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed-demo
	$(PY) -m examples.demo

test: lint
	$(PY) -m pytest -m "not heavy" -rs $(PYTEST_ARGS)

test-all: $(VENV)/.installed-heavy
	$(PY) -m pytest -m heavy -rs $(PYTEST_ARGS)

lint: $(VENV)/.installed-test
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-logo

format: $(VENV)/.installed-test
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

docs: $(VENV)/.installed-test
	$(PY) docs/make_reference.py

bench: $(VENV)/.installed-test
	$(PY) -m benchmarks $(BENCH)

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Headrace needs Python 3.11 or newer; pass PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[$*]'
	@touch $@

# KerasHub without its tensorflow-text, which brings the whole of TensorFlow, beside tensorflow-cpu: it is for tf.data only.
$(VENV)/.installed-heavy: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e '.[heavy]'
	$(INSTALL) --no-deps keras-hub
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
