"""Optimizers' steps, schedules, limits on gradients, and layers by way of the functions that they call."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
from alpha import nn, optim
from tests.robustness.cases import Case, Draw, Input
from tests.robustness.compare import Tolerance
from tests.robustness.record import Record
from tests.robustness.records import layers, pointwise, products, reductions

STEPS = Tolerance(256, 16, 0, "each of a few steps adds its roundings, and divides by a root")

# -- optimizers --------------------------------------------------------------------------------------------------


def steps(kind: str, params: list[Any], grads: list[list[Any]], options: dict[str, Any]) -> None:
    """One step of an optimizer for each list of gradients; the parameters are written in place."""
    optimizer = getattr(optim, kind)(params, **options)
    for step_grads in grads:
        for param, grad in zip(params, step_grads, strict=True):
            param.grad = None if grad is None else grad.clone()
        optimizer.step()


def _steps(kind: str, choose: Callable[[Draw], dict[str, Any]]) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        d.values = "ordinary"
        shapes, dtype = [d.shape(0, 3) for _ in range(d.whole(1, 3))], d.dtype()
        params = [d.input(shape, dtype, written=True, views=0.2, grad=0) for shape in shapes]
        grads = [
            [None if d.chance(0.1) else d.input(shape, dtype, grad=0) for shape in shapes] for _ in range(d.whole(1, 3))
        ]
        return Case([kind, params, grads, choose(d)])

    return draw


def _stepped(kind: str, params: list[Any], grads: list[list[Any]], options: dict[str, Any]) -> None:
    """Parameter by parameter, from the definitions."""
    update = {"SGD": _sgd, "Adam": _adam, "AdamW": _adam, "RMSprop": _rmsprop}[kind]
    for number, param in enumerate(params):
        state: dict[str, Any] = {"step": 0}
        for step_grads in grads:
            if step_grads[number] is not None:
                state["step"] += 1
                param[...] = update(param, step_grads[number], state, {**options, "decoupled": kind == "AdamW"})


def _sgd(p: Any, g: Any, state: dict[str, Any], o: dict[str, Any]) -> Any:
    g = g + o.get("weight_decay", 0) * p
    momentum = o.get("momentum", 0)
    if momentum:
        first = state["step"] == 1
        state["b"] = g if first else momentum * state["b"] + (1 - o.get("dampening", 0)) * g
        g = g + momentum * state["b"] if o.get("nesterov") else state["b"]
    return p - o["lr"] * g


def _adam(p: Any, g: Any, state: dict[str, Any], o: dict[str, Any]) -> Any:
    b1, b2 = o.get("betas", (0.9, 0.999))
    decay, step = o.get("weight_decay", 0.01 if o["decoupled"] else 0.0), state["step"]
    if o["decoupled"]:
        p = p * (1 - o["lr"] * decay)
    else:
        g = g + decay * p
    state["m"] = b1 * state.get("m", 0) + (1 - b1) * g
    state["v"] = b2 * state.get("v", 0) + (1 - b2) * g * g
    return p - o["lr"] * (state["m"] / (1 - b1**step)) / (np.sqrt(state["v"] / (1 - b2**step)) + o.get("eps", 1e-8))


def _rmsprop(p: Any, g: Any, state: dict[str, Any], o: dict[str, Any]) -> Any:
    share = o.get("alpha", 0.99)
    g = g + o.get("weight_decay", 0) * p
    state["v"] = share * state.get("v", 0) + (1 - share) * g * g
    v = state["v"]
    if o.get("centered"):
        state["mean"] = share * state.get("mean", 0) + (1 - share) * g
        v = np.maximum(v - state["mean"] ** 2, 0)
    quotient = g / (np.sqrt(v) + o.get("eps", 1e-8))
    if o.get("momentum"):
        state["b"] = o["momentum"] * state.get("b", 0) + quotient
        quotient = state["b"]
    return p - o["lr"] * quotient


def _peer_steps(torch: Any, kind: str, params: list[Any], grads: list[list[Any]], options: dict[str, Any]) -> None:
    leaves = [p.detach().clone().requires_grad_() for p in params]
    optimizer = getattr(torch.optim, kind)(leaves, **options)
    for step_grads in grads:
        for leaf, grad in zip(leaves, step_grads, strict=True):
            leaf.grad = None if grad is None else grad.clone().to(leaf.dtype)
        optimizer.step()
    for param, leaf in zip(params, leaves, strict=True):
        param.copy_(leaf.detach())


def _sgd_options(d: Draw) -> dict[str, Any]:
    momentum = d.pick((0.0, 0.9))
    options = {"lr": d.pick((0.1, 0.01)), "momentum": momentum, "weight_decay": d.pick((0.0, 0.1))}
    if momentum and d.chance(0.5):
        options["nesterov"] = True
    elif momentum:
        options["dampening"] = d.pick((0.0, 0.5))
    return options


def _adam_options(d: Draw) -> dict[str, Any]:
    # With eps that is small beside gradients, a gradient near 0 turns a rounding into a step.
    return {
        "lr": d.pick((0.1, 0.01)),
        "betas": d.pick(((0.9, 0.999), (0.5, 0.9))),
        "weight_decay": d.pick((0.0, 0.1)),
        "eps": d.pick((1e-3, 1e-2)),
    }


def _rmsprop_options(d: Draw) -> dict[str, Any]:
    return {
        "lr": d.pick((0.1, 0.01)),
        "alpha": d.pick((0.99, 0.5)),
        "momentum": d.pick((0.0, 0.9)),
        "eps": 1e-2,
        "weight_decay": d.pick((0.0, 0.1)),
    }


def rates(kind: str, options: dict[str, Any], count: int) -> list[float]:
    """The learning rates that a scheduler gives an optimizer whose rate is 1."""
    optimizer = optim.SGD([alpha.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = getattr(optim, kind)(optimizer, **options)
    found = []
    for _ in range(count):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return [float(r) for r in found]


def _rates(d: Draw) -> Case:
    kind = d.pick(("StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "LinearLR"))
    options: dict[str, dict[str, Any]] = {
        "StepLR": {"step_size": d.whole(1, 5), "gamma": d.pick((0.1, 0.5))},
        "MultiStepLR": {"milestones": sorted(d.whole(1, 9) for _ in range(d.whole(1, 3))), "gamma": 0.5},
        "ExponentialLR": {"gamma": d.pick((0.5, 0.9))},
        "CosineAnnealingLR": {"T_max": d.whole(1, 9), "eta_min": d.pick((0.0, 0.1))},
        "LinearLR": {
            "start_factor": d.pick((0.2, 1.0)),
            "end_factor": d.pick((1.0, 0.5)),
            "total_iters": d.whole(1, 6),
        },
    }
    return Case([kind, options[kind], d.whole(1, 10)])


def _check_rates(result: Any, case: Case) -> str | None:
    kind, o, count = case.args
    formulas: dict[str, Callable[[int], float]] = {
        "StepLR": lambda t: o["gamma"] ** (t // o["step_size"]),
        "MultiStepLR": lambda t: o["gamma"] ** sum(m <= t for m in o["milestones"]),
        "ExponentialLR": lambda t: o["gamma"] ** t,
        "CosineAnnealingLR": lambda t: o["eta_min"] + (1 - o["eta_min"]) * (1 + math.cos(math.pi * t / o["T_max"])) / 2,
        "LinearLR": lambda t: (
            o["start_factor"] + (o["end_factor"] - o["start_factor"]) * min(t, o["total_iters"]) / o["total_iters"]
        ),
    }
    # A cosine goes down once here; what comes after its end is the schedule's own choice.
    stop = o["T_max"] + 1 if kind == "CosineAnnealingLR" else count
    want = [formulas[kind](t) for t in range(count)][:stop]
    return None if np.allclose(result[:stop], want, rtol=1e-9) else f"rates: {result} instead of {want}"


def clipped(params: list[Any], grads: list[Any], limit: float, kind: float | None) -> None:
    """Limits gradients by norm, or by value where ``kind`` is None; the limited gradients go into the parameters."""
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad.clone()
    if kind is None:
        optim.clip_grad_value_(params, limit)
    else:
        optim.clip_grad_norm_(params, limit, kind)
    for param in params:
        param.copy_(param.grad)


def _clips(d: Draw) -> Case:
    d.values = "ordinary"
    shapes, dtype = [d.shape(0, 3) for _ in range(d.whole(1, 3))], d.dtype()
    params = [d.input(shape, dtype, written=True, views=0, grad=0) for shape in shapes]
    grads = [d.input(shape, dtype, grad=0) for shape in shapes]
    return Case([params, grads, d.pick((0.1, 1.0, 5.0, 0)), d.pick((2.0, 1.0, math.inf, 3.0, None))])


def _clip(params: list[Any], grads: list[Any], limit: float, kind: float | None) -> None:
    if kind is None:
        for param, grad in zip(params, grads, strict=True):
            param[...] = np.clip(grad, -limit, limit)
        return
    flat = np.concatenate([g.reshape(-1) for g in grads])
    total = np.abs(flat).max(initial=0) if kind == math.inf else (np.abs(flat) ** kind).sum() ** (1 / kind)
    for param, grad in zip(params, grads, strict=True):
        param[...] = grad * min(1.0, limit / (total + 1e-6))


def _optimizers() -> list[Record]:
    table = [("SGD", _sgd_options), ("Adam", _adam_options), ("AdamW", _adam_options), ("RMSprop", _rmsprop_options)]
    records = [
        Record(
            f"optim.{kind}", _steps(kind, options), _stepped, _peer_steps, STEPS, gradient=False, call=steps, weight=0.7
        )
        for kind, options in table
    ]
    schedules = ("StepLR", "MultiStepLR", "ExponentialLR", "CosineAnnealingLR", "LinearLR")
    covers = tuple(f"optim.{kind}" for kind in schedules)
    both = ("optim.clip_grad_norm_", "optim.clip_grad_value_")
    records.append(Record("rates", _rates, None, check=_check_rates, call=rates, weight=0.2, covers=covers))
    records.append(Record("clipped", _clips, _clip, None, STEPS, gradient=False, call=clipped, weight=0.4, covers=both))
    return records


# -- layers ------------------------------------------------------------------------------------------------------


def layer(kind: str, build: dict[str, Any], names: list[str], args: list[Any], options: dict[str, Any]) -> Any:
    """A layer made with ``build`` whose parameters ``names`` are the last of ``args``, called with the others.

    ``options`` are those of the function that the layer stands for.
    """
    module = getattr(nn, kind)(**build)
    count = len(args) - len(names)
    with alpha.no_grad():
        for name, value in zip(names, args[count:], strict=True):
            if value is not None:
                getattr(module, name).copy_(value)
    return module(*args[:count])


Build = Callable[[Case], dict[str, Any]]


def _layered(kind: str, base: Record, names: list[str], build: Build) -> Record:
    """The record of a layer, from that of its function."""

    def draw(d: Draw) -> Case:
        case = base.draw(d)
        while any(i.dtype == np.float64 for i in case.inputs()):  # layers are made in float32
            case = base.draw(d)
        args = [*case.args]
        for name in names:
            if name in case.options:
                args.append(case.options.pop(name))
            elif len(args) < len(names) + 1:
                args.append(None)
        for value in args[len(args) - len(names) :] if names else []:
            if isinstance(value, Input):
                value.base.requires_grad = False
        built = build(Case(args, case.options))
        return Case([kind, built, names, args, case.options], {}, case.valid, case.ordinary)

    def oracle(kind: str, build: Any, names: Any, args: Any, options: Any) -> Any:
        assert base.oracle is not None
        return base.oracle(*args, **options)

    def peer(torch: Any, kind: str, build: Any, names: Any, args: Any, options: Any) -> Any:
        assert base.peer is not None
        return base.peer(torch, *args, **options)

    has_peer = base.peer is not None
    return dataclasses.replace(
        base,
        name=f"nn.{kind}",
        draw=draw,
        oracle=oracle,
        peer=peer if has_peer else None,
        call=layer,
        weight=0.3,
        covers=(),
    )


PIECEWISE = (
    "ReLU6", "Hardtanh", "Hardsigmoid", "Hardswish", "ELU", "CELU", "SELU", "Hardshrink", "Softshrink", "Threshold",
    "Mish", "LogSigmoid", "Softsign", "Tanhshrink",
)  # fmt: skip
"""Activation layers whose functions have their names in lower case."""


def _by_name(records: list[Record], name: str) -> Record:
    return next(record for record in records if record.name == name)


def _convolution(case: Case) -> dict[str, Any]:
    x, weight, bias = case.args
    back = "output_padding" in case.options
    groups = case.options["groups"]
    filters = weight.shape[-1] * groups if back else weight.shape[0]
    return {
        "in_channels": x.shape[-1],
        "out_channels": filters,
        "kernel_size": tuple(weight.shape[1:-1]),
        "bias": bias is not None,
        **case.options,
    }


def _options(case: Case) -> dict[str, Any]:
    return dict(case.options)


def _layers() -> list[Record]:
    functional = layers.RECORDS
    records = []
    for axes in (1, 2, 3):
        for name, kind in ((f"conv{axes}d", f"Conv{axes}d"), (f"conv_transpose{axes}d", f"ConvTranspose{axes}d")):
            records.append(
                _layered(kind, _by_name(products.RECORDS, f"alpha.{name}"), ["weight", "bias"], _convolution)
            )
    linear = _by_name(products.RECORDS, "alpha.linear")
    records.append(
        _layered(
            "Linear",
            dataclasses.replace(linear, draw=_whole(products.linear_case)),
            ["weight", "bias"],
            lambda c: {
                "in_features": c.args[1].shape[1],
                "out_features": c.args[1].shape[0],
                "bias": c.args[2] is not None,
            },
        )
    )
    for kind, name in (("MaxPool2d", "max_pool2d"), ("AvgPool2d", "avg_pool2d"), ("Upsample", "interpolate")):
        records.append(_layered(kind, _by_name(functional, f"alpha.{name}"), [], _options))
    activations: list[tuple[str, list[Record], str]] = [
        ("ReLU", pointwise.RECORDS, "relu"),
        ("LeakyReLU", pointwise.RECORDS, "leaky_relu"),
        ("GELU", pointwise.RECORDS, "gelu"),
        ("SiLU", pointwise.RECORDS, "silu"),
        ("Softmax", reductions.RECORDS, "softmax"),
        ("Softmin", reductions.RECORDS, "softmin"),
        ("LogSoftmax", reductions.RECORDS, "log_softmax"),
        ("GLU", pointwise.RECORDS, "glu"),
        ("Softplus", pointwise.RECORDS, "softplus"),
        *((kind, pointwise.RECORDS, kind.lower()) for kind in PIECEWISE),
    ]
    for kind, found, name in activations:
        records.append(_layered(kind, _by_name(found, f"alpha.{name}"), [], _options))
    floats = pointwise.one("f")
    for kind in ("Sigmoid", "Tanh"):
        base = dataclasses.replace(_by_name(pointwise.RECORDS, f"alpha.{kind.lower()}"), draw=floats)
        records.append(_layered(kind, base, [], _options))
    for kind, name in (("MSELoss", "mse_loss"), ("BCEWithLogitsLoss", "binary_cross_entropy_with_logits")):
        base = _by_name(functional, f"alpha.{name}")
        records.append(_layered(kind, dataclasses.replace(base, draw=_without(base.draw, "pos_weight")), [], _options))
    entropy = _by_name(functional, "alpha.cross_entropy")
    records.append(
        _layered("CrossEntropyLoss", dataclasses.replace(entropy, draw=_without(entropy.draw, "weight")), [], _options)
    )
    identity = _by_name(pointwise.RECORDS, "alpha.clone")
    records.append(_layered("Identity", dataclasses.replace(identity, draw=floats), [], _options))
    adaptive = _by_name(functional, "alpha.adaptive_avg_pool2d")
    records.append(dataclasses.replace(_adaptive(adaptive), weight=0.2))
    return records


def _adaptive(base: Record) -> Record:
    def draw(d: Draw) -> Case:
        x, size = base.draw(d).args
        return Case(["AdaptiveAvgPool2d", {"output_size": size}, [], [x], {}])

    def oracle(kind: str, build: Any, names: Any, args: Any, options: Any) -> Any:
        return layers.adaptive(args[0], build["output_size"])

    return dataclasses.replace(
        base, name="nn.AdaptiveAvgPool2d", draw=draw, oracle=oracle, peer=None, call=layer, covers=()
    )


def _without(draw: Callable[[Draw], Case], *names: str) -> Callable[[Draw], Case]:
    def drawn(d: Draw) -> Case:
        case = draw(d)
        for name in names:
            case.options.pop(name, None)
        return case

    return drawn


def _whole(draw: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    """Cases without empty axes, which layers refuse."""

    def drawn(d: Draw) -> Case:
        case = draw(d)
        while any(0 in i.shape for i in case.inputs()):
            case = draw(d)
        return case

    return drawn


RECORDS = [*_optimizers(), *_layers()]
