# In a fresh clone run `make demo` or `make test`. Both need Python 3.11 or newer and the package
# index that pip is configured for; they need no root, no container engine and no running server.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
DATA   ?= .data
SEEDS  ?= 10000
COUNT  ?= 60
SEED   ?= 1

# The tests start many processes; each would compile the code again.
unexport PYTHONDONTWRITEBYTECODE

# More workers than cores: many tests wait for processes. Whole files, for fixtures of modules.
PYTEST := $(BIN)/python -m pytest -n 6 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help install demo pictures test thorough test-pythons test-packages test-plugins test-cgroup2 test-deploy up hunt mutants bench bytecodes chaos-cluster lint schema lock sbom clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP)  ## the virtual environment .venv, from the lock

# Installs again only when the lock or the project file is newer than the stamp.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Admittance needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V 2>&1);" \
	       "name a newer one: make install PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@# pip compiles what it installs, but not an editable project; without this, every short command would
	@# compile all that it imports wherever Python may not write byte code (PYTHONDONTWRITEBYTECODE).
	$(BIN)/python -m compileall -q libs services
	@touch $@

# DEMO=--keep leaves the story standing, to be looked at on the page, until Ctrl-C.
demo: $(STAMP)  ## real jobs through quota, a check, a move and obtained capacity, in half a minute (DEMO)
	@$(BIN)/python -m tools.demo deploy/samples $(DEMO)

pictures: $(STAMP)  ## docs/images from the demo, with Debian's Chromium
	@$(BIN)/python -m tools.pictures deploy/samples docs/images

# Compiles the tests once in a new clone, where otherwise each worker would do it.
$(COMPILED): $(STAMP)
	@$(BIN)/python -m pytest --collect-only -qq tests/unit >/dev/null & \
	  $(BIN)/python -m pytest --collect-only -qq --ignore tests/unit >/dev/null; wait
	@touch $@

test: $(COMPILED)  ## the whole test suite, also against a real nats-server
	$(PYTEST)

thorough: $(COMPILED)  ## properties and stories of the cores, with three times the examples of `make test`
	ADMIT_THOROUGH=1 $(PYTEST) $(addprefix tests/,properties acceptance conformance unit/replay unit/api)

# PYTHONS=--quick leaves out the tests that depend little on the version of Python.
test-pythons: $(STAMP)  ## the unit tests with every other supported Python of this machine
	@$(BIN)/python -m tools.pythons $(PYTHONS)

test-packages: $(STAMP)  ## the wheel, installed with pip, pipx and uv, plays the minute of the README
	$(BIN)/python -m pytest -m packages -rs tests/packages

# PLUGINS=hydra, snakemake or airflow takes these alone.
test-plugins: $(STAMP)  ## the plug-ins with Hydra, Snakemake and Airflow, each in an environment of its own
	$(BIN)/python -m tools.plugins $(PLUGINS)

test-deploy: $(STAMP)  ## the tests that need a container engine
	$(BIN)/python -m pytest -m deploy -rs --timeout 1200 tests/deploy

# KERNEL: one that boots without modules, such as the vmlinuz of Debian's linux-image-cloud-amd64.
test-cgroup2: $(STAMP)  ## the tests of control groups on an emulated machine with version 2 (KERNEL), six minutes
	$(BIN)/python -m tools.emulated_machine $(KERNEL)

up: $(STAMP)  ## an embedded deployment that keeps its data in $(DATA)
	$(BIN)/admit up --data-dir $(DATA)

hunt: $(STAMP)  ## SEEDS stories of the services that ship, on all cores, up to the first broken one
	cd tests && ../$(BIN)/python -m simulation --seeds $(SEEDS) --figures ../.hunt.json

mutants: $(STAMP)  ## COUNT random changes of the pure cores, and those that no test notices (SEED)
	nice $(BIN)/python -m tools.mutants --count $(COUNT) --seed $(SEED)

bench: $(STAMP)  ## Kueue's scheduler benchmark against the embedded system
	$(BIN)/admit bench benchmarks/baseline.yaml

bytecodes: $(STAMP)  ## records how many bytecodes of Python a workload takes, which a test compares
	$(BIN)/python -m benchmarks.bytecodes --write

chaos-cluster: $(STAMP)  ## 2,000 jobs on three locked servers that are killed and paused, ten minutes
	$(BIN)/python -m benchmarks.chaos --servers 3 --locked

lint: $(STAMP)  ## ruff, mypy strict, import contracts, import cycles, sizes; advice about names
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/house_check.py

schema: $(STAMP)  ## docs/schema, manifests.md, states.md, roles.md, reference/, dashboards, SyncClient from the code
	$(BIN)/python -m tools.manifests_schema
	$(BIN)/python -m tools.pages.fields
	$(BIN)/python -m tools.asyncapi
	$(BIN)/python -m tools.pages.states
	$(BIN)/python -m tools.pages.metrics
	$(BIN)/python -m tools.pages.reasons
	$(BIN)/python -m tools.dashboards
	$(BIN)/python -m tools.pages.roles
	$(BIN)/python -m tools.deploy_lists
	$(BIN)/python -m tools.sync_client

# Names, versions and hashes for every platform. No index address: each machine has its own.
lock: $(STAMP)  ## requirements.lock from pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command "make lock" --quiet -o requirements.lock

# A CycloneDX file; two runs give the same bytes. The tool has an environment of its own.
SBOM := dist/admittance.cdx.json
sbom:  ## the bill of materials of requirements.lock, as dist/admittance.cdx.json
	@test -x build/sbom/bin/cyclonedx-py || { $(PYTHON) -m venv --clear build/sbom && \
	  build/sbom/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0; }
	@mkdir -p $(dir $(SBOM))
	@build/sbom/bin/python -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml \
	  --output-reproducible --of JSON -o $(SBOM) requirements.lock

clean:  ## the virtual environments and every cache
	rm -rf $(VENV) $(VENV)-3.* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find libs services tests tools benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
