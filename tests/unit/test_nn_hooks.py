"""Hooks and introspection of modules beside PyTorch's."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import nn
from alpha.errors import ArgumentError, CheckpointError, PartError


def library(name: str) -> Any:
    """``alpha`` or ``torch``, whose programs differ by nothing else."""
    if name == "torch":
        return pytest.importorskip("torch")
    return alpha


both = pytest.mark.parametrize("lib", ["alpha", pytest.param("torch", marks=pytest.mark.needs("torch"))])


def net_of(lib: Any) -> Any:
    return lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.Tanh(), lib.nn.Linear(3, 1))


# -- forward -----------------------------------------------------------------------------------------------------


@both
def test_hooks_are_called_in_order_with_what_they_asked_for(lib: str) -> None:
    library_ = library(lib)
    calls: list[Any] = []

    class Scale(library_.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any, factor: float = 1.0) -> Any:
            return x * factor

    layer = Scale()
    layer.register_forward_pre_hook(lambda m, args: calls.append("second"))
    layer.register_forward_pre_hook(lambda m, args: calls.append("first"), prepend=True)
    layer.register_forward_pre_hook(lambda m, args, kw: (args, {"factor": kw["factor"] + 1}), with_kwargs=True)
    layer.register_forward_hook(lambda m, args, kw, y: calls.append(kw), with_kwargs=True)
    layer.register_forward_hook(lambda m, args, y: y + 1, prepend=True)
    x = library_.tensor([1.0, 2.0])
    assert layer(x, factor=2.0).tolist() == [4, 7]
    assert calls == ["first", "second", {"factor": 3.0}]


@both
def test_a_hook_with_always_call_sees_an_error(lib: str) -> None:
    library_ = library(lib)
    seen: list[Any] = []

    class Failing(library_.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            raise ZeroDivisionError("no")

    layer = Failing()
    layer.register_forward_hook(lambda m, args, y: seen.append("never"))
    layer.register_forward_hook(lambda m, args, y: seen.append(y), always_call=True)
    with pytest.raises(ZeroDivisionError):
        layer(library_.tensor([1.0]))
    assert seen == [None]


# -- backward ----------------------------------------------------------------------------------------------------


@both
def test_backward_hooks_see_and_replace_gradients(lib: str) -> None:
    library_ = library(lib)
    net, seen = net_of(library_), []
    x = library_.tensor([[1.0, -2.0]], requires_grad=True)
    net[2].register_full_backward_pre_hook(lambda m, grads: (grads[0] * 3,))
    first = net[2].register_full_backward_hook(lambda m, gi, go: seen.append((gi[0].shape, go[0].tolist())))
    net[0].register_full_backward_hook(lambda m, gi, go: (gi[0] * 0,))
    net(x).sum().backward()
    assert [(tuple(shape), out) for shape, out in seen] == [((1, 3), [[3.0]])]
    assert x.grad.tolist() == [[0, 0]] and net[2].bias.grad.tolist() == [3.0] and abs(net[0].weight.grad).sum() > 0
    first.remove()
    net(x).sum().backward()
    assert len(seen) == 1


@both
def test_a_backward_hook_without_gradients_of_arguments(lib: str) -> None:
    library_ = library(lib)
    layer, seen = library_.nn.Linear(2, 2), []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append((gi, len(go))))
    layer(library_.tensor([[1.0, 2.0]])).sum().backward()
    assert seen == [((None,), 1)]
    with library_.no_grad():
        layer(library_.tensor([[1.0, 2.0]]))


def test_backward_hooks_gradients_equal_those_without(rng: np.random.Generator) -> None:
    net, x = net_of(alpha), rng.normal(size=(4, 2)).astype(np.float32)
    plain, other = copy.deepcopy(net), copy.deepcopy(net)
    for module in other.modules():
        module.register_full_backward_hook(lambda m, gi, go: None)
    for one in (plain, other):
        one(alpha.tensor(x, requires_grad=True)).sum().backward()
    for one, two in zip(plain.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(one.grad, two.grad)


def test_misused_hooks_say_so() -> None:
    layer, x = nn.Linear(2, 2), alpha.ones(1, 2)
    with pytest.raises(ArgumentError, match="expected a function as the hook"):
        layer.register_forward_hook(3)  # type: ignore[arg-type]
    with (
        layer.register_forward_pre_hook(lambda m, a, k: a, with_kwargs=True),
        pytest.raises(ArgumentError, match=r"\(args, kwargs\)"),
    ):
        layer(x)
    with layer.register_full_backward_hook(lambda m, gi, go: (1, 2)), pytest.raises(ArgumentError, match="1 gradients"):
        layer(x).sum().backward()

    class Dicts(nn.Module):
        def forward(self, x: Any) -> Any:
            return {"x": x}

    module = Dicts()
    module.register_full_backward_hook(lambda m, gi, go: None)
    with pytest.warns(UserWarning, match="not called in backward"):
        module(x)


# -- states ------------------------------------------------------------------------------------------------------


@both
def test_state_hooks(lib: str) -> None:
    net, calls = net_of(library(lib)), []
    net[0].register_state_dict_pre_hook(lambda m, prefix, keep: calls.append((prefix, keep)))

    def drop(m: Any, state: Any, prefix: str, meta: Any) -> None:
        del state[f"{prefix}bias"]

    net[0].register_state_dict_post_hook(drop)
    saved = net.state_dict(prefix="net.")
    assert calls == [("net.0.", False)]
    assert list(saved) == ["net.0.weight", "net.2.weight", "net.2.bias"]

    def rename(m: Any, state: Any, prefix: str, *others: Any) -> None:
        if f"{prefix}old" in state:
            state[f"{prefix}bias"] = state.pop(f"{prefix}old")

    net = net_of(library(lib))
    net[2].register_load_state_dict_pre_hook(rename)
    state = dict(net.state_dict())
    state["2.old"] = state.pop("2.bias") + 1
    net.load_state_dict(state)
    assert net[2].bias.tolist() == state["2.old"].tolist()
    net.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    del state["0.bias"]
    result = net.load_state_dict(state)
    assert result.missing_keys == []


def test_a_state_hook_may_refuse() -> None:
    net = net_of(alpha)
    net[0].register_load_state_dict_pre_hook(lambda m, s, p, meta, strict, missing, extra, errors: errors.append("old"))
    with pytest.raises(CheckpointError, match="hooks accept, got: old; nothing was loaded"):
        net.load_state_dict(net.state_dict())
    net = net_of(alpha)
    net.register_load_state_dict_post_hook(lambda m, keys: None)
    with pytest.raises(CheckpointError, match=r"missing: 0\.weight"):
        net.load_state_dict({})
    assert net.state_dict(keep_vars=True)["0.weight"] is net[0].weight


# -- introspection -----------------------------------------------------------------------------------------------


@both
def test_parts_by_name(lib: str) -> None:
    library_ = library(lib)
    net = net_of(library_)
    net.add_module("same", net[0])
    net.register_module("none", None)
    net.register_buffer("count", library_.zeros(1))
    net.register_buffer("hidden", library_.zeros(1), persistent=False)
    assert net.get_submodule("0") is net[0] and net.get_submodule("") is net
    assert net.get_parameter("2.bias") is net[2].bias and net.get_buffer("count") is net.count
    assert [name for name, _ in net.named_modules()] == ["", "0", "1", "2"]
    assert [name for name, _ in net.named_modules(remove_duplicate=False)] == ["", "0", "1", "2", "same"]
    memo = {net[1]}
    assert [name for name, _ in net.named_modules(memo, "net")] == ["net", "net.0", "net.2"] and net[0] in memo
    assert [name for name, _ in net.named_parameters("p")] == ["p.0.weight", "p.0.bias", "p.2.weight", "p.2.bias"]
    assert len(list(net.named_parameters(remove_duplicate=False))) == 6
    assert [name for name, _ in net.named_buffers()] == ["count", "hidden"]
    assert next(iter(net.state_dict())) == "count" and "hidden" not in net.state_dict()
    assert [name for name, part in net._modules.items() if part is not None] == ["0", "1", "2", "same"]
    assert list(net[0]._parameters) == ["weight", "bias"] and list(net._buffers) == ["count", "hidden"]
    for name in ("3", "0.weight", "0.nothing", "none"):
        with pytest.raises(AttributeError):
            net.get_submodule(name)
    for call in (lambda: net.get_parameter("count"), lambda: net.get_buffer("0.weight")):
        with pytest.raises(AttributeError):
            call()


@both
def test_parts_are_set_and_deleted_by_name(lib: str) -> None:
    library_ = library(lib)
    net = net_of(library_)
    for name, part in net._modules.items():
        if isinstance(part, library_.nn.Tanh):
            net._modules[name] = library_.nn.ReLU()
    assert isinstance(net[1], library_.nn.ReLU) and len(net._modules) == 3
    del net._modules["1"]
    net._modules["last"] = library_.nn.Tanh()
    net._buffers["mean"] = library_.zeros(2)
    net[0]._parameters["bias"] = library_.nn.Parameter(library_.ones(3))
    assert net.last(net[0](library_.zeros(1, 2))).shape == (1, 3) and "mean" in dict(net.named_buffers())
    assert net[0].bias.tolist() == [1, 1, 1] and "weight" in net[0]._parameters


def test_parts_refuse_another_kind() -> None:
    net = net_of(alpha)
    with pytest.raises(ArgumentError, match="which is another attribute"):
        net[0]._modules["weight"] = nn.ReLU()
    with pytest.raises(KeyError):
        del net._modules["9"]


def test_missing_parts_say_what_is_there() -> None:
    with pytest.raises(PartError, match=r"expected the name of a Module, got '0\.bias': 'bias' is a Param"):
        net_of(alpha).get_submodule("0.bias")


@both
def test_gradients_are_dropped_or_zeroed(lib: str) -> None:
    library_ = library(lib)
    net = net_of(library_)
    net(library_.ones(1, 2)).sum().backward()
    grad = net[0].weight.grad
    net.zero_grad(set_to_none=False)
    assert net[0].weight.grad is grad and not grad.any()
    net.zero_grad()
    assert net[0].weight.grad is None


def test_a_child_is_replaced_by_modules_alone() -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    net.child = nn.ReLU()
    with pytest.raises(ArgumentError, match="expected a Module or None for child, got a function"):
        net.child = lambda x: x  # type: ignore[assignment]
    net.child = None  # type: ignore[assignment]


@pytest.mark.needs("torch")
def test_reprs_are_pytorchs() -> None:
    import torch

    def build(lib: Any) -> list[Any]:
        n = lib.nn
        return [
            n.ModuleList([n.Linear(1, 2), n.Linear(1, 2), n.ReLU(), n.Linear(1, 2)]),
            n.ModuleList(),
            n.ModuleDict({"a": n.Dropout(0.3), "b": n.LayerNorm(3)}),
            n.LayerNorm((2, 3), bias=False),
            n.LSTM(2, 3, 2, bias=False, batch_first=True, dropout=0.1, bidirectional=True, proj_size=1),
        ]

    for ours, theirs in zip(build(alpha), build(torch), strict=True):
        assert repr(ours) == repr(theirs)
