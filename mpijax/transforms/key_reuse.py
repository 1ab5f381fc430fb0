"""Which PRNG keys a program uses up: drawing twice with one key gives equal numbers.

A key is used up by what draws with it or splits it. A `Signature` says of a program which of its arguments it uses up,
which results are new keys, and which are the keys of an argument. It is found from those of the operations, and a
program that uses a key twice has none: KeyReuseError. `runtime.key_reuse` asks for it, under `debug_key_reuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.errors import KeyReuseError
from mpijax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Literal, Var
from mpijax.core.memo import memo_on_jaxpr

Mask = bool | np.ndarray
# The folder of mpijax.random, as in the locations of functions.
_RANDOM = str(Path(__file__).parents[1] / "random")


@dataclass(frozen=True)
class Signature:
    """What becomes of the keys of a program or operation. Constants of a program follow its arguments.

    Attributes:
      sinks: argument -> which of its keys are used up: True for all, or bools of its shape.
      sources: results that are new keys. All others that are not forwarded count as used up.
      forwards: result -> the argument whose keys it has.
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
    return True if both.all() else False if not both.any() else both


def resized(mask: Mask, shape: tuple[int, ...]) -> Mask:
    """A mask for keys that were given another shape; all, where they are no longer the same number of keys."""
    if isinstance(mask, bool) or mask.shape == shape:
        return mask
    return mask.reshape(shape) if mask.size == np.prod(shape) else bool(mask.any())


# ---------------------------------------------------------------- programs


@memo_on_jaxpr
def signature_of(closed: ClosedJaxpr) -> Signature:
    """The signature of a program. Raises KeyReuseError, naming operation and line, if it uses a key twice.

    mpijax's own samplers may: some draw in two ways, and take one of the results.
    """
    return _signature(closed.jaxpr)


class _Keys:
    """The keys of a program while its operations are gone through."""

    def __init__(self, may_repeat: bool) -> None:
        self.may_repeat = may_repeat
        self.used: dict[Var, Mask] = {}
        self.first: dict[Var, Any] = {}  # the line of the first use
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
                f"In {eqn.primitive}, argument {i} is already consumed: the key used at {eqn.source} was used before, "
                f"at {self.first[v]}."
            )
        self.used[v] = union(self.used.get(v, False), mask)
        self.first.setdefault(v, eqn.source)


def _signature(jaxpr: Jaxpr) -> Signature:
    keys = _Keys(may_repeat=_RANDOM in getattr(jaxpr.debug_info, "location", ""))
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


def _is_variable_key(v: Atom) -> bool:
    return type(v) is not Literal and is_key(v.aval)


# ---------------------------------------------------------------- operations


def signature_of_operation(eqn: Eqn) -> Signature:
    """What an operation makes of keys; one that is not known uses up all of them."""
    rule = _RULES.get(eqn.primitive.name)
    if rule is None:
        return Signature({i: True for i, v in enumerate(eqn.invars) if is_key(v.aval)})
    return rule(eqn) if callable(rule) else rule


_SAME = Signature(forwards={0: 0})
_NEW = Signature(sources=frozenset({0}))
_NOTHING = Signature()
_DRAW = Signature({0: True})


def _slice(eqn: Eqn) -> Signature:
    """A part is a new key, which is used up where it came from."""
    operand, params = eqn.invars[0].aval, eqn.params
    mask = np.zeros(operand.shape, bool)
    strides = params["strides"] or (1,) * mask.ndim
    mask[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))] = True
    return Signature({0: True if mask.all() else mask}, frozenset({0}))


def _parts(eqn: Eqn) -> Signature:
    """Several arrays of one, or one of several."""
    if len(eqn.invars) == len(eqn.outvars) == 1:
        return _SAME
    return Signature(dict.fromkeys(range(len(eqn.invars)), True), frozenset(range(len(eqn.outvars))))


def _each_its_own(eqn: Eqn) -> Signature:
    return Signature(forwards={i: i for i in range(len(eqn.outvars))})


def _call(parameter: str) -> Callable[[Eqn], Signature]:
    def rule(eqn: Eqn) -> Signature:
        program = eqn.params[parameter]
        return signature_of(program) if isinstance(program, ClosedJaxpr) else _signature(program)

    return rule


