"""Shared parts of `custom_jvp` and `custom_vjp`: functions that remain single calls until a trace processes them.

A call of such a function is one object, with the flat function and its rule. A trace that runs operations runs the
function. A trace that differentiates runs the rule. A trace that vectorizes makes a call of both over batches. A trace
that records writes an equation; evaluating the equation makes the call again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from types import GenericAlias
from typing import Any, ClassVar

from mpijax.core.base import provided
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import callable_name
from mpijax.core.base.state import state
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, dead_code, eval_jaxpr
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.rules.primitive import Primitive
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import batch_at, batch_flat
from mpijax.transforms.call import hoist_tracers
from mpijax.transforms.flat import FlatFun, argument_types
from mpijax.transforms.ref_state import has_refs, values_of
from mpijax.transforms.zeros import Zero, as_array

# ---------------------------------------------------------------- decorated functions


class CustomFunction:
    """A decorated function, and how it handles its arguments.

    Args:
      fun: the function.
      nondiff_argnums, nondiff_argnames: arguments that are not differentiated, such as functions and other Python
        values; rules take them first.
    """

    kind: str
    __call__: Callable[..., Any]
    # For annotations with the result type: custom_jvp[jax.Array].
    __class_getitem__: ClassVar[Any] = classmethod(GenericAlias)

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        update_wrapper(self, fun)
        self.fun = fun
        names = list(inspect.signature(fun).parameters) if nondiff_argnames else []
        self.nondiff_argnums = tuple(sorted({*nondiff_argnums, *(names.index(n) for n in nondiff_argnames)}))

    def __get__(self, instance, owner=None):
        return self if instance is None else partial(self, instance)

    def __getattr__(self, name: str):
        # For a function that is decorated twice: the other rules are defined through the outer decorator.
        if name.startswith("def"):
            return getattr(self.fun, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _positional(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        return positional_arguments(self.kind, self.fun, args, kwargs)

    def _split(self, fun: Callable, args: Sequence[Any]) -> tuple[Callable, tuple, list]:
        """`fun` as a function of the differentiated arguments only, these arguments, and the other arguments."""
        fixed = {i: args[i] for i in self.nondiff_argnums if i < len(args)}
        count = len(args)  # the closure must not hold `args`: rules live as long as their programs

        def call(*dynamic):
            rest = iter(dynamic)
            return fun(*[fixed[i] if i in fixed else next(rest) for i in range(count)])

        return call, tuple(a for i, a in enumerate(args) if i not in fixed), list(fixed.values())


def positional_arguments(kind: str, fun: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """All arguments by position, defaults included; raises TypeError for an argument without a position."""
    # functools.partial shows keyword arguments in its signature, but they cannot be passed by position.
    opaque = isinstance(fun, partial)
    try:
        bound = inspect.signature((lambda *args, **kwargs: None) if opaque else fun).bind(*args, **kwargs)
        bound.apply_defaults()
        given = [name for name in bound.kwargs if name in kwargs]
        if given:
            raise TypeError(f"The following keyword arguments could not be resolved to positions: {', '.join(given)}")
    except ValueError:  # no signature
        return tuple(args)
    except TypeError as error:
        raise TypeError(
            f"The input arguments to the {kind}-decorated function {callable_name(fun)} could not be resolved to "
            f"positional-only arguments. Binding failed with the error:\n{error}"
        ) from error
    return bound.args


# ---------------------------------------------------------------- types of results


class ResultTypes:
    """Structure and types of the result of a function, and of the primal result of its rule."""

    __slots__ = ("of_fun", "of_rule")

    def __init__(self) -> None:
        self.of_fun: tuple[Any, list[ShapedArray]] | None = None
        self.of_rule: tuple[Any, list[ShapedArray]] | None = None

    @property
    def structure(self):
        """The structure of the result, from the function or the rule, whichever has run."""
        return (self.of_fun or self.of_rule)[0]  # type: ignore[index]

    def recorded(self, flat: FlatFun) -> Callable[..., list[Any]]:
        """The flat function; running it records its result type."""

        def fun(*leaves):
            outs = flat(*leaves)
            if has_refs(outs):
                raise ValueError(
                    "A function with a custom derivative rule returned a mutable array reference, but mutable array "
                    "references cannot be returned there. Return its value (ref[...])."
                )
            self.of_fun = flat.out_tree, [typeof(x) for x in outs]
            return outs

        return fun

    def check_rule(self, found_tree, found: list[ShapedArray], words: RuleWords, rule: str, name: str) -> None:
        """Record the result type of the rule `rule`. Raises TypeError if the function `name` returned another type."""
        self.of_rule = found_tree, found
        if self.of_fun is None:
            return
        wanted_tree, wanted = self.of_fun
        if found_tree != wanted_tree:
            what, like, end = "container/pytree structure", "of the same container/pytree structure", "."
        elif any(a.form != b.form for a, b in zip(found, wanted, strict=True)):
            what, like, end = "shapes/dtypes", "with leaves of the same shape/dtype", ""
        else:
            return
        function = f"{words.decorator}-decorated function {name}"
        raise TypeError(
            f"Custom {words.rule} {rule} for function {name} must produce a pair (list or tuple of length two) where "
            f"the first element represents the primal output ({words.equal.format(function=function, like=like)}, but "
            f"instead the {words.short} output's first element had {what}{words.of(what)}:\n"
            f"    {_types_text(found_tree, found)}\nwhile the {function} had output {what}{words.of(what)}:\n"
            f"    {_types_text(wanted_tree, wanted)}{end}"
        )


@dataclass(frozen=True)
class RuleWords:
    """Words for error messages about a kind of rule. `equal` describes its first result and closes the parenthesis."""

    decorator: str
    rule: str
    short: str
    equal: str

    @staticmethod
    def of(what: str) -> str:
        return " of" if what.startswith("shapes") else ""


def _types_text(structure, avals: Sequence[ShapedArray]) -> str:
    return str(tree.tree_unflatten(structure, [a.str_short(False) for a in avals])).replace("'", "")


# ---------------------------------------------------------------- calls


class CustomCall:
    """One call of a custom function: the flat function, its rule, and methods for each kind of trace."""

    primitive: Primitive

    def __init__(self, fun: Callable, name: str, symbolic_zeros: bool, debug: Any = None):
        self.fun = fun
        self.name = name
        self.symbolic_zeros = symbolic_zeros
        self.debug = debug

    def bind(self, *args: Any) -> list[Any]:
        return state.trace.process_custom_call(self, args)

    def differentiate(self, primals, tangents) -> tuple[list[Any], list[Any]]:
        """Results and tangents from the user's rule, in the current trace."""
        raise NotImplementedError

    def batched(self, trace, dims: Sequence[int | None], axes: BatchAxes) -> CustomCall:
        """The same call over batches. `axes` receives the batch axes of its results."""
        raise NotImplementedError

    def bind_params(self, count: int) -> dict[str, Any]:
        """JAX's parameters of a call with `count` arguments: `subfuns` are the function and its rule, wrapped."""
        raise NotImplementedError

    def in_trace_of_library(self, trace, args) -> list[Any]:
        """Calls JAX's method of a trace that a library defines."""
        params = self.bind_params(len(args))
        process = getattr(trace, f"process_{self.primitive.name}")
        return process(self.primitive, *params.pop("subfuns"), args, **params)

    def wrapped_fun(self) -> Any:
        """The function as a `extend.linear_util.WrappedFun`."""

        def fun(*args):
            return self.fun(*args)

        fun.__name__ = self.name
        return provided.wrap_init(fun, debug_info=self.debug)

    def params(self, closed: ClosedJaxpr, hoisted: int) -> dict[str, Any]:
        """Parameters of an equation. The first `hoisted` arguments are values that the function closes over."""
        raise NotImplementedError

    def bind_batched(self, trace, args, dims):
        axes = BatchAxes(trace)
        outs = self.batched(trace, dims, axes).bind(*args)
        return outs, list(axes.of_results)

    def stage(self, trace, args) -> list[Any]:
        """Record the call as an equation that contains the traced function."""
        jaxpr, consts = trace_to_jaxpr(self.fun, argument_types(args), self.debug)
        closed, moved = hoist_tracers(jaxpr, consts, lambda c: isinstance(c, Tracer))
        moved = values_of(moved)
        params = {"name": self.name, "call_jaxpr": closed, "num_consts": len(moved)}
        params |= {**self.params(closed, len(moved)), "symbolic_zeros": self.symbolic_zeros}
        return trace.process_primitive(self.primitive, (*moved, *args), params)


