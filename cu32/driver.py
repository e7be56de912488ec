"""The CUDA driver through PyCUDA, which no other module imports: devices, streams, events, memory, launches, graphs.

PyCUDA keeps a stack of contexts per thread and insists that it be empty at the end. So a thread that uses a device
has its primary context made current through ctypes, which leaves that stack alone, and PyCUDA's own calls that look at
the stack (allocation, streams, modules) run within ``Device.context()``.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import struct
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from alpha.cu32 import selfcheck
from alpha.cu32.compiler import OLDEST, Source, can_compile, cubin, made_ahead, makers, note_refused
from alpha.errors import EngineError

_HELP = "alpha.engine('cpu') needs none of this"
_current = threading.local()
_forked = False


def _after_fork() -> None:
    """CUDA does not work in a child of the process that started it: its driver answers with errors, or not at all."""
    global _forked
    _forked = _pycuda.cache_info().currsize > 0
    _current.__dict__.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _check_process() -> None:
    if _forked:
        raise EngineError(
            "[cu32] expected the process that opened the device, got a child that it made by a fork, where CUDA does "
            "not work: start children with multiprocessing.get_context('spawn'), or open the device in them alone"
        )


@cache
def _pycuda() -> Any:
    """pycuda.driver, initialised; EngineError that says which of package, driver and device is missing."""
    try:
        from pycuda import driver
    except ImportError as error:
        if "libcuda" in str(error) or "nvcuda" in str(error) or "DLL" in str(error):
            raise EngineError(
                f"[cu32] expected NVIDIA's driver, got none ({error}): install the driver of your GPU; {_HELP}"
            ) from error
        raise EngineError(
            f"[cu32] expected the package pycuda, got: {error}: pip install 'dragon-alpha[cuda]'; {_HELP}"
        ) from error
    try:
        driver.init()
        count = driver.Device.count()
    except driver.Error as error:
        raise EngineError(f"[cu32] expected the driver to start, got: {error}: run nvidia-smi to see why") from error
    if count == 0:
        raise EngineError(f"[cu32] expected a CUDA device, got none that this process may use; {_HELP}")
    # At the end PyCUDA frees on the main thread, and says so of all that is another thread's: the driver frees it then.
    atexit.register(warnings.filterwarnings, "ignore", message=".* in out-of-thread context could not be cleaned up")
    return driver


@cache
def _libcuda() -> ctypes.CDLL:
    """The driver's own library, for what PyCUDA does not wrap."""
    _pycuda()
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    library.cuGetErrorString.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    return library


def _call(function: str, *arguments: Any) -> None:
    """Calls the driver through ctypes; EngineError with its text where it fails."""
    result = getattr(_libcuda(), function)(*arguments)
    if result != 0:
        text = ctypes.c_char_p()
        _libcuda().cuGetErrorString(result, ctypes.byref(text))
        raise EngineError(f"[cu32] expected {function} to succeed, got: {(text.value or b'unknown error').decode()}")


def device_count() -> int:
    """Devices that this process may use; EngineError where driver or package is missing."""
    return int(_pycuda().Device.count())


def architectures() -> list[str]:
    """``["sm_90"]``: the architectures of this machine's devices, each once."""
    return list(dict.fromkeys(device(ordinal).architecture for ordinal in range(device_count())))


def _driver_version(driver: Any) -> str:
    version = str(driver.get_driver_version())
    with suppress(OSError):
        return f"{version} {Path('/sys/module/nvidia/version').read_text('utf-8').strip()}"
    return version


@cache
def device(ordinal: int) -> Device:
    """The process's one Device of an ordinal."""
    return Device(ordinal)


