"""Checks of what can be written through the core: an engine's own version against the definition."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from alpha import dtypes
from alpha.engine import AttentionSettings, AttentionState, Engine, Epilogue, RunningStatistics, WeightedPairs
from alpha.engine_suite.checks import Checks, expect, expect_same, numbers
from alpha.engine_suite.core import FLOATS, NUMBERS
from alpha.errors import CheckError
from alpha.expressions.functions import of_one_tensor
from alpha.geometry import Axis, Geometry
from alpha.random import Draw
from alpha.records import PointwiseStep
from alpha.tensor import Tensor
from alpha.update_rules import AdamRule, RMSpropRule, SGDRule, UpdateRule

CHECKS = Checks()
Results = Sequence[Tensor | None]

PROBLEMS: dict[str, tuple[Geometry, int, int, int]] = {
    "3x3": (Geometry(Axis(6, 3, 1, (1, 1)), Axis(5, 3, 1, (1, 1))), 4, 8, 1),
    "stride": (Geometry(Axis(8, 3, 2, (1, 1)), Axis(7, 3, 2, (1, 1))), 3, 5, 1),
    "stem": (Geometry(Axis(9, 7, 2, (3, 3)), Axis(9, 7, 2, (3, 3))), 3, 8, 1),
    "dilation": (Geometry(Axis(9, 3, 1, (2, 2), 2), Axis(8, 2, 2, (1, 0), 3)), 4, 4, 1),
    "1x1": (Geometry(Axis(4, 1), Axis(5, 1)), 8, 4, 1),
    "groups": (Geometry(Axis(6, 3, 1, (1, 1)), Axis(6, 3, 1, (1, 1))), 6, 4, 2),
    "depthwise": (Geometry(Axis(6, 3, 1, (1, 1)), Axis(5, 3, 2, (1, 1))), 8, 8, 8),
    "padding": (Geometry(Axis(2, 3, 2, (4, 4)), Axis(3, 2, 3, (5, 0))), 2, 3, 1),
}
"""Geometry, input channels, output channels, groups."""

WINDOWS = {
    "2x2": Geometry(Axis(6, 2, 2), Axis(4, 2, 2)),
    "3x3": Geometry(Axis(7, 3, 2, (1, 1)), Axis(6, 3, 2, (1, 1))),
    "uneven": Geometry(Axis(5, 3, 1, (0, 1)), Axis(6, 2, 3, (1, 1))),
    "whole": Geometry(Axis(5, 5), Axis(4, 4)),
    "dilation": Geometry(Axis(7, 2, 1, (1, 1), 3), Axis(6, 3, 1, (2, 2), 2)),
}

IMAGES = 3
ROUNDING = {str(dtype): dtypes.info(dtype).tolerance[0] for dtype in dtypes.FLOATS}
"""Sums of a few hundred products of numbers up to 2: an absolute error, for they may cancel."""


# -- copies -----------------------------------------------------------------------------------------------------


@CHECKS.over(*NUMBERS)
def concat(engine: Engine, dtype: str) -> None:
    x, y = numbers(3, 4, 2, dtype=dtype), numbers(3, 4, 2, dtype=dtype, seed=1)
    for axis in range(3):

        def joined(place: Engine, x: Tensor, y: Tensor, axis: int = axis) -> Results:
            part = y.strided(y.offset, tuple(1 if a == axis else n for a, n in enumerate(y.shape)), y.strides)
            return [place.concat([x, part, y], axis), place.concat([x, y], axis, (1, 2, 0)), place.concat([x], axis)]

        expect_same(engine, joined, x, y)


@CHECKS.over(*NUMBERS)
def stack(engine: Engine, dtype: str) -> None:
    x, y = numbers(3, 4, 2, dtype=dtype), numbers(3, 4, 2, dtype=dtype, seed=1)
    for axis in range(4):

        def side_by_side(place: Engine, x: Tensor, y: Tensor, axis: int = axis) -> Results:
            return [place.stack([x, y, x], axis), place.stack([y], axis)]

        expect_same(engine, side_by_side, x, y)


@CHECKS.over(*NUMBERS)
def flip(engine: Engine, dtype: str) -> None:
    def flipped(place: Engine, x: Tensor) -> Results:
        part = x.strided(x.offset, (2, 4, 2), x.strides)
        return [place.flip(x, (0,)), place.flip(x, (1, 2)), place.flip(part, (0, 2)), place.flip(part, ())]

    expect_same(engine, flipped, numbers(3, 4, 2, dtype=dtype))


@CHECKS.over(*NUMBERS)
def copied(engine: Engine, dtype: str) -> None:
    def copies(place: Engine, x: Tensor) -> Results:
        part = x.strided(x.offset, (2, 4, 2), x.strides)
        return [place.copied(x), place.copied(part), place.copied(x, (1, 2, 0)), place.copied(part, (2, 0, 1))]

    expect_same(engine, copies, numbers(3, 4, 2, dtype=dtype))


@CHECKS.over(*product(("constant", "reflect", "replicate", "circular"), NUMBERS))
def pad(engine: Engine, mode: str, dtype: str) -> None:
    x, before, after = numbers(3, 4, 2, dtype=dtype), (2, 0, 1), (0, 3, 1)

    def padded(place: Engine, x: Tensor) -> Results:
        y = place.pad(x, before, after, mode, 1)
        return [y, place.pad_grad(y, before, after, mode)] if mode != "constant" and dtype in FLOATS else [y]

    expect_same(engine, padded, x)


# -- products and sums -------------------------------------------------------------------------------------------


@CHECKS.over(*NUMBERS)
def cumsum(engine: Engine, dtype: str) -> None:
    for axis in range(3):
        expect_same(engine, lambda place, x, axis=axis: [place.cumsum(x, axis)], numbers(3, 4, 2, dtype=dtype))


@CHECKS.over(*product(FLOATS, (False, True)))
def gemv(engine: Engine, dtype: str, trans: bool) -> None:
    a, x, plus = (
        numbers(7, 5, dtype=dtype),
        numbers(7 if trans else 5, dtype=dtype),
        numbers(5 if trans else 7, dtype=dtype),
    )
    limits = {"rtol": ROUNDING[dtype], "atol": ROUNDING[dtype]}
    expect_same(engine, lambda place, a, x, plus: [place.gemv(a, x, trans, plus)], a, x, plus, **limits)
    expect_same(engine, lambda place, a, x: [place.gemv(a, x, trans)], a, x, **limits)


@CHECKS.over(*FLOATS)
def ger(engine: Engine, dtype: str) -> None:
    x, y, a = numbers(7, dtype=dtype), numbers(5, dtype=dtype, seed=1), numbers(7, 5, dtype=dtype, seed=2)
    limits = {"rtol": ROUNDING[dtype], "atol": ROUNDING[dtype]}
    expect_same(engine, lambda place, x, y: [place.ger(x, y)], x, y, **limits)
    expect_same(engine, lambda place, x, y, a: [place.ger(x, y, -0.5, a)], x, y, a, **limits)

    def in_place(place: Engine, x: Tensor, y: Tensor, a: Tensor) -> Results:
        out = place.dense(place.ger(x, y, 2.0, a, a))
        return [out]

    expect_same(engine, in_place, x, y, a, **limits)


@CHECKS.over(*FLOATS)
def channel_sum(engine: Engine, dtype: str) -> None:
    expect_same(engine, lambda place, x: [place.channel_sum(x)], numbers(3, 4, 5, 6, dtype=dtype), atol=ROUNDING[dtype])


@CHECKS.over(*product(("plain", "causal", "bools", "added", "dropout"), FLOATS))
def attention(engine: Engine, name: str, dtype: str) -> None:
    q, k, v, dy = (
        numbers(*shape, dtype=dtype, seed=seed)
        for seed, shape in enumerate([(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6), (2, 3, 5, 6)])
    )
    mask = None
    if name in ("bools", "added"):
        mask = numbers(2, 1, 5, 7, dtype="bool" if name == "bools" else dtype)
        mask[0, 0, 3] = 0 if name == "bools" else -np.inf  # a query that sees no key
    settings = AttentionSettings(0.3, name == "causal", 0.25 if name == "dropout" else 0.0, 11, 5)
    needs = (True, True, True, name == "added")
    limits = {"rtol": 10 * ROUNDING[dtype], "atol": 10 * ROUNDING[dtype]}

    def run(place: Engine, q: Tensor, k: Tensor, v: Tensor, dy: Tensor, mask: Tensor | None) -> Results:
        y, lse = place.attention(q, k, v, mask, settings)
        return [y, lse, *place.attention_grad(dy, AttentionState(q, k, v, mask, y, lse), settings, needs)]

    expect_same(engine, run, q, k, v, dy, mask, **limits)


@CHECKS.over(*FLOATS)
def combine(engine: Engine, dtype: str) -> None:
    pairs = WeightedPairs.make(np.array([0, 0, 2, 3, 3]), np.array([1, 4, 0, 2, 2]), np.array([0.5, 2, 1, -1, 3]), 5)
    x = numbers(2, 5, 3, dtype=dtype)
    x[:, 3] = np.nan  # which no pair reads
    expect_same(engine, lambda place, x: [place.combine(place.dense(x, range(3)), pairs)], x)


@CHECKS.over(*product(("weighted", "chosen", "repeated"), FLOATS))
def resample(engine: Engine, kind: str, dtype: str) -> None:
    pairs = WeightedPairs.make(np.array([0, 0, 2, 3, 3]), np.array([1, 4, 0, 2, 2]), np.array([0.5, 2, 1, -1, 3]), 5)
    chosen = WeightedPairs.make(np.arange(3), np.array([4, 0, 0]), np.ones(3), 3)
    repeated = WeightedPairs.make(np.arange(10), np.repeat(np.arange(5), 2), np.ones(10), 10)
    rows = {"weighted": pairs, "chosen": chosen, "repeated": repeated}[kind]
    columns = repeated if kind == "repeated" else chosen
    for images, channels in ((2, 3), (1, 100), (3, 70)):
        x = numbers(images, 5, 5, channels, dtype=dtype)
        x[:, 3] = np.nan if kind != "repeated" else -0.0  # which no pair reads
        expect_same(engine, lambda place, x: [place.resample(x, rows, columns)], x, atol=ROUNDING[dtype])


# -- convolution and pooling -------------------------------------------------------------------------------------


@CHECKS.over(*product(PROBLEMS, FLOATS))
def conv2d(engine: Engine, name: str, dtype: str) -> None:
    geometry, inputs, outputs, groups = PROBLEMS[name]
    x = numbers(IMAGES, *geometry.input, inputs, dtype=dtype)
    w = numbers(outputs, *geometry.filter, inputs // groups, dtype=dtype, seed=1)
    bias, residual = (
        numbers(outputs, dtype=dtype, seed=2),
        numbers(IMAGES, *geometry.output, outputs, dtype=dtype, seed=3),
    )
    limits = {"rtol": 1e-5, "atol": 10 * ROUNDING[dtype]}
    expect_same(engine, lambda place, x, w: [place.conv2d(x, w, None, geometry, groups)], x, w, **limits)

    def fused(place: Engine, x: Tensor, w: Tensor, bias: Tensor, residual: Tensor) -> Results:
        return [place.conv2d(x, w, bias, geometry, groups, residual, 0.1)]

    def added(place: Engine, x: Tensor, w: Tensor, bias: Tensor, sums: Tensor) -> Results:
        return [place.conv2d(x, w, bias, geometry, groups, accumulate=place.dense(sums))]

    expect_same(engine, fused, x, w, bias, residual, **limits)
    expect_same(engine, added, x, w, bias, residual, **limits)


@CHECKS.over(*product(PROBLEMS, FLOATS))
def conv2d_gradients(engine: Engine, name: str, dtype: str) -> None:
    geometry, inputs, outputs, groups = PROBLEMS[name]
    x, bias = numbers(IMAGES, *geometry.input, inputs, dtype=dtype), numbers(inputs, dtype=dtype, seed=2)
    w = numbers(outputs, *geometry.filter, inputs // groups, dtype=dtype, seed=1)
    dy = numbers(IMAGES, *geometry.output, outputs, dtype=dtype, seed=3)
    limits = {"rtol": 1e-5, "atol": 10 * ROUNDING[dtype]}
    expect_same(engine, lambda place, dy, w: [place.conv2d_input_grad(dy, w, geometry, groups)], dy, w, **limits)
    expect_same(engine, lambda place, x, dy: [place.conv2d_weight_grad(x, dy, geometry, groups)], x, dy, **limits)

    def added(place: Engine, dy: Tensor, w: Tensor, bias: Tensor, sums: Tensor) -> Results:
        return [place.conv2d_input_grad(dy, w, geometry, groups, bias, place.dense(sums))]

    expect_same(engine, added, dy, w, bias, x, **limits)


@CHECKS.over(*product(FLOATS, (False, True)))
def linear(engine: Engine, dtype: str, has_bias: bool) -> None:
    """The product, alone and with a step in the same pass, and its gradients."""
    x, dy = numbers(7, 5, dtype=dtype), numbers(7, 9, dtype=dtype, seed=1)
    w, bias = numbers(9, 5, dtype=dtype, seed=2), numbers(9, dtype=dtype, seed=3)
    squared = of_one_tensor("engine_suite", "step", lambda x: x * x)
    step = PointwiseStep(squared.name, squared.program, squared.numbers(()))

    def run(place: Engine, x: Tensor, w: Tensor, bias: Tensor, dy: Tensor) -> Results:
        given = bias if has_bias else None
        kept = place.linear(x, w, given, step, keeps=True)
        results = place.linear(x, w, given)[0], place.linear(x, w, given, step)[0], *kept
        return [*results, place.linear_input_grad(dy, w), *place.linear_weight_grad(x, dy, has_bias)]

    expect_same(engine, run, x, w, bias, dy, rtol=1e-5, atol=20 * ROUNDING[dtype])


@CHECKS.over(*product(WINDOWS, FLOATS))
def max_pool2d(engine: Engine, name: str, dtype: str) -> None:
    geometry = WINDOWS[name]
    x = np.round(numbers(IMAGES, *geometry.input, 5, dtype=dtype))  # so that there are ties
    x[0, 1, 1, 0] = np.nan
    x[1] = -np.inf
    dy = numbers(IMAGES, *geometry.output, 5, dtype=dtype, seed=1)

    def run(place: Engine, x: Tensor, dy: Tensor) -> Results:
        y, taps = place.max_pool2d(x, geometry)
        if taps is None:
            raise CheckError("[engine_suite] expected the taps of max_pool2d, got None")
        return [y, taps, place.max_pool2d_grad(dy, taps, geometry), place.max_pool2d(x, geometry, need_taps=False)[0]]

    expect_same(engine, run, x, dy)


@CHECKS.over(*product(WINDOWS, FLOATS, (False, True)))
def avg_pool2d(engine: Engine, name: str, dtype: str, count_padding: bool) -> None:
    geometry = WINDOWS[name]
    x = numbers(IMAGES, *geometry.input, 5, dtype=dtype)
    dy = numbers(IMAGES, *geometry.output, 5, dtype=dtype, seed=1)

    def run(place: Engine, x: Tensor, dy: Tensor) -> Results:
        return [place.avg_pool2d(x, geometry, count_padding), place.avg_pool2d_grad(dy, geometry, count_padding)]

    expect_same(engine, run, x, dy)


# -- normalisation, activation -----------------------------------------------------------------------------------


@CHECKS.over(*product(FLOATS, (None, 0.0, 0.1), (False, True), (False, True)))
def batch_norm(engine: Engine, dtype: str, slope: float | None, has_residual: bool, training: bool) -> None:
    shape = 3, 4, 2, 5
    x, dy = numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype, seed=1)
    residual = numbers(*shape, dtype=dtype, seed=2) if has_residual else None
    weight, bias, mean, var = (numbers(5, dtype=dtype, seed=seed) for seed in (3, 4, 5, 6))

    def run(place: Engine, x: Tensor, dy: Tensor, residual: Tensor | None, *channels: Tensor) -> Results:
        weight, bias, mean, var = (place.dense(values) for values in channels)
        epilogue = Epilogue(weight, bias, slope)
        if training:
            y, state = place.batch_norm(x, RunningStatistics(mean, var), 1e-3, epilogue, residual)
        else:
            y, state = place.batch_norm_inference(x, mean, var, 1e-3, epilogue, residual)
        kept = y if residual is not None and slope is not None else None
        gradients = place.batch_norm_grad(dy, x, kept, epilogue, state, has_residual)
        return [y, mean, var, *gradients]

    expect_same(engine, run, x, dy, residual, weight, bias, mean, abs(var), rtol=1e-4, atol=10 * ROUNDING[dtype])


@CHECKS.over(*FLOATS)
def batch_norm_without_weights(engine: Engine, dtype: str) -> None:
    def run(place: Engine, x: Tensor) -> Results:
        y, state = place.batch_norm(x, RunningStatistics(), 1e-5, Epilogue(), None)
        return [y, *place.batch_norm_grad(x, x, None, Epilogue(), state, False)]

    expect_same(engine, run, numbers(30, 5, dtype=dtype), rtol=1e-4, atol=10 * ROUNDING[dtype])


@CHECKS.over(*product(FLOATS, (0.0, 0.1, 1.5)))
def leaky_relu(engine: Engine, dtype: str, slope: float) -> None:
    x = np.array([[0, 1, -1, np.inf], [-np.inf, np.nan, -2.5, 2.5]], dtype)
    dy = np.array([[1, 2, 3, 4], [np.inf, 5, np.nan, 6]], dtype)
    expect_same(engine, lambda place, x: [place.leaky_relu(x, slope)], x)
    expect_same(engine, lambda place, dy, x: [place.leaky_relu_grad(dy, x, slope)], dy, x)


# -- losses, samples ---------------------------------------------------------------------------------------------


@CHECKS.over(*product(FLOATS, (0.0, 0.1)))
def cross_entropy(engine: Engine, dtype: str, smoothing: float) -> None:
    logits, scale = 10 * numbers(6, 5, dtype=dtype), numbers(6, dtype=dtype, seed=1)
    logits[3, 2] = -np.inf
    labels = np.array([0, 4, 2, 1, -1, 5])  # the last two are no classes

    def run(place: Engine, logits: Tensor, labels: Tensor, scale: Tensor) -> Results:
        losses, probabilities = place.cross_entropy(logits, labels, smoothing)
        return [losses, probabilities, place.cross_entropy_grad(probabilities, labels, scale, smoothing)]

    expect_same(engine, run, logits, labels, scale, rtol=10 * ROUNDING[dtype], atol=ROUNDING[dtype])


@CHECKS.over(*product(FLOATS, (0.0, 0.3, 1.0)))
def dropout(engine: Engine, dtype: str, p: float) -> None:
    """The same elements are kept on every engine, in every memory order."""
    x = numbers(4, 5, 6, dtype=dtype)
    expect_same(engine, lambda place, x: place.dropout(x, p, 1234567890123, 77), x)


@CHECKS.once
def images_to_float(engine: Engine) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 6, 5, 3)).astype(np.uint8)
    places = np.array([[0, 0, 1], [-2, 5, -1], [3, 2, 1]], np.int32)
    mean, divisor = np.array([1, 2, 3], np.float32), np.array([50, 60, 70], np.float32)

    def run(place: Engine, images: Tensor, places: Tensor) -> Results:
        return [
            place.images_to_float(place.dense(images, range(4)), place.dense(places, (0, 1)), (5, 4), mean, divisor)
        ]

    expect_same(engine, run, images, places)


# -- optimizers --------------------------------------------------------------------------------------------------

RULES: dict[str, UpdateRule] = {
    "adam": AdamRule(0.1, (0.9, 0.99), 1e-6, 0.1, 3),
    "adamw": AdamRule(0.1, (0.9, 0.99), 1e-6, 0.1, 3, decoupled=True),
    "sgd": SGDRule(0.1, 0.9, 0.1, 0.1),
    "sgd first": SGDRule(0.1, 0.9, 0.1, 0.0, nesterov=True, first=True),
    "sgd plain": SGDRule(0.1, 0.0, 0.0, 0.1),
    "rmsprop": RMSpropRule(0.1, 0.9, 1e-6, 0.1, 0.9, centered=True),
    "rmsprop centered": RMSpropRule(0.1, 0.9, 1e-6, 0.0, centered=True),
    "rmsprop momentum": RMSpropRule(0.1, 0.9, 1e-6, 0.1, 0.9),
    "rmsprop plain": RMSpropRule(0.1, 0.9, 1e-6, 0.0),
}
LEAST: dict[type[UpdateRule], dict[int, float]] = {AdamRule: {3: 0.0}, RMSpropRule: {2: 5.0, 4: 0.0}}
"""The least value of a row's tensors that are means of squares, by their index."""


