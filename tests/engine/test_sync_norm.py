"""SyncBatchNorm on several ranks, which are threads here, against one process with the whole batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import distributed as dist
from alpha import models, nn, random
from alpha.distributed.world import find
from alpha.engine import Engine
from alpha.errors import ArgumentError, DistributedError, DtypeError, ShapeError
from alpha.nn.sync_norm import SyncBatchNormFunction, combine
from alpha.nn.utils import parametrize
from tests.engine.test_norm import draw, reference, relative
from tests.tiers import FLOATS

ROWS = [[5], [3, 4], [1, 1], [2, 0, 5], [3, 0, 1, 5], [0, 0, 2, 0], [1, 2, 0, 3, 1, 0, 4, 1]]
"""How many rows each rank has."""
KINDS: list[type[Any]] = [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d]


def on_ranks(rows: list[int], function: Callable[[slice], Any]) -> list[Any]:
    """What a function of a rank's rows returns on each rank."""
    bounds = np.cumsum([0, *rows])

    def run() -> Any:
        rank = dist.rank()
        return function(slice(int(bounds[rank]), int(bounds[rank + 1])))

    return dist.run_in_threads(run, len(rows), timeout=20)


def layer(kind: type[Any], engine: Engine, data: dict[str, Any], **options: Any) -> Any:
    """A layer with the weight and the bias of ``data``."""
    made = kind(len(data["weight"]), device=engine, dtype=data["x"].dtype, **options)
    with alpha.no_grad():
        made.weight.copy_(alpha.tensor(data["weight"], engine=engine))
        made.bias.copy_(alpha.tensor(data["bias"], engine=engine))
    return made


def trained(bn: Any, engine: Engine, data: dict[str, Any], part: slice, *names: str, **options: Any) -> dict[str, Any]:
    """One forward and backward on a part of the batch: results, gradients and statistics as arrays."""
    given = {name: alpha.tensor(data[name][part], requires_grad=True, engine=engine) for name in ("x", *names)}
    y = bn(*given.values(), **options)
    y.backward(alpha.tensor(data["dy"][part], engine=engine))
    found = {name: one.grad for name, one in given.items()}
    found |= {"y": y, "weight": bn.weight.grad, "bias": bn.bias.grad}
    found |= {"mean": bn.running_mean, "var": bn.running_var, "count": bn.num_batches_tracked}
    return {name: np.array(one.detach()) for name, one in found.items()}


def whole(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What all ranks found as one process would have: rows one after another, gradients of parameters summed."""
    found = {name: np.concatenate([part[name] for part in parts]) for name in ("y", "x")}
    if "residual" in parts[0]:
        found["residual"] = np.concatenate([part["residual"] for part in parts])
    found |= {name: np.sum([part[name] for part in parts], 0, np.float64) for name in ("weight", "bias")}
    for name in ("mean", "var", "count"):
        assert all(np.array_equal(part[name], parts[0][name]) for part in parts), f"{name} differs between ranks"
        found[name] = parts[0][name]
    return found


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize(
    ("shape", "activation", "residual"),
    [((6,), None, False), ((1,), "relu", True), ((5, 33), "leaky_relu", False), ((3, 4, 7), "relu", True),
     ((3, 2, 130), None, True), ((2, 3, 2, 5), "relu", False)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("dtype", FLOATS)
def test_it_is_one_process_s(
    engine: Engine, dtype: Any, rows: list[int], shape: tuple[int, ...], activation: str | None, residual: bool
) -> None:
    """Values and gradients from the definition in float64; float32 as close as BatchNorm's own tests ask for."""
    data = draw((sum(rows), *shape), dtype, seed=len(rows))
    slope = {None: None, "relu": 0.0, "leaky_relu": 0.01}[activation]

    def run(part: slice) -> dict[str, Any]:
        bn = layer(nn.SyncBatchNorm, engine, data, momentum=0.25)
        return trained(bn, engine, data, part, *(["residual"] if residual else []), activation=activation)

    found, expected = whole(on_ranks(rows, run)), reference(data, residual, slope)
    forward, gradient = (1e-5, 2e-5) if dtype == np.float32 else (1e-12, 1e-10)
    cancels = dtype == np.float32 and data["x"][..., 0].size <= 4  # dx is what few rows leave: float64 tells
    assert relative(found["y"], expected["y"]) <= forward
    for name in ("weight", "bias", *(["residual"] if residual else []), *([] if cancels else ["x"])):
        assert relative(found[name], expected[name]) <= gradient, name
    assert relative(found["mean"], 0.25 * expected["mean"]) <= forward
    assert relative(found["var"], 0.75 + 0.25 * expected["var"]) <= forward
    assert found["count"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[3, 4], [3, 0, 1, 5]], ids=str)
