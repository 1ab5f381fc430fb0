"""`debug_key_reuse`: records which PRNG keys of an array jitted functions and operations have consumed.

With the option on, every call of a jitted function goes through this module instead of straight to its program.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from mpijax.core.base.errors import KeyReuseError
from mpijax.core.base.source import current_source
from mpijax.core.programs.jaxpr import Eqn, Literal, Var
from mpijax.core.types.typeof import typeof
from mpijax.runtime.arrays.array import ArrayImpl
from mpijax.transforms.key_reuse import Mask, Signature, is_key, overlap, resized, signature_of_operation, union


class _Used:
    """The consumed keys of one array, or of several arrays of the same keys, and where they were first consumed."""

    __slots__ = ("mask", "where", "shape")

    def __init__(self, shape: tuple[int, ...]):
        self.mask: Mask = False
        self.where: Any = None
        self.shape = shape

    def use(self, mask: Mask) -> None:
        self.mask = union(self.mask, resized(mask, self.shape))
        if self.where is None:
            self.where = current_source()


# Keyed by the identity of a live array, because keys compare by value.
_states: dict[int, tuple[weakref.ref, _Used]] = {}


def _state(x: ArrayImpl) -> _Used:
    found = _states.get(id(x))
    return found[1] if found is not None else _set_state(x, _Used(x.shape))


def _set_state(x: ArrayImpl, state: _Used) -> _Used:
    number = id(x)
    _states[number] = weakref.ref(x, lambda _: _states.pop(number, None)), state
    return state


def _is_key(x: Any) -> bool:
    return isinstance(x, ArrayImpl) and is_key(x)


def watched(signature: Signature, name: str, args: Sequence[Any], run: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """Run a program or operation; raises KeyReuseError if it consumes keys that were consumed before.

    args: its arguments, followed by its constants.
    """
    for i, mask in signature.sinks.items():
        if _is_key(args[i]):
            state = _state(args[i])
            if overlap(state.mask, resized(mask, state.shape)):
                raise KeyReuseError(
                    f"Previously-consumed key passed to {name} at index {i}: it was already used at {state.where}."
                )
    outs = run()
    for i, mask in signature.sinks.items():
        if _is_key(args[i]):
            _state(args[i]).use(mask)
    for i, out in enumerate(outs):
        if _is_key(out) and i in signature.forwards and _is_key(args[signature.forwards[i]]):
            _set_state(out, _state(args[signature.forwards[i]]))
        elif _is_key(out) and i not in signature.sources:
            _set_state(out, _Used(out.shape)).use(True)
    return outs


def watched_operation(primitive, args: Sequence[Any], params: dict[str, Any], run: Callable[[], Any]) -> Any:
    """Run an operation outside of jitted functions, with the same check."""
    if not any(map(_is_key, args)):
        return run()
    results: list[Any] = []

    def outs() -> Sequence[Any]:
        out = run()
        results.append(out)
        return out if primitive.multiple_results else [out]

    atoms = [Literal(x, typeof(x)) if not _is_key(x) else Var(typeof(x)) for x in args]
    # Result types follow from the values; the rules of some operations only need their number.
    infer, _ = primitive.infer([typeof(x) for x in args], params)
    types = infer if primitive.multiple_results else [infer]
    eqn = Eqn(primitive, atoms, [Var(t) for t in types], params)
    watched(signature_of_operation(eqn), primitive.name, args, outs)
    return results[0]
