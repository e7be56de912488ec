"""alpha.pointwise: a Python function of tensors and numbers as a differentiable function, one pass over memory."""

from __future__ import annotations

import functools
import inspect
import linecache
import math
from collections.abc import Callable
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape, broadcast_shapes
from alpha.autograd import Function, enters_graph
from alpha.conversion import tensor
from alpha.errors import AlphaError, ArgumentError, DtypeError, described
from alpha.expressions import symbols
from alpha.expressions.derivative import gradients
from alpha.expressions.graph import NUMBER, Graph, Node
from alpha.expressions.program import Program, inputs_of
from alpha.expressions.symbols import Symbol, TraceError
from alpha.functions.operands import broadcast_view, call, is_number, python_number, sum_to
from alpha.tensor import Tensor

_PACKAGE = str(Path(__file__).resolve().parent.parent)


def pointwise(function: Callable[..., Any]) -> PointwiseFunction:
    """Decorator: makes a differentiable function of a Python function of tensors and numbers.

    The function is written for one element, with operators and alpha's element-wise functions, and called with tensors
    and numbers, at least one a tensor::

        @alpha.pointwise
        def mish(x, slope):
            return x * alpha.tanh(alpha.softplus(slope * x))

        y = mish(x, slope)  # tensors broadcast; float32 and float64 meet as elsewhere

    It runs once, on symbols, for each choice of which arguments are tensors; later calls run what it computed then, as
    one loop however long the expression is, and its gradients as another. So what it reads beside its arguments is
    read once. Numbers are arguments of the loop: another number compiles nothing. Parts made of numbers alone are
    computed in float64, once a call.

    Gradients are derived; ``.gradient`` takes a better form. Functions of this kind may call each other.

    Errors: ArgumentError, with the function's line, for an ``if`` on an argument, an operation that is not point-wise,
    a call without a tensor; DtypeError for tensors of other dtypes.
    """
    return PointwiseFunction(function)


