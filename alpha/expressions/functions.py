"""alpha.pointwise: a Python function of tensors and numbers as a differentiable function, one pass over memory."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpha import dtypes
from alpha.arguments import Shape, broadcast_shapes
from alpha.autograd import Edge, Function, edges_of
from alpha.conversion import tensor
from alpha.errors import ArgumentError, DtypeError, described
from alpha.expressions import symbols
from alpha.expressions.derivative import gradients
from alpha.expressions.graph import FLOAT, NUMBER, Graph, Node
from alpha.expressions.operations import kind_of
from alpha.expressions.program import Program, inputs_of, shared
from alpha.expressions.symbols import Symbol
from alpha.expressions.tracing import run
from alpha.functions.operands import broadcast_view, copied, is_number, python_number, sum_to
from alpha.launches import Launches
from alpha.tensor import Tensor


def pointwise(function: Callable[..., Any]) -> PointwiseFunction:
    """Decorator: makes a differentiable function of a Python function of tensors and numbers.

    The function is written for one element, with operators and alpha's element-wise functions, and called with tensors
    and numbers, at least one a tensor::

        @alpha.pointwise
        def mish(x, slope):
            return x * alpha.tanh(alpha.softplus(slope * x))

        y = mish(x, slope)  # tensors broadcast; float32 and float64 meet as elsewhere; a tensor of bools is a condition

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
    """What ``alpha.pointwise`` makes of a function.

    Attributes:
        name: the function's.
        latest: the launches of the program of the last call that took the call's arguments as they were.
        latest_in_place: those of the last call that wrote into its first argument.
        takes_integers: whether its programs are computed of integers too, by who calls it: they are shared with those
            of engines' operations.
    """

    takes_integers = False

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ArgumentError(f"[pointwise] expected a function, got {described(function)}: use it as a decorator")
        functools.update_wrapper(self, function)
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._signature = inspect.signature(function)
        kinds = {name: parameter.kind for name, parameter in self._signature.parameters.items()}
        if not {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}.isdisjoint(kinds.values()):
            raise ArgumentError(
                f"[pointwise] expected a function of named arguments alone, got {self.name}{self._signature}: name "
                "each tensor and number"
            )
        self._count = len(kinds)
        keywords = [name for name, kind in kinds.items() if kind == inspect.Parameter.KEYWORD_ONLY]
        if keywords:
            self._function = _by_position(function, keywords)
        self.latest: Launches = _NO_LAUNCHES
        self.latest_in_place: Launches = _NO_LAUNCHES
        self._gradient: Callable[..., Any] | None = None
        self._traces: dict[tuple[str, ...], Trace] = {}
        self._by_types: dict[tuple[type, ...], Trace] = {}

    @property
    def takes_one(self) -> bool:
        """Whether it has one argument."""
        return self._count == 1

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator for the gradient in a better form than the derived one: ``f(grad, *arguments)``.

        It is written as the function itself is, and returns a tuple with one gradient an argument, None for numbers;
        the gradient alone where there is one argument.
        """
        self._gradient = function
        self._traces, self._by_types, self.latest, self.latest_in_place = {}, {}, _NO_LAUNCHES, _NO_LAUNCHES
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        if not kwargs:
            found: Tensor | None = self.latest.launch_outside(*args)
            if found is not None:
                return found
        return self.evaluate(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Tensor:
        """What a call does whose launch declined."""
        if kwargs or len(args) != self._count:
            args = self._bound(args, kwargs)
        trace = self._by_types.get(tuple([type(value) for value in args]))
        if trace is None:
            if symbols.is_symbolic(*args):
                inlined: Tensor = self._inlined(args)  # an expression, to the function that it is part of
                return inlined
            args = self._converted(args)
            trace = self.trace(args)
        if trace.is_direct:
            self.latest = trace.program.launches
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
            trace = self.trace(args)
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
                is_sequence = isinstance(value, list | tuple)
                advice = "give alpha.tensor(...) of it" if is_sequence else "make a function for each choice instead"
                raise ArgumentError(f"[{self.name}] expected tensors and numbers, got {described(value)}: {advice}")
        return tuple(result)

    def of_kinds(self, kinds: tuple[str, ...]) -> Trace:
        """What is known of the function where the arguments are these: FLOAT and BOOL of tensors, NUMBER."""
        found = self._traces.get(kinds)
        if found is None:
            found = self._traces[kinds] = Trace(self, *self._traced(kinds))
        return found

    def trace(self, args: tuple[Any, ...]) -> Trace:
        """What is known of the function for tensors and numbers as these."""
        trace = self.of_kinds(tuple([kind_of(value) for value in args]))
        types = tuple(map(type, args))
        if all(kind in (float, int, bool) or issubclass(kind, Tensor) for kind in types):
            self._by_types[types] = trace
        return trace

    def _traced(self, kinds: tuple[str, ...]) -> tuple[Graph, Node, tuple[str, ...]]:
        """What the function computes, as an expression."""
        graph = Graph()
        places = [0, 0]
        given = []
        for kind in kinds:
            is_tensor = kind != NUMBER
            place = places[is_tensor]
            places[is_tensor] += 1
            given.append(Symbol(graph, graph.input(place, kind) if is_tensor else graph.argument(place)))
        result = self._inlined(tuple(given))
        if not isinstance(result, Symbol) or result.node.kind == NUMBER:
            several = isinstance(result, tuple | list)
            advice = "make a function for each of them" if several else "return what is computed from them"
            raise ArgumentError(
                f"[{self.name}] expected an expression of the tensors as the result, got {_described(result)}: {advice}"
            )
        return graph, result.node, kinds

    def _inlined(self, args: tuple[Any, ...]) -> Any:
        """The function of symbols, as part of the expression that they belong to."""
        result = run(self.name, self._function, args)
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
        found = run(self.name, give, (Symbol(graph, gradient), *args))
        parts = found if isinstance(found, tuple) else (found,)
        if len(parts) != len(args) or not all(part is None or type(part) is Symbol for part in parts):
            raise ArgumentError(
                f"[{self.name}.gradient] expected a gradient or None for each of {len(args)} arguments, got "
                f"{_described(found)}: return a tuple of them"
            )
        pairs = zip(args, parts, strict=True)
        return tuple([None if part is None else part.node for value, part in pairs if type(value) is Symbol])


_NO_LAUNCHES = Launches()


class Trace:
    """A point-wise function of which it is known what arguments are tensors: its program, and those of its gradients.

    Attributes:
        name: the function's.
        program: computes the result from the tensors.
        gradients: the programs of the gradients that were asked for, by the tensors that need one.
        is_direct: whether the program takes the arguments as they are.
    """

    def __init__(self, function: PointwiseFunction, graph: Graph, result: Node, kinds: tuple[str, ...]) -> None:
        self.name = function.name
        self._function = function
        self._graph, self._result = graph, result
        self._tensors = tuple([place for place, kind in enumerate(kinds) if kind != NUMBER])
        self._others = tuple([place for place, kind in enumerate(kinds) if kind == NUMBER])
        found = [kinds[place] for place in self._tensors]
        self._inputs = [graph.input(place, kind) for place, kind in enumerate(found)]
        self._count = len(self._tensors)
        self._is_of_conditions = FLOAT not in found
        self._deciding = 0 if self._is_of_conditions else found.index(FLOAT)
        program = Program(graph, [result], self._inputs)
        self.program = shared(program) if function.takes_integers else program
        in_order = self._tensors == tuple(range(len(self._tensors)))
        self.is_direct = in_order and self.program.takes(len(self._others))
        self.gradients: dict[tuple[bool, ...], GradientProgram] = {}
        self._total_gradients: dict[tuple[bool, ...], GradientProgram] = {}

    def __call__(self, args: tuple[Any, ...]) -> Tensor:
        if self.is_direct:
            result: Tensor | None = self.program.launches.launch(*args)
            if result is not None:  # the engine knows arguments like these
                return self._entered(args, args[: self._count], result)
        trace, tensors = self._fitting(args)
        return trace.run(args, tensors)

    def _entered(self, args: tuple[Any, ...], tensors: tuple[Tensor, ...], result: Tensor) -> Tensor:
        """The result, in the graph if an argument is."""
        edges = None if self.program.bools[0] else edges_of(tensors)
        if edges is None:
            return result
        return Evaluation.recorded(self, self.numbers(args) if self._others else (), tensors, edges, result)

    def applied(self, x: Tensor) -> Tensor:
        """The result of one tensor of floats, for a function that takes no other argument."""
        return self((x,))

    def total(self, args: tuple[Any, ...], mean: bool) -> Tensor:
        """The sum or the mean of all elements of the result."""
        trace, tensors = self._fitting(args)
        return trace.run_total(args, tensors, mean)

    def _fitting(self, args: tuple[Any, ...]) -> tuple[Trace, tuple[Tensor, ...]]:
        """The function's trace for the arguments' dtypes, and the tensors among them."""
        tensors = args[: self._count] if self.is_direct else tuple([args[place] for place in self._tensors])
        first = tensors[self._deciding]
        engine, dtype = first.storage.engine, first.dtype
        fits = dtype in dtypes.FLOATS or self._is_of_conditions
        for x, is_condition in zip(tensors, self.program.conditions, strict=True):
            if x.dtype is not (dtypes.bool_ if is_condition else dtype) or x.storage.engine is not engine:
                fits = False
        return (self if fits else self._checked(args, tensors)), tensors

    def run(self, args: tuple[Any, ...], tensors: tuple[Tensor, ...]) -> Tensor:
        """The result of arguments that are as the program wants them."""
        program = self.program
        given = program.numbers(self.numbers(args) if self._others else ())
        result: Tensor = tensors[0].storage.engine.pointwise(self.name, program, tensors, given)[0]
        return self._entered(args, tensors, result)

    def run_total(self, args: tuple[Any, ...], tensors: tuple[Tensor, ...], mean: bool) -> Tensor:
        """The sum or the mean of the result of arguments that are as the program wants them."""
        program, numbers = self.program, self.numbers(args) if self._others else ()
        if program.bools[0]:
            raise DtypeError(
                f"[{self.name}] expected a function whose result is a float, to be added up, got a bool: write "
                "alpha.where(condition, 1.0, 0.0)"
            )
        edges = edges_of(tensors)
        engine = tensors[0].storage.engine
        result = engine.pointwise_sum(self.name, program, tensors, program.numbers(numbers), mean)
        return result if edges is None else Total.recorded(self, numbers, tensors, edges, result, mean)

    def numbers(self, args: tuple[Any, ...]) -> tuple[float, ...]:
        """The numbers among the arguments."""
        try:
            return tuple([float(args[place]) for place in self._others])
        except OverflowError:  # an int beyond a float's range: an error that says so
            return tuple([float(python_number(self.name, args[place])) for place in self._others])

    def _checked(self, args: tuple[Any, ...], tensors: tuple[Tensor, ...]) -> Trace:
        """The function's trace for these dtypes; DtypeError or EngineError where there is none."""
        tensors[0].engine.check_owner(self.name, *tensors)
        for x in tensors:
            if not dtypes.is_float(x.dtype) and not dtypes.is_bool(x.dtype):
                raise DtypeError(
                    f"[{self.name}] expected tensors of {dtypes.float_names()}, or bool, got {x.dtype}: cast it with "
                    ".float()"
                )
        return self._function.trace(args)

    def gradient(self, needs: tuple[bool, ...]) -> GradientProgram:
        """The program of the gradients for those tensors that need one."""
        found = self.gradients.get(needs)
        if found is None:
            found = self.gradients[needs] = GradientProgram(self._graph, self._result, self._inputs, needs)
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
            serves alone, where fewer tensors are read for it, and where it is dear, as in PyTorch.
        passes: the places of the tensors whose gradient is the result's, unchanged.
        program: computes the gradients that are neither this nor 0 everywhere.
        places: of the tensors that these are for.
        zeros: the places of the tensors whose gradient is 0 everywhere: that of a step is.
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
        self.passes = tuple([place for place, node in pairs if node is grad])
        pairs = [(place, node) for place, node in pairs if node is not grad]
        roots = [node for _, node in pairs if node is not None]
        self.places = tuple([place for place, _ in pairs])
        known = {*self.passes, *self.places}
        self.zeros = tuple([place for place, need in enumerate(needs) if need and place not in known])
        read = self._read(roots, grad, set())
        shorter = self._read(roots, grad, {result})
        saves = len(shorter) < len(read) or len(shorter) == 1 or result.operation == "pow"
        if divisor is None and result in shorter and saves:  # else it may be written to
            read = shorter
        self.reads = tuple([-1 if node is result else int(node.value) for node in read])
        self.program = Program(graph, roots, [grad, *read]) if roots else None
        self._functions: tuple[PointwiseFunction, ...] | None = None

    def in_graph(self, name: str, grad: Tensor, saved: Sequence[Tensor], numbers: tuple[float, ...]) -> list[Tensor]:
        """What the program computes, by differentiable functions of the gradient and what was saved."""
        if self.program is None:
            return []
        if self._functions is None:
            from alpha.expressions.replaying import replayed

            self._functions = replayed(self.program, name)
        return [function(grad, *saved, *self.program.numbers(numbers)) for function in self._functions]

    @staticmethod
    def _read(roots: list[Node], grad: Node, given: set[Node]) -> list[Node]:
        return [node for node in inputs_of(roots, given) if node is not grad]