@pytest.mark.parametrize(("kind", "layout"), list(product(KINDS, ["NHWC", "NCHW"])))
def test_both_layouts_after_conversion(engine: Engine, rows: list[int], kind: type[Any], layout: str) -> None:
    axes = (2,) * (KINDS.index(kind) + 1)
    shape = (sum(rows), *axes, 5) if layout == "NHWC" else (sum(rows), 5, *axes)
    rng = np.random.default_rng(1)
    data = {name: rng.standard_normal(shape) for name in ("x", "residual", "dy")}
    data |= {name: rng.standard_normal(5) for name in ("weight", "bias")}

    def run(part: slice) -> dict[str, Any]:
        bn = dist.convert_sync_batchnorm(layer(kind, engine, data, layout=layout))
        return trained(bn, engine, data, part, "residual", activation="relu")

    found = whole(on_ranks(rows, run))
    expected = trained(
        layer(kind, engine, data, layout=layout), engine, data, slice(None), "residual", activation="relu"
    )
    assert max(relative(found[name], expected[name]) for name in expected) <= 1e-12


@pytest.mark.needs("torch")
@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.1, None])
def test_it_is_pytorch_s_batchnorm_of_the_whole_batch(engine: Engine, momentum: float | None) -> None:
    import torch

    rows, rng = [2, 3, 0], np.random.default_rng(2)
    batches = rng.standard_normal((3, 5, 4, 3, 2)) * 3 + 5
    slopes = rng.standard_normal(batches.shape)
    other = torch.nn.BatchNorm2d(4, momentum=momentum, dtype=torch.float64)
    expected = []
    for batch, slope in zip(batches, slopes, strict=True):
        x = torch.tensor(batch, requires_grad=True)
        y = other(x)
        y.backward(torch.tensor(slope))
        assert x.grad is not None
        expected.append((y.detach().numpy(), x.grad.numpy()))

    def run(part: slice) -> Any:
        bn = nn.SyncBatchNorm(4, momentum=momentum, device=engine, dtype="float64", layout="NCHW")
        steps = []
        for batch, slope in zip(batches, slopes, strict=True):
            x = alpha.tensor(batch[part], requires_grad=True, engine=engine)
            y = bn(x)
            y.backward(alpha.tensor(slope[part], engine=engine))
            steps.append((np.array(y.detach()), np.array(x.grad)))
        state = {name: np.array(one) for name, one in bn.state_dict().items()}
        return steps, state, np.array(bn.weight.grad), np.array(bn.bias.grad)

    ranks = on_ranks(rows, run)
    for number, step in enumerate(expected):
        for place in range(2):
            found = np.concatenate([rank[0][number][place] for rank in ranks])
            assert relative(found, step[place]) <= 1e-11
    for rank in ranks:
        assert list(rank[1]) == list(other.state_dict())
        assert all(relative(rank[1][name], one.numpy()) <= 1e-12 for name, one in other.state_dict().items())
    assert other.weight.grad is not None and other.bias.grad is not None
    assert relative(sum(rank[2] for rank in ranks), other.weight.grad.numpy()) <= 1e-11
    assert relative(sum(rank[3] for rank in ranks), other.bias.grad.numpy()) <= 1e-11


