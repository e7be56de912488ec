"""Parametrizations: a module's parameter computed by other modules from what is trained in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpha import Tensor
from alpha.arguments import flag
from alpha.autograd import no_grad
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.operands import check_tensor
from alpha.nn.containers import ModuleDict, ModuleList
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter

__all__ = ["ParametrizationList", "is_parametrized", "register_parametrization", "remove_parametrizations"]


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, called one after another.

    What is trained is ``original``, or ``original0``, ``original1``, ... where the first parametrization takes several
    tensors: as many as the ``right_inverse`` of the last one that has one gives.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        self.is_tensor = True
        with no_grad():
            found = self._inverted(original)
        self.is_tensor = isinstance(found, Tensor)
        self.ntensors = 1 if isinstance(found, Tensor) else len(found)
        several = (found,) if isinstance(found, Tensor) else tuple(found)
        check_tensor("register_parametrization", *several)
        for name, value in zip(self._names(), several, strict=True):
            if isinstance(original, Parameter):
                kept = original if value is original else Parameter(value.detach(), original.requires_grad)
                setattr(self, name, kept)
            else:
                self.register_buffer(name, value)

    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{place}" for place in range(self.ntensors)]

    def _inverted(self, value: Any) -> Any:
        """What the parametrizations make ``value`` of, as far as they know."""
        for module in reversed(list(self)):
            inverse = getattr(module, "right_inverse", None)
            value = value if inverse is None else inverse(value)
        return value

    @no_grad()
    def right_inverse(self, value: Tensor) -> None:
        """Sets what is trained so that the result is a value."""
        found = self._inverted(value)
        several = (found,) if isinstance(found, Tensor) else tuple(found)
        check_tensor("right_inverse", *several)
        for name, one in zip(self._names(), several, strict=True):
            getattr(self, name).copy_(one)

    def forward(self) -> Tensor:
        """The parametrized tensor."""
        first, *others = list(self)
        result: Tensor = first(*[getattr(self, name) for name in self._names()])
        for module in others:
            result = module(result)
        return result


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrizations, or one tensor of it has."""
    found = vars(module).get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Puts ``parametrization(original)`` in the place of a parameter or buffer, computed anew whenever it is read.

    The module keeps what is trained as ``parametrizations.<name>.original``. Assigning to the name sets the original
    by the parametrization's ``right_inverse``, where it has one. A second parametrization takes the first one's result.

    Args:
        module: changed, and returned; it becomes an instance of a subclass of its class.
        tensor_name: the parameter's or buffer's.
        parametrization: a module of one tensor; of several if its ``right_inverse`` gives several.
        unsafe: whether the result may have another shape or dtype than the tensor.
    """
    name = "register_parametrization"
    unsafe = flag(name, "unsafe", unsafe)
    if not isinstance(parametrization, Module):
        raise ArgumentError(f"[{name}] expected a Module as parametrization, got {described(parametrization)}")
    if is_parametrized(module, tensor_name):
        kept: ParametrizationList = _table(module)[tensor_name]
        before = getattr(module, tensor_name).detach()
        if not unsafe:
            _check(parametrization(before), before)
        inverse = getattr(parametrization, "right_inverse", None)
        if inverse is not None:
            with no_grad():
                kept.right_inverse(inverse(before))
        kept.append(parametrization)
        return module
    original = vars(module).get(tensor_name)
    is_buffer = tensor_name in module._buffer_names
    if not isinstance(original, Tensor) or not (isinstance(original, Parameter) or is_buffer):
        raise ArgumentError(
            f"[{name}] expected the name of a parameter or buffer of {type(module).__name__}, got {tensor_name!r}"
        )
    parametrizations = ParametrizationList([parametrization], original, unsafe)
    if not unsafe:
        with no_grad():
            _check(parametrizations(), original)
    if not is_parametrized(module):
        setattr(module, "parametrizations", ModuleDict())  # noqa: B010 (no attribute of every Module)
    delattr(module, tensor_name)
    table = _table(module)
    table[tensor_name] = parametrizations
    module.__class__ = _subclass(module, list(table))
    return module


def _table(module: Module) -> ModuleDict:
    """A parametrized module's lists of parametrizations by tensor."""
    found: ModuleDict = vars(module)["parametrizations"]
    return found


def _check(result: Any, original: Tensor) -> None:
    """ShapeError unless a parametrization leaves shape and dtype."""
    if not isinstance(result, Tensor) or result.shape != original.shape or result.dtype != original.dtype:
        got = f"{result.shape} of {result.dtype}" if isinstance(result, Tensor) else described(result)
        raise ShapeError(
            f"[register_parametrization] expected a tensor {original.shape} of {original.dtype} as the result, as the "
            f"original is, got {got}: pass unsafe=True if that is meant"
        )


def _subclass(module: Module, names: list[str]) -> type[Module]:
    """A class of a parametrized module: its own one with attributes that are computed."""
    kind: type[Module] = getattr(type(module), "_parametrized", type(module))
    computed: dict[str, Any] = {name: _Computed(name) for name in names}
    return type(f"Parametrized{kind.__name__}", (kind,), {**computed, "_parametrized": kind})


class _Computed:
    """The attribute of a parametrized tensor."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, module: Any, owner: type | None = None) -> Any:
        return self if module is None else _table(module)[self._name]()

    def __set__(self, module: Any, value: Tensor) -> None:
        _table(module)[self._name].right_inverse(value)


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes a parametrized tensor a plain one again; returns the module.

    Args:
        module: the module, an instance of its own class again once its last parametrization is gone.
        tensor_name: the tensor's.
        leave_parametrized: whether it keeps its present value; else it is the original, of which there is one.
    """
    name = "remove_parametrizations"
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"[{name}] expected a parametrized tensor of this module, got {tensor_name!r}")
    table = _table(module)
    kept: ParametrizationList = table[tensor_name]
    first = getattr(kept, kept._names()[0])
    leave_parametrized = flag(name, "leave_parametrized", leave_parametrized)
    if not leave_parametrized and not kept.is_tensor:
        raise ArgumentError(
            f"[{name}] expected leave_parametrized=True where the original are {kept.ntensors} tensors, got False"
        )
    value = kept().detach() if leave_parametrized else first
    if leave_parametrized and isinstance(first, Parameter):
        if kept.is_tensor and first.shape == value.shape:
            with no_grad():
                value = first.copy_(value)
        else:
            value = Parameter(value, first.requires_grad)
    del table[tensor_name]
    kind: type[Module] = type(module)._parametrized  # type: ignore[attr-defined]
    module.__class__ = _subclass(module, list(table)) if len(table) else kind
    if isinstance(first, Parameter):
        setattr(module, tensor_name, value)
    else:
        module.register_buffer(tensor_name, value)
    if not len(table):
        delattr(module, "parametrizations")
    return module
