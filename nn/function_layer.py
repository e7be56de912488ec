"""FunctionLayer: a layer that calls one function with the options that its constructor was given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from alpha import Tensor
from alpha.arguments import flag, number
from alpha.nn.arguments import choice, several
from alpha.nn.layout import ImageLayer

_CHECKS: dict[str, Callable[[str, str, Any], Any]] = {
    **dict.fromkeys(("ceil_mode", "count_include_pad", "full", "inplace", "keepdim", "log_input", "log_target"), flag),
    **dict.fromkeys(("return_indices", "swap", "zero_infinity"), flag),
    **dict.fromkeys(("alpha", "beta", "delta", "eps", "k", "margin", "norm_type"), number),
    "reduction": lambda layer, name, value: choice(value, ("mean", "sum", "none"), name, layer),
}
"""What a constructor makes of an option before it is kept: ``check(layer, name, value)``."""

_SIZES = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1, "output_size": 1}
"""The least length of options that have one number, or one per axis."""


class FunctionLayer(ImageLayer):
    """A layer without parameters whose ``forward`` is a function of its arguments and of the constructor's options.

    A subclass names the function; the constructor then has the function's signature, and the layer an attribute for
    each option::

        class PixelShuffle(FunctionLayer, function=F.pixel_shuffle): ...

    Keywords of a subclass:
        function: what is called.
        inputs: how many of the function's first arguments ``forward`` takes.
        options: the constructor's arguments in order, where they are not the function's other ones.
        axes: how many axes sizes are for; None where there are no sizes.
        defaults: of options that have another default than the function's.
    """

    function: ClassVar[Callable[..., Any]]
    signature: ClassVar[inspect.Signature]
    axes: ClassVar[int | None] = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The options, which only the function's signature names."""

    def __init_subclass__(
        cls,
        function: Callable[..., Any] | None = None,
        inputs: int = 1,
        options: str | None = None,
        axes: int | None = None,
        defaults: dict[str, Any] | None = None,
    ) -> None:
        super().__init_subclass__()
        if function is None:
            return
        taken = dict(inspect.signature(function).parameters)
        names = list(taken)[inputs:] if options is None else [*options.split(), *({"layout"} & set(taken))]
        kept = [taken[name].replace(annotation=inspect.Parameter.empty) for name in names]
        kept = [one.replace(default=(defaults or {}).get(one.name, one.default)) for one in kept]
        cls.function, cls.signature, cls.axes = staticmethod(function), inspect.Signature(kept), axes
        cls.__signature__ = cls.signature  # type: ignore[attr-defined]  # for inspect and help

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        try:
            given = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}.__init__() {error}") from None
        given.apply_defaults()
        if "layout" in given.arguments:
            self._set_layout(given.arguments.pop("layout"))
        for name, value in given.arguments.items():
            self._keep(name, self._checked(name, value))

    def _checked(self, name: str, value: Any) -> Any:
        """The value of an option as it is kept."""
        layer = type(self).__name__
        if name in _SIZES and self.axes is not None:
            entries = value if isinstance(value, tuple | list) else (value,)
            lengths = [_SIZES[name] if one is None and name in ("stride", "output_size") else one for one in entries]
            several(lengths[0] if len(lengths) == 1 else lengths, self.axes, name, layer, _SIZES[name])
        check = _CHECKS.get(name)
        return value if check is None else check(layer, name, value)

    def _keep(self, name: str, value: Any) -> None:
        """Sets an attribute; weights are buffers."""
        if isinstance(value, Tensor) or "weight" in name:
            self.register_buffer(name, value)
        else:
            setattr(self, name, value)

    def _options(self) -> dict[str, Any]:
        """The options by name."""
        return {name: getattr(self, name) for name in self.signature.parameters if name != "layout"}

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """What the function makes of the inputs."""
        options = {**self._options(), **named}
        if "layout" in self.signature.parameters:
            options["layout"] = self.layout
            if inputs:
                self._seen(inputs[0])
        return self.function(*inputs, **options)

    def extra_repr(self) -> str:
        shown = {name: value for name, value in self._options().items() if not isinstance(value, Tensor)}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items() if value is not None)