class BatchAxes:
    """The batch axes of the results of a vectorized call: those of the function if it has run, else of the rule."""

    def __init__(self, trace) -> None:
        self.axis, self.tag = trace.axis, trace.tag  # the trace itself ends before the program
        self.of_results: list[int | None] = []
        self._of_fun: list[int | None] | None = None

    def run(self, fun: Callable, values, dims) -> list[Any]:
        """Run the function over batches."""
        outs, found = batch_flat(fun, self.axis, values, dims, self.tag)
        self._of_fun = self.of_results = found
        return outs

    def run_rule(self, rule: Callable, values, dims):
        """Run a rule over batches. Returns results and their batch axes. Zeros of batches become zeros of examples."""
        examples = [self._example(v, d) for v, d in zip(values, dims, strict=True)]
        own = [None if type(v) is Zero else d for v, d in zip(values, dims, strict=True)]
        return batch_flat(rule, self.axis, examples, own, self.tag)

    @staticmethod
    def _example(value: Any, dim: int | None) -> Any:
        if type(value) is not Zero or dim is None:
            return value
        shape = value.aval.shape
        return Zero(value.aval.update(shape=shape[:dim] + shape[dim + 1 :]))

    def settle(self, found: list[int | None]) -> list[int | None]:
        """The batch axes for the results, given the axes `found` by a rule. The rule moves its results there."""
        if self._of_fun is not None:
            return self._of_fun
        self.of_results = found
        return found

    def place(self, x: Any, dim: int | None, target: int | None) -> Any:
        """A result of a rule, moved to have its batch axis at `target`."""
        if target is None and dim is not None:
            raise ValueError(
                "Under vmap, a custom derivative rule returned a mapped value where the function returned one that is "
                "not mapped. Make the function's result depend on its arguments."
            )
        return x if target is None else batch_at(x, dim, target, self.axis)


