"""Functions of one image from PIL images and arrays to tensors, between dtypes, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpha import errors
from alpha.datasets.transforms import kernels
from alpha.datasets.transforms.base import Array, is_pil, pillow, pixels, tensor_of
from alpha.dtypes import DtypeLike, as_dtype, float32, holds_numbers
from alpha.tensor import Tensor


def pil_to_tensor(pic: Any) -> Tensor:
    """A PIL image as a tensor of its values, uint8 for most modes."""
    if not is_pil(pic):
        raise errors.ArgumentError(f"[pil_to_tensor] expected a PIL image, got {type(pic).__name__}")
    return tensor_of(pil_pixels(pic))


def pil_pixels(pic: Any) -> Array:
    """A PIL image's values (H, W, C)."""
    array = np.array(pic)
    if array.dtype == np.uint16:  # modes I;16: PyTorch has no such dtype
        array = array.astype(np.int32)
    return array[..., None] if array.ndim == 2 else array


def to_tensor(pic: Any) -> Tensor:
    """A PIL image, or an array (H, W, C) or (H, W), as a tensor; uint8 becomes float32 in [0, 1]."""
    if is_pil(pic):
        array = pil_pixels(pic)
        if pic.mode == "1":
            array = array.astype(np.uint8) * 255
    elif isinstance(pic, np.ndarray) and pic.ndim in (2, 3) and holds_numbers(pic.dtype):
        array = pic[..., None] if pic.ndim == 2 else pic
    else:
        got = f"an array {pic.shape} of {pic.dtype}" if isinstance(pic, np.ndarray) else type(pic).__name__
        raise errors.ArgumentError(f"[to_tensor] expected a PIL image or an array (H, W, C) of numbers, got {got}")
    return tensor_of(kernels.scaled(array, float32) if array.dtype == np.uint8 else array)


def to_image(inpt: Any) -> Tensor:
    """A PIL image, an array (H, W, C) or (H, W), or a tensor as a tensor of the same values."""
    if isinstance(inpt, Tensor):
        return inpt
    if isinstance(inpt, np.ndarray):
        return tensor_of(inpt[..., None] if inpt.ndim == 2 else inpt)
    return pil_to_tensor(inpt)


def to_dtype(inpt: Tensor, dtype: DtypeLike = float32, scale: bool = False) -> Tensor:
    """An image in another dtype; with ``scale`` white stays white (255 of uint8, 1.0 of floats)."""
    array, wanted = pixels("to_dtype", inpt), as_dtype(dtype, "to_dtype")
    return tensor_of(kernels.scaled(array, wanted) if scale else array.astype(wanted), inpt)


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """A tensor, or an array (H, W, C) or (H, W), as a PIL image; floats in [0, 1] become uint8."""
    image = pillow("to_pil_image")
    if isinstance(pic, Tensor):
        array = np.asarray(pic) if pic.ndim == 2 else pixels("to_pil_image", pic)
        if array.dtype.kind == "f" and mode != "F":
            array = (array * 255).astype(np.uint8)
    elif isinstance(pic, np.ndarray):
        array = pic
    else:
        raise errors.ArgumentError(f"[to_pil_image] expected a tensor or an array, got {type(pic).__name__}")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] > 4):
        raise errors.ShapeError(f"[to_pil_image] expected an image of 1 to 4 channels, got {pic.shape}")
    try:
        made = image.fromarray(np.ascontiguousarray(array))
    except TypeError as error:
        raise errors.DtypeError(
            f"[to_pil_image] expected uint8 or a dtype that Pillow has, got {array.dtype}"
        ) from error
    return made if mode is None or made.mode == mode else made.convert(mode)


def normalize(inpt: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """(inpt - mean) / std for each channel of a tensor of floats."""
    array = pixels("normalize", inpt)
    if array.dtype.kind != "f":
        raise errors.DtypeError(
            f"[normalize] expected a tensor of floats, got {array.dtype}: use ToTensor or ToDtype first"
        )
    shift, divisor = (np.asarray(values, array.dtype).reshape(-1) for values in (mean, std))
    if any(values.size not in (1, array.shape[-1]) for values in (shift, divisor)):
        raise errors.ShapeError(
            f"[normalize] expected mean and std with 1 or {array.shape[-1]} values, got {shift.size} and {divisor.size}"
            ": give one value per channel"
        )
    if not divisor.all():
        raise errors.ArgumentError("[normalize] expected std other than 0, got 0: leave constant channels out")
    made = tensor_of((array - shift) / divisor, inpt)
    if inplace:
        inpt.copy_(made)
        return inpt
    return made
