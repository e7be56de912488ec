"""One side of the inference benchmark in a process of its own: a trained network's forward pass, timed."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from alpha.errors import EngineError
from benchmarks.common import Setup
from benchmarks.sides import AlphaSide, HostClock, TorchSide, time_call
from benchmarks.workers import serve

Array = np.ndarray[Any, Any]

CLASSES = 1000
_CALLS_TO_CAPTURE = 4
"""Calls after which ``alpha.graph`` replays."""
_CHANNELS = 3


def _images(batch: int, size: int, seed: int) -> Array:
    """(N, H, W, C) uniform in [-1, 1]."""
    images: Array = np.random.default_rng(seed).uniform(-1, 1, (batch, size, size, _CHANNELS)).astype(np.float32)
    return images


def _as_trained(name: str, array: Array, rng: np.random.Generator) -> Array:
    """BatchNorm's weights and statistics as after some training; before it they would scale and shift nothing."""
    if name.endswith(("running_mean", "bias")):
        return np.asarray(rng.normal(0, 0.1, array.shape), array.dtype)
    if name.endswith("running_var") or (name.endswith("weight") and array.ndim == 1):
        return np.asarray(rng.uniform(0.5, 1.5, array.shape), array.dtype)
    return array


class Alpha(AlphaSide):
    """Dragon-Alpha under no_grad() and eval().

    Args:
        setup: what both sides compute with.
        captured: whether passes are replayed by ``alpha.graph``.
    """

    def __init__(self, setup: dict[str, Any], captured: bool) -> None:
        super().__init__(Setup(**setup))
        from alpha import nn

        self._captured = captured

        self._net = nn.models.resnet18(CLASSES, "torchvision").to(self.engine).eval()
        self._call: Callable[[], Any] | None = None

    def make_weights(self, path: str, seed: int) -> None:
        """Writes weights for all sides, in PyTorch's layout."""
        import alpha
        from alpha import nn

        alpha.manual_seed(seed)
        net, rng = nn.models.resnet18(CLASSES, "torchvision"), np.random.default_rng(seed)
        arrays = {key: _as_trained(key, np.asarray(value), rng) for key, value in nn.models.to_torch(net).items()}
        np.savez(path, **arrays)  # type: ignore[arg-type, unused-ignore]

    def prepare(self, weights: str, batch: int, size: int, seed: int) -> None:
        """Loads the weights and makes the images."""
        import alpha
        from alpha import nn

        with np.load(weights) as arrays:
            self._net.load_state_dict(nn.models.from_torch(dict(arrays), self._net))
        x = self.engine.from_numpy(_images(batch, size, seed))
        casts = self.setup.precision == "bf16"

        def call(x: Any) -> Any:
            with alpha.no_grad(), alpha.autocast("bfloat16", enabled=casts):
                return self._net(x)

        self._call = partial(alpha.graph(call) if self._captured else call, x)
        for _ in range(_CALLS_TO_CAPTURE if self._captured else 0):
            self._call()

    def save(self, path: str) -> None:
        """Writes the logits."""
        assert self._call is not None
        np.save(path, np.asarray(self._call().float()))

    def time(self) -> float:
        """Seconds of a pass."""
        assert self._call is not None
        return time_call(self.clock, self._call)


