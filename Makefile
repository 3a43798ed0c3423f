# Two commands do everything: `make run` tunes, `make test` tests. Both set up what they need.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Python compiles a module when it is first imported. To compile all of torch and TensorFlow before
# that takes half of the time of a set-up, and most of them is never imported.
INSTALL = $(BIN)/python -m pip install --quiet --no-compile
STUDY ?= study.yaml
ARGS ?=
# Many tests wait for processes: with as many as there are cores a third of the time would be idle.
WORKERS ?= 4
# Where TensorFlow has a wheel for the CPU.
KERAS_WHEELS := ; sys_platform == "linux" and platform_machine == "x86_64" and python_version < "3.14"
# What a real server needs beside mlflow-skinny; the package mlflow does not take our pyarrow.
MLFLOW_SERVER := flask 'flask-cors<7' 'graphene<4' 'huey<4'
# Clients of engines that lend nodes, Ray itself, and what checks a manifest against Kubernetes' own schemas.
ENGINES := kubernetes kubernetes-validate ray
# Frameworks that have a page; xgboost-cpu is xgboost without 300 MB of NVIDIA's libraries.
FRAMEWORKS := lightning transformers accelerate lightgbm optuna-integration xgboost-cpu
# A server of S3's protocol: moto without the services of AWS that nobody here asks for.
STORES := obstore boto3 'moto[s3]' flask flask-cors

# Tests start hundreds of processes: each would compile every module again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run dashboard docs pages test test-programs nightly check quick quick-search quick-rest servers format lint types lock clean

help:
	@echo "make run        tune on every device of this machine (STUDY=study.yaml, ARGS='--trials 10')"
	@echo "make dashboard  shows the study in a browser (STUDY=study.yaml, ARGS='--port 8600')"
	@echo "make docs       builds the documentation into site/; a dead link is an error"
	@echo "make pages      writes the pages of docs/ and the JSON Schema that are generated from the code"
	@echo "make test       the tests of the tuner itself, in ten minutes (ARGS='-k words')"
	@echo "make test-programs  the tests with programs of others: frameworks, trackers, engines, examples"
	@echo "make nightly    every test, with those marked nightly and 5000 fuzzed study files"
	@echo "make check      format, lint, types, unit and contract tests (on SQLite, without slow ones)"
	@echo "make format     put the code into its form"
	@echo "make lock       write the lock files from pyproject.toml"

run: $(VENV)/ready
	$(BIN)/python -m tuner.run $(STUDY) $(ARGS)

# The study of another `make run`, which may go on meanwhile.
dashboard: $(VENV)/ready
	$(BIN)/tuner dashboard $(STUDY) $(ARGS)

# The theme's notice of its end of life would stand above every error.
docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict --site-dir site
	@echo "Built: site/index.html"

pages: $(VENV)/ready
	$(BIN)/python -m docs.generate docs

PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
OTHERS := programs or engines

test: ready-tests servers
	FUZZ_EXAMPLES=200 $(PYTEST) -m "not nightly and not ($(OTHERS))" $(ARGS)

# What others wrote: frameworks, trackers, examples and pages, Slurm, Kubernetes, Ray, ssh.
test-programs: ready-tests servers
	$(PYTEST) -m "not nightly and ($(OTHERS))" $(ARGS)

.PHONY: ready-tests
ready-tests: $(VENV)/ready-keras $(VENV)/ready-trackers $(VENV)/ready-frameworks $(VENV)/ready-engines $(VENV)/ready-stores

# The marker expression replaces the one in pyproject.toml, which leaves nightly tests out.
nightly: ready-tests servers
	FUZZ_EXAMPLES=5000 $(PYTEST) -m "nightly or not nightly" $(ARGS)

# Types and tests side by side: none of them keeps two processors busy to its end.
check: $(VENV)/ready
	@$(MAKE) --no-print-directory -j 2 lint quick-search quick-rest types

# Each half imports what it needs: with pytest-xdist both processes would import all, and torch is
# half of that. The halves take about equally long.
QUICK := -q -m "not slow and not nightly" -k "not postgresql and not mariadb"
WITH_TORCH := tests/unit/app tests/unit/search tests/unit/trials tests/contract/search

quick: quick-search quick-rest

quick-search: $(VENV)/ready
	$(BIN)/python -m pytest -p no:cacheprovider $(QUICK) $(WITH_TORCH)

quick-rest: $(VENV)/ready
	$(BIN)/python -m pytest -p no:cacheprovider $(QUICK) $(WITH_TORCH:%=--ignore=%) tests/unit tests/contract

# PostgreSQL and MariaDB, which the tests start for themselves.
servers:
	@.ci/servers

lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/ready
	$(BIN)/mypy

