"""Chaos on real servers: `python -m tests.chaos [--seconds S] [--seed N] [--way policy|floor]`.

The same load and the same faults, first under Serve's own autoscaling, then with Leadtime, which is
struck, too. Prints what came of each fault; the exit code is 1 where an invariant is broken. What
the servers logged stays below `chaos-out/`.
"""

import argparse
import shutil
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tests.chaos.invariants import Timeline, broken
from tests.chaos.playing import NATIVE, RULES, play
from tests.chaos.schedule import schedule, without_daemon
from tests.chaos.table import table

OUT = Path("chaos-out")
WAYS = ("policy", "floor")


def run(out: Path, way: str, seed: int, span_s: float) -> tuple[list[str], str]:
    """Play both runs below `out`; returns the broken invariants and the table."""
    faults = schedule(seed, span_s)
    shutil.rmtree(out, ignore_errors=True)
    runs: dict[str, Timeline] = {}
    with Progress(*Progress.get_default_columns(), console=Console(stderr=True)) as bar:
        tasks = {name: bar.add_task(name, total=span_s) for name in (NATIVE, way)}

        def tell(name: str, at_s: float) -> None:
            bar.update(tasks[name], completed=at_s)

        for name, struck in ((NATIVE, without_daemon(faults)), (way, faults)):
            runs[name] = play(out / name, name, seed, span_s, struck, tell)
            tell(name, span_s)
    ours, native = runs[way], runs[NATIVE]
    return broken(ours, native, RULES), table(faults, ours, native, RULES)


def main() -> int:
    """Do as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long faults come")
    parser.add_argument("--seed", type=int, default=1, help="same seed, same load and faults")
    parser.add_argument("--way", choices=WAYS, default="policy", help="how Leadtime scales")
    asked = parser.parse_args()
    told, shown = run(OUT.resolve(), asked.way, asked.seed, asked.seconds)
    print(f"seed {asked.seed}, {asked.seconds:.0f} s, way {asked.way}\n\n{shown}")
    for each in told:
        print(f"BROKEN: {each}")
    return int(bool(told))


if __name__ == "__main__":
    raise SystemExit(main())
