"""Known events as people write them, turned into spans of seconds: cron lines, time zones."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo

from cronsim import CronSim

from controller.core.events import KnownEvent


@dataclass(frozen=True, slots=True)
class Entry:
    """An event of `duration_s` that begins at `start_s`, or whenever `cron` says on the clock of
    `zone`. A time that a change of the clock leaves out comes right after the change, one that
    comes twice counts once; a duration is of real seconds."""

    name: str
    duration_s: float
    zone: tzinfo
    cron: str | None = None
    start_s: float | None = None
    multiple: float | None = None
    rate_rps: float | None = None


class Calendar:
    """The events of one deployment."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = tuple(entries)

    def events(self, since_s: float, until_s: float) -> tuple[KnownEvent, ...]:
        """Every event that lies at least partly in [since_s, until_s), the earliest first; those
        of one entry that follow on each other are one."""
        found = [event for entry in self._entries for event in _joined(entry, since_s, until_s)]
        return tuple(sorted(found, key=lambda event: (event.start_s, event.name)))


def _joined(entry: Entry, since_s: float, until_s: float) -> list[KnownEvent]:
    joined: list[KnownEvent] = []
    for start_s in _starts(entry, since_s, until_s):
        end_s = start_s + entry.duration_s
        if joined and start_s <= joined[-1].end_s:
            start_s = joined.pop().start_s
        made = KnownEvent(entry.name, start_s, end_s, entry.multiple, entry.rate_rps)
        if made.touches(since_s, until_s):
            joined.append(made)
    return joined


def _starts(entry: Entry, since_s: float, until_s: float) -> Iterator[float]:
    if entry.start_s is not None:
        yield entry.start_s
    if entry.cron is not None:
        first = datetime.fromtimestamp(since_s - entry.duration_s, entry.zone)
        for at in CronSim(entry.cron, first):
            if at.timestamp() >= until_s:
                return
            yield at.timestamp()
