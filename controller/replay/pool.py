"""Many runs at once: in processes of this machine, or as tasks of a Ray cluster."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from enum import StrEnum
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

T = TypeVar("T")
R = TypeVar("R")


class Engine(StrEnum):
    """Where runs are made."""

    PROCESSES = "processes"
    RAY = "ray"


class EngineError(RuntimeError):
    """The engine cannot be used; the message says why and what to do."""


def default_workers() -> int:
    """One a core that this process may use."""
    return len(os.sched_getaffinity(0))


def each(
    work: Callable[[T], R], tasks: Sequence[T], engine: Engine, workers: int
) -> Iterator[tuple[int, R]]:
    """(place of the task, its result) as they come; the first failure is raised.

    One worker of this machine is this process itself.
    """
    if engine is Engine.RAY:
        return _in_ray(work, tasks)
    if workers == 1 or len(tasks) == 1:
        return ((place, work(task)) for place, task in enumerate(tasks))
    return _in_processes(work, tasks, workers)


def _in_processes(
    work: Callable[[T], R], tasks: Sequence[T], workers: int
) -> Iterator[tuple[int, R]]:
    pool = ProcessPoolExecutor(
        min(workers, len(tasks)), multiprocessing.get_context("spawn"), _one_thread
    )
    try:
        places = {pool.submit(work, task): place for place, task in enumerate(tasks)}
        for future in as_completed(places):
            yield places[future], future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> None:
    """The workers are as many as the cores: each takes one."""
    threadpool_limits(1)


def _in_ray(work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
    try:
        import ray
    except ImportError:
        raise EngineError("--engine ray needs Ray: pip install 'leadtime[serve]'") from None
    if not ray.is_initialized():
        ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False)
    remote: Any = ray.remote(num_cpus=1)(work)
    places = {remote.remote(task): place for place, task in enumerate(tasks)}
    waiting = list(places)
    while waiting:
        done, waiting = ray.wait(waiting)
        for reference in done:
            yield places[reference], ray.get(reference)
