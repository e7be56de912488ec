"""DataLoader among ranks: together they have one process's batches, to the bit, wherever and by whom they are made."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alpha
from alpha import datasets, distributed, errors
from alpha.datasets import ArrayDataset, BatchGenerator, DataLoader, Subset, get_worker_info, transforms
from alpha.distributed import run_in_threads
from alpha.utils import data
from alpha.utils.data.distributed import DistributedSampler

RANKS = (1, 2, 3, 4, 5, 8)


# -- data sets ---------------------------------------------------------------------------------------------------


def arrays(transform: Any = None, n: int = 23) -> ArrayDataset:
    """Small random images; the label is the index."""
    rng = np.random.default_rng(n)
    return ArrayDataset(rng.integers(0, 256, (n, 6, 5, 3), dtype=np.uint8), np.arange(n), None, transform)


class Drawing(data.Dataset):
    """Samples of what is drawn from the three generators, beside the index, in the structure of a kind."""

    def __init__(self, n: int = 13, kind: str = "tuple") -> None:
        self.n, self.kind = n, kind

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Any:
        drawn = random.random(), float(np.random.random()), float(alpha.rand(1))
        if self.kind == "dict":
            return {"index": index, "name": f"n{index}", "drawn": alpha.tensor(drawn), "more": [drawn, (index > 3,)]}
        return index, *drawn


class Several(Drawing):
    """The same, given several at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class Pairs:
    """Images and labels of a class of a user's own, with noise from NumPy's generator."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.random.normal(size=(2, 3, 1)) + index, index


class Batches:
    """A user's own ``batch``, which draws in ways that depend on the whole batch."""

    def __len__(self) -> int:
        return 17

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError

    def batch(self, indices: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        images = np.stack([rng.random((2, 2, 1)) * rng.integers(1, 3) + index for index in indices])
        return images[rng.permutation(len(indices))], np.asarray(indices)


class PartBatches(Batches):
    """Another, which says that it takes parts, and draws two numbers for each sample and one for all."""

    takes_parts = True

    def batch(self, indices: Any, rng: Any) -> tuple[Any, Any]:
        drawn = rng.for_rows(lambda n: rng.random((n, 2, 1, 1)))
        return drawn + rng.random() + np.asarray(indices)[:, None, None, None], np.asarray(indices)


class Stream(data.IterableDataset):
    """Numbers in an order that is drawn, with drawn noise; workers share them."""

    def __init__(self, n: int = 13) -> None:
        self.n = n

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        order = [*range(self.n)]
        random.shuffle(order)
        for index in order[info.id :: info.num_workers] if info is not None else order:
            yield index, np.random.random(), alpha.rand(2)


def mixing(images: Any, rng: np.random.Generator) -> Any:
    """A user's transform of a batch: each image with another, by a weight of its own, then one shift for all."""
    order, weights = rng.permutation(len(images)), np.array([rng.beta(1, 1) for _ in images])
    return images + weights[:, None, None, None] * images[order] + rng.normal()


def scaling(images: Any, rng: Any) -> Any:
    """A user's transform of parts."""
    return images * rng.for_rows(rng.random)[:, None, None, None]


scaling.takes_parts = True  # type: ignore[attr-defined]


class Shifting(transforms.RandomCrop):
    """A crop that draws in a way of its own, which knows nothing of parts."""

    def draw(self, images: Any, rng: np.random.Generator) -> Any:
        return np.array([rng.integers(2) for _ in images]), np.array([rng.integers(2) for _ in images])


# -- one process and several ranks -------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A batch with arrays for its tensors."""
    if isinstance(value, alpha.Tensor):
        return value.numpy().copy()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def epochs(make: Callable[[], DataLoader], count: int = 2) -> list[Any]:
    """All batches of some epochs of a new loader."""
    loader = make()
    return [plain(batch) for _ in range(count) for batch in loader]


def joined(parts: Sequence[Any]) -> Any:
    """One batch of the ranks' parts of it."""
    first = parts[0]
    if isinstance(first, np.ndarray):
        assert len({(part.dtype, part.shape[1:]) for part in parts}) == 1
        return np.concatenate(parts)
    if isinstance(first, dict):
        assert all(part.keys() == first.keys() for part in parts)
        return {key: joined([part[key] for part in parts]) for key in first}
    if isinstance(first, list) and not any(isinstance(item, str) for part in parts for item in part):
        assert len({len(part) for part in parts}) == 1
        return [joined(items) for items in zip(*parts, strict=True)]
    return [item for part in parts for item in part]


def same(a: Any, b: Any) -> bool:
    """Whether two batches have one structure and the same bits."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def check(make: Callable[[], DataLoader], whole: list[Any], ranks: int) -> list[list[Any]]:
    """Compares the ranks' batches, together, with one process's; returns each rank's."""
    found: list[list[Any]] = run_in_threads(lambda: epochs(make), ranks)
    assert {len(batches) for batches in found} == {len(whole)}
    for number, batch in enumerate(whole):
        assert same(joined([batches[number] for batches in found]), batch), f"batch {number} on {ranks} ranks"
    return found


def in_world(make: Callable[[], DataLoader]) -> list[Any]:
    """The batches of a world of one rank."""
    return run_in_threads(lambda: epochs(make), 1)[0]


# -- which rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["arrays", "list", "stream", "sampler", "batch sampler"])
@pytest.mark.parametrize("ranks", RANKS)
def test_each_rank_has_its_rows_of_every_batch(kind: str, ranks: int) -> None:
    for length in sorted({0, 1, ranks - 1, ranks, 13}):
        for drop_last in (False, True):
            if kind == "arrays" and (length == 0 or (drop_last and length < 5)):
                continue  # refused where the loader is made

            def make(length: int = length, drop_last: bool = drop_last) -> DataLoader:
                if kind == "stream":
                    return DataLoader(Stream(length), 5, drop_last=drop_last, seed=1)
                dataset = arrays(n=length) if kind == "arrays" else list(range(length))
                sampler = data.SequentialSampler(range(length)[::-1])
                if kind == "batch sampler":
                    return DataLoader(dataset, batch_sampler=data.BatchSampler(sampler, 5, drop_last), seed=1)
                if kind == "sampler":
                    return DataLoader(dataset, 5, sampler=sampler, drop_last=drop_last, seed=1)
                return DataLoader(dataset, 5, kind == "arrays", drop_last=drop_last, seed=1)

            whole = in_world(make) if kind == "stream" else epochs(make)
            found = check(make, whole, ranks)
            assert sum(len(batch[-1] if isinstance(batch, list) else batch) for batch in whole) == 2 * (
                length // 5 * 5 if drop_last else length
            )
            for rank, batches in enumerate(found):
                for pair in zip(batches, whole, strict=True):
                    mine, batch = (b[0] if kind == "stream" else b[1] if kind == "arrays" else b for b in pair)
                    n = len(batch)
                    assert mine.tolist() == batch[rank * n // ranks : (rank + 1) * n // ranks].tolist()


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), st.integers(1, 17), st.integers(1, 9), st.booleans(), st.booleans(), st.integers(0, 1 << 70))
def test_any_lengths_sizes_and_numbers_of_ranks(
    length: int, size: int, ranks: int, shuffle: bool, drop_last: bool, seed: int
) -> None:
    crop = transforms.Compose([transforms.RandomCrop(5, 1), transforms.RandomHorizontalFlip(), scaling])
    for dataset in (arrays(crop, length), Drawing(length)):
        if drop_last and length < size:
            continue

        def make(dataset: Any = dataset) -> DataLoader:
            return DataLoader(dataset, size, shuffle, drop_last=drop_last, seed=seed)

        whole = in_world(make)
        if isinstance(dataset, ArrayDataset):
            assert all(map(same, whole, epochs(make)))
        check(make, whole, ranks)


