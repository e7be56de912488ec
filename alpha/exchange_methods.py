"""Tensor's methods by which other libraries read it: DLPack, and the Python array API standard's namespace."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from alpha import dlpack, foreign
from alpha.errors import ArgumentError, GraphError, described
from alpha.functions import casting
from alpha.tensor import Tensor

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
"""The versions of the array API standard that ``alpha.array_api`` serves: each has all that the ones before have."""


class ExchangeMethods:
    """What other libraries ask a tensor for; ``self`` is a Tensor."""

    def __dlpack__(
        self: Any,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule over the tensor's memory.

        Of one on a GPU it has the memory there, unless ``dl_device`` is the host's, (1, 0). Then what is launched to
        ``stream`` runs behind the engine's work so far; None means the default stream, -1 that nothing is to wait.

        GraphError if the tensor requires a gradient, BufferError where no such capsule can be made.
        """
        home = getattr(self.engine, "dlpack_device", None)
        if home is None or (dl_device is not None and tuple(dl_device) == (dlpack.HOST, 0)):
            host = self.numpy()
            copied = None if home is not None else copy  # what comes from a GPU is a copy
            if home is not None and copy is False:
                raise BufferError(
                    f"[__dlpack__] expected copy=None for the host, got False: the tensor is on {self.engine.name}"
                )
            return dlpack.capsule_of(
                host, stream=None if home else stream, max_version=max_version, dl_device=dl_device, copy=copied
            )
        if dl_device is not None and tuple(dl_device) != home:
            raise BufferError(
                f"[__dlpack__] expected dl_device=(1, 0) or {home}, got {dl_device}: move the tensor first"
            )
        if self.requires_grad:
            raise GraphError(
                "[__dlpack__] expected a tensor outside the graph, got one that requires grad: use .detach()"
            )
        shared = casting.clone(self) if copy else self
        if stream != -1:
            self.engine.precede(1 if stream is None else int(stream))
        shared.storage.exported = True
        item = shared.dtype.itemsize
        layout = {
            "shape": shared.shape,
            "typestr": dlpack.named(shared.dtype).str,
            "data": (shared.address if shared.numel() else 0, False),
            "strides": tuple([step * item for step in shared.strides]),
        }
        array = foreign.addressed(shared, layout).view(shared.dtype)
        return dlpack.on_device(dlpack.capsule_of(array, max_version=max_version), home)

    def __dlpack_device__(self: Any) -> Any:
        """Where ``__dlpack__`` has its memory, by DLPack's numbers: the host's is (1, 0), a GPU's (2, its number)."""
        return getattr(self.engine, "dlpack_device", (dlpack.HOST, 0))

    @property
    def __cuda_array_interface__(self: Any) -> dict[str, Any]:
        """The tensor's memory on a GPU for other libraries, PyCUDA among them: CUDA's array interface, version 3.

        Nothing is copied. What is launched to ``engine.stream``, which the interface names, runs in the order of the
        engine's own work.

        AttributeError for a tensor in the host's memory, GraphError for one that requires a gradient, DtypeError for
        bfloat16, which the interface has no name for.
        """
        interface = getattr(self.engine, "array_interface", None)
        if interface is None:
            raise AttributeError(
                f"[__cuda_array_interface__] expected a tensor on a GPU, got one on {self.engine.name}: move it with "
                ".to('cu32')"
            )
        if self.requires_grad:
            raise GraphError(
                "[__cuda_array_interface__] expected a tensor that requires no gradient, got one that does: use "
                ".detach()"
            )
        self.storage.exported = True
        return interface(self)  # type: ignore[no-any-return]

    def __array_namespace__(self: Any, /, *, api_version: str | None = None) -> ModuleType:
        """``alpha.array_api``: the functions of the array API standard, in any version from 2021.12 to 2025.12."""
        from alpha import array_api  # here: loaded when first used

        if api_version is not None and api_version not in VERSIONS:
            raise ArgumentError(
                f"[__array_namespace__] expected api_version as one of {', '.join(VERSIONS)}, got "
                f"{described(api_version)}"
            )
        return array_api

    def to_device(self: Any, device: Any, /, *, stream: Any = None) -> Tensor:
        """On a device, itself if it is there: ``to`` by the array API standard's name.

        ``stream`` is None: what is copied is there when the call returns.
        """
        if stream is not None:
            raise ArgumentError(f"[to_device] expected stream=None, got {described(stream)}: leave it out")
        return casting.to(self, device)
