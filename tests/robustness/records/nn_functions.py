"""Pooling of any number of axes, losses, distances, sampling and what else is in nn.functional alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
from alpha.nn import functional
from tests.robustness.cases import Base, Case, Draw, Input
from tests.robustness.compare import NORMALISED, SOLVED, SUMS, Tolerance
from tests.robustness.record import Record

CHOSEN = Tolerance(4, 0, 0, "an element is chosen, not computed")
Oracle = Callable[..., Any]
Drawn = Callable[[Draw], Case]


def _record(name: str, draw: Drawn, oracle: Oracle | None, tolerance: Tolerance = SUMS, **more: Any) -> Record:
    """A record of a function of alpha, or of nn.functional alone, compared with PyTorch's of its name."""
    covers = more.pop("covers", ())
    space = "alpha" if name in alpha.__all__ else "nn.functional"
    peer = more.pop("peer", lambda torch, *args, **options: getattr(torch.nn.functional, name)(*args, **options))
    covers = (*covers, f"nn.functional.{name}") if space == "alpha" and name in functional.__all__ else covers
    return Record(f"{space}.{name}", draw, oracle, peer, tolerance, covers=covers, **more)


def _images(d: Draw, axes: int, least: int = 3, values: str = "distinct") -> Input:
    """Sequences, images or volumes."""
    return d.input(
        (d.pick((1, 2)), *(least + d.whole(0, 3) for _ in range(axes)), d.pick((1, 2, 5))), d.dtype(), values
    )


def _peer_images(name: str) -> Oracle:
    def call(torch: Any, x: Any, *args: Any, **options: Any) -> Any:
        if name == "max_pool3d" and torch.isneginf(x).any():
            raise ValueError("PyTorch loses the place of a maximum of -infinity")
        return getattr(torch.nn.functional, name)(x.movedim(-1, 1), *args, **options).movedim(1, -1)

    return call


def _peer_margins(name: str) -> Oracle:
    def call(torch: Any, x: Any, target: Any, **options: Any) -> Any:
        if torch.isnan(x).any():
            raise ValueError("PyTorch takes no notice of NaN")
        return getattr(torch.nn.functional, name)(x, target, **options)

    return call


# -- pooling -----------------------------------------------------------------------------------------------------


