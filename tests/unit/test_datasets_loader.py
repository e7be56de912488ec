"""DataLoader in one process: order, seeds, the position and its resumption, errors, and its background thread."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alpha
from alpha import errors
from alpha.datasets import ArrayDataset, DataLoader, transforms

AUGMENT = transforms.Compose(
    [
        transforms.RandomCrop(4, 2),
        transforms.RandomHorizontalFlip(),
        transforms.AlternatingFlip(),
        transforms.ToUnitRange(),
    ],
)


def images(n: int = 23) -> ArrayDataset:
    """Small random images; the label is the index, so that labels show the order."""
    rng = np.random.default_rng(n)
    return ArrayDataset(rng.integers(0, 256, (n, 4, 5, 3), dtype=np.uint8), np.arange(n), None, AUGMENT)


class Samples:
    """A user's own data set; sample ``broken`` raises, each takes ``delay`` seconds, and who made it is noted."""

    def __init__(self, n: int, broken: int | None = None, delay: float = 0.0) -> None:
        self.n, self.broken, self.delay = n, broken, delay
        self.made: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.made.append((index, threading.current_thread().name))
        time.sleep(self.delay)
        if index == self.broken:
            raise ValueError(f"sample {index} is broken")
        return np.full((2, 2, 1), index, np.uint8), index


Pair = tuple[bytes, list[int]]


def contents(loader: DataLoader) -> list[Pair]:
    """Every batch of the next epoch, to the bit."""
    return [(x.numpy().tobytes(), y.numpy().tolist()) for x, y in loader]


def labels(loader: DataLoader) -> list[list[int]]:
    return [y.numpy().tolist() for _, y in loader]


def prefetching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "alpha-prefetch"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert prefetching() == []


# -- what a batch is -------------------------------------------------------------------------------------------------


def test_batches_are_tensors_of_the_engine() -> None:
    x, y = next(iter(DataLoader(images(), batch_size=4)))
    assert isinstance(x, alpha.Tensor) and isinstance(y, alpha.Tensor)
    assert x.shape == (4, 4, 4, 3) and x.dtype == np.float32
    assert y.shape == (4,) and y.dtype == np.int64
    engine = alpha.engine("cpu")
    x, y = next(iter(DataLoader(images(), engine=engine)))
    assert x.engine is engine and y.engine is engine


def test_a_plain_data_set_comes_in_order_and_whole() -> None:
    loader = DataLoader(Samples(10), batch_size=4)
    assert len(loader) == 3 and labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    x, _ = list(loader)[1]
    np.testing.assert_array_equal(x.numpy(), np.arange(4, 8).reshape(4, 1, 1, 1) * np.ones((4, 2, 2, 1)))
    dropping = DataLoader(Samples(10), batch_size=4, drop_last=True)
    assert len(dropping) == 2 and labels(dropping) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    exact = DataLoader(Samples(8), batch_size=4, drop_last=True)
    assert len(exact) == 2 and len(labels(exact)) == 2


