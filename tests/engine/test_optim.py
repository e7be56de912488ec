"""Optimizers: float64 definitions, PyTorch step by step, groups, state, versions, clipping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpha
from alpha import optim
from alpha.cpu.engine import CPUEngine
from alpha.engine import IMAGE_ORDER, Engine
from alpha.errors import ArgumentError, CheckpointError, DtypeError, EngineError, GraphError, NumericsError, ShapeError
from tests.tiers import FLOAT_NAMES

Array = np.ndarray[Any, Any]
# Odd shapes: no axes, nothing in them, several tasks of the CPU engine, a filter.
SHAPES = [(3,), (5, 7), (6, 3, 3, 33), (), (40000,), (0, 4)]

CASES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "dampening": 0.5}),
    ("Adam", {}),
    ("Adam", {"lr": 0.1, "betas": (0.8, 0.99), "eps": 1e-3, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.5}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"lr": 0.1, "alpha": 0.9, "eps": 1e-2, "weight_decay": 0.1, "momentum": 0.9, "centered": True}),
]
case = pytest.mark.parametrize(("kind", "options"), CASES)


class Sgd:
    """The definition for one parameter, in float64."""

    def __init__(self, lr=1e-3, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False):  # type: ignore[no-untyped-def]
        self.lr, self.momentum, self.dampening, self.decay, self.nesterov = (
            lr,
            momentum,
            dampening,
            weight_decay,
            nesterov,
        )
        self.b: Any = None

    def __call__(self, p: Array, g: Array) -> Array:
        g = g + self.decay * p
        self.b = g if self.b is None else self.momentum * self.b + (1 - self.dampening) * g
        move = g if self.momentum == 0 else g + self.momentum * self.b if self.nesterov else self.b
        return p - self.lr * move


class Adam:
    decoupled = False

    def __init__(self, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):  # type: ignore[no-untyped-def]
        self.lr, self.betas, self.eps, self.decay = lr, betas, eps, weight_decay
        self.m: Any = 0.0
        self.v: Any = 0.0
        self.t = 0

    def __call__(self, p: Array, g: Array) -> Array:
        (b1, b2), self.t = self.betas, self.t + 1
        p = p - self.lr * self.decay * p if self.decoupled else p
        g = g if self.decoupled else g + self.decay * p
        self.m, self.v = b1 * self.m + (1 - b1) * g, b2 * self.v + (1 - b2) * g * g
        corrected = np.sqrt(self.v / (1 - b2**self.t)) + self.eps
        return p - self.lr * (self.m / (1 - b1**self.t)) / corrected


class AdamW(Adam):
    decoupled = True

    def __init__(self, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):  # type: ignore[no-untyped-def]
        super().__init__(lr, betas, eps, weight_decay)


class RmsProp:
    def __init__(self, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):  # type: ignore[no-untyped-def]
        self.lr, self.alpha, self.eps, self.decay = lr, alpha, eps, weight_decay
        self.momentum, self.centered = momentum, centered
        self.v: Any = 0.0
        self.b: Any = 0.0
        self.mean: Any = 0.0

    def __call__(self, p: Array, g: Array) -> Array:
        g = g + self.decay * p
        self.v = self.alpha * self.v + (1 - self.alpha) * g * g
        self.mean = self.alpha * self.mean + (1 - self.alpha) * g
        spread = self.v - self.mean**2 if self.centered else self.v
        self.b = self.momentum * self.b + g / (np.sqrt(spread) + self.eps)
        return p - self.lr * self.b


DEFINITIONS: dict[str, Callable[..., Any]] = {"SGD": Sgd, "Adam": Adam, "AdamW": AdamW, "RMSprop": RmsProp}


def leaf(engine: Engine, values: Array, order: tuple[int, ...] | None = None) -> alpha.Tensor:
    """A parameter in a memory order."""
    out = engine.empty(values.shape, values.dtype, order)
    engine.copy(engine.from_numpy(values), out)
    return out.requires_grad_()


def make(kind: str, params: Any, options: dict[str, Any]) -> optim.Optimizer:
    made: optim.Optimizer = getattr(optim, kind)(params, **options)
    return made


def values(tensor: alpha.Tensor) -> Array:
    return np.array(tensor.detach().numpy())


def compare(ours: list[alpha.Tensor], expected: list[Array]) -> None:
    for param, want in zip(ours, expected, strict=True):
        # float64: rounding of some tens of operations per step on numbers around 1, amplified by the 1/sqrt(v) of
        # near-zero gradients. float32 in the same proportion (its eps is 2**29 times as large).
        tolerance = 1e-12 if param.dtype == np.float64 else 3e-5
        np.testing.assert_allclose(values(param), want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@case
def test_twenty_steps_follow_the_definition(
    engine: Engine, rng: np.random.Generator, kind: str, options: dict[str, Any], dtype: str
) -> None:
    start = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    params = [leaf(engine, a) for a in start]
    optimizer = make(kind, params, options)
    rules = [DEFINITIONS[kind](**options) for _ in start]
    expected = [a.astype(np.float64) for a in start]
    for step in range(20):
        for i, param in enumerate(params):
            if i == 1 and step % 3 == 1:  # a parameter without a gradient stays, and its step count with it
                param.grad = None
                continue
            grad = rng.standard_normal(param.shape).astype(dtype)
            param.grad = engine.from_numpy(grad)
            expected[i] = rules[i](expected[i], grad.astype(np.float64))
        assert optimizer.step() is optimizer
        compare(params, expected)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("dtype", FLOAT_NAMES)
@case
def test_twenty_steps_follow_pytorch(
    engine: Engine, rng: np.random.Generator, kind: str, options: dict[str, Any], dtype: str
) -> None:
    import torch

    start = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    ours = [leaf(engine, a) for a in start]
    theirs = [torch.nn.Parameter(torch.tensor(a)) for a in start]
    optimizer = make(kind, [{"params": ours[:3]}, {"params": ours[3:], "lr": 0.03, "weight_decay": 0.2}], options)
    groups = [{"params": theirs[:3]}, {"params": theirs[3:], "lr": 0.03, "weight_decay": 0.2}]
    reference = getattr(torch.optim, kind)(groups, **options)
    for step in range(20):
        for i, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            grad = rng.standard_normal(our.shape).astype(dtype)
            skip = i == 1 and step % 3 == 1
            our.grad = None if skip else engine.from_numpy(grad)
            their.grad = None if skip else torch.tensor(grad)
        optimizer.step()
        reference.step()
        compare(ours, [p.detach().numpy() for p in theirs])


@case
def test_results_do_not_depend_on_memory_order(
    engine: Engine, rng: np.random.Generator, kind: str, options: dict[str, Any]
) -> None:
    start = rng.standard_normal((3, 4, 5, 6))
    orders = [None, IMAGE_ORDER, (3, 2, 1, 0)]
    params = [leaf(engine, start, order) for order in orders]
    wide = leaf(engine, np.zeros((3, 4, 5, 12))).detach()
    gappy = wide.strided(0, start.shape, (*wide.strides[:3], 2))  # every second element: not dense
    engine.copy(engine.from_numpy(start), gappy)
    params.append(gappy.requires_grad_())
    optimizer = make(kind, params, options)
    for _ in range(3):
        grad = rng.standard_normal(start.shape)
        for i, param in enumerate(params):
            param.grad = leaf(engine, grad, orders[(i + 1) % 3]).detach()
        optimizer.step()
    for param in params[1:]:
        assert np.array_equal(values(param), values(params[0]))
    assert not values(wide)[..., 1::2].any()  # what lies between the elements is untouched


def test_results_do_not_depend_on_the_number_of_threads(cpu: CPUEngine, rng: np.random.Generator) -> None:
    start = rng.standard_normal(100_003).astype(np.float32)
    grad = rng.standard_normal(start.shape).astype(np.float32)
    before = cpu.threads
    results = []
    try:
        for threads in {1, before}:
            cpu.configure(threads=threads)
            param = leaf(cpu, start)
            optimizer = optim.Adam([param])
            for _ in range(3):
                param.grad = cpu.from_numpy(grad)
                optimizer.step()
            results.append(values(param).tobytes())
    finally:
        cpu.configure(threads=before)
    assert len(set(results)) == 1


@case
def test_in_place_writes_raise_the_version(engine: Engine, kind: str, options: dict[str, Any]) -> None:
    param = leaf(engine, np.ones(5, np.float32))
    other = leaf(engine, np.ones(5, np.float32))
    optimizer = make(kind, [param, other], options)
    loss = (param * param).sum()
    param.grad = engine.from_numpy(np.ones(5, np.float32))
    before = param.version, other.version, param.grad.version
    optimizer.step()
    assert param.version > before[0] and other.version == before[1] and param.grad.version == before[2]
    with pytest.raises(GraphError, match="overwrote"):
        loss.backward()
    state = [t for t in optimizer.state.get(param, {}).values() if isinstance(t, alpha.Tensor)]
    versions = [t.version for t in state]
    optimizer.step()
    assert all(t.version > v for t, v in zip(state, versions, strict=True))


def test_zero_grad_drops_or_clears(engine: Engine) -> None:
    param = leaf(engine, np.ones(3, np.float32))
    optimizer = optim.SGD([param])
    param.grad = engine.from_numpy(np.ones(3, np.float32))
    assert optimizer.zero_grad(set_to_none=False) is optimizer
    assert param.grad is not None and not param.grad.numpy().any()
    optimizer.step().zero_grad()
    assert param.grad is None


def test_a_step_without_gradients_changes_nothing(engine: Engine) -> None:
    param = leaf(engine, np.ones(3, np.float32))
    optimizer = optim.Adam([param], weight_decay=0.5).step()
    assert values(param).tolist() == [1, 1, 1] and param.version == 0 and optimizer.state == {}


def test_training_goes_downhill(engine: Engine, rng: np.random.Generator) -> None:
    target = engine.from_numpy(rng.standard_normal((4, 3)).astype(np.float32))
    for optimizer_type in (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop):
        param = leaf(engine, np.zeros((4, 3), np.float32))
        optimizer = optimizer_type([param], lr=0.05)  # type: ignore[operator]
        losses = []
        for _ in range(60):
            loss = ((param - target) * (param - target)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.2 * losses[0]


# -- groups and arguments ----------------------------------------------------------------------------------------------


def test_groups_have_their_own_options(engine: Engine) -> None:
    first, second = (leaf(engine, np.zeros(2)) for _ in range(2))
    optimizer = optim.SGD([{"params": [first]}, {"params": second, "lr": 2.0}], lr=1.0)
    for param in (first, second):
        param.grad = engine.from_numpy(np.ones(2))
    optimizer.step()
    assert values(first).tolist() == [-1, -1] and values(second).tolist() == [-2, -2]
    assert optimizer.param_groups[1]["momentum"] == 0.0


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_defaults_are_pytorchs(engine: Engine, kind: str) -> None:
    import torch

    ours = make(kind, [leaf(engine, np.zeros(1))], {}).defaults
    theirs = getattr(torch.optim, kind)([torch.nn.Parameter(torch.zeros(1))]).defaults
    assert ours == {key: theirs[key] for key in ours}


BAD_ARGUMENTS: list[tuple[str, Callable[[alpha.Tensor], Any], type[Exception], str]] = [
    ("none", lambda p: optim.SGD([]), ArgumentError, r"^\[SGD\] expected parameters, got none"),
    ("twice", lambda p: optim.SGD([p, p]), ArgumentError, r"^\[SGD\] expected each parameter once, .*\(2, 3\) twice"),
    (
        "in two groups",
        lambda p: optim.SGD([{"params": [p]}, {"params": [p]}]),
        ArgumentError,
        r"^\[SGD\] expected each parameter once",
    ),
    ("misspelt", lambda p: optim.SGD([{"params": [p], "momentun": 1}]), ArgumentError, r"got momentun: write momentum"),
    ("no params", lambda p: optim.SGD([{"lr": 1}]), ArgumentError, r"^\[SGD\] expected a parameter group"),
    ("negative lr", lambda p: optim.Adam([p], lr=-1), ArgumentError, r"^\[Adam\] expected lr >= 0, got -1"),
    ("nan lr", lambda p: optim.Adam([p], lr=math.nan), ArgumentError, r"^\[Adam\] expected lr >= 0, got nan"),
    ("text lr", lambda p: optim.Adam([p], lr="fast"), ArgumentError, r"^\[Adam\] expected lr >= 0, got 'fast'"),
    ("beta", lambda p: optim.AdamW([p], betas=(0.9, 1.0)), ArgumentError, r"^\[AdamW\] expected betas in \[0, 1\)"),
    ("one beta", lambda p: optim.Adam([p], betas=0.9), ArgumentError, r"^\[Adam\] expected betas as a pair"),
    ("eps", lambda p: optim.Adam([p], eps=-1e-8), ArgumentError, r"^\[Adam\] expected eps >= 0"),
    ("decay", lambda p: optim.SGD([p], weight_decay=-1), ArgumentError, r"^\[SGD\] expected weight_decay >= 0"),
    ("nesterov", lambda p: optim.SGD([p], nesterov=True), ArgumentError, r"^\[SGD\] expected momentum > 0"),
    ("momentum", lambda p: optim.SGD([p], momentum=-0.5), ArgumentError, r"^\[SGD\] expected momentum >= 0"),
    ("alpha", lambda p: optim.RMSprop([p], alpha=-0.5), ArgumentError, r"^\[RMSprop\] expected alpha >= 0"),
    ("not a leaf", lambda p: optim.SGD([p * 2]), GraphError, r"^\[SGD\] expected leaf tensors"),
    ("array", lambda p: optim.SGD([np.zeros(3)]), ArgumentError, r"^\[SGD\] expected float tensors .*, got ndarray"),
    ("ints", lambda p: optim.SGD([p.long()]), ArgumentError, r"^\[SGD\] expected float tensors .*, got int64"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "message"), [b[1:] for b in BAD_ARGUMENTS], ids=[b[0] for b in BAD_ARGUMENTS]
)
def test_wrong_arguments_say_so(
    engine: Engine, call: Callable[[alpha.Tensor], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        call(leaf(engine, np.zeros((2, 3))))
    assert "\n" not in str(caught.value)


def test_a_wrong_group_is_not_added(engine: Engine) -> None:
    optimizer = optim.SGD([leaf(engine, np.zeros(2))])
    with pytest.raises(ArgumentError):
        optimizer.add_param_group({"params": [leaf(engine, np.zeros(2))], "lr": -1})
    assert len(optimizer.param_groups) == 1


def test_wrong_gradients_are_refused_before_a_pointer_is_followed(engine: Engine) -> None:
    one, two = leaf(engine, np.ones((2, 3))), leaf(engine, np.ones((2, 3)))
    optimizer = optim.SGD([one, two])
    one.grad = engine.from_numpy(np.ones((2, 3)))
    for wrong, error in ((np.ones((3, 2)), ShapeError), (np.ones((2, 3), np.float32), DtypeError)):
        two.grad = engine.from_numpy(wrong)
        with pytest.raises(error):
            optimizer.step()
        assert values(one).tolist() == np.ones((2, 3)).tolist()  # not even the sound one moved
    two.grad = CPUEngine(memory="64MB").from_numpy(np.ones((2, 3)))
    with pytest.raises(EngineError):
        optimizer.step()


# -- state -------------------------------------------------------------------------------------------------------------


def train(engine: Engine, params: list[alpha.Tensor], optimizer: optim.Optimizer, seed: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        for param in params:
            param.grad = engine.from_numpy(rng.standard_normal(param.shape).astype(param.dtype))
        optimizer.step()


@case
def test_a_loaded_optimizer_goes_on_to_the_bit(engine: Engine, kind: str, options: dict[str, Any]) -> None:
    start = np.ones((2, 3, 4, 5), np.float32)
    first = [leaf(engine, start, IMAGE_ORDER), leaf(engine, start[0])]
    saved = make(kind, [{"params": first[:1]}, {"params": first[1:], "lr": 0.5}], options)
    train(engine, first, saved, 0, 3)
    # The other stores its parameters in another memory order and has other options: all come from the state.
    second = [leaf(engine, values(first[0])), leaf(engine, values(first[1]))]
    loaded = make(kind, [{"params": second[:1]}, {"params": second[1:]}], {**options, "lr": 0.7})
    assert loaded.load_state_dict(saved.state_dict()) is loaded
    assert [g["lr"] for g in loaded.param_groups] == [g["lr"] for g in saved.param_groups]
    train(engine, first, saved, 1, 3)
    train(engine, second, loaded, 1, 3)
    for a, b in zip(first, second, strict=True):
        assert values(a).tobytes() == values(b).tobytes()


def test_loading_copies(engine: Engine) -> None:
    params = [leaf(engine, np.ones(3))]
    saved = optim.Adam(params)
    train(engine, params, saved, 0, 1)
    loaded = optim.Adam(params)
    loaded.load_state_dict(saved.state_dict())
    train(engine, params, saved, 0, 1)
    assert loaded.state[params[0]]["step"] == 1
    assert not np.array_equal(values(loaded.state[params[0]]["exp_avg"]), values(saved.state[params[0]]["exp_avg"]))


def test_a_state_that_does_not_fit_changes_nothing(engine: Engine) -> None:
    params = [leaf(engine, np.ones(3)), leaf(engine, np.ones((2, 2)))]
    optimizer = optim.Adam(params, lr=0.1)
    train(engine, params, optimizer, 0, 2)
    good = optimizer.state_dict()
    moments = {**good["state"][0], "exp_avg": engine.from_numpy(np.ones(4))}
    group = good["param_groups"][0]
    wrong: list[tuple[Any, str]] = [
        (None, "expected a state_dict of state and param_groups"),
        ({**good, "optimizer": "SGD"}, "expected the state of Adam, got that of SGD"),
        ({**good, "param_groups": [{**group, "params": [0]}]}, r"expected groups of \[2\] parameters, got \[1\]"),
        ({**good, "param_groups": [{**group, "lr": -1.0}]}, "expected options in range"),
        ({**good, "param_groups": [{**group, "zeta": 1.0}]}, "expected the options"),
        ({**good, "state": {0: moments}}, r"expected exp_avg of shape \(3,\), got \(4,\)"),
        ({**good, "state": {0: {"momentum": good["state"][0]["exp_avg"]}}}, "expected a state of exp_avg"),
    ]
    for state, message in wrong:
        with pytest.raises(CheckpointError, match=rf"^\[Adam.load_state_dict\] .*{message}") as caught:
            optimizer.load_state_dict(state)
        assert "\n" not in str(caught.value)
        assert optimizer.param_groups[0]["lr"] == 0.1 and optimizer.state[params[0]]["step"] == 2


# -- clipping ----------------------------------------------------------------------------------------------------------


def with_gradients(engine: Engine, rng: np.random.Generator, scale: float = 1.0) -> list[alpha.Tensor]:
    params = [leaf(engine, np.zeros(shape)) for shape in [(3,), (4, 5), (), (0, 2), (7,)]]
    for param in params[:-1]:
        param.grad = engine.from_numpy(scale * rng.standard_normal(param.shape))
    return params


def flat(params: list[alpha.Tensor]) -> Array:
    return np.concatenate([p.grad.numpy().reshape(-1) for p in params if p.grad is not None])


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.5, math.inf])
@pytest.mark.parametrize("share", [0.3, 1.7])
def test_clip_grad_norm(engine: Engine, rng: np.random.Generator, norm_type: float, share: float) -> None:
    params = with_gradients(engine, rng)
    before = flat(params).copy()
    norm = np.linalg.norm(before, norm_type)
    total = optim.clip_grad_norm_(params, share * norm, norm_type)
    assert total == pytest.approx(norm, rel=1e-12)
    scale = min(1.0, share * norm / (norm + 1e-6))
    np.testing.assert_allclose(flat(params), before * scale, rtol=1e-12)


@pytest.mark.needs("torch")
def test_clip_grad_norm_is_pytorchs(engine: Engine, rng: np.random.Generator) -> None:
    import torch

    for norm_type in (2.0, 1.0, math.inf):
        params = with_gradients(engine, rng)
        theirs = [torch.nn.Parameter(torch.zeros(p.shape, dtype=torch.float64)) for p in params]
        for their, our in zip(theirs, params, strict=True):
            # PyTorch's own infinity norm does not take a tensor without elements.
            their.grad = None if our.grad is None or not our.numel() else torch.tensor(our.grad.numpy().copy())
        ours = optim.clip_grad_norm_(params, 0.7, norm_type)
        expected = torch.nn.utils.clip_grad_norm_(theirs, 0.7, norm_type)
        assert ours == pytest.approx(expected.item(), rel=1e-12)
        np.testing.assert_allclose(
            flat(params), np.concatenate([t.grad.numpy().reshape(-1) for t in theirs if t.grad is not None]), rtol=1e-12
        )


def test_clip_grad_norm_takes_one_tensor_none_and_huge_ones(engine: Engine, rng: np.random.Generator) -> None:
    param = leaf(engine, np.zeros(2))
    assert optim.clip_grad_norm_(param, 1.0) == 0.0
    param.grad = engine.from_numpy(np.array([3.0, 4.0]))
    assert optim.clip_grad_norm_(param, 10.0) == 5.0
    params = with_gradients(engine, rng, 1e150)
    before = np.linalg.norm(flat(params) / 1e150) * 1e150
    assert optim.clip_grad_norm_(params, 1.0) == pytest.approx(before, rel=1e-12)
    assert np.linalg.norm(flat(params)) == pytest.approx(1.0)


def test_norms_that_are_not_finite(engine: Engine) -> None:
    param = leaf(engine, np.zeros(3))
    for bad in (math.nan, math.inf):
        param.grad = engine.from_numpy(np.array([1.0, bad, 2.0]))
        with pytest.raises(NumericsError, match=r"^\[clip_grad_norm_\] expected a finite norm of the gradients, got "):
            optim.clip_grad_norm_([param], 1.0, error_if_nonfinite=True)
        assert param.grad.numpy()[0] == 1
        assert not math.isfinite(optim.clip_grad_norm_([param], 1.0))
        assert not np.isfinite(param.grad.numpy()).all()  # as in PyTorch: the damage stays visible


def test_clip_grad_value(engine: Engine) -> None:
    param = leaf(engine, np.zeros(4))
    param.grad = engine.from_numpy(np.array([-3.0, -0.5, 0.5, 9.0]))
    optim.clip_grad_value_([param, leaf(engine, np.zeros(1))], 1.0)
    assert param.grad.numpy().tolist() == [-1, -0.5, 0.5, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: optim.clip_grad_norm_(p, -1.0), r"^\[clip_grad_norm_\] expected max_norm >= 0, got -1.0"),
        (lambda p: optim.clip_grad_norm_(p, math.nan), r"^\[clip_grad_norm_\] expected max_norm >= 0, got nan"),
        (lambda p: optim.clip_grad_norm_(p, 1.0, 0), r"^\[clip_grad_norm_\] expected norm_type > 0"),
        (lambda p: optim.clip_grad_value_(p, -2), r"^\[clip_grad_value_\] expected clip_value >= 0, got -2"),
    ],
)
def test_clip_arguments(engine: Engine, call: Callable[[alpha.Tensor], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(leaf(engine, np.zeros(2)))