def test_a_large_mean_does_not_cancel(engine: Engine) -> None:
    """Mean 1000, deviation 1, and ranks whose means differ by 100."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((64, 4, 4, 8)) + 1000).astype(np.float32)
    x[20:] += 100

    def run(part: slice) -> Any:
        bn = nn.SyncBatchNorm(8, momentum=1.0, device=engine)
        bn(alpha.tensor(x[part], engine=engine))
        return np.array(bn.running_var)

    for found in on_ranks([20, 30, 0, 14], run):
        assert relative(found, x.astype(np.float64).var((0, 1, 2), ddof=1)) <= 1e-5


def test_moments_of_nothing_change_nothing() -> None:
    kinds = [("count", np.float64), ("mean", np.float64), ("squares", np.float64)]
    some = np.array([(3, 0.1, 7.3), (0, 0, 0)], kinds)
    none, out = np.zeros(2, kinds), np.zeros(2, kinds)
    assert combine(some, none, out) is out and (out == some).all()
    assert (combine(none, some, none) == some).all()
    assert combine(none, np.array([(1, np.inf, 0), (2, np.nan, 0)], kinds), none)["mean"].tolist() == [
        np.inf, pytest.approx(np.nan, nan_ok=True)
    ]  # fmt: skip


def test_one_operation_of_all_ranks_each_way(engine: Engine) -> None:
    def run(part: slice) -> Any:
        world = find()
        assert world is not None
        bn = nn.SyncBatchNorm(3, device=engine)
        x = alpha.randn(4, 3, engine=engine).requires_grad_()
        counts = [world.begun]
        y = bn(x)
        counts.append(world.begun)
        y.sum().backward()
        counts.append(world.begun)
        bn(x.detach()).sum().backward()  # nothing is asked for that depends on other ranks' gradients
        counts.append(world.begun)
        with dist.trace() as events:
            bn(x.detach())
        return np.diff(counts).tolist(), {event.operation for event in events}

    assert on_ranks([4, 4], run) == [([1, 1, 1], {"statistics"})] * 2


def test_frozen_parameters_and_none(engine: Engine) -> None:
    data = draw((6, 5), np.float32, seed=3)

    def gradient(kind: type[Any], part: slice) -> Any:
        bn = kind(5, affine=False, track_running_stats=False, device=engine)
        x = alpha.tensor(data["x"][part], requires_grad=True, engine=engine)
        bn(x).backward(alpha.tensor(data["dy"][part], engine=engine))
        frozen = layer(kind, engine, data).requires_grad_(False)
        z = alpha.tensor(data["x"][part], requires_grad=True, engine=engine)
        frozen(z).backward(alpha.tensor(data["dy"][part], engine=engine))
        assert frozen.weight.grad is None
        return np.stack([np.array(x.grad), np.array(z.grad)], 1)

    found = on_ranks([4, 2], lambda part: gradient(nn.SyncBatchNorm, part))
    assert relative(np.concatenate(found), gradient(nn.BatchNorm1d, slice(None))) <= 1e-5


def test_half_precision_is_summed_in_float32(engine: Engine) -> None:
    rng = np.random.default_rng(4)
    values = rng.standard_normal((2, 600, 3)).astype(np.float32)

    def run(part: slice) -> Any:
        bn = nn.SyncBatchNorm(3, device=engine, dtype=alpha.bfloat16, momentum=1.0)
        x = alpha.tensor(values[0][part], engine=engine).to(alpha.bfloat16).requires_grad_()
        bn(x).backward(alpha.tensor(values[1][part], engine=engine).to(alpha.bfloat16))
        assert x.grad is not None and x.grad.dtype == alpha.bfloat16
        return np.array(x.grad.float()), np.array(bn.running_var.float())

    ranks = on_ranks([200, 400], run)
    expected = reference(
        {"x": values[0], "dy": values[1], "weight": np.ones(3), "bias": np.zeros(3), "residual": values[0]}, False, None
    )
    assert relative(np.concatenate([rank[0] for rank in ranks]), expected["x"]) <= 0.02
    assert relative(ranks[1][1], expected["var"]) <= 0.01


# -- where it is a BatchNorm ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [0, 1, 3])
def test_elsewhere_it_is_batchnorm_to_the_bit(engine: Engine, ranks: int) -> None:
    """In evaluation mode on any ranks; in training without a world, and alone in one."""
    data = draw((9, 4, 4, 5), np.float32, seed=5)

    def run(kind: type[Any]) -> list[Any]:
        found = []
        for modes in [[False]] if ranks > 1 else [[True], [False], [True, True, False]]:
            bn = layer(kind, engine, data, momentum=None if len(modes) > 1 else 0.3)
            for mode in modes:
                bn.train(mode)
                found.append(trained(bn, engine, data, slice(None), "residual", activation="leaky_relu"))
        return found

    expected = run(nn.BatchNorm2d)
    results = on_ranks([0] * ranks, lambda part: run(nn.SyncBatchNorm)) if ranks else [run(nn.SyncBatchNorm)]
    for found in results:
        for ours, theirs in zip(found, expected, strict=True):
            assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


# -- second gradients ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("residual", "activation"), [(False, None), (False, "leaky_relu"), (True, "leaky_relu")])
def test_second_gradients(engine: Engine, residual: bool, activation: str | None) -> None:
    data = draw((7, 2, 3), np.float64, seed=6)
    names = ["x", *(["residual"] if residual else [])]

    def run(kind: type[Any], part: slice) -> Any:
        bn = layer(kind, engine, data)
        given = [alpha.tensor(data[name][part], requires_grad=True, engine=engine) for name in names]
        y = bn(*given, activation=activation)
        inputs = [*given, bn.weight, bn.bias]
        first = alpha.autograd.grad(y, inputs, alpha.tensor(data["dy"][part], engine=engine), create_graph=True)
        # The weight's and the bias' gradients are parts of one process's: linear functions of them add up to that.
        total = (first[0] ** 3).sum() + (first[-2] * alpha.tensor(data["bias"], engine=engine)).sum() + first[-1].sum()
        second = alpha.autograd.grad(total, [given[0], bn.weight])
        return [np.array(one.detach()) for one in (*first, *second)]

    parts = on_ranks([4, 0, 3], lambda part: run(nn.SyncBatchNorm, part))
    expected = run(nn.BatchNorm1d, slice(None))
    for place, theirs in enumerate(expected):
        several = [part[place] for part in parts]
        ours = np.concatenate(several) if theirs.ndim > 1 else np.sum(several, 0)
        assert relative(ours, theirs) <= 1e-9, place


# -- conversion ----------------------------------------------------------------------------------------------------


class Outer(nn.Module):
    """Layers at several depths, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.BatchNorm1d(3)
        self.deep = nn.ModuleDict({"a": nn.Sequential(nn.Linear(3, 3), nn.ModuleList([nn.BatchNorm2d(3)]))})
        self.again = self.first
        self.other = nn.GroupNorm(1, 3)
        self.missing = None


