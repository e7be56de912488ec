"""Autograd: the graph, its order, its life, its guards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import alpha
import alpha.nn.functional as F
from alpha.engine import Engine
from alpha.errors import ArgumentError, GraphError, ShapeError
from alpha.testing import assert_close
from tests.engine.checks import gradcheck_on, sized


def leaf(engine: Engine, *values: float) -> alpha.Tensor:
    return alpha.tensor(list(values), requires_grad=True, engine=engine)


def grad(x: alpha.Tensor) -> list[float]:
    assert x.grad is not None
    out: list[float] = x.grad.tolist()
    return out


class Swish(alpha.Function):
    """A user's own function, as the documentation shows it."""

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        self.save(x)
        return x * x.sigmoid()

    def backward(self, grad: alpha.Tensor) -> alpha.Tensor:
        (x,) = self.saved
        s = x.sigmoid()
        return grad * (s + x * s * (1 - s))


# -- gradients ---------------------------------------------------------------------------------------------------


def test_a_tensor_used_twice(engine: Engine) -> None:
    x = leaf(engine, 2.0, 3.0)
    (x * x + x).sum().backward()
    assert grad(x) == [5, 7]


def test_diamond(engine: Engine) -> None:
    x = leaf(engine, 2.0)
    a = x * 3
    b, c = a * a, a + 1
    (b * c).backward()  # 9 x^2 (3 x + 1): derivative 81 x^2 + 18 x
    assert grad(x) == [81 * 4 + 36]


def test_nodes_run_once_after_all_that_used_them(engine: Engine) -> None:
    """A ladder of 40 rungs has 2 ** 40 paths: it ends only if each node runs once."""
    x = leaf(engine, 1.0)
    y = x
    for _ in range(40):
        y = (y + y) * 0.5
    y.backward()
    assert grad(x) == [1]


def test_one_gradient_handed_to_the_same_tensor_twice(engine: Engine) -> None:
    """add returns the very same gradient for both its arguments: both count."""
    for before in (lambda x: x, lambda x: x * 1, lambda x: x.reshape(1, 2)):
        x = leaf(engine, 1.0, 2.0)
        y = before(x)
        (y + y).sum().backward()
        assert grad(x) == [2, 2]


def test_backwards_accumulate(engine: Engine) -> None:
    x = leaf(engine, 1.0, 2.0)
    for _ in range(3):
        (x * 2).sum().backward()
    assert grad(x) == [6, 6]
    x.grad = None
    (x * 2).sum().backward()
    assert grad(x) == [2, 2]


def test_the_gradient_is_not_shared(engine: Engine) -> None:
    """add hands its gradient to both operands: each must have its own memory."""
    x, y = leaf(engine, 1.0, 2.0), leaf(engine, 3.0, 4.0)
    seed = alpha.ones(2, engine=engine)
    (x + y).backward(seed)
    assert x.grad is not None and y.grad is not None
    assert len({id(t.storage) for t in (x.grad, y.grad, seed)}) == 3
    x.grad.mul_(5)
    assert grad(y) == [1, 1] and seed.tolist() == [1, 1]


class Noting(alpha.Function):
    """The same numbers; its gradient is a new tensor, which is noted."""

    fresh = True
    made: ClassVar[list[alpha.Tensor]] = []

    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        return x.clone()

    def backward(self, grad: alpha.Tensor) -> alpha.Tensor:
        Noting.made[:] = [grad.clone()]
        return Noting.made[0]


