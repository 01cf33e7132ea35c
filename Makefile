# Set-up is part of every target: the first run builds .venv, later ones start at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test docs wheel lint format clean

run: $(READY)  ## train on the embedded data set and show the result
	$(BIN)/gossamer train

test: lint  ## lint, types and all tests
	$(BIN)/python -m pytest -n auto

docs: $(READY)  ## build the documentation site into site/: no warning, no broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

wheel: $(READY)  ## build wheel and sdist, install the wheel into a clean environment, do there what the README begins with
	$(BIN)/python tools/try_wheel.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis
