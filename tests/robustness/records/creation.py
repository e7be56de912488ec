"""Tensors made from shapes and numbers; random numbers; initialisation of weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.robustness.cases import Case, Draw
from tests.robustness.record import Record

FLOATS = ("float32", "float64")


def _sized(dtypes: tuple[str, ...] | None) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        shape = d.shape()
        options = {"dtype": d.pick(dtypes)} if dtypes is not None and d.chance(0.7) else {}
        return Case([shape] if d.chance(0.5) else list(shape), options)

    return draw


def _shape(shape: tuple[Any, ...]) -> Any:
    return shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape


def _constant(value: int) -> Callable[..., Any]:
    return lambda *shape, dtype="float32": np.full(_shape(shape), value, dtype)


def _given(case: Case) -> str | None:
    dtype = case.options.get("dtype")
    return None if dtype is None else str(dtype)


def _full(d: Draw) -> Case:
    options = {"dtype": d.pick(FLOATS)} if d.chance(0.4) else {}
    return Case([d.shape(), d.number("fib")], options)


def _fulled(shape: Any, value: Any, dtype: str | None = None) -> Any:
    kind = dtype or ("bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32")
    return np.full(shape, value, kind)


def _full_kind(case: Case) -> str | None:
    return _given(case) or (None if isinstance(case.args[1], bool | int) else "float32")


def _like(value: bool) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        x = d.input(d.shape(), d.dtype("fib"))
        number = d.number("f") if x.dtype.kind == "f" else d.whole(0, 1)
        return Case([x, number] if value else [x], {"dtype": d.pick(FLOATS)} if d.chance(0.3) else {})

    return draw


def _filled(x: Any, value: Any, dtype: str | None = None) -> Any:
    return np.full(x.shape, value, dtype or x.dtype)


def _arange(d: Draw) -> Case:
    form = d.whole(0, 3)
    if form == 0:
        return Case([d.whole(-3, 60)])
    if form == 1:
        return Case([d.whole(-9, 9), d.whole(-9, 60), d.pick((1, 2, 3, -1, -4))])
    if form == 2:
        return Case([d.whole(-9, 9), d.whole(-9, 60)], {"dtype": d.pick(("int32", "int64", "float32", "float64"))})
    return Case([d.whole(-4, 4) / 2, d.whole(-4, 40) / 2, d.pick((0.5, 0.25, 1.5, -0.5))])


def _aranged(*args: Any, dtype: str | None = None) -> Any:
    floats = any(isinstance(a, float) for a in args)
    return np.arange(*args).astype(dtype or ("float32" if floats else "int64"))


def _eye(d: Draw) -> Case:
    args = [d.length()] if d.chance(0.5) else [d.length(), d.length()]
    return Case([min(a, 40) for a in args], {"dtype": d.pick((*FLOATS, "int64", "bool"))} if d.chance(0.5) else {})


def _tensor(d: Draw) -> Case:
    array = d.array(d.shape(), d.dtype("fib"))
    form = d.whole(0, 3)
    if form == 0:
        array = np.asfortranarray(array)
    elif form == 1 and array.ndim:
        array = array[::-1]
    elif form == 2 and array.ndim:
        array = np.broadcast_to(array, (2, *array.shape))
    return Case([array])


# -- random ------------------------------------------------------------------------------------------------------


def _check_random(low: float, high: float, mean: float, std: float) -> Callable[[Any, Case], str | None]:
    def check(result: Any, case: Case) -> str | None:
        shape = case.args[0] if len(case.args) == 1 and isinstance(case.args[0], tuple) else tuple(case.args)
        array = np.asarray(result)
        wanted = case.options.get("dtype", "float32")
        if array.shape != shape or array.dtype.name != wanted:
            return f"shape or dtype: {array.shape} {array.dtype} instead of {shape} {wanted}"
        return _outside(array, low, high, mean, std)

    return check


def _outside(array: Any, low: float, high: float, mean: float, std: float) -> str | None:
    if not array.size:
        return None
    rounding = 4 * float(np.finfo(np.float32).eps) * max(abs(low), abs(high), abs(mean))
    if not (np.isfinite(array).all() and array.min() >= low - rounding and array.max() <= high + rounding):
        return f"outside the range: {array.min()}..{array.max()}, not {low}..{high}"
    if array.size > 50 and abs(float(array.mean()) - mean) > 7 * std / math.sqrt(array.size) + rounding:
        return f"mean: {array.mean()} of {array.size} numbers"
    return None


def _bounded(d: Draw) -> Case:
    low = round(d.py.uniform(-3, 3), 3)
    return Case([d.shape(), low, low + round(d.py.uniform(0, 3), 3)], {"dtype": d.pick(FLOATS)})


def _check_bounded(result: Any, case: Case) -> str | None:
    shape, low, high = case.args
    if result.shape != shape or result.dtype.name != case.options["dtype"]:
        return f"shape or dtype: {result.shape} {result.dtype}"
    return _outside(result, low, high, (low + high) / 2, high - low)


def _normal(d: Draw) -> Case:
    return Case([d.shape(), round(d.py.uniform(-3, 3), 3), d.pick((0.0, 1.0, 2.5))], {"dtype": d.pick(FLOATS)})


def _check_normal(result: Any, case: Case) -> str | None:
    shape, mean, std = case.args
    if result.shape != shape or result.dtype.name != case.options["dtype"]:
        return f"shape or dtype: {result.shape} {result.dtype}"
    return _outside(result, mean - 10 * std, mean + 10 * std, mean, std)


def _check_permutation(result: Any, case: Case) -> str | None:
    result = np.asarray(result)
    right = result.dtype == np.int64 and np.array_equal(np.sort(result), np.arange(case.args[0]))
    return None if right else f"no permutation: {result}"


def _spaced(d: Draw) -> Case:
    options = {"dtype": d.pick(FLOATS)} if d.chance(0.5) else {}
    return Case([d.whole(-4, 4) / 2, d.whole(-4, 8) / 2, d.whole(0, 40)], options)


def _spaces(of: Callable[..., Any]) -> Callable[..., Any]:
    return lambda start, end, steps, dtype="float32": of(start, end, steps).astype(dtype)


def _check_like(low: float, high: float, mean: float, std: float) -> Callable[[Any, Case], str | None]:
    def check(result: Any, case: Case) -> str | None:
        x, array = case.args[0], np.asarray(result)
        if array.shape != x.shape or array.dtype != x.dtype:
            return f"shape or dtype: {array.shape} {array.dtype}"
        return _outside(array, low, high, mean, std)

    return check


def _whole_numbers(d: Draw) -> Case:
    low = d.whole(-5, 5)
    return Case([low, low + d.whole(1, 200), d.shape()], {"dtype": d.pick(("int64", "int32", "float32"))})


def _check_whole_numbers(result: Any, case: Case) -> str | None:
    low, high, shape = case.args
    array = np.asarray(result)
    if array.shape != shape or array.dtype.name != case.options["dtype"] or (array != np.floor(array)).any():
        return f"shape, dtype or fractions: {array.shape} {array.dtype}"
    return _outside(array.astype(np.float64), low, high - 1, (low + high - 1) / 2, high - low)


def _weights(d: Draw) -> Case:
    d.values = "ordinary"
    count = d.whole(1, 12)
    shape = (count,) if d.chance(0.5) else (d.whole(1, 4), count)
    replaced = d.chance(0.5)
    samples = d.whole(1, 9 if replaced else count)
    return Case([d.input(shape, d.dtype(), "positive", grad=0), samples], {"replacement": replaced})


def _check_weights(result: Any, case: Case) -> str | None:
    array, (x, samples) = np.asarray(result), case.args
    if array.shape != (*x.shape[:-1], samples) or array.dtype != np.int64:
        return f"shape or dtype: {array.shape} {array.dtype}"
    if array.min() < 0 or array.max() >= x.shape[-1]:
        return f"no index: {array.min()}..{array.max()}"
    rows = array.reshape(-1, samples)
    twice = not case.options["replacement"] and any(len(set(row)) < samples for row in rows.tolist())
    return "an index comes twice" if twice else None


def _probabilities(d: Draw) -> Case:
    d.values = "ordinary"
    x = d.input(d.shape(), d.dtype(), "positive", grad=0, views=0)
    x.base.array[...] = np.clip(x.base.array, 0, 1)
    return Case([x])


def _drawn() -> list[Record]:
    """Random numbers beside those of ``rand`` and ``randn``, and numbers at equal distances."""

    def same(d: Draw) -> Case:
        return Case([d.input(d.shape(), d.dtype(), grad=0)])

    def normal(d: Draw) -> Case:
        return Case([round(d.py.uniform(-3, 3), 3), d.pick((0.0, 1.0, 2.5)), d.shape()], {"dtype": d.pick(FLOATS)})

    def check_normal(result: Any, case: Case) -> str | None:
        mean, std, shape = case.args
        return _check_normal(np.asarray(result), Case([shape, mean, std], case.options))

    def whole_like(d: Draw) -> Case:
        return Case([d.input(d.shape(), d.dtype(), grad=0), 100])

    def spaced(name: str, exact: Callable[..., Any]) -> Record:
        def peer(torch: Any, *args: Any, dtype: str = "float32") -> Any:
            return getattr(torch, name)(*args, dtype=getattr(torch, dtype))

        return Record(f"alpha.{name}", _spaced, _spaces(exact), peer, result=_given, **options)

    def check_empty(result: Any, case: Case) -> str | None:
        x = case.args[0]
        right = result.shape == x.shape and result.dtype.name == x.dtype.name
        return None if right else f"shape or dtype: {result.shape} {result.dtype}"

    options: dict[str, Any] = {"gradient": False, "weight": 0.25}
    return [
        spaced("linspace", np.linspace),
        spaced("logspace", np.logspace),
        Record("alpha.as_tensor", same, lambda x: x, **options),
        Record("alpha.from_numpy", _tensor, np.array, result=lambda case: case.args[0].dtype.name, **options),
        Record("alpha.empty_like", same, None, check=check_empty, **options),
        Record("alpha.rand_like", same, None, check=_check_like(0, 1, 0.5, 1), **options),
        Record("alpha.randn_like", same, None, check=_check_like(-10, 10, 0, 1), **options),
        Record("alpha.randint", _whole_numbers, None, check=_check_whole_numbers, **options),
        Record("alpha.randint_like", whole_like, None, check=_check_like(0, 99, 49.5, 100), **options),
        Record("alpha.randperm", lambda d: Case([d.whole(0, 50)]), None, check=_check_permutation, **options),
        Record("alpha.bernoulli", _probabilities, None, check=_check_like(0, 1, 0.5, math.inf), **options),
        Record("alpha.multinomial", _weights, None, check=_check_weights, **options),
        Record("alpha.normal", normal, None, check=check_normal, **options),
    ]


# -- initialisation ----------------------------------------------------------------------------------------------


def _weight(low: int, options: Callable[[Draw], dict[str, Any]]) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        d.values = "ordinary"
        return Case([d.input(d.shape(low, 4), d.dtype(), written=True, views=0.2, grad=0)], options(d))

    return draw


def _check_init(limit: Callable[[Any, dict[str, Any]], float]) -> Callable[[Any, Case], str | None]:
    def check(result: Any, case: Case) -> str | None:
        array, wanted = np.asarray(result.detach().numpy()), case.args[0]
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            return f"shape or dtype: {array.shape} {array.dtype}"
        bound = limit(array, case.options)
        if array.size and not (np.isfinite(array).all() and np.abs(array).max() <= bound * (1 + 1e-6)):
            return f"outside the range: {np.abs(array).max()} beyond {bound}"
        return None

    return check


def _fans(x: Any) -> tuple[int, int]:
    field = math.prod(x.shape[1:-1])
    return x.shape[-1] * field, x.shape[0] * field


def _kaiming(x: Any, options: dict[str, Any]) -> float:
    fan = _fans(x)[options.get("mode", "fan_in") == "fan_out"]
    return math.sqrt(2 / (1 + float(options.get("a", 0)) ** 2)) / math.sqrt(max(fan, 1))


def _check_orthogonal(result: Any, case: Case) -> str | None:
    array = np.asarray(result.detach().numpy(), np.float64)
    matrix = array.reshape(array.shape[0], -1) if array.size else np.zeros((0, 0))
    if not matrix.size:
        return None
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    off = np.abs(product - np.eye(len(product))).max()
    return None if off < 1e-4 else f"not orthogonal: off by {off}"


def _check_constant(value: float | None) -> Callable[[Any, Case], str | None]:
    def check(result: Any, case: Case) -> str | None:
        wanted = case.options.get("val") if value is None else value
        array = np.asarray(result.detach().numpy())
        return None if (array == array.dtype.type(wanted)).all() else f"not constant: {array}"

    return check


def _inits() -> list[Record]:
    none: Callable[[Draw], dict[str, Any]] = lambda d: {}  # noqa: E731

    def modes(d: Draw) -> dict[str, Any]:
        return {"mode": d.pick(("fan_in", "fan_out")), "a": d.pick((0, 0.1, 1.0))}

    def uniform(d: Draw) -> dict[str, Any]:
        return {"a": -round(d.py.random(), 2), "b": round(d.py.random(), 2)}

    def std(x: Any, options: dict[str, Any]) -> float:
        return 8 * math.sqrt(2 / max(sum(_fans(x)), 1))

    table: list[tuple[str, int, Any, Any]] = [
        ("uniform_", 0, uniform, _check_init(lambda x, o: max(-o["a"], o["b"]))),
        ("normal_", 0, lambda d: {"std": d.pick((0.0, 1.0, 0.5))}, _check_init(lambda x, o: 8 * o["std"])),
        ("trunc_normal_", 0, lambda d: {"a": -1.0, "b": d.pick((1.0, 0.5))}, _check_init(lambda x, o: 1.0)),
        ("constant_", 0, lambda d: {"val": d.pick((0, 1.5, -2))}, _check_constant(None)),
        ("zeros_", 0, none, _check_constant(0)),
        ("ones_", 0, none, _check_constant(1)),
        ("kaiming_uniform_", 2, modes, _check_init(lambda x, o: math.sqrt(3) * _kaiming(x, o))),
        ("kaiming_normal_", 2, modes, _check_init(lambda x, o: 8 * _kaiming(x, o))),
        ("xavier_uniform_", 2, none, _check_init(lambda x, o: math.sqrt(6 / max(sum(_fans(x)), 1e-9)))),
        ("xavier_normal_", 2, none, _check_init(std)),
        ("orthogonal_", 2, none, _check_orthogonal),
        ("dirac_", 3, none, _check_init(lambda x, o: 1.0)),
    ]
    records = []
    for name, low, options, check in table:
        draw = _weight(low, options)
        if low:  # weights without an input or output have no fans
            draw = _lenient(draw)
        records.append(Record(f"nn.init.{name}", draw, None, check=check, gradient=False, weight=0.25))
    return records


def _lenient(draw: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    """Cases that may be refused where the weight is empty."""

    def drawn(d: Draw) -> Case:
        case = draw(d)
        case.valid = 0 not in case.args[0].shape
        return case

    return drawn


def _constants() -> list[Record]:
    every = ("float32", "float64", "uint8", "int32", "int64", "bool")
    seeded = {"covers": ("alpha.manual_seed", "alpha.random.manual_seed")}
    return [
        Record("alpha.zeros", _sized(every), _constant(0), result=_given, weight=0.5),
        Record("alpha.ones", _sized(every), _constant(1), result=_given, weight=0.5),
        Record(
            "alpha.empty",
            _sized(every),
            None,
            check=lambda result, case: (
                None if result.shape == tuple(_shape(tuple(case.args))) else f"shape: {result.shape}"
            ),
            weight=0.3,
        ),
        Record("alpha.full", _full, _fulled, result=_full_kind, weight=0.5),
        Record("alpha.full_like", _like(True), _filled, result=_given, gradient=False, weight=0.5),
        Record(
            "alpha.zeros_like",
            _like(False),
            lambda x, **o: _filled(x, 0, **o),
            result=_given,
            gradient=False,
            weight=0.3,
        ),
        Record(
            "alpha.ones_like",
            _like(False),
            lambda x, **o: _filled(x, 1, **o),
            result=_given,
            gradient=False,
            weight=0.3,
        ),
        Record(
            "alpha.arange",
            _arange,
            _aranged,
            result=lambda case: _aranged(*case.args, **case.options).dtype.name,
            weight=0.5,
        ),
        Record(
            "alpha.eye", _eye, lambda r, c=None, dtype="float32": np.eye(r, c, dtype=dtype), result=_given, weight=0.5
        ),
        Record("alpha.tensor", _tensor, np.array, result=lambda case: case.args[0].dtype.name),
        Record("alpha.rand", _sized(FLOATS), None, check=_check_random(0, 1, 0.5, 0.3), weight=0.4, **seeded),  # type: ignore[arg-type]
        Record("alpha.randn", _sized(FLOATS), None, check=_check_random(-9, 9, 0, 1), weight=0.4),
        Record("alpha.random.uniform", _bounded, None, check=_check_bounded, weight=0.4),
        Record("alpha.random.normal", _normal, None, check=_check_normal, weight=0.4),
        Record("alpha.random.permutation", lambda d: Case([d.length()]), None, check=_check_permutation, weight=0.3),
    ]


RECORDS = [*_constants(), *_drawn(), *_inits()]
