"""A wall clock that steps, for processes of their own; durations go on as if nothing were."""

from collections.abc import Mapping
from pathlib import Path

import pytest


class SteppedClock:
    """The wall clock of processes started with `env`. Skips the test where Debian's `faketime` is
    not installed."""

    def __init__(self, folder: Path) -> None:
        found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        if not found:
            pytest.skip("faketime is not installed: make setup")
        self._library = found[0]
        self._said = folder / "clock"
        self.step(0.0)

    @property
    def env(self) -> Mapping[str, str]:
        """The environment of a process that has this clock."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._said),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def step(self, off_s: float) -> None:
        """From now on the clock is off by so much."""
        written = self._said.with_suffix(".new")
        written.write_text(f"{off_s:+.0f}\n")
        written.replace(self._said)
