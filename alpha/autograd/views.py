"""Views in the graph: they take their places from each other's memory once it was written to in place."""

from __future__ import annotations

from alpha.autograd.function import Function
from alpha.autograd.regions import Layout, laid_out, layout_of, region_at
from alpha.tensor import Tensor


class Overwrite(Function):
    """The base after one of its views was overwritten: the region's gradient goes to what was written there."""

    fresh = True

    def forward(self, base: Tensor, view: Tensor) -> Tensor:
        self.base, self.region = layout_of(base), layout_of(view)
        return base

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        whole = laid_out(grad, self.base)
        region = region_at(whole, self.base, self.region)
        written = region.clone()
        grad.engine.fill(region, 0)
        return whole, written

    def backward_in_graph(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        parts: tuple[Tensor, Tensor] = Cut.apply(grad, self.base, self.region)
        return parts


class Cut(Function):
    """A gradient with a region set to 0, and what stood in the region."""

    fresh = True

    def forward(self, grad: Tensor, base: Layout, region: Layout) -> tuple[Tensor, Tensor]:
        self.base, self.region = base, region
        whole = laid_out(grad, base)
        part = region_at(whole, base, region)
        written = part.clone()
        grad.engine.fill(part, 0)
        return whole, written

    def backward(self, whole: Tensor | None, part: Tensor | None) -> Tensor:
        some = next(grad for grad in (whole, part) if grad is not None)
        whole, part = [
            some.engine.full(layout[1], 0, some.dtype) if grad is None else grad
            for grad, layout in ((whole, self.base), (part, self.region))
        ]
        joined: Tensor = Joined.apply(whole, part, self.base, self.region)
        return joined


class Joined(Function):
    """A tensor whose region is another's."""

    fresh = True

    def forward(self, whole: Tensor, part: Tensor, base: Layout, region: Layout) -> Tensor:
        self.base, self.region = base, region
        result = laid_out(whole, base)
        whole.engine.copy(part, region_at(result, base, region))
        return result

    def backward(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        parts: tuple[Tensor, Tensor] = Cut.apply(grad, self.base, self.region)
        return parts