def test_conversion_keeps_all_that_a_layer_has() -> None:
    net = Outer()
    calls: list[Any] = []
    handle = net.first.register_forward_hook(lambda *_: calls.append(1))
    net.deep["a"][1][0] = nn.BatchNorm2d(3, eps=0.1, momentum=None, layout="NCHW", bias=False)
    net.eval().first.train()
    before, state, parameters = list(net.named_modules()), net.state_dict(), dict(net.named_parameters())
    buffers = dict(net.named_buffers())
    assert dist.convert_sync_batchnorm(net) is net
    assert [name for name, _ in net.named_modules()] == [name for name, _ in before]
    deep = net.deep["a"][1][0]
    assert (
        type(net.first) is type(deep) is nn.SyncBatchNorm and net.again is net.first and type(net.other) is nn.GroupNorm
    )
    assert net.first.training and not deep.training
    assert (deep.eps, deep.momentum, deep.layout, deep.bias, deep.affine) == (0.1, None, "NCHW", None, True)
    assert list(net.state_dict()) == list(state)
    assert all(parameters[name] is one for name, one in net.named_parameters())
    assert all(buffers[name] is one for name, one in net.named_buffers())
    net.first(alpha.randn(2, 3))
    handle.remove()
    net.first(alpha.randn(2, 3))
    assert len(calls) == 1
    first = net.first
    assert nn.SyncBatchNorm.convert_sync_batchnorm(net) is net and net.first is first
    copied = copy.deepcopy(net)
    assert type(copied.first) is nn.SyncBatchNorm and copied.first.weight is not net.first.weight


