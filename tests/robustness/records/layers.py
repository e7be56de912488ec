"""Pooling, normalisation, interpolation, dropout, embedding, losses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.robustness.cases import Base, Case, Draw, Input
from tests.robustness.compare import NORMALISED, SUMS, Tolerance
from tests.robustness.record import Record
from tests.robustness.records.products import activated, peer_activated

CHOSEN = Tolerance(4, 0, 0, "an element is chosen, not computed")


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _images(d: Draw, values: str = "normal", least: tuple[int, int] = (1, 1), dtype: str | None = None) -> Input:
    n = 0 if d.chance(0.03) else d.pick((1, 2, 3))
    h, w, c = least[0] + d.whole(0, 5), least[1] + d.whole(0, 5), d.pick((1, 2, 3, 8, 17))
    if d.limit > 5000:
        n, h, w = d.pick((2, 16)), h + d.whole(0, 20), w + d.whole(0, 20)
    return d.input((n, h, w, c), dtype or d.dtype(), values)


# -- pooling -----------------------------------------------------------------------------------------------------


def _pooling(maximum: bool) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        def some(values: tuple[int, ...]) -> Any:
            return d.pick(values) if d.chance(0.6) else (d.pick(values), d.pick(values))

        kernel, dilation = some((1, 2, 2, 3)), some((1, 1, 2)) if maximum else 1
        pads = tuple(d.whole(0, k // 2) for k in _pair(kernel))
        options: dict[str, Any] = {"kernel_size": kernel, "padding": pads, "ceil_mode": d.chance(0.3)}
        if d.chance(0.7):
            options["stride"] = some((1, 2, 3))
        extents = [(k - 1) * s + 1 - 2 * p for k, s, p in zip(_pair(kernel), _pair(dilation), pads, strict=True)]
        if maximum:
            options["dilation"] = dilation
        else:
            options["count_include_pad"] = d.chance(0.5)
        values = "distinct" if maximum else "normal"
        return Case([_images(d, values, (max(1, extents[0]), max(1, extents[1])))], options)

    return draw


def _windows(x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> tuple[Any, ...]:
    """Sizes of the result, and the padding needed at the far side."""
    kernel, pads, spread = _pair(kernel_size), _pair(padding), _pair(dilation)
    steps = kernel if stride is None else _pair(stride)
    sizes, end_pads = [], []
    for n, k, s, p, g in zip(x.shape[1:3], kernel, steps, pads, spread, strict=True):
        extent = (k - 1) * g + 1
        count = (n + 2 * p - extent) // s + 1
        if ceil_mode and (n + 2 * p - extent) % s and count * s < n + p:
            count += 1
        sizes.append(count)
        end_pads.append(max(0, (count - 1) * s + extent - n - p))
    return kernel, steps, pads, spread, sizes, end_pads


def _taps(x: Any, plan: tuple[Any, ...], value: float) -> Any:
    kernel, steps, pads, spread, sizes, end_pads = plan
    padded = np.pad(x, ((0, 0), (pads[0], end_pads[0]), (pads[1], end_pads[1]), (0, 0)), constant_values=value)
    for a, b in itertools.product(range(kernel[0]), range(kernel[1])):
        rows = slice(a * spread[0], a * spread[0] + (sizes[0] - 1) * steps[0] + 1, steps[0])
        columns = slice(b * spread[1], b * spread[1] + (sizes[1] - 1) * steps[1] + 1, steps[1])
        yield padded[:, rows, columns]


def max_pooled(
    x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """Maxima, the padding -inf."""
    plan = _windows(x, kernel_size, stride, padding, dilation, ceil_mode)
    return np.maximum.reduce(list(_taps(x, plan, -np.inf)))


def avg_pooled(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """Sums over counts of elements, or of elements and padding."""
    plan = _windows(x, kernel_size, stride, padding, 1, ceil_mode)
    counted = np.ones((1, *x.shape[1:3], 1))
    if count_include_pad:
        p = _pair(padding)
        whole = np.ones((1, x.shape[1] + 2 * p[0], x.shape[2] + 2 * p[1], 1))
        kernel, steps, _, spread, sizes, end_pads = plan
        far = [max(0, e - q) for e, q in zip(end_pads, p, strict=True)]
        counts = sum(_taps(whole, (kernel, steps, (0, 0), spread, sizes, far), 0.0))
    else:
        counts = sum(_taps(counted, plan, 0.0))
    return sum(_taps(x, plan, 0.0)) / counts


def _peer_pool(name: str) -> Callable[..., Any]:
    def call(torch: Any, x: Any, **options: Any) -> Any:
        if options.get("dilation", 1) != 1 and options["padding"] != (0, 0):
            raise ValueError("of a window that lies in the padding alone PyTorch writes the gradient beyond its memory")
        return getattr(torch.nn.functional, name)(x.movedim(-1, 1), **options).movedim(1, -1)

    return call


def _adaptive(d: Draw) -> Case:
    x = _images(d)
    size = d.pick((1, 2, 3, None, (1, 2), (3, None), (2, 2)))
    return Case([x, size])


def adaptive(x: Any, output_size: Any) -> Any:
    """Means over windows floor(i n / m) .. ceil((i + 1) n / m)."""
    sizes = output_size if isinstance(output_size, tuple) else (output_size, output_size)
    rows, columns = [n if m is None else m for n, m in zip(x.shape[1:3], sizes, strict=True)]
    out = np.zeros((x.shape[0], rows, columns, x.shape[3]))
    for i, j in itertools.product(range(rows), range(columns)):
        high, wide = x.shape[1], x.shape[2]
        part = x[:, i * high // rows : -(-(i + 1) * high // rows), j * wide // columns : -(-(j + 1) * wide // columns)]
        out[:, i, j] = part.mean((1, 2))
    return out


# -- resizing ----------------------------------------------------------------------------------------------------


def _interpolate(d: Draw) -> Case:
    x = _images(d)
    options: dict[str, Any] = {"mode": d.pick(("nearest", "bilinear"))}
    if d.chance(0.6):
        options["size"] = d.whole(1, 9) if d.chance(0.4) else (d.whole(1, 9), d.whole(1, 9))
    else:
        options["scale_factor"] = d.pick((1, 2, 3, 2.0, 1.5, (2, 1), (1.0, 3.0)))
    if options["mode"] == "bilinear":
        options["align_corners"] = d.pick((None, True, False))
    return Case([x], options)


def interpolated(
    x: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None
) -> Any:
    """Each axis times a matrix of choices or weights."""
    inputs = x.shape[1:3]
    if size is not None:
        outputs = _pair(size)
        ratios = [n / m for n, m in zip(inputs, outputs, strict=True)]
    else:
        factors = scale_factor if isinstance(scale_factor, tuple) else (scale_factor, scale_factor)
        outputs = tuple(math.floor(n * f) for n, f in zip(inputs, factors, strict=True))
        ratios = [1 / f for f in factors]
    for axis, (n, m, ratio) in enumerate(zip(inputs, outputs, ratios, strict=True)):
        matrix = np.zeros((m, n))
        for i in range(m):
            if mode == "nearest":
                place = i if m == n else i // 2 if m == 2 * n else int(np.floor(np.float32(i) * np.float32(ratio)))
                matrix[i, min(place, n - 1)] = 1
                continue
            place = i * (n - 1) / max(m - 1, 1) if align_corners else max(0.0, (i + 0.5) * ratio - 0.5)
            place = i if m == n else place
            low = min(int(place), n - 1)
            share = min(max(place - low, 0), 1)
            matrix[i, low] += 1 - share
            matrix[i, min(low + 1, n - 1)] += share
        x = np.moveaxis(np.tensordot(matrix, x, (1, axis + 1)), 0, axis + 1)
    return x


def _peer_interpolate(torch: Any, x: Any, **options: Any) -> Any:
    return torch.nn.functional.interpolate(x.movedim(-1, 1), **options).movedim(1, -1)


# -- normalisation -----------------------------------------------------------------------------------------------


def _affine(d: Draw, shape: tuple[int, ...], dtype: str) -> dict[str, Any]:
    """Weight and bias, finite: an infinite weight is folded with the statistics, and NaN may come of it."""
    found = {name: d.input(shape, dtype) for name in ("weight", "bias") if d.chance(0.7)}
    for given in found.values():
        given.base.array[~np.isfinite(given.base.array)] = 1
    return found


def _spread(d: Draw, shape: tuple[int, ...], dtype: str) -> Input:
    """A tensor whose elements are not repeated: of equal ones the deviation is 0, and only roundings are left."""
    x = d.input(shape, dtype)
    while any(kind == "expand" for kind, _ in x.steps):
        x = d.input(shape, dtype)
    return x


def _batch_norm(d: Draw) -> Case:
    dtype, shape = d.dtype(), d.shape(2, 4, 1)
    training = d.chance(0.6)
    x, channels = _spread(d, shape, dtype), shape[-1:]
    running: list[Any] = [None, None]
    if not training or d.chance(0.6):
        mean = Input(Base(d.array(channels, dtype), False, training))
        running = [mean, Input(Base(d.array(channels, dtype, "positive"), False, training))]
    options: dict[str, Any] = {**_affine(d, channels, dtype), "training": training}
    if d.chance(0.3):
        options["momentum"] = d.pick((0.0, 0.5, 1.0))
    if d.chance(0.3):
        options["residual"] = d.input(shape, dtype)
    if d.chance(0.4):
        options["activation"] = d.pick(("relu", "leaky_relu"))
    # Two values differ by their sign alone after normalisation: what is left of the gradient are roundings.
    too_few = training and math.prod(shape[:-1]) < 3
    return Case([x, *running], options, valid=not (training and math.prod(shape[:-1]) < 2), ordinary=not too_few)


def _normal(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(var + eps)


def batch_normed(
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    residual: Any = None,
    activation: str | None = None,
    negative_slope: float = 0.01,
) -> Any:
    """Over all axes but the last; running statistics are updated in place."""
    axes = tuple(range(x.ndim - 1))
    if training:
        count = x.size // max(x.shape[-1], 1)
        if count < 2:
            raise ValueError("one value per channel has no variance")
        y = _normal(x, axes, eps)
        if mean is not None:
            mean[...] = (1 - momentum) * mean + momentum * x.mean(axes)
            var[...] = (1 - momentum) * var + momentum * x.var(axes) * count / (count - 1)
    else:
        y = (x - mean) / np.sqrt(var + eps)
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return activated(y, residual, activation, negative_slope)


def _dense(x: Any) -> Any:
    """In one piece: the gradient of PyTorch's BatchNorm reads other weights beyond their memory."""
    return None if x is None else x.contiguous()


