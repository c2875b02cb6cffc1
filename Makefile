# Every target sets up what it needs by itself; when nothing changed, that costs nothing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help install java services psql browser kafka postgres mariadb brokers demo pushdemo crashdemo test check bench docs lock format clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(READY) ## the virtual environment, with everything pinned

java: ## Java 17 or newer: found, or installed (Debian, as root or with sudo)
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

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "millstream needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: java $(READY) ## a simulated market: OHLC and VWAP on Spark, live, for 30 seconds, and the console
	$(BIN)/python examples/market_demo.py

pushdemo: $(READY) ## one filter, subscribed to in every style, without Spark
	$(BIN)/python examples/push_demo.py

crashdemo: $(READY) ## write, kill -9, reopen: nothing that was acknowledged is lost
	$(BIN)/python examples/crash_demo.py

test: java services $(READY) lint ## lint, types, import layers, and all tests
	$(BIN)/python tools/run_tests.py

check: java services $(READY) lint ## the quick loop: the same without the tests that take long
	$(BIN)/python tools/run_tests.py --quick -q -x

.PHONY: lint
lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: java $(READY) ## the tables of figures in docs/benchmarks.md
	$(BIN)/python benchmarks/log.py
	$(BIN)/python benchmarks/layout.py
	$(BIN)/python benchmarks/at_rest.py
	$(BIN)/python benchmarks/push.py
	$(BIN)/python benchmarks/views.py
	$(BIN)/python benchmarks/sql.py
	$(BIN)/python benchmarks/nexmark.py
	$(BIN)/python benchmarks/tpch.py
	$(BIN)/python benchmarks/postgres.py
	$(BIN)/python benchmarks/peers.py

docs: $(READY) ## the documentation as a site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html; with search: $(BIN)/python -m http.server --directory site"

format: $(READY) ## fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(READY) ## pin the newest versions that pyproject.toml allows
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --upgrade \
	  --python-version 3.11 --all-extras --group dev pyproject.toml -o requirements.lock

clean: ## remove what the targets made
	rm -rf $(VENV) .cache site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
