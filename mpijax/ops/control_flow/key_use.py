"""Key-reuse rules of branches and loops: a loop that consumes a key must make a new key in each iteration."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from mpijax.core.base.errors import KeyReuseError
from mpijax.core.programs.jaxpr import Eqn
from mpijax.transforms.key_reuse import Signature, signature_of, union


def of_cond(eqn: Eqn) -> Signature:
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
        "iteration and carry one of the new keys: key, subkey = jax.random.split(key)."
    )


def _check_iterations(eqn: Eqn, what: str, sinks: Iterable[int], num_consts: int, num_carry: int, sources) -> None:
    """Raise KeyReuseError if an iteration would consume the keys of the iteration before."""
    used = set(sinks)
    if any(i < num_consts for i in used):
        raise _refuse(eqn, what, "because key constants are repeatedly consumed")
    carried = {i - num_consts for i in used if i < num_consts + num_carry}
    if not carried <= set(sources):
        raise _refuse(eqn, what, "because consumed inputs don't match sourced outputs")


def of_scan(eqn: Eqn) -> Signature:
    body, num_carry = signature_of(eqn.params["jaxpr"]), eqn.params["num_carry"]
    _check_iterations(eqn, "scan body function", body.sinks, eqn.params["num_consts"], num_carry, body.sources)
    return body


def of_while(eqn: Eqn) -> Signature:
    params = eqn.params
    condition, body = signature_of(params["cond_jaxpr"]), signature_of(params["body_jaxpr"])
    consts, body_consts = params["cond_nconsts"], params["body_nconsts"]
    num_carry = len(eqn.outvars)
    _check_iterations(eqn, "while_loop cond function", condition.sinks, consts, num_carry, body.sources)
    _check_iterations(eqn, "while_loop body function", body.sinks, body_consts, num_carry, body.sources)
    if {i - consts for i in condition.sinks} & {i - body_consts for i in body.sinks}:
        raise KeyReuseError(f"while_loop cond and body functions both use the same key (the loop at {eqn.source}).")
    first = consts + body_consts
    sinks = {i - body_consts + first: m for i, m in body.sinks.items()}
    sinks |= {i - consts + first: m for i, m in condition.sinks.items()}
    forwards = {out: i - body_consts + first for out, i in body.forwards.items() if i >= body_consts}
    return Signature(sinks, body.sources, forwards)