def test_lengths_and_positions_do_not_depend_on_ranks() -> None:
    def look() -> Any:
        loader = DataLoader(arrays(), 5, True, seed=4)
        batches = iter(loader)
        next(batches), next(batches)
        return len(loader), loader.state_dict()

    alone = look()
    assert alone[0] == 5 and alone[1]["batch"] == 2
    for ranks in (1, 3, 8):
        assert run_in_threads(look, ranks) == [alone] * ranks


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 3), (3, 8), (2, None), (None, 2)])
def test_resumed_on_another_number_of_ranks(before: int | None, after: int | None) -> None:
    augment = transforms.Compose([transforms.RandomCrop(6, 2), transforms.AlternatingFlip()])
    for dataset in (arrays(augment), *((Drawing(23),) if before and after else ())):

        def begin(dataset: Any = dataset) -> Any:
            loader = DataLoader(dataset, 6, True, seed=8)
            batches = [plain(batch) for batch in loader]
            for number, batch in enumerate(loader):
                batches.append(plain(batch))
                if number == 1:
                    return batches, loader.state_dict()
            raise AssertionError

        def go_on(state: Any, dataset: Any = dataset) -> Any:
            loader = DataLoader(dataset, 6, True, seed=9)
            loader.load_state_dict(state)
            return [plain(batch) for _ in range(2) for batch in loader]

        def on(function: Any, ranks: int | None, *args: Any) -> list[Any]:
            return [function(*args)] if ranks is None else run_in_threads(function, ranks, *args)

        begun = on(begin, before)
        assert all(state == begun[0][1] for _, state in begun)
        resumed = on(go_on, after, begun[0][1])
        made = [joined(parts) for parts in zip(*(batches for batches, _ in begun), strict=True)]
        made += [joined(parts) for parts in zip(*resumed, strict=True)]
        whole = on(lambda dataset=dataset: epochs(lambda: DataLoader(dataset, 6, True, seed=8), 3), before and 1)[0]
        assert len(made) == len(whole) == 12 and all(map(same, made, whole))


