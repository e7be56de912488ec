"""Lookups by position along an axis, and in the flattened tensor."""

from __future__ import annotations

from alpha.arguments import one_axis
from alpha.autograd import Function
from alpha.autograd.composing import returned
from alpha.errors import ShapeError
from alpha.functions.indexing import Selection
from alpha.functions.keys import check_index, positions, within
from alpha.functions.nothing import nothing
from alpha.functions.operands import call, check_tensor
from alpha.functions.shape import broadcast_to, reshape
from alpha.launches import GATHER_ALONG, INDEX_SELECT, TAKE_ALONG_DIM
from alpha.tensor import Tensor

__all__ = ["gather", "index_select", "take", "take_along_dim"]


class IndexSelect(Selection):
    """The entries along one axis that integers name."""

    def forward(self, x: Tensor, index: Tensor, axis: int) -> Tensor:
        check = None if self.needs[0] else within("index_select", x.shape, axis)
        if check is None:  # backward follows what was checked, whoever writes to it meanwhile
            index = positions("index_select", index, x.shape, axis)
        self.index = tuple([index if a == axis else slice(None) for a in range(len(x.shape))])
        self.shape, self.order = x.shape, x.memory_order()
        return x.storage.engine.index_select(x, index, axis, check)


class GatherAlong(Function):
    """The elements that indices name along an axis, as a copy; repeated ones add up their gradients."""

    fresh = True

    def forward(self, x: Tensor, index: Tensor, axis: int, name: str) -> Tensor:
        """``name``: of the function, for the error of an index out of range."""
        check = within(name, x.shape, axis)
        if not self.needs[0]:
            return x.engine.gather_along(x, index, axis, check)
        self.axis, self.shape, self.order = axis, x.shape, x.memory_order()
        # Backward follows what was checked, whoever writes to the index meanwhile.
        out, self.index = x.engine.gather_along_kept(x, index, axis, check)
        return out

    def backward(self, grad: Tensor) -> Tensor:
        whole = self.accumulator(0)
        if whole is None:
            return grad.engine.gather_along_grad(grad, self.index, self.axis, self.shape, self.order)
        grad.engine.scatter_along(whole, self.index, grad, self.axis)
        return whole

    def backward_in_graph(self, grad: Tensor) -> Tensor:
        return returned(self, grad, lambda g: call(GatherAlong, g, self.index.long(), self.axis, "gather"))


# -- by position along an axis -----------------------------------------------------------------------------------


def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """out[i][j][k] = input[i][index[i][j][k]][k] for dim 1, and likewise for others; index has input's number of axes.

    Along the other axes index may be shorter than input. ``sparse_grad`` has no effect: gradients are dense.
    """
    found: Tensor | None = GATHER_ALONG.launch_outside(input, dim, index)
    if found is not None:
        return found
    check_tensor("gather", input, index)
    if not input.shape and index.ndim <= 1:  # of a tensor without axes the index has as many or one
        return reshape(gather(reshape(input, (1,)), dim, reshape(index, (-1,))), index.shape)
    axis = one_axis("gather", dim, input.ndim)
    check_index("gather", input, index)
    if not index.numel():  # whatever its shape, as in PyTorch
        return nothing(index.shape, input)
    if index.ndim != input.ndim or any(
        n > m for a, (n, m) in enumerate(zip(index.shape, input.shape, strict=True)) if a != axis
    ):
        raise ShapeError(
            f"[gather] expected an index of {input.ndim} axes, no longer than x except along axis {axis}, got x: "
            f"{input.shape} "
            f"and index: {index.shape}"
        )
    followed = index.detach().long()
    out = call(GatherAlong, input, followed, axis, "gather")
    if dim != axis and not out.requires_grad:
        input.engine.alias(GATHER_ALONG, (input, axis, followed), GATHER_ALONG, (input, dim, index))
    return out


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """``gather`` with both broadcast to each other along the other axes; without an axis, of both flattened."""
    found: Tensor | None = TAKE_ALONG_DIM.launch_outside(input, indices, dim)
    if found is not None:
        return found
    check_tensor("take_along_dim", input, indices)
    if dim is None:
        return take(input, reshape(indices, (-1,)))
    axis = one_axis("take_along_dim", dim, input.ndim)
    check_index("take_along_dim", input, indices)
    pairs = list(zip(input.shape, indices.shape, strict=False))
    if indices.ndim != input.ndim or any(a != axis and n != m and 1 not in (n, m) for a, (n, m) in enumerate(pairs)):
        raise ShapeError(
            f"[take_along_dim] expected shapes that broadcast except along axis {axis}, got x: {input.shape} and "
            "index: "
            f"{indices.shape}"
        )
    common = [max(pair) if 0 not in pair else 0 for pair in pairs]
    wide = broadcast_to(input, [input.shape[axis] if a == axis else n for a, n in enumerate(common)])
    chosen = broadcast_to(indices, [indices.shape[axis] if a == axis else n for a, n in enumerate(common)])
    followed = chosen.detach().long()
    out = call(GatherAlong, wide, followed, axis, "take_along_dim")
    if not out.requires_grad:
        input.engine.alias(GATHER_ALONG, (wide, axis, followed), TAKE_ALONG_DIM, (input, indices, dim))
    return out


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The entries along an axis that a 1-D integer tensor names, in its order."""
    if type(index) is Tensor and len(index.shape) == 1:
        found: Tensor | None = INDEX_SELECT.launch_outside(input, dim, index, True)
        if found is not None:
            return found
    check_tensor("index_select", input, index)
    if not input.shape:
        return reshape(index_select(reshape(input, (1,)), dim, index), index.shape if index.numel() != 1 else ())
    axis = one_axis("index_select", dim, input.ndim)
    check_index("index_select", input, index)
    index = reshape(index, (1,)) if not index.shape else index
    if index.ndim != 1:
        raise ShapeError(f"[index_select] expected an index of one axis, got shape {index.shape}")
    followed = index.detach().long()
    out = call(IndexSelect, input, followed, axis)
    if dim != axis and not out.requires_grad:
        input.engine.alias(INDEX_SELECT, (input, axis, followed, True), INDEX_SELECT, (input, dim, index, True))
    return out


def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements of the flattened tensor that an integer tensor of any shape names, in its shape."""
    check_tensor("take", input, index)
    check_index("take", input, index)
    return reshape(index_select(reshape(input, (input.numel(),)), 0, reshape(index, (index.numel(),))), index.shape)