def test_conversion_of_a_layer_itself() -> None:
    bn = nn.BatchNorm2d(3).eval()
    new = dist.convert_sync_batchnorm(bn)
    assert type(new) is nn.SyncBatchNorm and new.weight is bn.weight and not new.training
    assert dist.convert_sync_batchnorm(new) is new
    linear = nn.Linear(2, 2)
    assert dist.convert_sync_batchnorm(linear) is linear
    assert repr(new) == repr(bn).replace("BatchNorm2d", "SyncBatchNorm")


class Fixed(nn.BatchNorm2d):
    """Has a forward of its own."""

    def forward(self, x: Any) -> Any:  # type: ignore[override]
        return x


def test_what_is_not_converted() -> None:
    net = nn.Sequential(nn.BatchNorm1d(2), Fixed(2), nn.InstanceNorm2d(2))
    dist.convert_sync_batchnorm(net)
    assert [type(one) for one in net] == [nn.SyncBatchNorm, Fixed, nn.InstanceNorm2d]
    lazy = nn.Sequential(nn.BatchNorm1d(2), nn.LazyBatchNorm2d())
    with pytest.raises(ArgumentError, match=r"^\[convert_sync_batchnorm\] expected plain .* got Lazy\w+ at '1': call"):
        dist.convert_sync_batchnorm(lazy)
    assert type(lazy[0]) is nn.BatchNorm1d  # all or nothing
    bound = nn.BatchNorm1d(2)
    parametrize.register_parametrization(bound, "weight", nn.Softplus())
    with pytest.raises(ArgumentError, match="got ParametrizedBatchNorm1d at '': convert it before"):
        dist.convert_sync_batchnorm(bound)
    with pytest.raises(ArgumentError, match="expected a Module, got 3"):
        dist.convert_sync_batchnorm(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="expected process_group=None"):
        dist.convert_sync_batchnorm(net, "mine")  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("which", ["ours", "torchvision's"])
def test_networks_train_as_on_one_process(engine: Engine, which: str) -> None:
    """Gradients of a ResNet's block in float64, blocks that hand over a residual and an activation."""
    rng = np.random.default_rng(7)
    x, rows = rng.standard_normal((7, 6, 6, 8)), [4, 0, 2, 1]

    def gradients(converted: bool, part: slice) -> list[Any]:
        with random.own_sequence({"seed": 8, "offset": 0}):
            block: nn.Module = (
                nn.models.resnet.BasicBlock(8, 8, 2, "relu", 1) if which == "ours" else models.resnet.BasicBlock(8, 8)
            )
        block = block.to(engine).double()
        if converted:
            dist.convert_sync_batchnorm(block)
            assert sum(isinstance(one, nn.SyncBatchNorm) for one in block.modules()) >= 2
        block(alpha.tensor(x[part], engine=engine)).square().sum().backward()
        return [np.array(one.grad) for one in block.parameters()]

    expected, parts = gradients(False, slice(None)), on_ranks(rows, lambda part: gradients(True, part))
    for place, theirs in enumerate(expected):
        assert relative(sum(part[place] for part in parts), theirs) <= 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[4, 3], [3, 0, 4], [3, 0, 1, 3], [1, 0, 0, 2, 1, 1, 1, 1]], ids=str)