# -- augmentation ------------------------------------------------------------------------------------------------

AUGMENTING = {
    "none": None,
    "crop": transforms.RandomCrop(6, 2),
    "reflected": transforms.RandomCrop((5, 4), 1, padding_mode="reflect"),
    "edge": transforms.RandomCrop(6, 3, padding_mode="edge"),
    "flip": transforms.RandomHorizontalFlip(0.4),
    "alternating": transforms.AlternatingFlip(),
    "to unit range": transforms.ToUnitRange(),
    "normalised": transforms.Normalize([0.4, 0.5, 0.6], [0.2, 0.3, 0.4]),
    "to tensor": transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()]),
    "to image": transforms.ToImage(),
    "float": transforms.ToDtype(alpha.float32, scale=True),
    "two crops": transforms.Compose([transforms.RandomCrop(6, 2), transforms.RandomCrop(5), transforms.ToUnitRange()]),
    "all": transforms.Compose(
        [
            transforms.RandomCrop(6, 2),
            transforms.Compose([transforms.RandomHorizontalFlip(), transforms.AlternatingFlip()]),
            transforms.ToTensor(),
            transforms.Normalize(0.5, 0.25),
        ]
    ),
    "own": mixing,
    "own after others": transforms.Compose([transforms.RandomCrop(6, 2), mixing, transforms.RandomHorizontalFlip()]),
    "own of parts": transforms.Compose([scaling, transforms.RandomCrop(6, 2), scaling]),
    "own crop": transforms.Compose([Shifting(4), transforms.RandomHorizontalFlip()]),
}


@pytest.mark.parametrize("name", AUGMENTING)
def test_augmentation_does_not_depend_on_ranks(name: str) -> None:
    def make() -> DataLoader:
        return DataLoader(arrays(AUGMENTING[name]), 8, True, seed=3)

    whole = epochs(make)
    for ranks in RANKS:
        check(make, whole, ranks)


def test_which_transforms_take_parts() -> None:
    """Those of this package's own; one's own where they say so, and do not override what said so."""
    takes = {name for name, transform in AUGMENTING.items() if arrays(transform).takes_parts}
    assert takes == set(AUGMENTING) - {"own", "own after others", "own crop"}
    prepared: list[tuple[int, int]] = []

    def counting(images: Any, rng: np.random.Generator) -> Any:
        prepared.append((len(images), threading.get_ident()))
        return images

    for says, most in ((True, 3), (False, 8)):
        counting.takes_parts = says  # type: ignore[attr-defined]
        prepared.clear()
        run_in_threads(lambda: epochs(lambda: DataLoader(arrays(counting, 16), 8, prefetch=0), 1), 3)
        assert max(count for count, _ in prepared) == most


def test_in_the_layout_of_pytorch() -> None:
    with alpha.set_image_layout("NCHW"):

        def make() -> DataLoader:
            return DataLoader(arrays(AUGMENTING["all"]), 8, True, seed=3)

        whole = epochs(make)
        assert whole[0][0].shape == (8, 3, 6, 6)

        def in_layout() -> Any:
            with alpha.set_image_layout("NCHW"):
                return epochs(make)

        for ranks in (2, 5):
            found = run_in_threads(in_layout, ranks)
            assert all(same(joined(list(parts)), b) for parts, b in zip(zip(*found, strict=True), whole, strict=True))


OWN_BATCHES: dict[str, Callable[[], Any]] = {
    "own": Batches,
    "own of parts": PartBatches,
    "fake": lambda: datasets.FakeData(9, (3, 6, 5), transform=AUGMENTING["all"]),
    "fake, mixed": lambda: datasets.FakeData(9, (3, 6, 5), transform=mixing),
    "subset": lambda: Subset(Subset(arrays(AUGMENTING["all"]), range(20, 2, -1)), [3, 1, 4, 15, 9, 2, 6]),
    "subset of own": lambda: Subset(Batches(), [3, 1, 4, 15, 9, 2, 6]),
    "scenes": lambda: datasets.DigitScenes(arrays(), 7, 24),
}


@pytest.mark.parametrize("name", OWN_BATCHES)
def test_data_sets_that_prepare_batches(name: str) -> None:
    dataset = OWN_BATCHES[name]()

    def make() -> DataLoader:
        return DataLoader(dataset, 4, True, seed=5)

    whole = epochs(make)
    for ranks in (1, 2, 3, 5):
        check(make, whole, ranks)


