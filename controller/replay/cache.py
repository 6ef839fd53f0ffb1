"""Runs kept on disk under the hash of everything they depend on."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(".leadtime-cache")
REPLAY = Path(__file__).parent
CORE = REPLAY.parent / "core"
# These look at runs and cannot change one.
READERS = frozenset(
    {
        "cache.py",
        "causes.py",
        "compare.py",
        "frontier.py",
        "pool.py",
        "report.py",
        "sweep.py",
        "tables.py",
    }
)

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of runs, each numbers and arrays; None keeps nothing."""

    folder: Path | None = FOLDER

    def kept(
        self, key: str, make: Callable[[], tuple[dict[str, Any], Arrays]]
    ) -> tuple[dict[str, Any], Arrays]:
        """What is kept under `key`; made and kept if nothing is, or nothing that can be read."""
        if self.folder is None:
            return make()
        path = self.folder / key[:2] / f"{key}.npz"
        found = _read(path)
        if found is not None:
            return found
        values, arrays = make()
        _write(path, values, arrays)
        return values, arrays


def _read(path: Path) -> tuple[dict[str, Any], Arrays] | None:
    try:
        with np.load(path, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        values = json.loads(bytes(arrays.pop("values")))
    except (OSError, ValueError, KeyError, EOFError):
        return None
    return values, arrays


def _write(path: Path, values: Mapping[str, Any], arrays: Arrays) -> None:
    """All or nothing, whoever else writes the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = np.frombuffer(json.dumps(values).encode(), np.uint8)
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(descriptor, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, values=text, **dict(arrays))
    Path(name).replace(path)


@cache
def code_hash(core: bool) -> str:
    """A hash of the code that a run depends on: this folder, and the planner's own if `core`."""
    digest = hashlib.sha256(np.__version__.encode())
    folders = (REPLAY, CORE) if core else (REPLAY,)
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if not (path.parent == REPLAY and path.name in READERS):
                digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def content_hash(*values: object) -> str:
    """A hash of plain values, arrays, and what is built of them; equal content, equal hash."""
    digest = hashlib.sha256()
    for value in values:
        _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: object) -> None:
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value):
        digest.update(type(value).__name__.encode() + b"<")
        for entry in fields(value):
            _feed(digest, getattr(value, entry.name))
        digest.update(b">")
    elif isinstance(value, Mapping):
        _feed(digest, sorted(value.items()))
    elif isinstance(value, list | tuple):
        digest.update(b"(")
        for item in value:
            _feed(digest, item)
        digest.update(b")")
    elif value is None or isinstance(value, str | int | float):
        digest.update(f"{type(value).__name__}:{value!r};".encode())
    else:
        raise TypeError(f"a {type(value).__name__} has no content hash")