class Device:
    """One GPU through its primary context, with the one stream an engine works on.

    Attributes:
        name, ordinal: as the driver tells.
        capability: compute capability, ``(9, 0)``.
        architecture: ``"sm_90"``.
        driver_version: ``"13000"``, the CUDA version that the driver serves, and on Linux the driver's own.
        capturing: whether the stream's work becomes a graph.
        launches: of kernels and graphs, so far.
        families: which families of kernels compute right on it, as far as it is known.
        multiprocessors: number of streaming multiprocessors.
        shared_per_block: most bytes of shared memory that a block may ask for.
        shared_per_multiprocessor, registers_per_multiprocessor, l2_bytes: what planners divide up.
        clock: the highest of its multiprocessors, in Hz.
    """

    def __init__(self, ordinal: int) -> None:
        self._driver = driver = _pycuda()
        count = driver.Device.count()
        if not 0 <= ordinal < count:
            raise EngineError(f"[cu32] expected a device of 0..{count - 1}, got cu32:{ordinal}")
        self.ordinal = ordinal
        handle = driver.Device(ordinal)
        self.name = str(handle.name())
        self.capability: tuple[int, int] = tuple(handle.compute_capability())
        if self.capability < OLDEST:
            raise EngineError(
                f"[cu32] expected compute capability {OLDEST[0]}.{OLDEST[1]} or newer, got "
                f"{self.capability[0]}.{self.capability[1]} ({self.name})"
            )
        self.architecture = f"sm_{self.capability[0]}{self.capability[1]}"
        self.driver_version = _driver_version(driver)
        self.capturing, self.launches = False, 0
        self.families = selfcheck.Record()
        attribute = driver.device_attribute
        self.multiprocessors = int(handle.get_attribute(attribute.MULTIPROCESSOR_COUNT))
        self.shared_per_multiprocessor = int(handle.get_attribute(attribute.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR))
        self.registers_per_multiprocessor = int(handle.get_attribute(attribute.MAX_REGISTERS_PER_MULTIPROCESSOR))
        self.l2_bytes = int(handle.get_attribute(attribute.L2_CACHE_SIZE))
        self.clock = 1000 * int(handle.get_attribute(attribute.CLOCK_RATE))
        self.shared_per_block = int(handle.get_attribute(attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN))
        self._context = handle.retain_primary_context()
        self._handle = ctypes.c_void_p()
        _call("cuDevicePrimaryCtxRetain", ctypes.byref(self._handle), ordinal)
        with self.context():
            self.stream = driver.Stream(1)  # non-blocking: nobody's default stream makes it wait
        self._kernels: dict[tuple[Source, str], Kernel] = {}
        self._modules: dict[Source, Any] = {}
        self._order: deque[ctypes.c_void_p] = deque()  # events that streams wait for which are not ours
        self._spare: list[Event] = []  # events that nobody waits for any more
        self._lock = threading.RLock()

    def activate(self) -> None:
        """Makes the device this thread's."""
        if getattr(_current, "device", None) is not self:
            _check_process()
            _call("cuCtxSetCurrent", self._handle)
            _current.device = self

    @contextmanager
    def context(self) -> Iterator[Any]:
        """PyCUDA's driver module with this device's context on PyCUDA's stack."""
        _check_process()
        self._context.push()
        try:
            yield self._driver
        finally:
            self._context.pop()
            _current.device = None

    # -- memory --------------------------------------------------------------------------------------------------

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of device memory, as the driver tells."""
        with self.context() as driver:
            free, total = driver.mem_get_info()
            return int(free), int(total)

    def allocate(self, nbytes: int) -> tuple[int, Any]:
        """(address, handle) of device memory; MemoryError where the driver has none. The handle's end frees it."""
        with self.context() as driver:
            try:
                handle = driver.mem_alloc(nbytes)
            except driver.MemoryError as error:
                raise MemoryError(f"{nbytes} bytes on {self.name}") from error
            return int(handle), handle

    def release(self, handle: Any) -> None:
        """Frees what ``allocate`` gave, once the work that uses it is done."""
        self.synchronize()
        with self.context():  # PyCUDA refuses to free on a thread other than the one that allocated
            handle.free()

    def pinned(self, nbytes: int) -> np.ndarray[Any, Any]:
        """Host memory, as bytes, that the device copies from and to without a stop."""
        with self.context() as driver:
            array: np.ndarray[Any, Any] = driver.pagelocked_empty(nbytes, np.uint8)
            return array

    def upload(self, address: int, array: np.ndarray[Any, Any], stream: Any = None) -> None:
        """Copies host to device in stream order, by default the engine's; the array must stay as it is until then."""
        with self._failures():
            self._driver.memcpy_htod_async(address, array, self.stream if stream is None else stream)

    def download(self, array: np.ndarray[Any, Any], address: int) -> None:
        """Copies device to host, and waits."""
        with self._failures():
            self._driver.memcpy_dtoh_async(array, address, self.stream)
            self.stream.synchronize()

    def copy(self, source: int, destination: int, nbytes: int) -> None:
        """Copies within the device in stream order."""
        with self._failures():
            self._driver.memcpy_dtod_async(destination, source, nbytes, self.stream)

    def clear(self, address: int, nbytes: int) -> None:
        """Zeroes memory in stream order."""
        with self._failures():
            self._driver.memset_d8_async(address, 0, nbytes, self.stream)

    def holder(self, address: int) -> int:
        """The number of the device that has an address in its memory."""
        self.activate()
        ordinal = ctypes.c_int()
        _call("cuPointerGetAttribute", ctypes.byref(ordinal), 9, ctypes.c_uint64(address))  # the device's ordinal
        return ordinal.value

    def order(self, first: int, second: int) -> None:
        """Has what is submitted to a stream from now on wait for what another one has been given; by their handles."""
        if first == second:
            return
        self.activate()
        with self._lock:
            if self._order and _libcuda().cuEventQuery(self._order[0]) == 0:
                event = self._order.popleft()
            else:
                event = ctypes.c_void_p()
                _call("cuEventCreate", ctypes.byref(event), 2)  # without a time
            self._order.append(event)
            _call("cuEventRecord", event, ctypes.c_void_p(first))
            _call("cuStreamWaitEvent", ctypes.c_void_p(second), event, 0)

    # -- kernels -------------------------------------------------------------------------------------------------

    def kernel(self, source: Source, name: str) -> Kernel:
        """A kernel of a source, compiled and loaded on first use."""
        found = self._kernels.get((source, name))
        if found is None:
            settled = selfcheck.admit(self, source)
            with self._lock:
                found = self._load(source, name)
                if settled:
                    self._kernels[source, name] = found
        return found

    def _load(self, source: Source, name: str) -> Kernel:
        ahead = made_ahead(source, self.architecture)
        image = ahead if ahead is not None else cubin(source, self.architecture)
        with self.context() as driver:
            try:
                module = self._modules.get(source)
                if module is None:
                    module = self._modules[source] = self._module(driver, source, image, ahead is not None)
                return Kernel(self, source, name, module.get_function(name))
            except driver.LogicError as error:
                raise EngineError(
                    f"[cu32] expected a kernel {name} in {source}, {makers()}, got: {error}: if the image is called "
                    "invalid, the driver is older than the compiler: update it"
                ) from error

    def _module(self, driver: Any, source: Source, image: bytes, ahead: bool) -> Any:
        """A cubin loaded; where the driver does not take one made ahead, what the compiler here makes instead."""
        try:
            return driver.module_from_buffer(image)
        except driver.Error as error:
            if not (ahead and can_compile()):
                raise
            note_refused(str(error))
        return driver.module_from_buffer(cubin(source, self.architecture))

    def synchronize(self) -> None:
        """Waits until the stream is empty; EngineError if a kernel failed on the way."""
        with self._failures():
            self.stream.synchronize()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Makes the device this thread's; what failed before shows in any later call, and is an EngineError."""
        self.activate()
        try:
            yield
        except self._driver.Error as error:
            raise EngineError(
                f"[cu32] expected the work on {self.name} to finish, got: {error}: the device's context is lost, start "
                "the process again; engine.sync(True) names the kernel that fails"
            ) from error

    def new_stream(self) -> Any:
        """A stream beside the engine's."""
        with self.context() as driver:
            return driver.Stream(1)

    @contextmanager
    def using(self, stream: Any, joins: bool = True) -> Iterator[None]:
        """``with device.using(stream):`` the work of the block goes to a stream of ``new_stream``.

        ``joins``: behind all that the engine's own stream has now.
        """
        engine_stream = self.stream
        if joins:
            here = self.mark()
            with self._failures():
                stream.wait_for_event(here._handle)
            self._spare.append(here)
        self.stream = stream
        try:
            yield
        finally:
            self.stream = engine_stream

    def mark(self, stream: Any = None) -> Event:
        """A point in a stream, by default the engine's, behind all that it was given, for another to wait for once."""
        try:
            event = self._spare.pop()
        except IndexError:
            event = self.event(timed=False)
        return event.record(stream)

    def wait_for(self, mark: Event, stream: Any = None) -> None:
        """Makes a stream, by default the engine's, wait for a mark in another one."""
        with self._failures():
            (self.stream if stream is None else stream).wait_for_event(mark._handle)
        self._spare.append(mark)  # who waits already does not care what it marks next

    def event(self, timed: bool = True) -> Event:
        """A point in the stream, to wait for or, ``timed``, to measure from."""
        with self.context() as driver:
            return Event(self, driver.Event(0 if timed else driver.event_flags.DISABLE_TIMING))