def test_folders_of_images_of_several_sizes(tmp_path: Path) -> None:
    """What is drawn for an image depends on the sizes of those before it; a subset's indices are not the folder's."""
    image = pytest.importorskip("PIL.Image")
    for label in "ab":
        (tmp_path / label).mkdir()
        for number in range(5):
            shape = (9 + 7 * number, 60 - 6 * number, 3)
            pixels = np.random.default_rng(number).integers(0, 256, shape, np.uint8)
            image.fromarray(pixels).save(tmp_path / label / f"{number}.{'jpg' if number % 2 else 'png'}")
    augment = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToUnitRange()])
    folder = datasets.ImageFolder(tmp_path, augment, size=8, augment=True)
    for dataset in (folder, Subset(folder, [9, 0, 4, 4, 7, 2, 5])):

        def make(dataset: Any = dataset) -> DataLoader:
            return DataLoader(dataset, 4, True, seed=5)

        whole = epochs(make)
        for ranks in (2, 3, 5):
            check(make, whole, ranks)
    rng = BatchGenerator(np.random.PCG64(0), 0, 0, np.arange(6), slice(2, 4))
    with pytest.raises(errors.ArgumentError, match=r"\[ImageFolder.batch\] expected the indices of the generator's"):
        folder.batch(np.array([2, 4]), rng)


def test_generators_of_parts() -> None:
    def generator(rows: slice | None = None) -> BatchGenerator:
        return BatchGenerator(np.random.PCG64(7), 1, 2, np.arange(10, 16), rows)

    whole, part = generator(), generator(slice(1, 4))
    assert not whole.is_part and part.is_part
    assert part.indices.tolist() == [11, 12, 13] and part.batch_indices.tolist() == [*range(10, 16)]
    assert (part.sample_bits() == whole.sample_bits()[1:4]).all()
    for draw in ("random", "standard_normal", "random"):
        assert (getattr(whole, draw)(6)[1:4] == part.for_rows(getattr(part, draw))).all()
    again = pickle.loads(pickle.dumps(part))
    assert again.rows == part.rows and again.indices.tolist() == part.indices.tolist()
    assert (again.for_rows(again.random) == part.for_rows(part.random)).all()
    with pytest.raises(errors.ShapeError, match=r"\[for_rows\] expected an array of 6 rows"):
        part.for_rows(lambda n: part.random(3))
    with pytest.raises(errors.ShapeError, match="for_rows"):
        part.for_rows(lambda n: part.random())  # type: ignore[arg-type, return-value]
    with pytest.raises(errors.ArgumentError, match="expected the 3 images of a rank's part of a batch, got 2"):
        transforms.RandomHorizontalFlip()(np.zeros((2, 3, 3, 1), np.uint8), part)


