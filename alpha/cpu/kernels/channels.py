"""What BatchNorm computes of each channel between its passes over the rows, in float64, by one thread.

Numbers of channels are one-dimensional; parts (tasks, 2, channels) are a pass's sums, a task each, added in order.
"""

from __future__ import annotations

import numpy as np

from alpha.cpu.compile import compiled
from alpha.cpu.job_slot import draw_task


@compiled
def whole_statistics(share, parts, rows, mean, var):  # type: ignore[no-untyped-def]
    """Each channel's mean and (biased) variance, from means and squares of deviations of parts. Chan et al., 1979."""
    tasks, _, channels = parts.shape
    while draw_task(share, 1) == 0:
        mean[:] = 0
        var[:] = 0
        for t in range(tasks):
            count = rows * (t + 1) // tasks - rows * t // tasks
            for c in range(channels):
                mean[c] += parts[t, 0, c] * count
        for c in range(channels):
            mean[c] /= rows
        for t in range(tasks):
            count = rows * (t + 1) // tasks - rows * t // tasks
            for c in range(channels):
                apart = parts[t, 0, c] - mean[c]
                var[c] += parts[t, 1, c] + count * apart * apart
        for c in range(channels):
            var[c] /= rows


@compiled
def given_statistics(share, given_mean, given_var, mean, var):  # type: ignore[no-untyped-def]
    """Statistics that are known, in float64."""
    while draw_task(share, 1) == 0:
        for c in range(len(mean)):
            mean[c] = given_mean[c]
            var[c] = given_var[c]


@compiled
def blended(share, running, values, factor, momentum):  # type: ignore[no-untyped-def]
    """running = (1 - momentum) * running + momentum * factor * values."""
    while draw_task(share, 1) == 0:
        for c in range(len(values)):
            running[c] = (1 - momentum) * np.float64(running[c]) + momentum * (factor * values[c])


@compiled
def state(share, mean, var, eps, kept_mean, kept_inverse):  # type: ignore[no-untyped-def]
    """What backward needs of the statistics: the mean and 1 / sqrt(var + eps), rounded."""
    while draw_task(share, 1) == 0:
        for c in range(len(mean)):
            kept_mean[c] = mean[c]
            kept_inverse[c] = 1.0 / np.sqrt(var[c] + eps)


@compiled
def scaling(share, mean, inverse, weight, has_weight, bias, has_bias, scale, shift):  # type: ignore[no-untyped-def]
    """BatchNorm as x * scale + shift, from the state."""
    while draw_task(share, 1) == 0:
        for c in range(len(scale)):
            factor = np.float64(inverse[c])
            if has_weight:
                factor *= weight[c]
            moved = -np.float64(mean[c]) * factor
            if has_bias:
                moved += bias[c]
            scale[c] = factor
            shift[c] = moved


@compiled
def is_invertible(  # type: ignore[no-untyped-def]
    share, mean, var, inverse, weight, has_weight, bias, has_bias, squares, rows, condition, least, found
):
    """Whether x can be recovered from the result in all channels; ``squares`` (tasks, channels): the residual's.

    The condition is ``alpha.cpu.normalisation.CONDITION``'s; ``least``: the least deviation of x * scale.
    """
    while draw_task(share, 1) == 0:
        found[0] = 1
        for c in range(len(mean)):
            factor = np.float64(inverse[c])
            if has_weight:
                factor *= weight[c]
            total = 0.0
            for t in range(squares.shape[0]):
                total += squares[t, c]
            others = abs(factor * mean[c]) + np.sqrt(total / rows)
            if has_bias:
                others += abs(np.float64(bias[c]))
            spread = abs(factor) * np.sqrt(var[c])
            if not (others <= condition * spread and spread >= least):
                found[0] = 0


@compiled
def slopes(  # type: ignore[no-untyped-def]
    share, parts, rows, is_training, inverse, weight, has_weight, dweight, dbias, a, b, d
):
    """The gradients, and (a, b, d) with dx = a * g + b * (x - mean) + d, from the sums of g and of g * (x - mean)."""
    while draw_task(share, 1) == 0:
        for c in range(len(a)):
            sum_g, sum_gx = 0.0, 0.0
            for t in range(parts.shape[0]):
                sum_g += parts[t, 0, c]
                sum_gx += parts[t, 1, c]
            factor = np.float64(inverse[c])
            scale = factor * weight[c] if has_weight else factor
            slope = sum_gx * factor
            dweight[c] = slope
            dbias[c] = sum_g
            a[c] = scale
            b[c] = -scale * factor * slope / rows if is_training else 0.0
            d[c] = -scale * sum_g / rows if is_training else 0.0


@compiled
def offsets(share, mean, scale, shift, offset):  # type: ignore[no-untyped-def]
    """What the result of the mean is, rounded: scale and shift are as they were rounded."""
    while draw_task(share, 1) == 0:
        for c in range(len(offset)):
            offset[c] = np.float64(mean[c]) * np.float64(scale[c]) + np.float64(shift[c])


@compiled
def inverse_slopes(  # type: ignore[no-untyped-def]
    share, parts, rows, is_training, mean, inverse, scale, shift, offset, dweight, dbias, a, b, d
):
    """``slopes`` with dx = a * g + b * t + d, from the sums of g and of g * t, t being act^-1(y) - residual - offset.

    (x - mean) * scale is t + error, where the error is of the offset's rounding.
    """
    while draw_task(share, 1) == 0:
        for c in range(len(a)):
            sum_g, sum_gt = 0.0, 0.0
            for t in range(parts.shape[0]):
                sum_g += parts[t, 0, c]
                sum_gt += parts[t, 1, c]
            factor, rounded = np.float64(inverse[c]), np.float64(scale[c])
            error = np.float64(offset[c]) - (np.float64(mean[c]) * rounded + np.float64(shift[c]))
            slope = (sum_gt + error * sum_g) / rounded * factor
            dweight[c] = slope
            dbias[c] = sum_g
            steep = -rounded * factor * slope / rows if is_training else 0.0
            level = -rounded * sum_g / rows if is_training else 0.0
            a[c] = rounded
            b[c] = steep / rounded
            d[c] = level + steep / rounded * error
