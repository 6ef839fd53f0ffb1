"""What the scorer and the load generator import stays light."""

import subprocess
import sys

import pytest

HEAVY = {"ray", "fastapi", "uvicorn", "pandas", "scipy", "sklearn"}


@pytest.mark.parametrize("module", ["law", "settings", "arrivals", "trace_files", "loadgen_cli"])
def test_knows_nothing_of_ray(module: str) -> None:
    code = f"import sys, serve_app.{module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not HEAVY & set(loaded)