class Torch(TorchSide):
    """PyTorch in inference mode.

    Args:
        setup: what both sides compute with.
        form: ``"frozen"`` (traced, BatchNorm folded, oneDNN's fused operators) or ``"compiled"`` (by Inductor, with
            the weights as constants), its two fast forms.
        layout: ``"contiguous"`` or ``"channels_last"``.
    """

    def __init__(self, setup: dict[str, Any], form: str, layout: str) -> None:
        super().__init__(Setup(**setup))
        torch = self.torch
        self._form = form
        self._order = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}[layout]
        self._call: Callable[[], Any] | None = None

    def prepare(self, weights: str, batch: int, size: int, seed: int) -> None:
        """Loads the weights, makes the images and optimises the network for them."""
        from benchmarks.torch_models import torch_twin

        torch = self.torch
        net = torch_twin("resnet18", "torchvision", CLASSES)
        with np.load(weights) as arrays:
            net.load_state_dict({key: torch.from_numpy(arrays[key]) for key in arrays.files})
        images = torch.from_numpy(_images(batch, size, seed).transpose(0, 3, 1, 2))
        x = images.contiguous(memory_format=self._order)
        if self.setup.precision == "bf16":
            net, x = net.to(torch.bfloat16), x.to(torch.bfloat16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fast = self._optimised(net.eval().to(memory_format=self._order), x)

        def call() -> Any:
            with torch.inference_mode():
                return fast(x)

        self._call = call

    def _optimised(self, net: Any, x: Any) -> Any:
        torch = self.torch
        if self._form == "frozen":
            with torch.no_grad():
                frozen = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(net, x)))
                frozen(x), frozen(x)  # it specialises itself in its first calls
            return frozen
        import torch._inductor.config as inductor

        inductor.freezing = True
        inductor.compile_threads = 1  # no processes of its own, which would outlive this one's turn
        compiled = torch.compile(net)
        try:
            with torch.inference_mode():
                compiled(x)
        except Exception as error:  # Inductor's own kinds, or a missing compiler's
            raise EngineError(f"[benchmarks] expected torch.compile to work, got {type(error).__name__}") from error
        return compiled

    def save(self, path: str) -> None:
        """Writes the logits."""
        assert self._call is not None
        np.save(path, self._call().float().numpy())

    def time(self) -> float:
        """Seconds of a pass."""
        assert self._call is not None
        return time_call(self.clock, self._call)


class OnnxRuntime:
    """ONNX Runtime with all its graph optimisations."""

    def __init__(self, setup: dict[str, Any]) -> None:
        import onnxruntime

        self._onnxruntime = onnxruntime
        self._threads = Setup(**setup).threads
        self._session: Any = None
        self._x: Array | None = None

    def prepare(self, weights: str, batch: int, size: int, seed: int) -> None:
        """Builds the graph, a session for it, and the images."""
        from benchmarks.onnx_models import resnet

        runtime = self._onnxruntime
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
        with np.load(weights) as arrays:
            model = resnet(dict(arrays), batch, size)
        self._session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._x = np.ascontiguousarray(_images(batch, size, seed).transpose(0, 3, 1, 2))

    def _call(self) -> Any:
        return self._session.run(None, {"x": self._x})[0]

    def save(self, path: str) -> None:
        """Writes the logits."""
        np.save(path, self._call())

    def time(self) -> float:
        """Seconds of a pass."""
        return time_call(HostClock(), self._call)


class OpenVino:
    """OpenVINO set for latency, with the same graph as ONNX Runtime."""

    def __init__(self, setup: dict[str, Any]) -> None:
        import openvino

        self._openvino = openvino
        self._setup = Setup(**setup)
        self._request: Any = None
        self._x: Array | None = None

    def prepare(self, weights: str, batch: int, size: int, seed: int) -> None:
        """Builds the graph, compiles it, and makes the images."""
        from benchmarks.onnx_models import resnet

        core = self._openvino.Core()
        with np.load(weights) as arrays:
            model = core.read_model(io.BytesIO(resnet(dict(arrays), batch, size)))
        options = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": self._setup.threads,
            "INFERENCE_PRECISION_HINT": "bf16" if self._setup.precision == "bf16" else "f32",
        }
        self._request = core.compile_model(model, "CPU", options).create_infer_request()
        self._x = np.ascontiguousarray(_images(batch, size, seed).transpose(0, 3, 1, 2))
        self._request.set_input_tensor(self._openvino.Tensor(self._x, shared_memory=True))

    def save(self, path: str) -> None:
        """Writes the logits."""
        self._request.infer()
        np.save(path, self._request.get_output_tensor().data)

    def time(self) -> float:
        """Seconds of a pass."""
        return time_call(HostClock(), self._request.infer)


if __name__ == "__main__":
    serve({"alpha": Alpha, "torch": Torch, "onnxruntime": OnnxRuntime, "openvino": OpenVino})
