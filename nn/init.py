"""Initialisation of weights in place, drawn from ``alpha.random``: the same on every engine.

Filters are (OC, FH, FW, IC/groups), for transposed convolutions (IC, FH, FW, OC/groups), linear weights (out, in): so
fan_in is the last axis and fan_out the first, each times the receptive field between them, as PyTorch counts them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import wraps
from statistics import NormalDist
from typing import Any

import numpy as np

from alpha import Tensor, get_image_layout, random
from alpha.arguments import number, whole
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.operands import check_tensor, check_value, python_number
from alpha.nn.filling import check_memory, checked_float, drawn, overwritten, skippable

Array = np.ndarray[Any, Any]

_IMAGES = 256
"""Images whose patches are in memory at once."""

_FARTHEST_NORMAL = 9.0
"""No draw of a normal number is so many standard deviations from the mean: a uniform one in it is at least 2^-54."""

_LIKELY = 0.1
"""Where bounds hold more of a normal's mass, drawing again what is outside takes less time than inverting its CDF."""


def fans(tensor: Tensor, function: str = "fans") -> tuple[int, int]:
    """(fan_in, fan_out) of a weight: inputs that an output sums over, and outputs that an input reaches."""
    check_tensor(function, tensor)
    if tensor.ndim < 2:
        raise ShapeError(f"[{function}] expected a weight with at least 2 axes, got shape {tensor.shape}")
    first = get_image_layout() == "NCHW"
    field = math.prod(tensor.shape[2:] if first else tensor.shape[1:-1])
    return tensor.shape[1 if first else -1] * field, tensor.shape[0] * field


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance of activations through a nonlinearity.

    linear, conv2d, sigmoid: 1; tanh: 5/3; relu: sqrt(2); leaky_relu: sqrt(2 / (1 + param**2)), param 0.01 by default;
    selu: 3/4.
    """
    if isinstance(nonlinearity, str) and nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else number("calculate_gain", "param", param)
        return math.sqrt(2) / math.hypot(1, slope)
    gains = {"relu": math.sqrt(2), "tanh": 5 / 3, "selu": 3 / 4}
    gains |= dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "sigmoid"), 1.0)
    gains |= dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 1.0)
    if not isinstance(nonlinearity, str) or nonlinearity not in gains:
        raise ArgumentError(
            f"[calculate_gain] expected one of {', '.join([*gains, 'leaky_relu'])}, got {described(nonlinearity)}"
        )
    return gains[nonlinearity]


@skippable
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Uniform on [a, b)."""
    dtype = checked_float(tensor, "uniform_")
    a, b = number("uniform_", "a", a), number("uniform_", "b", b)
    if not a <= b or math.isinf(b - a):
        raise ArgumentError(f"[uniform_] expected a <= b, got a={a} and b={b}")
    return drawn(tensor, random.draw_uniform(tensor.shape, a, b, dtype))


@skippable
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Normal with a mean and a standard deviation."""
    dtype = checked_float(tensor, "normal_")
    mean, std = number("normal_", "mean", mean), number("normal_", "std", std)
    if not std >= 0:
        raise ArgumentError(f"[normal_] expected std >= 0, got {std}")
    return drawn(tensor, random.draw_normal(tensor.shape, mean, std, dtype))


@skippable
def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Normal, but never outside [a, b] (bounds in absolute values).

    Draws outside are made again; where the bounds hold little of the normal's mass, the draws are the inverse of its
    CDF at uniform ones.
    """
    dtype = checked_float(tensor, "trunc_normal_")
    mean, std = number("trunc_normal_", "mean", mean), number("trunc_normal_", "std", std)
    a, b = number("trunc_normal_", "a", a), number("trunc_normal_", "b", b)
    if not 0 < std < math.inf or not a < b or not math.isfinite(mean):
        raise ArgumentError(
            f"[trunc_normal_] expected std > 0 and a < b, got std={std}, a={a} and b={b} with mean={mean}"
        )
    normal = NormalDist(mean, std)
    low, high = normal.cdf(a), normal.cdf(b)
    if not 0 < low + high < 2 or low == high:
        raise ArgumentError(
            f"[trunc_normal_] expected bounds that hold some of the normal's mass, got a={a} and b={b} with "
            f"mean={mean} and std={std}"
        )
    if min(mean - a, b - mean) > _FARTHEST_NORMAL * std:
        return drawn(tensor, random.draw_normal(tensor.shape, mean, std, dtype))
    if high - low > _LIKELY:
        return overwritten(tensor, _redrawn(tensor.shape, mean, std, a, b, dtype))
    draws = random.uniform(tensor.shape, low, high, np.float64).ravel()
    inside = np.clip(draws, np.nextafter(0, 1), np.nextafter(1, 0))  # inv_cdf takes neither 0 nor 1
    values = np.fromiter((normal.inv_cdf(p) for p in inside.tolist()), np.float64, inside.size)
    return overwritten(tensor, np.clip(values, a, b).reshape(tensor.shape))


