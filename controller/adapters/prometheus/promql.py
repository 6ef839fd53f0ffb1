"""PromQL built with escaping, whatever an application, label or selector is called."""

from collections.abc import Iterable, Mapping

SPECIAL = frozenset("\\.+*?()|[]{}^$")


def string(value: str) -> str:
    """A PromQL string literal."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def any_of(values: Iterable[str]) -> str:
    """A regular expression (RE2) that matches exactly these strings."""
    return "|".join(
        "".join(f"\\{char}" if char in SPECIAL else char for char in value) for value in values
    )


def selector(names: Iterable[str], labels: Mapping[str, str], extra: str = "") -> str:
    """A series selector for any of the metric names, with every label equal to its value."""
    matchers = [f"__name__=~{string(any_of(names))}"]
    matchers += [f"{label}={string(value)}" for label, value in labels.items()]
    return "{" + ",".join([*matchers, *([extra] if extra else [])]) + "}"


def duration(seconds: float) -> str:
    """A PromQL duration of whole milliseconds."""
    return f"{round(seconds * 1000)}ms"
