"""Spectral normalisation: a layer's weight divided by its largest singular value. Miyato et al., arXiv 1802.05957."""

from __future__ import annotations

from typing import Any, TypeVar

from alpha import Tensor, functions, no_grad, random
from alpha.arguments import one_axis
from alpha.changes import Changes, at_once, putting, setting
from alpha.errors import ArgumentError, ShapeError
from alpha.hooks import RemovableHandle
from alpha.nn.arguments import positive
from alpha.nn.conv import ConvNd, ConvTransposeNd
from alpha.nn.hooks import Hooks, Registered, hooks_of
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter

Layer = TypeVar("Layer", bound=Module)


class SpectralNorm:
    """The hooks of a module that put weight / sigma in the weight's place before each forward.

    sigma = u . (W v) with the singular vectors u and v that power iteration finds; both count as constants in the
    gradient. The module keeps the trained weight as ``<name>_orig``, and u and v as buffers ``<name>_u``, ``<name>_v``.
    """

    def __init__(self, name: str, n_power_iterations: int, eps: float, dim: int | None = None) -> None:
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def before(self, module: Module, args: tuple[Any, ...]) -> None:
        """Sets the weight for one forward, in the graph."""
        setattr(module, self.name, self.weight(module, module.training))

    def after(self, module: Module, args: tuple[Any, ...], result: Any) -> None:
        """Takes the weight out of the graph again, so that the module can be copied."""
        setattr(module, self.name, getattr(module, self.name).detach())

    def weight(self, module: Module, iterate: bool) -> Tensor:
        """The trained weight over sigma, u and v first improved by power iteration if so wanted."""
        weight, u, v = (getattr(module, self.name + suffix) for suffix in ("_orig", "_u", "_v"))
        matrix = _matrix(module, weight, self.name, self.dim)
        if iterate:
            u, v = self._iterate(matrix.detach(), u, v)
        result: Tensor = weight / functions.dot(u, functions.matmul(matrix, v))
        return result

    @no_grad()
    def _iterate(self, matrix: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Better u and v, also put into the buffers: the graph of an earlier forward still needs what it saved."""
        new_u, new_v = u, v
        for _ in range(self.n_power_iterations):
            new_v = self.unit(functions.matmul(matrix.T, new_u))
            new_u = self.unit(functions.matmul(matrix, new_v))
        u.copy_(new_u)
        v.copy_(new_v)
        return new_u, new_v

    def unit(self, x: Tensor) -> Tensor:
        """x / max(|x|, eps)."""
        return x / functions.maximum(functions.norm(x), self.eps)


def spectral_norm(
    module: Layer, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Layer:
    """Divides a module's weight by its spectral norm, anew before each forward; returns the module.

    The norm is that of the weight as a matrix of output channels by all else, estimated by power iteration: in training
    mode each forward improves it, in evaluation mode it stays. The state_dict holds ``<name>_orig``, ``<name>_u`` and
    ``<name>_v``, as that of PyTorch's ``torch.nn.utils.spectral_norm``, in its order of elements too.

    Args:
        module: a Linear, a convolution of any kind or another module with such a weight.
        name: of the weight.
        n_power_iterations: steps of power iteration a forward in training.
        eps: least norm that a vector is divided by.
        dim: the axis of the output channels; by default that of the layer.
    """
    positive(n_power_iterations, "n_power_iterations", "spectral_norm")
    if not eps > 0:
        raise ArgumentError(f"[spectral_norm] expected eps > 0, got {eps}")
    if _found(module, name) is not None:
        raise ArgumentError(f"[spectral_norm] expected a weight without spectral norm, got {name}: apply it once")
    weight = getattr(module, name, None)
    if not isinstance(weight, Parameter):
        raise ArgumentError(
            f"[spectral_norm] expected a Parameter called {name}, got {type(weight).__name__}: name the weight of this "
            f"{type(module).__name__}"
        )
    rows, columns = _matrix(module, weight, name, dim).shape
    norm = SpectralNorm(name, n_power_iterations, eps, dim)
    for suffix in ("orig", "u", "v"):
        module._check_name(f"{name}_{suffix}", "spectral_norm", {})
    changed = dict(vars(module))
    del changed[name]
    changed |= {f"{name}_orig": weight, name: weight.detach()}
    for suffix, length in (("u", rows), ("v", columns)):
        draw = random.draw_normal((length,), dtype=weight.dtype)
        changed[f"{name}_{suffix}"] = norm.unit(weight.engine.random(draw))
    changed["_buffer_names"] = {**module._buffer_names, f"{name}_u": True, f"{name}_v": True}
    hooks = changed["_hooks"] = module._hooks or Hooks()
    at_once(
        [
            putting(hooks.before, RemovableHandle.of(hooks.before), Registered(norm.before)),
            putting(hooks.after, RemovableHandle.of(hooks.after), Registered(norm.after)),
            setting(module, "__dict__", changed),
        ]
    )
    return module


def remove_spectral_norm(module: Layer, name: str = "weight") -> Layer:
    """Makes the weight as it was divided last a parameter again, the very one that was trained; returns the module."""
    norm = _found(module, name)
    if norm is None:
        raise ArgumentError(f"[remove_spectral_norm] expected a spectral norm of {name}, got none in this module")
    weight: Parameter = getattr(module, f"{name}_orig")
    with no_grad():
        divided = norm.weight(module, iterate=False)
    changes = Changes()
    changes.write(weight, divided.engine.to_numpy(divided))
    changed = dict(vars(module))
    hooks: Any = module._hooks
    for table in (hooks.before, hooks.after):
        for handle in [handle for handle, hook in table.items() if getattr(hook.hook, "__self__", None) is norm]:
            changes.add((dict.pop, table, handle))
    for gone in (name, f"{name}_orig", f"{name}_u", f"{name}_v"):
        del changed[gone]
    changed["_buffer_names"] = {key: saved for key, saved in module._buffer_names.items() if key in changed}
    changed[name] = weight
    changes.set(module, "__dict__", changed)
    changes.make()
    return module


def _found(module: Module, name: str) -> SpectralNorm | None:
    for hook in hooks_of(module, "before"):
        norm = getattr(hook, "__self__", None)
        if isinstance(norm, SpectralNorm) and norm.name == name:
            return norm
    return None


def _matrix(module: Module, weight: Tensor, name: str, dim: int | None) -> Tensor:
    """(output channels, all else); filters channels first, so that v has PyTorch's order."""
    if weight.ndim < 2:
        raise ShapeError(f"[spectral_norm] expected a {name} of at least 2 axes, got shape {weight.shape}")
    weight = weight.permute(matrix_axes(module, weight) if dim is None else axes_with_first(weight, dim))
    return weight.reshape(weight.shape[0], -1)


def axes_with_first(weight: Tensor, dim: int) -> tuple[int, ...]:
    """The axes of a weight with one of them first."""
    first = one_axis("spectral_norm", dim, weight.ndim)
    return (first, *[axis for axis in range(weight.ndim) if axis != first])


def matrix_axes(module: Module, weight: Tensor) -> tuple[int, ...]:
    """The axes of a weight with those of the output and of the input first, in this order."""
    if weight.ndim != 4 and not isinstance(module, ConvNd):
        return tuple(range(weight.ndim))
    channels = 1 if getattr(module, "layout", "NHWC") == "NCHW" else weight.ndim - 1
    others = [axis for axis in range(1, weight.ndim) if axis != channels]
    return (*((channels, 0) if isinstance(module, ConvTransposeNd) else (0, channels)), *others)