def _redrawn(shape: tuple[int, ...], mean: float, std: float, a: float, b: float, dtype: np.dtype[Any]) -> Array:
    """Normal numbers, those outside [a, b] drawn again until none is."""
    values = random.normal(shape, mean, std, dtype)
    while (outside := (values < a) | (values > b)).any():
        values[outside] = random.normal(int(outside.sum()), mean, std, dtype)
    return values


@skippable
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Every element one value."""
    check_tensor("constant_", tensor)
    check_memory(tensor, "constant_")
    value = python_number("constant_", val)
    check_value("constant_", value, tensor.dtype)
    tensor.engine.fill(tensor, value)
    tensor.storage.touch()
    return tensor


def zeros_(tensor: Tensor) -> Tensor:
    """Every element 0."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Every element 1."""
    return constant_(tensor, 1)


@skippable
def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Uniform on ±sqrt(3) * gain / sqrt(fan). He et al., arXiv 1502.01852.

    Args:
        tensor: the weight.
        a: the leaky_relu's slope behind the layer.
        mode: ``"fan_in"`` keeps the variance forward, ``"fan_out"`` backward.
        nonlinearity: see ``calculate_gain``.
    """
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity, "kaiming_uniform_")
    return uniform_(tensor, -bound, bound)


@skippable
def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Normal with std gain / sqrt(fan); arguments as for ``kaiming_uniform_``. He et al., arXiv 1502.01852."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity, "kaiming_normal_"))


@skippable
def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Uniform on ±gain * sqrt(6 / (fan_in + fan_out)). Glorot & Bengio, AISTATS 2010."""
    gain = number("xavier_uniform_", "gain", gain)
    bound = gain * math.sqrt(6 / max(sum(fans(tensor, "xavier_uniform_")), 1))
    return uniform_(tensor, -bound, bound)


