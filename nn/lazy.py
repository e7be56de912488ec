"""Lazy layers, whose input's size the first call or a loaded state tells, and parameters without a size as yet."""

from __future__ import annotations

from typing import Any, ClassVar

from alpha import Tensor
from alpha.arguments import flag, shape_of
from alpha.changes import at_once, setting, taking
from alpha.dtypes import DtypeLike
from alpha.errors import ArgumentError, ShapeError
from alpha.functions.images import channels_second
from alpha.functions.operands import check_tensor
from alpha.nn.arguments import Sizes, positive
from alpha.nn.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvNd,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    ConvTransposeNd,
    PlainConvNd,
)
from alpha.nn.linear import Linear
from alpha.nn.module import Module
from alpha.nn.parameter import Buffer, Parameter
from alpha.nn.places import Device, empty, placed


class _Uninitialized:
    """Base of tensors whose shape is not known yet; until then it is (0,)."""

    __slots__ = ()
    _becomes: ClassVar[type[Tensor]]

    def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Gives it a shape, and memory that is not initialised; it is an ordinary one from then on."""
        made = self.engine.empty(shape_of("materialize", (shape,)), self.dtype)
        for one in (device, dtype):
            made = made if one is None else made.to(one)
        self.become(made)

    def become(self: Any, made: Tensor) -> None:
        """Takes over a tensor's memory; it is an ordinary one from then on."""
        at_once([*taking(self, made), setting(self, "__class__", self._becomes)])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter whose shape is not known yet: ``materialize`` gives it one, and it is a Parameter.

    Args:
        requires_grad: whether backward fills ``.grad``.
        device, dtype: where it is made, and of which floats; the defaults unless given.
    """

    __slots__ = ()
    _becomes = Parameter

    @placed
    def __init__(self, requires_grad: bool = True, device: Device = None, dtype: DtypeLike = None) -> None:
        super().__init__(empty(0), requires_grad)


class UninitializedBuffer(_Uninitialized, Buffer):
    """A buffer whose shape is not known yet: ``materialize`` gives it one, and it is a Buffer.

    Args:
        requires_grad: whether backward fills ``.grad``.
        persistent: whether it is part of the state_dict.
        device, dtype: where it is made, and of which floats; the defaults unless given.
    """

    __slots__ = ()
    _becomes = Buffer

    @placed
    def __init__(
        self, requires_grad: bool = False, device: Device = None, dtype: DtypeLike = None, persistent: bool = True
    ) -> None:
        super().__init__(empty(0), persistent=persistent)
        self.requires_grad = flag("UninitializedBuffer", "requires_grad", requires_grad)


def is_lazy(tensor: Any) -> bool:
    """Whether a tensor's shape is not known yet."""
    return isinstance(tensor, _Uninitialized)


# -- layers ------------------------------------------------------------------------------------------------------


