"""Sequences of different lengths: packed step by step for the recurrent layers, or padded to one length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import alpha
from alpha import Tensor
from alpha import functions as F
from alpha.arguments import flag, number, whole
from alpha.dtypes import is_integer
from alpha.errors import ArgumentError, ShapeError, described
from alpha.functions.operands import check_tensor
from alpha.nn.arguments import choice

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class PackedSequence(NamedTuple):
    """Sequences of different lengths, packed: what ``pack_padded_sequence`` and ``pack_sequence`` give.

    Attributes:
        data: (elements, ...): all elements of the first step, then those of the second, and so on; in a step the
            longest sequence comes first.
        batch_sizes: int64, how many sequences take part in each step.
        sorted_indices: the places, among the given sequences, of those in order of length; None if they were given so.
        unsorted_indices: the inverse of that.
    """

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def sizes(self) -> tuple[int, ...]:
        """``batch_sizes`` as ints."""
        return tuple([int(n) for n in np.asarray(self.batch_sizes.detach())])

    def to(self, *target: Any, **options: Any) -> PackedSequence:
        """The same with its data moved or cast as by ``Tensor.to``, and its indices on the data's engine."""
        return self._with(self.data.to(*target, **options))

    def float(self) -> PackedSequence:
        """The same with float32 data."""
        return self._with(self.data.float())

    def double(self) -> PackedSequence:
        """The same with float64 data."""
        return self._with(self.data.double())

    def _with(self, data: Tensor) -> PackedSequence:
        moved = [None if one is None else one.to(data.engine) for one in self[2:]]
        return PackedSequence(data, self.batch_sizes, *moved)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The places to which the entries of a permutation (n,) of 0..n-1 lead back; None of None."""
    if permutation is None:
        return None
    check_tensor("invert_permutation", permutation)
    return alpha.tensor(np.argsort(np.asarray(permutation), kind="stable"), engine=permutation.engine)


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs padded sequences.

    Args:
        input: (steps, batch, ...), or (batch, steps, ...) with ``batch_first``.
        lengths: of the sequences, each from 1 to the number of steps.
        enforce_sorted: whether the sequences have to come by length, the longest first; else they are sorted.
    """
    name = "pack_padded_sequence"
    check_tensor(name, input)
    if input.ndim < 2:
        raise ShapeError(f"[{name}] expected an input (steps, batch, ...), got shape {input.shape}")
    steps_first = F.transpose(input, 0, 1) if flag(name, "batch_first", batch_first) else input
    steps, batch = steps_first.shape[:2]
    found = _lengths(name, lengths, batch, steps)
    order = None
    if not flag(name, "enforce_sorted", enforce_sorted):
        order = np.argsort(-found, kind="stable")
        found = found[order]
    elif (np.diff(found) > 0).any():
        raise ArgumentError(
            f"[{name}] expected lengths that do not grow, got {described(found.tolist())}: sort the sequences by "
            "length, or pass enforce_sorted=False"
        )
    sizes = (found[None, :] > np.arange(found[0])[:, None]).sum(1)
    places = np.arange(batch) if order is None else order
    rows = np.concatenate([step * batch + places[:size] for step, size in enumerate(sizes)])
    flat = F.reshape(steps_first, (steps * batch, *steps_first.shape[2:]))
    data = F.index_select(flat, 0, alpha.tensor(rows, engine=input.engine))
    indices = None if order is None else alpha.tensor(order, engine=input.engine)
    return PackedSequence(data, alpha.tensor(sizes), indices, invert_permutation(indices))


