"""Settings of the process under PyTorch's names: seeds, threads, devices, precision, determinism."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpha import devices, engines, random
from alpha.arguments import flag, whole
from alpha.conversion import tensor
from alpha.errors import ArgumentError, described
from alpha.precision import get_float32_precision, set_float32_precision
from alpha.tensor import Tensor

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_default_device",
    "get_deterministic_debug_mode",
    "get_float32_matmul_precision",
    "get_num_threads",
    "get_rng_state",
    "initial_seed",
    "is_deterministic_algorithms_warn_only_enabled",
    "seed",
    "set_default_device",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_num_threads",
    "set_rng_state",
    "typename",
    "use_deterministic_algorithms",
]

# -- random numbers ----------------------------------------------------------------------------------------------


def seed() -> int:
    """Starts every draw of this process from a seed of the operating system, which it returns."""
    return random.default_generator.seed()


def initial_seed() -> int:
    """The seed in force: that of the last ``manual_seed`` or ``seed``, else one of the operating system."""
    return random.default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The place of this process in its sequence of random numbers, for ``set_rng_state``: 16 bytes as uint8.

    One place serves all engines. ``alpha.random.get_state`` has the same as a dict.
    """
    state = random.get_state()
    return tensor(np.array([state["seed"], state["offset"]], "<u8").view(np.uint8), engine="cpu")


def set_rng_state(new_state: Tensor) -> None:
    """Goes to a place that ``get_rng_state`` gave: what is drawn next is the same to the bit.

    ArgumentError for another tensor, and nothing changes.
    """
    if not isinstance(new_state, Tensor) or new_state.nbytes != _STATE_BYTES:
        raise ArgumentError(f"[set_rng_state] expected what get_rng_state returned, got {described(new_state)}")
    place = np.frombuffer(new_state.detach().to("cpu").numpy().tobytes(), "<u8")
    random.set_state({"seed": int(place[0]), "offset": int(place[1])})


_STATE_BYTES = 16
"""The seed and the offset, of 64 bits each."""


# -- where and how it is computed --------------------------------------------------------------------------------


def get_num_threads() -> int:
    """The number of threads that the CPU engine computes with."""
    cpu: Any = engines.engine("cpu")
    return int(cpu.threads)


def set_num_threads(num: int) -> None:
    """Sets the number of threads that the CPU engine computes with: ``alpha.engine("cpu", threads=num)``."""
    engines.engine("cpu", threads=whole("set_num_threads", "num", num, 1))


def get_default_device() -> devices.device:
    """Where tensors are made for which no engine is named, by PyTorch's name: ``device("cpu")``."""
    return devices.device(engines.default_engine())


def set_default_device(device: Any) -> None:
    """Sets where tensors are made for which no engine is named; None means the CPU.

    What ``alpha.set_default_engine`` sets, which takes engines too. A ``with alpha.device(...)`` block comes first.
    """
    engines.set_default_engine("cpu" if device is None else devices.device(device).engine)


def get_float32_matmul_precision() -> str:
    """What ``set_float32_matmul_precision`` or ``set_float32_precision`` set: "ieee", "highest", "high" or "medium"."""
    return get_float32_precision()


def set_float32_matmul_precision(precision: str) -> None:
    """Sets how products of float32 tensors are computed: ``alpha.set_float32_precision``, for convolutions as well.

    "highest", in float32; "high", which lets the CUDA engine use TF32; "medium", which lets it too, and the CPU engine
    round factors to bfloat16. "ieee" is our own.
    """
    set_float32_precision(precision)


# -- determinism -------------------------------------------------------------------------------------------------

_MODES = ("default", "warn", "error")
_mode = 0


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Says that only deterministic algorithms may be used, which is so in any case: it changes nothing.

    Every operation gives the same bits for the same inputs, on the same kind of device, with the same number of threads
    and the same settings: sums are added up in an order that the shapes decide, and no kernel adds floats by atomic
    operations. Nothing has to be refused. What ``alpha.set_search`` makes a device try may be another algorithm on
    another machine, and so other bits there. Random numbers come from ``manual_seed``.
    """
    global _mode
    wanted = flag("use_deterministic_algorithms", "mode", mode)
    softly = flag("use_deterministic_algorithms", "warn_only", warn_only)
    _mode = (1 if softly else 2) if wanted else 0


def are_deterministic_algorithms_enabled() -> bool:
    """What ``use_deterministic_algorithms`` said."""
    return _mode > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether ``use_deterministic_algorithms`` said ``warn_only``."""
    return _mode == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """``use_deterministic_algorithms`` by a number or a word: 0 "default", 1 "warn", 2 "error". It changes nothing."""
    global _mode
    if isinstance(debug_mode, str) and debug_mode in _MODES:
        _mode = _MODES.index(debug_mode)
    elif isinstance(debug_mode, int) and not isinstance(debug_mode, bool) and 0 <= debug_mode < len(_MODES):
        _mode = debug_mode
    else:
        raise ArgumentError(
            f"[set_deterministic_debug_mode] expected 0, 1, 2 or one of {', '.join(_MODES)}, got "
            f"{described(debug_mode)}"
        )


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2, as ``set_deterministic_debug_mode`` has them."""
    return _mode


# -- names -------------------------------------------------------------------------------------------------------


def typename(obj: Any, /) -> str:
    """The name of an object's type with its module: "alpha.nn.linear.Linear"; of a tensor ``x.type()``.

    Of a class or a function its own name.
    """
    if isinstance(obj, Tensor):
        return str(obj.type())
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", None)
    return named.__qualname__ if module in (None, "builtins") else f"{module}.{named.__qualname__}"
