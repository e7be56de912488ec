"""Parameter and Buffer: tensors that are part of a module by being its attributes."""

from __future__ import annotations

from typing import Any

from alpha import Tensor, dtypes, tensor
from alpha.arguments import flag
from alpha.errors import DtypeError


class Parameter(Tensor):
    """A tensor that belongs to a module's parameters when it is an attribute of it.

    Args:
        data: a tensor, whose memory it shares, or an array or nested lists, which it copies.
        requires_grad: whether backward fills ``.grad``.
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        source = data if isinstance(data, Tensor) else tensor(data)
        requires_grad = flag("Parameter", "requires_grad", requires_grad)
        if requires_grad and not dtypes.has_gradients(source.dtype):
            raise DtypeError(
                f"[Parameter] expected {dtypes.float_names()}, got {source.dtype}: cast it, or pass requires_grad=False"
            )
        super().__init__(source.storage, source.offset, source.shape, source.strides, source.dtype)
        self.requires_grad = requires_grad

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(Tensor):
    """A tensor that belongs to a module's buffers when it is an attribute of it: moved and saved, but not trained.

    Args:
        data: a tensor, whose memory it shares, or an array or nested lists, which it copies; by default it is empty.
        persistent: whether it is part of the module's state_dict.
    """

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        source = data if isinstance(data, Tensor) else tensor([] if data is None else data)
        super().__init__(source.storage, source.offset, source.shape, source.strides, source.dtype)
        self.requires_grad = source.requires_grad
        self.persistent = flag("Buffer", "persistent", persistent)
