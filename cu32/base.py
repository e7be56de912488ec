"""DeviceEngine: what every family of the CUDA engine stands on: memory, copies to and from the host, launches."""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np

from alpha import caches, dlpack, dtypes, steps
from alpha.arenas import Observer
from alpha.arguments import as_array
from alpha.cu32 import driver, uploads
from alpha.cu32.compiler import USER, Source
from alpha.dtypes import is_stored
from alpha.engine import Engine
from alpha.errors import DtypeError, EngineError, GraphError
from alpha.mempool import GRAIN, MemoryPool
from alpha.tensor import Storage, Tensor

Array = np.ndarray[Any, Any]
Made = TypeVar("Made")
Extent = int | Sequence[int]
Extents = tuple[int, int, int]
"""A grid's or a block's extents along all three axes."""

CONSTANT_BYTES = 256 << 20
"""Most bytes of tables that an engine keeps for later calls; what captured graphs use comes on top."""

LEAST_COUNTERS = 256
"""Counters of a table of them."""

MAX_GRID_X, MAX_GRID_YZ = 2**31 - 1, 65535
"""Blocks of a grid along x, and along y or z, at most: the same for every device."""

MOST_LAUNCHES = 4096
"""Launches that an engine keeps."""

REALS = {dtypes.info(dtype).c_name: dtypes.info(dtype).vector for dtype in dtypes.FLOATS}
"""The floats by their names in the kernels: how many of them a kernel of a layer reads at once, or one."""


def c_type(dtype: np.dtype[Any]) -> str:
    """A dtype's name in the kernels."""
    return dtypes.info(dtype).c_name


def of_reals(kernels: str) -> tuple[Source, ...]:
    """A kernel file for each float: its macro REAL."""
    return tuple(Source(kernels, REAL=real) for real in REALS)


def in_vectors(kernels: str) -> tuple[Source, ...]:
    """A kernel file for each float, REAL, and each number of elements that it reads at once, VEC."""
    return tuple(Source(kernels, REAL=real, VEC=vec) for real, vector in REALS.items() for vec in {vector: 0, 1: 0})