def of_one_tensor(function: str, argument: str, given: Callable[[Any], Any]) -> Trace:
    """What is known of a function of one tensor of floats, whose result are floats; it need not be of this module.

    ``function``, ``argument``: who asks, and the argument's name, for messages. Errors are those of ``pointwise``.
    """
    if not callable(given):
        raise ArgumentError(
            f"[{function}] expected {argument} as a function of one tensor, got {described(given)}: give alpha.gelu or "
            "another one, or None"
        )
    try:
        trace = _trace_of_one(given)
    except TypeError:  # it has no hash
        trace = _trace_of_one.__wrapped__(given)
    if trace.program.bools[0]:
        raise DtypeError(
            f"[{function}] expected {argument} to give floats, got {trace.name}, which gives bools: write "
            "alpha.where(condition, 1.0, 0.0)"
        )
    return trace


@functools.lru_cache(maxsize=256)
def _trace_of_one(given: Callable[[Any], Any]) -> Trace:
    if isinstance(given, PointwiseFunction) and given.takes_one:
        return given.of_kinds((FLOAT,))

    def applied(x: Any) -> Any:
        return given(x)

    whole = given.func if isinstance(given, functools.partial) else given
    applied.__name__ = getattr(whole, "__name__", type(whole).__name__)
    return PointwiseFunction(applied).of_kinds((FLOAT,))


