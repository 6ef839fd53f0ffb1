"""Known events on the clock: cron lines, time zones and their changes, spans that join."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from controller.adapters.calendar import Calendar, Entry

BERLIN = ZoneInfo("Europe/Berlin")
DAY_S = 86_400.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def starts(entry: Entry, since: str, days: float = 1) -> list[str]:
    found = Calendar([entry]).events(at(since), at(since) + days * DAY_S)
    return [datetime.fromtimestamp(event.start_s, BERLIN).isoformat() for event in found]


def daily(cron: str, duration_s: float = 600.0) -> Entry:
    return Entry("daily", duration_s, BERLIN, cron=cron, multiple=3.0)


@pytest.mark.parametrize(
    ("cron", "since", "expected"),
    [
        pytest.param(
            "0 9 * * *",
            "2026-03-28T12:00+01:00",
            ["2026-03-29T09:00:00+02:00", "2026-03-30T09:00:00+02:00"],
            id="nine stays nine when summer comes",
        ),
        pytest.param(
            "0 9 * * *",
            "2026-10-24T12:00+02:00",
            ["2026-10-25T09:00:00+01:00", "2026-10-26T09:00:00+01:00"],
            id="nine stays nine when winter comes",
        ),
        pytest.param(
            "30 2 * * *",
            "2026-03-28T12:00+01:00",
            ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
            id="a time left out comes right after the change",
        ),
        pytest.param(
            "30 2 * * *",
            "2026-10-24T12:00+02:00",
            ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"],
            id="a time that comes twice counts once",
        ),
        pytest.param(
            "0 9 * * MON",
            "2026-10-24T12:00+02:00",
            ["2026-10-26T09:00:00+01:00"],
            id="Mondays only",
        ),
    ],
)
def test_a_cron_line_goes_by_the_clock_of_its_zone(
    cron: str, since: str, expected: list[str]
) -> None:
    assert starts(daily(cron), since, 2) == expected


def test_what_began_before_and_still_runs_is_there() -> None:
    entry = daily("0 9 * * *", 7200.0)
    assert starts(entry, "2026-06-01T10:59+02:00", 0.5) == ["2026-06-01T09:00:00+02:00"]
    assert starts(entry, "2026-06-01T11:00+02:00", 0.5) == []


def test_those_that_follow_on_each_other_are_one() -> None:
    events = Calendar([daily("* * * * *", 60.0)]).events(1e9, 1e9 + DAY_S)
    assert len(events) == 1
    assert events[0].touches(1e9, 1e9 + 1)
    assert events[0].end_s >= 1e9 + DAY_S


def test_a_start_comes_once_and_all_are_in_order() -> None:
    once = Entry("launch", 60.0, BERLIN, start_s=1e9 + 500, rate_rps=40.0)
    late = Entry("later", 60.0, BERLIN, start_s=1e9 + 900, multiple=2.0)
    past = Entry("past", 60.0, BERLIN, start_s=1e9 - 60, multiple=2.0)
    events = Calendar([late, past, once]).events(1e9, 1e9 + 1000)
    assert [(e.name, e.start_s, e.end_s) for e in events] == [
        ("launch", 1e9 + 500, 1e9 + 560),
        ("later", 1e9 + 900, 1e9 + 960),
    ]
    assert (events[0].rate_rps, events[0].multiple) == (40.0, None)