def _peer_batch_norm(
    torch: Any,
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    residual: Any = None,
    activation: str | None = None,
) -> Any:
    weight, bias = _dense(weight), _dense(bias)
    y = torch.nn.functional.batch_norm(x.movedim(-1, 1), mean, var, weight, bias, training, momentum).movedim(1, -1)
    return peer_activated(torch, y, residual, activation, 0.01)


def _attention(d: Draw) -> Case:
    dtype, batch = d.dtype(), d.pick(((), (2,), (1, 3)))
    queries, keys, size = d.pick((1, 2, 5, 40)), d.pick((1, 3, 7, 40)), d.pick((1, 3, 8))
    shapes = [(*batch, queries, size), (*batch, keys, size), (*batch, keys, d.pick((1, 4, 9)))]
    options: dict[str, Any] = {}
    if d.chance(0.3):
        options["is_causal"] = True
    elif d.chance(0.5):
        options["attn_mask"] = d.input((queries, keys), dtype if d.chance(0.5) else "bool")
    if d.chance(0.3):
        options["scale"] = d.pick((0.5, -1.0))
    return Case([d.input(shape, dtype) for shape in shapes], options)


def attended(
    query: Any, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale: float | None = None
) -> Any:
    """softmax(scale * q k' + mask) v; 0 for a query that sees no key."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ np.swapaxes(key, -1, -2) * factor
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf) if attn_mask.dtype == bool else scores + attn_mask
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total) @ value


def _peer_attention(torch: Any, *args: Any, **options: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(*args, **options)


def _layer_norm(d: Draw) -> Case:
    dtype, shape = d.dtype(), d.shape(1, 4, 1)
    count = d.whole(1, len(shape))
    normalized = shape[-count:]
    given: Any = normalized[0] if count == 1 and d.chance(0.5) else normalized
    return Case([_spread(d, shape, dtype), given], _affine(d, normalized, dtype), ordinary=math.prod(normalized) > 2)


def layer_normed(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Over the last axes."""
    count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    y = _normal(x, tuple(range(x.ndim - count, x.ndim)), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _peer_layer_norm(torch: Any, x: Any, shape: Any, weight: Any = None, bias: Any = None) -> Any:
    return torch.nn.functional.layer_norm(x, (shape,) if isinstance(shape, int) else shape, weight, bias)


def _rms_norm(d: Draw) -> Case:
    case = _layer_norm(d)
    case.options.pop("bias", None)
    case.options["eps"] = d.pick((1e-6, 0.1))  # the default follows x's dtype, and the oracle computes in float64
    return case


def rms_normed(x: Any, normalized_shape: Any, weight: Any = None, eps: float = 1e-5) -> Any:
    """Over the last axes."""
    count = 1 if isinstance(normalized_shape, int) else len(normalized_shape)
    y = x / np.sqrt((x * x).mean(tuple(range(x.ndim - count, x.ndim)), keepdims=True) + eps)
    return y if weight is None else y * weight


def _peer_rms_norm(torch: Any, x: Any, shape: Any, weight: Any = None, eps: float = 1e-5) -> Any:
    return torch.nn.functional.rms_norm(x, (shape,) if isinstance(shape, int) else shape, weight, eps)


def _group_norm(d: Draw) -> Case:
    dtype, groups = d.dtype(), d.pick((1, 1, 2, 3, 4))
    shape = (*d.shape(1, 3, 1), groups * d.pick((1, 2, 3, 5)))
    inside = math.prod(shape[1:]) // groups
    case = Case([_spread(d, shape, dtype), groups], _affine(d, shape[-1:], dtype), ordinary=inside > 2)
    case.valid = inside > 1
    return case


def group_normed(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Each group of channels of each sample."""
    split = x.reshape(*x.shape[:-1], num_groups, x.shape[-1] // num_groups)
    if math.prod(split.shape[1:-2]) * split.shape[-1] < 2:
        raise ValueError("one value per group has no variance")
    axes = (*range(1, x.ndim - 1), x.ndim)
    y = _normal(split, axes, eps).reshape(x.shape)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _peer_group_norm(torch: Any, x: Any, groups: int, weight: Any = None, bias: Any = None) -> Any:
    # Not its group_norm, whose backward ends the process where only weight and bias require gradients.
    split = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    axes = (*range(1, x.ndim - 1), x.ndim)
    centred = split - split.mean(axes, keepdim=True)
    y = (centred / torch.sqrt((centred * centred).mean(axes, keepdim=True) + 1e-5)).reshape(x.shape)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _instance_norm(d: Draw) -> Case:
    dtype = d.dtype()
    shape = (d.whole(1, 3), *d.shape(1, 2, 1), d.pick((1, 2, 3, 8)))
    use = d.chance(0.8)
    running: list[Any] = [None, None]
    if not use or d.chance(0.3):
        running = [
            Input(Base(d.array(shape[-1:], dtype), False, use)),
            Input(Base(d.array(shape[-1:], dtype, "positive"), False, use)),
        ]
    inside = math.prod(shape[1:-1])
    options = {**_affine(d, shape[-1:], dtype), "use_input_stats": use}
    return Case([_spread(d, shape, dtype), *running], options, valid=not use or inside > 1, ordinary=inside > 2)


def instance_normed(
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Each channel of each sample."""
    axes = tuple(range(1, x.ndim - 1))
    if use_input_stats:
        count = math.prod(x.shape[1:-1])
        if count < 2:
            raise ValueError("one value per channel has no variance")
        y = _normal(x, axes, eps)
        if mean is not None:
            mean[...] = (1 - momentum) * mean + momentum * x.mean(axes).mean(0)
            var[...] = (1 - momentum) * var + momentum * (x.var(axes) * count / (count - 1)).mean(0)
    else:
        y = (x - mean) / np.sqrt(var + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _peer_instance_norm(
    torch: Any, x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, use_input_stats: bool = True
) -> Any:
    # Not its instance_norm, whose gradient is wrong for channels that lie last in memory where a side is 1.
    given, axes = x.detach(), tuple(range(1, x.ndim - 1))
    if use_input_stats:
        x = x - x.mean(axes, keepdim=True)
        y = x / torch.sqrt((x * x).mean(axes, keepdim=True) + 1e-5)
        if mean is not None:
            mean.mul_(0.9).add_(0.1 * given.mean(axes).mean(0))
            var.mul_(0.9).add_(0.1 * given.var(axes).mean(0))
    else:
        y = (x - mean) / torch.sqrt(var + 1e-5)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


# -- embedding and losses ----------------------------------------------------------------------------------------


def _embedding(d: Draw) -> Case:
    rows, columns = d.whole(1, 9), d.length(0)
    labels = d.np.integers(0, rows, d.shape(0, 3)).astype(d.pick(("int64", "int32")))
    options = {"padding_idx": d.whole(-rows, rows - 1)} if d.chance(0.3) else {}
    return Case([Input(Base(labels)), d.input((rows, columns))], options)


def _peer_embedding(torch: Any, x: Any, weight: Any, padding_idx: int | None = None) -> Any:
    return torch.nn.functional.embedding(x.long(), weight, padding_idx)


def _classes(smoothed: bool) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        dtype, classes = d.dtype(), d.whole(1, 12) if d.chance(0.9) else d.whole(13, 70)
        shape = d.fit([*d.shape(1, 2), classes])
        shape = (*shape[:-1], classes)
        labels = d.np.integers(0, classes, shape[:-1])
        options: dict[str, Any] = {"reduction": d.pick(("mean", "sum", "none"))}
        if d.chance(0.3):
            labels = np.where(d.np.random(labels.shape) < 0.3, -100, labels)
        if d.chance(0.3):
            options["weight"] = d.input((classes,), dtype, "positive", grad=0)
        if smoothed and d.chance(0.4):
            options["label_smoothing"] = d.pick((0.1, 0.5, 1.0))
        return Case([d.input(shape, dtype), Input(Base(labels))], options)

    return draw


def _by_class(log_p: Any, target: Any, reduction: str, weight: Any, smoothing: float) -> Any:
    classes = log_p.shape[-1]
    kept = target != -100
    safe = np.where(kept, target, 0)
    factors = np.ones(classes) if weight is None else weight
    chosen = -np.take_along_axis(log_p, safe[..., None], -1)[..., 0] * factors[safe]
    smooth = -(log_p * factors).sum(-1) / classes if smoothing else 0.0
    losses = np.where(kept, (1 - smoothing) * chosen + smoothing * smooth, 0.0)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total if reduction == "sum" else total / (factors[safe] * kept).sum()


def cross_entropies(
    logits: Any, target: Any, reduction: str = "mean", label_smoothing: float = 0.0, weight: Any = None
) -> Any:
    """-log softmax at the target."""
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return _by_class(log_p, target, reduction, weight, label_smoothing)


def nll(log_p: Any, target: Any, reduction: str = "mean", weight: Any = None) -> Any:
    """-log_p at the target."""
    return _by_class(log_p, target, reduction, weight, 0.0)


def _peer_classes(name: str) -> Callable[..., Any]:
    def call(torch: Any, x: Any, target: Any, **options: Any) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        out = getattr(torch.nn.functional, name)(rows, target.reshape(-1), **options)
        return out.reshape(target.shape) if options.get("reduction") == "none" else out

    return call


def _two(values: str = "normal", target: str = "normal") -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        dtype, shape = d.dtype(), d.shape()
        x = d.input(shape, dtype, values)
        return Case([x, d.input(shape, dtype, target)], {"reduction": d.pick(("mean", "sum", "none"))})

    return draw


def _binary(d: Draw) -> Case:
    case = _two()(d)
    x, old = case.args
    target = Base(d.np.random(x.shape).astype(x.dtype), old.base.requires_grad)
    case.args[1] = Input(target)  # outside 0..1 it has no meaning
    if d.chance(0.4):
        x = case.args[0]
        case.options["pos_weight"] = d.input(d.broadcastable(x.shape), x.dtype.name, "positive", grad=0)
    return case


def _reduced(losses: Any, reduction: str) -> Any:
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / np.float64(losses.size)


def binary(x: Any, target: Any, reduction: str = "mean", pos_weight: Any = None) -> Any:
    """-(w y log s(x) + (1 - y) log(1 - s(x)))."""
    w = 1.0 if pos_weight is None else pos_weight
    return _reduced(w * target * np.logaddexp(0, -x) + (1 - target) * np.logaddexp(0, x), reduction)


def _dropped(d: Draw) -> Case:
    return Case([d.input(d.shape(), d.dtype())], {"p": d.pick((0.0, 0.2, 0.5, 0.9, 1.0)), "training": d.chance(0.8)})


def _check_dropped(result: Any, case: Case) -> str | None:
    x, y, p = case.args[0].numpy(), np.asarray(result.detach().numpy()), case.options["p"]
    if y.shape != x.shape or y.dtype != x.dtype:
        return f"shape or dtype: {y.shape} {y.dtype}"
    p = p if case.options["training"] else 0
    with np.errstate(all="ignore"):
        scaled = x / x.dtype.type(1 - p) if p < 1 else np.zeros_like(x)
        near = (np.abs(y - scaled) <= 1e-6 * np.abs(scaled)) | (np.isnan(y) & np.isnan(x)) | (y == scaled)
        wrong = ~near & ~((y == 0) & (p > 0))
    if wrong.any():
        return f"neither dropped nor scaled: {y[wrong][:3]} of {x[wrong][:3]}"
    share = float((y == 0).mean()) if y.size else p
    if case.ordinary and y.size > 100 and abs(share - p) > 6 * math.sqrt(0.25 / y.size):
        return f"share of zeros: {share} with p {p}"
    return None


def _functional(name: str) -> tuple[str, ...]:
    return (f"nn.functional.{name}",)


RECORDS = [
    Record(
        "alpha.max_pool2d",
        _pooling(True),
        max_pooled,
        _peer_pool("max_pool2d"),
        CHOSEN,
        covers=_functional("max_pool2d"),
    ),
    Record(
        "alpha.avg_pool2d",
        _pooling(False),
        avg_pooled,
        _peer_pool("avg_pool2d"),
        SUMS,
        covers=_functional("avg_pool2d"),
    ),
    Record(
        "alpha.adaptive_avg_pool2d",
        _adaptive,
        adaptive,
        lambda t, x, size: t.nn.functional.adaptive_avg_pool2d(x.movedim(-1, 1), size).movedim(1, -1),
        SUMS,
        covers=_functional("adaptive_avg_pool2d"),
    ),
    Record(
        "alpha.interpolate",
        _interpolate,
        interpolated,
        _peer_interpolate,
        SUMS,
        skips=True,
        covers=_functional("interpolate"),
    ),
    Record(
        "alpha.batch_norm",
        _batch_norm,
        batch_normed,
        _peer_batch_norm,
        NORMALISED,
        solves=True,
        returned=True,
        covers=_functional("batch_norm"),
    ),
    Record(
        "alpha.scaled_dot_product_attention",
        _attention,
        attended,
        _peer_attention,
        NORMALISED,
        solves=True,
        skips=True,
        covers=_functional("scaled_dot_product_attention"),
    ),
    Record(
        "alpha.layer_norm",
        _layer_norm,
        layer_normed,
        _peer_layer_norm,
        NORMALISED,
        solves=True,
        covers=_functional("layer_norm"),
    ),
    Record(
        "alpha.rms_norm",
        _rms_norm,
        rms_normed,
        _peer_rms_norm,
        NORMALISED,
        solves=True,
        covers=_functional("rms_norm"),
    ),
    Record(
        "alpha.group_norm",
        _group_norm,
        group_normed,
        _peer_group_norm,
        NORMALISED,
        solves=True,
        covers=_functional("group_norm"),
    ),
    Record(
        "alpha.instance_norm",
        _instance_norm,
        instance_normed,
        _peer_instance_norm,
        NORMALISED,
        solves=True,
        returned=True,
        covers=_functional("instance_norm"),
    ),
    Record(
        "alpha.embedding",
        _embedding,
        lambda x, weight, padding_idx=None: weight[x],
        _peer_embedding,
        differences=False,
        covers=_functional("embedding"),
    ),
    Record(
        "alpha.cross_entropy",
        _classes(True),
        cross_entropies,
        _peer_classes("cross_entropy"),
        SUMS,
        covers=_functional("cross_entropy"),
    ),
    Record("alpha.nll_loss", _classes(False), nll, _peer_classes("nll_loss"), SUMS, covers=_functional("nll_loss")),
    Record(
        "alpha.mse_loss",
        _two(),
        lambda x, y, reduction: _reduced((x - y) ** 2, reduction),
        lambda t, x, y, **o: t.nn.functional.mse_loss(x, y, **o),
        SUMS,
        covers=_functional("mse_loss"),
    ),
    Record(
        "alpha.l1_loss",
        _two("whole", "whole"),
        lambda x, y, reduction: _reduced(np.abs(x - y), reduction),
        lambda t, x, y, **o: t.nn.functional.l1_loss(x, y, **o),
        SUMS,
        covers=_functional("l1_loss"),
    ),
    Record(
        "alpha.binary_cross_entropy_with_logits",
        _binary,
        binary,
        lambda t, x, y, **o: t.nn.functional.binary_cross_entropy_with_logits(x, y, **o),
        SUMS,
        covers=_functional("binary_cross_entropy_with_logits"),
    ),
    Record("alpha.dropout", _dropped, None, check=_check_dropped, gradient=False, covers=_functional("dropout")),
]