class Evaluation(Function):
    """A point-wise function in the graph."""

    trace: Trace
    gradient: GradientProgram
    numbers: tuple[float, ...]
    shapes: tuple[tuple[int, ...], ...]
    _results: tuple[int, ...] = ()

    @classmethod
    def recorded(
        cls, trace: Trace, numbers: tuple[float, ...], tensors: Sequence[Tensor], edges: list[Edge], result: Tensor
    ) -> Tensor:
        """The result of a trace's program, in the graph; what the gradients' will read is kept."""
        function = cls()
        gradient = function._note(trace, numbers, tensors, tuple([edge is not None for edge in edges]))
        return function.record(edges, [result if place < 0 else tensors[place] for place in gradient.reads], result)

    def forward(self, *tensors: Tensor, trace: Trace, numbers: tuple[float, ...]) -> Tensor:
        """The result of a program, written into the first tensor.

        Of what the gradients' program will read, copies are kept where it shares memory with that tensor.
        """
        program, out, kept = trace.program, tensors[0], []
        if True in self.needs:
            gradient = self._note(trace, numbers, tensors, self.needs)
            kept = [None if place < 0 else tensors[place] for place in gradient.reads]
            kept = [copied(x) if x is not None and x.storage is out.storage else x for x in kept]
        (result,) = out.storage.engine.pointwise(trace.name, program, tensors, program.numbers(numbers), out)
        self.save(*[result if x is None else x for x in kept])
        self._results = tuple([place for place, x in enumerate(kept) if x is None])
        return result

    def note_write(self) -> None:
        """Takes the result as it is now for what was saved: the write that made it has been counted since."""
        if self._saved is not None and self._results:
            saved = list(self._saved)
            for place in self._results:
                entry = saved[place]
                if entry is not None:
                    saved[place] = (entry[0], entry[0].storage.version, False)
            self._saved = tuple(saved)

    def _note(
        self, trace: Trace, numbers: tuple[float, ...], tensors: Sequence[Tensor], needs: tuple[bool, ...]
    ) -> GradientProgram:
        """Notes what backward has to know beside what is saved; returns the program of the gradients."""
        gradient = trace.gradients.get(needs) or trace.gradient(needs)
        self.trace, self.gradient, self.numbers = trace, gradient, numbers
        self.fresh, self.passes_on = not gradient.passes, len(gradient.passes) < 2
        self.shapes = tuple([x.shape for x in tensors])
        return gradient

    @property
    def title(self) -> str:
        return self.trace.name

    def backward(self, grad: Tensor) -> Tensor | list[Tensor | None]:
        """One program for all gradients; those of repeated tensors are summed to their shapes."""
        gradient, shapes = self.gradient, self.shapes
        result: list[Tensor | None] = [None] * len(shapes)
        for place in gradient.passes:
            result[place] = sum_to(grad, shapes[place])
        program = gradient.program
        if program is not None:
            saved, numbers = self.saved, program.numbers(self.numbers)
            found = program.launches.launch(grad, *saved, *numbers)
            if found is None:
                found = grad.storage.engine.pointwise(self.title, program, (grad, *saved), numbers)
            elif len(gradient.places) == 1:
                if len(shapes) == 1 and found.shape == shapes[0]:
                    only: Tensor = found
                    return only
                found = (found,)
            for place, part in zip(gradient.places, found, strict=True):
                result[place] = part if part.shape == shapes[place] else sum_to(part, shapes[place])
        for place in gradient.zeros:
            result[place] = grad.engine.full(shapes[place], 0, grad.dtype)
        return result

    def backward_in_graph(self, grad: Tensor) -> list[Tensor | None]:
        gradient, shapes = self.gradient, self.shapes
        result: list[Tensor | None] = [None] * len(shapes)
        for place in gradient.passes:
            result[place] = summed_to(grad, shapes[place])
        parts = gradient.in_graph(f"{self.title}_gradient", grad, placed(self, gradient), self.numbers)
        for place, part in zip(gradient.places, parts, strict=True):
            result[place] = summed_to(part, shapes[place])
        for place in gradient.zeros:
            result[place] = grad.engine.full(shapes[place], 0, grad.dtype)
        return result


