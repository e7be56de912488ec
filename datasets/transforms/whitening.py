"""LinearTransformation: a matrix times all pixels of an image, as whitening is."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import errors
from alpha.conversion import tensor
from alpha.datasets.transforms.base import ImageTransform
from alpha.dtypes import is_float
from alpha.tensor import Tensor


class LinearTransformation(ImageTransform):
    """(x - mean_vector) @ transformation_matrix for a tensor of floats, flattened in the order of its axes, and back.

    Args:
        transformation_matrix: (D, D) for images of D numbers.
        mean_vector: (D,).

    Raises:
        ShapeError: no square matrix, a vector that does not fit it, or an image of another number of numbers.
        ArgumentError: a PIL image, or a tensor on another engine than the matrix.
    """

    def __init__(self, transformation_matrix: Any, mean_vector: Any) -> None:
        matrix, mean = (
            given if isinstance(given, Tensor) else tensor(np.asarray(given))
            for given in (transformation_matrix, mean_vector)
        )
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or mean.shape != matrix.shape[:1]:
            raise errors.ShapeError(
                "[LinearTransformation] expected transformation_matrix (D, D) and mean_vector (D,), got "
                f"{matrix.shape} and {mean.shape}"
            )
        if not is_float(matrix.dtype) or not is_float(mean.dtype):
            raise errors.DtypeError(
                f"[LinearTransformation] expected floats, got {matrix.dtype} and {mean.dtype}: convert them first"
            )
        self.transformation_matrix, self.mean_vector = matrix, mean

    def on_image(self, image: Any) -> Tensor:
        if not isinstance(image, Tensor):
            raise errors.ArgumentError(
                f"[LinearTransformation] expected a tensor, got {type(image).__name__}: use ToTensor first"
            )
        count = self.mean_vector.shape[0]
        if image.ndim < 3 or image[(0,) * (image.ndim - 3)].numel() != count:
            raise errors.ShapeError(
                f"[LinearTransformation] expected images of {count} numbers, got {image.shape}: the matrix is for those"
            )
        if not is_float(image.dtype):
            raise errors.DtypeError(f"[LinearTransformation] expected floats, got {image.dtype}: use ToTensor first")
        if image.engine is not self.mean_vector.engine:
            raise errors.ArgumentError(
                f"[LinearTransformation] expected an image on {self.mean_vector.engine}, where the matrix is, got "
                f"one on {image.engine}: move it there"
            )
        matrix, mean = (part.to(image.dtype) for part in (self.transformation_matrix, self.mean_vector))
        made: Tensor = ((image.reshape(-1, count) - mean) @ matrix).reshape(image.shape)
        return made
