# Every target sets up what it needs by itself; when nothing changed, that costs nothing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Each process that finds no byte code compiles all it imports anew: a second of processor time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install java services psql browser kafka postgres mariadb brokers demo pushdemo crashdemo test check proof bench docs wheel lock format clean
.PHONY: quick-python quick-lowest quick-bare coverage

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.ready ## the virtual environment, with everything pinned

java: ## a JDK 17 or newer, to compile the engine's Java, and for Kafka: found, or installed (Debian, as root or with sudo)
	@$(PYTHON) tools/java.py

services: psql browser kafka postgres mariadb brokers ## all that tests need: found, or installed (Debian, as root or with sudo)

psql: ## PostgreSQL's client, for the tests: found, or installed (Debian, as root or with sudo)
	@$(PYTHON) tools/psql.py

browser: ## Chromium, for the tests of the console: found, or installed (Debian, as root or with sudo)
	@$(PYTHON) tools/browser.py

kafka: java ## Apache Kafka, for the tests: found in .cache, or resolved by Maven
	@$(PYTHON) tools/kafka.py

postgres: ## PostgreSQL's server, for the tests: found, or installed (Debian, as root or with sudo)
	@$(PYTHON) tools/postgres_server.py

brokers: ## Redis, Mosquitto and NATS, for the tests of their connectors: found, or installed
	@$(PYTHON) tools/brokers.py

mariadb: ## MariaDB's server, for the tests: found, or installed (Debian, as root or with sudo)
	@$(PYTHON) tools/mariadb_server.py

# ---- the virtual environment: each target installs what it needs, and leaves the rest as it is

UV := $(or $(shell command -v uv 2>/dev/null),.cache/uv/bin/uv)

.cache/uv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "millstream needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@echo "installing uv, which installs the rest"
	@$(PYTHON) -m venv .cache/uv
	@.cache/uv/bin/python -m pip install --quiet --disable-pip-version-check uv

# $(call installed,what,options of uv sync): installs it, says so, and notes that it is there. The
# engine's Java is compiled against the PySpark of the environment; the build of the package, which
# is isolated, would have to fetch another.
define installed
@echo "installing $(1), as pinned in uv.lock"
@$(PYTHON) tools/java.py
@$(UV) sync --frozen --inexact --python $(PYTHON) $(2) --no-install-project
@$(BIN)/python tools/compile_java.py
@$(UV) sync --frozen --inexact --python $(PYTHON) $(2)
@touch $@
endef

# The engine's Java, with its folders, whose times change when a file goes.
JAVA := $(shell find java/src/main) tools/compile_java.py

PINS := pyproject.toml uv.lock hatch_build.py $(JAVA) | $(UV)

$(VENV)/.ready-demo: $(PINS)
	$(call installed,Millstream and its server,--extra server)

$(VENV)/.ready-test: $(PINS)
	$(call installed,what the tests need,--all-extras --group test --group lint --group docs)

$(VENV)/.ready-docs: $(PINS)
	$(call installed,what the documentation needs,--all-extras --group docs)

$(VENV)/.ready-bench: $(PINS)
	$(call installed,what the benchmarks need,--all-extras --group bench)

$(VENV)/.ready: $(PINS)
	$(call installed,everything,--all-extras --group dev)

demo: $(VENV)/.ready-demo ## a simulated market: OHLC and VWAP on Spark, live, for 30 seconds, and the console
	$(BIN)/python examples/market_demo.py

pushdemo: $(VENV)/.ready-demo ## one filter, subscribed to in every style, without Spark
	$(BIN)/python examples/push_demo.py

crashdemo: $(VENV)/.ready-demo ## write, kill -9, reopen: nothing that was acknowledged is lost
	$(BIN)/python examples/crash_demo.py

# How many processes of tests there are: tests/sharing.py says for what reason.
PROCESSES ?= auto
PYTEST     = $(BIN)/python -m pytest -n $(PROCESSES) --durations 20

test: services $(VENV)/.ready-test ## lint, types, import layers, and all tests
	@$(MAKE) --no-print-directory --jobs $(LINTERS) java-test
	$(PYTEST)

check: services $(VENV)/.ready-test ## the quick loop: the same without the tests that take long
	@$(MAKE) --no-print-directory --jobs $(LINTERS) $(JAVA_STAMPS)/tested
	$(PYTEST) -q -x -m "not crash and not slow"

proof: services $(VENV)/.ready-test ## the long forms of random, repeated and exhaustive tests: hours
	MILLSTREAM_PROOF=1 MILLSTREAM_KILLS=20 $(PYTEST) -m proof --timeout 14400

