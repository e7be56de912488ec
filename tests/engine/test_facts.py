"""What a tensor tells of itself, conversions by PyTorch's type names, Python's functions of elements, control flow."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha.engine import Engine
from alpha.errors import AlphaError, ArgumentError, DtypeError, EngineError, GraphError, ShapeError


def test_sizes_and_places(engine: Engine) -> None:
    x = alpha.zeros(2, 3, engine=engine)
    assert x.ndimension() == 2 and x.nelement() == alpha.numel(x) == 6
    assert x.storage_offset() == 0 and x[1].storage_offset() == 3
    assert x[1].data_ptr() == x.data_ptr() + 12 and alpha.zeros(0, engine=engine).data_ptr() == 0
    assert x.get_device() == (0 if engine.name.startswith("cu32") else -1)
    assert x.is_set_to(x[:]) and not x.is_set_to(x.T) and not x.is_set_to(x.clone())
    assert alpha.is_same_size(x, x + 1) and not x.is_same_size(x.T)
    assert not (x.is_sparse or x.is_quantized or x.is_meta or x.is_pinned() or x.is_neg() or x.is_inference())
    assert x.to_dense() is x and x.to_dense("float64").dtype == alpha.float64


def test_single_elements_and_signs(engine: Engine) -> None:
    assert alpha.is_nonzero(alpha.tensor([0.5], engine=engine)) and not alpha.tensor(False, engine=engine).is_nonzero()
    for shape in ((0,), (2,)):
        with pytest.raises(ShapeError, match=r"\[is_nonzero\] expected a tensor of one element"):
            alpha.is_nonzero(alpha.zeros(shape, engine=engine))
    signed = {"float32": True, "float64": True, "int64": True, "int32": True, "uint8": False, "bool": False}
    assert {name: alpha.zeros(1, dtype=name, engine=engine).is_signed() for name in signed} == signed


def test_functions_of_the_graph(engine: Engine) -> None:
    leaf = alpha.ones(3, requires_grad=True, engine=engine)
    assert leaf.grad_fn is None and leaf.output_nr == 0 and not leaf.retains_grad
    x = leaf * 2
    first, second = x.split([1, 2])
    assert first.grad_fn == second.grad_fn and (first.output_nr, second.output_nr) == (0, 1)
    node = second.grad_fn
    assert node.name() and node.name() in repr(node) and hash(node) == hash(first.grad_fn)
    before, output = node.next_functions[0]
    assert before == x.grad_fn and output == 0
    assert [found.name() for found, _ in before.next_functions if found is not None] == ["AccumulateGrad"]
    assert before.next_functions[0][0].variable is leaf
    x.mul_(3)
    assert second.grad_fn != node, "a view's place follows its base's"


class _Twice(alpha.Function):
    def forward(self, x: alpha.Tensor) -> alpha.Tensor:
        self.factor = 2
        self.save(x)
        return x * 2

    def backward(self, grad: alpha.Tensor) -> alpha.Tensor:
        return grad * self.factor


def test_attributes_of_a_function_of_ones_own(engine: Engine) -> None:
    leaf = alpha.ones(3, requires_grad=True, engine=engine)
    node = _Twice.apply(leaf).grad_fn
    assert node.name() == "_Twice" and node.factor == 2 and node.saved_tensors[0].tolist() == [1, 1, 1]


def test_types_by_pytorchs_names(engine: Engine) -> None:
    place = "torch.cuda." if engine.name.startswith("cu32") else "torch."
    x = alpha.tensor([1.0, 2.0], engine=engine)
    names = {"float32": "Float", "float64": "Double", "int64": "Long", "int32": "Int", "uint8": "Byte", "bool": "Bool"}
    for dtype, name in names.items():
        assert x.to(dtype).type() == f"{place}{name}Tensor"
        for wanted in (dtype, np.dtype(dtype), f"{place}{name}Tensor"):
            found = x.type(wanted)
            assert found.dtype == np.dtype(dtype) and found.engine is x.engine
    assert x.type(x.type()) is x
    for wrong in ("torch.floattensor", "torch.NoTensor", "numpy.FloatTensor", "float"[:3]):
        with pytest.raises(AlphaError, match=r"\[type\] expected a dtype"):
            x.type(wrong)


def test_functions_of_elements(engine: Engine) -> None:
    x = alpha.tensor([[1.0, 2.0], [3.0, 4.0]], engine=engine)
    if not engine.memory.is_on_host:
        with pytest.raises(EngineError, match=r"\[apply_\] expected a tensor in the host's memory"):
            x.apply_(abs)
        with pytest.raises(EngineError, match=r"\[pin_memory\] expected a tensor in the host's memory"):
            x.pin_memory()
        return
    turned, seen = x.T, []
    assert x.pin_memory() is x

    def noted(value: float) -> float:
        seen.append(value)
        return value * 10

    assert turned.apply_(noted) is turned and seen == [1, 3, 2, 4] and x.tolist() == [[10, 20], [30, 40]]
    assert x.map_(alpha.tensor([1.0, 2.0], engine=engine), lambda a, b: a + b).tolist() == [[11, 22], [31, 42]]
    y, z = x.clone(), alpha.ones(2, 2, engine=engine)
    assert y.map2_(x, z, lambda a, b, c: a - b + c).tolist() == [[1, 1], [1, 1]]
    assert alpha.tensor([1, 2], engine=engine).apply_(lambda v: v * 1.5).tolist() == [1, 3], "as PyTorch cuts"
    assert alpha.zeros(0, engine=engine).apply_(abs).shape == (0,)
    wrongs: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: x.apply_(3), ArgumentError),
        (lambda: x.apply_(lambda _: "a"), DtypeError),
        (lambda: x.map_(alpha.zeros(3, 2, 2, engine=engine), max), ShapeError),
        (lambda: x.map_(x.long(), max), ArgumentError),
        (lambda: alpha.ones(1, requires_grad=True, engine=engine).apply_(abs), GraphError),
    ]
    for wrong, kind in wrongs:
        with pytest.raises(kind, match="expected"):
            wrong()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_processes_share_memory_that_says_so() -> None:
    shared, other = alpha.arange(4.0)[1:].share_memory_(), alpha.zeros(3)
    assert shared.is_shared() and not other.is_shared() and shared.tolist() == [1, 2, 3]
    assert shared.share_memory_() is shared
    child = os.fork()
    if child == 0:
        shared.numpy()[:] = 7
        other.numpy()[:] = 7
        os._exit(0)
    os.waitpid(child, 0)
    assert shared.tolist() == [7, 7, 7] and (shared + 1).tolist() == [8, 8, 8] and other.tolist() == [0, 0, 0]


def test_memory_of_devices_counts_as_shared(engine: Engine) -> None:
    x = alpha.zeros(2, engine=engine)
    if not engine.memory.is_on_host:
        assert x.is_shared() and x.share_memory_() is x


def test_new_tensors_like_one(engine: Engine) -> None:
    x = alpha.zeros(2, dtype="float64", engine=engine)
    assert x.new(2, 3).shape == x.new((2, 3)).shape == (2, 3) and x.new().shape == (0,)
    assert x.new([1, 2]).tolist() == [1.0, 2.0] and x.new([1]).dtype == alpha.float64
    assert x.new(x[1:]).is_set_to(x[1:])
    with pytest.raises(ArgumentError, match=r"\[new\] expected a tensor of float64"):
        x.new(x.float())
    made = x.new_empty_strided((2, 2), (1, 2), requires_grad=True)
    assert made.strides == (1, 2) and made.dtype == alpha.float64 and made.engine is engine and made.requires_grad
    for wrong in (lambda: x.new_empty_strided((2,), (1, 1)), lambda: x.new_empty_strided((2,), (-1,))):
        with pytest.raises(ShapeError, match=r"\[empty_strided\] expected"):
            wrong()


def test_choices_and_loops(engine: Engine) -> None:
    x = alpha.tensor([2.0], requires_grad=True, engine=engine)
    for pred in (x > 1, True, 1):
        y = alpha.cond(pred, lambda v: v * 3, lambda v: v * 5, (x,))
        assert y.tolist() == [6]
    alpha.cond(x > 3, lambda v: v * 3, lambda v: v * 5, [x]).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [5]
    assert alpha.cond(False, lambda: 1, lambda: 2) == 2
    count, power = alpha.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v * x), (alpha.tensor(0), x))
    assert count.item() == 3 and power.tolist() == [16]
    x.grad = None
    power.sum().backward()
    assert x.grad.tolist() == [32]  # type: ignore[attr-defined]
    wrongs: list[tuple[Callable[[], Any], str]] = [
        (lambda: alpha.cond(alpha.ones(2), abs, abs, (x,)), r"\[cond\] expected a condition of one element"),
        (lambda: alpha.cond("a", abs, abs, (x,)), r"\[cond\] expected a bool"),
        (lambda: alpha.cond(True, 3, abs, (x,)), r"\[cond\] expected true_fn as a function"),
        (lambda: alpha.cond(True, abs, abs, x), r"\[cond\] expected operands in a tuple"),
        (lambda: alpha.while_loop(lambda v: True, lambda v: v, (x,)), r"\[while_loop\] expected body_fn to return 1"),
        (lambda: alpha.while_loop(lambda v: v, 3, (x,)), r"\[while_loop\] expected body_fn as a function"),
    ]
    for wrong, text in wrongs:
        with pytest.raises(AlphaError, match=text):
            wrong()


def test_memory_for_other_libraries(engine: Engine) -> None:
    x = alpha.tensor([1.0, 2.0], engine=engine)
    assert alpha.from_dlpack(alpha.to_dlpack(x)).tolist() == [1, 2]
    with pytest.raises(GraphError, match="outside the graph"):
        alpha.to_dlpack(alpha.ones(1, requires_grad=True, engine=engine))
    with pytest.raises(DtypeError, match=r"\[to_dlpack\] expected a Tensor"):
        alpha.to_dlpack([1.0])  # type: ignore[arg-type]
    leaf = alpha.ones(2, requires_grad=True, engine=engine)
    assert leaf.numpy(force=True).tolist() == [1, 1]


def test_arguments_by_pytorchs_names(engine: Engine) -> None:
    options: dict[str, Any] = {"engine": engine}
    made = [make(size=(2, 3), **options) for make in (alpha.empty, alpha.ones, alpha.rand, alpha.randn, alpha.zeros)]
    x = alpha.full(size=(2, 3), fill_value=1.5, **options)
    assert {y.shape for y in [*made, x, alpha.full_like(x, fill_value=2.0), alpha.eye(n=2, m=3, **options)]} == {(2, 3)}
    assert x.new_zeros(size=(2,)).shape == x.new_full(size=(2,), fill_value=1).shape == (2,)
    assert x.size(dim=1) == x.stride(dim=0) == 3 and x.permute(dims=(1, 0)).shape == (3, 2)
    assert x.expand(size=(4, -1, -1)).shape == (4, 2, 3) and x.tile(dims=(2, 1)).shape == (4, 3)
    assert [part.shape for part in x.split(split_size=2, dim=1)] == [(2, 2), (2, 1)]
    assert alpha.concatenate([x, x], axis=1).shape == (2, 6)
    index = alpha.zeros(2, 3, dtype="int64", **options)
    assert alpha.gather(x, 0, index, sparse_grad=True).tolist() == x.tolist()
    assert x.copy_(alpha.zeros(3, **options), non_blocking=True).tolist() == [[0, 0, 0], [0, 0, 0]]
    for wrong in (
        lambda: alpha.zeros(2, size=(2,), **options),
        lambda: alpha.rand(2, size=(2,), **options),
        lambda: x.split(2, split_size=2),
        lambda: x.permute(1, 0, dims=(1, 0)),
    ):
        with pytest.raises(ArgumentError, match="expected"):
            wrong()


def test_ranges_with_their_end(engine: Engine) -> None:
    with pytest.warns(UserWarning, match=r"\[range\] is deprecated: use arange"):
        assert alpha.range(1, 2.5, 0.5, engine=engine).tolist() == [1, 1.5, 2, 2.5]
    with pytest.warns(UserWarning):
        assert alpha.range(3, 0, -1, dtype="int64", engine=engine).tolist() == [3, 2, 1, 0]
    for wrong in ((3, 0), (1, 4, 0), (1, float("inf")), (1,), ("a", 2)):
        with pytest.warns(UserWarning), pytest.raises(ArgumentError, match=r"\[range\] expected"):
            alpha.range(*wrong, engine=engine)


def test_places_in_a_shape_are_checked(engine: Engine) -> None:
    for wrong in (12, -13):
        with pytest.raises(AlphaError, match=rf"\[unravel_index\] expected indices of 12 elements .* got {wrong}"):
            alpha.unravel_index(alpha.tensor([0, wrong], engine=engine), (3, 4))[0].tolist()
    with pytest.raises(DtypeError, match=r"\[unravel_index\] expected integers, got float32"):
        alpha.unravel_index(alpha.zeros(2, engine=engine), (3, 4))
    assert alpha.unravel_index(alpha.tensor(4, engine=engine), 5)[0].item() == 4


def test_segments_are_checked(engine: Engine) -> None:
    x = alpha.ones(2, 3, engine=engine)

    def of(*values: Any) -> alpha.Tensor:
        return alpha.tensor([*values], engine=engine)

    assert alpha.segment_reduce(x, "sum", lengths=of(1), unsafe=True).tolist() == [[1, 1, 1]]
    wrongs: list[dict[str, Any]] = [
        {},
        {"lengths": of(2), "offsets": of(0, 2)},
        {"lengths": of(1)},
        {"lengths": of(3), "unsafe": True},
        {"lengths": of(-1, 3)},
        {"offsets": of(1, 0)},
        {"offsets": of(0, 3)},
        {"lengths": of(2.0)},
        {"lengths": of(3), "axis": 1},
        {"lengths": [2]},
    ]
    for given in wrongs:
        with pytest.raises(AlphaError, match=r"\[segment_reduce\] expected"):
            alpha.segment_reduce(x, "sum", **given)
    for reduce in ("median", None):
        with pytest.raises(ArgumentError, match=r"\[segment_reduce\] expected reduce as one of"):
            alpha.segment_reduce(x, reduce, lengths=of(2))  # type: ignore[arg-type]
