"""The table that `make chaos` prints."""

from collections.abc import Sequence

from tests.chaos.invariants import Rules, Timeline, failed_by, recovered_after_s, shortages
from tests.chaos.schedule import Fault

HEADER = ("fault", "at", "lasts", "recovered after", "(native)", "failed", "(native)")


def table(faults: Sequence[Fault], ours: Timeline, native: Timeline, rules: Rules) -> str:
    """A row a fault, then the sums."""
    columns = [_column(ours, rules), _column(native, rules)]
    rows = [HEADER]
    for fault in faults:
        at, lasts = f"{fault.at_s:.0f} s", f"{fault.lasts_s:.0f} s" if fault.lasts_s else ""
        (took, failed), (native_took, native_failed) = (
            column.get(fault.at_s, ("-", "-")) for column in columns
        )
        rows.append((str(fault), at, lasts, took, native_took, failed, native_failed))
    widths = [max(len(row[index]) for row in rows) for index in range(len(HEADER))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return "\n".join([*lines, "", _sums("ours", ours, rules), _sums("native", native, rules)])


def _column(run: Timeline, rules: Rules) -> dict[float, tuple[str, str]]:
    """What became of a run after each fault, by the fault's time."""
    failed = failed_by(run)[1:]
    column = {}
    for strike, count in zip(run.strikes, failed, strict=True):
        took_s = recovered_after_s(run, strike, rules)
        told = "never" if took_s is None else f"{took_s:.1f} s"
        column[strike.fault.at_s] = (told, str(count))
    return column


def _sums(name: str, run: Timeline, rules: Rules) -> str:
    short_s = [end_s - begin_s for begin_s, end_s in shortages(run, rules)]
    return (
        f"{name}: {len(run.failed_s)} of {len(run.due_s)} requests failed, "
        f"{100 * run.late_ratio:.1f} % failed or late; below the reactive need for "
        f"{sum(short_s):.1f} s, at most {max(short_s, default=0.0):.1f} s at once, "
        f"a lead is {run.lead_s:.1f} s"
    )
