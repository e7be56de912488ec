"""The arguments of a DataLoader, checked: which of them go together, as PyTorch has it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

from alpha import errors
from alpha.arguments import number
from alpha.datasets.composed import Dataset, IterableDataset
from alpha.datasets.files import one_line

_POSITION = ("epoch", "batch", "seed")


def check_dataset(dataset: Any) -> None:
    """Raises ArgumentError for what is no data set, or one without samples that is no ``Dataset`` or list."""
    if isinstance(dataset, IterableDataset):
        return
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise errors.ArgumentError(
            f"[DataLoader] expected a data set with __len__ and __getitem__, got {type(dataset).__name__}: see "
            "alpha.utils.data.Dataset, and IterableDataset for one without indices"
        )
    try:
        length = len(dataset)
    except (TypeError, ValueError, OverflowError) as error:  # of a class, say, or of a negative or huge number
        raise errors.ArgumentError(
            f"[DataLoader] expected a data set whose len() is its number of samples, got {one_line(error)}: pass an "
            "instance, and check its __len__"
        ) from error
    if length == 0 and not isinstance(dataset, Dataset | list | tuple):
        raise errors.ArgumentError("[DataLoader] expected at least one sample, got an empty data set: give it images")


def check_order(dataset: Any, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any, drop_last: Any) -> None:
    """Raises ArgumentError where several arguments decide in which order samples come."""
    for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if value is None:
            continue
        if not isinstance(value, Iterable):
            raise errors.ArgumentError(
                f"[DataLoader] expected {name} as something to iterate over, got {errors.described(value)}: see "
                "alpha.utils.data.Sampler"
            )
        if isinstance(dataset, IterableDataset) or shuffle:
            other = "an IterableDataset, which has no indices" if isinstance(dataset, IterableDataset) else "shuffle"
            raise errors.ArgumentError(f"[DataLoader] expected one order, got {name} and {other}: leave out one")
    if isinstance(dataset, IterableDataset) and shuffle:
        raise errors.ArgumentError(
            "[DataLoader] expected a data set with indices for shuffle=True, got an IterableDataset: shuffle in its "
            "__iter__"
        )
    if batch_sampler is not None and (batch_size != 1 or sampler is not None or drop_last):
        raise errors.ArgumentError(
            "[DataLoader] expected batch_sampler without batch_size, sampler and drop_last, got more: it decides all"
        )
    if batch_size is None and drop_last:
        raise errors.ArgumentError("[DataLoader] expected drop_last=False with batch_size=None, got True: leave it out")


def check_position(state: Any, settings: Mapping[str, Any], length: int) -> None:
    """Raises CheckpointError for what is no position in an epoch of so many batches of a loader with these settings."""
    if not isinstance(state, Mapping):
        raise errors.CheckpointError(
            f"[DataLoader.load_state_dict] expected a state_dict, got {type(state).__name__}: load what "
            "DataLoader.state_dict() gave"
        )
    absent = [key for key in (*_POSITION, *settings) if key not in state]
    if absent:
        raise errors.CheckpointError(
            f"[DataLoader.load_state_dict] expected the keys of a state_dict, got none for {', '.join(absent)}: "
            "load what DataLoader.state_dict() gave"
        )
    for key, mine in settings.items():
        if not isinstance(state[key], int) or state[key] != mine:
            raise errors.CheckpointError(
                f"[DataLoader.load_state_dict] expected {key}={mine} as in this loader, got {state[key]}: make the "
                "loader with the settings of the run that is resumed"
            )
    numbers = [state[key] for key in _POSITION]
    if not all(isinstance(n, int) and n >= 0 for n in numbers) or state["batch"] > length:
        raise errors.CheckpointError(
            f"[DataLoader.load_state_dict] expected epoch, batch <= {length} and seed as numbers >= 0, got "
            f"{numbers}: the checkpoint is corrupt"
        )


def check_processes(
    count: int, timeout: Any, prefetch_factor: Any, persistent_workers: Any, init: Any
) -> tuple[float, int]:
    """The timeout in seconds, and the batches that each worker prepares ahead; ArgumentError for options of none."""
    seconds = number("DataLoader", "timeout", timeout)
    if not seconds >= 0:
        raise errors.ArgumentError(f"[DataLoader] expected timeout >= 0 seconds, got {seconds}: 0 waits for ever")
    ahead = 2 if prefetch_factor is None else at_least(1, "prefetch_factor", prefetch_factor)
    if not count and (prefetch_factor is not None or persistent_workers or seconds):
        name = "persistent_workers" if persistent_workers else "timeout" if seconds else "prefetch_factor"
        raise errors.ArgumentError(
            f"[DataLoader] expected num_workers >= 1 for {name}, got 0: give some, or leave it out"
        )
    check_callable("worker_init_fn", init)
    return seconds, ahead


def check_callable(name: str, value: Any) -> None:
    """Raises ArgumentError for what is neither None nor a function."""
    if value is not None and not callable(value):
        raise errors.ArgumentError(f"[DataLoader] expected {name} as a function, got {errors.described(value)}")


def check_name(name: str, value: Any) -> str:
    """``value`` if it is a string; ArgumentError else."""
    if not isinstance(value, str):
        raise errors.ArgumentError(f"[DataLoader] expected {name} as a string, got {errors.described(value)}")
    return value


def at_least(lowest: int, name: str, value: Any) -> int:
    """``value`` as an int, if it is one."""
    try:
        found = operator.index(value)
    except TypeError:
        found = lowest - 1
    if found < lowest or isinstance(value, bool):
        raise errors.ArgumentError(
            f"[DataLoader] expected {name} as an integer >= {lowest}, got {value!r}: give such a number"
        )
    return found