def rerunnable(wrapped: Any) -> Callable[..., Any]:
    """A wrapped function as a function that may be called again: each call stores its auxiliary values anew."""

    def run(*args):
        for store in wrapped.stores:
            if store is not None:
                store.reset()
        return wrapped.call_wrapped(*args)

    run.__name__ = callable_name(wrapped)
    return run


class Rule:
    """A user's rule as a parameter of an equation; prints as its name. Literals of the equation reach it as arrays."""

    __slots__ = ("__name__", "call")

    def __init__(self, name: str, call: Callable):
        self.__name__ = name
        self.call = call

    def __call__(self, primals, of_primals):
        return self.call(list(map(as_array, primals)), of_primals)


# ---------------------------------------------------------------- equations


class CustomPrimitive(Primitive):
    """A primitive for calls of a custom function. Binding it makes a new `CustomCall`.

    `remake(fun, params)` makes the call; `select(params, used)` returns the parameters for some of the results;
    `rejoin(subfuns, params)` makes the call that a library's trace passes on, from wrapped functions.
    `transpose` is for calls in a linear program of the caller: derivatives consist of other operations.
    """

    def __init__(
        self, name: str, remake: Callable, select: Callable, shown: Callable, rejoin: Callable, transpose: Callable
    ):
        def unreachable(*_args, **_params):
            raise AssertionError(f"{name} is handled by the traces themselves")

        super().__init__(
            name,
            type_rule=lambda *_avals, call_jaxpr, **_: call_jaxpr.out_avals,
            reference=lambda *args, call_jaxpr, **_: eval_jaxpr(call_jaxpr.jaxpr, call_jaxpr.consts, *args),
            lower=InlineJaxpr("call_jaxpr"),
            jvp=unreachable,
            transpose=transpose,
            batch=unreachable,
            multiple_results=True,
            effects=lambda params: params["call_jaxpr"].effects,
            dce=self._dce,
            pretty=self._pretty,
            vma=lambda avals, params: None,
            keys=key_reuse.of_program("call_jaxpr"),
        )
        self.remake = remake
        self.select = select
        self.shown = shown
        self.rejoin = rejoin

    def bind(self, *args, subfuns=None, **params) -> Any:
        if subfuns is not None:
            return self.rejoin(subfuns, **params).bind(*args)
        return self._call(params).bind(*args)

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of an equation as JAX's `bind` takes them: with the function and its rule as `subfuns`."""
        return self._call(params).bind_params(len(params["call_jaxpr"].in_avals))

    def _call(self, params: dict[str, Any]) -> CustomCall:
        closed: ClosedJaxpr = params["call_jaxpr"]
        return self.remake(lambda *xs: eval_jaxpr(closed.jaxpr, closed.consts, *xs), params)

    def _pretty(self, eqn, names):
        shown = {"call_jaxpr": eqn.params["call_jaxpr"], "symbolic_zeros": eqn.params["symbolic_zeros"]}
        if eqn.params["num_consts"]:
            shown["num_consts"] = eqn.params["num_consts"]
        return [("name", eqn.params["name"]), *sorted({**shown, **self.shown(eqn.params)}.items())]

    def _dce(self, used: list[bool], eqn: Eqn) -> Eqn:
        """Drop unused results. All arguments stay: the rule may read arguments that the function does not read."""
        closed: ClosedJaxpr = eqn.params["call_jaxpr"]
        pruned, _ = dead_code(closed.jaxpr, used)
        if pruned is closed.jaxpr:
            return eqn
        call_jaxpr = ClosedJaxpr(pruned.replace(invars=closed.jaxpr.invars), closed.consts)
        params = {**eqn.params, "call_jaxpr": call_jaxpr, **self.select(eqn.params, list(used))}
        outvars = [v for v, u in zip(eqn.outvars, used, strict=True) if u]
        return eqn.replace(outvars=outvars, params=params, effects=call_jaxpr.effects)
