"""The two sides of a benchmark on the hardware that is measured: engine or torch device, clock, memory, settings."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar, cast

from alpha.errors import EngineError
from benchmarks.common import MIB, Setup
from benchmarks.workers import Memory

Result = TypeVar("Result")

_TURN = 0.02
"""Fewest seconds that a turn's timed calls take together."""

_WARM = 0.01
"""Seconds of calls before those: woken threads need some milliseconds to spread over the cores."""

TORCH_WARMUP = 3
"""PyTorch's calls before a capture."""

_LONG = 0.1
"""Seconds of a call beside which waking the threads is nothing, so that it needs no other before it."""


# -- time ------------------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Times calls whose work may continue after they return."""

    def run(self, call: Callable[[], Result], count: int = 1) -> tuple[float, Result]:
        """Seconds of ``count`` calls one after the other until their work is done, and the last one's result."""


class HostClock:
    """The host's clock, for work that is done when its call returns."""

    def run(self, call: Callable[[], Result], count: int = 1) -> tuple[float, Result]:
        """Seconds of ``count`` calls, and the last one's result."""
        start = time.perf_counter()
        for _ in range(count - 1):
            call()
        result = call()
        return time.perf_counter() - start, result


class Event(Protocol):
    """A point in a GPU's stream."""

    def record(self) -> object:
        """Puts it behind all work submitted so far."""

    def seconds_since(self, earlier: Self) -> float:
        """Waits for it; the time between the two in seconds."""


class EventClock:
    """A GPU's clock, between two points of its stream; the host runs ahead as it does in training."""

    def __init__(self, event: Callable[[], Event]) -> None:
        self._event = event

    def run(self, call: Callable[[], Result], count: int = 1) -> tuple[float, Result]:
        """Seconds on the GPU of ``count`` calls, and the last one's result."""
        start, end = self._event(), self._event()
        start.record()
        for _ in range(count - 1):
            call()
        result = call()
        end.record()
        return end.seconds_since(start), result


def time_call(clock: Clock, call: Callable[[], object]) -> float:
    """Seconds of a call: the mean of as many as fill a turn, after some that wake the threads."""
    once = spent = clock.run(call)[0]
    if once >= _LONG:
        return once
    while spent < _WARM:
        last = clock.run(call)[0]
        spent, once = spent + last, min(once, last)
    count = max(1, math.ceil(_TURN / max(once, 1e-6)))
    return clock.run(call, count)[0] / count


class _TorchEvent:
    """``torch.cuda.Event`` as an ``Event``."""

    def __init__(self, torch: Any) -> None:
        self.handle = torch.cuda.Event(enable_timing=True)

    def record(self) -> None:
        self.handle.record()

    def seconds_since(self, earlier: _TorchEvent) -> float:
        self.handle.synchronize()
        return float(earlier.handle.elapsed_time(self.handle)) * 1e-3


# -- memory ----------------------------------------------------------------------------------------------------------


class DriverMemory:
    """What the driver says that this process took of a GPU's memory since this was made, its context left out.

    Only one process works at a time, so what is free before and after a call tells what the call took or gave back.
    """

    def __init__(self, free: Callable[[], int]) -> None:
        self._free = free
        self.taken = 0

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Counts what is taken within."""
        before = self._free()
        try:
            yield
        finally:
            self.taken += before - self._free()


# -- the sides -------------------------------------------------------------------------------------------------------


class AlphaSide:
    """Dragon-Alpha's engine, as the default one, with its clock and memory."""

    clock: Clock

    def __init__(self, setup: Setup) -> None:
        import alpha
        from alpha import nn, optim  # noqa: F401  whoever trains imports these
        from alpha.precision import set_float32_precision

        self.setup = setup
        if not setup.cuda:
            # What alpha.engine() imports when it is called comes before the memory's start, as PyTorch's libraries do.
            importlib.import_module("alpha.cpu.engine")
        self._memory = Memory()
        set_float32_precision(setup.float32_precision)
        self.engine: Any = alpha.engine(setup.engine, threads=None if setup.cuda else setup.threads)
        alpha.set_default_engine(self.engine)
        if setup.cuda:
            device = cast(Any, self.engine).device
            self.clock = EventClock(device.event)
            self.driver = DriverMemory(lambda: int(device.memory_info()[0]))
        else:
            self.clock = HostClock()
            self.driver = DriverMemory(lambda: 0)

    def settle(self) -> None:
        """Starts the peak anew, after what happens in the first calls only."""
        if self.setup.cuda:
            self.engine.memory.reset_peak()

    def peak(self) -> dict[str, float]:
        """MiB: of the host's memory over what the process held after its imports; what the engine's pool holds; of a
        GPU's memory what was in use at most, and what the driver gave."""
        pool = self.engine.memory
        found = {"process_mib": self._memory.peak_mib(), "pool_mib": pool.held / MIB}
        if self.setup.cuda:
            found |= {"in_use_mib": pool.peak / MIB, "driver_mib": self.driver.taken / MIB}
        return found

    def graphed(self, call: Callable[[], object]) -> Callable[[], object]:
        """The call, or its replay where the setup asks for graphs: the same kernels on the same memory each time."""
        if not self.setup.graph:
            return call
        call()  # what the first call alone does cannot be captured
        self.engine.synchronize()
        kept = []
        # As alpha.graph captures: in memory of the recording's own, results and scratch alike. Scratch of the engine's
        # pool would be handed out again after the capture, and every replay would write over whoever has it then.
        with self.engine.recorder().capture() as recording:
            kept.append(call())

        def replay() -> object:
            recording.launch()
            return kept[0]

        return replay

    def describe(self) -> dict[str, Any]:
        """The GPU, for the result's head; empty for the processor."""
        if not self.setup.cuda:
            return {}
        device = self.engine.device
        return {
            "name": device.name,
            "architecture": device.architecture,
            "multiprocessors": device.multiprocessors,
            "memory_gib": round(device.memory_info()[1] / (1 << 30), 1),
            "l2_mib": device.l2_bytes / MIB,
        }


