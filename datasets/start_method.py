"""How worker processes are started, so that a script needs no ``if __name__ == "__main__"``.

Spawned processes run no user's code but what their pickled job imports; multiprocessing alone would run the script
again in each. A forked process needs no pickle, but copies every lock as it is, also one that another thread holds. A
job is therefore spawned where it can be: one for a data set here, or a user's that is no ``Dataset``, that pickles and
whose pickle names nothing of the script. A ``Dataset`` is forked where the system can, as PyTorch does on Linux:
it may refer to anything that the script has made by then.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import spawn
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any

from alpha import errors
from alpha.datasets.files import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

CAN_FORK = hasattr(os, "fork") and sys.platform != "darwin"  # there system libraries do not survive a fork


@dataclass(frozen=True)
class Start:
    """A way to start processes, and what they are given: a pickled job, or the job itself in a fork."""

    context: Any
    job: Any
    runs_script: bool = True


def context_of(name: Any) -> Any:
    """The context that ``multiprocessing_context`` names or is; None for the default."""
    if name is None or isinstance(name, BaseContext):
        return name
    if name not in multiprocessing.get_all_start_methods():
        methods = ", ".join(multiprocessing.get_all_start_methods())
        raise errors.ArgumentError(
            f"[DataLoader] expected multiprocessing_context as a context or one of {methods}, got "
            f"{errors.described(name)}"
        )
    return multiprocessing.get_context(name)


def choose(job: Any, count: int, chosen: Any, prefers_fork: bool) -> Start:
    """How to start ``count`` processes for a job; ArgumentError where the job does not pickle and cannot do without."""
    context = context_of(chosen)
    if context is not None and context.get_start_method() == "fork":
        return Start(context, job)
    if context is None and prefers_fork and CAN_FORK:
        return Start(multiprocessing.get_context("fork"), job)
    try:
        pickled = pickle.dumps(job, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # user code decides what pickling raises
        if context is None and CAN_FORK:
            return Start(multiprocessing.get_context("fork"), job)
        raise errors.ArgumentError(
            f"[DataLoader] expected a data set that can be pickled for num_workers={count}, got {one_line(error)}: "
            "define its class, functions and transforms at the top of a module, or use num_workers=0"
        ) from error
    names_script = b"__main__" in pickled
    if context is None and names_script and CAN_FORK:
        return Start(multiprocessing.get_context("fork"), job)
    return Start(context or multiprocessing.get_context("spawn"), pickled, names_script)


class _Starting(threading.local):
    """Whether this thread starts processes that are not to run the script again."""

    without_script = False


_STARTING = _Starting()
_preparation = spawn.get_preparation_data


def _preparation_without_script(name: str) -> dict[str, Any]:
    """What multiprocessing tells a new process; without the script where this thread starts a worker without it."""
    data: dict[str, Any] = _preparation(name)
    if _STARTING.without_script:
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
    return data


# multiprocessing has no setting for it: whatever a process is to do, it runs the script again first.
spawn.get_preparation_data = _preparation_without_script


@contextmanager
def without_script(wanted: bool) -> Iterator[None]:
    """Processes that this thread spawns meanwhile do not run the script again, if so wanted."""
    _STARTING.without_script = wanted
    try:
        yield
    finally:
        _STARTING.without_script = False
