"""SyncBatchNorm: batch normalisation by the statistics of the rows of all ranks."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from alpha import Tensor
from alpha.autograd import Function
from alpha.autograd.composing import by_formula
from alpha.changes import Changes, at_once, setting
from alpha.distributed.world import World, find
from alpha.dtypes import DtypeLike, computed_in
from alpha.engine import BatchNormState, Engine, Epilogue
from alpha.errors import ArgumentError, DistributedError, ShapeError, described
from alpha.functions.conv import slope_of
from alpha.functions.elementwise import where
from alpha.functions.images import channels_last, channels_second
from alpha.functions.norm import check_batch
from alpha.nn.lazy import LazyModule
from alpha.nn.module import Module
from alpha.nn.norm import BatchNorm
from alpha.nn.places import Device, placed
from alpha.records import RunningStatistics

Array = np.ndarray[Any, Any]

_MOMENTS = np.dtype([("count", np.float64), ("mean", np.float64), ("squares", np.float64)])
"""What ranks tell each other of a channel: values, their mean, and the sum of the squares of the deviations from it."""


class SyncBatchNorm(BatchNorm):
    """Batch normalisation of (N, ..., C) by the statistics of the rows of all ranks. Arguments as for BatchNorm1d.

    In training mode, on several ranks, mean and variance are those of the whole batch: of all ranks' rows, of which
    they may have different numbers, and one or several of them none. The running statistics take those over, and so are
    equal on all ranks. All ranks call it, in forward and in backward: each is one sum over ranks. Weight and bias get
    this rank's part of their gradients, whose sum over ranks is that of one process (``dist.DataParallel`` adds them).
    Elsewhere it is a BatchNorm: in evaluation mode, on one rank, and before ``dist.init()``.

    Errors: DistributedError where one rank runs several shards one after another.

    Attributes:
        is_synchronized: that calls in training are operations of all ranks, those without rows included, and leave the
            same buffers on all.
    """

    is_synchronized = True
    axes = (2, 3, 4, 5)
    forms: ClassVar = {"NHWC": "(N, ..., C)", "NCHW": "(N, C, ...)"}

    @placed
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: None = None,
        device: Device = None,
        dtype: DtypeLike = None,
        *,
        bias: bool = True,
        layout: str | None = None,
    ) -> None:
        _check_group("SyncBatchNorm", process_group)
        super().__init__(num_features, eps, momentum, affine, track_running_stats, bias=bias, layout=layout)

    def _normalised(
        self,
        x: Tensor,
        running: RunningStatistics,
        residual: Tensor | None,
        activation: str | None,
        negative_slope: float,
    ) -> Tensor:
        world = find() if self.training else None
        if world is not None and world.open is not None and world.open.shards_here > 1:
            raise DistributedError(
                f"[SyncBatchNorm] expected one shard per rank, got {world.open.shards_here}: use as many ranks as "
                "shards, or BatchNorm"
            )
        if world is None or world.size == 1:
            return super()._normalised(x, running, residual, activation, negative_slope)
        slope = slope_of("batch_norm", activation, negative_slope)
        second = self.layout == "NCHW"
        if second:
            x, residual = channels_last(x), channels_last(residual)
        vectors = {
            "weight": self.weight, "bias": self.bias, "running_mean": running.mean, "running_var": running.var,
        }  # fmt: skip
        check_batch(x, vectors, residual)
        settings = {"world": world, "running": running, "eps": self.eps, "slope": slope}
        y: Tensor = SyncBatchNormFunction.apply(x, self.weight, self.bias, residual, **settings)
        return channels_second(y) if second else y

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: None = None) -> Module:
        """Makes SyncBatchNorm layers of all BatchNorm layers: see ``alpha.distributed.convert_sync_batchnorm``."""
        return _converted(cls, module, process_group)


def convert_sync_batchnorm(module: Module, process_group: None = None) -> Module:
    """Replaces all BatchNorm layers in a module, at any depth, by SyncBatchNorm layers; returns the module.

    The new layers have the parameters, buffers, hooks, mode and layout of the old ones, so that optimizers and
    ``state_dict`` go on as before. A subclass with a ``forward`` of its own stays as it is. Where the module itself is
    a BatchNorm, the layer in its place is returned.

    Args:
        module: the network.
        process_group: None, all ranks.
    """
    return _converted(SyncBatchNorm, module, process_group)


def _check_group(function: str, group: Any) -> None:
    if group is not None:
        raise ArgumentError(
            f"[{function}] expected process_group=None, the group of all ranks, got {described(group)}: leave it out"
        )


def _converted(kind: type[SyncBatchNorm], module: Module, process_group: Any) -> Module:
    """The module with layers of a class in the place of its BatchNorm layers: all of them, or none after an error."""
    function = "convert_sync_batchnorm"
    _check_group(function, process_group)
    if not isinstance(module, Module):
        raise ArgumentError(f"[{function}] expected a Module, got {described(module)}")
    made: dict[int, SyncBatchNorm] = {}
    for name, one in module.named_modules():
        if isinstance(one, BatchNorm) and not isinstance(one, SyncBatchNorm) and _has_usual_forward(one):
            if isinstance(one, LazyModule) or hasattr(type(one), "_parametrized"):
                what = "call the network once" if isinstance(one, LazyModule) else "convert it"
                raise ArgumentError(
                    f"[{function}] expected plain BatchNorm layers, got {type(one).__name__} at {name!r}: {what} before"
                )
            made[id(one)] = new = kind.__new__(kind)
            vars(new).update(vars(one))
    replaced = [
        (parent, name, made[id(part)])
        for parent in module.modules()
        for name, part in parent._parts()
        if id(part) in made
    ]
    at_once([setting(parent, name, new) for parent, name, new in replaced])
    return made.get(id(module), module)


def _has_usual_forward(layer: BatchNorm) -> bool:
    """Whether a layer's forward is that of BatchNorm."""
    return type(layer).forward is BatchNorm.forward and "forward" not in vars(layer)


