"""The example settings file: every default, with the reason and the unit beside it."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from controller.settings import Settings

HEAD = """\
# Settings of Leadtime, every one at its default. Delete what you leave as it is.
# Any of them can be set from the environment too: LEADTIME_PROMETHEUS__URL=http://...
"""
WIDTH = 96


def render(settings: Settings | None = None) -> str:
    """The file as text; loading it gives the defaults."""
    return HEAD + "\n".join(_section(settings or Settings(), 0)) + "\n"


def _section(section: BaseModel, depth: int) -> list[str]:
    lines = []
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        indent = "  " * depth
        if depth == 0:
            lines.append("")
        lines += [f"{indent}# {line}" for line in _wrapped(_about(info), WIDTH - 2 * depth)]
        if isinstance(value, BaseModel):
            lines.append(f"{indent}{name}:")
            lines += _section(value, depth + 1)
        else:
            lines.append(f"{indent}{name}: {_yaml(value)}")
    return lines


def _about(info: FieldInfo) -> str:
    if info.description is None:
        return (info.annotation.__doc__ or "").strip() if info.annotation else ""
    bounds = [text for text in (_bound(mark) for mark in info.metadata) if text]
    return info.description + (f" ({', '.join(bounds)})" if bounds else "")


def _bound(mark: Any) -> str:
    for kind, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
        limit = getattr(mark, kind, None)
        if limit is not None:
            return f"{words} {limit:g}"
    return ""


def _yaml(value: Any) -> str:
    plain = str(value) if isinstance(value, Path) else value
    return yaml.safe_dump(plain, default_flow_style=True).removesuffix("...\n").strip()


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