# Maven takes long to find that nothing has changed. One at a time: all fetch into one folder.
JAVA_STAMPS := .cache/java
JAVA_PROJECT := $(shell find java -path java/target -prune -o -print) tools/maven.py

java-test: $(VENV)/.ready-test | $(JAVA_STAMPS)/formatted ## the tests of the engine's Java, by Maven, which is found, or installed
	$(BIN)/python tools/maven.py test
	@touch $(JAVA_STAMPS)/tested

$(JAVA_STAMPS)/tested: $(JAVA_PROJECT) | $(VENV)/.ready-test $(JAVA_STAMPS)/formatted
	$(BIN)/python tools/maven.py test
	@touch $@

$(JAVA_STAMPS)/formatted: $(JAVA_PROJECT) | $(VENV)/.ready-test
	$(BIN)/python tools/maven.py spotless:check
	@touch $@

# Each is one core's work: they run side by side.
LINTERS := lint-types lint-public-types lint-layers lint-style lint-java
.PHONY: lint java-test $(LINTERS)
lint: $(VENV)/.ready-test
	@$(MAKE) --no-print-directory --jobs $(LINTERS)

$(LINTERS): $(VENV)/.ready-test

lint-types:
	$(BIN)/mypy

lint-public-types:
	$(BIN)/python tools/public_types.py

lint-layers:
	$(BIN)/lint-imports --no-cache

lint-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-java: $(JAVA_STAMPS)/formatted

# ---- the quick tests elsewhere, each in an environment of its own: without Spark and services,
# ---- or those that TESTS names: make quick-lowest TESTS="tests/log tests/sql"

ELSEWHERE := .cache/venvs
APART := $(addprefix --ignore=tests/,on_spark connectors console notebook)
TESTS ?= src tests $(APART)
QUICK := bin/python -m pytest -q -p no:cacheprovider -m "not crash and not slow"

quick-python: | $(UV) ## the quick tests with another Python: make quick-python PYTHON=python3.13
	UV_PROJECT_ENVIRONMENT=$(ELSEWHERE)/python $(UV) sync --frozen --quiet --python $(PYTHON) --all-extras --group lint
	$(ELSEWHERE)/python/$(QUICK) $(TESTS)

quick-lowest: | $(UV) ## the quick tests with the lowest versions of dependencies that pyproject.toml allows
	$(UV) venv --quiet --clear --python $(PYTHON) $(ELSEWHERE)/lowest
	$(UV) pip compile --quiet --python $(PYTHON) --all-extras --group test --resolution lowest-direct --output-file $(ELSEWHERE)/lowest.txt pyproject.toml
	$(UV) pip install --quiet --python $(ELSEWHERE)/lowest --requirements $(ELSEWHERE)/lowest.txt --editable .
	$(ELSEWHERE)/lowest/$(QUICK) $(TESTS)

quick-bare: | $(UV) ## the quick tests without any extra: those that need none
	UV_PROJECT_ENVIRONMENT=$(ELSEWHERE)/bare $(UV) sync --frozen --quiet --python $(PYTHON) --group bare
	CI= $(ELSEWHERE)/bare/$(QUICK) -p tests.bare $(TESTS)

coverage: $(VENV)/.ready-test ## the share of lines and branches that the quick tests run, other processes among them
	rm -rf .cache/coverage
	mkdir -p .cache/coverage
	$(BIN)/coverage run -m pytest -q -p no:cacheprovider -m "not crash and not slow" $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered

bench: $(VENV)/.ready-bench ## the tables of figures in docs/benchmarks.md
	$(BIN)/python benchmarks/log.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/layout.py
	$(BIN)/python benchmarks/at_rest.py
	$(BIN)/python benchmarks/push.py
	$(BIN)/python benchmarks/views.py
	$(BIN)/python benchmarks/sql.py
	$(BIN)/python benchmarks/nexmark.py
	$(BIN)/python benchmarks/tpch.py
	$(BIN)/python benchmarks/postgres.py
	$(BIN)/python benchmarks/peers.py

docs: $(VENV)/.ready-docs ## the documentation as a site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html; with search: $(BIN)/python -m http.server --directory site"

format: $(VENV)/.ready-test ## format Python and Java, and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python tools/maven.py spotless:apply

wheel: | $(UV) ## the wheel in dist/, installed in an empty environment, where README's first example is run
	$(PYTHON) tools/wheel.py $(UV)

lock: | $(UV) ## pin the newest versions that pyproject.toml allows
	$(UV) lock --quiet --upgrade --default-index https://pypi.org/simple

clean: ## remove what the targets made
	rm -rf $(VENV) .cache site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
