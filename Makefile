# `make test` on a machine with Python, a C++ compiler, make and git: everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO_READY := .venv-demo/.ready
OLDEST_READY := .venv-oldest/.ready
# Build back ends are pinned too: pip reads this in its isolated build environments as well.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: test test-oldest lint types docs demo bench clean

test: lint types docs
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

# The plugin on the oldest versions that pyproject.toml declares. Left out: what starts processes, which `make test` has,
# and torch.compile of a whole module, where Lightning 2.6.0 itself fails with the torch of then.
test-oldest: $(OLDEST_READY)
	.venv-oldest/bin/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal \
		-k "not compiled and not signals and not killed and not shell and not namespace" \
		$(foreach name,rounds schedulers lightning_callbacks checkpoint_names finished_runs cli_rounds loaders embedding,\
		tests/plugin/test_$(name).py)

$(OLDEST_READY): pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv .venv-oldest
	PIP_CONSTRAINT=$(CURDIR)/constraints-oldest.txt .venv-oldest/bin/python -m pip install --editable ".[test]"
	touch $@

# The site, into out/site; a broken link or a docstring that does not match its signature is an error.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# Five selectors on scikit-learn's digits: a table, then the path of the report. Its own environment, without the tools
# of development and without torch-cluster, which would have to be compiled.
demo: $(DEMO_READY)
	.venv-demo/bin/lightning-diffal demo --out out/demo

$(DEMO_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/python -m pip install --editable ".[experiments]"
	touch $@

# The short form of every benchmark, its table into out/bench; `make bench DATA=DIR` also those that need data sets.
bench: $(READY)
	$(BIN)/python tools/run_benchmarks.py $(if $(DATA),--data $(DATA))

$(READY): pyproject.toml constraints.txt tools/install_torch_cluster.py
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --upgrade pip
	$(BIN)/python -m pip install --editable ".[dev]"
	$(BIN)/python tools/install_torch_cluster.py
	touch $@

clean:
	rm -rf .venv .venv-demo .venv-oldest out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