class PointwiseFunction:
    """What ``alpha.pointwise`` makes of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ArgumentError(f"[pointwise] expected a function, got {described(function)}: use it as a decorator")
        functools.update_wrapper(self, function)
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._signature = inspect.signature(function)
        kinds = {parameter.kind for parameter in self._signature.parameters.values()}
        if kinds - {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
            raise ArgumentError(
                f"[pointwise] expected a function of named arguments alone, got {self.name}{self._signature}: name "
                "each tensor and number"
            )
        self._count = len(self._signature.parameters)
        self._gradient: Callable[..., Any] | None = None
        self._traces: dict[tuple[bool, ...], Trace] = {}
        self._by_types: dict[tuple[type, ...], Trace] = {}

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator for the gradient in a better form than the derived one: ``f(grad, *arguments)``.

        It is written as the function itself is, and returns a tuple with one gradient an argument, None for numbers;
        the gradient alone where there is one argument.
        """
        self._gradient = function
        self._traces, self._by_types = {}, {}
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        if kwargs or len(args) != self._count:
            args = self._bound(args, kwargs)
        trace = self._by_types.get(tuple(map(type, args)))
        if trace is None:
            if symbols.is_symbolic(*args):
                inlined: Tensor = self._inlined(args)  # an expression, to the function that it is part of
                return inlined
            args = self._converted(args)
            trace = self._trace(args)
        return trace(args)

    def sum(self, *args: Any, **kwargs: Any) -> Tensor:
        """The sum of the function over all elements, in the same pass: no element is stored."""
        return self._total(args, kwargs, mean=False)

    def mean(self, *args: Any, **kwargs: Any) -> Tensor:
        """The mean of the function over all elements, in the same pass; NaN of nothing."""
        return self._total(args, kwargs, mean=True)

    def _total(self, args: tuple[Any, ...], kwargs: dict[str, Any], mean: bool) -> Tensor:
        if kwargs or len(args) != self._count:
            args = self._bound(args, kwargs)
        trace = self._by_types.get(tuple(map(type, args)))
        if trace is None:
            args = self._converted(args)
            trace = self._trace(args)
        return trace.total(args, mean)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Not a method: in a class it stays a function of its arguments."""
        return self

    def __repr__(self) -> str:
        return f"<pointwise function {self.name}{self._signature}>"

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments in the function's order, defaults filled in."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(
                f"[{self.name}] expected arguments as in {self.name}{self._signature}, got others: {error}"
            ) from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def _converted(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments as tensors of one engine and Python numbers."""
        first = next((value for value in args if isinstance(value, Tensor)), None)
        if first is None:
            got = ", ".join(type(value).__name__ for value in args) or "no arguments"
            raise ArgumentError(
                f"[{self.name}] expected a tensor among the arguments, got {got}: make one with alpha.tensor(...)"
            )
        result: list[Any] = []
        for value in args:
            if isinstance(value, Tensor):
                result.append(value)
            elif isinstance(value, np.ndarray):
                result.append(tensor(value, engine=first.engine))
            elif is_number(value):
                result.append(python_number(self.name, value))
            else:
                raise ArgumentError(
                    f"[{self.name}] expected tensors and numbers, got {described(value)}: make another function for "
                    "each choice that is neither"
                )
        return tuple(result)

    def _trace(self, args: tuple[Any, ...]) -> Trace:
        are_tensors = tuple([isinstance(value, Tensor) for value in args])
        trace = self._traces.get(are_tensors)
        if trace is None:
            trace = self._traces[are_tensors] = Trace(self.name, *self._traced(are_tensors))
        types = tuple(map(type, args))
        if all(kind in (float, int, bool) or issubclass(kind, Tensor) for kind in types):
            self._by_types[types] = trace
        return trace

    def _traced(self, are_tensors: tuple[bool, ...]) -> tuple[Graph, Node, tuple[bool, ...]]:
        """What the function computes, as an expression."""
        graph = Graph()
        places = [0, 0]
        given = []
        for is_tensor in are_tensors:
            place = places[is_tensor]
            places[is_tensor] += 1
            given.append(Symbol(graph, graph.input(place) if is_tensor else graph.argument(place)))
        result = self._inlined(tuple(given))
        if not isinstance(result, Symbol) or result.node.kind == NUMBER:
            raise ArgumentError(
                f"[{self.name}] expected an expression of the tensors as the result, got {_described(result)}: return "
                "what is computed from them"
            )
        return graph, result.node, are_tensors

    def _inlined(self, args: tuple[Any, ...]) -> Any:
        """The function of symbols, as part of the expression that they belong to."""
        result = _run(self.name, self._function, args)
        if self._gradient is not None and type(result) is Symbol:
            graph = result.graph
            operands = tuple([value.node for value in args if type(value) is Symbol])
            if all(node.serial < result.node.serial for node in operands):
                graph.rules[result.node] = (functools.partial(self._given, self._gradient, graph, args), operands)
        return result

    def _given(
        self, give: Callable[..., Any], graph: Graph, args: tuple[Any, ...], gradient: Node
    ) -> tuple[Node | None, ...]:
        """The gradients that the user's form gives for the symbols among the arguments."""
        found = _run(self.name, give, (Symbol(graph, gradient), *args))
        parts = found if isinstance(found, tuple) else (found,)
        if len(parts) != len(args) or not all(part is None or type(part) is Symbol for part in parts):
            raise ArgumentError(
                f"[{self.name}.gradient] expected a gradient or None for each of {len(args)} arguments, got "
                f"{_described(found)}: return a tuple of them"
            )
        pairs = zip(args, parts, strict=True)
        return tuple([None if part is None else part.node for value, part in pairs if type(value) is Symbol])


