"""alpha.utils.data: batches of anything, samplers, data sets of data sets, and loaders' arguments, beside PyTorch's."""

from __future__ import annotations

import collections
import importlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import datasets, errors
from alpha.datasets import transforms
from alpha.utils import data

Point = collections.namedtuple("Point", ["x", "y"])


class Numbers(data.Dataset):
    """``count`` samples, each made of its index by ``make``."""

    def __init__(self, count: int, make: Callable[[int], Any] = lambda index: index) -> None:
        self.count, self.make = count, make

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Stream(data.IterableDataset):
    """The numbers below ``count``; each worker gives its share."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        info = data.get_worker_info()
        return iter(range(self.count) if info is None else range(info.id, self.count, info.num_workers))


def plain(value: Any) -> Any:
    """Tensors of either side as (dtype, list), in whatever holds them."""
    if isinstance(value, alpha.Tensor) or hasattr(value, "detach"):
        return str(value.dtype).removeprefix("torch."), value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value).__name__, [plain(item) for item in value]
    return value


SAMPLES: dict[str, Callable[[Any, int], Any]] = {
    "int": lambda make, i: i,
    "float": lambda make, i: i / 3,
    "bool": lambda make, i: i % 2 == 0,
    "str": lambda make, i: f"sample {i}",
    "bytes": lambda make, i: bytes([i]),
    "tensor": lambda make, i: make([[i, 2.0]]),
    "array": lambda make, i: np.full((2, 3), i, np.uint8),
    "float64 array": lambda make, i: np.full(2, i / 7),
    "scalar": lambda make, i: np.float32(i),
    "pair": lambda make, i: (make([1.0 * i]), i),
    "list": lambda make, i: [i, (i, "a")],
    "dict": lambda make, i: {"image": make([i * 1.0]), "size": (i, 2.5), "name": "b"},
    "ordered dict": lambda make, i: collections.OrderedDict(a=i, b=[i]),
    "named tuple": lambda make, i: Point(i, make([i])),
    "empty tuple": lambda make, i: (),
}


@pytest.mark.needs("torch")
@pytest.mark.parametrize("batch_size", [3, None])
@pytest.mark.parametrize("name", SAMPLES)
def test_batches_are_pytorchs(name: str, batch_size: int | None) -> None:
    torch = importlib.import_module("torch")
    theirs = importlib.import_module("torch.utils.data")
    ours = Numbers(7, lambda index: SAMPLES[name](alpha.tensor, index))
    their_set = type("Theirs", (theirs.Dataset,), {"__len__": lambda self: 7})
    their_set.__getitem__ = lambda self, index: SAMPLES[name](torch.tensor, index)  # type: ignore[attr-defined]
    made = [plain(batch) for batch in data.DataLoader(ours, batch_size)]
    assert made == [plain(batch) for batch in theirs.DataLoader(their_set(), batch_size)]


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        ([None], errors.DtypeError, "expected samples of tensors, .*, got NoneType: convert it in the data set"),
        ([object()], errors.DtypeError, "got object"),
        ([np.array(["a"])], errors.DtypeError, "got an array of <U1"),
        ([1, "a"], errors.DtypeError, "expected samples of one kind in a batch, got int and str"),
        ([alpha.zeros(2), 1], errors.DtypeError, "got Tensor and int"),
        ([alpha.zeros(2), alpha.zeros(3)], errors.ShapeError, r"got \(2,\) and \(3,\) in one batch"),
        ([[1], [1, 2]], errors.ShapeError, "expected samples of one length, got 1 and 2"),
        ([{"a": 1}, {"b": 1}], errors.ShapeError, "expected the key 'a' in every sample"),
        ([], errors.ArgumentError, r"expected a list of samples, got \[\]"),
        (3, errors.ArgumentError, "expected a list of samples, got 3"),
        ([2**70], errors.AlphaError, "expected"),
    ],
)
def test_samples_that_make_no_batch(batch: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        data.default_collate(batch)


def test_a_collate_fn_decides() -> None:
    def pad(samples: list[Any]) -> Any:
        longest = max(map(len, samples))
        return alpha.tensor([sample + [0] * (longest - len(sample)) for sample in samples])

    ragged = Numbers(5, lambda index: [1] * (index + 1))
    shapes = [batch.shape for batch in data.DataLoader(ragged, 2, collate_fn=pad)]
    assert shapes == [(2, 2), (2, 4), (1, 5)]
    digits = datasets.Digits(size=8)
    assert next(iter(data.DataLoader(digits, 3, collate_fn=len))) == 3
    assert next(iter(data.DataLoader(ragged, None, collate_fn=len))) == 1


def test_a_list_and_an_object_of_ones_own_are_data_sets_too() -> None:
    pairs = [(np.float64(index), "a") for index in range(4)]
    assert plain(next(iter(data.DataLoader(pairs, 2)))) == ("list", [("float64", [0.0, 1.0]), ("tuple", ["a", "a"])])

    class Plain:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return np.full((2, 2, 1), index, np.float32), index / 2  # no class, but a number to be guessed

    x, y = next(iter(data.DataLoader(Plain(), 4)))
    assert x.shape == (4, 2, 2, 1) and y.dtype == np.float64 and y.tolist() == [0, 0.5, 1, 1.5]
    assert list(data.DataLoader([], 4)) == [] and list(data.DataLoader(Numbers(2), 4, drop_last=True)) == []


# -- samplers --------------------------------------------------------------------------------------------------------


def test_samplers_give_what_their_names_say() -> None:
    source = range(50)
    assert list(data.SequentialSampler(source)) == list(source)
    shuffled = list(data.RandomSampler(source))
    assert sorted(shuffled) == list(source) and shuffled != list(source) != list(data.RandomSampler(source))
    more = list(data.RandomSampler(source, num_samples=120))
    assert len(more) == 120 and sorted(more[:50]) == sorted(more[50:100]) == list(source)
    drawn = list(data.RandomSampler(source, replacement=True, num_samples=5000))
    counts = np.bincount(drawn, minlength=50)
    assert len(drawn) == 5000 and abs(counts - 100).max() < 60
    subset = list(data.SubsetRandomSampler([3, 1, 4, 15]))
    assert sorted(subset) == [1, 3, 4, 15]
    weighted = list(data.WeightedRandomSampler([0, 1, 3, 0], 4000))
    assert len(weighted) == 4000 and set(weighted) == {1, 2} and abs(weighted.count(2) - 3000) < 200
    assert sorted(data.WeightedRandomSampler([1, 2, 0, 3], 3, replacement=False)) == [0, 1, 3]
    batches = data.BatchSampler(data.SequentialSampler(range(7)), 3, False)
    assert list(batches) == [[0, 1, 2], [3, 4, 5], [6]] and len(batches) == 3
    assert list(data.BatchSampler(range(7), 3, True)) == [[0, 1, 2], [3, 4, 5]]


def test_generators_repeat_what_they_drew() -> None:
    def run(seed: int) -> list[Any]:
        generator = alpha.Generator().manual_seed(seed)
        split = data.random_split(range(20), [0.5, 0.25, 0.25], generator)
        loader = data.DataLoader(Numbers(9), 4, shuffle=True, generator=generator)
        orders = [[batch.tolist() for batch in loader] for _ in range(2)]
        return [[part.indices for part in split], list(data.RandomSampler(range(9), generator=generator)), orders]

    assert run(1) == run(1) != run(2)
    (first, second) = run(1)[2]
    assert first != second and sorted(index for batch in first for index in batch) == list(range(9))


@pytest.mark.parametrize("options", [{"in_order": False, "num_workers": 2}, {"pin_memory_device": "cuda"}])
def test_hints_change_nothing(options: dict[str, Any]) -> None:
    loader = data.DataLoader(list(range(7)), 2, **options)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6]]
    with pytest.raises(errors.ArgumentError, match="pin_memory_device"):
        data.DataLoader([1, 2], pin_memory_device=0)  # type: ignore[arg-type]


def test_a_loader_takes_its_samplers_order() -> None:
    numbers = Numbers(10)
    loader = data.DataLoader(numbers, 2, sampler=[5, 3, 3])
    assert [batch.tolist() for batch in loader] == [[5, 3], [3]] and len(loader) == 2
    loader = data.DataLoader(numbers, batch_sampler=[[1, 2], [9]], num_workers=0)
    assert [batch.tolist() for batch in loader] == [[1, 2], [9]] and len(loader) == 2
    loader = data.DataLoader(numbers, batch_size=None, sampler=[7, 0])
    assert list(loader) == [7, 0] and len(loader) == 2
    digits = datasets.Digits(size=8)
    (x, y), *_ = data.DataLoader(digits, 4, sampler=data.SubsetRandomSampler(range(4)))
    assert x.shape == (4, 8, 8, 3) and x.dtype == np.float32 and sorted(y.tolist()) == sorted(digits.targets[:4])
    with pytest.raises(errors.ArgumentError, match="expected a loader whose order its seed decides"):
        loader.state_dict()

    def forever() -> Iterator[int]:
        while True:
            yield 1

    endless = iter(data.DataLoader(numbers, 3, sampler=forever()))
    assert [next(endless).tolist() for _ in range(3)] == [[1, 1, 1]] * 3


@pytest.mark.parametrize(
    "make",
    [
        lambda: data.RandomSampler(range(3), replacement="yes"),  # type: ignore[arg-type]
        lambda: data.RandomSampler(range(3), num_samples=0),
        lambda: data.RandomSampler(range(3), generator=3),  # type: ignore[arg-type]
        lambda: data.WeightedRandomSampler([1, -1], 2),
        lambda: data.WeightedRandomSampler([], 2),
        lambda: data.WeightedRandomSampler([1, float("nan")], 2),
        lambda: data.WeightedRandomSampler([1, 1], 0),
        lambda: list(data.WeightedRandomSampler([1, 1], 3, replacement=False)),
        lambda: data.BatchSampler(range(3), 0, False),
        lambda: data.BatchSampler(range(3), True, False),
        lambda: data.random_split(range(3), [1, 1]),
        lambda: data.random_split(range(3), "ab"),  # type: ignore[arg-type]
        lambda: data.random_split(range(3), [1.5, 1.5]),
        data.TensorDataset,
        lambda: data.TensorDataset(alpha.zeros(3), alpha.zeros(4)),
        lambda: data.TensorDataset(alpha.tensor(1.0)),
        lambda: data.ConcatDataset([]),
        lambda: data.ConcatDataset([Stream(3)]),
        lambda: data.ChainDataset([Numbers(3)]),
        lambda: data.StackDataset(Numbers(3), Numbers(4)),
        lambda: (Numbers(3) + Numbers(2))[5],
        lambda: data.DataLoader(Numbers(3), sampler=[1], shuffle=True),
        lambda: data.DataLoader(Numbers(3), sampler=True),
        lambda: data.DataLoader(Numbers(3), batch_sampler=[[1]], batch_size=2),
        lambda: data.DataLoader(Numbers(3), batch_sampler=[[1]], drop_last=True),
        lambda: data.DataLoader(Numbers(3), batch_size=None, drop_last=True),
        lambda: data.DataLoader(Stream(3), shuffle=True),
        lambda: data.DataLoader(Stream(3), sampler=[1]),
        lambda: data.DataLoader(Numbers(3), num_workers=-1),
        lambda: data.DataLoader(Numbers(3), num_workers=1, workers=1),
        lambda: data.DataLoader(Numbers(3), prefetch_factor=2),
        lambda: data.DataLoader(Numbers(3), num_workers=1, prefetch_factor=0),
        lambda: data.DataLoader(Numbers(3), persistent_workers=True),
        lambda: data.DataLoader(Numbers(3), num_workers=1, timeout=-1),
        lambda: data.DataLoader(Numbers(3), num_workers=1, worker_init_fn=3),  # type: ignore[arg-type]
        lambda: data.DataLoader(Numbers(3), collate_fn="x"),  # type: ignore[arg-type]
        lambda: data.DataLoader(Numbers(3), num_workers=1, multiprocessing_context="thread"),
        lambda: data.DataLoader(Numbers(3), shuffle=True, generator=3),  # type: ignore[arg-type]
        lambda: list(data.DataLoader(data.Subset(Numbers(3), [0, 1]), sampler=[5])),
    ],
)
def test_arguments_that_make_no_sense_are_told(make: Callable[[], Any]) -> None:
    with pytest.raises((errors.AlphaError, IndexError), match=r"^\[[\w.]+\] expected .*, got |index out of range"):
        make()


# -- data sets of data sets ------------------------------------------------------------------------------------------


def test_data_sets_are_put_together() -> None:
    x, y = alpha.arange(6).reshape(6, 1), alpha.tensor([0.5] * 6)
    pairs = data.TensorDataset(x, y)
    assert len(pairs) == 6 and pairs[2][0].tolist() == [2] and pairs[-1][1].item() == 0.5
    made = list(data.DataLoader(pairs, 4))
    assert [plain(batch) for batch in made][1] == ("list", [("int64", [[4], [5]]), ("float32", [0.5, 0.5])])
    joined = Numbers(3) + Numbers(2, lambda index: 10 + index) + Numbers(1)
    assert isinstance(joined, data.ConcatDataset) and [joined[i] for i in range(-6, 6)] == [0, 1, 2, 10, 11, 0] * 2
    chained = Stream(2) + Stream(3)
    assert list(chained) == [0, 1, 0, 1, 2] and isinstance(chained, data.ChainDataset)
    assert [batch.tolist() for batch in data.DataLoader(chained, 3, drop_last=True)] == [[0, 1, 0]]
    assert [batch.tolist() for batch in data.DataLoader(Stream(5), 2)] == [[0, 1], [2, 3], [4]]
    stacked = data.StackDataset(a=Numbers(2), b=Numbers(2, str))
    assert stacked[1] == {"a": 1, "b": "1"} and data.StackDataset(Numbers(2), Numbers(2))[0] == (0, 0)
    subset = data.Subset(data.Subset(Numbers(9), [8, 7, 6]), [2, 0])
    assert [subset[0], subset[1]] == [6, 8] and len(subset) == 2
    assert pickle.loads(pickle.dumps(data.Subset(range(5), [1])))[0] == 1
    assert "Dataset[int]" in str(data.Dataset[int])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("lengths", [[0.5, 0.5], [0.3, 0.3, 0.4], [1 / 3] * 3, [0.25] * 4, [7, 4]])
def test_lengths_of_a_split_are_pytorchs(lengths: list[float]) -> None:
    theirs = importlib.import_module("torch.utils.data").random_split
    parts = [len(part) for part in data.random_split(range(11), lengths)]
    assert parts == [len(part) for part in theirs(range(11), lengths)]
    together = [index for part in data.random_split(range(11), lengths) for index in part.indices]
    assert sorted(together) == list(range(11))


# -- data sets here --------------------------------------------------------------------------------------------------

STEPS = [transforms.RandomCrop(8, padding=1), transforms.RandomHorizontalFlip(0.0), transforms.ToTensor()]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_part_of_a_data_set_here_makes_whole_batches(layout: str) -> None:
    with alpha.set_image_layout(layout):
        transform = transforms.Compose([*STEPS, transforms.Normalize((0.4,) * 3, (0.2,) * 3)])
        whole = datasets.Digits(size=8, transform=transform)
        part = data.Subset(whole, range(10, 20))
        assert whole.prepares_batches
        x, y = next(iter(data.DataLoader(part, 10)))
        shape = (8, 8, 3) if layout == "NHWC" else (3, 8, 8)
        assert x.shape == (10, *shape) and y.tolist() == whole.targets[10:20] and x.dtype == np.float32
        image, label = part[0]
        assert isinstance(image, alpha.Tensor) and image.shape == shape and label == whole.targets[10]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_batches_equal_images_one_by_one(layout: str) -> None:
    """ToTensor and Normalize of a whole batch, as of PIL images."""
    with alpha.set_image_layout(layout):
        steps = [transforms.ToTensor(), transforms.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))]
        together = datasets.Digits(size=8, transform=transforms.Compose(steps))
        alone = datasets.Digits(size=8, transform=transforms.Compose([transforms.Lambda(lambda image: image), *steps]))
        assert together.prepares_batches and not alone.prepares_batches
        (x, y), (z, w) = (next(iter(data.DataLoader(dataset, 50))) for dataset in (together, alone))
        np.testing.assert_allclose(np.asarray(x), np.asarray(z), rtol=1e-6, atol=1e-6)
        assert y.tolist() == w.tolist()


def test_transforms_of_ones_own_are_given_pil_images_or_batches() -> None:
    sizes = datasets.Digits(size=8, transform=lambda image: image.size, target_transform=lambda label: label / 2)
    assert sizes[0] == ((8, 8), sizes.targets[0] / 2)
    assert plain(next(iter(data.DataLoader(sizes, 2))))[1][0] == ("list", [("int64", [8, 8])] * 2)
    batches = datasets.Digits(size=8, transform=lambda images, rng: images * 2.0)
    assert next(iter(data.DataLoader(batches, 2)))[0].shape == (2, 8, 8, 3)


def test_random_transforms_follow_alphas_seed() -> None:
    steps = transforms.Compose([transforms.RandomResizedCrop(6), transforms.ColorJitter(0.3), transforms.ToTensor()])

    def run(seed: int) -> list[Any]:
        alpha.manual_seed(seed)
        loader = data.DataLoader(datasets.Digits(size=8, transform=steps), 64, shuffle=True)
        return [x.numpy().tobytes() for x, _ in loader]

    assert run(3) == run(3) != run(4)