class Constants:
    """Tables on a device under keys: beyond ``most`` bytes the ones go that were used longest ago.

    Who uses one holds it; its memory is used again in stream order.
    """

    def __init__(self, most: int = CONSTANT_BYTES) -> None:
        self.most = most
        self.held = 0
        self.drops = 0  # how often tables went
        self._entries: dict[Hashable, _Constant] = {}
        self._uses = itertools.count()

    def get(self, key: Hashable) -> Tensor | None:
        """The table, which so is the one used last."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used = next(self._uses)
        return entry.tensor

    def put(self, key: Hashable, tensor: Tensor) -> None:
        """Takes a table in; callers see to it that one thread does at a time."""
        self._entries[key] = _Constant(tensor, next(self._uses))
        self.held += tensor.nbytes + GRAIN
        if self.held > self.most:
            self._drop()

    def _drop(self) -> None:
        self.drops += 1
        oldest = sorted(self._entries, key=lambda key: self._entries[key].used)
        for key in oldest[:-1]:
            if self.held <= self.most * 3 // 4:  # some room, so that this is rare
                break
            self.held -= self._entries.pop(key).tensor.nbytes + GRAIN

    def __len__(self) -> int:
        return len(self._entries)


class _Constant:
    """A table, and when it was used last."""

    __slots__ = ("tensor", "used")

    def __init__(self, tensor: Tensor, used: int) -> None:
        self.tensor, self.used = tensor, used


class Launch:
    """A launch as calls of one kind have it in common: all but addresses, and numbers that change.

    Args:
        source, kernel: what is launched.
        grid, block: extents.
        addresses: how many; they are the first arguments.
        constants: numbers, and bytes, that come behind them.
        numbers: the types of those that come last and change, as ``struct`` names them.
        shared: bytes of dynamic shared memory.
    """

    __slots__ = ("block", "constants", "grid", "kernel", "pack", "shared", "source")

    def __init__(
        self,
        source: Source,
        kernel: str,
        grid: Extent,
        block: Extent,
        addresses: int,
        constants: Sequence[int | bytes] = (),
        numbers: str = "",
        shared: int = 0,
    ) -> None:
        self.source, self.kernel, self.shared = source, kernel, shared
        self.grid, self.block = _blocks(kernel, grid), _three(block)
        kinds = [f"0q{len(one)}s" if isinstance(one, bytes) else "q" for one in constants]
        self.constants = tuple(constants)
        self.pack = struct.Struct("".join(["@", "P" * addresses, *kinds, numbers])).pack


class DeviceEngine(Engine):
    """Tensors in a GPU's memory. Families of operations subclass it, and ``CUDAEngine`` gathers them.

    All work goes to one stream in the order of the calls, so a block given back to the pool may be handed out at once:
    whoever gets it writes after the last reader. Nothing but ``to_numpy`` and ``synchronize`` waits for the device.

    Args:
        ordinal: which device.
        memory: the pool's cap; by default 90 % of what is free.
    """

    def __init__(self, ordinal: int = 0, memory: str | int | None = None) -> None:
        self.device = driver.device(ordinal)
        self.name = f"cu32:{ordinal}"
        cap = memory if memory is not None else self.device.memory_info()[0] * 9 // 10
        self.memory = MemoryPool(cap, self.device.allocate, self._release)
        self.pool = self.memory  # that tensors made now live in: during a capture another
        self.observer: Observer | None = None  # of what a rehearsal asks for
        self._unreleased: list[object] = []
        self._uploader = uploads.Uploader(
            self.device,
            lambda nbytes: Storage(self, self.memory, nbytes),
            lambda: min(uploads.MOST, self.memory.cap // uploads.SHARE),
        )
        self.constants = Constants()
        self._launches: dict[Hashable, tuple[int, Any, object]] = {}
        # The counters asked for last, their stream, and how often constants had been dropped then.
        self._counters: tuple[Tensor, Any, int] | None = None
        self.plans: dict[Any, Any] = {}  # the planner's choices, by what is to be computed
        self._limit_constants()
        self._lock = threading.RLock()

    @property
    def numerics(self) -> str:
        """The kind of device, by which algorithms are chosen and kernels compiled."""
        device = self.device
        return f"{device.name}, {device.architecture}, {device.multiprocessors} multiprocessors"

    def configure(self, *, memory: str | int | None = None, threads: int | None = None) -> None:
        super().configure(memory=memory, threads=threads)
        if memory is not None:
            self._limit_constants()

    def _limit_constants(self) -> None:
        """Tables take a small share of the memory, however little that is."""
        self.constants.most = min(CONSTANT_BYTES, self.memory.cap // caches.BUDGET_FRACTION)

    def synchronize(self) -> None:
        steps.refuse(self, "a wait for the device", "synchronise outside the step")
        self._leave_captures_alone()
        self.device.synchronize()
        self.raise_failed_checks()

    def _leave_captures_alone(self) -> None:
        """GraphError where another thread is capturing a step: this thread's work would become a part of it."""
        if self.capture is not None:
            raise GraphError(
                f"[graph] expected no other thread to use {self.name} during a capture, got one: wait for it"
            )

    def raise_failed_checks(self) -> None:
        """Called where the host has waited: raises what a check noted on the device; see ``cu32.checks``."""

    # -- memory --------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> Storage:
        storage = Storage(self, self.pool, nbytes)
        if self.observer is not None:
            self.observer.note(storage)
        return storage

    def lasting(self) -> AbstractContextManager[None]:
        return self.memory.apart()

    def _release(self, handle: object) -> None:
        # Freeing waits for the device, which a stream that is being captured cannot do.
        self._unreleased.append(handle)
        if self.capture is None:
            self.release_waiting()

    def release_waiting(self) -> None:
        """Gives the driver what could not be freed during a capture."""
        while self._unreleased:
            self.device.release(self._unreleased.pop())

    def scratch(self, nbytes: int) -> Storage:
        """Memory for one launch: drop it after, the stream's order keeps it until the kernel is through."""
        return self.allocate(nbytes)

    def constant(self, key: Hashable, make: Callable[[], Array]) -> Tensor:
        """A device copy of ``make()``, kept under the key as long as ``Constants`` says: index tables."""
        found = self.constants.get(key)
        if found is None:
            with self._lock:
                found = self.constants.get(key)
                if found is None:
                    found = self._uploaded(make()) if self.capture is None else _rehearsed(key)
                    self.constants.put(key, found)
        steps.note_table(self, key, found)
        if self.capture is not None:
            self.capture.keep(found)  # kernels may get its address within a struct
        return found

    def kept_ones(self, x: Tensor) -> Tensor | None:
        ones = self.constant(("ones", x.shape, x.dtype), lambda: np.ones(x.shape, x.dtype))
        # Who has written to it, or may do so unseen, has it alone from now on.
        return None if ones.storage.version or ones.storage.exported else ones

    def counters(self, room: int) -> Tensor:
        """At least so many counters, 0 between launches: every kernel that counts with them sets them back.

        They are of one stream, whose kernels run one after another; two at once would count together.
        """
        stream, drops = self.device.stream, self.constants.drops
        last = self._counters
        if last is not None and not steps.is_watched():
            found, of_stream, then = last
            if room <= found.shape[0] and of_stream is stream and then == drops:
                return found
        room = max(LEAST_COUNTERS, 1 << (room - 1).bit_length())
        found = self.constant(("counters", stream, room), lambda: np.zeros(room, np.int32))
        self._counters = found, stream, drops
        return found

    def from_numpy(self, array: Array) -> Tensor:
        steps.refuse(self, "data from the host", "make the tensor outside the step, and pass it as an argument")
        return self._uploaded(array)

    def _uploaded(self, array: Array) -> Tensor:
        self._leave_captures_alone()
        array = array if type(array) is np.ndarray else as_array("from_numpy", array)
        dtypes.as_dtype(array.dtype, "from_numpy")
        strides = [abs(s) for s in array.strides]
        order = sorted(range(array.ndim), key=lambda axis: -strides[axis])  # stable: ties stay row-major
        out = self.empty(array.shape, array.dtype, order)
        if out.numel():
            self._uploader.upload(out.address, np.ascontiguousarray(array.transpose(order)))
        return out

    def to_numpy(self, tensor: Tensor) -> Array:
        steps.refuse(self, "a value read by the host", "return the tensor, and read it outside the step")
        self._leave_captures_alone()
        source = self.dense(tensor)
        order = source.memory_order()
        host = np.empty([source.shape[axis] for axis in order], source.dtype)
        if host.size:
            self.device.download(host, source.address)
            self.raise_failed_checks()
        return host.transpose(np.argsort(order)) if order else host

    # -- other libraries -----------------------------------------------------------------------------------------

    @property
    def stream(self) -> Any:
        """The stream of the engine's work, PyCUDA's ``driver.Stream``; what is launched to it runs in that order."""
        return self.device.stream

    def array_interface(self, x: Tensor) -> dict[str, Any]:
        """A tensor's memory as version 3 of CUDA's array interface."""
        if is_stored(x.dtype) and x.dtype.str[1] == "V":
            raise DtypeError(
                f"[__cuda_array_interface__] expected a dtype that CUDA's array interface names, got {x.dtype}: "
                "convert it with .to(dtype)"
            )
        if self.capture is not None:
            self.capture.keep(x)
        return {
            "shape": x.shape,
            "typestr": x.dtype.str,
            "data": (x.address if x.numel() else 0, False),
            "strides": None if x.is_contiguous() else tuple([step * x.itemsize for step in x.strides]),
            "stream": int(self.device.stream.handle),
            "version": 3,
        }

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """The device by DLPack's numbers."""
        return dlpack.CUDA, self.device.ordinal

    def gpu_of(self, address: int) -> int:
        """The number of the GPU that has an address in its memory; 0 for a null pointer."""
        return self.device.holder(address) if address else 0

    def precede(self, stream: int) -> None:
        """Has what another library gives its stream, named by its handle, wait for the engine's work so far."""
        handle = int(self.device.stream.handle)
        if stream != handle:
            steps.refuse(self, "a stream that waits for it", "hand the tensor over outside the step")
        self.device.order(handle, stream)

    def follow(self, stream: int) -> None:
        """Has the engine's later work wait for what another library has given its stream."""
        steps.refuse(self, "another library's memory", "take the tensor outside the step, and pass it as an argument")
        self.device.order(stream, int(self.device.stream.handle))

    # -- launches ------------------------------------------------------------------------------------------------

    def launch(
        self, source: Source, kernel: str, grid: Extent, block: Extent, *arguments: Any, shared: int = 0
    ) -> None:
        """Runs a kernel over grid x block threads (ints or up to three), in stream order.

        A Tensor or Storage is passed as its address, None as a null pointer; the others as ``driver.pack`` says.
        """
        if self.capture is not None:
            self.capture.keep(*(value for value in arguments if isinstance(value, (Tensor, Storage))))
        values = [
            value.address if isinstance(value, (Tensor, Storage)) else 0 if value is None else value
            for value in arguments
        ]
        blocks = (grid, 1, 1) if type(grid) is int and 0 < grid <= MAX_GRID_X else _blocks(kernel, grid)
        threads = (block, 1, 1) if type(block) is int and block > 0 else _three(block)
        self.launch_packed(source, kernel, blocks, threads, driver.pack(values), shared)

    def forget_tables(self) -> None:
        """Gives back the tables on the device, and the launches that read them."""
        self._launches.clear()
        self._counters = None
        self.constants = Constants(self.constants.most)

    def kept_launch(self, key: Hashable, make: Callable[[], tuple[Made, object]]) -> Made:
        """A launch, or what has one, with addresses of ``constant`` tables, which ``make`` gives with what holds these.

        It is the one that was made under the key before.

        A step that is rehearsed or captured has to know of its tables, and so makes it again.
        """
        found = self._launches.get(key)
        if found is not None and found[0] == self.constants.drops and not steps.is_watched():
            return found[1]  # type: ignore[no-any-return]
        launch, held = make()
        if len(self._launches) >= MOST_LAUNCHES:
            self._launches.clear()
        self._launches[key] = self.constants.drops, launch, held
        return launch

    def run(self, launch: Launch, tensors: Sequence[Tensor | Storage | None], *numbers: float) -> None:
        """Runs a launch with the addresses of these, null pointers for None, and these numbers."""
        if self.capture is not None:
            self.capture.keep(*[one for one in tensors if one is not None])
        places = [0 if one is None else one.address for one in tensors]
        arguments = launch.pack(*places, *launch.constants, *numbers)
        self.launch_packed(launch.source, launch.kernel, launch.grid, launch.block, arguments, launch.shared)

    def launch_packed(
        self, source: Source, kernel: str, blocks: Extents, threads: Extents, arguments: bytes, shared: int = 0
    ) -> None:
        """The same with all three extents, and with packed arguments whose tensors a capture knows of already."""
        self.device.kernel(source, kernel)(blocks, threads, arguments, shared)
        if self.synchronous and self.capture is None:
            self._await(source, kernel)

    def _await(self, source: Source, kernel: str) -> None:
        try:
            self.device.synchronize()
        except EngineError as error:
            raise EngineError(f"[cu32] expected {kernel} of {source} to finish, got: {error}") from error
        self.raise_failed_checks()

    def kernel(self, source: str, name: str) -> Callable[..., None]:
        """A kernel of the user's: ``engine.kernel(source, "name")(grid, block, *arguments, shared=0)``.

        The source is CUDA C++ that may include ``common.cuh``; the kernel is ``extern "C" __global__``. It is compiled
        and kept like the engine's own. Tensors are passed as pointers to their first element, a Python int as ``long
        long``, a float as ``float``, a bool as ``int``, NumPy scalars as themselves, bytes as a struct.
        """
        text = Source(USER, text=source)
        self.device.kernel(text, name)  # what is wrong with it shows here

        def run(grid: Extent, block: Extent, *arguments: Any, shared: int = 0) -> None:
            self.check_owner(name, *(value for value in arguments if isinstance(value, Tensor)))
            self.launch(text, name, grid, block, *arguments, shared=shared)
            for value in arguments:  # any of them may have been written to
                if isinstance(value, Tensor):
                    value.storage.touch()

        return run

    def blocks(self, work: int, block: int, waves: int = 8) -> int:
        """Blocks for a grid-stride loop: enough for the work, at most ``waves`` per multiprocessor."""
        return max(1, min(-(-work // block), waves * self.device.multiprocessors))


def _rehearsed(key: Hashable) -> Tensor:
    """The table that a capture's rehearsal used; EngineError if there is none, for a capture can upload nothing."""
    found = steps.rehearsed_table(key)
    if found is None:
        raise EngineError(f"[graph] expected the table {key} used in the call before the capture, got none: call again")
    return found


def _blocks(kernel: str, grid: Extent) -> Extents:
    """The grid's three extents; EngineError where the device takes none so large."""
    x, y, z = _three(grid)
    if x > MAX_GRID_X or y > MAX_GRID_YZ or z > MAX_GRID_YZ:
        raise EngineError(
            f"[cu32] expected a grid of at most {MAX_GRID_X} x {MAX_GRID_YZ} x {MAX_GRID_YZ} blocks for {kernel}, got "
            f"{x} x {y} x {z}: launch fewer blocks; use a smaller batch or image"
        )
    return x, y, z


def _three(extent: Extent) -> Extents:
    values = (extent,) if isinstance(extent, int) else tuple(extent)
    if not 1 <= len(values) <= 3 or min(values) < 1:
        raise EngineError(f"[cu32] expected one to three extents >= 1 of a launch, got {extent}")
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z
