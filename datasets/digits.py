"""The 1,797 real handwritten digits that scikit-learn ships (UCI optdigits), for work without a network."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpha import errors
from alpha.datasets import files
from alpha.datasets.dataset import ArrayDataset
from alpha.datasets.transforms import ToUnitRange

_SIDE = 8
_LEVELS = 16  # pixels are counts 0..16
_TRAIN = 1437  # four fifths of 1797
_SPLIT_SEED = 20240


class Digits(ArrayDataset):
    """1,437 training and 360 test images of handwritten digits, 8 x 8 pixels, each repeated up to ``size`` x ``size``.

    The split is one fixed seeded permutation (PCG64, seed 20240) of scikit-learn's order: the first four fifths train.
    Test accuracies are therefore comparable between runs, but not with published ones on the UCI split.

    Args:
        root, download: taken so that every data set here is made alike; the images come with scikit-learn.
        train: the training or the test images.
        transform: see ``datasets.transforms``; by default ToUnitRange(), pixels in [-1, 1].
        target_transform: from a label to anything.
        size: height and width, a multiple of 8.
        channels: how often the grey values are repeated.

    Raises:
        DataError: scikit-learn is not installed. ArgumentError: a size that is no multiple of 8.
    """

    def __init__(
        self,
        root: files.Root = None,
        train: bool = True,
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        download: bool = True,
        *,
        size: int = 32,
        channels: int = 3,
    ) -> None:
        if size < _SIDE or size % _SIDE or channels < 1:
            raise errors.ArgumentError(
                f"[Digits] expected size a multiple of {_SIDE} and channels >= 1, got size={size}, channels={channels}"
                ": the images are 8 x 8 pixels, each repeated"
            )
        rows = _rows()
        order = np.random.Generator(np.random.PCG64(_SPLIT_SEED)).permutation(len(rows))
        chosen = rows[order[:_TRAIN] if train else order[_TRAIN:]]
        grey = np.rint(chosen[:, :-1] * (255 / _LEVELS)).astype(np.uint8).reshape(-1, _SIDE, _SIDE)
        factor = size // _SIDE
        enlarged = grey.repeat(factor, axis=1).repeat(factor, axis=2)[..., None].repeat(channels, axis=3)
        super().__init__(
            enlarged,
            chosen[:, -1].astype(np.int64),
            tuple("0123456789"),
            ToUnitRange() if transform is None else transform,
            target_transform,
        )


def _rows() -> NDArray[np.float64]:
    """The images as rows of 64 grey values and a label.

    They are read from scikit-learn's file, for to import scikit-learn takes a second; where a version of it keeps them
    elsewhere, it is asked for them.
    """
    found = importlib.util.find_spec("sklearn")
    for folder in (found.submodule_search_locations or ()) if found else ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return np.loadtxt(file, delimiter=",")
    try:
        bundle = importlib.import_module("sklearn.datasets").load_digits()
    except ImportError as error:
        raise errors.DataError(
            f"[Digits] expected scikit-learn, which holds the images, got {files.one_line(error)}: "
            "pip install 'dragon-alpha[digits]'"
        ) from error
    return np.column_stack([bundle.data, bundle.target])