class LazyModule(Module):
    """Base of lazy layers.

    The first call gives the parameters their shapes by its input and draws them, a state that is loaded before gives
    them the state's shapes; from the first call on the layer is one of the class that it stands for.
    """

    cls_to_become: ClassVar[type[Module]]

    def _wait(self, *names: str) -> None:
        """Puts parameters and buffers without a shape in the place of those of these names."""
        for name in names:
            if isinstance(getattr(self, name), Parameter):
                delattr(self, name)
                setattr(self, name, UninitializedParameter())
            elif getattr(self, name) is not None:
                setattr(self, name, UninitializedBuffer())
        self._handles = (
            self.register_forward_pre_hook(LazyModule._infer),
            self.register_load_state_dict_pre_hook(LazyModule._load),
        )

    def _waiting(self) -> dict[str, Any]:
        """The parameters and buffers whose shape is not known yet."""
        return {name: one for name, one in vars(self).items() if is_lazy(one)}

    def has_uninitialized_params(self) -> bool:
        """Whether some shapes are not known yet."""
        return bool(self._waiting())

    def initialize_parameters(self, x: Tensor) -> None:
        """Gives the parameters their shapes by an input, and draws them."""
        raise NotImplementedError

    @staticmethod
    def _infer(module: Any, args: tuple[Any, ...]) -> None:
        name = type(module).__name__
        if not args:
            raise ArgumentError(f"[{name}] expected the input as a positional argument in the first call, got none")
        check_tensor(name, args[0])
        module.initialize_parameters(args[0])
        for handle in module._handles:
            handle.remove()
        del module._handles
        module.__class__ = module.cls_to_become

    @staticmethod
    def _load(module: Any, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        for name, one in module._waiting().items():
            given = state_dict.get(prefix + name)
            if given is not None and not is_lazy(given):
                one.materialize(tuple(given.shape))


class LazyLinear(LazyModule, Linear):
    """A Linear whose ``in_features`` are the first input's; arguments as for Linear."""

    cls_to_become = Linear

    @placed
    def __init__(self, out_features: int, bias: bool = True, device: Device = None, dtype: DtypeLike = None) -> None:
        super().__init__(1, out_features, bias)
        self.in_features = 0
        self._wait("weight", "bias")

    def initialize_parameters(self, x: Tensor) -> None:
        self.in_features = x.shape[-1]
        shapes = {"weight": (self.out_features, self.in_features), "bias": (self.out_features,)}
        waiting = self._waiting()
        for name, one in waiting.items():
            one.materialize(shapes[name])
        if waiting:
            self.reset_parameters()


class _LazyConvNd(LazyModule, ConvNd):
    """Base of the convolutions whose ``in_channels`` are the first input's."""

    def initialize_parameters(self, x: Tensor) -> None:
        name, groups = type(self).__name__, self.groups
        if x.ndim != self.axes + 2:
            raise ShapeError(f"[{name}] expected an input with {self.axes + 2} axes, got shape {x.shape}")
        self.in_channels = inputs = x.shape[self._channel_axis(x.ndim)]
        if not inputs or inputs % groups:
            raise ShapeError(f"[{name}] expected channels that groups={groups} divide, got an input of shape {x.shape}")
        first, last = (inputs, self.out_channels) if self.transposed else (self.out_channels, inputs)
        waiting = self._waiting()
        if "weight" in waiting:
            dense = self.weight.engine.empty((first, *self.kernel_size, last // groups), self.weight.dtype)
            waiting["weight"].become(channels_second(dense) if self.layout == "NCHW" else dense)
        if "bias" in waiting:
            waiting["bias"].materialize((self.out_channels,))
        if waiting:
            self.reset_parameters()


class _LazyPlainConvNd(_LazyConvNd, PlainConvNd):
    """Those that are not transposed."""

    @placed
    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Device = None,
        dtype: DtypeLike = None,
        *,
        layout: str | None = None,
    ) -> None:
        least = positive(groups, "groups", type(self).__name__)
        options = stride, padding, dilation, groups, bias, padding_mode
        super().__init__(least, out_channels, kernel_size, *options, layout=layout)
        self.in_channels = 0
        self._wait("weight", "bias")


class LazyConv1d(_LazyPlainConvNd, Conv1d):
    """A Conv1d whose ``in_channels`` are the first input's; arguments as for Conv1d."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyPlainConvNd, Conv2d):
    """A Conv2d whose ``in_channels`` are the first input's; arguments as for Conv2d."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyPlainConvNd, Conv3d):
    """A Conv3d whose ``in_channels`` are the first input's; arguments as for Conv3d."""

    cls_to_become = Conv3d


class _LazyConvTransposeNd(_LazyConvNd, ConvTransposeNd):
    """Those that are transposed."""

    @placed
    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: Device = None,
        dtype: DtypeLike = None,
        *,
        layout: str | None = None,
    ) -> None:
        least = positive(groups, "groups", type(self).__name__)
        options = stride, padding, output_padding, groups, bias, dilation, padding_mode
        super().__init__(least, out_channels, kernel_size, *options, layout=layout)
        self.in_channels = 0
        self._wait("weight", "bias")


class LazyConvTranspose1d(_LazyConvTransposeNd, ConvTranspose1d):
    """A ConvTranspose1d whose ``in_channels`` are the first input's; arguments as for ConvTranspose1d."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTransposeNd, ConvTranspose2d):
    """A ConvTranspose2d whose ``in_channels`` are the first input's; arguments as for ConvTranspose2d."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTransposeNd, ConvTranspose3d):
    """A ConvTranspose3d whose ``in_channels`` are the first input's; arguments as for ConvTranspose3d."""

    cls_to_become = ConvTranspose3d
