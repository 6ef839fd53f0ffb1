"""Runs in a mount namespace of its own: the journal on a disk of one megabyte that fills up, or
that is mounted read-only for a while. The real loop goes on scaling; prints what it saw as JSON.

Permissions would not stop root, so a real file system says no.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from controller.adapters.store import Journal, JournalError
from controller.adapters.telemetry import Telemetry
from controller.core.planning import Planner
from controller.core.ports import Known
from controller.core.types import Action, DeploymentId, Outcome, Readings, ScaleDeployment
from controller.loop import Loop
from controller.wiring import WatchedJournal
from tests.core.worlds import TARGET, World, planner
from tests.test_loop import FakeFits


def mount(*arguments: str) -> None:
    """Call mount(8)."""
    subprocess.run(["mount", *arguments], check=True)


def shell(command: str) -> None:
    """Run a command; it must succeed."""
    subprocess.run(["sh", "-c", command], check=True)


class Daemon:
    """The loop over a small world, with the journal on the small disk."""

    failures: tuple[str, ...] = ()

    def __init__(self, path: Path) -> None:
        self.live = World.with_replicas(3)
        self.scaled: list[int] = []
        self.telemetry = Telemetry(True)
        self.journal = Journal(path, 1e9)
        self.bounds = (3, 3)
        kept = WatchedJournal(self.journal, self.telemetry)
        now = lambda: self.live.at_s  # noqa: E731
        self.loop = Loop(self, self, self, (kept,), FakeFits(), self.telemetry, 10.0, now)

    async def replicas(self) -> Known:
        self.live.at_s += 10
        self.live.arrived += 50
        self.live.done += 50
        return {TARGET: self.live.readings().replicas}

    async def readings(self, now_s: float, replicas: Known) -> Mapping[DeploymentId, Readings]:
        return {TARGET: self.live.readings()}

    async def prepare(self, targets: Iterable[DeploymentId]) -> Mapping[DeploymentId, Planner]:
        least, most = self.bounds
        return {target: planner(min_replicas=least, max_replicas=most) for target in targets}

    async def refill(self, planners: Mapping[DeploymentId, Planner], now_s: float) -> None:
        pass

    async def apply(self, action: Action) -> Outcome:
        if isinstance(action, ScaleDeployment):
            self.scaled.append(action.replicas)
            self.live.scale(action.replicas)
        return Outcome(action, True, "")

    def errors(self) -> float:
        """Ticks that the journal could not keep, as our metrics count them."""
        page = self.telemetry.page().decode().splitlines()
        return float(next(x.split()[1] for x in page if x.startswith("leadtime_journal_errors_t")))

    async def tick(self, times: int = 1) -> None:
        for _ in range(times):
            await self.loop.tick()

    async def want(self, count: int) -> bool:
        """Whether another number is still carried out."""
        self.bounds = (count, count)
        self.loop.planners.clear()
        await self.tick()
        return self.scaled[-1:] == [count]


async def trouble(daemon: Daemon, begin: str, end: str) -> dict[str, object]:
    """What is seen before, during and after the trouble that two shell commands make."""
    await daemon.tick(3)
    before = daemon.errors()
    # The kernel mounts nothing read-only under an open file: the journal opens it again.
    daemon.journal.close()
    shell(begin)
    ticks = 0
    while daemon.journal.waiting == 0 and ticks < 2000:
        await daemon.tick()
        ticks += 1
    await daemon.tick(5)
    during = {
        "errors": daemon.errors() - before,
        "waiting": daemon.journal.waiting,
        "problem": daemon.journal.problem,
        "scales": await daemon.want(5),
    }
    shell(end)
    await daemon.tick(2)
    kept = len(daemon.journal.decisions(limit=10_000))
    ticked = round((daemon.live.at_s - World().at_s) / 10)
    after = {
        "waiting": daemon.journal.waiting,
        "problem": daemon.journal.problem,
        "lost": ticked - kept,
        "scales": await daemon.want(4),
    }
    return {"during": during, "after": after}


async def main(kind: str, folder: Path) -> None:
    """Have one kind of trouble."""
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder))
    journal, filler = folder / "leadtime.db", folder / "filler"
    commands = {
        "full": (f"cat /dev/zero > {filler} 2>/dev/null || true", f"rm {filler}"),
        "read-only": (f"mount -o remount,ro {folder}", f"mount -o remount,rw {folder}"),
    }
    if kind == "full from the start":
        shell(commands["full"][0])
        daemon = Daemon(journal)
        begun = {"problem": daemon.journal.problem}
        await daemon.tick(3)
        begun["scales"] = str(await daemon.want(5))
        filler.unlink()
        await daemon.tick()
        print(json.dumps({**begun, "kept": len(daemon.journal.decisions())}))
        return
    begin, end = commands[kind]
    try:
        print(json.dumps(await trouble(Daemon(journal), begin, end)))
    except JournalError as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
