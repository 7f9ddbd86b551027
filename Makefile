# Everything runs in .venv, which the first target that needs it creates.
# PYTHON names the interpreter to create it with; TEST_LIMIT bounds the test run in seconds,
# EXAMPLES the random programs of each kind in `make fuzz`.

PYTHON ?= python3
JOBS ?= 2
TEST_LIMIT ?= 1500
EXAMPLES ?= 100
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench docs fuzz clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(STAMP): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

demo: $(STAMP)  ## compile a real model once, run it at several batch sizes from Python and C
	$(BIN)/python examples/demo.py

test: $(STAMP)  ## run all tests
	timeout $(TEST_LIMIT) $(BIN)/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

check: $(STAMP)  ## format, lint, types, layers, hygiene
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/hygiene

format: $(STAMP)  ## format the code and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## measure against onnxruntime, NumPy, torch; QUICK=1: three minutes; ONLY="gemm* mlp"
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(THREADS),--threads $(THREADS)) --json bench.json $(foreach w,$(ONLY),"$(w)")

docs: $(STAMP)  ## write the generated pages (one needs the extra torch) and run every example of the documentation
	$(BIN)/python docs/gen_ops.py
	$(BIN)/python docs/gen_reference.py
	$(BIN)/python docs/gen_overview.py
	$(BIN)/python docs/gen_onnx.py
	$(BIN)/python docs/gen_torch.py
	$(BIN)/python -m pytest -q tests/docs

fuzz: $(STAMP)  ## random programs against the interpreter and onnxruntime, then property tests with ten times the examples
	$(BIN)/python -m tests.fuzz --examples $(EXAMPLES)
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n $(JOBS) -m 'not network' tests $(PYTEST_ARGS)

clean:  ## remove what the targets made
	rm -rf $(VENV) build dist relaxir.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
