"""Module: registration, state, modes, hooks, containers, initialisation, summary and their errors."""

from __future__ import annotations

import copy
import math
import re
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor, nn
from alpha.errors import ArgumentError, CheckpointError, DtypeError, ShapeError


class Scale(nn.Module):
    """A layer with one parameter, one saved and one unsaved buffer."""

    def __init__(self, size: int = 2) -> None:
        super().__init__()
        self.weight = nn.Parameter(np.ones(size, np.float32))
        self.register_buffer("seen", alpha.tensor(np.zeros((), np.int64)))
        self.register_buffer("scratch", alpha.tensor([1.0]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Net(nn.Module):
    """Parts in every kind of place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Scale()
        self.row = nn.ModuleList([Scale(), nn.Sequential(Scale(), nn.ModuleList([Scale()]))])
        self.table = nn.ModuleDict({"left": Scale()})
        self.weights = nn.ParameterDict({"right": alpha.zeros(3)})
        self.hidden = [Scale(), {"below": nn.Parameter(np.zeros(4, np.float32))}]
        self.scale = nn.Parameter(np.zeros((), np.float32))
        self.number = 3
        self.nothing = None


def names(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_parameters()]


# -- registration ------------------------------------------------------------------------------------------------


def test_parts_are_attributes_and_those_in_plain_lists_and_dicts_are_none() -> None:
    net = Net()
    assert names(net) == [
        "scale",
        "first.weight",
        "row.0.weight",
        "row.1.0.weight",
        "row.1.1.0.weight",
        "table.left.weight",
        "weights.right",
    ]
    assert [name for name, _ in net.named_children()] == ["first", "row", "table", "weights"]
    assert len(list(net.modules())) == 11
    assert next(net.named_modules()) == ("", net)


def test_a_module_appended_later_to_a_list_is_registered() -> None:
    net = Net()
    net.row.append(Scale())
    assert "row.2.weight" in names(net)


def test_lists_and_dicts_of_parameters() -> None:
    row = nn.ParameterList([alpha.zeros(2), nn.Parameter([1.0])])
    assert all(type(part) is nn.Parameter for part in row) and names(row) == ["0", "1"]
    row.append(alpha.ones(3))
    row.extend([alpha.ones(4)])
    row[0] = alpha.ones(5)
    assert [part.shape for part in row] == [(5,), (1,), (3,), (4,)] and len(row) == 4 and row[-1].shape == (4,)
    assert isinstance(row[1:3], nn.ParameterList) and [part.shape for part in row[1:3]] == [(1,), (3,)]
    del row[1]
    assert names(row) == ["0", "1", "2"]
    table = nn.ParameterDict({"a": alpha.zeros(2)})
    table["b"] = alpha.ones(3)
    table.update({"c": nn.Parameter([2.0])})
    assert names(table) == ["a", "b", "c"] and "b" in table and table.pop("a").shape == (2,)
    assert repr(table) == "ParameterDict((b): float32(3,), (c): float32(1,))"
    for call, message in (
        (lambda: nn.ParameterList([3]), r"[add_parameter] expected a Parameter for '0', got int"),
        (lambda: row.append(nn.Linear(2, 2)), r"[add_parameter] expected a Parameter for '3', got Linear"),
        (lambda: nn.ParameterDict([1]), r"[ParameterDict] expected a mapping of names to parameters, or pairs, got"),
        (lambda: row[7], r"[ParameterList] expected an index within 3 parameters, got 7"),
    ):
        with pytest.raises((ArgumentError, IndexError), match=re.escape(message)):
            call()
    assert names(row) == ["0", "1", "2"]


def test_shared_parts_come_once_but_are_saved_under_each_name() -> None:
    net = nn.Module()
    net.a = Scale()
    net.b = net.a
    net.c = nn.Module()
    net.c.tied = net.a.weight
    assert names(net) == ["a.weight"]
    assert len(list(net.parameters())) == 1
    assert list(net.state_dict()) == ["a.weight", "a.seen", "b.weight", "b.seen", "c.tied"]
    assert [name for name, _ in net.named_modules()] == ["", "a", "c"]
    assert [name for name, _ in net.named_modules(remove_duplicate=False)] == ["", "a", "b", "c"]


def test_a_module_that_refers_to_its_parent_is_walked_once() -> None:
    net = Net()
    net.first.parent = net
    assert len(list(net.modules())) == 11
    assert "first.parent.scale" not in net.state_dict()
    seen: list[nn.Module] = []
    net.apply(seen.append)
    assert len(seen) == 11


def test_a_subclass_may_forget_super_init() -> None:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            self.inner = Scale()

    net = Forgetful().eval()
    assert names(net) == ["inner.weight"]
    assert not net.inner.training


def test_parameters_and_buffers_without_recursion_and_with_prefix() -> None:
    net = Net()
    assert [name for name, _ in net.named_parameters(recurse=False)] == ["scale"]
    assert [name for name, _ in net.first.named_parameters("p")] == ["p.weight"]
    assert [name for name, _ in net.first.named_buffers()] == ["seen", "scratch"]
    assert len(list(net.buffers())) == 10
    assert list(net.buffers(recurse=False)) == []


def test_registering_by_function() -> None:
    net = nn.Module()
    net.register_parameter("w", nn.Parameter([1.0]))
    net.register_parameter("none", None)
    net.add_module("inner", Scale())
    net.register_buffer("empty", None)
    assert names(net) == ["w", "inner.weight"]
    assert list(net.state_dict()) == ["w", "inner.weight", "inner.seen"]
    assert net.none is None and net.empty is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda net: net.register_buffer("a.b", alpha.tensor([1.0])), "[register_buffer] expected a name without dots"),
        (lambda net: net.register_buffer("", None), "[register_buffer] expected a name without dots"),
        (lambda net: net.register_buffer("scale", None), "[register_buffer] expected a name that Net does not use yet"),
        (lambda net: net.register_buffer("training", None), "[register_buffer] expected a name that Net does not use"),
        (
            lambda net: net.register_buffer("b", nn.Parameter([1.0])),
            "[register_buffer] expected a Tensor or None for b",
        ),
        (lambda net: net.register_buffer("b", [1.0]), "[register_buffer] expected a Tensor or None for b, got list"),
        (lambda net: net.register_parameter("p", alpha.tensor([1.0])), "[register_parameter] expected a Parameter"),
        (lambda net: net.register_parameter("forward", None), "[register_parameter] expected a name that Net"),
        (lambda net: net.add_module("m", 3), "[add_module] expected a Module or None for 'm', got int"),
        (lambda net: net.add_module("eval", Scale()), "[add_module] expected a name that Net does not use yet"),
        (lambda net: setattr(net, "scale", alpha.tensor(1.0)), "[Net] expected a Parameter for scale, got a Tensor"),
        (lambda net: net.train("no"), "[train] expected True or False, got 'no'"),
        (lambda net: net.to(None), "[to] expected a device, a dtype, both or a tensor, got none"),
        (lambda net: net.to("int64"), "[to] expected float32 or float64 for a module, got int64"),
        (lambda net: net.load_state_dict([1]), "[load_state_dict] expected a dict of tensors, got list"),
        (lambda net: net.summary("no"), "[summary] expected a shape with the batch, as (1, 32, 32, 3), got 'no'"),
    ],
)
def test_misuse_says_what_was_expected(call: Any, message: str) -> None:
    with pytest.raises((ArgumentError, DtypeError)) as caught:
        call(Net())
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_module_without_forward_says_so() -> None:
    with pytest.raises(NotImplementedError, match=r"\[Net\] expected a subclass with forward"):
        Net()(1)


# -- Parameter ---------------------------------------------------------------------------------------------------


def test_parameter_shares_a_tensor_and_copies_an_array() -> None:
    tensor, array = alpha.tensor([1.0, 2.0]), np.ones(2, np.float32)
    shared, copied = nn.Parameter(tensor), nn.Parameter(array)
    tensor.fill_(5)
    array[:] = 7
    assert shared.detach().numpy().tolist() == [5, 5]
    assert copied.detach().numpy().tolist() == [1, 1]
    assert isinstance(shared, Tensor) and shared.requires_grad and shared.is_leaf
    assert not nn.Parameter(tensor, requires_grad=False).requires_grad
    assert repr(shared).startswith("Parameter containing:\n")
    with pytest.raises(DtypeError, match=r"\[Parameter\] expected float32 or float64, got int64"):
        nn.Parameter([1, 2])


def test_a_deep_copy_of_a_module_has_parameters_of_its_own() -> None:
    net = Net()
    net.again = net.scale
    net.requires_grad_(False).first.requires_grad_()
    net.scale.grad = alpha.tensor(2.0)
    copied = copy.deepcopy(net)
    assert copied.scale.grad is not net.scale.grad and copied.scale.grad.item() == 2
    assert names(copied) == names(net), "a shared parameter stays shared"
    assert [p.requires_grad for p in copied.parameters()] == [p.requires_grad for p in net.parameters()]
    with alpha.no_grad():
        copied.scale.fill_(5)
    copied.first.seen.fill_(5)
    assert net.scale.item() == 0 and net.first.seen.item() == 0


# -- state -------------------------------------------------------------------------------------------------------


def test_state_dict_shares_memory_and_leaves_out_what_is_not_persistent() -> None:
    layer = Scale()
    state = layer.state_dict()
    assert list(state) == ["weight", "seen"]
    assert not state["weight"].requires_grad
    with alpha.no_grad():
        layer.weight.fill_(4)
    assert state["weight"].numpy().tolist() == [4, 4]


def test_load_state_dict_copies_arrays_and_tensors_in_place() -> None:
    net = Net()
    parameters = list(net.parameters())
    versions = [p.version for p in parameters]
    fresh: dict[str, Any] = {
        key: np.full(value.shape, i + 1.0) for i, (key, value) in enumerate(net.state_dict().items())
    }
    fresh = {key: value.astype(np.int64) if key.endswith("seen") else value for key, value in fresh.items()}
    fresh["scale"] = alpha.tensor(9.0)
    result = net.load_state_dict(fresh)
    assert result == ([], [])
    assert all(a is b for a, b in zip(parameters, net.parameters(), strict=True))
    assert all(p.version > v for p, v in zip(parameters, versions, strict=True))
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), np.asarray(fresh[key]))
    assert net.scale.dtype == alpha.float32
    fresh["scale"].fill_(1)
    assert net.scale.item() == 9


def test_load_state_dict_lists_everything_wrong_in_one_error_and_loads_nothing() -> None:
    net, state = Net(), {key: np.asarray(value) + 1 for key, value in Net().state_dict().items()}
    del state["scale"], state["row.0.weight"]
    state["extra"] = np.zeros(1)
    state["first.weight"] = np.zeros((5, 2), np.float32)
    state["table.left.seen"] = np.asarray(1.5)
    before = {key: np.array(value) for key, value in net.state_dict().items()}
    with pytest.raises(CheckpointError) as caught:
        net.load_state_dict(state)
    message = str(caught.value)
    assert message.startswith("[load_state_dict] expected the state of this Net, got another's (missing: ")
    assert "scale, row.0.weight" in message
    assert "unexpected: extra;" in message
    assert "misshaped: first.weight expected (2,), got (5, 2), table.left.seen expected int64, got float64" in message
    assert "\n" not in message
    for key, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[key])


def test_load_state_dict_not_strict_returns_what_it_left_out_but_never_takes_a_wrong_shape() -> None:
    layer = Scale()
    result = layer.load_state_dict({"weight": [3.0, 4.0], "more": 1}, strict=False)
    assert result.missing_keys == ["seen"] and result.unexpected_keys == ["more"]
    assert layer.weight.detach().numpy().tolist() == [3, 4]
    with pytest.raises(CheckpointError, match=r"\(misshaped: weight expected \(2,\), got \(3,\)\)"):
        layer.load_state_dict({"weight": [1.0, 2.0, 3.0]}, strict=False)


def test_a_long_list_of_keys_is_counted() -> None:
    net = nn.Sequential(*(Scale() for _ in range(30)))
    with pytest.raises(CheckpointError, match=r"9\.seen and 40 more"):
        net.load_state_dict({})


def test_state_dict_refuses_two_tensors_of_one_name() -> None:
    net = nn.Module()
    net.first = nn.ParameterList([nn.Parameter([1.0])])
    setattr(net, "first.0", nn.Parameter([2.0]))
    with pytest.raises(ArgumentError, match=r"\[state_dict\] expected one tensor a name, got two called 'first\.0'"):
        net.state_dict()


# -- modes and places --------------------------------------------------------------------------------------------


def test_modes_chain_and_reach_everything() -> None:
    net = Net()
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    assert net.train() is net
    assert all(module.training for module in net.modules())
    assert net.requires_grad_(False) is net
    assert not any(p.requires_grad for p in net.parameters())
    net.requires_grad_().scale.grad = alpha.tensor(1.0)
    assert net.zero_grad() is net
    assert net.scale.grad is None
    assert net.apply(lambda module: None) is net


def test_apply_runs_children_first() -> None:
    order: list[str] = []
    nn.Sequential(nn.Sequential(nn.ReLU()), nn.Tanh()).apply(lambda module: order.append(type(module).__name__))
    assert order == ["ReLU", "Sequential", "Tanh", "Sequential"]


def test_to_a_dtype_changes_floats_in_place_with_their_gradients() -> None:
    layer = Scale()
    weight, grad = layer.weight, alpha.tensor([1.0, 2.0])
    weight.grad = grad
    version = weight.version
    assert layer.to(alpha.float64) is layer
    assert layer.weight is weight and weight.dtype == alpha.float64 and weight.version >= version
    assert weight.grad is grad and grad.dtype == alpha.float64
    assert weight.detach().numpy().dtype == np.float64
    assert layer.seen.dtype == alpha.int64 and layer.scratch.dtype == alpha.float64
    assert weight.requires_grad and weight.is_leaf
    assert layer.to("float32").weight.detach().numpy().tolist() == [1, 1]
    assert layer.to(np.float32).to(float).weight.dtype == alpha.float64


def test_to_the_own_engine_changes_nothing() -> None:
    layer = Scale()
    storage = layer.weight.storage
    assert layer.to("cpu").to(layer.weight.engine) is layer
    assert layer.weight.storage is storage


def test_to_another_engine_moves_values_and_keeps_the_objects() -> None:
    from alpha.cpu.engine import CPUEngine

    other, layer = CPUEngine(memory="64MB"), Scale()
    weight = layer.weight
    weight.grad = alpha.tensor([1.0, 2.0])
    assert weight.engine.to_numpy(weight).tolist() == [1, 1]
    layer.to(other)
    with alpha.no_grad():
        weight.fill_(3)
    assert weight.engine.to_numpy(weight).tolist() == [3, 3], "a view of the old memory survived the move"
    assert layer.weight is weight and weight.engine is other and weight.grad.engine is other
    assert layer.seen.engine is other
    assert weight.grad.numpy().tolist() == [1, 2]


# -- hooks -------------------------------------------------------------------------------------------------------


def test_hooks_see_and_replace_arguments_and_results_until_removed() -> None:
    layer, calls = nn.Identity(), []
    before = layer.register_forward_pre_hook(lambda module, args: calls.append(("before", module, args)))
    doubled = layer.register_forward_pre_hook(lambda module, args: args[0] * 2)
    after = layer.register_forward_hook(lambda module, args, result: calls.append(("after", args, result)))
    plus_one = layer.register_forward_hook(lambda module, args, result: result + 1)
    assert layer(5) == 11
    assert calls == [("before", layer, (5,)), ("after", (10,), 10)]
    doubled.remove()
    doubled.remove()
    assert layer(5) == 6
    with plus_one, before, after:
        assert layer(5) == 6
    calls.clear()
    assert layer(5) == 5 and calls == []


def test_a_hook_may_remove_itself_and_a_tuple_replaces_all_arguments() -> None:
    class Add(nn.Module):
        def forward(self, a: int, b: int) -> int:
            return a + b

    layer = Add()
    handle = layer.register_forward_pre_hook(lambda module, args: (handle.remove(), (1, 2))[1])
    assert layer(10, 20) == 3
    assert layer(10, 20) == 30


def test_a_module_used_as_a_hook_is_no_part() -> None:
    layer = nn.Identity()
    layer.register_forward_hook(Scale())
    assert list(layer.children()) == []


def hooked(net: nn.Module) -> bool:
    return any(module._hooks is not None and bool(module._hooks.after) for module in net.modules())


# -- repr and summary --------------------------------------------------------------------------------------------


def test_repr_is_a_tree() -> None:
    net = nn.Sequential(OrderedDict(conv=nn.Conv2d(3, 8, 3, padding=1, bias=False), act=nn.LeakyReLU(0.2)))
    net.add_module("head", nn.Sequential(nn.Linear(8, 2), nn.Dropout(0.1)))
    assert repr(net) == (
        "Sequential(\n"
        "  (conv): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)\n"
        "  (act): LeakyReLU(negative_slope=0.2)\n"
        "  (head): Sequential(\n"
        "    (0): Linear(in_features=8, out_features=2, bias=True)\n"
        "    (1): Dropout(p=0.1, inplace=False)\n"
        "  )\n"
        ")"
    )
    assert repr(nn.ReLU()) == "ReLU()"
    assert repr(nn.models.resnet18(base_width=1).layer1[0]).startswith(
        "BasicBlock(\n  activation='leaky_relu'\n  (conv1): Conv2d(1, 1, "
    )


def test_summary_counts_parameters_and_shows_shapes() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 2, bias=False)))
    net[0].requires_grad_(False)
    net[0].eval()
    table = net.summary((5, 4))
    assert table.splitlines() == [
        "layer            output shape  parameters",
        "-----------------------------------------",
        "Sequential       (5, 2)",
        "  0: Linear      (5, 8)                40",
        "  1: Sequential  (5, 2)",
        "    0: ReLU      (5, 8)",
        "    1: Linear    (5, 2)                16",
        "-----------------------------------------",
        "56 parameters, 16 trainable; 0.0 MiB with buffers",
    ]
    assert net.training and not net[0].training, "modes are left as they were"
    assert "(5, 2)" not in net.summary()
    assert not hooked(net)


def test_summary_leaves_no_hooks_behind_an_error() -> None:
    net = nn.Sequential(nn.Linear(4, 8))
    with pytest.raises(ShapeError):
        net.summary((5, 3))
    assert net.training and not hooked(net)


# -- containers --------------------------------------------------------------------------------------------------


def test_sequential_indexes_slices_and_grows() -> None:
    a, b, c = nn.ReLU(), nn.Tanh(), nn.Sigmoid()
    net = nn.Sequential(a, b)
    assert net.append(c) is net
    assert list(net) == [a, b, c] and len(net) == 3 and net[-1] is c
    part = net[1:]
    assert isinstance(part, nn.Sequential) and list(part) == [b, c]
    assert [name for name, _ in part.named_children()] == ["1", "2"]
    part.append(a)
    assert list(part) == [b, c, a], "appending to a slice overwrites nothing"
    net[0] = c
    assert net[0] is c
    net.insert(0, b)
    del net[1]
    assert list(net) == [b, b, c]
    assert [name for name, _ in net.named_modules(remove_duplicate=False)] == ["", "0", "1", "2"]
    net.extend([a, a])
    assert len(net) == 5
    with pytest.raises(IndexError, match=r"\[Sequential\] expected an index within 5 modules, got 5"):
        net[5]


def test_sequential_runs_in_order_and_takes_names() -> None:
    class Plus(nn.Module):
        def forward(self, x: str) -> str:
            return x + "+"

    class Times(nn.Module):
        def forward(self, x: str) -> str:
            return x + "*"

    assert nn.Sequential(Plus(), Times())("x") == "x+*"
    named = nn.Sequential(OrderedDict(plus=Plus(), times=Times()))
    assert named("x") == "x+*" and named.times("x") == "x*"
    assert nn.Sequential()("x") == "x"
    with pytest.raises(ArgumentError, match=r"\[add_module\] expected a Module for '0', got int"):
        nn.Sequential(3)


def test_module_list_and_dict() -> None:
    blocks = nn.ModuleList([Scale(), Scale()]).append(Scale())
    assert names(blocks) == ["0.weight", "1.weight", "2.weight"]
    assert names(blocks[1:]) == ["0.weight", "1.weight"]
    assert isinstance(blocks[1:], nn.ModuleList)
    table = nn.ModuleDict({"a": Scale(), "b": nn.ReLU()})
    table["c"] = table["a"]
    assert list(table) == ["a", "b", "c"] and "b" in table and "d" not in table and len(table) == 3
    assert list(table.keys()) == ["a", "b", "c"] and list(table.values())[2] is table["a"]
    assert dict(table.items())["b"] is table["b"]
    del table["b"]
    assert list(table) == ["a", "c"]
    assert names(table) == ["a.weight"]
    with pytest.raises(KeyError, match=r"\[ModuleDict\] expected one of \['a', 'c'\], got 'b'"):
        table["b"]
    with pytest.raises(ArgumentError, match="expected a name that ModuleDict does not use yet, got 'items'"):
        table["items"] = nn.ReLU()


# -- initialisation ----------------------------------------------------------------------------------------------


def values(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().numpy().astype(np.float64)


def empty(*shape: int, dtype: Any = alpha.float32) -> nn.Parameter:
    return nn.Parameter(alpha.tensor(np.full(shape, np.nan, dtype)))


def test_fans_of_every_layout() -> None:
    assert nn.init.fans(nn.Linear(5, 7).weight) == (5, 7)
    assert nn.init.fans(nn.Conv2d(6, 4, (3, 5), groups=2).weight) == (3 * 15, 4 * 15)
    # PyTorch: weight.size(1) * receptive field = out_channels / groups * 15.
    assert nn.init.fans(nn.ConvTranspose2d(6, 4, (3, 5), groups=2).weight) == (2 * 15, 6 * 15)
    with pytest.raises(
        ShapeError, match=r"\[kaiming_uniform_\] expected a weight with at least 2 axes, got shape \(3,\)"
    ):
        nn.init.kaiming_uniform_(empty(3))


@pytest.mark.parametrize(
    ("name", "options", "std", "bound"),
    [
        ("uniform_", {"a": -3.0, "b": 1.0}, 4 / math.sqrt(12), None),
        ("normal_", {"mean": 1.0, "std": 0.5}, 0.5, None),
        ("kaiming_uniform_", {"a": math.sqrt(5)}, 1 / math.sqrt(3 * 450), 1 / math.sqrt(450)),
        ("kaiming_uniform_", {"nonlinearity": "relu", "mode": "fan_out"}, math.sqrt(2 / 360), math.sqrt(6 / 360)),
        ("kaiming_normal_", {"nonlinearity": "relu"}, math.sqrt(2 / 450), None),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "linear"}, math.sqrt(1 / 360), None),
        ("xavier_uniform_", {"gain": 2.0}, 2 * math.sqrt(2 / 810), 2 * math.sqrt(6 / 810)),
        ("xavier_normal_", {}, math.sqrt(2 / 810), None),
        ("trunc_normal_", {"std": 2.0, "a": -2.0, "b": 2.0}, 2 * 0.53956, 2.0),  # std of N(0, 1) cut at ±1
    ],
)
@pytest.mark.parametrize("dtype", [alpha.float32, alpha.float64])
def test_draws_have_the_distribution_and_repeat_from_the_seed(
    name: str, options: dict[str, Any], std: float, bound: float | None, dtype: Any
) -> None:
    function = getattr(nn.init, name)
    weight = empty(40, 3, 3, 50, dtype=dtype)
    alpha.manual_seed(3)
    assert function(weight, **options) is weight
    assert weight.requires_grad and weight.is_leaf and weight.dtype == dtype
    drawn = values(weight)
    mean = {"uniform_": -1.0, "normal_": 1.0}.get(name, 0.0)
    # 18000 draws: the mean's standard error is std / 134, the deviation's about 0.53 % of it; 5 sigma.
    assert abs(drawn.mean() - mean) < 5 * std / 134
    assert abs(drawn.std() - std) < 0.027 * std
    if bound is not None:
        assert np.abs(drawn).max() <= bound * (1 + 1e-6)
        assert np.abs(drawn).max() > 0.99 * bound
    again = function(empty(40, 3, 3, 50, dtype=dtype), **options)
    assert not np.array_equal(values(again), drawn)
    alpha.manual_seed(3)
    np.testing.assert_array_equal(values(function(again, **options)), drawn)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (8, 3, 3, 2), (5, 5)])
def test_orthogonal_has_orthonormal_rows_or_columns(shape: tuple[int, ...]) -> None:
    matrix = values(nn.init.orthogonal_(empty(*shape), gain=2.0)).reshape(shape[0], -1)
    smaller = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(smaller, 4 * np.eye(len(smaller)), atol=1e-5)


def test_orthogonal_has_no_preferred_direction() -> None:
    """A QR decomposition alone would fix the sign of the diagonal; 400 entries of deviation 1/sqrt(3)."""
    alpha.manual_seed(0)
    corner = [values(nn.init.orthogonal_(empty(3, 3)))[0, 0] for _ in range(400)]
    assert abs(np.mean(corner)) < 4 / math.sqrt(3 * 400)


@pytest.mark.needs("torch")
@pytest.mark.parametrize(
    ("shape", "groups"), [((4, 3, 3, 6), 1), ((6, 3, 3, 4), 1), ((6, 5, 2), 3), ((8, 2, 3, 4, 2), 2)]
)
def test_dirac_is_pytorchs(shape: tuple[int, ...], groups: int) -> None:
    import torch

    theirs = torch.nn.init.dirac_(torch.empty(shape[0], shape[-1], *shape[1:-1]), groups).numpy()
    np.testing.assert_array_equal(np.moveaxis(values(nn.init.dirac_(empty(*shape), groups)), -1, 1), theirs)


@pytest.mark.slow
def test_dirac_filters_hand_their_input_on() -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 5, 3))
    weight = nn.init.dirac_(empty(3, 3, 3, 3, dtype=alpha.float64))
    np.testing.assert_array_equal(values(alpha.conv2d(alpha.tensor(x), weight, padding=1)), x)


def correlated(n: int, size: int = 9) -> Any:
    """Images whose neighbouring pixels and whose channels are alike, around a mean that is not 0."""
    white = np.random.default_rng(2).standard_normal((n, size + 2, size + 2, 3)) @ np.array(
        [[1.0, 0.9, 0.7], [0.0, 0.5, 0.2], [0.0, 0.0, 0.3]]
    )
    return white[:, 1:-1, 1:-1] + white[:, :-2, 1:-1] + white[:, 1:-1, 2:] + 0.7


@pytest.mark.parametrize("filters", [24, 10])
def test_whitened_patches_are_uncorrelated(filters: int) -> None:
    images = correlated(600)  # more than are in memory at once
    weight = empty(filters, 2, 2, 3, dtype=alpha.float64)
    assert nn.init.whiten_patches_(weight, images.astype(np.float32), eps=0.0) is weight
    found = values(weight).reshape(filters, 12)
    half = filters // 2
    np.testing.assert_array_equal(found[half:], -found[:half])
    result = values(alpha.conv2d(alpha.tensor(images), weight)).reshape(-1, filters)
    covariance = np.cov(result[:, :half].T, bias=True)
    np.testing.assert_allclose(covariance, np.eye(half), atol=1e-5)
    assert (np.diff(np.linalg.norm(found[:half], axis=1)) > 0).all()  # largest eigenvalues first


def test_whitening_leaves_directions_without_variance_small() -> None:
    grey = np.repeat(correlated(50)[..., :1], 3, axis=3)
    weight = nn.init.whiten_patches_(empty(24, 2, 2, 3), alpha.tensor(grey), eps=1e-2)
    norms = np.linalg.norm(values(weight).reshape(24, 12)[:12], axis=1)
    np.testing.assert_allclose(norms[4:], 10, rtol=1e-3)  # 1 / sqrt(eps)
    with pytest.raises(ArgumentError, match=r"^\[whiten_patches_\] expected eps > 0 where a direction has no variance"):
        nn.init.whiten_patches_(weight, np.zeros((2, 4, 4, 3)), eps=0.0)


def test_constants_and_gains() -> None:
    weight = empty(2, 3)
    assert values(nn.init.constant_(weight, 2.5)).tolist() == [[2.5] * 3] * 2
    assert values(nn.init.ones_(weight)).sum() == 6
    assert values(nn.init.zeros_(weight)).sum() == 0
    assert nn.init.calculate_gain("relu") == math.sqrt(2)
    assert nn.init.calculate_gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)
    assert nn.init.calculate_gain("tanh") == 5 / 3
    assert nn.init.calculate_gain("conv2d") == nn.init.calculate_gain("sigmoid") == 1


def test_truncation_far_from_the_mean() -> None:
    drawn = values(nn.init.trunc_normal_(empty(1000), mean=0.0, std=1.0, a=3.0, b=4.0))
    assert drawn.min() >= 3 and drawn.max() <= 4
    assert abs(drawn.mean() - 3.26) < 0.05  # the normal's mean on [3, 4] is 3.2655


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.init.uniform_(empty(2), 1.0, 0.0), "[uniform_] expected a <= b"),
        (lambda: nn.init.normal_(empty(2), std=-1.0), "[normal_] expected std >= 0"),
        (lambda: nn.init.trunc_normal_(empty(2), a=1.0, b=1.0), "[trunc_normal_] expected std > 0 and a < b"),
        (lambda: nn.init.trunc_normal_(empty(2), a=90.0, b=91.0), "[trunc_normal_] expected bounds that hold some"),
        (lambda: nn.init.kaiming_normal_(empty(2, 2), mode="fan"), '[kaiming_normal_] expected mode "fan_in" or'),
        (lambda: nn.init.calculate_gain("swish"), "[calculate_gain] expected one of relu"),
        (lambda: nn.init.orthogonal_(empty(2)), "[orthogonal_] expected a weight with at least 2 axes"),
        (lambda: nn.init.dirac_(empty(2, 2)), "[dirac_] expected filters of at least 3 axes"),
        (lambda: nn.init.dirac_(empty(3, 3, 2), 2), "[dirac_] expected groups that divide 3 filters, got 2"),
        (lambda: nn.init.dirac_(empty(3, 3, 2), 0), "[dirac_] expected groups >= 1"),
        (
            lambda: nn.init.whiten_patches_(empty(3, 2, 2, 3), np.zeros((1, 4, 4, 3))),
            "[whiten_patches_] expected filters (OC, FH, FW, C) with an even OC <= 2 FH FW C",
        ),
        (
            lambda: nn.init.whiten_patches_(empty(4, 2, 2, 3), np.zeros((1, 4, 4, 2))),
            "[whiten_patches_] expected images (n, H, W, 3) of at least (2, 2) pixels, got (1, 4, 4, 2)",
        ),
        (
            lambda: nn.init.whiten_patches_(empty(4, 2, 2, 3), np.full((1, 4, 4, 3), np.nan)),
            "[whiten_patches_] expected finite images",
        ),
        (
            lambda: nn.init.whiten_patches_(empty(4, 2, 2, 3), np.zeros((1, 4, 4, 3)), -1.0),
            "[whiten_patches_] expected eps >= 0",
        ),
        (lambda: nn.init.normal_(alpha.tensor([1])), "[normal_] expected a float32 or float64 tensor, got int64"),
    ],
)
def test_initialisation_checks_its_arguments(call: Any, message: str) -> None:
    with pytest.raises((ArgumentError, ShapeError, DtypeError)) as caught:
        call()
    assert str(caught.value).startswith(message)