def test_shuffling_hands_out_each_sample_once_in_an_order_of_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        loader = DataLoader(images(), batch_size=5, shuffle=True, seed=seed)
        loader.epoch = epoch
        return [label for batch in labels(loader) for label in batch]

    orders = [order(seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert all(sorted(order) == list(range(23)) for order in orders)
    assert len({tuple(order) for order in [*orders, list(range(23))]}) == 7
    assert order(1, 2) == orders[-1]


def test_the_default_seed_is_alphas() -> None:
    def run(seed: int | None) -> list[list[Pair]]:
        loader = DataLoader(images(), batch_size=5, shuffle=True, seed=seed)
        return [contents(loader), contents(loader)]

    alpha.manual_seed(4)
    first = run(None)
    alpha.manual_seed(4)
    assert run(None) == first == run(4)
    alpha.manual_seed(5)
    assert run(None) != first
    assert run(4) == first


@pytest.mark.parametrize("prefetch", [1, 2, 50])
def test_prefetching_changes_nothing(prefetch: int) -> None:
    for data in (images(), Samples(23)):
        plain = DataLoader(data, batch_size=4, shuffle=True, seed=1, prefetch=0)
        ahead = DataLoader(data, batch_size=4, shuffle=True, seed=1, prefetch=prefetch)
        for _ in range(2):
            assert contents(ahead) == contents(plain)


# -- the position ----------------------------------------------------------------------------------------------------


def test_epochs_are_counted() -> None:
    loader = DataLoader(images(), batch_size=5, shuffle=True, seed=0)
    assert loader.epoch == 0
    for _ in loader:
        assert loader.epoch == 0
    assert loader.epoch == 1
    for _ in loader:
        assert loader.epoch == 1
        break
    assert loader.epoch == 2  # one left early counts
    iteration = iter(loader)
    assert loader.epoch == 2
    next(iteration)
    del iteration
    assert loader.epoch == 3
    loader.epoch = 0
    first = contents(loader)
    loader.epoch = 0
    assert loader.epoch == 0 and contents(loader) == first and loader.epoch == 1


def test_a_second_iteration_is_the_next_epoch_and_the_first_goes_on() -> None:
    alone = DataLoader(images(), batch_size=5, shuffle=True, seed=0)
    expected = [labels(alone), labels(alone)]
    loader = DataLoader(images(), batch_size=5, shuffle=True, seed=0)
    pairs = [(a.numpy().tolist(), b.numpy().tolist()) for (_, a), (_, b) in zip(loader, loader, strict=True)]
    assert pairs == list(zip(*expected, strict=True))
    assert loader.epoch == 2


@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_position_counts_what_was_handed_out(prefetch: int) -> None:
    loader = DataLoader(Samples(20), batch_size=2, seed=3, prefetch=prefetch)
    settings_ = {"length": 20, "batch_size": 2, "shuffle": False, "drop_last": False}
    assert loader.state_dict() == {"epoch": 0, "batch": 0, "seed": 3, **settings_}
    for done, _ in enumerate(loader, 1):
        time.sleep(0.002)  # the thread is ahead by now
        expected = (0, done) if done < 10 else (1, 0)
        assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == expected
    assert loader.state_dict() == {"epoch": 1, "batch": 0, "seed": 3, **settings_}


def test_the_position_survives_leaving_the_loop() -> None:
    loader = DataLoader(images(), batch_size=5, shuffle=True, seed=0)
    whole = contents(loader), contents(loader)
    for stop in (KeyboardInterrupt, None):
        loader.epoch = 0
        try:
            for number, _ in enumerate(loader):
                if number == 2 and stop is None:
                    break
                if number == 2 and stop is not None:
                    raise stop
        except KeyboardInterrupt:
            assert stop is not None
        assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (0, 3)
        state = loader.state_dict()
        assert contents(loader) == whole[1]  # here the next loop is the next epoch
        loader.load_state_dict(state)
        assert contents(loader) == whole[0][3:]  # unless the position is loaded again
        assert contents(loader) == whole[1]


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 30),
    batch_size=st.integers(1, 9),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    taken=st.integers(0, 40),
    prefetch=st.sampled_from([0, 2]),
)
def test_a_resumed_run_goes_on_to_the_bit(
    *, n: int, batch_size: int, shuffle: bool, drop_last: bool, taken: int, prefetch: int
) -> None:
    batch_size = min(batch_size, n)

    def fresh(seed: int) -> DataLoader:
        return DataLoader(images(n), batch_size, shuffle, drop_last=drop_last, seed=seed, prefetch=prefetch)

    loader = fresh(7)
    whole = [batch for _ in range(3) for batch in contents(loader)]
    loader, seen = fresh(7), 0
    while seen < taken % len(whole):
        for _ in loader:
            seen += 1
            if seen == taken % len(whole):
                break
    state = json.loads(json.dumps(loader.state_dict()))
    resumed = fresh(8)  # the seed comes with the position
    resumed.load_state_dict(state)
    rest = [batch for _ in range(resumed.epoch, 3) for batch in contents(resumed)]
    assert rest == whole[taken % len(whole) :]
    assert resumed.epoch == 3


def test_a_resumed_run_keeps_the_global_seed_of_the_first() -> None:
    alpha.manual_seed(11)
    loader = DataLoader(images(), batch_size=5, shuffle=True)
    whole = contents(loader) + contents(loader)
    loader.epoch = 0
    iteration = iter(loader)
    next(iteration)
    state = loader.state_dict()
    alpha.manual_seed(12)
    assert state["seed"] == 11 and loader.state_dict()["seed"] == 11  # that of the epoch under way
    resumed = DataLoader(images(), batch_size=5, shuffle=True)
    resumed.load_state_dict(state)
    assert contents(resumed) + contents(resumed) == whole[1:]


