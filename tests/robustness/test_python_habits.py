"""What Python programs do with objects: pickle and copy them, print, compare, index, nest; as in PyTorch."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import Tensor, nn, optim
from alpha.engine import IMAGE_ORDER, Engine
from alpha.errors import AlphaError, ArgumentError, GraphError, ScalarError, ShapeError


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def both(test: Callable[..., None]) -> Callable[..., None]:
    """Runs a test with pickle and with copy.deepcopy."""
    made: Callable[..., None] = pytest.mark.parametrize("again", [pickled, copy.deepcopy])(test)
    return made


# -- pickles and copies of tensors -------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int32", "int64", "bool"])
def test_tensors_come_back_as_they_lie(engine: Engine, again: Callable[[Any], Any], dtype: str) -> None:
    values = (np.arange(24).reshape(2, 3, 4, 1) % 5).astype(dtype)
    x = engine.from_numpy(values)
    ordered = engine.empty(values.shape, values.dtype, IMAGE_ORDER)
    engine.copy(x, ordered)
    for tensor in (x, ordered, x.T, x[1:, ::2], x[:, :1].expand(2, 7, 4, 1), x[0, 0, 0, 0], x[:0], x.detach()):
        back = again(tensor)
        assert type(back) is Tensor and back.dtype == tensor.dtype and back.shape == tensor.shape
        assert back.strides == tensor.strides and back.offset == tensor.offset and back.engine is engine
        assert np.array_equal(back.numpy(), tensor.numpy())
        assert back.storage is not tensor.storage and not back.requires_grad and back.is_leaf


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol(protocol: int) -> None:
    x = alpha.tensor([1.0, 2.0], requires_grad=True)
    back = pickle.loads(pickle.dumps({"x": x, "net": nn.Linear(2, 1)}, protocol))
    assert back["x"].tolist() == [1, 2] and back["x"].requires_grad
    assert back["net"](back["x"]).shape == (1,)


@both
def test_views_share_memory_afterwards(again: Callable[[Any], Any]) -> None:
    x = alpha.zeros(2, 3)
    back, turned, row = again((x, x.T, x[1]))
    back[1, 2] = 7
    assert turned[2, 1].item() == 7 and row[2].item() == 7 and x.sum().item() == 0


def test_gradients_and_graphs_follow_pytorch() -> None:
    leaf = alpha.tensor([1.0, 2.0], requires_grad=True)
    leaf.grad = alpha.tensor([3.0, 4.0])
    result = leaf * 2
    assert pickled(leaf).grad is None and copy.copy(leaf).grad is None
    deep = copy.deepcopy(leaf)
    assert deep.grad is not leaf.grad and deep.grad is not None and deep.grad.tolist() == [3, 4]
    for of_result in (pickled(result), copy.copy(result)):
        assert of_result.is_leaf and of_result.requires_grad and of_result.tolist() == [2, 4]
    with pytest.raises(GraphError, match=r"^\[deepcopy\] expected a leaf"):
        copy.deepcopy(result)
    shallow = copy.copy(leaf)
    assert shallow is not leaf and shallow.storage is leaf.storage and shallow.requires_grad


def test_a_damaged_pickle_cannot_reach_beyond_its_memory() -> None:
    function, arguments, _ = alpha.zeros(4).__reduce_ex__(4)
    kind, storage, _, _, _, dtype, requires_grad = arguments
    for wrong in ((0, (5,), (1,)), (1, (4,), (1,)), (-1, (4,), (1,)), (0, (4,), (2,)), (0, (4,), (-1,))):
        with pytest.raises(ArgumentError, match=r"^\[pickle\] expected a tensor within its memory"):
            function(kind, storage, *wrong, dtype, requires_grad)
    assert function(kind, storage, 3, (4,), (-1,), dtype, requires_grad).shape == (4,)


class Marked(Tensor):
    """A subclass with an attribute of its own."""

    mark: Any


@both
def test_subclasses_keep_type_and_attributes(again: Callable[[Any], Any]) -> None:
    x = alpha.tensor([1.0])
    marked = Marked(x.storage, x.offset, x.shape, x.strides, x.dtype)
    marked.mark = {"a": [1]}
    back = again(marked)
    assert type(back) is Marked and back.mark == {"a": [1]} and back.mark is not marked.mark
    parameter = again(nn.Parameter([1.0], requires_grad=False))
    assert type(parameter) is nn.Parameter and not parameter.requires_grad


# -- pickles and copies of what is made of tensors ---------------------------------------------------------------------


def doubled(module: nn.Module, args: tuple[Any, ...], result: Tensor) -> Tensor:
    return result * 2


class Net(nn.Module):
    """Tied parameters, a buffer that is not saved, hooks, a list, a module that refers back."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("scratch", alpha.ones(2), persistent=False)
        self.more = [nn.ReLU(), {"a": nn.utils.spectral_norm(nn.Linear(3, 2))}]
        self.first.owner = self
        self.handle = self.norm.register_forward_hook(doubled)
        self.engine = alpha.engine("cpu")

    def forward(self, x: Tensor) -> Any:
        return self.more[1]["a"](self.more[0](self.norm(self.second(self.first(x)))))  # type: ignore[index, operator]