def _window(axes: int) -> Drawn:
    def draw(d: Draw) -> Case:
        kernel = d.pick((1, 2, 3))
        options = {"kernel_size": kernel, "stride": d.pick((1, 2, None)), "padding": d.whole(0, kernel // 2)}
        return Case([_images(d, axes)], options)

    return draw


def _taps(x: Any, kernel: int, stride: int | None, padding: int, value: float) -> list[Any]:
    """What the windows have at each of their places."""
    axes, step = x.ndim - 2, kernel if stride is None else stride
    padded = np.pad(x, ((0, 0), *((padding, padding),) * axes, (0, 0)), constant_values=value)
    sizes = [(n + 2 * padding - kernel) // step + 1 for n in x.shape[1:-1]]
    return [
        padded[(slice(None), *(slice(t, t + (m - 1) * step + 1, step) for t, m in zip(place, sizes, strict=True)))]
        for place in itertools.product(range(kernel), repeat=axes)
    ]


def maxima(x: Any, kernel_size: int, stride: int | None, padding: int) -> Any:
    """The largest of each window."""
    return np.maximum.reduce(_taps(x, kernel_size, stride, padding, -np.inf))


def means(x: Any, kernel_size: int, stride: int | None, padding: int) -> Any:
    """The mean of each window, the padding 0."""
    return sum(_taps(x, kernel_size, stride, padding, 0.0)) / kernel_size ** (x.ndim - 2)


def _lp(d: Draw, axes: int) -> Case:
    return Case([_images(d, axes, values="positive"), d.pick((1, 2, 3)), d.pick((1, 2, 3))])


def norms(x: Any, norm_type: float, kernel_size: int) -> Any:
    """(sum of x^p)^(1/p) over windows side by side."""
    return sum(t**norm_type for t in _taps(x, kernel_size, None, 0, 0.0)) ** (1 / norm_type)


def _sizes(axes: int) -> Drawn:
    return lambda d: Case([_images(d, axes), d.pick((1, 2, 3))])


def _adapted(fold: Callable[..., Any]) -> Oracle:
    def call(x: Any, size: int) -> Any:
        for axis in range(1, x.ndim - 1):
            n = x.shape[axis]
            parts = [x.take(range(i * n // size, -(-(i + 1) * n // size)), axis) for i in range(size)]
            x = np.stack([fold(part, axis=axis) for part in parts], axis)
        return x

    return call


def _unpooled(axes: int) -> Drawn:
    def draw(d: Draw) -> Case:
        x = _images(d, axes, 1)
        n, *sides, c = x.shape
        places = [
            [d.np.permutation(2**axes * math.prod(sides))[: math.prod(sides)] for _ in range(c)] for _ in range(n)
        ]
        return Case([x, Input(Base(np.moveaxis(np.array(places), 1, 2).reshape(x.shape))), 2])

    return draw


def unpooled(x: Any, places: Any, kernel: int) -> Any:
    """Zeros, and each maximum at its place."""
    n, *sides, c = x.shape
    out = np.zeros((n, 2 ** len(sides) * math.prod(sides), c))
    np.put_along_axis(out, places.reshape(n, -1, c), x.reshape(n, -1, c), 1)
    return out.reshape(n, *(kernel * side for side in sides), c)


def _peer_unpooled(name: str) -> Oracle:
    def call(torch: Any, x: Any, places: Any, kernel: int) -> Any:
        return getattr(torch.nn.functional, name)(x.movedim(-1, 1), places.movedim(-1, 1), kernel).movedim(1, -1)

    return call


def _fractional(axes: int) -> Drawn:
    return lambda d: Case([_images(d, axes, 4), 2], {"output_size": d.pick((1, 2, 3))})


def _check_fractional(result: Any, case: Case) -> str | None:
    x, y = case.args[0].numpy(), np.asarray(result.detach().numpy())
    size = case.options["output_size"]
    if y.shape != (x.shape[0], *(size,) * (x.ndim - 2), x.shape[-1]) or y.dtype != x.dtype:
        return f"shape or dtype: {y.shape} {y.dtype}"
    return None if np.isin(y[~np.isnan(y)], x).all() else "not elements of x"


# -- losses ------------------------------------------------------------------------------------------------------


def _two(values: str = "normal", target: str = "normal", count: int = 2, **options: Any) -> Drawn:
    """Tensors of one shape, of which the last is the target."""

    def draw(d: Draw) -> Case:
        dtype, shape = d.dtype(), d.shape()
        given = [d.input(shape, dtype, values) for _ in range(count - 1)]
        return Case(
            [*given, d.input(shape, dtype, target, grad=0)], {**options, "reduction": d.pick(("mean", "sum", "none"))}
        )

    return draw


def _probabilities(d: Draw) -> Case:
    dtype, shape = d.dtype(), d.shape()
    given = [Input(Base((0.1 + 0.8 * d.np.random(shape)).astype(dtype), grad)) for grad in (True, False)]
    return Case(given, {"reduction": d.pick(("mean", "sum", "none"))})


def _rows(count: int, signed: bool = False) -> Drawn:
    """Vectors, and with ``signed`` a target of 1 or -1 for each; with their reduction."""

    def draw(d: Draw) -> Case:
        dtype, shape = d.dtype(), (d.whole(1, 5), d.whole(1, 6))
        given: list[Any] = [d.input(shape, dtype, "normal") for _ in range(count)]
        if signed:
            given.append(Input(Base(d.np.choice([-1, 1], shape[:1]).astype(dtype))))
        return Case(given, {"reduction": d.pick(("mean", "sum", "none"))})

    return draw


def _reduced(rule: Oracle) -> Oracle:
    """A rule for each element, and its reduction."""

    def call(*args: Any, reduction: str, **options: Any) -> Any:
        losses = np.asarray(rule(*args, **options))
        if reduction == "none":
            return losses
        return losses.sum() if reduction == "sum" else losses.sum() / np.float64(losses.size)

    return call


def _huber(x: Any, y: Any) -> Any:
    size = np.abs(x - y)
    return np.where(size <= 1, size * size / 2, size - 0.5)


def _cosines(x: Any, y: Any, target: Any) -> Any:
    cosine = (x * y).sum(-1) / np.sqrt(((x * x).sum(-1) + 1e-12) * ((y * y).sum(-1) + 1e-12))
    return np.where(target == 1, 1 - cosine, np.maximum(cosine, 0))


def _apart(x: Any, y: Any) -> Any:
    return np.sqrt(((x - y + 1e-6) ** 2).sum(-1))


def _triplets(anchor: Any, positive: Any, negative: Any) -> Any:
    return np.maximum(1 + _apart(anchor, positive) - _apart(anchor, negative), 0)


def _scores(several: bool) -> Drawn:
    def draw(d: Draw) -> Case:
        n, c = d.whole(1, 5), d.whole(1, 6)
        target = d.np.integers(0, c, (n, c) if several else n)
        if several:
            target = np.where(np.arange(c) < d.np.integers(0, c + 1, (n, 1)), target, -1)
        return Case(
            [d.input((n, c), d.dtype(), "normal"), Input(Base(target))], {"reduction": d.pick(("mean", "sum", "none"))}
        )

    return draw


def _margins(x: Any, y: Any) -> Any:
    beyond = np.maximum(1 - np.take_along_axis(x, y[:, None], 1) + x, 0)
    return np.where(np.arange(x.shape[1]) == y[:, None], 0, beyond).mean(1)


def _several_margins(x: Any, y: Any) -> Any:
    losses = []
    for row, labels in zip(x, y, strict=True):
        wanted = list(itertools.takewhile(lambda k: k >= 0, labels))
        others = [i for i in range(len(row)) if i not in wanted]
        losses.append(sum([np.maximum(1 - row[j] + row[i], 0) for j in wanted for i in others], 0.0) / len(row))
    return np.array(losses, np.float64)


def _several_classes(x: Any, y: Any) -> Any:
    return (y * np.logaddexp(0, -x) + (1 - y) * np.logaddexp(0, x)).mean(-1 if x.ndim else None)


def _alignments(d: Draw) -> Case:
    d.values = "ordinary"
    steps, count, classes, longest = d.whole(3, 6), d.whole(1, 3), d.whole(2, 4), d.whole(1, 3)
    labels, lengths = d.np.integers(1, classes, (count, longest)), d.np.integers(0, longest + 1, count)
    rows = d.np.normal(size=(steps, count, classes))
    x = Base((rows - np.log(np.exp(rows).sum(-1, keepdims=True))).astype(d.dtype()))
    counts = [int(n) for n in d.np.integers(1, steps + 1, count)]
    return Case([Input(x), Input(Base(labels)), counts, [int(n) for n in lengths]], {"reduction": "none"})


def aligned(log_probs: Any, labels: Any, counts: list[int], lengths: list[int], reduction: str) -> Any:
    """The sum over all paths of each sequence."""
    losses = []
    for i, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        total = 0.0
        for path in itertools.product(range(log_probs.shape[2]), repeat=count):
            if [k for k, _ in itertools.groupby(path) if k] == list(labels[i, :length]):
                total += np.exp(sum(log_probs[t, i, k] for t, k in enumerate(path)))
        losses.append(-np.log(total) if total else np.inf)
    return np.array(losses, np.float64)


# -- vectors -----------------------------------------------------------------------------------------------------


def _vectors(d: Draw, count: int) -> Case:
    dtype, shape = d.dtype(), (d.whole(1, 5), d.whole(1, 6))
    return Case([d.input(shape, dtype, "distinct") for _ in range(count)])


def _bilinear(d: Draw) -> Case:
    dtype, n, a, b, o = d.dtype(), d.whole(1, 4), d.whole(1, 4), d.whole(1, 4), d.whole(1, 4)
    return Case([d.input(shape, dtype) for shape in ((n, a), (n, b), (o, a, b), (o,))])


def _bags(d: Draw) -> Case:
    rows = d.whole(1, 6)
    index = d.np.integers(0, rows, (d.whole(1, 4), d.whole(1, 5)))
    return Case([Input(Base(index)), d.input((rows, d.whole(1, 4)))], {"mode": d.pick(("sum", "mean", "max"))})


def bags(index: Any, weight: Any, mode: str) -> Any:
    """Rows folded."""
    return getattr(np, mode)(weight[index], 1)


# -- images ------------------------------------------------------------------------------------------------------


def _grid(d: Draw) -> Case:
    dtype, n = d.dtype(), d.pick((1, 2))
    x = d.input((n, d.whole(2, 5), d.whole(2, 5), d.pick((1, 3))), dtype)
    places = (d.np.random((n, 3, 2, 2)) * 2.4 - 1.2).astype(dtype)
    return Case([x, Input(Base(places, True))], {"align_corners": d.chance(0.5)})


def sampled(x: Any, grid: Any, align_corners: bool) -> Any:
    """Between four pixels, 0 outside."""
    _, h, w, c = x.shape
    out = np.zeros((*grid.shape[:3], c))
    for i, r, q in np.ndindex(grid.shape[:3]):
        u, v = [
            (p + 1) / 2 * (s - 1) if align_corners else ((p + 1) * s - 1) / 2
            for p, s in zip(grid[i, r, q], (w, h), strict=True)
        ]
        for a, b in itertools.product((0, 1), repeat=2):
            row, column = math.floor(v) + a, math.floor(u) + b
            if 0 <= row < h and 0 <= column < w:
                out[i, r, q] = out[i, r, q] + (1 - abs(v - row)) * (1 - abs(u - column)) * x[i, row, column]
    return out


def _peer_sampled(torch: Any, x: Any, grid: Any, align_corners: bool) -> Any:
    return torch.nn.functional.grid_sample(x.movedim(-1, 1), grid, align_corners=align_corners).movedim(1, -1)


def _maps(d: Draw) -> Case:
    return Case([d.input((2, 2, 3), d.dtype()), (2, d.whole(1, 4), d.whole(1, 4), 3)])


def mapped(theta: Any, size: Any) -> Any:
    """theta times (column, row, 1)."""
    rows, columns = ((2 * np.arange(n) + 1) / n - 1 for n in size[1:3])
    base = np.stack([*np.meshgrid(columns, rows), np.ones(size[1:3])], -1)
    return np.einsum("nij,hwj->nhwi", theta, base)


def _blocks(d: Draw, divided: bool) -> Case:
    n, h, w, c = d.whole(0, 2), d.whole(1, 3), d.whole(1, 3), d.whole(1, 3)
    return Case([d.input((n, 2 * h, 2 * w, c) if divided else (n, h, w, 4 * c), d.dtype()), 2])


def spread(x: Any, r: int) -> Any:
    """Channels as pixels."""
    n, h, w, c = x.shape
    return x.reshape(n, h, w, c // (r * r), r, r).transpose(0, 1, 4, 2, 5, 3).reshape(n, h * r, w * r, c // (r * r))


def gathered(x: Any, r: int) -> Any:
    """Pixels as channels."""
    n, h, w, c = x.shape
    return x.reshape(n, h // r, r, w // r, r, c).transpose(0, 1, 3, 5, 2, 4).reshape(n, h // r, w // r, c * r * r)


def shuffled(x: Any, groups: int) -> Any:
    """Channels group by group, taken in turns."""
    return x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups).swapaxes(-1, -2).reshape(x.shape)


def unfolded(x: Any, kernel: int) -> Any:
    """Windows as rows, the channel slowest."""
    found = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (1, 2))
    n, h, w, *_ = found.shape
    return found.reshape(n, h * w, math.prod(found.shape[3:]))


def folded(x: Any, size: int, kernel: int) -> Any:
    """Windows added up."""
    side = size - kernel + 1
    blocks = x.reshape(len(x), side, side, -1, kernel, kernel)
    out = np.zeros((len(x), size, size, blocks.shape[3]))
    for a, b in itertools.product(range(kernel), repeat=2):
        out[:, a : a + side, b : b + side] += blocks[..., a, b]
    return out


def responding(x: Any, size: int) -> Any:
    """x over its neighbours' mean square."""
    padded = np.pad(x * x, (*((0, 0),) * (x.ndim - 1), (size // 2, (size - 1) // 2)))
    mean = sum(padded[..., k : k + x.shape[-1]] for k in range(size)) / size
    return x / (1 + 1e-4 * mean) ** 0.75


def _dropped(name: str, axes: int) -> Record:
    def check(result: Any, case: Case) -> str | None:
        x, y = case.args[0].numpy(), np.asarray(result.detach().numpy())
        return None if x.shape == y.shape and x.dtype == y.dtype else f"shape or dtype: {y.shape} {y.dtype}"

    def draw(d: Draw) -> Case:
        return Case([_images(d, axes, 1)], {"p": d.pick((0.0, 0.3, 1.0)), "training": d.chance(0.8)})

    return _record(name, draw, None, check=check, gradient=False, peer=None)


_PEER_UNFOLDED = lambda t, x, k: t.nn.functional.unfold(x.movedim(-1, 1), k).movedim(1, -1)  # noqa: E731
_PEER_FOLDED = lambda t, x, *a: t.nn.functional.fold(x.movedim(1, -1), *a).movedim(1, -1)  # noqa: E731

RECORDS = [
    *[_record(f"max_pool{n}d", _window(n), maxima, CHOSEN, peer=_peer_images(f"max_pool{n}d")) for n in (1, 3)],
    *[_record(f"avg_pool{n}d", _window(n), means, peer=_peer_images(f"avg_pool{n}d")) for n in (1, 3)],
    *[
        _record(f"lp_pool{n}d", lambda d, n=n: _lp(d, n), norms, SOLVED, peer=_peer_images(f"lp_pool{n}d"), solves=True)
        for n in (1, 2, 3)
    ],
    *[
        _record(f"adaptive_avg_pool{n}d", _sizes(n), _adapted(np.mean), peer=_peer_images(f"adaptive_avg_pool{n}d"))
        for n in (1, 3)
    ],
    *[
        _record(
            f"adaptive_max_pool{n}d", _sizes(n), _adapted(np.max), CHOSEN, peer=_peer_images(f"adaptive_max_pool{n}d")
        )
        for n in (1, 2, 3)
    ],
    *[
        _record(f"max_unpool{n}d", _unpooled(n), unpooled, CHOSEN, peer=_peer_unpooled(f"max_unpool{n}d"))
        for n in (1, 2, 3)
    ],
    *[
        _record(f"fractional_max_pool{n}d", _fractional(n), None, check=_check_fractional, gradient=False, peer=None)
        for n in (2, 3)
    ],
    _record("smooth_l1_loss", _two(), _reduced(_huber)),
    _record("huber_loss", _two(), _reduced(_huber)),
    # PyTorch's gradient is NaN where exp(-y x) overflows.
    _record("soft_margin_loss", _two(), _reduced(lambda x, y: np.logaddexp(0, -y * x)), peer=None),
    _record(
        "hinge_embedding_loss",
        _two(),
        _reduced(lambda x, y: np.where(y == 1, 0, np.maximum(1 - x, 0)) + np.where(y == -1, 0, x)),
    ),
    _record("poisson_nll_loss", _two(), _reduced(lambda x, y: np.exp(x) - y * x)),
    _record("kl_div", _probabilities, _reduced(lambda x, y: y * np.log(y) - y * x)),
    _record(
        "binary_cross_entropy", _probabilities, _reduced(lambda x, y: -(y * np.log(x) + (1 - y) * np.log1p(-x))), SOLVED
    ),
    _record(
        "gaussian_nll_loss",
        _two(target="positive", count=3),
        _reduced(lambda x, y, v: 0.5 * (np.log(np.maximum(v, 1e-6)) + (x - y) ** 2 / np.maximum(v, 1e-6))),
        SOLVED,
        solves=True,
    ),
    _record("margin_ranking_loss", _two(count=3), _reduced(lambda x, y, t: np.maximum(-t * (x - y), 0))),
    _record("cosine_embedding_loss", _rows(2, True), _reduced(_cosines), NORMALISED, solves=True),
    _record("triplet_margin_loss", _rows(3), _reduced(_triplets), NORMALISED, solves=True),
    _record("triplet_margin_with_distance_loss", _rows(3), _reduced(_triplets), NORMALISED, solves=True),
    _record("multi_margin_loss", _scores(False), _reduced(_margins), peer=_peer_margins("multi_margin_loss")),
    _record(
        "multilabel_margin_loss",
        _scores(True),
        _reduced(_several_margins),
        differences=False,
        peer=_peer_margins("multilabel_margin_loss"),
    ),
    _record("multilabel_soft_margin_loss", _probabilities, _reduced(_several_classes), covers=()),
    _record("ctc_loss", _alignments, aligned, SOLVED, gradient=False, peer=None),
    _record(
        "normalize",
        lambda d: _vectors(d, 1),
        lambda x: x / np.maximum(np.sqrt((x * x).sum(1, keepdims=True)), 1e-12),
        SOLVED,
        solves=True,
    ),
    _record(
        "cosine_similarity",
        lambda d: _vectors(d, 2),
        lambda x, y: (
            (x * y).sum(1) / (np.maximum(np.sqrt((x * x).sum(1)), 1e-8) * np.maximum(np.sqrt((y * y).sum(1)), 1e-8))
        ),
        NORMALISED,
        solves=True,
    ),
    _record("pairwise_distance", lambda d: _vectors(d, 2), _apart, NORMALISED, solves=True),
    _record(
        "pdist",
        lambda d: _vectors(d, 1),
        lambda x: np.array([np.sqrt(((a - b) ** 2).sum()) for a, b in itertools.combinations(x, 2)], np.float64),
        NORMALISED,
        solves=True,
    ),
    _record(
        "cdist",
        lambda d: _vectors(d, 2),
        lambda x, y: np.sqrt(((x[:, None] - y) ** 2).sum(-1)),
        NORMALISED,
        solves=True,
        peer=lambda t, x, y: t.cdist(x, y),
    ),
    _record("bilinear", _bilinear, lambda x, y, w, b: np.einsum("ni,oij,nj->no", x, w, y) + b, solves=True),
    _record("embedding_bag", _bags, bags, differences=False, peer=None),  # of NaN PyTorch's maximum is any
    _record("grid_sample", _grid, sampled, NORMALISED, peer=_peer_sampled, skips=True),
    _record(
        "affine_grid",
        _maps,
        mapped,
        NORMALISED,
        peer=lambda t, theta, s: t.nn.functional.affine_grid(theta, (s[0], s[3], s[1], s[2]), align_corners=False),
    ),
    _record("pixel_shuffle", lambda d: _blocks(d, False), spread, CHOSEN, peer=_peer_images("pixel_shuffle")),
    _record("pixel_unshuffle", lambda d: _blocks(d, True), gathered, CHOSEN, peer=_peer_images("pixel_unshuffle")),
    _record(
        "channel_shuffle",
        lambda d: Case([_blocks(d, False).args[0], 2]),
        shuffled,
        CHOSEN,
        peer=_peer_images("channel_shuffle"),
    ),
    _record("unfold", lambda d: Case([_images(d, 2), d.pick((1, 2, 3))]), unfolded, CHOSEN, peer=_PEER_UNFOLDED),
    _record("fold", lambda d: Case([d.input((2, 9, 8), d.dtype()), 4, 2]), folded, peer=_PEER_FOLDED),
    _record(
        "local_response_norm",
        lambda d: Case([_images(d, 2), d.pick((1, 2, 3))]),
        responding,
        SOLVED,
        peer=_peer_images("local_response_norm"),
        solves=True,
    ),
    _dropped("dropout1d", 1),
    _dropped("dropout2d", 2),
    _dropped("dropout3d", 3),
    _dropped("alpha_dropout", 2),
    _dropped("feature_alpha_dropout", 2),
]