def test_loading_detaches_the_iteration_under_way() -> None:
    loader = DataLoader(images(), batch_size=5, seed=0)
    state = loader.state_dict()
    iteration = iter(loader)
    next(iteration)
    loader.load_state_dict(state)
    next(iteration)
    assert loader.state_dict() == state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 24}, "expected length=23 as in this loader, got 24"),
        ({"batch_size": 6}, "expected batch_size=5 as in this loader, got 6"),
        ({"shuffle": False}, "expected shuffle=True as in this loader, got False"),
        ({"drop_last": True}, "expected drop_last=False as in this loader, got True"),
        ({"batch": 6}, r"expected epoch, batch <= 5 and seed as numbers >= 0, got \[0, 6, 1\]"),
        ({"batch": -1}, r"got \[0, -1, 1\]"),
        ({"epoch": 1.5}, r"got \[1.5, 0, 1\]"),
        ({"seed": "1"}, r"got \[0, 0, '1'\]"),
        ({"batch": None}, r"got \[0, None, 1\]"),
    ],
)
def test_a_position_of_other_data_is_refused(change: dict[str, Any], message: str) -> None:
    loader = DataLoader(images(), batch_size=5, shuffle=True, seed=1)
    with pytest.raises(errors.CheckpointError, match=message):
        loader.load_state_dict({**loader.state_dict(), **change})
    with pytest.raises(errors.CheckpointError, match="got none for epoch, drop_last"):
        loader.load_state_dict(dict.fromkeys(("batch", "seed", "length", "batch_size", "shuffle"), 0))
    assert loader.state_dict()["epoch"] == 0  # a refused one changes nothing


# -- arguments and errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "expected batch_size as an integer >= 1, got 0"),
        ({"batch_size": 2.0}, r"expected batch_size as an integer >= 1, got 2\.0"),
        ({"batch_size": True}, "expected batch_size as an integer >= 1, got True"),
        ({"workers": -1}, "expected workers as an integer >= 0, got -1"),
        ({"prefetch": -1}, "expected prefetch as an integer >= 0, got -1"),
        ({"seed": -1}, "expected seed as an integer >= 0, got -1"),
        ({"seed": "x"}, "expected seed as an integer >= 0, got 'x'"),
        ({"dataset": Samples(0)}, "expected at least one sample, got an empty data set"),
        ({"dataset": iter([])}, "expected a data set with __len__ and __getitem__, got list_iterator"),
        ({"batch_size": 24, "drop_last": True}, "at least one full batch with drop_last=True, got 23 samples"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.ArgumentError, match=message):
        DataLoader(**{"dataset": images(), **options})
    with pytest.raises(errors.ArgumentError, match="expected epoch as an integer >= 0, got -1"):
        DataLoader(images()).epoch = -1


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_an_error_comes_in_its_place_and_ends_the_iteration(prefetch: int) -> None:
    loader = DataLoader(Samples(20, broken=9), batch_size=2, prefetch=prefetch)
    iteration, seen = iter(loader), []
    with pytest.raises(ValueError, match="sample 9 is broken") as caught:
        for _, y in iteration:
            seen.append(y.numpy().tolist())
    assert seen == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert any(entry.name == "__getitem__" for entry in caught.traceback)  # where it happened is shown
    assert list(iteration) == [] and prefetching() == []
    assert (loader.state_dict()["epoch"], loader.state_dict()["batch"]) == (0, 4)


def test_a_batch_that_does_not_become_a_tensor_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(Samples(20), batch_size=2)
    iteration = iter(loader)
    next(iteration)
    with monkeypatch.context() as patch:
        patch.setattr("alpha.datasets.iteration.tensor", lambda *arguments, **options: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            next(iteration)
    state = loader.state_dict()
    assert list(iteration) == [] and state["batch"] == 1
    loader.load_state_dict(state)
    assert labels(loader)[0] == [2, 3]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_stray_stop_iteration_does_not_end_an_epoch_silently(prefetch: int) -> None:
    class Stopping(Samples):
        def __getitem__(self, index: int) -> tuple[Any, int]:
            if index == 3:
                raise StopIteration
            return super().__getitem__(index)

    with pytest.raises(errors.DataError, match="expected 3 more batches, got StopIteration from the data set"):
        list(DataLoader(Stopping(8), batch_size=2, prefetch=prefetch))


# -- the thread ------------------------------------------------------------------------------------------------------


def test_one_thread_works_ahead_but_not_far() -> None:
    data = Samples(40)
    iteration = iter(DataLoader(data, batch_size=2, prefetch=3))
    next(iteration)
    deadline = time.monotonic() + 5
    while len(data.made) < 8 and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    assert len(data.made) == 8  # the one handed out and three more
    assert {name for _, name in data.made} == {"alpha-prefetch"} and len(prefetching()) == 1


def test_without_prefetch_there_is_no_thread() -> None:
    data = Samples(4)
    next(iter(DataLoader(data, batch_size=2, prefetch=0)))
    assert data.made == [(0, threading.current_thread().name), (1, threading.current_thread().name)]


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_leaving_a_loop_ends_the_thread(taken: int) -> None:
    iteration = iter(DataLoader(Samples(40, delay=0.001), batch_size=2))
    for _ in range(taken):
        next(iteration)
    assert len(prefetching()) == 1
    del iteration
    assert prefetching() == []


def test_an_error_in_the_loops_body_ends_the_thread() -> None:
    with pytest.raises(ZeroDivisionError):
        for _ in DataLoader(Samples(40), batch_size=2):
            1 / 0  # noqa: B018
    assert prefetching() == []