class Total(Function):
    """The sum or mean of a point-wise function in the graph."""

    fresh = True
    name: str
    gradient: GradientProgram
    numbers: tuple[float, ...]
    shape: Shape
    shapes: tuple[Shape, ...]

    @classmethod
    def recorded(
        cls,
        trace: Trace,
        numbers: tuple[float, ...],
        tensors: Sequence[Tensor],
        edges: list[Edge],
        result: Tensor,
        mean: bool,
    ) -> Tensor:
        """The sum of a trace's program, in the graph; what the gradients' will read is kept."""
        function = cls()
        function.name, function.shapes = trace.name, tuple([x.shape for x in tensors])
        function.shape = broadcast_shapes(trace.name, function.shapes)
        function.numbers = (*numbers, float(math.prod(function.shape)) if mean else 1.0)
        function.gradient = gradient = trace.total_gradient(tuple([edge is not None for edge in edges]))
        return function.record(edges, [tensors[place] for place in gradient.reads], result)

    @property
    def title(self) -> str:
        return self.name

    def backward(self, grad: Tensor) -> list[Tensor | None]:
        """One program for all gradients; those of repeated tensors are summed to their shapes."""
        gradient, shapes, saved, engine = self.gradient, self.shapes, self.saved, grad.storage.engine
        result: list[Tensor | None] = [None] * len(shapes)
        if all(x.shape != self.shape for x in saved):  # no tensor that is read has the shape of all
            grad = broadcast_view(grad, self.shape)
        program = gradient.program
        if program is not None and 0 not in self.shape:
            found = engine.pointwise(self.name, program, (grad, *saved), program.numbers(self.numbers))
            for place, part in zip(gradient.places, found, strict=True):
                result[place] = part if part.shape == shapes[place] else sum_to(part, shapes[place])
        for place, need in enumerate(self.needs):
            if need and result[place] is None:  # steps, or no elements: the gradient is 0
                result[place] = engine.full(shapes[place], 0, grad.dtype)
        return result

    def backward_in_graph(self, grad: Tensor) -> list[Tensor | None]:
        gradient, shapes = self.gradient, self.shapes
        result: list[Tensor | None] = [None] * len(shapes)
        whole = grad.expand(self.shape)
        if 0 not in self.shape:
            parts = gradient.in_graph(f"{self.name}_gradient", whole, placed(self, gradient), self.numbers)
            for place, part in zip(gradient.places, parts, strict=True):
                result[place] = summed_to(part, shapes[place])
        for place in gradient.passes:
            result[place] = summed_to(whole, shapes[place])
        for place, need in enumerate(self.needs):
            if need and result[place] is None:
                result[place] = grad.engine.full(shapes[place], 0, grad.dtype)
        return result