class Event:
    """A point in a device's stream."""

    def __init__(self, device: Device, handle: Any) -> None:
        self._device, self._handle = device, handle

    def record(self, stream: Any = None) -> Event:
        """Puts the point behind all work submitted so far to a stream, by default the engine's."""
        with self._device._failures():
            self._handle.record(self._device.stream if stream is None else stream)
        return self

    def done(self) -> bool:
        """Whether the stream has passed it."""
        with self._device._failures():
            return bool(self._handle.query())

    def synchronize(self) -> None:
        """Waits until the stream has passed it."""
        with self._device._failures():
            self._handle.synchronize()

    def seconds_since(self, earlier: Event) -> float:
        """Time between two points, both passed, in seconds."""
        self.synchronize()
        return float(self._handle.time_since(earlier._handle)) * 1e-3


class Kernel:
    """A function on the device.

    Attributes:
        registers: registers per thread.
        shared: bytes of static shared memory per block.
    """

    def __init__(self, device: Device, source: Source, name: str, handle: Any) -> None:
        self.device, self.source, self.name = device, source, name
        attribute = device._driver.function_attribute
        self.registers = int(handle.get_attribute(attribute.NUM_REGS))
        self.shared = int(handle.get_attribute(attribute.SHARED_SIZE_BYTES))
        self._handle = handle
        self._dynamic = (48 << 10) - self.shared  # bytes of dynamic shared memory that a launch may ask for

    def __call__(self, grid: Sequence[int], block: Sequence[int], arguments: bytes, shared: int = 0) -> None:
        """Launches on the device's stream with packed arguments and bytes of dynamic shared memory."""
        self.device.activate()
        self.device.launches += 1
        driver = self.device._driver
        try:
            if shared > self._dynamic:  # beyond 48 KiB in all a kernel must be told, once: all that there is
                most = max(shared, self.device.shared_per_block - self.shared)
                self._handle.set_attribute(driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, most)
                self._dynamic = most
            self._handle._launch_kernel(grid, block, arguments, shared, self.device.stream)
        except driver.Error as error:
            raise EngineError(
                f"[cu32] expected {self.name} of {self.source} to run with grid {tuple(grid)}, block {tuple(block)}, "
                f"{shared} bytes of shared memory, got: {error}"
            ) from error


