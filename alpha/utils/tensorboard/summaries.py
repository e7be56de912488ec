"""What TensorBoard shows of a value, as its protocol buffers: ``Summary`` messages of one value each."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf import struct_pb2
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData
from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

from alpha import Tensor, dtypes
from alpha.arguments import as_array
from alpha.errors import ArgumentError, ShapeError, described

Array = np.ndarray[Any, Any]

MOST_THRESHOLDS = 127
"""Points of a precision-recall curve that TensorBoard takes."""
_LEAST_COUNT = 1e-7
"""Stands for a sum of no elements where a ratio of sums is taken."""


def array_of(function: str, value: Any) -> Array:
    """Numbers of a tensor, array, list or number on the host."""
    array = value.numpy() if isinstance(value, Tensor) and not value.requires_grad else as_array(function, value)
    if not dtypes.holds_numbers(array.dtype):
        raise ArgumentError(f"[{function}] expected numbers, got {described(value)}")
    return array


def number_of(function: str, value: Any) -> float:
    """The one number that a value holds."""
    array = array_of(function, value)
    if array.size != 1:
        raise ShapeError(f"[{function}] expected one number, got shape {array.shape}: reduce it first")
    return float(array.reshape(()))


def _metadata(plugin: str, content: bytes = b"") -> SummaryMetadata:
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content))


def _shape(*lengths: int) -> TensorShapeProto:
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in lengths])


def _one(**content: Any) -> Summary:
    return Summary(value=[Summary.Value(**content)])


def scalar(tag: str, value: float, new_style: bool = False, double_precision: bool = False) -> Summary:
    """A number, in the field of old or as a tensor."""
    if not new_style:
        return _one(tag=tag, simple_value=value)
    if double_precision:
        tensor = TensorProto(double_val=[value], dtype="DT_DOUBLE")
    else:
        tensor = TensorProto(float_val=[value], dtype="DT_FLOAT")
    return _one(tag=tag, tensor=tensor, metadata=_metadata("scalars"))


def text(tag: str, value: str) -> Summary:
    """Markdown."""
    content = TextPluginData(version=0).SerializeToString()
    tensor = TensorProto(dtype="DT_STRING", string_val=[value.encode()], tensor_shape=_shape(1))
    return _one(tag=f"{tag}/text_summary", metadata=_metadata("text", content), tensor=tensor)


# -- histograms --------------------------------------------------------------------------------------------------------


def _default_limits() -> list[float]:
    """Limits that grow by a tenth from 1e-12 to 1e20, on both sides of 0, as TensorFlow has them."""
    positive, limit = [], 1e-12
    while limit < 1e20:
        positive.append(limit)
        limit *= 1.1
    return [-x for x in reversed(positive)] + [0.0, *positive]


DEFAULT_LIMITS = _default_limits()


def histogram(tag: str, values: Array, bins: Any, max_bins: int | None) -> Summary:
    """Counts of values between limits, and their statistics."""
    numbers = values.reshape(-1).astype(np.float64)
    try:
        counts, limits = np.histogram(numbers, bins=bins)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f'[add_histogram] expected bins as "tensorflow" or as numpy.histogram takes, got {described(bins)}: {error}'
        ) from error
    if max_bins is not None and len(counts) > max_bins:
        counts, limits = _coarser(counts, limits, len(counts) // max_bins)
    filled = np.flatnonzero(counts)
    if not filled.size:
        raise ArgumentError(f"[add_histogram] expected limits around some values, got {described(limits)}: widen them")
    first, last = int(filled[0]), int(filled[-1]) + 1
    content = HistogramProto(
        min=numbers.min(),
        max=numbers.max(),
        num=len(numbers),
        sum=numbers.sum(),
        sum_squares=numbers @ numbers,
        bucket_limit=limits[first : last + 1].tolist(),
        bucket=[0, *counts[first:last].tolist()],  # of right limits: the empty bin's is where the first one begins
    )
    return _one(tag=tag, histo=content)


def _coarser(counts: Array, limits: Array, times: int) -> tuple[Array, Array]:
    """Every so many bins as one; the last may have fewer."""
    merged = np.add.reduceat(counts, np.arange(0, len(counts), times))
    return merged, np.append(limits[:-1:times], limits[-1])


# -- images ------------------------------------------------------------------------------------------------------------


def image(tag: str, pixels: Array) -> Summary:
    """A picture (H, W, C) of uint8, or of floats from 0 to 1, as PNG."""
    from PIL import Image

    if pixels.dtype != np.uint8:
        pixels = np.clip(pixels.astype(np.float32) * 255, 0, 255).astype(np.uint8)
    height, width, channels = pixels.shape
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    picture = Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue())
    return _one(tag=tag, image=picture)


def to_hwc(function: str, pixels: Array, dataformats: str) -> Array:
    """One picture (H, W, 3 or 4) of axes in another order, or of several in rows of eight."""
    order = dataformats.upper() if isinstance(dataformats, str) else ""
    if sorted(order) not in (sorted("HW"), sorted("CHW"), sorted("NHW"), sorted("NCHW")):
        raise ArgumentError(f'[{function}] expected dataformats such as "CHW" or "NHWC", got {described(dataformats)}')
    if pixels.ndim != len(order):
        raise ShapeError(f"[{function}] expected {len(order)} axes for {order}, got shape {pixels.shape}")
    if "C" not in order:
        pixels, order = pixels[..., None], f"{order}C"
    pixels = pixels.transpose([order.index(axis) for axis in "NHWC" if axis in order])
    if pixels.shape[-1] not in (1, 3, 4) or 0 in pixels.shape:
        raise ShapeError(f"[{function}] expected pictures of 1, 3 or 4 channels, got shape {pixels.shape} (...HWC)")
    if pixels.shape[-1] == 1:
        pixels = np.repeat(pixels, 3, axis=-1)
    return _grid(pixels) if pixels.ndim == 4 else pixels


def _grid(pixels: Array, columns: int = 8) -> Array:
    """Pictures (N, H, W, C) in rows; the places that are left are black."""
    count, height, width, channels = pixels.shape
    columns = min(count, columns)
    rows = math.ceil(count / columns)
    whole = np.zeros((rows * columns, height, width, channels), pixels.dtype)
    whole[:count] = pixels
    lines = whole.reshape(rows, columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    return lines.reshape(rows * height, columns * width, channels)


# -- precision and recall ----------------------------------------------------------------------------------------------


def pr_curve(tag: str, labels: Array, predictions: Array, thresholds: int, weights: Array | None) -> Summary:
    """Precision and recall at thresholds from 0 to 1, with the counts of which they are made."""
    thresholds = min(thresholds, MOST_THRESHOLDS)
    places = np.floor(predictions.reshape(-1) * (thresholds - 1)).astype(np.int32)
    truth, weight = labels.reshape(-1).astype(np.float64), 1.0 if weights is None else weights.reshape(-1)
    counts = []
    for share in (truth, 1 - truth):
        per_place, _ = np.histogram(places, thresholds, (0, thresholds - 1), weights=share * weight)
        counts.append(np.cumsum(per_place[::-1])[::-1])  # of predictions from each threshold on
    true_positives, false_positives = counts
    true_negatives, false_negatives = (found[0] - found for found in (false_positives, true_positives))
    precision = true_positives / np.maximum(_LEAST_COUNT, true_positives + false_positives)
    recall = true_positives / np.maximum(_LEAST_COUNT, true_positives + false_negatives)
    data = [true_positives, false_positives, true_negatives, false_negatives, precision, recall]
    content = PrCurvePluginData(version=0, num_thresholds=thresholds).SerializeToString()
    values = np.stack(data)
    tensor = TensorProto(dtype="DT_FLOAT", float_val=values.reshape(-1).tolist(), tensor_shape=_shape(*values.shape))
    return _one(tag=tag, tensor=tensor, metadata=_metadata("pr_curves", content))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


def hparams(
    values: Mapping[str, Any], metrics: Sequence[str], domains: Mapping[str, Sequence[Any]]
) -> tuple[Summary, Summary, Summary]:
    """An experiment's hyper-parameters: what they are, a run's values, and the run's success."""
    infos, start = [], plugin_data_pb2.SessionStartInfo()
    for name, value in values.items():
        if value is None:
            continue
        field, kind = _kind(name, value)
        plain = number_of("add_hparams", value) if field == "number_value" else value
        setattr(start.hparams[name], field, plain)
        domain = None
        if name in domains:
            domain = struct_pb2.ListValue(values=[struct_pb2.Value(**{field: item}) for item in domains[name]])
        infos.append(api_pb2.HParamInfo(name=name, type=api_pb2.DataType.Value(kind), domain_discrete=domain))
    names = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in metrics]
    experiment = api_pb2.Experiment(hparam_infos=infos, metric_infos=names)
    end = plugin_data_pb2.SessionEndInfo(status=api_pb2.Status.Value("STATUS_SUCCESS"))
    version = metadata.PLUGIN_DATA_VERSION
    contents = {
        metadata.EXPERIMENT_TAG: plugin_data_pb2.HParamsPluginData(experiment=experiment, version=version),
        metadata.SESSION_START_INFO_TAG: plugin_data_pb2.HParamsPluginData(session_start_info=start, version=version),
        metadata.SESSION_END_INFO_TAG: plugin_data_pb2.HParamsPluginData(session_end_info=end, version=version),
    }
    first, second, third = (
        _one(tag=tag, metadata=_metadata(metadata.PLUGIN_NAME, content.SerializeToString()))
        for tag, content in contents.items()
    )
    return first, second, third


def _kind(name: str, value: Any) -> tuple[str, str]:
    """A hyper-parameter's field of the message, and its type's name."""
    if isinstance(value, bool):
        return "bool_value", "DATA_TYPE_BOOL"
    if isinstance(value, str):
        return "string_value", "DATA_TYPE_STRING"
    if isinstance(value, int | float | np.generic | Tensor):
        return "number_value", "DATA_TYPE_FLOAT64"
    raise ArgumentError(
        f"[add_hparams] expected {name} as a number, a string or a bool, got {described(value)}: pass str() of it"
    )
