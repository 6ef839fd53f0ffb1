"""numba's njit here and below: cached on disk, rebuilt when any compiled file there changes."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def _stamp() -> str:
    """A hash of every file here that holds compiled functions."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        content = path.read_bytes()
        if b"@compiled" in content or b"@inlined" in content:
            digest.update(content)
    return digest.hexdigest()


STAMP = _stamp()


def _compile(function: F, **options: bool) -> F:
    # No function here makes an array, so numba may leave out the reference counts that it would
    # keep for each array of the struct at each call: the event loop runs 4 times as fast.
    options |= {"nogil": True, "_nrt": False}
    try:
        dispatcher = njit(cache=True, error_model="numpy", **options)(function)
        # numba's own cache looks at the function's file alone, and would serve stale machine code
        # after an edit of a function that it calls in another file.
        dispatcher._cache._cache_file._source_stamp = STAMP  # noqa: SLF001
    except (RuntimeError, AttributeError):  # no folder can be written: compile in each process
        dispatcher = njit(error_model="numpy", **options)(function)
    return cast("F", dispatcher)


def compiled(function: F) -> F:
    """Compile `function` at its first call; later processes load it from disk.

    It must make no arrays; division by zero gives inf or NaN.
    """
    return _compile(function)


def inlined(function: F) -> F:
    """As `compiled`, and merged into its callers: for the short functions of a hot loop."""
    return _compile(function, forceinline=True)