class Trace:
    """A point-wise function of which it is known what arguments are tensors: its program, and those of its gradients.

    Attributes:
        name: the function's.
        program: computes the result from the tensors.
    """

    def __init__(self, name: str, graph: Graph, result: Node, are_tensors: tuple[bool, ...]) -> None:
        self.name = name
        self._graph, self._result = graph, result
        self._tensors = tuple([place for place, is_tensor in enumerate(are_tensors) if is_tensor])
        self._others = tuple([place for place, is_tensor in enumerate(are_tensors) if not is_tensor])
        self._inputs = [graph.input(place) for place in range(len(self._tensors))]
        self.program = Program(graph, [result], self._inputs)
        self._gradients: dict[tuple[bool, ...], GradientProgram] = {}
        self._total_gradients: dict[tuple[bool, ...], GradientProgram] = {}

    def __call__(self, args: tuple[Any, ...]) -> Tensor:
        tensors, numbers = self._checked(args)
        if enters_graph(*tensors):
            return call(Evaluation, self, numbers, *tensors)
        engine = tensors[0].storage.engine
        result: Tensor = engine.pointwise(self.name, self.program, tensors, self.program.numbers(numbers))[0]
        return result

    def total(self, args: tuple[Any, ...], mean: bool) -> Tensor:
        """The sum or the mean of all elements of the result."""
        tensors, numbers = self._checked(args)
        if self.program.bools[0]:
            raise DtypeError(
                f"[{self.name}] expected a function whose result is a float, to be added up, got a bool: write "
                "alpha.where(condition, 1.0, 0.0)"
            )
        if enters_graph(*tensors):
            return call(Total, self, numbers, mean, *tensors)
        engine = tensors[0].storage.engine
        return engine.pointwise_sum(self.name, self.program, tensors, self.program.numbers(numbers), mean)

    def _checked(self, args: tuple[Any, ...]) -> tuple[list[Tensor], tuple[float, ...]]:
        """The tensors among the arguments, which fit each other, and the numbers."""
        tensors = [args[place] for place in self._tensors]
        first = tensors[0]
        engine, dtype = first.storage.engine, first.dtype
        for x in tensors:
            if x.dtype is not dtype or x.storage.engine is not engine:
                self._check(tensors)
                break
        else:
            if dtype not in dtypes.FLOATS:
                self._check(tensors)
        try:
            numbers = tuple([float(args[place]) for place in self._others])
        except OverflowError:  # an int beyond a float's range: an error that says so
            numbers = tuple([float(python_number(self.name, args[place])) for place in self._others])
        return tensors, numbers

    def _check(self, tensors: list[Tensor]) -> None:
        """DtypeError, EngineError or nothing."""
        tensors[0].engine.check_owner(self.name, *tensors)
        for x in tensors:
            if not dtypes.is_float(x.dtype):
                raise DtypeError(
                    f"[{self.name}] expected tensors of float32 or float64, got {x.dtype}: cast it with .float()"
                )

    def gradient(self, needs: tuple[bool, ...]) -> GradientProgram:
        """The program of the gradients for those tensors that need one."""
        found = self._gradients.get(needs)
        if found is None:
            found = self._gradients[needs] = GradientProgram(self._graph, self._result, self._inputs, needs)
        return found

    def total_gradient(self, needs: tuple[bool, ...]) -> GradientProgram:
        """That of a sum over a number of elements, which is the last of its numbers."""
        found = self._total_gradients.get(needs)
        if found is None:
            divisor = self._graph.argument(len(self._others))
            made = GradientProgram(self._graph, self._result, self._inputs, needs, divisor)
            found = self._total_gradients[needs] = made
        return found


class GradientProgram:
    """One loop for the gradients of all tensors that need one.

    Attributes:
        reads: the places of the tensors that it is given after the gradient; -1 for the forward's result, which
            serves where no more tensors are read for it.
        program: computes the gradients that are not 0 everywhere.
        places: of the tensors that these are for.
    """

    def __init__(
        self, graph: Graph, result: Node, inputs: list[Node], needs: tuple[bool, ...], divisor: Node | None = None
    ) -> None:
        """``divisor``: of a sum of the results, which are not kept then; the gradient is the sum's."""
        grad = given = graph.input(len(inputs))
        if divisor is not None:
            given = graph.apply("mul", grad, graph.apply("div", 1.0, divisor))
        wanted = [node for node, need in zip(inputs, needs, strict=True) if need]
        found = dict(zip(wanted, gradients(graph, result, given, wanted), strict=True))
        pairs = [(place, found[node]) for place, node in enumerate(inputs) if found.get(node) is not None]
        roots = [node for _, node in pairs if node is not None]
        self.places = tuple([place for place, _ in pairs])
        read = self._read(roots, grad, set())
        shorter = self._read(roots, grad, {result})
        if divisor is None and result in shorter and len(shorter) <= len(read):
            read = shorter
        self.reads = tuple([-1 if node is result else int(node.value) for node in read])
        self.program = Program(graph, roots, [grad, *read]) if roots else None

    @staticmethod
    def _read(roots: list[Node], grad: Node, given: set[Node]) -> list[Node]:
        return [node for node in inputs_of(roots, given) if node is not grad]