@skippable
def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Normal with std gain * sqrt(2 / (fan_in + fan_out)). Glorot & Bengio, AISTATS 2010."""
    gain = number("xavier_normal_", "gain", gain)
    return normal_(tensor, 0.0, gain * math.sqrt(2 / max(sum(fans(tensor, "xavier_normal_")), 1)))


@skippable
def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """(First axis) x (all others) as a matrix with orthonormal rows or columns, times gain. Saxe et al., arXiv
    1312.6120."""
    checked_float(tensor, "orthogonal_")
    gain = number("orthogonal_", "gain", gain)
    if tensor.ndim < 2:
        raise ShapeError(f"[orthogonal_] expected a weight with at least 2 axes, got shape {tensor.shape}")
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    draws = random.normal((max(rows, columns), min(rows, columns)), 0.0, 1.0, np.float64)
    q, r = np.linalg.qr(draws)
    q *= np.where(np.diag(r) < 0, -1.0, 1.0)  # makes the distribution uniform over orthogonal matrices
    return overwritten(tensor, gain * (q if rows >= columns else q.T).reshape(tensor.shape))


@skippable
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Filters (OC, ..., IC/groups) that hand their input on: 1 in the middle of channel i of each group's filter i.

    Filters beyond the number of input channels are 0.
    """
    dtype = checked_float(tensor, "dirac_")
    groups = whole("dirac_", "groups", groups, least=1)
    if tensor.ndim < 3:
        raise ShapeError(f"[dirac_] expected filters of at least 3 axes (OC, ..., IC/groups), got shape {tensor.shape}")
    first = get_image_layout() == "NCHW"
    shape = (len(tensor), *tensor.shape[2:], tensor.shape[1]) if first else tensor.shape
    outputs, sizes, inputs = shape[0], shape[1:-1], shape[-1]
    if outputs % groups:
        raise ArgumentError(f"[dirac_] expected groups that divide {outputs} filters, got {groups}")
    values = np.zeros(shape, dtype)
    if not values.size:
        return tensor
    outputs_of_group = outputs // groups
    for channel in range(min(outputs_of_group, inputs)):
        place: tuple[Any, ...] = (slice(channel, None, outputs_of_group), *(size // 2 for size in sizes), channel)
        values[place] = 1
    return overwritten(tensor, np.moveaxis(values, -1, 1) if first else values)


@skippable
def eye_(tensor: Tensor) -> Tensor:
    """A matrix whose diagonal is 1 and whose other elements are 0."""
    dtype = checked_float(tensor, "eye_")
    if tensor.ndim != 2:
        raise ShapeError(f"[eye_] expected a matrix, got shape {tensor.shape}")
    return overwritten(tensor, np.eye(*tensor.shape, dtype=dtype))


@skippable
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """A matrix of normal numbers in which a share of each column, drawn anew for each, is 0. Martens, ICML 2010.

    Args:
        tensor: the matrix.
        sparsity: the share of zeros, rounded up to whole elements.
        std: the standard deviation of the others.
    """
    dtype = checked_float(tensor, "sparse_")
    share, std = number("sparse_", "sparsity", sparsity), number("sparse_", "std", std)
    if tensor.ndim != 2:
        raise ShapeError(f"[sparse_] expected a matrix, got shape {tensor.shape}")
    if not 0 <= share <= 1 or not std >= 0:
        raise ArgumentError(f"[sparse_] expected sparsity from 0 to 1 and std >= 0, got {sparsity} and {std}")
    values = random.normal(tensor.shape, 0.0, std, dtype)
    order = np.argsort(random.uniform(tensor.shape, 0.0, 1.0, np.float64), axis=0)
    np.put_along_axis(values, order[: math.ceil(share * tensor.shape[0])], 0, axis=0)
    return overwritten(tensor, values)


def whiten_patches_(tensor: Tensor, images: Tensor | Array, eps: float = 5e-4) -> Tensor:
    """Filters (OC, FH, FW, C) whose results on these images' patches are uncorrelated and of variance about 1.

    The first OC/2 filters are eigenvectors of the covariance of the images' FH x FW patches, largest eigenvalue first,
    over sqrt(eigenvalue + eps); the other half are the same with the other sign, so that a rectifier behind loses
    nothing. Jordan, arXiv 2404.00498, after Page's "How to train your ResNet", 2019.

    Args:
        tensor: the weight; OC is even and at most twice FH * FW * C.
        images: (n, H, W, C), scaled as in training; some thousands are enough.
        eps: of about the variance below which a direction is taken for noise.
    """
    checked_float(tensor, "whiten_patches_")
    eps = number("whiten_patches_", "eps", eps)
    pixels = np.asarray(images.detach() if isinstance(images, Tensor) else images)
    shape, first = tensor.shape, get_image_layout() == "NCHW" and tensor.ndim == pixels.ndim == 4
    if first:
        pixels, shape = pixels.transpose(0, 2, 3, 1), (shape[0], *shape[2:], shape[1])
    if not eps >= 0:
        raise ArgumentError(f"[whiten_patches_] expected eps >= 0, got {eps}")
    size = math.prod(shape[1:])
    if len(shape) != 4 or shape[0] % 2 or shape[0] > 2 * size:
        raise ShapeError(
            f"[whiten_patches_] expected filters (OC, FH, FW, C) with an even OC <= 2 FH FW C, got shape {shape}"
        )
    fits = pixels.ndim == 4 and pixels.shape[3] == shape[3] and len(pixels) > 0
    if not fits or pixels.shape[1] < shape[1] or pixels.shape[2] < shape[2]:
        raise ShapeError(
            f"[whiten_patches_] expected images (n, H, W, {shape[-1]}) of at least {shape[1:3]} pixels, "
            f"got {pixels.shape}"
        )
    covariance = _patch_covariance(pixels, shape[1], shape[2])
    if not np.isfinite(covariance).all():
        raise ArgumentError("[whiten_patches_] expected finite images, got NaN or infinity among their pixels")
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1].clip(0)[:, None], vectors.T[::-1]
    vectors = vectors * np.sign(np.take_along_axis(vectors, np.abs(vectors).argmax(1)[:, None], 1))  # one of two signs
    with np.errstate(divide="ignore", invalid="ignore"):
        half = (vectors / np.sqrt(values + eps))[: shape[0] // 2]
    if not np.isfinite(half).all():
        raise ArgumentError(
            f"[whiten_patches_] expected eps > 0 where a direction has no variance, got {eps}: use a larger one"
        )
    filters = np.concatenate([half, -half]).reshape(shape)
    return overwritten(tensor, filters.transpose(0, 3, 1, 2) if first else filters)


def _patch_covariance(images: Array, height: int, width: int) -> Array:
    """The covariance of all patches (height, width, C), in float64, a few images at a time."""
    size = height * width * images.shape[3]
    total, squares, count = np.zeros(size), np.zeros((size, size)), 0
    shift = images[:_IMAGES].mean(axis=(0, 1, 2), dtype=np.float64)  # a covariance does not depend on it, rounding does
    for start in range(0, len(images), _IMAGES):
        some = images[start : start + _IMAGES] - shift
        windows = np.lib.stride_tricks.sliding_window_view(some, (height, width), axis=(1, 2))
        patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, size)
        total += patches.sum(axis=0)
        squares += patches.T @ patches
        count += len(patches)
    return squares / count - np.outer(total / count, total / count)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str, function: str) -> float:
    both = dict(zip(("fan_in", "fan_out"), fans(tensor, function), strict=True))
    a = number(function, "a", a)
    if not isinstance(mode, str) or mode not in both:
        raise ArgumentError(f'[{function}] expected mode "fan_in" or "fan_out", got {described(mode)}')
    return calculate_gain(nonlinearity, a) / math.sqrt(max(both[mode], 1))


# -- older names -------------------------------------------------------------------------------------------------


def _older(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function under its older name, without the underscore at the end: it warns."""
    name: str = function.__name__
    before = name.removesuffix("_")

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"[nn.init] {before} is an older name: use {name}", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = before
    call.__doc__ = f"``{name}`` under its older name; calling it warns."
    return call


constant, dirac, eye = _older(constant_), _older(dirac_), _older(eye_)
normal, orthogonal, sparse, uniform = _older(normal_), _older(orthogonal_), _older(sparse_), _older(uniform_)
kaiming_normal, kaiming_uniform = _older(kaiming_normal_), _older(kaiming_uniform_)
xavier_normal, xavier_uniform = _older(xavier_normal_), _older(xavier_uniform_)
