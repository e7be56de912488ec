"""Tensor's methods that arrange, select and gather elements: products, reductions, order, indexing and shapes."""

from __future__ import annotations

from typing import Any

from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions import (
    contraction,
    diagonals,
    extremes,
    grids,
    histograms,
    indexing,
    inplace,
    joining,
    linalg,
    lookups,
    products,
    reduction,
    running,
    scattering,
    selection,
    shape_in_place,
    sorting,
    splitting,
    statistics,
    vector_norms,
    views,
)
from alpha.functions import shape as shapes
from alpha.functions.complex_arithmetic import conjugate
from alpha.functions.operands import check_tensor
from alpha.tensor import Tensor


class ArrayMethods:
    """What Tensor has of ``alpha``'s functions of whole arrays; ``self`` is a Tensor."""

    # -- products ----------------------------------------------------------------------------------------------------

    matmul = linalg.matmul
    dot = linalg.dot
    outer = linalg.outer
    addbmm = products.addbmm
    addmm = products.addmm
    addmv = products.addmv
    addr = products.addr
    baddbmm = products.baddbmm
    bmm = products.bmm
    ger = products.ger
    inner = products.inner
    mm = products.mm
    mv = products.mv
    vdot = products.vdot
    cross = contraction.cross
    kron = contraction.kron

    # -- reductions --------------------------------------------------------------------------------------------------

    sum = reduction.sum
    sum_to_size = shapes.sum_to_size
    mean = reduction.mean
    var = reduction.var
    std = reduction.std
    prod = reduction.prod
    nansum = reduction.nansum
    nanmean = reduction.nanmean
    count_nonzero = reduction.count_nonzero
    max = extremes.max
    min = extremes.min
    amax = extremes.amax
    amin = extremes.amin
    aminmax = extremes.aminmax
    argmax = extremes.argmax
    argmin = extremes.argmin
    any = extremes.any
    all = extremes.all
    logsumexp = vector_norms.logsumexp
    norm = vector_norms.norm
    dist = vector_norms.dist
    renorm = vector_norms.renorm
    median = statistics.median
    nanmedian = statistics.nanmedian
    quantile = statistics.quantile
    nanquantile = statistics.nanquantile
    bincount = histograms.bincount
    histc = histograms.histc
    histogram = histograms.histogram
    cov = statistics.cov
    corrcoef = statistics.corrcoef
    trace = diagonals.trace

    # -- along an axis -----------------------------------------------------------------------------------------------

    cumsum = running.cumsum
    cumprod = running.cumprod
    cummax = running.cummax
    cummin = running.cummin
    logcumsumexp = running.logcumsumexp
    diff = grids.diff
    sort = sorting.sort
    argsort = sorting.argsort
    msort = sorting.msort
    topk = sorting.topk
    kthvalue = sorting.kthvalue
    mode = sorting.mode
    unique = selection.unique
    unique_consecutive = selection.unique_consecutive
    repeat_interleave = selection.repeat_interleave
    isin = selection.isin

    # -- indexing ----------------------------------------------------------------------------------------------------

    __getitem__ = indexing.getitem
    masked_fill = indexing.masked_fill
    gather = lookups.gather
    index_select = lookups.index_select
    take = lookups.take
    take_along_dim = lookups.take_along_dim
    nonzero = selection.nonzero
    nonzero_static = selection.nonzero_static
    argwhere = selection.argwhere
    masked_select = selection.masked_select
    scatter = scattering.scatter
    scatter_add = scattering.scatter_add
    scatter_reduce = scattering.scatter_reduce
    index_add = scattering.index_add
    index_copy = scattering.index_copy
    index_fill = scattering.index_fill
    index_put = scattering.index_put
    index_reduce = scattering.index_reduce
    put = scattering.put
    masked_scatter = scattering.masked_scatter

    # -- shape -------------------------------------------------------------------------------------------------------

    transpose = shapes.transpose
    flatten = shapes.flatten
    squeeze = shapes.squeeze
    unsqueeze = shapes.unsqueeze
    split = splitting.split
    chunk = splitting.chunk
    unsafe_chunk = splitting.unsafe_chunk
    unsafe_split = splitting.unsafe_split
    unsafe_split_with_sizes = views.unsafe_split_with_sizes
    adjoint = views.adjoint
    as_strided = views.as_strided
    dsplit = views.dsplit
    hsplit = views.hsplit
    moveaxis = movedim = views.movedim
    narrow = views.narrow
    narrow_copy = views.narrow_copy
    ravel = views.ravel
    resolve_conj = views.resolve_conj
    resolve_neg = views.resolve_neg
    select = views.select
    split_with_sizes = views.split_with_sizes
    swapaxes = views.swapaxes
    swapdims = views.swapdims
    t = views.t
    tensor_split = views.tensor_split
    unbind = views.unbind
    unfold = views.windows
    vsplit = views.vsplit
    fliplr = joining.fliplr
    flipud = joining.flipud
    roll = joining.roll
    rot90 = joining.rot90
    as_strided_scatter = diagonals.as_strided_scatter
    diag = diagonals.diag
    diag_embed = diagonals.diag_embed
    diagflat = diagonals.diagflat
    diagonal = diagonals.diagonal
    diagonal_scatter = diagonals.diagonal_scatter
    select_scatter = diagonals.select_scatter
    slice_scatter = diagonals.slice_scatter
    tril = diagonals.tril
    triu = diagonals.triu

    @property
    def T(self: Any) -> Tensor:
        """The axes in reverse order."""
        return shapes.permute(self, tuple(reversed(range(self.ndim))))

    @property
    def mT(self: Any) -> Tensor:
        """The last two axes exchanged."""
        return views.exchanged("mT", self)

    @property
    def H(self: Any) -> Tensor:
        """A matrix transposed, of complex numbers their conjugates."""
        return views.t(conjugate(self))

    @property
    def mH(self: Any) -> Tensor:
        """The last two axes exchanged, of complex numbers their conjugates."""
        return views.adjoint(self)

    def reshape(self: Any, *shape: Any) -> Tensor:
        """Another shape for the same elements in row-major order; a view where the strides allow it."""
        return shapes.reshape(self, _sequence(shape))

    def view(self: Any, *shape: Any) -> Tensor:
        """The same memory under another shape, ``view(2, -1)``, or its bits read as another dtype."""
        return shapes.view(self, shape[0] if len(shape) == 1 else shape)

    def permute(self: Any, *axes: Any, dims: Any = None) -> Tensor:
        """The axes in another order, ``permute(1, 0)`` or ``permute(dims=(1, 0))``; a view."""
        return shapes.permute(self, _sequence(axes if dims is None else _named("permute", axes, dims)))

    def expand(self: Any, *shape: Any, size: Any = None) -> Tensor:
        """Broadcast to a shape, ``expand(2, -1)`` or ``expand(size=(2, -1))``; a view."""
        return shapes.expand(self, _sequence(shape if size is None else _named("expand", shape, size)))

    def broadcast_to(self: Any, *shape: Any) -> Tensor:
        """Repeated to a shape that it broadcasts to; a view."""
        return shapes.broadcast_to(self, _sequence(shape))

    def expand_as(self: Any, other: Tensor) -> Tensor:
        """Broadcast to another tensor's shape; a view."""
        return shapes.expand(self, _shape_of("expand_as", other))

    def reshape_as(self: Any, other: Tensor) -> Tensor:
        """``reshape`` to another tensor's shape."""
        return shapes.reshape(self, _shape_of("reshape_as", other))

    def view_as(self: Any, other: Tensor) -> Tensor:
        """``view`` with another tensor's shape."""
        return shapes.view(self, _shape_of("view_as", other))

    def repeat(self: Any, *repeats: Any) -> Tensor:
        """Repeated so many times along each axis, as ``tile``: ``repeat(2, 3)``; at least one count per axis."""
        counts = _sequence(repeats)
        if len(counts) < self.ndim:
            raise ShapeError(f"[repeat] expected a count for each of {self.ndim} axes or more, got {counts}: add 1s")
        return joining.tile(self, counts)

    def tile(self: Any, *repeats: Any, dims: Any = None) -> Tensor:
        """Repeated so many times along each axis; missing leading counts are 1."""
        return joining.tile(self, _sequence(repeats if dims is None else _named("tile", repeats, dims)))

    def flip(self: Any, *dims: int) -> Tensor:
        """The elements in reverse order along axes; a copy."""
        return joining.flip(self, _sequence(dims))

    def unflatten(self: Any, dim: int, *sizes: Any) -> Tensor:
        """One axis made into several; one of their lengths may be -1."""
        return views.unflatten(self, dim, _sequence(sizes if sizes else ((),)))

    # -- in place ----------------------------------------------------------------------------------------------------

    __setitem__ = indexing.setitem
    addbmm_ = inplace.written_by(products.addbmm)
    addmm_ = inplace.written_by(products.addmm)
    addmv_ = inplace.written_by(products.addmv)
    addr_ = inplace.written_by(products.addr)
    baddbmm_ = inplace.written_by(products.baddbmm)
    cumprod_ = inplace.written_by(running.cumprod)
    cumsum_ = inplace.written_by(running.cumsum)
    index_add_ = scattering.index_add_
    index_copy_ = scattering.index_copy_
    index_fill_ = scattering.index_fill_
    index_put_ = scattering.index_put_
    index_reduce_ = inplace.written_by(scattering.index_reduce)
    masked_fill_ = inplace.written_by(indexing.masked_fill)
    masked_scatter_ = inplace.written_by(scattering.masked_scatter)
    put_ = inplace.written_by(scattering.put)
    renorm_ = inplace.written_by(vector_norms.renorm)
    scatter_ = scattering.scatter_
    scatter_add_ = scattering.scatter_add_
    scatter_reduce_ = inplace.written_by(scattering.scatter_reduce)
    tril_ = inplace.written_by(diagonals.tril)
    triu_ = inplace.written_by(diagonals.triu)
    as_strided_ = shape_in_place.as_strided_
    detach_ = shape_in_place.detach_
    resize_ = shape_in_place.resize_
    resize_as_ = shape_in_place.resize_as_
    squeeze_ = shape_in_place.squeeze_
    swapaxes_ = shape_in_place.swapaxes_
    swapdims_ = shape_in_place.swapdims_
    t_ = shape_in_place.t_
    transpose_ = shape_in_place.transpose_
    unsqueeze_ = shape_in_place.unsqueeze_

    fill_diagonal_ = diagonals.fill_diagonal_


def _named(function: str, values: tuple[Any, ...], named: Any) -> tuple[Any, ...]:
    """What is given by name; ArgumentError where it is given without one, too."""
    if values:
        raise ArgumentError(
            f"[{function}] expected numbers or their name, got {described(values)} and {described(named)}"
        )
    return (named,)


def _sequence(values: tuple[Any, ...]) -> tuple[int, ...]:
    """``f(1, 2)`` and ``f((1, 2))`` alike."""
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], tuple | list) else values


def _shape_of(function: str, other: Any) -> tuple[int, ...]:
    """A tensor's shape."""
    check_tensor(function, other)
    return tuple(other.shape)