# -- single samples ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make_set", [Drawing, Several, lambda: Drawing(kind="dict"), Pairs, lambda: Subset(Several(), range(9))]
)
def test_what_samples_draw_does_not_depend_on_ranks(make_set: Callable[[], Any]) -> None:
    def make() -> DataLoader:
        return DataLoader(make_set(), 4, True, seed=2)

    whole = in_world(make)
    assert not any(map(same, whole, whole[len(whole) // 2 :]))
    for ranks in (2, 3, 8):
        check(make, whole, ranks)


def test_rows_draw_other_numbers() -> None:
    drawn = np.concatenate([np.stack(batch[1:], 1) for batch in in_world(lambda: DataLoader(Drawing(9), 4, seed=2))])
    assert len(np.unique(drawn[:, 0])) == len(np.unique(drawn[:, 1])) == len(np.unique(drawn[:, 2])) == 18


def test_generators_are_given_back() -> None:
    def states() -> tuple[Any, ...]:
        return random.getstate(), tuple(np.random.get_state()[1]), alpha.random.get_state()

    class Failing(Drawing):
        def __getitem__(self, index: int) -> Any:
            if index == 2:
                raise ValueError("of sample 2")
            return super().__getitem__(index)

    def look() -> None:
        sampler = data.RandomSampler(Drawing())
        for loader in (
            DataLoader(Drawing(), 4, True),
            DataLoader(Drawing(), 4, sampler=sampler),
            DataLoader(Stream(), 4),
            DataLoader(Drawing(), None),
        ):
            before = states()
            for _ in loader:
                assert states() == before
        with pytest.raises(ValueError, match="of sample 2"):
            list(DataLoader(Failing(), 4))
        assert states() == before

    run_in_threads(look, 1)


def test_without_ranks_samples_draw_as_ever() -> None:
    random.seed(5)
    np.random.seed(5)
    alpha.manual_seed(5)
    expected = [Drawing()[index] for index in range(13)]
    for loader in (DataLoader(Drawing(), 4, seed=2), DataLoader(Drawing(), 4, seed=2, distributed=False)):
        random.seed(5)
        np.random.seed(5)
        alpha.manual_seed(5)
        found = epochs(lambda loader=loader: loader, 1)
        assert [row for batch in found for row in zip(*(part.tolist() for part in batch), strict=True)] == expected


def test_other_bits_behind_numpys_functions() -> None:
    before = np.random.mtrand.get_bit_generator()
    try:
        np.random.mtrand.set_bit_generator(np.random.PCG64(3))
        state = np.random.mtrand.get_bit_generator().state
        whole = in_world(lambda: DataLoader(Drawing(), 4, seed=2))
        assert np.random.mtrand.get_bit_generator().state == state
        check(lambda: DataLoader(Drawing(), 4, seed=2), whole, 3)
    finally:
        np.random.mtrand.set_bit_generator(before)


def test_tensors_are_taken_out_together() -> None:
    calls: list[int] = []

    class Counting(data.TensorDataset):
        draws_nothing = True

        def __getitems__(self, indices: list[Any]) -> Any:
            calls.append(len(indices))
            return super().__getitems__(indices)

    class Unknown(Counting):
        def __getitems__(self, indices: list[Any]) -> Any:
            return super().__getitems__(indices)

    for kind, sizes in ((Counting, {4}), (Unknown, {1})):
        calls.clear()
        found = run_in_threads(lambda kind=kind: epochs(lambda: DataLoader(kind(alpha.arange(16)), 8), 1), 2)
        assert set(calls) == sizes
        assert [batch[0].tolist() for batch in found[1]] == [[4, 5, 6, 7], [12, 13, 14, 15]]


# -- samplers and data sets without indices ----------------------------------------------------------------------


def test_samplers_give_all_ranks_one_order() -> None:
    """Also those that draw from generators which differ between processes, or in another thread."""

    class Shuffled(data.Sampler):
        def __iter__(self) -> Iterator[int]:
            order = [*range(13)]
            random.shuffle(order)
            for index in order:
                yield index if np.random.random() < 0.5 else (index + 7) % 13

    drawn = data.WeightedRandomSampler([1.0] * 13, 13)
    for sampler in (data.RandomSampler(range(13)), Shuffled(), drawn):
        for prefetch in (0, 2):
            for dataset in (arrays(transforms.RandomHorizontalFlip(), 13), Drawing()):

                def make(sampler: Any = sampler, prefetch: int = prefetch, dataset: Any = dataset) -> DataLoader:
                    return DataLoader(dataset, 5, sampler=sampler, seed=3, prefetch=prefetch)

                whole = in_world(make)
                place = 1 if isinstance(dataset, ArrayDataset) else 0
                orders = [np.concatenate([b[place] for b in half]).tolist() for half in (whole[:3], whole[3:])]
                assert orders[0] != orders[1]
                for ranks in (2, 3):
                    check(make, whole, ranks)


def test_a_generator_orders_alike_on_all_ranks() -> None:
    def make() -> DataLoader:
        return DataLoader(list(range(13)), 5, True, generator=alpha.Generator().manual_seed(6))

    whole = epochs(make)
    for ranks in (2, 3):
        check(make, whole, ranks)


def test_data_sets_without_indices() -> None:
    def make() -> DataLoader:
        return DataLoader(Stream(), 4, seed=1)

    whole = in_world(make)
    assert sorted(np.concatenate([batch[0] for batch in whole[:4]])) == [*range(13)]
    assert not same(whole[0], whole[4])
    for ranks in (2, 3, 8):
        check(make, whole, ranks)


def test_collating_leaves_a_streams_numbers_as_they_are() -> None:
    def wasteful(samples: list[Any]) -> Any:
        [random.random() for _ in samples]
        np.random.random(len(samples))
        alpha.rand(len(samples))
        return data.default_collate(samples)

    def make() -> DataLoader:
        return DataLoader(Stream(), 4, seed=1, collate_fn=wasteful)

    whole = in_world(make)
    check(make, whole, 3)


# -- empty parts -------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """A sample of a kind of its own."""

    x: Any
    names: list[str]


class Custom:
    """A batch of a class of its own."""

    def __init__(self, samples: list[Any]) -> None:
        self.x, self.count, self.fixed = alpha.stack([s.x for s in samples]), "n", alpha.ones(3)


def points(n: int) -> list[Point]:
    """Samples with tensors and names."""
    return [Point(alpha.full((2,), i, dtype=alpha.float64), [f"a{i}"]) for i in range(n)]


@pytest.mark.parametrize("dataset_of", [arrays, Pairs, Batches, PartBatches, lambda: Drawing(kind="dict"), Stream])
def test_a_part_without_samples_is_like_others(dataset_of: Callable[[], Any]) -> None:
    def make() -> DataLoader:
        return DataLoader(dataset_of(), 3, seed=1)

    def shapes(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shapes(part) for key, part in value.items()}
        if isinstance(value, list):
            return [shapes(part) for part in value if not isinstance(part, str)]
        return value.dtype, value.shape[1:]

    found = run_in_threads(lambda: epochs(make), 8)
    assert {str(shapes(batches[0])) for batches in found} == {str(shapes(found[2][0]))}
    check(make, in_world(make), 8)


def test_what_a_batch_of_no_samples_is() -> None:
    def batches(collate: Any) -> Any:
        made = run_in_threads(lambda: list(DataLoader(points(1), 1, collate_fn=collate)), 3)
        assert [len(found) for found in made] == [1, 1, 1]
        return made[0][0], made[2][0]

    empty, full = batches(None)
    assert type(empty) is type(full) is Point and full.x.shape == (1, 2)
    assert empty.x.shape == (0, 2) and empty.x.dtype == alpha.float64 and empty.names == [()]
    empty, full = batches(lambda samples: samples)
    assert empty == [] and len(full) == 1
    empty, full = batches(lambda samples: tuple(zip(*samples, strict=True)))
    assert empty == ((), ()) and len(full[0]) == 1
    empty, full = batches(lambda samples: alpha.stack([s.x for s in samples], 1))  # the axis of samples is the second
    assert empty.shape == (2, 0) and full.shape == (2, 1)
    empty, full = batches(lambda samples: alpha.cat([s.x for s in samples]))  # lengths added up
    assert empty.shape == (0,) and full.shape == (2,)
    empty, full = batches(lambda samples: alpha.stack([s.x for s in samples]).squeeze())  # no axis for one
    assert empty.shape == (0, 2) and full.shape == (2,)
    empty, full = batches(lambda samples: {"x": np.stack([s.x.numpy() for s in samples]), "epoch": 3, "none": None})
    assert empty["x"].shape == (0, 2) and empty["epoch"] == 3 and empty["none"] is None
    empty, full = batches(Custom)
    assert empty.x.shape == (0, 2) and empty.fixed.shape == (3,) and empty.count == "n" and full.x.shape == (1, 2)
    with pytest.raises(errors.DataError, match=r"got set, which cannot be left without samples.*drop_last=True"):
        batches(lambda samples: {len(samples)})


# -- worker processes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["arrays", "drawing", "several", "sampler", "stream"])
def test_worker_processes(kind: str) -> None:
    """Forked ones, which make what this process makes: of a stream, what they make for one rank."""

    def make(workers: int = 2, persistent: bool = False) -> DataLoader:
        options: Any = {"seed": 4, "num_workers": workers}
        if workers:
            options |= {"multiprocessing_context": "fork", "persistent_workers": persistent, "timeout": 60}
        if kind == "stream":
            return DataLoader(Stream(), 4, **options)
        if kind == "sampler":
            return DataLoader(Drawing(), 4, sampler=data.RandomSampler(range(13)), **options)
        dataset = {"arrays": arrays(AUGMENTING["all"], 13), "drawing": Drawing(), "several": Several()}[kind]
        return DataLoader(dataset, 4, True, **options)

    whole = in_world(
        make
    )  # also loads the kernels for taking batches out of pipes: no thread is to do so during a fork
    assert kind == "stream" or all(map(same, whole, in_world(lambda: make(0))))
    assert kind == "arrays" or len(np.unique(np.concatenate([batch[1] for batch in whole]))) == 26, "workers differ"
    for persistent in (False, True):
        check(lambda persistent=persistent: make(2, persistent), whole, 3)


@pytest.mark.slow
def test_spawned_workers() -> None:
    def make(workers: int = 2) -> DataLoader:
        options: Any = {"multiprocessing_context": "spawn", "persistent_workers": True} if workers else {}
        return DataLoader(arrays(AUGMENTING["all"], 13), 4, True, seed=4, num_workers=workers, **options)

    check(make, epochs(lambda: make(0)), 2)


# -- options and errors ------------------------------------------------------------------------------------------


def test_each_rank_has_whole_batches_where_it_asks_for_them() -> None:
    def make() -> DataLoader:
        return DataLoader(arrays(AUGMENTING["all"]), 8, True, seed=3, distributed=False)

    whole = epochs(make)

    def look() -> Any:
        with distributed.trace() as events:
            found = epochs(make)
            if distributed.rank() == 0:  # one rank alone, as for evaluation
                epochs(make)
        assert not events
        return found

    for found in run_in_threads(look, 3):
        assert all(map(same, found, whole))
    with pytest.raises(errors.ArgumentError, match=r"\[DataLoader\] expected distributed as True or False"):
        DataLoader([1], distributed=np.zeros(2))  # type: ignore[arg-type]


def test_single_samples_are_refused() -> None:
    def refused() -> None:
        loader = DataLoader(list(range(8)), None)
        with pytest.raises(errors.ArgumentError, match=r"got None and 2 ranks: give one, a DistributedSampler"):
            iter(loader)
        with pytest.raises(errors.ArgumentError, match="got None and 2 ranks"):
            iter(DataLoader(Stream(), None))
        assert loader.epoch == 0
        assert list(DataLoader(list(range(3)), None, distributed=False)) == [0, 1, 2]

    run_in_threads(refused, 2)
    assert run_in_threads(lambda: list(DataLoader(list(range(3)), None)), 1) == [[0, 1, 2]]
    found = run_in_threads(
        lambda: list(DataLoader(list(range(5)), None, sampler=DistributedSampler(range(5), shuffle=False))), 2
    )
    assert found == [[0, 2, 4], [1, 3, 0]]


DIFFERENT: dict[str, tuple[Callable[[int], Any], str]] = {
    "seed": (lambda r: DataLoader(list(range(9)), 4, seed=7 + (r == 1)), "seed 7 on ranks 0, 2, 8 on rank 1"),
    "large seed": (lambda r: DataLoader(list(range(9)), 4, seed=(1 << 64) + (r << 80)), "seed "),
    "samples": (lambda r: DataLoader(list(range(9 + r)), 4), "samples 9 on rank 0, 10 on rank 1, 11 on rank 2"),
    "batch_size": (lambda r: DataLoader(list(range(9)), 4 - r // 2), "batch_size 4 on ranks 0, 1, 3 on rank 2"),
    "shuffle": (lambda r: DataLoader(list(range(9)), 4, r == 0), "shuffle 1 on rank 0, 0 on ranks 1, 2"),
    "drop_last": (lambda r: DataLoader(list(range(9)), 4, drop_last=r > 0), "drop_last 0 on rank 0, 1 on ranks 1, 2"),
    "sampler": (
        lambda r: DataLoader(list(range(9)), 4, sampler=data.SequentialSampler(range(9)) if r else None),
        "sampler 0 on rank 0, 1 on ranks 1, 2",
    ),
    "generator": (
        lambda r: DataLoader(list(range(9)), 4, True, generator=alpha.Generator().manual_seed(r // 2)),
        "generator ",
    ),
    "sampler's generator": (
        lambda r: DataLoader(
            list(range(9)), 4, sampler=data.RandomSampler(range(9), generator=alpha.Generator().manual_seed(r))
        ),
        "generator ",
    ),
    "workers of a stream": (lambda r: DataLoader(Stream(), 4, num_workers=r), "num_workers 0 on rank 0, 1 on rank 1"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_loaders_that_differ_between_ranks(name: str) -> None:
    make, message = DIFFERENT[name]
    found: list[str] = []

    def begin() -> None:
        with pytest.raises(errors.DistributedError, match=r"\[DataLoader\] expected the same loader") as caught:
            iter(make(distributed.rank()))
        found.append(str(caught.value))

    run_in_threads(begin, 3)
    assert len(set(found)) == 1 and len(found) == 3, "all ranks say the same"
    assert f"got {message}" in found[0] and "; " not in found[0]


def test_positions_that_differ_between_ranks() -> None:
    def begin(batch: int, epoch: int) -> None:
        loader = DataLoader(list(range(9)), 2, seed=1)
        state = loader.state_dict()
        if distributed.rank() == 1:
            loader.load_state_dict({**state, "batch": batch, "epoch": epoch})
        with pytest.raises(errors.DistributedError, match="on rank 1") as caught:
            iter(loader)
        assert ("epoch 0 on rank 0" in str(caught.value)) == (epoch > 0)
        assert ("batch 0 on rank 0" in str(caught.value)) == (batch > 0)
        assert loader.state_dict()["batch"] == (batch if distributed.rank() else 0), "nothing has happened to it"

    for batch, epoch in ((2, 0), (0, 1), (3, 4)):
        run_in_threads(begin, 2, batch, epoch)


def test_one_small_operation_an_epoch() -> None:
    def look() -> Any:
        loader = DataLoader(arrays(), 4, seed=1)
        with distributed.trace() as events:
            for _ in range(2):
                list(loader)
        return [event.operation for event in events if event.name == "end"], max(e.nbytes for e in events)

    for operations, nbytes in run_in_threads(look, 2):
        assert operations == ["start", "start"] and nbytes < 1000


def test_seeds_are_alphas_where_none_is_given() -> None:
    def orders() -> Any:
        return np.concatenate([y for _, y in epochs(lambda: DataLoader(arrays(), 23, True), 1)]).tolist()

    alpha.manual_seed(11)
    whole = orders()
    assert [index for order in run_in_threads(orders, 3) for index in order] == whole


def test_a_loop_within_a_data_set() -> None:
    """Ranks do not come there together; one over whole batches may be, and nothing waits for ever."""

    class Outer(data.Dataset):
        def __init__(self, shared: bool) -> None:
            self.shared = shared

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return sum(float(x) for x in DataLoader(list(range(5)), 1, distributed=self.shared, prefetch=1))

    assert sum(run_in_threads(lambda: len(list(DataLoader(Outer(False), 4))), 2)) == 2
    with pytest.raises(errors.ArgumentError, match="got one in a data set, sampler or collate function"):
        run_in_threads(lambda: list(DataLoader(Outer(True), 4)), 2)
    assert len(list(DataLoader(Outer(True), 4))) == 1


def test_copies_and_older_pickles() -> None:
    loader = DataLoader(arrays(), 4, seed=1, distributed=False)
    assert pickle.loads(pickle.dumps(loader)).distributed is False
    state = loader.__getstate__()
    del state["distributed"]
    older = object.__new__(DataLoader)
    older.__setstate__(state)
    assert older.distributed is True and len(list(older)) == 6


# -- DistributedSampler ------------------------------------------------------------------------------------------


def test_the_sampler_gives_pytorchs_indices() -> None:
    theirs = pytest.importorskip("torch.utils.data").DistributedSampler
    for length in (0, 1, 2, 3, 4, 7, 12, 13):
        for replicas in (1, 2, 3, 4, 5, 9):
            for drop_last in (False, True):
                for rank in range(replicas):
                    args = (range(length), replicas, rank, False, 0, drop_last)
                    mine, other = DistributedSampler(*args), theirs(*args)
                    if length:  # PyTorch divides by it
                        assert list(mine) == list(other)
                    assert len(mine) == len(other) and mine.total_size == other.total_size


def test_the_samplers_order() -> None:
    samplers = [DistributedSampler(range(14), 4, rank, seed=3) for rank in range(4)]
    first = [list(sampler) for sampler in samplers]
    assert first == [list(sampler) for sampler in samplers]
    together = [first[number % 4][number // 4] for number in range(16)]
    assert sorted(together[:14]) == [*range(14)] and together[14:] == together[:2] and together != [*range(16)]
    for sampler in samplers:
        sampler.set_epoch(1)
    assert [list(sampler) for sampler in samplers] != first
    assert list(DistributedSampler(range(14), 4, 1, seed=4)) == list(samplers[1]), "seed and epoch are added"


def test_a_sampler_that_shares_out_is_not_shared_again() -> None:
    def look(batches: bool) -> Any:
        sampler = DistributedSampler(arrays(n=14), shuffle=False)
        assert (sampler.num_replicas, sampler.rank) == (distributed.world_size(), distributed.rank())
        options: Any = {"batch_sampler": data.BatchSampler(sampler, 3, False)} if batches else {"sampler": sampler}
        loader = DataLoader(
            arrays(transforms.RandomCrop(6, 2), 14), **({} if batches else {"batch_size": 3}), **options
        )
        assert len(loader) == 2
        return epochs(lambda: loader, 1)

    for batches in (True, False):
        found = run_in_threads(look, 3, batches)
        assert [np.concatenate([y for _, y in part]).tolist() for part in found] == [
            [0, 3, 6, 9, 12],
            [1, 4, 7, 10, 13],
            [2, 5, 8, 11, 0],
        ]


def test_ranks_with_samplers_of_their_own_draw_other_numbers() -> None:
    def look() -> Any:
        return epochs(lambda: DataLoader(Drawing(8), 4, sampler=DistributedSampler(range(8), shuffle=False), seed=1), 1)

    (first,), (second,) = run_in_threads(look, 2)
    assert not any((a == b).any() for a, b in zip(first, second, strict=True))
    bits = np.zeros((8, 6, 6, 3), np.uint8)
    bits[..., 0] = np.arange(6)
    dataset = ArrayDataset(bits, np.zeros(8, int), None, transforms.RandomCrop(2))
    crops = run_in_threads(lambda: epochs(lambda: DataLoader(dataset, 4, sampler=DistributedSampler(dataset)), 1), 2)
    assert not np.array_equal(crops[0][0][0], crops[1][0][0])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((range(4), 2, 2), "expected rank"),
        ((range(4), 2, -1), "expected rank"),
        ((range(4), 0, 0), "expected num_replicas"),
        ((range(4), 2, 0, np.zeros(2)), "expected shuffle"),
        ((range(4), 2, 0, True, -1), "expected seed"),
    ],
)
def test_arguments_of_the_sampler(args: Any, message: str) -> None:
    with pytest.raises(errors.ArgumentError, match=rf"\[DistributedSampler\] {message}"):
        DistributedSampler(*args)


def test_the_sampler_needs_ranks_or_numbers() -> None:
    for args in ((), (2,), (None, 0)):
        with pytest.raises(errors.DistributedError, match=r"\[DistributedSampler\] expected a program that has called"):
            DistributedSampler(range(4), *args)
    assert list(DistributedSampler(range(4), 2, 1, False)) == [1, 3]
    with pytest.raises(errors.ArgumentError, match=r"\[set_epoch\]"):
        DistributedSampler(range(4), 2, 1).set_epoch(-1)


def test_rows_of_ranks_are_rows_of_shards() -> None:
    """Where ranks divide shards: what a rank's shards hold together is its part."""
    from alpha.datasets.parts import Part

    for shards in (1, 4, 6, 8):
        for ranks in (r for r in range(1, shards + 1) if shards % r == 0):
            for count in range(20):
                cuts = [shard * count // shards for shard in range(shards + 1)]
                rows = [Part(rank, ranks).rows(count) for rank in range(ranks)]
                assert all(a.stop == b.start for a, b in pairwise(rows))
                assert [row.start for row in rows] == cuts[:: shards // ranks][:-1] and rows[-1].stop == count
