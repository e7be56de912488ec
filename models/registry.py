"""The networks' builders by name: ``list_models``, ``get_model``, ``get_model_builder``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from fnmatch import fnmatch
from types import ModuleType
from typing import Any, Generic, TypeVar

from alpha import set_image_layout
from alpha.errors import ArgumentError, described
from alpha.layout import checked
from alpha.nn.module import Module

Network = TypeVar("Network", bound=Module)

_BUILDERS: dict[str, Builder[Any]] = {}


class Builder(Generic[Network]):
    """A function that makes one network: ``resnet50(num_classes=10)``.

    Args:
        weights: None; weights are not downloaded (an ArgumentError says how to load them).
        progress: of a download in torchvision; nothing is downloaded here.
        layout: the order of an image's axes, ``"NHWC"`` or ``"NCHW"``; by default ``alpha.get_image_layout()``.
        pretrained: False; torchvision's older word for ``weights``.
        config: the arguments of the network's class.
    """

    def __init__(self, name: str, make: Callable[..., Network], given: tuple[Any, ...], fixed: dict[str, Any]) -> None:
        self._make, self._given, self._fixed = make, given, fixed
        self.__name__ = self.__qualname__ = name
        self.__module__ = make.__module__
        self.__doc__ = f"{name}: {make.__doc__}"

    def __call__(
        self,
        *,
        weights: None = None,
        progress: bool = True,
        layout: str | None = None,
        pretrained: bool = False,
        **config: Any,
    ) -> Network:
        """The network, with weights drawn as torchvision draws them."""
        if weights is not None or pretrained is not False:
            raise _no_download(self.__name__, weights if weights is not None else pretrained)
        with nullcontext() if layout is None else set_image_layout(checked(self.__name__, layout)):
            return self._make(*self._given, **{**self._fixed, **config})

    def __repr__(self) -> str:
        return f"<network {self.__name__}>"

    def __reduce__(self) -> str:
        return self.__name__


def builder(name: str, make: Callable[..., Network], *given: Any, **fixed: Any) -> Builder[Network]:
    """Registers a network under a name.

    Args:
        name: torchvision's.
        make: the network's class, or a function that makes it.
        given: its first arguments.
        fixed: further ones, in whose place a caller may give others.
    """
    found = _BUILDERS[name] = Builder(name, make, given, fixed)
    return found


def list_models(
    module: ModuleType | None = None,
    include: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
) -> list[str]:
    """The names that ``get_model`` knows, sorted.

    Args:
        module: ``alpha.models`` or a module of it, for the networks that it holds; None for all.
        include: patterns as file names have them, ``"resnet*"``, of which a name fits one.
        exclude: patterns of which it fits none.
    """
    names = [name for name in _BUILDERS if module is None or vars(module).get(name) is _BUILDERS[name]]
    if include is not None:
        names = [name for name in names if _fits(name, include)]
    return sorted(name for name in names if exclude is None or not _fits(name, exclude))


def get_model_builder(name: str) -> Builder[Any]:
    """The function that makes a network: ``get_model_builder("resnet50")`` is ``models.resnet50``."""
    found = _BUILDERS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        raise ArgumentError(
            f"[get_model] expected the name of a network, got {described(name)}: models.list_models() lists them"
        )
    return found


def get_model(name: str, **config: Any) -> Any:
    """A network by name: ``get_model("resnet50", num_classes=10)`` is ``models.resnet50(num_classes=10)``."""
    return get_model_builder(name)(**config)


def _fits(name: str, patterns: str | Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in ([patterns] if isinstance(patterns, str) else patterns))


def _no_download(name: str, weights: Any) -> ArgumentError:
    return ArgumentError(
        f"[{name}] expected weights=None, got {described(weights)}: weights are not downloaded; load a state dict of "
        f'PyTorch into {name}(layout="NCHW") by net.load_state_dict(state), or into {name}() by '
        "net.load_state_dict(nn.models.from_torch(state, net))"
    )