_FORMATS = {
    int: "q",
    bool: "i",
    float: "f",
    np.int32: "i",
    np.uint32: "I",
    np.int64: "q",
    np.uint64: "Q",
    np.float32: "f",
    np.float64: "d",
    np.bool_: "?",
    np.uint8: "B",
    np.uint16: "H",
}


@lru_cache(maxsize=4096)
def _layout(kinds: tuple[Any, ...], sizes: tuple[int, ...]) -> Callable[..., bytes]:
    """What packs arguments of these types, those in ``_FORMATS`` and bytes; ``sizes`` are the lengths of the bytes."""
    left = iter(sizes)
    return struct.Struct("@" + "".join(f"0q{next(left)}s" if kind is bytes else _FORMATS[kind] for kind in kinds)).pack


def pack(arguments: Sequence[Any]) -> bytes:
    """Arguments as a kernel reads them: int as 64 bits, bool as int, float as float, NumPy scalars as they are, bytes
    as a struct aligned to 8; addresses are ints."""
    kinds: tuple[Any, ...] = tuple(map(type, arguments))
    sizes = tuple([len(value) for value in arguments if type(value) is bytes]) if bytes in kinds else ()
    try:
        return _layout(kinds, sizes)(*arguments)
    except (KeyError, struct.error) as error:
        raise EngineError(f"[cu32] expected kernel arguments that can be packed, got {arguments}: {error}") from error


class Graph:
    """Work captured from a device's stream, launched again as one.

    Captures on entering a ``with`` block; after it ``launch()`` replays. What the driver refuses while capturing (a
    wait) ends the capture with an EngineError.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._executable: ctypes.c_void_p | None = None

    @property
    def _stream(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.device.stream.handle)

    def __enter__(self) -> Graph:
        self.device.activate()
        # 2: the memory pool may have to grow meanwhile
        selfcheck.begin_capture(self.device, lambda: _call("cuStreamBeginCapture_v2", self._stream, 2))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._end(kind)
        finally:
            self.device.capturing = False

    def _end(self, kind: type[BaseException] | None) -> None:
        graph = ctypes.c_void_p()
        self.device.activate()
        if kind is not None:  # the capture is given up; its own error, if any, must not hide the caller's
            _libcuda().cuStreamEndCapture(self._stream, ctypes.byref(graph))
            if graph:
                _libcuda().cuGraphDestroy(graph)
            return
        _call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        try:
            executable = ctypes.c_void_p()
            _call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
            self._executable = executable
        finally:
            _call("cuGraphDestroy", graph)

    def launch(self) -> None:
        """Submits the captured work to the device's stream."""
        if self._executable is None:
            raise EngineError("[cu32] expected a captured graph, got one whose capture was not finished")
        self.device.activate()
        self.device.launches += 1
        _call("cuGraphLaunch", self._executable, self._stream)

    def __del__(self) -> None:
        if self._executable is not None and not sys.is_finalizing():
            self.device.activate()
            _libcuda().cuGraphExecDestroy(self._executable)
            self._executable = None
