"""Modules that hold modules or parameters: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from __future__ import annotations

import operator
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import groupby
from typing import Any, ClassVar, Self

from alpha import Tensor
from alpha.errors import ArgumentError, IndexingError
from alpha.nn import fusion
from alpha.nn.arguments import sequence
from alpha.nn.module import Module
from alpha.nn.parameter import Parameter


class _Container(Module):
    """Base of containers: their parts are attributes, named by position or by a given name."""

    _kind: ClassVar[type] = Module

    def _may_be(self, name: str, value: Any) -> bool:
        """Whether a value under a name is a part."""
        return isinstance(value, self._kind)

    def _held(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if self._may_be(name, value)}

    def _part(self, part: Any) -> Any:
        """What is held of a given part."""
        return part

    def _replace(self, parts: dict[Any, Any]) -> None:
        """Replaces all parts by these, by name; if one of them is invalid, raises an error and keeps the old ones."""
        others = {name: value for name, value in vars(self).items() if not self._may_be(name, value)}
        known, function = {**others, **self._held()}, f"add_{self._kind.__name__.lower()}"
        new = {name: self._part(part) for name, part in parts.items()}
        for name, part in new.items():
            self._check_name(name, function, known)
            if not self._may_be(name, part):
                raise ArgumentError(
                    f"[{function}] expected a {self._kind.__name__} for {name!r}, got {type(part).__name__}"
                )
        self.__dict__ = others | new  # one assignment: an interrupt finds it before or after

    def _add(self, name: str, part: Any) -> None:
        """Adds one part, or puts it in another's place."""
        self._replace({**self._held(), name: part})

    def __len__(self) -> int:
        return len(self._held())


class _Row(_Container):
    """Parts in a row."""

    def _put(self, parts: Iterable[Any]) -> None:
        """Replaces the row by these parts, named by their positions."""
        self._replace({str(index): part for index, part in enumerate(parts)})

    def _name(self, index: int) -> str:
        names = list(self._held())
        try:
            place = operator.index(index)
        except TypeError as error:
            raise ArgumentError(
                f"[{type(self).__name__}] expected an integer or a slice as an index, got {index!r}"
            ) from error
        if not -len(names) <= place < len(names):
            kinds = f"{self._kind.__name__.lower()}s"
            raise IndexingError(f"[{type(self).__name__}] expected an index within {len(names)} {kinds}, got {index}")
        return names[place]

    def append(self, module: Any) -> Self:
        """Adds a part at the end; returns self."""
        return self.extend([module])

    def extend(self, parts: Iterable[Any]) -> Self:
        """Adds parts at the end: all of them, or none if one is invalid; returns self."""
        held = self._held()
        first = max([len(held), *(int(name) + 1 for name in held if name.isdecimal())])
        self._replace({**held, **{str(first + index): part for index, part in enumerate(parts)}})
        return self

    def insert(self, index: int, module: Any) -> Self:
        """Puts a part before a position and names all by their positions; returns self."""
        row = list(self)
        row.insert(index, module)
        self._put(row)
        return self

    def pop(self, index: int = -1) -> Any:
        """Takes the part at a position (by default the last) out and returns it."""
        part = self._held()[self._name(index)]
        del self[index]
        return part

    def __iadd__(self, parts: Iterable[Any]) -> Self:
        return self.extend(parts)

    def __getitem__(self, index: int) -> Any:
        return self._held()[self._name(index)]

    def __setitem__(self, index: int, part: Any) -> None:
        self._add(self._name(index), part)

    def __delitem__(self, index: int | slice) -> None:
        """Removes the part at a position, or those of a slice; the others are numbered again."""
        held = self._held()
        gone = set(list(held)[index]) if isinstance(index, slice) else {self._name(index)}
        left = {name: part for name, part in held.items() if name not in gone}
        if all(name.isdecimal() for name in held):
            self._put(left.values())
        else:
            self._replace(left)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._held().values())


