"""Tensor's methods and attributes that tell what it is and where it lies, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from alpha import dtypes, graph_nodes, shared_memory, torch_types
from alpha.arguments import flag, one_axis
from alpha.devices import device, torch_name
from alpha.errors import ArgumentError, EngineError, GraphError, described
from alpha.functions import casting, elementwise, facts, inplace
from alpha.functions.operands import check_tensor, python_number
from alpha.functions.shape import expand
from alpha.memory_formats import order_of_one
from alpha.sizes import Size
from alpha.tensor import Tensor
from alpha.typed_tensors import made


class FactMethods:
    """What Tensor tells of itself; ``self`` is a Tensor."""

    is_inference = facts.is_inference
    is_neg = facts.is_neg
    is_nonzero = facts.is_nonzero
    is_same_size = facts.is_same_size
    is_signed = facts.is_signed

    def _parts_of(self: Any, *args: Any) -> tuple[Any, ...]:
        """The parts of the tensor that PyTorch's ``Tensor(data)`` or ``Tensor(2, 3)`` is."""
        x = made("Tensor", tuple([one for one in args if one is not None]), dtypes.default_float)
        return x.storage, x.offset, x.shape, x.strides, x.dtype

    _order_of_one = order_of_one

    def size(self: Any, dim: int | None = None) -> Any:
        """The shape as a ``Size``, or the length of one axis."""
        return Size(self.shape) if dim is None else self.shape[one_axis("size", dim, len(self.shape))]

    def ndimension(self: Any) -> int:
        """Number of axes."""
        return len(self.shape)

    def nelement(self: Any) -> int:
        """Number of elements."""
        return self.numel()  # type: ignore[no-any-return]

    # -- where it lies -----------------------------------------------------------------------------------------------

    def data_ptr(self: Any) -> int:
        """Address of the first element in the engine's memory; 0 of a tensor without elements."""
        return self.address if self.numel() else 0

    def storage_offset(self: Any) -> int:
        """Elements of the memory before the first one."""
        return self.offset  # type: ignore[no-any-return]

    def get_device(self: Any) -> int:
        """The number of the GPU that holds it, -1 elsewhere."""
        place = device(torch_name(self.engine.name))
        return (place.index or 0) if self.is_cuda else -1

    def is_set_to(self: Any, tensor: Tensor) -> bool:
        """Whether another tensor has the same memory, shape and strides."""
        check_tensor("is_set_to", tensor)
        same = self.storage is tensor.storage and self.offset == tensor.offset
        return same and (self.shape, self.strides) == (tensor.shape, tensor.strides)

    is_shared = shared_memory.is_shared
    share_memory_ = shared_memory.share

    def is_pinned(self: Any) -> bool:
        """False: engines copy from any memory of the host, and none is locked for it."""
        return False

    def pin_memory(self: Any) -> Tensor:
        """The tensor itself: no memory needs to be locked for copies. EngineError on a device, as in PyTorch."""
        if not self.engine.memory.is_on_host:
            raise EngineError(f"[pin_memory] expected a tensor in the host's memory, got one of {self.engine.name}")
        return self  # type: ignore[no-any-return]

    # -- kinds of tensors that there are not -------------------------------------------------------------------------

    @property
    def is_sparse(self: Any) -> bool:
        """False: every element is stored."""
        return False

    is_mkldnn = is_nested = is_quantized = is_sparse_csr = property(lambda _: False, doc="False.")
    is_ipu = is_maia = is_mps = is_mtia = is_vulkan = is_xla = is_xpu = property(
        lambda _: False, doc="False: no engine runs there."
    )

    @property
    def is_meta(self: Any) -> bool:
        """False: every tensor has memory."""
        return False

    def to_dense(self: Any, dtype: Any = None, *, masked_grad: bool = True) -> Tensor:
        """The tensor itself, or in another dtype; ``masked_grad`` says nothing here, as for PyTorch's dense tensors."""
        return self if dtype is None else casting.cast(self, dtypes.as_dtype(dtype, "to_dense"))

    # -- the graph ---------------------------------------------------------------------------------------------------

    @property
    def grad_fn(self: Any) -> Any:
        """The function in the graph whose result it is, with a ``name()`` and ``next_functions``; None for a leaf."""
        return graph_nodes.node_of(self)

    @property
    def output_nr(self: Any) -> int:
        """Its number among the results of the function that made it."""
        return self._output  # type: ignore[no-any-return]

    @property
    def retains_grad(self: Any) -> bool:
        """Whether ``retain_grad`` made backward keep its gradient."""
        if self._node is None:
            return False
        retained = self._node._retained
        # Backward drops what it has done: the gradient is there then.
        return self.grad is not None or (retained is not None and self._output in retained)

    # -- the dtype by PyTorch's names of tensors' types --------------------------------------------------------------

    def type(self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
        """Without a dtype PyTorch's name of the type, ``"torch.FloatTensor"``, of a GPU's ``"torch.cuda.FloatTensor"``.

        With one the tensor in it: a dtype, its name, or such a name of a type, which names the place too.
        ``non_blocking`` has no effect.
        """
        flag("type", "non_blocking", non_blocking)
        if dtype is None:
            place = "torch.cuda." if self.is_cuda else "torch."
            return f"{place}{torch_types.type_of(self.dtype)}Tensor"
        if not isinstance(dtype, str) or not dtype.endswith("Tensor"):
            return elementwise.cast(self, dtypes.as_dtype(dtype, "type"))
        place, _, kind = dtype.rpartition(".")
        found = torch_types.dtype_of(kind.removesuffix("Tensor"))
        if place not in ("", "torch", "torch.cuda") or found is None:
            raise ArgumentError(
                f'[type] expected a dtype or a name such as "torch.FloatTensor", got {described(dtype)}'
            )
        where = "cuda" if place == "torch.cuda" else "cpu"
        moved = self if where == "cpu" and not self.is_cuda else elementwise.to(self, where)
        return elementwise.cast(moved, found)

    # -- Python's functions of elements ------------------------------------------------------------------------------

    def apply_(self: Any, callable: Callable[[Any], Any]) -> Tensor:
        """Every element replaced by what a Python function returns for it, in row-major order. Returns self.

        For tensors in the host's memory that require no grad; slow, for it calls the function once per element.
        """
        return _applied("apply_", self, callable)

    def map_(self: Any, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
        """As ``apply_``, by a function of two numbers: an element and that of another tensor of the same dtype, which
        broadcasts to this one's shape."""
        return _applied("map_", self, callable, tensor)

    def map2_(self: Any, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
        """As ``map_``, by a function of three numbers."""
        return _applied("map2_", self, callable, x, y)


def _applied(name: str, x: Tensor, function: Callable[..., Any], *others: Tensor) -> Tensor:
    """A tensor's elements replaced by what a function returns for each with those of others."""
    check_tensor(name, *others)
    if not callable(function):
        raise ArgumentError(f"[{name}] expected a function of {1 + len(others)} numbers, got {described(function)}")
    if any(tensor.requires_grad for tensor in (x, *others)):
        raise GraphError(f"[{name}] expected tensors that require no grad, got one that does: use .detach()")
    if not x.engine.memory.is_on_host:
        raise EngineError(f"[{name}] expected a tensor in the host's memory, got one of {x.engine.name}: move it first")
    x.engine.check_owner(name, *others)
    for other in others:
        inplace.check_fits(name, x, other)
        if other.dtype != x.dtype:
            raise ArgumentError(f"[{name}] expected tensors of {x.dtype}, got {other.dtype}: cast it")
    columns = [tensor.detach().numpy().reshape(-1).tolist() for tensor in (x, *[expand(y, x.shape) for y in others])]
    found = [python_number(name, function(*numbers)) for numbers in zip(*columns, strict=True)]
    return inplace.copy_(x, np.array(found).astype(x.dtype).reshape(x.shape))
