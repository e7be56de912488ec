"""Weight normalisation: a weight as directions and lengths. Salimans & Kingma, arXiv 1602.07868."""

from __future__ import annotations

from typing import Any, TypeVar

from alpha import Tensor
from alpha import functions as F
from alpha.arguments import one_axis
from alpha.changes import Changes, at_once, putting, setting
from alpha.errors import ArgumentError
from alpha.hooks import RemovableHandle
from alpha.nn.hooks import Hooks, Registered, hooks_of
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter

Layer = TypeVar("Layer", bound=Module)


def lengths(v: Tensor, dim: int | None) -> Tensor:
    """The lengths of the entries of a weight along an axis, the other axes kept at length 1; of None, that of all."""
    if dim is None:
        return F.norm(v)
    return (
        F.norm(v, axis=tuple([axis for axis in range(v.ndim) if axis != dim]), keepdims=True) if v.ndim > 1 else abs(v)
    )


def checked_dim(function: str, dim: int | None, weight: Tensor) -> int | None:
    """The axis, if the weight has it; None, and -1 as in PyTorch, are all together."""
    return None if dim is None or dim == -1 else one_axis(function, dim, weight.ndim)


class WeightNorm:
    """The hook of a module that puts v * g / |v| in the weight's place before each forward."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def weight(self, module: Module) -> Tensor:
        """The weight of the present ``<name>_g`` and ``<name>_v``."""
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        result: Tensor = v * (g / lengths(v, self.dim))
        return result

    def before(self, module: Module, args: tuple[Any, ...]) -> None:
        """Sets the weight for one forward, in the graph."""
        setattr(module, self.name, self.weight(module))

    def after(self, module: Module, args: tuple[Any, ...], result: Any) -> None:
        """Takes the weight out of the graph again, so that the module can be copied."""
        setattr(module, self.name, getattr(module, self.name).detach())


def weight_norm(module: Layer, name: str = "weight", dim: int | None = 0) -> Layer:
    """Trains a module's weight as ``<name>_v`` * ``<name>_g`` / |``<name>_v``|, computed before each forward.

    Args:
        module: returned, with two parameters in the place of one.
        name: the weight's.
        dim: the axis along which each entry has a length of its own; None for one length of all.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Parameter):
        raise ArgumentError(
            f"[weight_norm] expected a Parameter called {name}, got {type(weight).__name__}: name a weight of this "
            f"{type(module).__name__} that has no weight norm yet"
        )
    norm = WeightNorm(name, checked_dim("weight_norm", dim, weight))
    for suffix in ("g", "v"):
        module._check_name(f"{name}_{suffix}", "weight_norm", {})
    changed = dict(vars(module))
    del changed[name]
    g, v = Parameter(lengths(weight.detach(), norm.dim)), Parameter(weight.detach().clone())
    changed |= {f"{name}_g": g, f"{name}_v": v, name: weight.detach()}
    hooks = changed["_hooks"] = module._hooks or Hooks()
    at_once(
        [
            putting(hooks.before, RemovableHandle.of(hooks.before), Registered(norm.before)),
            putting(hooks.after, RemovableHandle.of(hooks.after), Registered(norm.after)),
            setting(module, "__dict__", changed),
        ]
    )
    return module


def remove_weight_norm(module: Layer, name: str = "weight") -> Layer:
    """Makes the weight as it is now one parameter again; returns the module."""
    found = [getattr(hook, "__self__", None) for hook in hooks_of(module, "before")]
    norm = next((one for one in found if isinstance(one, WeightNorm) and one.name == name), None)
    if norm is None or module._hooks is None:
        raise ArgumentError(f"[remove_weight_norm] expected a weight norm of {name}, got none in this module")
    changes, changed = Changes(), dict(vars(module))
    changed[name] = Parameter(norm.weight(module).detach())
    for table in (module._hooks.before, module._hooks.after):
        for handle in [handle for handle, entry in table.items() if getattr(entry.hook, "__self__", None) is norm]:
            changes.add((dict.pop, table, handle))
    for gone in (f"{name}_g", f"{name}_v"):
        del changed[gone]
    changes.set(module, "__dict__", changed)
    changes.make()
    return module
