"""Mixed precision's tools, as ``torch.amp`` has them: ``autocast`` and ``GradScaler``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any, Self

from alpha import casts, dtypes
from alpha.arguments import flag, number, whole
from alpha.autograd import no_grad
from alpha.changes import deferred_interrupts
from alpha.errors import ArgumentError, CheckpointError, described
from alpha.functions.elementwise import isfinite, mul
from alpha.functions.extremes import all as all_of
from alpha.functions.joining import stack
from alpha.tensor import Tensor

if TYPE_CHECKING:
    from alpha.engine import Engine

__all__ = ["GradScaler", "autocast", "get_autocast_dtype", "is_autocast_available", "is_autocast_enabled"]


class autocast(ContextDecorator):
    """A ``with`` block or a decorator in which products compute in a lower precision. arXiv 1710.03740.

    Products (``matmul``, ``linear``, convolutions, attention, recurrent layers) cast their floats to ``dtype``; what
    loses digits (sums, softmax, norms, losses, ``exp``, ``log`` and their like) casts halves to float32, as does
    ``batch_norm``, whose result has its input's dtype; everything else takes its arguments as they come, and the wider
    of two dtypes. The lists are those of PyTorch on GPUs, on every engine. Float64 and integers are never cast.
    Parameters stay float32 and their gradients arrive in float32. A parameter's cast is made once in the outermost
    block, unless it is changed.

    Args:
        device_type: ``"cpu"`` or ``"cuda"``: whose tensors are cast; None: everyone's. A dtype may stand here, first.
        dtype: bfloat16 or float16; by default bfloat16 on the CPU and float16 on GPUs, as in PyTorch.
        enabled: whether anything is cast.
        cache_enabled: whether casts of parameters are kept.

    Raises:
        ArgumentError: for another kind of device, or another dtype.
    """

    def __init__(
        self,
        device_type: Any = None,
        dtype: dtypes.DtypeLike = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not (device_type is None or device_type in _KINDS) and dtype is None:
            device_type, dtype = None, device_type
        if device_type is not None and device_type not in _KINDS:
            raise ArgumentError(f'[autocast] expected device_type "cpu" or "cuda", got {described(device_type)}')
        self._kinds = _KINDS if device_type is None else (device_type,)
        self._dtype = None if dtype is None else _lower(dtype)
        self._enabled = flag("autocast", "enabled", enabled)
        self._keeps = True if cache_enabled is None else flag("autocast", "cache_enabled", cache_enabled)
        self._before: list[casts.Casts] = []

    def __enter__(self) -> Self:
        chosen = casts.THREAD.casts._asdict() | {"keeps": self._keeps}
        for kind in self._kinds:
            chosen[_FIELDS[kind]] = (self._dtype or _DEFAULTS[kind]) if self._enabled else None
        self._before.append(casts.enter(self, casts.Casts(**chosen)))
        return self

    def __exit__(self, *error: object) -> None:
        casts.leave(self, self._before.pop())


_KINDS = ("cpu", "cuda")
_FIELDS = {"cpu": "on_host", "cuda": "on_gpu"}
_DEFAULTS = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}


def _lower(dtype: dtypes.DtypeLike) -> dtypes.DType:
    """A dtype of half of float32's bytes; ArgumentError for another."""
    found = dtypes.as_dtype(dtype, "autocast")
    if not dtypes.is_float(found) or found.itemsize >= dtypes.float32.itemsize:
        raise ArgumentError(f"[autocast] expected dtype bfloat16 or float16, got {found}")
    return found


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether this thread is in a block that casts tensors of a kind of devices; by default of any."""
    kinds = _KINDS if device_type is None else (device_type,)
    return any(getattr(casts.THREAD.casts, _field("is_autocast_enabled", kind)) is not None for kind in kinds)


def get_autocast_dtype(device_type: str) -> dtypes.DType:
    """The dtype that products on a kind of devices are cast to, now or in a block that names none."""
    found = getattr(casts.THREAD.casts, _field("get_autocast_dtype", device_type))
    return _DEFAULTS[device_type] if found is None else found  # type: ignore[no-any-return]


def is_autocast_available(device_type: str) -> bool:
    """Whether ``autocast`` knows a kind of devices."""
    return device_type in _KINDS


def _field(function: str, kind: Any) -> str:
    if kind not in _KINDS:
        raise ArgumentError(f'[{function}] expected device_type "cpu" or "cuda", got {described(kind)}')
    return _FIELDS[kind]


class GradScaler:
    """Scales a loss so that small gradients of float16 do not become 0, and the gradients back. arXiv 1710.03740.

    A step is left out where a gradient is infinite or NaN, and the scale is made smaller; after ``growth_interval``
    steps without any it grows.

    Args:
        device: PyTorch's name of a kind of devices, which says nothing here.
        init_scale: the first scale.
        growth_factor, backoff_factor: by which it grows, and grows smaller.
        growth_interval: steps between growths.
        enabled: whether it scales; if not, ``scale`` gives the loss and ``step`` steps.
    """

    def __init__(
        self,
        device: Any = "cuda",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._enabled = flag("GradScaler", "enabled", enabled)
        self._scale = number("GradScaler", "init_scale", init_scale)
        self._growth = number("GradScaler", "growth_factor", growth_factor)
        self._backoff = number("GradScaler", "backoff_factor", backoff_factor)
        self._interval = whole("GradScaler", "growth_interval", growth_interval, 1)
        if not (0 < self._scale < math.inf and self._growth > 1 and 0 < self._backoff < 1):
            raise ArgumentError(
                f"[GradScaler] expected init_scale > 0, growth_factor > 1 and backoff_factor between 0 and 1, got "
                f"{init_scale}, {growth_factor} and {backoff_factor}"
            )
        self._steps = 0  # without infinities, since the scale changed
        self._finite: dict[int, bool] = {}  # by the ids of the optimizers whose gradients were scaled back
        self._stepped: set[int] = set()

    def scale(self, outputs: Any) -> Any:
        """A loss, or those in a list or tuple, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return mul(outputs, self._scale)
        if not isinstance(outputs, Iterable):
            raise ArgumentError(f"[GradScaler.scale] expected a tensor, or several, got {described(outputs)}")
        found = [self.scale(one) for one in outputs]
        return found if isinstance(outputs, list) else tuple(found)

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of an optimizer's parameters by the scale, before they are clipped, say."""
        if not self._enabled:
            return
        if id(optimizer) in self._finite or id(optimizer) in self._stepped:
            when = "a step" if id(optimizer) in self._stepped else "another unscale_"
            raise ArgumentError(f"[GradScaler.unscale_] expected one call between updates, got one after {when}")
        params = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        grads = [parameter.grad for parameter in params if parameter.grad is not None]
        with no_grad(), deferred_interrupts():  # gradients that are scaled back are not to be scaled back again
            for grad in grads:
                grad.mul_(1 / self._scale)
            are_finite: dict[Engine, list[Tensor]] = {}
            for grad in grads:
                are_finite.setdefault(grad.engine, []).append(all_of(isfinite(grad)))
            # The host waits once for each engine, when all is launched.
            self._finite[id(optimizer)] = all(all_of(stack(found)).item() for found in are_finite.values())

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step with gradients that are scaled back; None, and no step, where one is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if id(optimizer) in self._stepped:
            raise ArgumentError("[GradScaler.step] expected one call between updates, got another: call update() first")
        if id(optimizer) not in self._finite:
            self.unscale_(optimizer)
        self._stepped.add(id(optimizer))
        return optimizer.step(*args, **kwargs) if self._finite[id(optimizer)] else None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """The scale for the next step, or a new one."""
        if not self._enabled:
            return
        if new_scale is not None:
            value = new_scale.item() if isinstance(new_scale, Tensor) else new_scale
            self._scale = number("GradScaler.update", "new_scale", value)
        elif not self._finite:
            raise ArgumentError("[GradScaler.update] expected a step before it, got none: call step(optimizer)")
        elif not all(self._finite.values()):
            self._scale, self._steps = self._scale * self._backoff, 0
        else:
            self._steps += 1
            if self._steps == self._interval:
                self._scale, self._steps = self._scale * self._growth, 0
        self._finite, self._stepped = {}, set()

    def is_enabled(self) -> bool:
        """Whether it scales."""
        return self._enabled

    def get_scale(self) -> float:
        """The scale, 1 where it does not scale."""
        return self._scale if self._enabled else 1.0

    def state_dict(self) -> dict[str, Any]:
        """The scale and what it changes by, under PyTorch's names; empty where it does not scale."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth,
            "backoff_factor": self._backoff,
            "growth_interval": self._interval,
            "_growth_tracker": self._steps,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores a state; CheckpointError, and nothing changes, where a part is missing or no number."""
        if not self._enabled:
            return
        try:
            values = [state_dict[name] for name in self.state_dict()]
        except (KeyError, TypeError) as error:
            raise CheckpointError(
                f"[GradScaler] expected a state with {', '.join(self.state_dict())}, got {described(state_dict)}"
            ) from error
        names = list(self.state_dict())
        floats = [number("GradScaler", name, value) for name, value in zip(names[:3], values[:3], strict=True)]
        interval, steps = (whole("GradScaler", names[place], values[place], 0) for place in (3, 4))
        (self._scale, self._growth, self._backoff), self._interval, self._steps = floats, interval, steps
