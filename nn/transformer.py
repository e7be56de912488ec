"""Transformers: layers of encoder and decoder, stacks of them, and both together. Vaswani et al., arXiv 1706.03762."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import alpha
from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag
from alpha.dtypes import DtypeLike, is_bool
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.operands import check_tensor
from alpha.nn import fusion, init
from alpha.nn.arguments import positive
from alpha.nn.attention import MultiheadAttention
from alpha.nn.containers import ModuleList
from alpha.nn.dropout import Dropout
from alpha.nn.layer_norm import LayerNorm
from alpha.nn.linear import Linear
from alpha.nn.module import Module
from alpha.nn.places import Device, placed

Activation = str | Callable[[Tensor], Tensor]
"""``"relu"``, ``"gelu"``, or a function of a tensor."""


def _activation(layer: str, activation: Activation) -> Callable[[Any], Any]:
    named: dict[Any, Callable[[Any], Any]] = {"relu": F.relu, "gelu": F.gelu}
    if callable(activation):
        return activation
    if not isinstance(activation, str) or activation not in named:
        raise ArgumentError(f'[{layer}] expected activation "relu", "gelu" or a function, got {described(activation)}')
    return named[activation]


class _Layer(Module):
    """Base of both layers: attention to oneself and a network of two linear layers, each with a residual.

    Args:
        d_model: length of the sequences' vectors.
        nhead: heads of each attention.
        dim_feedforward: length between the linear layers.
        dropout: probability of all dropouts.
        activation: between the linear layers.
        layer_norm_eps: of the normalisations.
        batch_first: whether sequences are (batch, length, d_model) instead of (length, batch, d_model).
        norm_first: whether each part is normalised before it, instead of its sum with the residual behind it.
        bias: whether linear layers and normalisations have biases.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
    """

    @placed
    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        options = {"bias": bias, "batch_first": batch_first}
        several = isinstance(self, TransformerDecoderLayer)
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, **options)
        if several:
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, **options)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = flag(name, "norm_first", norm_first)
        parts = range(1, 4 if several else 3)
        for place in parts:
            setattr(self, f"norm{place}", LayerNorm(d_model, layer_norm_eps, bias=bias))
        for place in parts:
            setattr(self, f"dropout{place}", Dropout(dropout))
        self.activation = _activation(name, activation)

    def _residual(self, place: int, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """The input plus one part of the layer, with its dropout, normalised before or behind."""
        norm, dropout = getattr(self, f"norm{place}"), getattr(self, f"dropout{place}")
        result: Tensor = x + dropout(part(norm(x))) if self.norm_first else norm(x + dropout(part(x)))
        return result

    def _feed_forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(fusion.linear_function(self.linear1, self.activation, x))
        result: Tensor = self.linear2(hidden)
        return result


class TransformerEncoderLayer(_Layer):
    """Attention of a sequence to itself, then two linear layers; arguments as for ``_Layer``."""

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """A sequence to one of the same shape; masks as for ``MultiheadAttention``."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]  # type: ignore[no-any-return]

        return self._residual(2, self._residual(1, src, attend), self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Attention of a sequence to itself, then to the encoder's, then two linear layers; arguments as for ``_Layer``."""

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """A sequence and the encoder's to one of the first's shape; masks as for ``MultiheadAttention``."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]  # type: ignore[no-any-return]

        def look(x: Tensor) -> Tensor:
            masks = memory_key_padding_mask, False, memory_mask
            return self.multihead_attn(x, memory, memory, *masks, is_causal=memory_is_causal)[0]  # type: ignore[no-any-return]

        x = self._residual(2, self._residual(1, tgt, attend), look)
        return self._residual(3, x, self._feed_forward)


class _Stack(Module):
    """Base of both stacks: copies of a layer one after another, and a normalisation behind them."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        name = type(self).__name__
        if not isinstance(layer, Module):
            raise ArgumentError(f"[{name}] expected a layer to copy, got {described(layer)}")
        self.num_layers = positive(num_layers, "num_layers", name)
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(self.num_layers)])
        self.norm = norm

    def _finished(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """A stack of copies of an encoder layer.

    Args:
        encoder_layer: the layer; all begin with its weights.
        num_layers: how many copies there are.
        norm: a normalisation behind them.
        enable_nested_tensor, mask_check: taken for PyTorch's programs, where they choose another way to the same
            result; here there is one.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        flag("TransformerEncoder", "enable_nested_tensor", enable_nested_tensor)
        flag("TransformerEncoder", "mask_check", mask_check)
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """As a layer; ``is_causal``: whether the mask is the causal one, None to find out."""
        causal = _is_causal(mask) if is_causal is None else is_causal
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=causal)
        return self._finished(src)


class TransformerDecoder(_Stack):
    """A stack of copies of a decoder layer; arguments as for TransformerEncoder."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """As a layer; ``tgt_is_causal``: whether the mask is the causal one, None to find out."""
        causal = _is_causal(tgt_mask) if tgt_is_causal is None else tgt_is_causal
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return self._finished(tgt)


def _is_causal(mask: Tensor | None) -> bool:
    """Whether a mask hides from each query just the keys behind it."""
    if not isinstance(mask, Tensor) or mask.ndim != 2 or mask.shape[0] != mask.shape[1]:
        return False
    given, above = np.asarray(mask.detach()), np.triu(np.ones(mask.shape, bool), 1)
    return bool((given == (above if is_bool(mask.dtype) else np.where(above, -math.inf, 0))).all())


class Transformer(Module):
    """An encoder and a decoder, each a stack with a LayerNorm behind it.

    Args:
        d_model: length of the sequences' vectors.
        nhead: heads of each attention.
        num_encoder_layers, num_decoder_layers: layers of the stacks.
        dim_feedforward: length between the linear layers.
        dropout: probability of all dropouts.
        activation: between the linear layers: ``"relu"``, ``"gelu"``, or a function of a tensor.
        custom_encoder, custom_decoder: modules in the stacks' places.
        layer_norm_eps: of the normalisations.
        batch_first: whether sequences are (batch, length, d_model) instead of (length, batch, d_model).
        norm_first: whether each part is normalised before it, instead of its sum with the residual behind it.
        bias: whether linear layers and normalisations have biases.
        device, dtype: where the parameters are made, and of which floats; the defaults unless given.
    """

    @placed
    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Device = None,
        dtype: DtypeLike = None,
    ) -> None:
        super().__init__()
        sizes = d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias)
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*sizes), num_encoder_layers, norm)
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            norm = LayerNorm(d_model, layer_norm_eps, bias=bias)
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*sizes), num_decoder_layers, norm)
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        """Draws every parameter of more than one axis xavier-uniform."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """What the decoder makes of ``tgt`` and of the encoder's ``src``; masks as for ``MultiheadAttention``."""
        check_tensor("Transformer", src, tgt)
        batch = 0 if self.batch_first else 1
        fits = src.ndim == tgt.ndim and src.ndim in (2, 3) and src.shape[-1] == tgt.shape[-1] == self.d_model
        if not fits or (src.ndim == 3 and src.shape[batch] != tgt.shape[batch]):
            raise ShapeError(
                f"[Transformer] expected src and tgt of one batch and of vectors of length {self.d_model}, got "
                f"{src.shape} and {tgt.shape}"
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        result: Tensor = self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
        return result

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask (sz, sz): 0 where a query sees a key, minus infinity behind it."""
        size = positive(sz, "sz", "generate_square_subsequent_mask", least=0)
        mask = np.where(np.triu(np.ones((size, size), bool), 1), -math.inf, 0)
        return alpha.tensor(mask, dtype or alpha.get_default_dtype(), device=device)
