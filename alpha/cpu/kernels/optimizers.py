"""Kernels of the fused optimizers: tasks over lists of tensors given by address.

``addresses`` has ROWS rows, for the parameters, the gradients and each state, and a column per parameter; all of a
column are dense in one order, which the engine has checked. A task is a run of one tensor's elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from alpha.cpu.atomics import take_task
from alpha.cpu.compile import compiled, inlined

ROWS = 5
"""A parameter, its gradient, and the states of the rule that has most."""


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """An int64 address as a pointer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@inlined
def _run(addresses, row, tensor, start, length, scalars):  # type: ignore[no-untyped-def]
    """Elements start..start+length of a tensor, as an array of the scalars' dtype."""
    whole = carray(_pointer(addresses[row, tensor]), start + length, scalars.dtype)
    return whole[start:]


@inlined
def _decayed(grad, decay, parameter):  # type: ignore[no-untyped-def]
    """The gradient with its weight decay; without decay a parameter that is not finite leaves it alone."""
    return grad + decay * parameter if decay != 0 else grad


@compiled
def adam(counter, owners, starts, lengths, addresses, scalars):  # type: ignore[no-untyped-def]
    """Adam, and AdamW through ``shrink``; scalars: see ``AdamNumbers``."""
    step_size, correction, gain1 = scalars[0], scalars[1], scalars[2]
    beta2, gain2, eps, decay, shrink = scalars[3], scalars[4], scalars[5], scalars[6], scalars[7]
    while True:
        task = take_task(counter)
        if task >= len(owners):
            break
        tensor, start, length = owners[task], starts[task], lengths[task]
        p = _run(addresses, 0, tensor, start, length, scalars)
        g = _run(addresses, 1, tensor, start, length, scalars)
        m = _run(addresses, 2, tensor, start, length, scalars)
        v = _run(addresses, 3, tensor, start, length, scalars)
        for i in range(length):
            grad = _decayed(g[i], decay, p[i])
            mean = m[i] + gain1 * (grad - m[i])
            square = beta2 * v[i] + gain2 * grad * grad
            m[i] = mean
            v[i] = square
            p[i] = shrink * p[i] - step_size * (mean / (np.sqrt(square) / correction + eps))


@compiled
def sgd(counter, owners, starts, lengths, addresses, scalars, has_momentum, nesterov, first):  # type: ignore[no-untyped-def]
    """SGD; scalars: see ``SGDNumbers``."""
    lr, momentum, gain, decay = scalars[0], scalars[1], scalars[2], scalars[3]
    while True:
        task = take_task(counter)
        if task >= len(owners):
            break
        tensor, start, length = owners[task], starts[task], lengths[task]
        p = _run(addresses, 0, tensor, start, length, scalars)
        g = _run(addresses, 1, tensor, start, length, scalars)
        if not has_momentum:
            for i in range(length):
                p[i] -= lr * _decayed(g[i], decay, p[i])
            continue
        b = _run(addresses, 2, tensor, start, length, scalars)
        if first:
            for i in range(length):
                b[i] = _decayed(g[i], decay, p[i])
        else:
            for i in range(length):
                b[i] = momentum * b[i] + gain * _decayed(g[i], decay, p[i])
        if nesterov:
            for i in range(length):
                p[i] -= lr * (_decayed(g[i], decay, p[i]) + momentum * b[i])
        else:
            for i in range(length):
                p[i] -= lr * b[i]


@compiled
def rmsprop(counter, owners, starts, lengths, addresses, scalars, has_momentum, centered):  # type: ignore[no-untyped-def]
    """RMSprop; scalars: see ``RMSpropNumbers``."""
    lr, alpha, gain, eps, decay, momentum = scalars[0], scalars[1], scalars[2], scalars[3], scalars[4], scalars[5]
    while True:
        task = take_task(counter)
        if task >= len(owners):
            break
        tensor, start, length = owners[task], starts[task], lengths[task]
        p = _run(addresses, 0, tensor, start, length, scalars)
        g = _run(addresses, 1, tensor, start, length, scalars)
        s = _run(addresses, 2, tensor, start, length, scalars)
        # An absent state's run is never indexed.
        b = _run(addresses, 3, tensor, start, length, scalars)
        mean = _run(addresses, 3 + has_momentum, tensor, start, length, scalars)
        for i in range(length):
            grad = _decayed(g[i], decay, p[i])
            s[i] = alpha * s[i] + gain * grad * grad
            spread = s[i]
            if centered:
                mean[i] += gain * (grad - mean[i])
                spread -= mean[i] * mean[i]
            update = grad / (np.sqrt(spread) + eps)
            if has_momentum:
                b[i] = momentum * b[i] + update
                update = b[i]
            p[i] -= lr * update