class Sequential(_Row):
    """Modules that run one after another: ``Sequential(a, b)(x)`` is ``b(a(x))``.

    Args:
        modules: the modules, or one dict of them by name. Indices, slices (again a Sequential) and ``append`` work as
            on a list.
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            self._replace(dict(modules[0]))
        else:
            self._put(modules)

    def __getitem__(self, index: int | slice) -> Any:
        """The module at a position; for a slice, a Sequential of those modules under their present names."""
        if isinstance(index, slice):
            return Sequential(dict(list(self._held().items())[index]))
        return super().__getitem__(index)

    def __add__(self, other: Any) -> Sequential:
        """A Sequential of the modules of both, named by their positions."""
        return Sequential(*self, *other) if isinstance(other, Sequential) else NotImplemented

    def __mul__(self, times: int) -> Sequential:
        """A Sequential of the same modules, repeated."""
        if isinstance(times, bool) or not isinstance(times, int):
            return NotImplemented
        if times < 1:
            raise ArgumentError(f"[Sequential] expected a positive number to multiply by, got {times}")
        return Sequential(*(list(self) * times))

    __rmul__ = __mul__

    def forward(self, x: Any) -> Any:
        """Runs the modules in order; those that ``fusion`` combines run as one operation."""
        return fusion.run(list(self._held().values()), x)


class ModuleList(_Row):
    """A list of modules, which belong to the module whose attribute it is; those in a plain list do not."""

    def _may_be(self, name: str, value: Any) -> bool:
        return isinstance(value, Module) or (value is None and name.isdecimal())

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self._put(sequence(modules, "modules", "ModuleList"))

    def __getitem__(self, index: int | slice) -> Any:
        """The module at a position; for a slice, a ModuleList of those modules."""
        return ModuleList(list(self)[index]) if isinstance(index, slice) else super().__getitem__(index)

    def _texts(self, above: tuple[Module, ...]) -> list[tuple[str, str]]:
        """Equal neighbours as one line: ``(0-2): 3 x Linear(...)``."""
        found: list[tuple[str, str]] = []
        for text, group in groupby(super()._texts(above), key=lambda pair: pair[1]):
            names = [name for name, _ in group]
            several = len(names) > 1
            name = f"{names[0]}-{names[-1]}" if several else names[0]
            found.append((name, f"{len(names)} x {text}" if several else text))
        return found

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        """A ModuleList of the modules of both."""
        return ModuleList([*self, *other])


class _Table(_Container):
    """Parts by name."""

    def __init__(self, parts: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        self.update({} if parts is None else parts)

    def update(self, parts: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Adds or replaces parts by name, from a mapping or pairs: all, or none where one is wrong."""
        try:
            added = dict(parts.items() if isinstance(parts, Mapping | _Table) else parts)
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"[{type(self).__name__}] expected a mapping of names to {self._kind.__name__.lower()}s, or pairs, got "
                f"{type(parts).__name__}"
            ) from error
        self._replace({**self._held(), **added})

    def clear(self) -> None:
        """Takes all parts out."""
        self._replace({})

    def pop(self, key: str) -> Any:
        """Takes a part out and returns it."""
        part = self[key]
        del self[key]
        return part

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._held().keys()

    def values(self) -> ValuesView[Any]:
        """The parts."""
        return self._held().values()

    def items(self) -> ItemsView[str, Any]:
        """Names with parts."""
        return self._held().items()

    def __getitem__(self, name: str) -> Any:
        return self._held()[self._known(name)]

    def __setitem__(self, name: str, part: Any) -> None:
        self._add(name, part)

    def __delitem__(self, name: str) -> None:
        delattr(self, self._known(name))

    def _known(self, name: str) -> str:
        if name not in self:
            raise KeyError(f"[{type(self).__name__}] expected one of {list(self)}, got {name!r}")
        return name

    def __iter__(self) -> Iterator[str]:
        return iter(self._held())

    def __contains__(self, name: object) -> bool:
        return name in self._held()


class ModuleDict(_Table):
    """A dict of modules by name, which belong to the module whose attribute it is."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__(modules)


class _Parameters(_Container):
    """Base of containers of parameters; a tensor that is given becomes one."""

    _kind = Parameter

    def _part(self, part: Any) -> Any:
        return Parameter(part.detach()) if isinstance(part, Tensor) and not isinstance(part, Parameter) else part

    def extra_repr(self) -> str:
        """Names with shapes and dtypes."""
        parts = [(name, part) for name, part in self._held().items() if isinstance(part, Parameter)]
        return ", ".join(f"({name}): {part.dtype}{part.shape}" for name, part in parts)


class ParameterList(_Parameters, _Row):
    """A list of parameters, which belong to the module whose attribute it is; tensors become parameters.

    Further lists and dicts of parameters may stand among them.
    """

    def _may_be(self, name: str, value: Any) -> bool:
        return isinstance(value, _Parameters) or super()._may_be(name, value)

    def __init__(self, values: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self._put(sequence(values, "values", "ParameterList"))

    def __getitem__(self, index: int | slice) -> Any:
        """The parameter at a position; for a slice, a ParameterList of those parameters."""
        return ParameterList(list(self)[index]) if isinstance(index, slice) else super().__getitem__(index)


class ParameterDict(_Parameters, _Table):
    """A dict of parameters by name, which belong to the module whose attribute it is; tensors become parameters."""

    def __init__(self, parameters: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]] | None = None) -> None:
        super().__init__(parameters)
