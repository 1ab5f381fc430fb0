"""Finds PRNG keys that a program uses twice: two draws with one key give equal numbers.

Drawing with a key or splitting it consumes the key. The `Signature` of a program tells which arguments it consumes,
which results are new keys, and which results are keys of an argument. It is computed from the signatures of the
operations; a program that uses a key twice raises KeyReuseError. `runtime.arrays.key_reuse` runs the check under
`debug_key_reuse`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.errors import KeyReuseError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Literal, Var

Mask = bool | np.ndarray
# The folder of mpijax.random, as it appears in locations of functions.
_RANDOM = str(Path(__file__).parents[1] / "random")


@dataclass(frozen=True)
class Signature:
    """What a program or operation does with keys. Constants of a program are numbered after its arguments.

    Attributes:
      sinks: argument -> the keys it consumes: True for all, or a bool array of its shape.
      sources: results that are new keys. All other results that are not forwarded count as consumed.
      forwards: result -> the argument whose keys it has.

    >>> from mpijax.extend import keys
    >>> keys.Signature(sinks={1: True}, forwards={0: 0}).sinks
    {1: True}
    """

    sinks: dict[int, Mask] = field(default_factory=dict)
    sources: frozenset[int] = frozenset()
    forwards: dict[int, int] = field(default_factory=dict)


def is_key(aval: Any) -> bool:
    return dtypes.issubdtype(getattr(aval, "dtype", None) or np.float32, dtypes.prng_key)


def overlap(a: Mask, b: Mask) -> bool:
    return bool(np.any(np.logical_and(a, b)))


def union(a: Mask, b: Mask) -> Mask:
    both = np.logical_or(a, b)
    return False if not both.any() else True if both.all() else both


def resized(mask: Mask, shape: tuple[int, ...]) -> Mask:
    """A mask for reshaped keys; True for all keys if their number has changed."""
    if 0 in shape:
        return False
    if isinstance(mask, bool) or mask.shape == shape:
        return mask
    return mask.reshape(shape) if mask.size == np.prod(shape) else bool(mask.any())


# ---------------------------------------------------------------- programs


@memo_on_jaxpr
def signature_of(closed: ClosedJaxpr) -> Signature:
    """The signature of a program. Raises KeyReuseError, with operation and line, if it uses a key twice.

    mpijax's own samplers may use a key twice: some draw in two ways and select one result.
    """
    return _signature(closed.jaxpr)


class _Keys:
    """The state of a program's keys during the check."""

    def __init__(self, may_repeat: bool) -> None:
        self.may_repeat = may_repeat
        self.used: dict[Var, Mask] = {}
        self.first: dict[Var, Any] = {}  # source of the first use
        self.same_as: dict[Var, Var] = {}

    def root(self, v: Var) -> Var:
        while v in self.same_as:
            v = self.same_as[v]
        return v

    def use(self, eqn: Eqn, i: int, mask: Mask) -> None:
        v = self.root(eqn.invars[i])  # type: ignore[arg-type]  # keys are no literals
        mask = resized(mask, v.aval.shape)
        if overlap(self.used.get(v, False), mask) and not self.may_repeat:
            raise KeyReuseError(
                f"In {eqn.primitive}, argument {i} is already consumed: the key used at {eqn.source} was already used "
                "at "
                f"{self.first[v]}."
            )
        self.used[v] = union(self.used.get(v, False), mask)
        self.first.setdefault(v, eqn.source)


def _signature(jaxpr: Jaxpr) -> Signature:
    keys = _Keys(may_repeat=_RANDOM in getattr(jaxpr.debug_info, "func_src_info", ""))
    for eqn in jaxpr.eqns:
        if not any(is_key(v.aval) for v in (*eqn.invars, *eqn.outvars)):
            continue
        signature = signature_of_operation(eqn)
        for i, mask in signature.sinks.items():
            if i < len(eqn.invars) and is_key(eqn.invars[i].aval):
                keys.use(eqn, i, mask)
        for i, out in enumerate(eqn.outvars):
            if i in signature.forwards and is_key(out.aval):
                keys.same_as[out] = eqn.invars[signature.forwards[i]]  # type: ignore[assignment]
            elif i not in signature.sources and is_key(out.aval):
                keys.used[out], keys.first[out] = True, eqn.source
    return _of_results(jaxpr, keys)


def _of_results(jaxpr: Jaxpr, keys: _Keys) -> Signature:
    inputs = {v: i for i, v in enumerate((*jaxpr.invars, *jaxpr.constvars))}
    sinks = {i: keys.used[v] for v, i in inputs.items() if is_key(v.aval) and keys.used.get(v, False) is not False}
    given = [(i, keys.root(v)) for i, v in enumerate(jaxpr.outvars) if _is_variable_key(v)]
    forwards = {i: inputs[v] for i, v in given if v in inputs}
    sources = frozenset(i for i, v in given if v not in inputs and keys.used.get(v, False) is False)
    return Signature(sinks, sources, forwards)


def _is_variable_key(v: Atom) -> TypeGuard[Var]:
    return type(v) is not Literal and is_key(v.aval)


# ---------------------------------------------------------------- operations


def signature_of_operation(eqn: Eqn) -> Signature:
    """The signature of an operation. An operation without a rule consumes all keys."""
    rule = eqn.primitive.keys
    if rule is None:
        return Signature({i: True for i, v in enumerate(eqn.invars) if is_key(v.aval)})
    return rule(eqn) if callable(rule) else rule


# Signatures that many operations share.
SAME = Signature(forwards={0: 0})
NEW = Signature(sources=frozenset({0}))
NOTHING = Signature()
DRAW = Signature({0: True})


def parts(eqn: Eqn) -> Signature:
    """Signature of operations that split one array into several, or join several into one."""
    if len(eqn.invars) == len(eqn.outvars) == 1:
        return SAME
    return Signature(dict.fromkeys(range(len(eqn.invars)), True), frozenset(range(len(eqn.outvars))))


def each_its_own(eqn: Eqn) -> Signature:
    return Signature(forwards={i: i for i in range(len(eqn.outvars))})


def of_program(parameter: str) -> Callable[[Eqn], Signature]:
    """The rule for a call of the program in a parameter."""

    def rule(eqn: Eqn) -> Signature:
        program = eqn.params[parameter]
        return signature_of(program) if isinstance(program, ClosedJaxpr) else _signature(program)

    return rule