def placed(function: Function, gradient: GradientProgram) -> list[Tensor]:
    """What a function saved for its gradients' program, at the places in the graph of its arguments and its result."""
    pairs = zip(gradient.reads, function.saved, strict=True)
    return [x if place < 0 else function.argument_in_graph(place, x) for place, x in pairs]


def summed_to(grad: Tensor, shape: Shape) -> Tensor:
    """``sum_to`` by differentiable functions."""
    extra = grad.ndim - len(shape)
    axes = tuple(a for a in range(grad.ndim) if a < extra or (shape[a - extra] == 1 and grad.shape[a] != 1))
    return grad.sum(axes).reshape(shape) if axes else grad


def _by_position(function: Callable[..., Any], keywords: Sequence[str]) -> Callable[..., Any]:
    """A function that takes its last arguments by place; they are keywords of another."""

    def call(*args: Any) -> Any:
        first = len(args) - len(keywords)
        return function(*args[:first], **dict(zip(keywords, args[first:], strict=True)))

    return call


def _described(value: Any) -> str:
    if type(value) is Symbol:
        return "one made of numbers alone"
    return f"{len(value)} results" if isinstance(value, tuple | list) else described(value)


__all__ = ["GradientProgram", "PointwiseFunction", "Trace", "of_one_tensor", "pointwise"]
