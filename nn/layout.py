"""ImageLayer: the base of the layers that know channels, each in the image layout in which it was made."""

from __future__ import annotations

from alpha import Tensor
from alpha.errors import ShapeError
from alpha.functions.images import channels_second, check_likely
from alpha.layout import resolved
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter
from alpha.nn.places import empty


class ImageLayer(Module):
    """A layer of images, or of sequences or volumes, with channels last or second.

    Attributes:
        layout: ``"NHWC"`` or ``"NCHW"``, by the argument of this name or else ``alpha.get_image_layout()``.
    """

    layout = "NHWC"
    _named = False  # whether the caller named the layout

    def _set_layout(self, layout: str | None) -> None:
        self.layout, self._named = resolved(type(self).__name__, layout), layout is not None

    def _seen(self, x: Tensor) -> Tensor:
        """The images; ShapeError where they most likely have the other layout, and the caller did not name this one."""
        if not self._named:
            check_likely(type(self).__name__, x, self.layout)
        return x

    def _channel_axis(self, axes: int) -> int:
        """The axis of channels among so many."""
        return 1 if self.layout == "NCHW" and axes > 2 else axes - 1

    def _check_channels(self, function: str, x: Tensor, channels: int, axes: tuple[int, ...], forms: str) -> None:
        """ShapeError unless x has one of these numbers of axes, and so many channels."""
        if x.ndim not in axes or x.shape[self._channel_axis(x.ndim)] != channels:
            count = " or ".join(str(n) for n in axes)
            place = "second" if self.layout == "NCHW" else "last"
            raise ShapeError(
                f"[{function}] expected x with {count} axes, the {place} of {channels} channels, got {x.shape}: "
                f"channels come {place}, as {forms}"
            )

    def _filters(self, *shape: int) -> Parameter:
        """Uninitialised filters (OC, ..., IC), or a view of such as (OC, IC, ...)."""
        dense = empty(*shape)
        return Parameter(channels_second(dense) if self.layout == "NCHW" else dense)
