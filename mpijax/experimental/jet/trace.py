"""The interpreter of `jet`: every value is a truncated power series."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.state import state
from mpijax.core.tracing.trace import Trace, current_trace
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.experimental.jet.derived import derive
from mpijax.experimental.jet.polynomials import Polynomial
from mpijax.experimental.jet.user_rules import apply_user_rule, jet_rules
from mpijax.numpy import asarray, broadcast_to, zeros_like
from mpijax.transforms.dual import PrimalTracer

# By the keys of primitives: `(*polynomials, **params) -> [polynomial, ...]`, of operands of which one has a series.
# `rules` fills it.
RULES: dict[str, Callable[..., list[Polynomial]]] = {}


class JetTracer(PrimalTracer):
    """A value and the higher coefficients of its series.

    >>> show = lambda x: print(isinstance(x, mpijax.experimental.jet.JetTracer)) or x
    >>> value, _ = mpijax.experimental.jet.jet(show, (1.0,), ((1.0,),))
    True
    """

    __slots__ = ("terms",)

    def __init__(self, trace: Trace, primal: Any, terms: Sequence[Any]):
        self._trace = trace
        self.primal = primal
        self.terms = terms

    def _contents(self) -> str:
        return f"primal={self.primal!s}, terms={self.terms}"


class JetTrace(Trace):
    """Runs every operation on power series, in the parent trace.

    >>> show = lambda x: print(type(x._trace).__name__) or x
    >>> value, _ = mpijax.experimental.jet.jet(show, (1.0,), ((1.0,),))
    JetTrace
    """

    __slots__ = ()

    def polynomial(self, x: Any) -> Polynomial:
        """All coefficients of a value. A value that is not a tracer of this trace is a constant."""
        if type(x) is JetTracer and x._trace is self:
            return [x.primal, *x.terms]
        if hasattr(type(x), "__jax_array__"):
            return self.polynomial(x.__jax_array__())  # which may be a tracer of this trace
        return [x]

    def wrap(self, series: Polynomial) -> Any:
        return JetTracer(self, series[0], series[1:]) if len(series) > 1 else series[0]

    def process_primitive(self, primitive, args, params):
        operands = [self.polynomial(x) for x in args]
        with current_trace(self.parent):
            if all(len(u) == 1 for u in operands):
                return primitive.bind(*(u[0] for u in operands), **params)
            if primitive in jet_rules:
                results = apply_user_rule(primitive, operands, params)
            elif primitive.key in RULES:
                results = RULES[primitive.key](*operands, **params)
            else:
                results = derive(primitive, operands, params, expand)
        wrapped = [self.wrap(v) for v in results]
        return wrapped if primitive.multiple_results else wrapped[0]

    def process_custom_call(self, call, args):
        """A function with a user's derivative: it is expanded without that rule, which says nothing about higher
        derivatives."""
        operands = [self.polynomial(x) for x in args]
        if all(len(u) == 1 for u in operands):
            with current_trace(self.parent):
                return call.bind(*(u[0] for u in operands))
        return call.fun(*args)

    def without_derivative(self, value):
        return self.parent.without_derivative(self.polynomial(value)[0])


def expand(fun: Callable, operands: Sequence[Polynomial]) -> list[Polynomial]:
    """The series of the results of a function of flat arguments."""
    parent = state.trace
    trace = JetTrace(parent)
    with current_trace(trace):
        outs = fun(*map(trace.wrap, operands))
    return [trace.polynomial(x) for x in outs]


def jet(fun: Callable, primals: Sequence[Any], series: Sequence[Sequence[Any]], factorial_scaled: bool = True, **_):
    """Higher derivatives along a curve: applies `fun` to truncated Taylor series.

    The n-th element of a series is the n-th derivative of that argument, or result, with respect to the parameter of
    the curve. The cost grows with the square of the order; the cost of nested `jvp`s grows exponentially.

    Args:
      fun: function of arrays, to a pytree of arrays.
      primals: the arguments of `fun` at the beginning of the curve, arrays.
      series: for each argument, the list of its derivatives, with the shape of the argument. All lists have the same
        length.
      factorial_scaled: True for derivatives; False for coefficients of powers, that is, derivatives divided by
        factorials.

    Returns:
      `fun(*primals)`, and the same pytree with a list of derivatives instead of each array.

    Raises:
      ValueError: lists of different lengths, or an argument that is not an array.
      TypeError: a derivative does not have the shape of its argument.

    >>> value, derivatives = mpijax.experimental.jet.jet(lambda x: x**3, (jnp.float32(2),), ((1.0, 0.0, 0.0),))
    >>> derivatives
    [Array(12., dtype=float32), Array(12., dtype=float32), Array(6., dtype=float32)]
    """
    lengths = set(map(len, series))
    if len(lengths) != 1:
        raise ValueError(
            f"jet terms have inconsistent lengths for different arguments: {list(map(len, series))}. Pass the same "
            "number of derivatives for each argument. The derivatives of a constant are zeros"
        )
    [order] = lengths
    scale = [float(math.factorial(k)) if factorial_scaled else 1.0 for k in range(order + 1)]
    operands = [_operand(i, x, terms, scale) for i, (x, terms) in enumerate(zip(primals, series, strict=True))]
    structures: list[tree.PyTreeDef] = []

    def flat(*args):
        leaves, structure = tree.tree_flatten(fun(*args))
        structures.append(structure)
        return leaves

    results = expand(flat, operands)
    structure = structures[-1]
    terms = [_terms(v, scale) for v in results]
    return tree.tree_unflatten(structure, [v[0] for v in results]), tree.tree_unflatten(structure, terms)


def _operand(i: int, x: Any, terms: Sequence[Any], scale: Sequence[float]) -> Polynomial:
    """An argument as a polynomial."""
    if not tree.treedef_is_leaf(tree.tree_structure(x)):
        raise ValueError(f"primal value at position {i} is not an array, but {type(x)}: jet does not support pytrees")
    x = asarray(x)
    coefficients = [x]
    for j, term in enumerate(terms):
        if not tree.treedef_is_leaf(tree.tree_structure(term)):
            raise ValueError(f"term {j} for argument {i} is not an array, but {type(term)}")
        coefficients.append(_coefficient(i, j, x, asarray(term), scale[j + 1]))
    return coefficients


def _coefficient(i: int, j: int, x: Any, term: Any, scale: float) -> Any:
    if term.shape not in ((), x.shape):
        raise TypeError(f"term {j} for argument {i} has shape {term.shape}, but the argument has {x.shape}")
    if dtypes.issubdtype(x.dtype, np.inexact):
        term = term.astype(x.dtype) if term.dtype != x.dtype else term
    elif not dtypes.issubdtype(term.dtype, np.inexact):
        term = term.astype(float)
    return broadcast_to(term / scale if scale != 1 else term, x.shape)


def _terms(series: Polynomial, scale: Sequence[float]) -> list[Any]:
    """The derivatives of a result; derivatives of integers are floats."""
    higher = series[1:] or [zeros_like(series[0])] * (len(scale) - 1)
    inexact = dtypes.issubdtype(typeof(higher[0]).dtype, np.inexact) if higher else True
    return [c if s == 1 and inexact else c * s for c, s in zip(higher, scale[1:], strict=True)]