format: $(VENV)/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The lock file names torch without a build, so that pip takes the one that fits this machine.
lock:
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet torch==2.13.0 --editable '.[dev]'
	( echo "# Every version that CI tests with. Written by 'make lock'."; \
	  $(VENV)-lock/bin/python -m pip freeze --exclude-editable \
	    | sed -E 's/^(torch==[0-9.]+)\+.*/\1/' | grep -vi '^nvidia-c\|^triton' ) > requirements.lock
	$(VENV)-lock/bin/python -m pip install --quiet --dry-run --report $(VENV)-lock/trackers.json \
	  --constraint requirements.lock 'gpu-tuner[trackers]' $(MLFLOW_SERVER)
	( echo "# What 'track' needs beside requirements.lock; for the tests only. Written by 'make lock'."; \
	  $(VENV)-lock/bin/python -c 'import json, sys; installed = json.load(open(sys.argv[1]))["install"]; \
	    print(*sorted("{name}=={version}".format(**each["metadata"]) for each in installed), sep="\n")' \
	    $(VENV)-lock/trackers.json ) > requirements-trackers.lock
	$(VENV)-lock/bin/python -m pip install --quiet tensorflow-cpu --constraint requirements.lock
	( echo "# What the Keras example needs beside requirements.lock; for the tests only. Written by 'make lock'."; \
	  $(VENV)-lock/bin/python -m pip freeze --exclude-editable | grep -vixFf requirements.lock | grep -v '^torch=' \
	    | sed 's/$$/$(KERAS_WHEELS)/' ) > requirements-keras.lock
	$(VENV)-lock/bin/python -m pip install --quiet --dry-run --report $(VENV)-lock/frameworks.json \
	  --constraint requirements.lock --constraint requirements-keras.lock \
	  --constraint requirements-trackers.lock $(FRAMEWORKS)
	( echo "# What the frameworks need beside requirements.lock; for the tests only. Written by 'make lock'."; \
	  $(VENV)-lock/bin/python -c 'import json, sys; installed = json.load(open(sys.argv[1]))["install"]; \
	    print(*sorted("{name}=={version}".format(**each["metadata"]) for each in installed), sep="\n")' \
	    $(VENV)-lock/frameworks.json ) > requirements-frameworks.lock
	$(VENV)-lock/bin/python -m pip install --quiet --dry-run --report $(VENV)-lock/engines.json \
	  --constraint requirements.lock --constraint requirements-trackers.lock $(ENGINES)
	( echo "# Ray and clients of engines beside requirements.lock; for the tests only. Written by 'make lock'."; \
	  $(VENV)-lock/bin/python -c 'import json, sys; installed = json.load(open(sys.argv[1]))["install"]; \
	    print(*sorted("{name}=={version}".format(**each["metadata"]) for each in installed), sep="\n")' \
	    $(VENV)-lock/engines.json ) > requirements-engines.lock
	$(VENV)-lock/bin/python -m pip install --quiet --dry-run --ignore-installed \
	  --report $(VENV)-lock/stores.json $(STORES)
	sed -n 's/^\([A-Za-z0-9._-]*==\).*/^\1/p' requirements.lock requirements-trackers.lock > $(VENV)-lock/known
	( echo "# What object stores need beside requirements.lock and requirements-trackers.lock; for the tests only. Written by 'make lock'."; \
	  $(VENV)-lock/bin/python -c 'import json, sys; installed = json.load(open(sys.argv[1]))["install"]; \
	    print(*sorted("{name}=={version}".format(**each["metadata"]) for each in installed), sep="\n")' \
	    $(VENV)-lock/stores.json \
	    | grep -vif $(VENV)-lock/known ) > requirements-stores.lock
	rm -rf $(VENV)-lock

$(VENV)/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed. Name one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV): some minutes the first time (torch is large)."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --requirement requirements.lock
	$(INSTALL) --no-deps --editable .
	@$(BIN)/python -c 'import optuna, pandas, plotly, streamlit, torch, torch._dynamo, torch.distributed'
	@touch $@

# TensorFlow is large, and only the Keras example and its test want it.
$(VENV)/ready-keras: $(VENV)/ready requirements-keras.lock
	$(INSTALL) --requirement requirements-keras.lock --constraint requirements.lock
	@touch $@

# Trackers of experiments, of which a user has one or none.
$(VENV)/ready-trackers: $(VENV)/ready requirements-trackers.lock
	$(INSTALL) --requirement requirements-trackers.lock --constraint requirements.lock
	@touch $@

# Lightning, Hugging Face, XGBoost, LightGBM: for the tests of their pages.
$(VENV)/ready-frameworks: $(VENV)/ready requirements-frameworks.lock
	$(INSTALL) --requirement requirements-frameworks.lock --constraint requirements.lock
	@touch $@

# The client of Kubernetes, and Ray, for the tests of engines.
$(VENV)/ready-engines: $(VENV)/ready requirements-engines.lock
	$(INSTALL) --requirement requirements-engines.lock --constraint requirements.lock
	@touch $@

# Object stores: the client, and a server of S3 for its tests. botocore asks for an older
# python-dateutil than the rest has, and works with this one.
$(VENV)/ready-stores: $(VENV)/ready-trackers requirements-stores.lock
	$(INSTALL) --no-deps --requirement requirements-stores.lock
	@touch $@

clean:
	rm -rf $(VENV) build site *.egg-info .mypy_cache .ruff_cache .pytest_cache