@both
def test_modules_come_back_whole(again: Callable[[Any], Any]) -> None:
    alpha.manual_seed(1)  # of numbers that ReLU does not all make zero
    net = Net().eval()
    net.second.train()
    net.first.bias.requires_grad_(False)
    back = again(net)
    x = alpha.randn(2, 3)
    assert np.array_equal(back(x).detach().numpy(), net(x).detach().numpy())
    assert back.second.weight is back.first.weight is not net.first.weight and back.first.owner is back
    assert [m.training for m in back.modules()] == [m.training for m in net.modules()]
    assert [(n, p.requires_grad) for n, p in back.named_parameters()] == [
        (n, p.requires_grad) for n, p in net.named_parameters()
    ]
    assert list(back.state_dict()) == list(net.state_dict()) and "scratch" not in back.state_dict()
    assert [n for n, _ in back.named_buffers()] == [n for n, _ in net.named_buffers()]
    assert back.engine is net.engine
    back.handle.remove()
    assert not np.array_equal(back(x).detach().numpy(), net(x).detach().numpy())


LAYERS: list[Callable[[], nn.Module]] = [
    lambda: nn.Conv2d(2, 3, 3), lambda: nn.ConvTranspose2d(2, 3, 3), lambda: nn.Embedding(4, 2),
    lambda: nn.Dropout(0.5), nn.LeakyReLU, lambda: nn.LayerNorm(3), lambda: nn.MaxPool2d(2), nn.CrossEntropyLoss,
    lambda: nn.ModuleDict({"a": nn.Linear(1, 1)}), lambda: nn.ModuleList([nn.Linear(1, 1)]),
    lambda: nn.models.resnet18(base_width=1), lambda: optim.AveragedModel(nn.Linear(2, 2)),
]  # fmt: skip


@pytest.mark.parametrize("make", LAYERS)
@both
def test_every_kind_of_layer_comes_back(again: Callable[[Any], Any], make: Callable[[], nn.Module]) -> None:
    layer = make()
    back = again(layer)
    assert repr(back) == repr(layer) and type(back) is type(layer)
    for mine, its in zip(layer.state_dict().values(), back.state_dict().values(), strict=True):
        assert np.array_equal(mine.numpy(), its.numpy())


@both
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_model_optimizer_and_scheduler_stay_tied(again: Callable[[Any], Any], kind: str) -> None:
    net = nn.Linear(3, 2)
    optimizer: Any = getattr(optim, kind)(net.parameters(), lr=0.1)
    scheduler = optim.CosineAnnealingLR(optimizer, 10)
    x = alpha.randn(4, 3)

    def step(parts: tuple[Any, Any, Any]) -> list[Any]:
        parts[1].zero_grad()
        parts[0](x).square().sum().backward()
        parts[1].step()
        parts[2].step()
        return [parts[0].weight.tolist(), parts[1].steps, parts[2].get_last_lr()]

    step((net, optimizer, scheduler))
    back = again((net, optimizer, scheduler))
    assert back[1].param_groups[0]["params"][0] is back[0].weight and back[2].optimizer is back[1]
    assert set(map(id, back[1].state)) <= set(map(id, back[0].parameters()))
    assert step(back) == step((net, optimizer, scheduler))


