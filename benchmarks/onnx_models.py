"""torchvision's ResNets as ONNX graphs, from a PyTorch state_dict: what ONNX Runtime is measured on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from alpha.errors import ArgumentError

try:
    import onnx
    from onnx import helper, numpy_helper
except ImportError as error:
    raise ImportError(
        '[onnx_models] expected onnx to build a network with, got none: pip install "dragon-alpha[onnx]"'
    ) from error

Array = np.ndarray[Any, Any]

_OPSET = 17
_IR_VERSION = 8
"""The versions of 2022, which every ONNX Runtime of today reads."""


def resnet(state: Mapping[str, Array], batch: int, size: int) -> bytes:
    """The serialised model of images (N, 3, H, W) under the name "x" to logits (N, classes).

    Args:
        state: a torchvision ResNet of basic blocks in PyTorch's layout; its names tell how many blocks there are.
        batch: N.
        size: H and W.
    """
    if "layer1.0.conv1.weight" not in state:
        raise ArgumentError(f"[onnx_models] expected the weights of a ResNet, got {', '.join(list(state)[:3])}, ...")
    graph = _Graph(state)
    y = graph.relu(graph.normalised("x", "conv1", "bn1", stride=2))
    y = graph.node("MaxPool", [y], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage in range(1, 5):
        block = 0
        while f"layer{stage}.{block}.conv1.weight" in state:
            y = graph.block(y, f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1)
            block += 1
    y = graph.node("Flatten", [graph.node("GlobalAveragePool", [y])])
    y = graph.node("Gemm", [y, graph.weight("fc.weight"), graph.weight("fc.bias")], transB=1)
    return graph.model(y, (batch, 3, size, size), (batch, len(state["fc.bias"])))


class _Graph:
    """Nodes as they are added; each is named after its result."""

    def __init__(self, state: Mapping[str, Array]) -> None:
        self._state = state
        self._nodes: list[Any] = []
        self._weights: dict[str, Any] = {}

    def node(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], name, **attributes))
        return name

    def weight(self, name: str) -> str:
        self._weights[name] = numpy_helper.from_array(np.ascontiguousarray(self._state[name]), name)
        return name

    def relu(self, x: str) -> str:
        return self.node("Relu", [x])

    def normalised(self, x: str, conv: str, norm: str, stride: int = 1) -> str:
        """A convolution that pads as far as its filter reaches, and BatchNorm."""
        side = self._state[f"{conv}.weight"].shape[-1]
        steps = {"kernel_shape": [side] * 2, "strides": [stride] * 2, "pads": [side // 2] * 4}
        y = self.node("Conv", [x, self.weight(f"{conv}.weight")], **steps)
        fields = ("weight", "bias", "running_mean", "running_var")
        return self.node("BatchNormalization", [y, *(self.weight(f"{norm}.{field}") for field in fields)], epsilon=1e-5)

    def block(self, x: str, name: str, stride: int) -> str:
        """Two 3x3 convolutions and a shortcut."""
        y = self.relu(self.normalised(x, f"{name}.conv1", f"{name}.bn1", stride))
        y = self.normalised(y, f"{name}.conv2", f"{name}.bn2")
        if f"{name}.downsample.0.weight" in self._state:
            x = self.normalised(x, f"{name}.downsample.0", f"{name}.downsample.1", stride)
        return self.relu(self.node("Add", [y, x]))

    def model(self, result: str, x_shape: Sequence[int], y_shape: Sequence[int]) -> bytes:
        kind = onnx.TensorProto.FLOAT
        x, y = (helper.make_tensor_value_info(n, kind, list(s)) for n, s in (("x", x_shape), (result, y_shape)))
        graph = helper.make_graph(self._nodes, "resnet", [x], [y], list(self._weights.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
        onnx.checker.check_model(model)
        return bytes(model.SerializeToString())
