"""Charts as SVG drawn here: a page of a few kilobytes, no script, readable without colour."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from controller.adapters.page.history import Point

WIDTH, HEIGHT = 640, 180
LEFT, RIGHT, TOP, BOTTOM = 40, 8, 10, 22
MOST_POINTS = 240
SPAN_S = 1800.0


@dataclass(frozen=True, slots=True)
class Line:
    """A named line: its points as SVG wants them."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Everything that the template draws; coordinates in a box of WIDTH x HEIGHT."""

    title: str
    summary: str
    lines: tuple[Line, ...]
    band: str
    now: float
    lead: float | None
    lead_text: str
    rows: tuple[Tick, ...]
    columns: tuple[Tick, ...]


@dataclass(frozen=True, slots=True)
class _Scale:
    start_s: float
    end_s: float
    top: float

    def x(self, at_s: float) -> float:
        share = (at_s - self.start_s) / max(self.end_s - self.start_s, 1e-9)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - min(value / self.top, 1.0) * (HEIGHT - TOP - BOTTOM)

    def path(self, pairs: Iterable[tuple[float, float]], stepped: bool = False) -> str:
        found = ""
        for at_s, value in pairs:
            x, y = self.x(at_s), self.y(value)
            if found and stepped:
                found += f"H{x:.1f}V{y:.1f}"
            else:
                found += f"{'L' if found else 'M'}{x:.1f} {y:.1f}"
        return found


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most MOST_POINTS of them, the newest among them."""
    step = max(1, -(-len(points) // MOST_POINTS))
    return list(points[::-1][::step])[::-1]


def load_chart(points: Sequence[Point], now_s: float, lead_s: float) -> Chart:
    """Arrivals against the band that was forecast for each moment, up to one lead ahead."""
    shown = [p for p in points if p.at_s >= now_s - SPAN_S]
    start_s = min([p.at_s for p in shown], default=now_s - 60)
    bands = [(p.band_at_s, p.band) for p in shown if p.band is not None and p.band_at_s is not None]
    bands = [(at_s, band) for at_s, band in bands if at_s >= start_s]
    end_s = max([at_s for at_s, _ in bands], default=now_s + lead_s)
    loads = [p.demand_rps for p in shown if p.demand_rps is not None]
    top = nice(max([*loads, *(band[1] for _, band in bands), 1e-3]))
    scale = _Scale(start_s, max(end_s, now_s), top)
    bands = bands[:: max(1, len(bands) // MOST_POINTS)]
    upper = [(at_s, band[1]) for at_s, band in bands]
    lower = [(at_s, band[0]) for at_s, band in bands]
    outline = scale.path([*upper, *reversed(lower)])
    last = f"{loads[-1]:.2f}" if loads else "not known"
    ahead = f"{bands[-1][1][0]:.2f} to {bands[-1][1][1]:.2f}" if bands else "not known"
    return Chart(
        "Load",
        f"Arrivals now {last} requests per second; expected in {lead_s:.0f} s: {ahead}.",
        tuple(Line("arrivals", path) for path in _unbroken(scale, thinned(shown), "demand_rps")),
        outline + "Z" if outline else "",
        scale.x(now_s),
        scale.x(min(now_s + lead_s, scale.end_s)),
        f"lead {lead_s:.0f} s",
        _rows(scale),
        _columns(scale, now_s),
    )


def replica_chart(points: Sequence[Point], now_s: float) -> Chart:
    """Wanted, requested and ready."""
    shown = [p for p in points if p.at_s >= now_s - SPAN_S]
    start_s = min([p.at_s for p in shown], default=now_s - 60)
    counts = [n for p in shown for n in (p.wanted, p.requested, p.ready) if n is not None]
    scale = _Scale(start_s, now_s, nice(max([*counts, 1])))
    lines = [
        Line(name, path)
        for name in ("wanted", "requested", "ready")
        for path in _unbroken(scale, thinned(shown), name, stepped=True)
    ]
    last = shown[-1] if shown else None
    said = "no decision yet"
    if last is not None:
        said = f"wanted {last.wanted}, requested {_or_unknown(last.requested)}"
        said += f", ready {_or_unknown(last.ready)}"
    return Chart(
        "Replicas",
        f"Now {said}.",
        tuple(lines),
        "",
        scale.x(now_s),
        None,
        "",
        _rows(scale),
        _columns(scale, now_s),
    )


def nice(top: float) -> float:
    """The next of 1, 2, 5 times a power of ten, so that the axis has round marks."""
    power = 10.0 ** len(str(int(top))) / 10 if top >= 1 else 1e-3
    while True:
        for factor in (1, 2, 4, 5, 8, 10):
            if factor * power >= top:
                return factor * power
        power *= 10


def _unbroken(
    scale: _Scale,
    points: Sequence[Point],
    figure: str,
    stepped: bool = False,
) -> list[str]:
    """One path for each stretch in which the value is known: no line over what is not."""
    paths = []
    pairs = [(point.at_s, getattr(point, figure)) for point in points]
    for known, stretch in groupby(pairs, lambda pair: pair[1] is not None):
        if known:
            paths.append(scale.path(stretch, stepped))
    return paths


def _rows(scale: _Scale) -> tuple[Tick, ...]:
    return tuple(Tick(scale.y(scale.top * n / 2), f"{scale.top * n / 2:g}") for n in range(3))


def _columns(scale: _Scale, now_s: float) -> tuple[Tick, ...]:
    span_s = now_s - scale.start_s
    if span_s < 30:
        return (Tick(scale.x(now_s), "now"),)
    marks = [Tick(scale.x(now_s - span_s * n / 2), f"-{_span(span_s * n / 2)}") for n in (2, 1)]
    return (*marks, Tick(scale.x(now_s), "now"))


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _or_unknown(number: int | None) -> str:
    return "not known" if number is None else str(number)