def test_engines_errors_and_random_objects() -> None:
    engine = alpha.engine("cpu")
    assert pickled(engine) is engine and copy.copy(engine) is engine and copy.deepcopy(engine) is engine
    generator = alpha.random.numpy_generator(1, 2)
    assert pickled(generator).random() == copy.deepcopy(generator).random() == generator.random()
    draw = alpha.random.draw_normal((2, 3))
    assert np.array_equal(pickled(draw).numpy(), draw.numpy())
    for kind in (ArgumentError, ShapeError, GraphError):
        error = pickled(kind("[f] expected a, got b"))
        assert type(error) is kind and str(error) == "[f] expected a, got b"


# -- modules -----------------------------------------------------------------------------------------------------------


def endless() -> nn.Module:
    """A module that holds itself, directly, through a child, and beside lists and dicts that hold themselves."""
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net.me = net
    net[0].parent = net
    items: list[Any] = [net]
    table: dict[str, Any] = {"items": items, "net": net}
    table["table"] = table
    items += [items, table, (items, nn.Tanh())]
    net.items = items
    return net


def test_a_module_that_holds_itself_works_everywhere() -> None:
    net = endless()
    assert repr(net).count("Sequential(...)") >= 2 and "Tanh()" not in repr(net)
    assert sorted(name for name, _ in net.named_parameters()) == ["0.bias", "0.weight", "1.bias", "1.weight"]
    assert len(list(net.modules())) == 3
    buffers = {f"1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert set(net.state_dict()) == {"0.weight", "0.bias", "1.weight", "1.bias", *buffers}
    assert len(list(net.named_modules(remove_duplicate=False))) >= 3
    seen: list[nn.Module] = []
    net.apply(seen.append)
    assert len(seen) == 3 and seen[-1] is net
    assert net.eval().to("float64").to("float32").requires_grad_(False).zero_grad().cpu() is net
    assert "Linear" in net.summary()
    net.load_state_dict(copy.deepcopy(net).state_dict())
    back = pickled(net)
    assert back.me is back and back.items[0] is back and back.items[1] is back.items
    alone = nn.ModuleList()
    alone.append(alone)
    assert repr(alone) == "ModuleList(\n  (0): ModuleList(...)\n)" and len(list(alone.modules())) == 1


def test_modules_shared_in_many_places_are_walked_once() -> None:
    top = module = nn.Module()
    for _ in range(40):  # 2^40 paths
        child = nn.Module()
        module.a = module.b = child
        module = child
    assert len(list(top.modules())) == 41 and top.train() is top and list(top.parameters()) == []


def test_attributes_change_their_kind_as_in_pytorch() -> None:
    net = nn.Module()
    net.x = nn.Linear(1, 1)
    net.x = nn.Parameter([1.0])  # a Parameter takes a module's place
    assert [name for name, _ in net.named_parameters()] == ["x"] and list(net.children()) == []
    for wrong in (alpha.ones(1), nn.Linear(1, 1), 3, [1.0]):
        with pytest.raises(ArgumentError, match=r"expected a Parameter for x"):
            net.x = wrong
    net.x = None
    assert list(net.parameters()) == []
    net.register_buffer("b", alpha.ones(1))
    with pytest.raises(ArgumentError, match=r"expected a Tensor or None for the buffer b, got a int"):
        net.b = 3
    net.b = alpha.zeros(1)
    assert list(net.state_dict()) == ["b"] and [name for name, _ in net.named_buffers()] == ["b"]
    net.b = nn.Parameter([2.0])  # and a buffer's
    assert [name for name, _ in net.named_parameters()] == ["b"] and list(net.buffers()) == []
    del net.b
    net.register_buffer("b", alpha.ones(1), persistent=False)
    net.b = nn.Linear(1, 1)
    assert [name for name, _ in net.named_parameters()] == ["b.weight", "b.bias"]
    del net.b
    assert list(net.parameters()) == [] and not hasattr(net, "b") and "x" in dir(net)
    net.register_buffer("c", alpha.ones(1))
    del net.c
    net.c = alpha.ones(1)
    assert list(net.buffers()) == []  # an attribute like others
    with pytest.raises(AttributeError):
        del net.nothing


def test_a_train_of_its_own_is_asked() -> None:
    class Frozen(nn.BatchNorm1d):
        def train(self, mode: bool = True) -> Any:
            return super().train(False)

    net = nn.Sequential(nn.Linear(1, 1), Frozen(1))
    assert net.train()[0].training and not net[1].training


def test_sequential_and_module_list_are_lists() -> None:
    a, b, c, d = (nn.Linear(1, 1) for _ in range(4))
    for kind in (nn.Sequential, nn.ModuleList):
        row: Any = kind(a, b, c) if kind is nn.Sequential else kind([a, b, c])
        assert len(row) == 3 and list(row) == [a, b, c] and b in row and d not in row and bool(row)
        assert row[-1] is c and row[np.int64(1)] is b and list(row[1:]) == [b, c] and type(row[:1]) is kind
        assert list(reversed(row)) == [c, b, a]
        row[1] = d
        row += [b]
        assert list(row) == [a, d, c, b] and row.pop() is b and row.pop(0) is a and list(row) == [d, c]
        assert [name for name, _ in row.named_children()] == ["0", "1"]
        assert list(row.insert(0, a).extend([b])) == [a, d, c, b]
        del row[::2]
        assert list(row) == [d, b] and list(row + row) == [d, b, d, b]
        for wrong in (2, -3):
            with pytest.raises(IndexError):
                row[wrong]
        with pytest.raises(AlphaError):
            row["0"]
        for call in (
            lambda row=row: row.append(3),
            lambda row=row: row.extend([a, 3]),
            lambda row=row: row.insert(0, 3),
        ):
            with pytest.raises(ArgumentError):
                call()
            assert list(row) == [d, b]
        del row[:]
        assert len(row) == 0 and not row
    assert list(nn.Sequential(a, b) * 2) == [a, b, a, b] == list(2 * nn.Sequential(a, b))
    named = nn.Sequential({"x": a, "y": b, "z": c})
    del named[1]
    assert [name for name, _ in named.named_children()] == ["x", "z"]


def test_module_dict_is_a_dict() -> None:
    a, b, c = (nn.Linear(1, 1) for _ in range(3))
    table = nn.ModuleDict([("a", a), ("b", b)])
    assert list(table) == ["a", "b"] == list(table.keys()) and table["a"] is a and "b" in table and "c" not in table
    assert list(table.values()) == [a, b] and list(table.items()) == [("a", a), ("b", b)] and len(table) == 2
    table.update(nn.ModuleDict({"c": c}))
    table.update({"a": c})
    assert table.pop("c") is c and table["a"] is c
    for wrong in ({"d": 3}, {"x.y": a}, {"keys": a}, 3, [1]):
        with pytest.raises(ArgumentError):
            table.update(wrong)  # type: ignore[arg-type]
        assert list(table) == ["a", "b"]
    with pytest.raises(KeyError):
        table.pop("none")
    del table["a"]
    table.clear()
    assert len(table) == 0


def test_modules_are_equal_to_themselves_alone() -> None:
    a, b = nn.Linear(1, 1), nn.Linear(1, 1)
    assert a in [a] and a != b and len({a, b, a}) == 2 and a in [b, a]
    shallow = copy.copy(a)
    assert shallow is not a and shallow.weight is a.weight


# -- tensors as numbers, sequences, arrays -----------------------------------------------------------------------------


def shown(value: Any, tensor: Any) -> Any:
    """A result that can be compared between libraries: what kind, which values; of an error that it is one."""
    if isinstance(value, tensor):
        return "tensor", np.asarray(value).tolist()
    if isinstance(value, np.ndarray | np.generic):
        return "array", value.tolist()
    if isinstance(value, list | tuple):
        return [shown(item, tensor) for item in value]
    return value


HABITS = """2. in v; t(2.) in v; 5 in v; v in v; reversed(v); format(s, '.3f'); format(i, '03d'); f'{s:8.2f}'; f'{b}'
bool(s); not s; float(s); int(s); int(t([3])); float(t([[2.5]])); int(b); float(b); int(t(-1.7)); complex(s)
operator.index(i); operator.index(t([3])); operator.index(b); range(i); [1, 2, 3, 4][i]; [1, 2, 3][i:]; i in range(5)
np.asarray(v); np.array([v, v]); np.array([s, s]); np.stack([v, v]); np.asarray([v, v]).shape; np.arange(5)[i]
np.arange(5)[t([1, 2])]; np.zeros(i); np.asarray(v, dtype='float64'); np.concatenate([v, v]); np.full(2, s)
np.ones(2) == v; np.float64(2) * v; v * np.float64(2); np.float32(1) + v; np.int64(3) == i; s >= np.float32(1)
v == None; v != None; None == v; v == 'a'; v != 'a'; (1., 2.) == v; s > 1; 1 < s; i == 3; 3 == i; v is None
v[None]; sum(v); max(v); min(v); sorted(v); list(v); [*m]; tuple(m)[1]; next(iter(v)); len(m); list(zip(v, v)); any(v)
abs(v); -v; +v; 7 % v; 2 ** v; v @ v; v // 2; math.floor(s); math.sqrt(s); pow(v, 2); s if s else 0; {v: 1}[v]
bytes(i); chr(i); '%d' % i; '%.2f' % s; '{:.1f}'.format(s); slice(i).indices(10); copy.copy(v) is v; max(s, i)
s < i < 4; len({v}); isinstance(hash(v), int); all(v); m.T; v.shape[0]; v.tolist(); dict(enumerate(v))[1]; v in [v]"""
ERRORS = """None in v; 'a' in v; format(v, '.3f'); len(s); iter(s); list(s); bool(v); bool(e); float(v); int(v); v and v
operator.index(s); operator.index(t([1, 2])); range(s); v < None; v + None; v + 'a'; v + [1, 2]; v ** 'a'; -b; len(i)
int(t(float('nan'))); round(v); del_item(v); divmod(v, 2); memoryview(v); v.nonexistent; [1, 2][s]; {}[v]; v()
import_of_json(s); s[0]; v[5]; v['a']; tuple(s); sorted(m); max(m); v << 1; reversed(3)"""


def results(lines: str, library: Any) -> dict[str, Any]:
    t, tensor = library.tensor, library.Tensor
    names = {"t": t, "s": t(1.5), "i": t(3), "v": t([1.0, 2.0]), "b": t(True), "m": t([[1.0, 2.0], [3.0, 4.0]])}
    names |= {"e": library.zeros(0), "np": np, "operator": operator, "math": math, "copy": copy}
    names |= {"del_item": lambda v: operator.delitem(v, 0), "import_of_json": __import__("json").dumps}
    found: dict[str, Any] = {}
    for expression in lines.replace("\n", ";").split(";"):
        try:
            found[expression.strip()] = shown(eval(expression.strip(), names), tensor)
        except Exception as error:
            found[expression.strip()] = error
    return found


@pytest.mark.needs("torch")
def test_tensors_behave_as_pytorchs_do() -> None:
    import torch

    assert results(HABITS, alpha) == results(HABITS, torch)


def test_habits_without_pytorch() -> None:
    found = results(HABITS, alpha)
    assert not [(key, value) for key, value in found.items() if isinstance(value, Exception)]
    assert found["2. in v"] is True and found["5 in v"] is False and found["format(s, '.3f')"] == "1.500"
    assert found["reversed(v)"] == ("tensor", [2, 1]) and found["v == None"] is False
    assert results("np.ones(2) * v; np.ones(2) - v; np.ones(2) < v", alpha) == {
        "np.ones(2) * v": ("tensor", [1, 2]),
        "np.ones(2) - v": ("tensor", [0, -1]),
        "np.ones(2) < v": ("tensor", [False, True]),
    }


def test_what_makes_no_sense_is_an_error() -> None:
    for key, error in results(ERRORS, alpha).items():
        assert isinstance(error, Exception), key
        python = key.startswith(("range", "round", "divmod", "memoryview", "[1, 2]", "{}", "v()", "import", "reversed"))
        assert python or isinstance(error, AlphaError | AttributeError | ValueError | TypeError), key
    for key in ("len(s)", "iter(s)", "format(v, '.3f')", "operator.index(s)", "del_item(v)", "tuple(s)"):
        error = results(key, alpha)[key]
        assert isinstance(error, ScalarError) and isinstance(error, TypeError)
        assert str(error).startswith("[") and "\n" not in str(error)