def test_data_parallel_asks_ranks_without_rows_too(engine: Engine, rows: list[int]) -> None:
    """Gradients and buffers of one process, also while gradients travel in many small buckets."""
    rng = np.random.default_rng(9)
    x, classes = rng.standard_normal((7, 6, 6, 3)), rng.integers(0, 4, 7)

    def made() -> nn.Module:
        with random.own_sequence({"seed": 10, "offset": 0}):
            parts = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]
            return nn.Sequential(*parts, nn.Flatten(), nn.Linear(32, 4)).to(engine).double()

    def run(part: slice) -> Any:
        net = dist.convert_sync_batchnorm(made())
        par = dist.DataParallel(net, bucket_cap_mb=0.0005)
        whole_x, whole_y = (alpha.tensor(array[part], engine=engine) for array in (x, classes))
        for px, py in par.split(whole_x, whole_y):
            par.backward(alpha.cross_entropy(par(px), py))
        return [np.array(one.grad) for one in net.parameters()], [np.array(one) for one in net.buffers()], par.loss

    net = made()
    loss = alpha.cross_entropy(net(alpha.tensor(x, engine=engine)), alpha.tensor(classes, engine=engine))
    loss.backward()
    for gradients, buffers, mean in on_ranks(rows, run):
        for ours, one in zip(gradients, net.parameters(), strict=True):
            assert np.abs(ours - np.array(one.grad)).max() <= 1e-12
        assert all(relative(ours, one) <= 1e-12 for ours, one in zip(buffers, net.buffers(), strict=True))
        assert mean == pytest.approx(loss.item(), rel=1e-12)


def test_in_evaluation_it_folds_into_a_convolution(engine: Engine) -> None:
    conv, bn = nn.Conv2d(3, 4, 3, device=engine), nn.BatchNorm2d(4, device=engine)
    net = nn.Sequential(conv, bn, nn.ReLU()).eval()
    x = alpha.randn(2, 8, 8, 3, engine=engine)
    with alpha.no_grad():
        expected = np.array(net(x))
        found = np.array(dist.convert_sync_batchnorm(net)(x))
    assert np.array_equal(found, expected)


# -- errors --------------------------------------------------------------------------------------------------------


def test_too_few_values_on_all_ranks() -> None:
    def run(part: slice) -> str:
        with pytest.raises(
            ShapeError, match="more than 1 value per channel on all ranks together when training, got 1"
        ):
            nn.SyncBatchNorm(3)(alpha.ones(part.stop - part.start, 3))
        return "raised"

    assert on_ranks([0, 1, 0], run) == ["raised"] * 3


def test_several_shards_per_rank_are_refused() -> None:
    def run(part: slice) -> None:
        world, bn = find(), nn.SyncBatchNorm(3)
        assert world is not None
        world.open = SimpleNamespace(shards_here=2)
        with pytest.raises(
            DistributedError, match=r"^\[SyncBatchNorm\] expected one shard per rank, got 2: use as many"
        ):
            bn(alpha.ones(2, 3))
        bn.eval()(alpha.ones(2, 3))
        world.open = SimpleNamespace(shards_here=1)
        bn.train()(alpha.ones(2, 3))

    on_ranks([2], run)
    on_ranks([2, 2], run)


def test_bad_input_on_several_ranks() -> None:
    def run(part: slice) -> None:
        bn = nn.SyncBatchNorm(3)
        for given, error, message in (
            (lambda: bn(alpha.ones(2, 4)), ShapeError, "channels"),
            (lambda: bn(alpha.ones(3)), ShapeError, "axes"),
            (lambda: bn(alpha.ones(2, 3, dtype=alpha.float64)), DtypeError, "cast one"),
            (lambda: bn(alpha.ones(2, 3), residual=alpha.ones(1, 3)), ShapeError, "a residual shaped as x"),
            (lambda: bn(alpha.ones(2, 3), activation="gelu"), ArgumentError, "gelu"),
        ):
            with pytest.raises(error, match=message):
                given()

    on_ranks([1, 1], run)
    with pytest.raises(ArgumentError, match=r"^\[SyncBatchNorm\] expected process_group=None, the group of all ranks"):
        nn.SyncBatchNorm(3, process_group="some")  # type: ignore[arg-type]


def test_it_is_one_function() -> None:
    """Nothing else stands in the graph between argument and result."""

    def run(part: slice) -> str:
        return type(nn.SyncBatchNorm(3)(alpha.ones(2, 3).requires_grad_())._node).__name__

    assert on_ranks([1, 1], run) == [SyncBatchNormFunction.__name__] * 2
