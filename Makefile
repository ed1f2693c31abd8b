# Two commands are enough: `make demo` and `make test`. Both make .venv from pinned requirements first.
.PHONY: bench-train setup setup-dev demo test bench bench-data lock web test-browser
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-input --quiet

setup: $(RUNTIME)
setup-dev: $(DEV)

$(BIN)/python:
	@python=$$(tools/find-python) && echo "making $(VENV) with $$python" && "$$python" -m venv $(VENV)

$(RUNTIME): requirements/runtime.txt pyproject.toml | $(BIN)/python
	@echo "installing pinned requirements (about 500 MB, a minute or two)"
	@$(PIP) --require-hashes --requirement requirements/runtime.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): requirements/dev.txt $(RUNTIME)
	@echo "installing pinned test and lint tools"
	@$(PIP) --require-hashes --requirement requirements/dev.txt
	@touch $@

demo: $(RUNTIME)
	@$(BIN)/forerun demo $(ARGS)

test: $(DEV)
	@$(BIN)/python -m pytest -n auto $(ARGS)

# The front end is committed as built; this builds it again from web/ (Node 20.19 or newer). Users never need it.
web:
	@cd web && npm ci --no-audit --no-fund && npm run build

# Clicks through the site in Debian's chromium; installs what only these tests need.
test-browser: $(DEV)
	@tools/browser-setup $(BIN)/python
	@$(BIN)/python -m pytest -m browser -p no:xdist $(ARGS)

# Benchmarks install their peers in environments of their own; each prints ratios measured in one run.
bench: $(DEV)
	@$(BIN)/forerun bench forecast
	@$(BIN)/python benchmarks/record/journal.py

# Data bars, about an hour with all peers: the corpus is gathered from Debian packages, the peers get environments of their own.
BENCH_DATA := benchmarks/.peers/data
bench-data: $(DEV)
	@$(BIN)/python benchmarks/data/gather.py $(BENCH_DATA)
	@$(BIN)/python benchmarks/data/web_text.py $(BENCH_DATA)/downloads/debian
	@for bench in minhash verified decontam encode embed kmeans scoring; do $(BIN)/python benchmarks/data/$$bench.py $(BENCH_DATA)/corpus.parquet; done
	@$(BIN)/python benchmarks/data/engine.py overhead $(BENCH_DATA)/corpus/debian --sides loop,native,native-1,native-2 --rounds 1
	@for part in identical kills; do $(BIN)/python benchmarks/data/engine.py $$part $(BENCH_DATA)/corpus.parquet --megabytes 10 --sides loop,native,native-1,native-2; done
	@$(BIN)/python benchmarks/data/engine.py rerun $(BENCH_DATA)/corpus/debian
	@$(BIN)/python benchmarks/data/table.py

bench-train: $(DEV)
	@$(BIN)/python benchmarks/train/run.py $(ARGS)

lock: $(DEV)
	@tools/lock