class Evaluation(Function):
    """A point-wise function in the graph."""

    fresh = True
    trace: Trace
    numbers: tuple[float, ...]

    def forward(self, trace: Trace, numbers: tuple[float, ...], *tensors: Tensor) -> Tensor:
        """The result of one program; what the gradients' will read is kept."""
        program = trace.program
        (result,) = tensors[0].storage.engine.pointwise(trace.name, program, tensors, program.numbers(numbers))
        needs = self.needs[2:]
        if True in needs and not program.bools[0]:
            self.trace, self.numbers = trace, numbers
            self.shapes = tuple([x.shape for x in tensors])
            reads = trace.gradient(needs).reads
            self.save(*[result if place < 0 else tensors[place] for place in reads])
        return result

    def backward(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        """One program for all gradients; those of repeated tensors are summed to their shapes."""
        gradient = self.trace.gradient(self.needs[2:])
        result: list[Tensor | None] = [None] * len(self.needs)
        if gradient.program is not None:
            tensors = (grad, *self.saved)
            numbers = gradient.program.numbers(self.numbers)
            found = grad.storage.engine.pointwise(self.trace.name, gradient.program, tensors, numbers)
            for place, part in zip(gradient.places, found, strict=True):
                result[2 + place] = sum_to(part, self.shapes[place])
        for place, need in enumerate(self.needs[2:]):
            if need and result[2 + place] is None:  # steps: the gradient is 0
                result[2 + place] = grad.engine.full(self.shapes[place], 0, grad.dtype)
        return tuple(result)


class Total(Function):
    """The sum or mean of a point-wise function in the graph."""

    fresh = True
    trace: Trace
    numbers: tuple[float, ...]
    shape: Shape
    elements: int
    shapes: tuple[Shape, ...]

    def forward(self, trace: Trace, numbers: tuple[float, ...], mean: bool, *tensors: Tensor) -> Tensor:
        """The result of one program; what the gradients' will read is kept."""
        program = trace.program
        engine = tensors[0].storage.engine
        result = engine.pointwise_sum(trace.name, program, tensors, program.numbers(numbers), mean)
        needs = self.needs[3:]
        if True in needs:
            self.trace = trace
            self.shape = broadcast_shapes(trace.name, [x.shape for x in tensors])
            self.elements = math.prod(self.shape)
            self.numbers = (*numbers, float(self.elements) if mean else 1.0)
            self.shapes = tuple([x.shape for x in tensors])
            self.save(*[tensors[place] for place in trace.total_gradient(needs).reads])
        return result

    def backward(self, grad: Tensor) -> tuple[Tensor | None, ...]:
        """One program for all gradients; those of repeated tensors are summed to their shapes."""
        needs = self.needs[3:]
        gradient, saved = self.trace.total_gradient(needs), self.saved
        result: list[Tensor | None] = [None] * len(self.needs)
        if all(x.shape != self.shape for x in saved):  # no tensor that is read has the shape of all
            grad = broadcast_view(grad, self.shape)
        if gradient.program is not None and self.elements:
            numbers = gradient.program.numbers(self.numbers)
            found = grad.storage.engine.pointwise(self.trace.name, gradient.program, (grad, *saved), numbers)
            for place, part in zip(gradient.places, found, strict=True):
                result[3 + place] = sum_to(part, self.shapes[place])
        for place, need in enumerate(needs):
            if need and result[3 + place] is None:  # steps, or no elements: the gradient is 0
                result[3 + place] = grad.engine.full(self.shapes[place], 0, grad.dtype)
        return tuple(result)


# -- errors that name a line -----------------------------------------------------------------------------------------


def _run(name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The function of symbols; what it cannot do is an error that says on which of its lines."""
    try:
        return function(*args)
    except TraceError as error:
        if error.args[0].startswith("[pointwise]"):
            where = _line(error.__traceback__)
            error.args = (f"[{name}] expected {error.expected}, got {error.got}{where}: {error.advice}",)
        raise
    except AlphaError as error:
        if getattr(error, "_traced", False):
            raise
        where = _line(error.__traceback__)
        made = ArgumentError(
            f"[{name}] expected point-wise operations alone, got another{where}: use {symbols.FUNCTIONS}; do the rest "
            f"outside ({error})"
        )
        made._traced = True  # type: ignore[attr-defined]
        raise made from error


def _line(traceback: TracebackType | None) -> str:
    """The innermost line of the user's own among those of a traceback, as " in line 3 of net.py: text"."""
    found: tuple[CodeType, int] | None = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            found = code, traceback.tb_lineno
        traceback = traceback.tb_next
    if found is None:
        return ""
    code, number = found
    text = linecache.getline(code.co_filename, number).strip()
    place = f" in line {number} of {Path(code.co_filename).name}"
    return f"{place}, {text!r}" if text else place


def _described(value: Any) -> str:
    if type(value) is Symbol:
        return "one made of numbers alone"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else described(value)


__all__ = ["PointwiseFunction", "pointwise"]
