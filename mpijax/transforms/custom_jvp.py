"""Defines `custom_jvp`: functions with a user-defined forward-mode derivative."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import provided
from mpijax.core.base.source import callable_name
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.transforms.custom import (
    CustomCall,
    CustomFunction,
    CustomPrimitive,
    ResultTypes,
    Rule,
    RuleWords,
    rerunnable,
)
from mpijax.transforms.flat import FlatFun, debug_info
from mpijax.transforms.transpose import backward_pass
from mpijax.transforms.zeros import Zero, add_tangents, as_array, as_operand, instantiate


class JvpCall(CustomCall):
    """A call of a `custom_jvp` function; `rule(primals, tangents) -> (results, tangents)`, all flat."""

    def __init__(self, fun, rule, name, symbolic_zeros, debug=None):
        super().__init__(fun, name, symbolic_zeros, debug)
        self.rule = rule
        self.primitive = custom_jvp_call_p

    def differentiate(self, primals, tangents):
        return self.rule(primals, tangents if self.symbolic_zeros else [instantiate(t) for t in tangents])

    def batched(self, trace, dims, axes):
        def rule(primals, tangents):
            count = len(primals)

            def both(*xs):
                outs, out_tangents = self.rule(xs[:count], xs[count:])
                return [*outs, *out_tangents]

            flat, found = axes.run_rule(both, [*primals, *tangents], [*dims, *dims])
            n = len(flat) // 2
            # A result and its tangent have the same batch axis.
            joint = [d if d is not None else t for d, t in zip(found[:n], found[n:], strict=True)]
            target = axes.settle(joint)
            outs = [axes.place(o, d, t) for o, d, t in zip(flat[:n], found[:n], target, strict=True)]
            out_tangents = [
                Zero.of_primal(o) if type(x) is Zero else axes.place(x, d, t)
                for o, x, d, t in zip(outs, flat[n:], found[n:], target, strict=True)
            ]
            return outs, out_tangents

        rule.__name__ = callable_name(self.rule)
        return JvpCall(lambda *xs: axes.run(self.fun, xs, dims), rule, self.name, self.symbolic_zeros, self.debug)

    def bind_params(self, count):
        def jvp(*xs):
            outs, tangents = self.rule(xs[:count], xs[count:])
            return [*outs, *map(instantiate, tangents)]

        jvp.__name__ = callable_name(self.rule)
        subfuns = (self.wrapped_fun(), provided.wrap_init(jvp))
        return {"subfuns": subfuns, "symbolic_zeros": self.symbolic_zeros}

    def params(self, closed, hoisted):
        rule = self.rule

        def explicit(primals, tangents):
            return rule(primals[hoisted:], tangents[hoisted:])

        return {"jvp": Rule(callable_name(rule), explicit if hoisted else rule)}


def _rejoined(subfuns, symbolic_zeros) -> JvpCall:
    fun, jvp = map(rerunnable, subfuns)

    def rule(primals, tangents):
        flat = jvp(*primals, *tangents)
        count = len(flat) // 2
        outs = flat[:count]
        return outs, _checked_tangents(outs, flat[count:])

    rule.__name__ = callable_name(jvp)
    return JvpCall(fun, rule, callable_name(fun), symbolic_zeros)


def _select(params, used):
    rule = params["jvp"]

    def selected(primals, tangents):
        outs, out_tangents = rule(primals, tangents)
        return [o for o, u in zip(outs, used, strict=True) if u], [
            t for t, u in zip(out_tangents, used, strict=True) if u
        ]

    return {"jvp": Rule(rule.__name__, selected)}


def _transpose(cts, *args, call_jaxpr, **_):
    return backward_pass(call_jaxpr.jaxpr, call_jaxpr.consts, args, cts)


custom_jvp_call_p = CustomPrimitive(
    "custom_jvp_call",
    remake=lambda fun, params: JvpCall(fun, params["jvp"], params["name"], params["symbolic_zeros"]),
    select=_select,
    shown=lambda params: {"jvp": params["jvp"]},
    rejoin=_rejoined,
    transpose=_transpose,
)


class custom_jvp(CustomFunction):
    """Decorate a function to define its derivative with `defjvp` or `defjvps`.

    Args:
      fun: the function.
      nondiff_argnums, nondiff_argnames: arguments that are not differentiated; the rule takes them first.

    >>> @mpijax.custom_jvp
    ... def f(x):
    ...     return x**2
    >>> @f.defjvp
    ... def rule(primals, tangents):
    ...     return f(*primals), 10 * tangents[0]
    >>> mpijax.grad(f)(jnp.float32(3))
    Array(10., dtype=float32)
    """

    kind = "custom_jvp"
    jvp: Callable | None = None
    symbolic_zeros = False

    def defjvp(self, jvp: Callable, symbolic_zeros: bool = False) -> Callable:
        """Set the rule `(*nondiff, primals, tangents) -> (primal_out, tangent_out)`.

        With `symbolic_zeros`, zero tangents are `custom_derivatives.SymbolicZero` objects instead of arrays.
        """
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """Set one rule per argument, `(tangent, primal_out, *primals) -> tangent_out`; None for a zero derivative."""
        if self.nondiff_argnums:
            raise TypeError("Can't use ``defjvps`` with ``nondiff_argnums``.")

        def jvp(primals, tangents):
            out = self(*primals)
            zero = tree.tree_map(Zero.of_primal, out)
            # There may be fewer rules than arguments.
            parts = [rule(t, out, *primals) for rule, t in zip(jvps, tangents, strict=False) if rule is not None]
            total = reduce(lambda x, y: tree.tree_map(add_tangents, x, y), parts, zero)
            return out, tree.tree_map(instantiate, total)

        self.defjvp(jvp)

    def __call__(self, *args, **kwargs):
        name = callable_name(self.fun)
        if self.jvp is None:
            raise AttributeError(f"No JVP defined for custom_jvp function {name} using defjvp.")
        args = self._positional(args, kwargs)
        args = tuple(_constant(a) if i in self.nondiff_argnums else a for i, a in enumerate(args))
        fun, dynamic, nondiff = self._split(self.fun, args)
        leaves, in_tree = tree.tree_flatten((dynamic, {}))
        types = ResultTypes()
        rule = _FlatRule(self.jvp, name, nondiff, in_tree, types)
        debug = debug_info("custom_jvp", self.fun, args, {})
        call = JvpCall(types.recorded(FlatFun(fun, in_tree)), rule, name, self.symbolic_zeros, debug)
        outs = call.bind(*map(as_operand, leaves))
        return tree.tree_unflatten(types.structure, outs)


def _constant(x: Any) -> Any:
    """An argument that is not differentiated, with tangents stopped in all traced values."""

    def stop(v):
        inexact = isinstance(v, Tracer) and dtypes.issubdtype(typeof(v).dtype, np.inexact)
        return provided.basic.constant(v) if inexact else v

    return tree.tree_map(stop, x)


_WORDS = RuleWords(
    decorator="custom_jvp",
    rule="JVP rule",
    short="JVP rule",
    equal="equal in value to the output of the {function}, and in particular {like})",
)


class _FlatRule:
    """The user's rule as a function of flat primals and tangents. Checks what the rule returns."""

    def __init__(self, jvp: Callable, name: str, nondiff, in_tree, types: ResultTypes):
        self.__name__ = callable_name(jvp)
        self.jvp = jvp
        self.name = name
        self.nondiff = nondiff
        self.in_tree = in_tree
        self.types = types

    def __call__(self, primals, tangents):
        jvp_name = f"Custom JVP rule {self.__name__}"
        both = (map(as_operand, primals), map(as_array, tangents))
        structured = (tree.tree_unflatten(self.in_tree, list(xs))[0] for xs in both)
        pair = self.jvp(*self.nondiff, *structured)
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(
                f"{jvp_name} for function {self.name} must produce a pair (list or tuple of length two) representing "
                f"primal and tangent outputs, but got {pair}."
            )
        outs, out_tree = tree.tree_flatten(pair[0])
        out_tangents, tangent_tree = tree.tree_flatten(pair[1])
        if tangent_tree != out_tree:
            raise TypeError(
                f"{jvp_name} for function {self.name} must produce primal and tangent outputs with equal container "
                f"(pytree) structures, but got {out_tree} and {tangent_tree} respectively."
            )
        self.types.check_rule(out_tree, [typeof(x) for x in outs], _WORDS, self.__name__, self.name)
        return outs, _checked_tangents(outs, out_tangents)


def _checked_tangents(outs, tangents) -> list[Any]:
    """The rule's tangents, with symbolic zeros for float0; raises TypeError for a tangent of the wrong type."""
    wanted = [typeof(o).to_tangent_aval() for o in outs]
    found = [t.aval if type(t) is Zero else typeof(t) for t in tangents]
    wrong = [i for i, (w, f) in enumerate(zip(wanted, found, strict=True)) if w.form != f.form]
    if wrong:
        text = "Custom JVP rule must produce primal and tangent outputs with corresponding shapes and dtypes"
        primal, want, got = ([a.str_short(False) for a in avals] for avals in (map(typeof, outs), wanted, found))
        if len(outs) == 1:
            raise TypeError(f"{text}. Expected {want[0]} (tangent type of {primal[0]}) but got {got[0]}.")
        lines = "\n".join(f"  primal {primal[i]} with tangent {got[i]}, expecting tangent {want[i]}" for i in wrong)
        raise TypeError(f"{text}, but got:\n{lines}")
    return [Zero(w) if w.has_no_tangent else t for w, t in zip(wanted, tangents, strict=True)]