class TorchSide:
    """PyTorch on the same hardware, set for speed: cudnn.benchmark on a GPU, TF32 as the setup says."""

    clock: Clock

    def __init__(self, setup: Setup) -> None:
        import torch

        self.torch: Any = torch
        self.setup = setup
        self._memory = Memory()
        self._side_stream: Any = None
        torch.set_num_threads(setup.threads)
        if not setup.cuda:
            self.device = torch.device("cpu")
            self.clock = HostClock()
            self.driver = DriverMemory(lambda: 0)
            return
        if not torch.cuda.is_available():
            raise EngineError(
                f"[benchmarks] expected a PyTorch that sees a GPU, got {torch.__version__} which sees none: install "
                "one for CUDA, or measure Dragon-Alpha alone with --against none"
            )
        self.device = torch.device("cuda", setup.ordinal)
        torch.cuda.set_device(self.device)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = setup.precision == "high"
        self.clock = EventClock(lambda: _TorchEvent(torch))
        torch.cuda.init()
        self.driver = DriverMemory(lambda: int(torch.cuda.mem_get_info()[0]))

    def settle(self) -> None:
        """Gives back what cuDNN's trials took, and starts the peak anew."""
        if self.setup.cuda:
            self.torch.cuda.empty_cache()
            self.torch.cuda.reset_peak_memory_stats()

    def peak(self) -> dict[str, float]:
        """MiB, as for ``AlphaSide``."""
        found = {"process_mib": self._memory.peak_mib()}
        if self.setup.cuda:
            cuda = self.torch.cuda
            found |= {
                "pool_mib": cuda.memory_reserved() / MIB,
                "in_use_mib": cuda.max_memory_allocated() / MIB,
                "driver_mib": self.driver.taken / MIB,
            }
        return found

    def graphed(self, call: Callable[[], object]) -> Callable[[], object]:
        """The call, or its replay where the setup asks for graphs."""
        if not self.setup.graph:
            return call
        for _ in range(TORCH_WARMUP):
            self.on_side_stream(call)
        return self.captured(call)

    def on_side_stream(self, call: Callable[[], Result]) -> Result:
        """Calls on another stream, as PyTorch's manual has it before a capture: cuDNN's trials run then."""
        cuda = self.torch.cuda
        if self._side_stream is None:
            self._side_stream = cuda.Stream()
        self._side_stream.wait_stream(cuda.current_stream())
        with cuda.stream(self._side_stream):
            result = call()
        cuda.current_stream().wait_stream(self._side_stream)
        return result

    def captured(self, call: Callable[[], object]) -> Callable[[], object]:
        """The replay of a call that has been made often enough."""
        cuda = self.torch.cuda
        graph, kept = cuda.CUDAGraph(), []
        with cuda.graph(graph):
            kept.append(call())

        def replay() -> object:
            graph.replay()
            return kept[0]

        return replay

    def describe(self) -> dict[str, Any]:
        """The GPU and its libraries, for the result's head; empty for the processor."""
        if not self.setup.cuda:
            return {}
        torch = self.torch
        return {
            "name": torch.cuda.get_device_name(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }
