"""Machine code on disk is used again, and never after an edit."""

from typing import Any

from controller.replay.compiled import STAMP, compiled
from controller.replay.events import advance


@compiled
def doubled(x: float) -> float:
    return 2 * x


def test_a_compiled_function_computes() -> None:
    assert doubled(2.5) == 5


def test_the_cache_is_stamped_with_every_compiled_file() -> None:
    loop: Any = advance
    # The attribute is numba's own; were it to move, each process would compile for ten seconds.
    assert loop._cache._cache_file._source_stamp == STAMP  # noqa: SLF001