# -- the function ------------------------------------------------------------------------------------------------


class SyncBatchNormFunction(Function):
    """act(weight * (x - mean) / sqrt(var + eps) + bias + residual), mean and variance those of all ranks' rows.

    x (..., C). Backward, with g the gradient past the activation, n the normalised x, and means over all ranks' rows:
    dx = weight / sqrt(var + eps) * (g - mean(g) - n * mean(g * n)).
    """

    passes_on = True

    def forward(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        residual: Tensor | None,
        world: World,
        running: RunningStatistics,
        eps: float,
        slope: float | None,
    ) -> Tensor:
        engine, dtype = x.engine, computed_in(x.dtype)
        self._world, self._eps, self._slope = world, eps, slope
        self._count, mean, var = whole_statistics(x, world)
        _blend(running, mean, var, self._count)
        self._inverse_std = 1 / np.sqrt(var + eps)
        center, spread = [engine.from_numpy(value.astype(dtype)) for value in (mean, var)]
        if x.numel():
            y, state = engine.batch_norm_inference(x, center, spread, eps, Epilogue(weight, bias, slope), residual)
        else:
            y, state = engine.empty(x.shape, x.dtype), BatchNormState(center, spread, False)
        masked_by_y = residual is not None and slope is not None
        # Where the residual is all of dy, it is handed through and no longer ours alone.
        self.fresh = not (residual is not None and slope is None)
        self.save(x, y if masked_by_y else None, weight, bias, center, spread, state.mean, state.inverse_std)
        return y

    def backward(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, weight, bias, center, spread, mean, inverse_std = self.saved
        engine, state = dy.engine, BatchNormState(mean, inverse_std, False)
        if x.numel():
            dx, dweight, dbias, dresidual = engine.batch_norm_grad(
                dy, x, y, Epilogue(weight, bias, self._slope), state, self.needs[3]
            )
        else:
            dx, dresidual = engine.empty(x.shape, x.dtype), dy
            dweight, dbias = (engine.from_numpy(np.zeros(x.shape[-1:], x.dtype)) for _ in range(2))
        if self.needs[0]:
            dx = self._through_statistics(dx, x, weight, (center, spread), (dbias, dweight))
        return dx, dweight, dbias, dresidual

    def _through_statistics(
        self,
        dx: Tensor,
        x: Tensor,
        weight: Tensor | None,
        statistics: tuple[Tensor, Tensor],
        sums: tuple[Tensor, Tensor],
    ) -> Tensor:
        """x's gradient, from the one for constant statistics and this rank's sums of g and of g * n."""
        engine, channels = x.engine, x.shape[-1]
        whole = np.concatenate([_on_host(one) for one in sums])
        self._world.sum(whole[None], name="statistics").finish()
        if not x.numel():
            return dx
        offset, factor = [
            engine.from_numpy((part * (-self._inverse_std / self._count)).astype(computed_in(x.dtype)))
            for part in whole.reshape(2, channels)
        ]
        if weight is not None:
            factor, offset = (engine.elementwise("mul", one, weight) for one in (factor, offset))
        return engine.batch_norm_inference(x, *statistics, self._eps, Epilogue(factor, offset), dx)[0]

    def backward_in_graph(self, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, weight, bias, *_ = self.saved
        slope, axes, count = self._slope, tuple(range(dy.ndim - 1)), float(self._count)

        def formula(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
            centered = x - SumOverRanks.apply(x.sum(axes), self._world) / count
            var = SumOverRanks.apply((centered * centered).sum(axes), self._world) / count
            normal = centered * var.add(self._eps).rsqrt()
            scaled = normal if weight is None else normal * weight
            shifted = scaled if bias is None else scaled + bias
            return shifted if slope is None or y is not None else where(shifted > 0, shifted, shifted * slope)

        if slope is not None and y is not None:
            dy = where(y.detach() > 0, dy, dy * slope)
        return (*by_formula(formula, (x, weight, bias), dy), dy if self.needs[3] else None)


class SumOverRanks(Function):
    """The sum of all ranks' tensors, on all ranks. Its gradient is that of all ranks' losses, so again such a sum."""

    fresh = True

    def forward(self, x: Tensor, world: World) -> Tensor:
        self._world = world
        whole = _on_host(x)
        world.sum(whole.reshape(1, -1), name="statistics").finish()
        return x.engine.from_numpy(whole.astype(x.dtype))

    def backward(self, grad: Tensor) -> Tensor:
        found: Tensor = SumOverRanks.apply(grad, self._world)
        return found


# -- statistics --------------------------------------------------------------------------------------------------


def whole_statistics(x: Tensor, world: World) -> tuple[int, Array, Array]:
    """How many values all ranks have in a channel of x (..., C), and each channel's mean and biased variance."""
    engine, channels = x.engine, x.shape[-1]
    moments = np.zeros((1, channels), _MOMENTS)
    count = math.prod(x.shape[:-1])
    if x.numel():
        var, mean = engine.variance(_widened(engine, x), tuple(range(x.ndim - 1)), 0.0, False)
        moments["count"], moments["mean"] = count, _on_host(mean).reshape(-1)
        moments["squares"] = _on_host(var) * count
    world.sum(moments, name="statistics", add=combine).finish()
    found = moments[0]
    total = int(found["count"][0])
    if total < 2:
        raise ShapeError(
            f"[batch_norm] expected more than 1 value per channel on all ranks together when training, got {total}: "
            "use a larger batch, or eval()"
        )
    return total, found["mean"], found["squares"] / total


@np.errstate(all="ignore")
def combine(a: Array, b: Array, out: Array) -> Array:
    """The moments of two sets of values from those of each. Chan, Golub and LeVeque, The American Statistician 37."""
    count = a["count"] + b["count"]
    share = b["count"] / np.maximum(count, 1)
    difference = b["mean"] - a["mean"]
    squares = a["squares"] + b["squares"] + difference * (a["count"] * share) * difference
    mean = a["mean"] + difference * share
    out["count"], out["mean"], out["squares"] = count, mean, squares
    return out


@np.errstate(all="ignore")
def _blend(running: RunningStatistics, mean: Array, var: Array, count: int) -> None:
    """Takes a batch's statistics into the running ones: into both, or into neither."""
    changes = Changes()
    for kept, value in ((running.mean, mean), (running.var, var * (count / (count - 1)))):
        if kept is not None:
            blended = (1 - running.momentum) * _on_host(kept) + running.momentum * value
            changes.write(kept, blended.astype(kept.dtype))
    if running.batches is not None:
        changes.write(running.batches, _on_host(running.batches).astype(np.int64) + 1)
    changes.make()


def _widened(engine: Engine, x: Tensor) -> Tensor:
    """x in a dtype that is computed in: sums of half-precision floats are taken, and kept, in float32."""
    return x if computed_in(x.dtype) == x.dtype else x.to(computed_in(x.dtype))


def _on_host(x: Tensor) -> Array:
    """A copy in float64 on the host."""
    return np.array(x.engine.to_numpy(x), np.float64, order="C")
