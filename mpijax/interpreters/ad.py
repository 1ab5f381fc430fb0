"""``mpijax.interpreters.ad``: derivatives of primitives.

    primitive_jvps[p] = rule           rule(primals, tangents, **params) -> (result, tangent)
    primitive_transposes[p] = rule     rule(cotangent, *args, **params) -> a cotangent, or None, for each argument

`primals` and `tangents` are tuples. Tangents and cotangents may be `Zero`. In a transpose rule, linear arguments are
`UndefinedPrimal`, which have only a type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mpijax import missing as _missing
from mpijax.core.rules.primitive import Primitive
from mpijax.extend.rules import RuleTable
from mpijax.ops.ad_ops import add_any_p as add_jaxvals_p
from mpijax.transforms.jvp import JVPTrace, JVPTracer
from mpijax.transforms.transpose import UndefPrimal as UndefinedPrimal
from mpijax.transforms.transpose import is_undefined_primal
from mpijax.transforms.zeros import Zero, add_tangents
from mpijax.transforms.zeros import instantiate as instantiate_zeros
from mpijax.transforms.zeros import zeros as zeros_like_aval

__all__ = [
    "JVPTrace",
    "JVPTracer",
    "UndefinedPrimal",
    "Zero",
    "add_jaxvals",
    "add_jaxvals_p",
    "add_tangents",
    "defbilinear",
    "defjvp",
    "defjvp2",
    "deflinear",
    "deflinear2",
    "get_primitive_transpose",
    "instantiate_zeros",
    "is_undefined_primal",
    "primitive_jvps",
    "primitive_transposes",
    "zeros_like_aval",
]


def _of_tuples(rule: Callable) -> Callable:
    return lambda primals, tangents, **params: rule(tuple(primals), tuple(tangents), **params)


primitive_jvps = RuleTable("jvp", _of_tuples)
primitive_transposes = RuleTable("transpose")


def add_jaxvals(x: Any, y: Any) -> Any:
    """The sum of two tangents.

    >>> mpijax.interpreters.ad.add_jaxvals(jnp.ones(2), jnp.ones(2))
    Array([2., 2.], dtype=float32)
    """
    return add_jaxvals_p.bind(x, y)


def get_primitive_transpose(p: Primitive) -> Callable:
    """The transpose rule of a primitive, or a rule that raises an explanation if there is none.

    >>> callable(mpijax.interpreters.ad.get_primitive_transpose(lax.neg_p))
    True
    """
    return primitive_transposes.get(p, p.transpose)


def defjvp(primitive: Primitive, *jvprules: Callable | None) -> None:
    """Set derivatives by operand: `rule(tangent, *primals, **params)`, or None for an operand without derivative.

    >>> ad, half_p = mpijax.interpreters.ad, mpijax.extend.core.Primitive("half")
    >>> implementation, types = half_p.def_impl(lambda x: x / 2), half_p.def_abstract_eval(lambda x: x)
    >>> ad.defjvp(half_p, lambda t, x: t / 2)
    >>> mpijax.jvp(half_p.bind, (jnp.float32(3),), (jnp.float32(1),))
    (Array(1.5, dtype=float32), Array(0.5, dtype=float32))
    """
    primitive_jvps[primitive] = functools.partial(_by_operand, primitive, jvprules, False)


def defjvp2(primitive: Primitive, *jvprules: Callable | None) -> None:
    """Set derivatives by operand that use the result: `rule(tangent, result, *primals, **params)`.

    >>> ad, root_p = mpijax.interpreters.ad, mpijax.extend.core.Primitive("root")
    >>> implementation, types = root_p.def_impl(jnp.sqrt), root_p.def_abstract_eval(lambda x: x)
    >>> ad.defjvp2(root_p, lambda t, root, x: t / (2 * root))
    >>> mpijax.jvp(root_p.bind, (jnp.float32(4),), (jnp.float32(1),))
    (Array(2., dtype=float32), Array(0.25, dtype=float32))
    """
    primitive_jvps[primitive] = functools.partial(_by_operand, primitive, jvprules, True)


def _by_operand(primitive, rules, reads_result, primals, tangents, **params):
    out = primitive.bind(*primals, **params)
    known = (out,) if reads_result else ()
    total = Zero.of_primal(out)
    for rule, t in zip(rules, tangents, strict=True):
        if rule is not None and type(t) is not Zero:
            total = add_tangents(total, rule(t, *known, *primals, **params))
    return out, total


def deflinear(primitive: Primitive, transpose_rule: Callable) -> None:
    """Declare a primitive linear; `transpose_rule(cotangent, **params) -> [cotangent of each operand]`.

    >>> ad, half_p = mpijax.interpreters.ad, mpijax.extend.core.Primitive("half_linear")
    >>> implementation, types = half_p.def_impl(lambda x: x / 2), half_p.def_abstract_eval(lambda x: x)
    >>> ad.deflinear(half_p, lambda ct: [half_p.bind(ct)])
    >>> mpijax.grad(half_p.bind)(jnp.float32(3))
    Array(0.5, dtype=float32)
    """
    deflinear2(primitive, lambda ct, *_, **params: transpose_rule(ct, **params))


def deflinear2(primitive: Primitive, transpose_rule: Callable) -> None:
    """Declare a primitive linear; `transpose_rule(cotangent, *args, **params) -> [cotangent of each operand]`.

    >>> ad, half_p = mpijax.interpreters.ad, mpijax.extend.core.Primitive("half_linear2")
    >>> implementation, types = half_p.def_impl(lambda x: x / 2), half_p.def_abstract_eval(lambda x: x)
    >>> ad.deflinear2(half_p, lambda ct, x: [half_p.bind(ct)])
    >>> mpijax.grad(half_p.bind)(jnp.float32(3))
    Array(0.5, dtype=float32)
    """

    def jvp(primals, tangents, **params):
        return primitive.bind(*primals, **params), primitive.bind(*map(instantiate_zeros, tangents), **params)

    primitive_jvps[primitive] = jvp
    primitive_transposes[primitive] = transpose_rule


def defbilinear(prim: Primitive, lhs_rule: Callable, rhs_rule: Callable) -> None:
    """Declare a primitive linear in each of two operands; `rule(cotangent, x, y, **params)` gives one cotangent.

    >>> ad, times_p = mpijax.interpreters.ad, mpijax.extend.core.Primitive("times")
    >>> implementation, types = times_p.def_impl(lambda x, y: x * y), times_p.def_abstract_eval(lambda x, y: x)
    >>> ad.defbilinear(times_p, lambda ct, x, y: ct * y, lambda ct, x, y: x * ct)
    >>> mpijax.grad(times_p.bind, argnums=(0, 1))(jnp.float32(3), jnp.float32(5))
    (Array(5., dtype=float32), Array(3., dtype=float32))
    """

    def transpose(ct, x, y, **params):
        if is_undefined_primal(x):
            return lhs_rule(ct, x, y, **params), None
        return None, rhs_rule(ct, x, y, **params)

    defjvp(prim, lambda t, x, y, **p: prim.bind(t, y, **p), lambda t, x, y, **p: prim.bind(x, t, **p))
    primitive_transposes[prim] = transpose


def __getattr__(name: str):
    raise _missing.error(__name__, name)
