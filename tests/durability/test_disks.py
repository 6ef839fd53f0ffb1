"""A full disk, a read-only one, a damaged file: scaling goes on, it is said, nothing is lost."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def on_a_small_disk(kind: str, folder: Path) -> dict[str, Any]:
    """What the daemon saw; skipped where no file system can be mounted."""
    private = ["unshare", "--mount", "--propagation", "private"]
    try:
        subprocess.run([*private, "mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("file systems cannot be mounted here (needs root and util-linux)")
    command = [*private, sys.executable, "-m", "tests.durability.small_disk", kind, str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("kind", "said"), [("full", "disk is full"), ("read-only", "mounted read-only")]
)
def test_scaling_goes_on_and_nothing_is_lost(kind: str, said: str, tmp_path: Path) -> None:
    seen = on_a_small_disk(kind, tmp_path)
    during, after = seen["during"], seen["after"]
    assert said in during["problem"]
    assert during["errors"] >= 6
    assert during["waiting"] >= 6
    assert during["scales"]
    assert after == {"waiting": 0, "problem": "", "lost": 0, "scales": True}


def test_a_disk_that_is_full_from_the_start_keeps_nobody_from_scaling(tmp_path: Path) -> None:
    seen = on_a_small_disk("full from the start", tmp_path)
    assert "disk is full" in seen["problem"]
    assert seen["scales"] == "True"
    assert seen["kept"] >= 4