def _lengths(name: str, lengths: Any, batch: int, steps: int) -> np.ndarray[Any, Any]:
    """The lengths as int64, if there is one from 1 to ``steps`` for each sequence."""
    found = np.asarray(lengths.detach() if isinstance(lengths, Tensor) else lengths)
    if found.shape != (batch,) or not is_integer(found.dtype) or not batch:
        raise ArgumentError(
            f"[{name}] expected lengths as {batch} integers, one per sequence of a batch of at least one, got "
            f"{described(lengths)}"
        )
    if found.min() < 1 or found.max() > steps:
        raise ArgumentError(f"[{name}] expected lengths from 1 to {steps} steps, got {described(found.tolist())}")
    return found.astype(np.int64)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The sequences padded to one length, in the order in which they were packed, and their lengths (int64).

    Args:
        sequence: the packed sequences.
        batch_first: whether the result is (batch, steps, ...) instead of (steps, batch, ...).
        padding_value: what stands behind the shorter ones.
        total_length: the number of steps; by default the longest sequence's.
    """
    name = "pad_packed_sequence"
    sizes = np.array(_packed(name, sequence).sizes())
    steps, batch = len(sizes), int(sizes[0])
    if total_length is not None:
        steps = whole(name, "total_length", total_length, least=steps)
    value = number(name, "padding_value", padding_value)
    lengths = (sizes[None, :] > np.arange(batch)[:, None]).sum(1)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rows = np.full((steps, batch), len(sequence.data), np.int64)
    rows[: len(sizes)] = np.where(np.arange(batch) < sizes[:, None], starts[:, None] + np.arange(batch), rows[0, 0])
    if sequence.unsorted_indices is not None:
        order = np.asarray(sequence.unsorted_indices)
        rows, lengths = rows[:, order], lengths[order]
    data = sequence.data
    filler = alpha.full((1, *data.shape[1:]), value, dtype=data.dtype, engine=data.engine)
    rows = rows.T if flag(name, "batch_first", batch_first) else rows
    found = F.index_select(F.concat([data, filler], 0), 0, alpha.tensor(rows.ravel().copy(), engine=data.engine))
    return F.reshape(found, (*rows.shape, *data.shape[1:])), alpha.tensor(lengths)


def _packed(name: str, sequence: Any) -> PackedSequence:
    if not isinstance(sequence, PackedSequence):
        raise ArgumentError(
            f"[{name}] expected a PackedSequence, got {type(sequence).__name__}: make one with pack_padded_sequence"
        )
    return sequence


def pad_sequence(
    sequences: Sequence[Tensor] | Tensor,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences (length, ...) side by side, padded to the longest: (steps, batch, ...).

    Args:
        sequences: tensors whose axes behind the first are equally long.
        batch_first: whether the result is (batch, steps, ...).
        padding_value: what stands behind the shorter ones, or before them.
        padding_side: ``"right"`` or ``"left"``.
    """
    name = "pad_sequence"
    listed = _sequences(name, sequences)
    side = choice(padding_side, ("right", "left"), "padding_side", name)
    longest = max(len(one) for one in listed)
    padded = []
    for one in listed:
        missing = (0, longest - len(one)) if side == "right" else (longest - len(one), 0)
        value = number(name, "padding_value", padding_value)
        padded.append(F.pad(one, (*(0, 0) * (one.ndim - 1), *missing), value=value) if any(missing) else one)
    return F.stack(padded, 0 if flag(name, "batch_first", batch_first) else 1)


def _sequences(name: str, sequences: Any) -> list[Tensor]:
    """The tensors, if there are some, and they differ in their first axis alone."""
    if not isinstance(sequences, Tensor | list | tuple):
        raise ArgumentError(f"[{name}] expected a list of tensors, got {described(sequences)}")
    listed = list(sequences)
    check_tensor(name, *listed)
    if not listed:
        raise ArgumentError(f"[{name}] expected at least one sequence, got none")
    if any(one.ndim == 0 or one.shape[1:] != listed[0].shape[1:] for one in listed):
        got = ", ".join(str(one.shape) for one in listed)
        raise ShapeError(f"[{name}] expected sequences (length, ...) that differ in length alone, got {described(got)}")
    return listed


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """The sequences that ``pad_sequence`` padded, as a list of tensors of these lengths."""
    name = "unpad_sequence"
    check_tensor(name, padded_sequences)
    if padded_sequences.ndim < 2:
        raise ShapeError(f"[{name}] expected (steps, batch, ...), got shape {padded_sequences.shape}")
    first = padded_sequences if flag(name, "batch_first", batch_first) else F.transpose(padded_sequences, 0, 1)
    found = _lengths(name, lengths, *first.shape[:2])
    return [first[place, : int(length)] for place, length in enumerate(found)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs a list of sequences (length, ...); ``enforce_sorted`` as in ``pack_padded_sequence``."""
    listed = _sequences("pack_sequence", sequences)
    lengths = [len(one) for one in listed]
    return pack_padded_sequence(pad_sequence(listed), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that ``pack_sequence`` packed, in their order."""
    padded, lengths = pad_packed_sequence(_packed("unpack_sequence", packed_sequences))
    return unpad_sequence(padded, lengths)