def _remat(eqn: Eqn) -> Signature:
    """What is computed again draws the same numbers on purpose."""
    return _NOTHING if eqn.params["differentiated"] else signature_of(eqn.params["jaxpr"])


def _cond(eqn: Eqn) -> Signature:
    branches = [signature_of(b) for b in eqn.params["branches"]]
    arguments = {i for b in branches for i in b.sinks}
    sinks = {i + 1: reduce(union, (b.sinks.get(i, False) for b in branches)) for i in arguments}
    sources = frozenset.intersection(*(b.sources for b in branches))
    forwards = {
        out: i + 1 for out, i in branches[0].forwards.items() if all(b.forwards.get(out) == i for b in branches)
    }
    return Signature(sinks, sources, forwards)


def _refuse(eqn: Eqn, what: str, why: str) -> KeyReuseError:
    return KeyReuseError(
        f"{what} leads to key reuse when repeatedly executed, {why} (the loop at {eqn.source}). Split the key in each "
        "turn, and carry one half on: key, subkey = jax.random.split(key)."
    )


def _check_turns(eqn: Eqn, what: str, sinks: Iterable[int], num_consts: int, num_carry: int, sources) -> None:
    """Raise KeyReuseError where each turn would use the keys of the turn before."""
    used = set(sinks)
    if any(i < num_consts for i in used):
        raise _refuse(eqn, what, "because key constants are repeatedly consumed")
    carried = {i - num_consts for i in used if i < num_consts + num_carry}
    if not carried <= set(sources):
        raise _refuse(eqn, what, "because consumed inputs don't match sourced outputs")


def _scan(eqn: Eqn) -> Signature:
    body, num_carry = signature_of(eqn.params["jaxpr"]), eqn.params["num_carry"]
    _check_turns(eqn, "scan body function", body.sinks, eqn.params["num_consts"], num_carry, body.sources)
    return body


def _while(eqn: Eqn) -> Signature:
    params = eqn.params
    condition, body = signature_of(params["cond_jaxpr"]), signature_of(params["body_jaxpr"])
    consts, body_consts = params["cond_nconsts"], params["body_nconsts"]
    num_carry = len(eqn.outvars)
    _check_turns(eqn, "while_loop cond function", condition.sinks, consts, num_carry, body.sources)
    _check_turns(eqn, "while_loop body function", body.sinks, body_consts, num_carry, body.sources)
    if {i - consts for i in condition.sinks} & {i - body_consts for i in body.sinks}:
        raise KeyReuseError(f"while_loop cond and body functions both use the same key (the loop at {eqn.source}).")
    first = consts + body_consts
    sinks = {i - body_consts + first: m for i, m in body.sinks.items()}
    sinks |= {i - consts + first: m for i, m in condition.sinks.items()}
    forwards = {out: i - body_consts + first for out, i in body.forwards.items() if i >= body_consts}
    return Signature(sinks, body.sources, forwards)


_RULES: dict[str, Signature | Callable[[Eqn], Signature]] = {
    **dict.fromkeys(
        """broadcast_in_dim convert_element_type copy copy_p dynamic_slice gather layout_constraint reshape reshard rev
        sharding_constraint squeeze stage transpose pvary pcast name""".split(), _SAME
    ),
    **dict.fromkeys("random_clone random_fold_in random_seed random_wrap".split(), _NEW),
    **dict.fromkeys("random_unwrap debug_callback eq ne".split(), _NOTHING),
    **dict.fromkeys("random_bits random_gamma".split(), _DRAW),
    **dict.fromkeys("concatenate split stack unstack".split(), _parts),
    **dict.fromkeys("device_put optimization_barrier".split(), _each_its_own),
    "random_split": Signature({0: True}, frozenset({0})),
    "dynamic_update_slice": Signature({1: True}, forwards={0: 0}),
    "scatter": Signature({2: True}, forwards={0: 0}),
    "slice": _slice,
    "jit": _call("jaxpr"),
    "custom_jvp_call": _call("call_jaxpr"),
    "custom_vjp_call": _call("call_jaxpr"),
    "shard_map": _call("jaxpr"),
    "remat2": _remat,
    "cond": _cond,
    "scan": _scan,
    "while": _while,
}  # fmt: skip
