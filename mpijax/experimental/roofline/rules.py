"""Which rule estimates an operation: the user's, mpijax's for this operation, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.rules.lowering import Elementwise
from mpijax.core.rules.primitive import Primitive
from mpijax.experimental.roofline import messages, operations
from mpijax.experimental.roofline.results import RooflineResult

Rule = Callable[..., RooflineResult]

_OWN: dict[str, Rule] = {**operations.RULES, **messages.RULES}
_registered: dict[Primitive, Rule] = {}


def register_roofline(prim: Primitive) -> Callable[[Rule], Rule]:
    """A decorator that makes a function the rule of a primitive.

    The rule gets a `RooflineRuleContext`, the operands as `RooflineShape`s, and the primitive's parameters as keyword
    arguments. It returns a `RooflineResult`.

    >>> from mpijax.experimental import roofline
    >>> triple = mpijax.extend.core.Primitive("triple")
    >>> _ = triple.def_abstract_eval(lambda x: x)
    >>> @roofline.register_roofline(triple)
    ... def rule(ctx, x, **params):
    ...     return roofline.RooflineResult(unfused_flops=2 * x.size)
    >>> roofline.roofline(triple.bind)(jnp.ones(4))[1].unfused_flops
    8
    """

    def register(rule: Rule) -> Rule:
        _registered[prim] = rule
        return rule

    return register


def register_standard_roofline(prim: Primitive) -> None:
    """Count a primitive as free.

    >>> named = mpijax.extend.core.Primitive("named")
    >>> _ = named.def_abstract_eval(lambda x: x)
    >>> mpijax.experimental.roofline.register_standard_roofline(named)
    >>> mpijax.experimental.roofline.roofline(named.bind)(jnp.ones(4))[1].unfused_flops
    0
    """
    _registered[prim] = _free


def rule_of(primitive: Primitive) -> Rule | None:
    """The rule; None for a user's primitive without one. Operations of mpijax that only move elements are free."""
    if primitive in _registered:
        return _registered[primitive]
    if type(primitive) is not Primitive:  # made with `extend.core.Primitive`
        return None
    return _OWN.get(primitive.key) or (operations.elementwise if isinstance(primitive.lower, Elementwise) else _free)


def _free(ctx: Any, *args: Any, **params: Any) -> RooflineResult:
    return RooflineResult()
