"""Independent oracles in float64 NumPy, written from the definitions: explicit zeros, plain loops, nothing of ours."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]
Ints = tuple[int, ...]


def output_size(size: int, filter: int, stride: int, padding: int, dilation: int) -> int:
    """Number of output positions of a convolution."""
    return (size + 2 * padding - dilation * (filter - 1) - 1) // stride + 1


def conv2d(x: Array, w: Array, stride: Pair, padding: Pair, dilation: Pair, groups: int) -> Array:
    """x (N, H, W, C), w (OC, FH, FW, C / groups): over an input with its zeros written out."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    n, h, width, c = x.shape
    oc, fh, fw, _ = w.shape
    padded = np.pad(x, ((0, 0), (padding[0],) * 2, (padding[1],) * 2, (0, 0)))
    oh = output_size(h, fh, stride[0], padding[0], dilation[0])
    ow = output_size(width, fw, stride[1], padding[1], dilation[1])
    y = np.zeros((n, oh, ow, oc))
    ci, co = c // groups, oc // groups
    for g in range(groups):
        inputs, outputs = slice(g * ci, (g + 1) * ci), slice(g * co, (g + 1) * co)
        for a in range(fh):
            for b in range(fw):
                window = padded[
                    :,
                    a * dilation[0] : a * dilation[0] + (oh - 1) * stride[0] + 1 : stride[0],
                    b * dilation[1] : b * dilation[1] + (ow - 1) * stride[1] + 1 : stride[1],
                    inputs,
                ]
                y[..., outputs] += window @ w[outputs, a, b].T
    return y


def conv2d_gradients(
    x: Array, w: Array, dy: Array, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> tuple[Array, Array]:
    """(dx, dw) of ``sum(conv2d(x, w) * dy)``, product by product from the definition."""
    x, w, dy = x.astype(np.float64), w.astype(np.float64), dy.astype(np.float64)
    fh, fw = w.shape[1:3]
    padded = np.pad(x, ((0, 0), (padding[0],) * 2, (padding[1],) * 2, (0, 0)))
    dpadded, dw = np.zeros_like(padded), np.zeros_like(w)
    oh, ow = dy.shape[1:3]
    ci, co = x.shape[3] // groups, w.shape[0] // groups
    for g in range(groups):
        inputs, outputs = slice(g * ci, (g + 1) * ci), slice(g * co, (g + 1) * co)
        for i in range(oh):
            for j in range(ow):
                for a in range(fh):
                    for b in range(fw):
                        r, s = i * stride[0] + a * dilation[0], j * stride[1] + b * dilation[1]
                        dpadded[:, r, s, inputs] += dy[:, i, j, outputs] @ w[outputs, a, b]
                        dw[outputs, a, b] += dy[:, i, j, outputs].T @ padded[:, r, s, inputs]
    h, width = x.shape[1:3]
    return dpadded[:, padding[0] : padding[0] + h, padding[1] : padding[1] + width], dw


def nonzero_products(size: Pair, filter: Pair, stride: Pair, padding: Pair, dilation: Pair) -> int:
    """Pairs of output position and tap that meet an element of the input, counted one by one."""
    marks = np.pad(np.ones(size, np.int64), ((padding[0],) * 2, (padding[1],) * 2))
    oh = output_size(size[0], filter[0], stride[0], padding[0], dilation[0])
    ow = output_size(size[1], filter[1], stride[1], padding[1], dilation[1])
    return sum(
        int(marks[i * stride[0] + a * dilation[0], j * stride[1] + b * dilation[1]])
        for i in range(oh)
        for j in range(ow)
        for a in range(filter[0])
        for b in range(filter[1])
    )


def _windows(shape: Ints, filter: Ints, stride: Ints, dilation: Ints) -> list[tuple[Ints, tuple[slice, ...]]]:
    """Each tap of a filter of any number of axes, and what of a padded input it meets at ``shape`` output positions."""
    windows = []
    for tap in itertools.product(*map(range, filter)):
        starts = [t * d for t, d in zip(tap, dilation, strict=True)]
        axes = zip(starts, shape, stride, strict=True)
        windows.append((tap, tuple(slice(start, start + (o - 1) * s + 1, s) for start, o, s in axes)))
    return windows


def _pad(x: Array, padding: Ints) -> Array:
    return np.pad(x.astype(np.float64), [(0, 0), *((p, p) for p in padding), (0, 0)])


def convolution(x: Array, w: Array, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Array:
    """x (N, ..., C), w (OC, ..., C / groups), any number of axes between: over an input with its zeros written out."""
    padded, w = _pad(x, padding), w.astype(np.float64)
    sizes = zip(x.shape[1:-1], w.shape[1:-1], stride, padding, dilation, strict=True)
    shape = tuple(output_size(*values) for values in sizes)
    y = np.zeros((len(x), *shape, len(w)))
    for tap, window in _windows(shape, w.shape[1:-1], stride, dilation):
        read = np.split(padded[:, *window], groups, -1)
        filters = np.split(w[:, *tap], groups)
        y += np.concatenate([part @ f.T for part, f in zip(read, filters, strict=True)], -1)
    return y


def convolution_gradients(
    x: Array, w: Array, dy: Array, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> tuple[Array, Array]:
    """(dx, dw) of ``sum(convolution(x, w) * dy)``; dy may leave out the last positions."""
    padded, w, dy = _pad(x, padding), w.astype(np.float64), dy.astype(np.float64)
    dpadded, dw = np.zeros_like(padded), np.zeros_like(w)
    for tap, window in _windows(dy.shape[1:-1], w.shape[1:-1], stride, dilation):
        read, grads = np.split(padded[:, *window], groups, -1), np.split(dy, groups, -1)
        filters = np.split(w[:, *tap], groups)
        dpadded[:, *window] += np.concatenate([g @ f for g, f in zip(grads, filters, strict=True)], -1)
        axes = list(range(x.ndim - 1))
        dw[:, *tap] += np.concatenate([np.tensordot(g, r, (axes, axes)) for g, r in zip(grads, read, strict=True)])
    inside = tuple(slice(p, p + n) for p, n in zip(padding, x.shape[1:-1], strict=True))
    return dpadded[:, *inside], dw


def products(size: Ints, filter: Ints, stride: Ints, padding: Ints, dilation: Ints) -> int:
    """Pairs of output position and tap that meet an element of the input, counted tap by tap."""
    marks = np.pad(np.ones(size, np.int64), [(p, p) for p in padding])
    shape = tuple(output_size(*values) for values in zip(size, filter, stride, padding, dilation, strict=True))
    return sum(int(marks[window].sum()) for _, window in _windows(shape, filter, stride, dilation))


def batch_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """Training BatchNorm over all axes but the last."""
    x = x.astype(np.float64)
    axes = tuple(range(x.ndim - 1))
    mean, var = x.mean(axes), x.var(axes)
    return (x - mean) / np.sqrt(var + eps) * weight + bias
