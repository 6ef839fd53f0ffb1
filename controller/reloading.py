"""New settings while the daemon runs: read again on SIGHUP and when the file changes, taken whole
or not at all."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from controller.settings import Settings, SettingsError, load

LOOK_EVERY_S = 2.0
# What planners, the journal or who asks us is built upon.
FIXED = (
    "season_s",
    "tick_s",
    "history_seasons",
    "prometheus.scrape_s",
    "http.host",
    "http.port",
    "journal.path",
)
# Shown as changed, never with what they hold.
HIDDEN = ("headers", "token", "bearer", "password", "secret", "url")

Signature = tuple[int, int, int] | None


def changes(before: Settings, after: Settings) -> dict[str, str]:
    """Each setting that differs, by its dotted name, as "8 -> 12"; secrets as "changed"."""
    old, new = (dict(_flat("", each.model_dump(mode="json"))) for each in (before, after))
    said = {}
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was != now or _secret(before, name) != _secret(after, name):
            hidden = name.rpartition(".")[2] in HIDDEN
            said[name] = "changed" if hidden else f"{_short(was)} -> {_short(now)}"
    return said


def refusal(changed: Mapping[str, str]) -> str:
    """Why these changes cannot be made while the daemon runs; empty if they can."""
    fixed = [name for name in FIXED if name in changed]
    return f"{', '.join(fixed)}: cannot change while the daemon runs; restart it" if fixed else ""


class Reloading:
    """Watches the settings' file. `use` is given new settings with what changed, and may raise
    SettingsError; `refused` hears of every refusal, and the settings in force stay as they are."""

    def __init__(
        self,
        path: Path | None,
        settings: Settings,
        use: Callable[[Settings, Mapping[str, str]], None],
        refused: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self._path = path
        self._use = use
        self._refused = refused
        self._asked = asyncio.Event()
        self._seen = self._signature()

    def ask(self) -> None:
        """Read the settings again, changed or not."""
        self._asked.set()

    async def watch(self) -> None:
        """Look every 2 s and whenever asked, for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        """Read the settings again if the file is another, or if asked to."""
        signature, asked = self._signature(), self._asked.is_set()
        self._asked.clear()
        if not asked and signature in (self._seen, None):
            return
        self._seen = signature
        try:
            new = load(self._path)
            changed = changes(self.settings, new)
            why = refusal(changed)
            if why:
                raise SettingsError(why)
            if changed or asked:
                self._use(new, changed)
            self.settings = new
        except SettingsError as error:
            self._refused(str(error))

    def _signature(self) -> Signature:
        """Tells one content from another without reading it; None while there is no file."""
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Leaves of nested mappings, and of lists, by their dotted names."""
    inner = dict(enumerate(value)) if isinstance(value, list) else value
    if not isinstance(inner, dict) or not inner:
        yield prefix, value
        return
    for key, each in inner.items():
        yield from _flat(f"{prefix}.{key}" if prefix else str(key), each)


def _secret(settings: Settings, name: str) -> Any:
    """What a secret holds, to be compared; None for every other setting."""
    found: Any = settings
    for part in name.split("."):
        if isinstance(found, list):
            found = found[int(part)] if int(part) < len(found) else None
        else:
            found = found.get(part) if isinstance(found, dict) else getattr(found, part, None)
    return found.get_secret_value() if hasattr(found, "get_secret_value") else None


def _short(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)