PASSING: dict[str, Callable[[alpha.Tensor], alpha.Tensor]] = {
    "reshape": lambda x: x.reshape(6, 4),
    "permute, twice": lambda x: x.permute(2, 0, 1).permute(1, 2, 0),
    "unsqueeze and squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "clone": lambda x: x.clone(),
    "add a number": lambda x: x + 1.0,
    "add a tensor": lambda x: x + alpha.ones(4, engine=x.engine),
    "concat": lambda x: alpha.concat([alpha.ones(1, 3, 4, engine=x.engine), x], 0),
    "stack": lambda x: alpha.stack([x, alpha.ones(2, 3, 4, engine=x.engine)], 0),
    "pad along the first axis": lambda x: F.pad(x, (0, 0, 0, 0, 1, 2)),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_new_gradient_reaches_a_leaf_through_views_without_a_copy(engine: Engine, name: str) -> None:
    x = alpha.zeros(2, 3, 4, requires_grad=True, engine=engine)
    y = Noting.apply(PASSING[name](x))
    given = alpha.tensor(np.arange(1.0, y.numel() + 1, dtype=np.float32).reshape(y.shape), engine=engine)
    y.backward(given)
    assert x.grad is not None and x.grad.storage is Noting.made[0].storage
    z = x.detach().clone().requires_grad_(True)
    PASSING[name](z).backward(given)
    assert z.grad is not None and z.grad.storage is not given.storage  # which its caller holds
    assert x.grad.tolist() == z.grad.tolist()


def test_a_gradient_of_two_leaves_belongs_to_none(engine: Engine) -> None:
    x, y = leaf(engine, 1.0, 2.0), leaf(engine, 3.0, 4.0)
    Noting.apply(x.reshape(2, 1) + y.reshape(2, 1)).backward(alpha.ones(2, 1, engine=engine))
    assert x.grad is not None and y.grad is not None
    assert x.grad.storage is not y.grad.storage
    x.grad.mul_(5)
    assert grad(y) == [1, 1]


def test_a_retained_gradient_is_not_the_leafs(engine: Engine) -> None:
    x = leaf(engine, 1.0, 2.0)
    y = x.reshape(2, 1)
    y.retain_grad()
    seen: list[alpha.Tensor] = []
    y.register_hook(seen.append)
    Noting.apply(y).backward(alpha.ones(2, 1, engine=engine))
    assert x.grad is not None and y.grad is not None
    x.grad.mul_(5)
    assert y.grad.tolist() == [[1.0], [1.0]] and seen[0].tolist() == [[1.0], [1.0]]


def test_a_leafs_gradient_lies_as_the_leaf(engine: Engine) -> None:
    """Parts of a larger gradient and moved axes are copied: optimizers then copy nothing at their steps."""
    w = alpha.zeros(3, 5, requires_grad=True, engine=engine)
    stacked = alpha.stack([w, w + 1.0], 2)
    (stacked * stacked).sum().backward()
    assert w.grad is not None and w.grad.strides == w.strides
    assert w.grad.tolist() == [[2.0] * 5] * 3
    w.grad = None
    Noting.apply(w.T).sum().backward()
    assert w.grad is not None and w.grad.strides == w.strides


def test_a_gradient_is_added_into_whichever_the_walk_alone_holds(engine: Engine) -> None:
    """In x + f(x) the sum's gradient belongs to both terms, what comes back through f to the walk."""
    x = leaf(engine, 1.0, 2.0)
    y = x * 1.0
    given = alpha.ones(2, engine=engine)
    (y + Noting.apply(y.reshape(2, 1)).reshape(2)).backward(given)
    assert grad(x) == [2, 2] and given.tolist() == [1, 1]


def test_gradients_only_where_asked(engine: Engine) -> None:
    x, y = leaf(engine, 1.0), alpha.tensor([2.0], engine=engine)
    z = x * y
    assert z.requires_grad and not z.is_leaf and y.is_leaf
    z.backward()
    assert grad(x) == [2] and y.grad is None
    assert not (y * 2).requires_grad


def test_gradient_argument(engine: Engine) -> None:
    x = leaf(engine, 1.0, 2.0)
    (x * x).backward(alpha.tensor([1.0, 10.0], engine=engine))
    assert grad(x) == [2, 40]
    with pytest.raises(GraphError, match=r"\[backward\] expected a gradient for a tensor of shape \(2,\), got none"):
        (x * x).backward()
    with pytest.raises(ShapeError, match=r"\[backward\] expected a gradient of shape \(2,\), got \(3,\)"):
        (x * x).backward(alpha.ones(3, engine=engine))
    with pytest.raises(GraphError, match=r"\[backward\] expected a tensor made from one that requires grad"):
        alpha.ones(1, engine=engine).backward()
    alone = leaf(engine, 3.0)
    alone.backward()
    assert grad(alone) == [1]


def test_mixed_dtypes(engine: Engine) -> None:
    x = leaf(engine, 1.0, 2.0)
    y = alpha.tensor([3.0, 4.0], dtype=alpha.float64, requires_grad=True, engine=engine)
    (x * y).sum().backward()
    assert x.grad is not None and x.grad.dtype == alpha.float32 and grad(x) == [3, 4]
    assert y.grad is not None and y.grad.dtype == alpha.float64 and grad(y) == [1, 2]


# -- life of the graph -------------------------------------------------------------------------------------------


def test_second_backward(engine: Engine) -> None:
    x = leaf(engine, 3.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert grad(x) == [12]
    with pytest.raises(
        GraphError, match=r"\[backward\] expected a graph that still holds its saved tensors.*retain_graph"
    ):
        y.backward()
    assert grad(x) == [12]


def test_second_backward_through_a_shared_part(engine: Engine) -> None:
    x = leaf(engine, 3.0)
    shared = x * x
    first, second = shared * 2, shared * 3
    first.backward()
    with pytest.raises(GraphError, match=r"\[backward\]"):
        second.backward()


def test_no_grad(engine: Engine) -> None:
    x = leaf(engine, 1.0)
    with alpha.no_grad():
        y = x * 2
        assert not y.requires_grad and not alpha.is_grad_enabled()
        with alpha.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad

    @alpha.no_grad()
    def double(t: alpha.Tensor) -> alpha.Tensor:
        return t * 2

    assert not double(x).requires_grad and alpha.is_grad_enabled()
    with pytest.raises(ZeroDivisionError), alpha.no_grad():
        raise ZeroDivisionError
    assert alpha.is_grad_enabled()
    with alpha.set_grad_enabled(False):
        assert not (x * 2).requires_grad


def test_set_grad_enabled_as_a_call_holds_from_then_on() -> None:
    seen = alpha.is_grad_enabled
    try:
        alpha.set_grad_enabled(False)
        assert not seen()
        with alpha.set_grad_enabled(True):
            assert seen()
        assert not seen()
        alpha.set_grad_enabled(mode=True)
        with alpha.no_grad():
            alpha.set_grad_enabled(True)  # until the block ends
            assert seen()
            with alpha.set_grad_enabled(False):
                assert not seen()
            assert seen()
        assert seen()
        prepared = alpha.set_grad_enabled(False)
        assert not seen()
        with prepared:
            assert not seen()
        assert seen()
    finally:
        alpha.set_grad_enabled(True)
    with pytest.raises(ArgumentError, match=r"\[set_grad_enabled\] expected mode as True or False, got"):
        alpha.set_grad_enabled(np.ones(2))


def test_modes_as_decorators_leave_the_mode_outside() -> None:
    @alpha.no_grad
    def bare() -> bool:
        return alpha.is_grad_enabled()

    @alpha.set_grad_enabled(False)
    def switched() -> bool:
        return alpha.is_grad_enabled()

    @alpha.no_grad()
    def values() -> Iterator[bool]:
        yield alpha.is_grad_enabled()

    with alpha.no_grad():
        assert alpha.enable_grad(alpha.is_grad_enabled)()
    assert not bare() and not switched() and alpha.is_grad_enabled()
    assert [(inside, alpha.is_grad_enabled()) for inside in values()] == [(False, True)]


def test_no_grad_is_a_threads_own(engine: Engine) -> None:
    seen = []
    with alpha.no_grad():
        thread = threading.Thread(target=lambda: seen.append(alpha.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_detach(engine: Engine) -> None:
    x = leaf(engine, 1.0, 2.0)
    y = x * 2
    d = y.detach()
    assert not d.requires_grad and d.is_leaf and d.storage is y.storage
    (y * d).sum().backward()
    assert grad(x) == [4, 8]
    d.add_(1)
    assert d.version == y.version


def test_requires_grad_only_of_float_leaves(engine: Engine) -> None:
    x = leaf(engine, 1.0)
    with pytest.raises(GraphError, match=r"\[requires_grad_\] expected a leaf"):
        (x * 2).requires_grad_()
    with pytest.raises(TypeError, match=r"\[requires_grad_\] expected float32 or float64, got int64"):
        alpha.tensor([1], requires_grad=True, engine=engine)
    assert not x.requires_grad_(False).requires_grad


def test_a_saved_tensor_that_was_overwritten(engine: Engine) -> None:
    x = leaf(engine, 1.0, 2.0)
    y = x * 1
    z = (y * y).sum()
    y.add_(1)
    with pytest.raises(
        GraphError, match=r"\[mul.backward\] expected the saved tensor of shape \(2,\) at version 0, got version 1"
    ):
        z.backward()


def test_deep_chain(engine: Engine) -> None:
    """Many more nodes than Python recurses into, walked and freed without recursion."""
    length = sized(engine, 20_000, 3_000)
    x = leaf(engine, 1.0)
    y = x
    for _ in range(length):
        y = y + 1
    y.backward()
    assert grad(x) == [1]
    z = x
    for _ in range(length):
        z = z + 1
    del y, z


@pytest.fixture
def without_garbage_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_garbage_collector")
@pytest.mark.parametrize("with_backward", [True, False])
def test_memory_is_freed_without_the_garbage_collector(engine: Engine, with_backward: bool) -> None:
    w = alpha.randn(64, 64, requires_grad=True, engine=engine)

    def step() -> None:
        h = w @ w
        h.retain_grad()
        kept = h.softmax(-1).relu()
        parts = kept.split(16)
        image = alpha.concat([p.T for p in parts], 1)[:, 2:]
        image = image * image
        image[0] = 0
        image[1:3] += image[3:5]
        values, _ = image.max(1)
        loss = (Swish.apply(values) + image.std(0, keepdim=True).mean()).sum()
        if with_backward:
            loss.backward()
            w.grad = None

    step()
    gc.collect()  # compiling a kernel for the first time leaves garbage that holds its arguments
    before = engine.memory.in_use
    step()
    assert engine.memory.in_use == before


@pytest.mark.usefixtures("without_garbage_collector")
def test_backward_frees_saved_tensors_as_it_goes(engine: Engine) -> None:
    """A chain of n saved results of one size: the walk back holds a few gradients, not n."""
    x = alpha.ones(1 << 16, requires_grad=True, engine=engine)
    y = x
    for _ in range(20):
        y = y.sin()
    loss = y.sum()
    del y
    engine.memory.reset_peak()
    before = engine.memory.in_use
    loss.backward()
    size = 1 << 18
    assert engine.memory.peak - before < 4 * size
    assert engine.memory.in_use < before - 18 * size


def test_an_error_in_backward_leaves_no_half_gradients(engine: Engine) -> None:
    class Broken(alpha.Function):
        fails = True

        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return x * 2

        def backward(self, grad: alpha.Tensor) -> alpha.Tensor:
            if Broken.fails:
                raise ZeroDivisionError
            return grad * 2

    x = leaf(engine, 1.0)
    a = x * 1
    y = Broken.apply(a) + a * 5
    with pytest.raises(ZeroDivisionError):
        y.backward(retain_graph=True)
    Broken.fails = False
    z = (x * 3).sum()
    z.backward()
    assert grad(x) == [3]


# -- hooks, retained gradients -----------------------------------------------------------------------------------


def test_hooks(engine: Engine) -> None:
    x = leaf(engine, 1.0, 2.0)
    y = x * 3
    seen = []
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    (y * 2).sum().backward(retain_graph=True)
    assert seen == [[2, 2]] and grad(x) == [60, 60]
    handle.remove()
    handle.remove()
    x.grad = None
    x.register_hook(lambda g: g + 1)
    y = x * 3
    y.sum().backward()
    assert len(seen) == 1 and grad(x) == [4, 4]
    with pytest.raises(GraphError, match=r"\[register_hook\]"):
        alpha.ones(1, engine=engine).register_hook(lambda g: None)


def test_retain_grad(engine: Engine) -> None:
    x = leaf(engine, 1.0, 2.0)
    y = x * 3
    y.retain_grad()
    z = (y * y).sum()
    z.backward(retain_graph=True)
    assert grad(y) == [6, 12] and grad(x) == [18, 36]
    assert (x * 1).grad is None
    x.retain_grad()  # a leaf keeps its gradient anyway


# -- functions of one's own --------------------------------------------------------------------------------------


def test_custom_function(engine: Engine, rng: np.random.Generator) -> None:
    assert gradcheck_on(engine, Swish.apply, rng.standard_normal((3, 4)))
    assert not Swish.apply(alpha.ones(2, engine=engine)).requires_grad


def test_function_of_several_arguments_and_results(engine: Engine) -> None:
    class SumAndProduct(alpha.Function):
        def forward(self, x: alpha.Tensor, scale: float, y: alpha.Tensor, *, shift: float) -> Any:
            self.save(x, y)
            self.scale = scale
            return (x + y) * scale + shift, x * y

        def backward(self, total: Any, product: Any) -> Any:
            x, y = self.saved
            assert self.needs == (True, False, True)
            dx = 0 if total is None else total * self.scale
            dy = dx
            if product is not None:
                dx, dy = dx + product * y, dy + product * x
            return dx, None, dy

    def call(x: Any, y: Any) -> Any:
        return SumAndProduct.apply(x, 2.0, y, shift=1.0)

    assert gradcheck_on(engine, call, np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    x, y = leaf(engine, 1.0), leaf(engine, 5.0)
    call(x, y)[1].backward()  # nothing flows back to the first result
    assert grad(x) == [5] and grad(y) == [1]


def test_gradient_of_the_wrong_shape_or_number(engine: Engine) -> None:
    class WrongShape(alpha.Function):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return x * 1

        def backward(self, grad: alpha.Tensor) -> alpha.Tensor:
            return grad.sum()

    class TooMany(WrongShape):
        def backward(self, grad: alpha.Tensor) -> Any:
            return grad, grad

    for before in (lambda x: x, lambda x: x * 1):
        x = leaf(engine, 1.0, 2.0)
        with pytest.raises(ShapeError, match=r"\[backward\] expected a gradient of shape \(2,\)"):
            WrongShape.apply(before(x)).sum().backward()
        with pytest.raises(GraphError, match=r"\[TooMany.backward\] expected at most 1 gradients"):
            TooMany.apply(before(x)).sum().backward()


def test_an_argument_handed_through(engine: Engine) -> None:
    class Identity(alpha.Function):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return x

        def backward(self, grad: alpha.Tensor) -> alpha.Tensor:
            return grad * 10

    x = leaf(engine, 1.0)
    y = Identity.apply(x)
    assert y is not x and x.is_leaf
    (y + x).backward()
    assert grad(x) == [11]


def test_function_without_forward_or_backward(engine: Engine) -> None:
    class Nothing(alpha.Function):
        pass

    class Half(alpha.Function):
        def forward(self, x: alpha.Tensor) -> alpha.Tensor:
            return x * 1

    with pytest.raises(NotImplementedError, match=r"\[Nothing\] expected a subclass with forward"):
        Nothing.apply(leaf(engine, 1.0))
    with pytest.raises(NotImplementedError, match=r"\[Half\] expected a subclass with backward"):
        Half.apply(leaf(engine, 1.0)).backward()


def test_accumulator_saves_a_copy_and_changes_nothing(engine: Engine) -> None:
    """Slices add their part into the gradient that another slice of the same tensor made."""
    x = leaf(engine, 1.0, 2.0, 3.0, 4.0)
    y = x * 1
    parts = [y[i] * (i + 1) for i in range(4)] + [y[1:3].sum(), y[[0, 0, 3]].sum()]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    total.backward()
    assert grad(x) == [3, 3, 4, 5]


def test_backward_on_another_thread(engine: Engine) -> None:
    x = leaf(engine, 2.0)
    loss = (x * x).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert grad(x) == [4]


def test_assert_close_accepts_gradients(engine: Engine) -> None:
    x = leaf(engine, 1.0, 2.0)
    x.exp().sum().backward()
    assert_close(x.grad, np.exp([1.0, 2.0]), rtol=1e-6)
