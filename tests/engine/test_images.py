"""Pixels that the engine finishes: what the transforms make of them on the host, to the bit, loaders included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpha.datasets import ArrayDataset, BatchGenerator, DataLoader
from alpha.datasets.pixels import plan
from alpha.datasets.transforms import (
    AlternatingFlip,
    Compose,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    ToUnitRange,
)
from alpha.engine import IMAGE_ORDER, Engine
from alpha.errors import ShapeError

KNOWN: list[tuple[Any, int]] = [
    (None, 3),
    (ToUnitRange(), 3),
    (Normalize(0.45, 0.22), 3),
    (Normalize([0.49, 0.48, 0.44], [0.24, 0.25, 0.26]), 3),
    (RandomCrop((5, 4)), 2),
    (Compose([RandomCrop(7, padding=3), RandomHorizontalFlip(), ToUnitRange()]), 3),
    (Compose([RandomHorizontalFlip(), RandomCrop((9, 6), padding=2), Normalize(0.5, 0.1)]), 1),
    (Compose([RandomHorizontalFlip(1.0), RandomHorizontalFlip(0.5), ToUnitRange()]), 3),
    (Compose([]), 4),
    (Compose([RandomCrop(7, padding=3, padding_mode="reflect"), RandomHorizontalFlip(), ToUnitRange()]), 3),
    (
        Compose(
            [
                RandomHorizontalFlip(),
                RandomCrop((9, 6), 2, padding_mode="edge"),
                RandomHorizontalFlip(),
                Normalize(0.5, 0.1),
            ]
        ),
        1,
    ),
    (Compose([AlternatingFlip(), RandomCrop((6, 8), 2, padding_mode="symmetric")]), 3),
    (Compose([RandomCrop((7, 6), 2, padding_mode="reflect"), AlternatingFlip(), ToUnitRange()]), 3),
]
UNKNOWN: list[Any] = [
    lambda images, rng: images,
    Compose([ToUnitRange(), RandomCrop(4, padding=1)]),  # pads with grey
    Compose([RandomCrop(6, padding=1), RandomCrop(5, padding=1)]),
    Compose([Compose([ToUnitRange()]), RandomHorizontalFlip()]),
    Normalize([0.1, 0.2], [0.3, 0.4]),  # the wrong number of channels
]


def images(rng: np.random.Generator, count: int, channels: int) -> np.ndarray[Any, Any]:
    return rng.integers(0, 256, (count, 7, 6, channels)).astype(np.uint8)


@pytest.mark.parametrize(("transform", "channels"), KNOWN)
def test_the_engine_makes_what_the_transforms_make(
    engine: Engine, rng: np.random.Generator, transform: Any, channels: int
) -> None:
    batch = images(rng, 13, channels)
    theirs = BatchGenerator(np.random.PCG64(5), 1, 3, np.arange(13))
    expected = batch.astype(np.float32) if transform is None else transform(batch, theirs).astype(np.float32)
    ours = BatchGenerator(np.random.PCG64(5), 1, 3, np.arange(13))
    pixels = plan(batch, transform, ours)
    assert pixels is not None
    made = pixels.tensor(engine)
    assert made.dtype == np.float32 and made.numpy().tobytes() == expected.tobytes()
    assert ours.random() == theirs.random()  # as many draws


@pytest.mark.parametrize("transform", UNKNOWN)
def test_other_transforms_stay_on_the_host_and_draw_nothing(rng: np.random.Generator, transform: Any) -> None:
    before = rng.bit_generator.state
    assert plan(np.zeros((2, 7, 6, 3), np.uint8), transform, rng) is None
    assert rng.bit_generator.state == before


def test_a_crop_that_does_not_fit_says_so_as_on_the_host(rng: np.random.Generator) -> None:
    with pytest.raises(ShapeError, match=r"^\[RandomCrop\] expected a window inside the padded image"):
        plan(np.zeros((2, 7, 6, 3), np.uint8), RandomCrop(20), rng)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_loader_gives_the_same_pictures_on_every_engine(
    engine: Engine, rng: np.random.Generator, prefetch: int
) -> None:
    from alpha.cpu.engine import CPUEngine

    crop = RandomCrop(7, 2, padding_mode="reflect")
    transform = Compose([crop, RandomHorizontalFlip(), AlternatingFlip(), ToUnitRange()])
    data = ArrayDataset(images(rng, 23, 3), rng.integers(0, 4, 23), transform=transform)

    def epoch(where: Engine) -> list[tuple[bytes, bytes]]:
        loader = DataLoader(data, batch_size=5, shuffle=True, seed=3, prefetch=prefetch, engine=where)
        return [(x.numpy().tobytes(), y.numpy().tobytes()) for x, y in loader]

    assert epoch(engine) == epoch(CPUEngine(memory="64MB"))


def test_finished_images_lie_in_the_order_of_activations(engine: Engine, rng: np.random.Generator) -> None:
    if not engine.finishes_images:
        pytest.skip("the host's transforms finish this engine's images")
    data = ArrayDataset(images(rng, 6, 3), np.zeros(6, np.int64), transform=ToUnitRange())
    ((x, _),) = DataLoader(data, batch_size=6, engine=engine)
    assert x.is_contiguous(IMAGE_ORDER) and x.engine is engine
