# make demo, make test and the rest set themselves up: see .ci/setup.
VENV := .venv/bin

.PHONY: setup demo test lint bench lock clean

setup:
	@.ci/setup

demo: setup            ## play one compressed day under Serve's own autoscaler and under Leadtime
	@$(VENV)/leadtime demo

test: setup            ## every test but the real-vLLM group
	@.ci/test

lint: setup            ## format, lint, types, architecture
	$(VENV)/ruff format --check .
	$(VENV)/ruff check .
	$(VENV)/mypy
	$(VENV)/lint-imports

bench: setup           ## cost of a tick, of the idle daemon, of the command line
	@$(VENV)/python -m tests.benchmarks

lock: setup            ## resolve the pins again, held to those of real vLLM on CPU
	$(VENV)/python -m pip install --quiet uv
	$(VENV)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-header --constraints requirements-vllm-cpu.lock --extra serve --extra dev \
	  --output-file requirements.lock pyproject.toml

clean:                 ## remove what make made
	rm -rf .venv build dist demo-out bench-out *.egg-info