@CHECKS.over(*product(RULES, FLOATS))
def optimizer_steps(engine: Engine, name: str, dtype: str) -> None:
    """Two parameters, whose versions tell that they were written to."""
    rule = RULES[name]
    width = 2 + rule.states

    def run(place: Engine, *tensors: Tensor) -> Results:
        rows = [tensors[:width], tensors[width:]]
        versions = [row[0].version for row in rows]
        place.optimizer_step(rows, rule)
        if any(row[0].version == before for row, before in zip(rows, versions, strict=True)):
            raise CheckError("[engine_suite] expected new versions of the parameters after a step, got the old ones")
        return [place.dense(tensor) for tensor in tensors]

    least = LEAST.get(type(rule), {})
    arrays = []
    for shape, seed in product(((3, 4), (7,)), range(width)):
        values = numbers(*shape, dtype=dtype, seed=seed)
        arrays.append(values if seed not in least else (abs(values) + least[seed]).astype(dtype))
    expect_same(engine, run, *arrays, atol=ROUNDING[dtype])


@CHECKS.over(*FLOATS)
def random_numbers(engine: Engine, dtype: str) -> None:
    """To the bit what the host makes."""
    for distribution in ("uniform", "normal"):
        draw = Draw(distribution, (3, 5), np.dtype(dtype), -1.0, 2.0, 42, 7)
        expect(engine, engine.random(draw), draw.numpy(), rtol=0, atol=0)
