"""Tables of rules by primitive, as in JAX. Each table is one slot of all primitives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from mpijax.core.rules import primitive as core
from mpijax.extend.primitive import has_open_slots


class RuleTable(MutableMapping):
    """The rules of one slot. Rules of mpijax's own primitives can be read, and set only if the slot is empty.

    store: converts a rule from JAX's form to the slot's form; show: converts back, for rules that were not set here.

    >>> callable(mpijax.interpreters.ad.primitive_jvps[lax.sin_p])
    True
    """

    def __init__(self, slot: str, store: Callable = lambda rule: rule, show: Callable = lambda rule: rule):
        self._slot = slot
        self._store = store
        self._show = show
        self._given: dict[core.Primitive, Callable] = {}

    def __setitem__(self, primitive: core.Primitive, rule: Callable) -> None:
        fills_gap = isinstance(primitive, core.Primitive) and not self._has(primitive)
        if not (has_open_slots(primitive) or fills_gap):
            kind = "mpijax's own primitive" if isinstance(primitive, core.Primitive) else type(primitive).__name__
            raise TypeError(
                f"Rules can only be set for primitives of mpijax.extend.core.Primitive, got {primitive!r} ({kind}). "
                "To change a derivative or batching, wrap the function in custom_jvp, custom_vjp or custom_vmap."
            )
        if not callable(rule):
            raise TypeError(f"the {self._slot} rule of {primitive} must be a function, got {rule!r}")
        setattr(primitive, self._slot, self._store(rule))
        self._given[primitive] = rule

    def __getitem__(self, primitive: core.Primitive) -> Callable:
        if primitive in self._given:
            return self._given[primitive]
        if not self._has(primitive):
            raise KeyError(primitive)
        return self._show(getattr(primitive, self._slot))

    def __delitem__(self, primitive: core.Primitive) -> None:
        del self._given[primitive]
        primitive.unset(self._slot)  # type: ignore[attr-defined]

    def _has(self, primitive: Any) -> bool:
        if has_open_slots(primitive):
            return primitive.is_set(self._slot)
        return isinstance(primitive, core.Primitive) and not isinstance(
            getattr(primitive, self._slot), core.Unsupported
        )

    def __iter__(self) -> Iterator[core.Primitive]:
        return iter([p for p in core.registry.values() if self._has(p)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"RuleTable({self._slot}, {len(self)} primitives)"


class OptionalRules(RuleTable):
    """The rules of an optional slot.

    >>> rules = mpijax.interpreters.partial_eval.dce_rules
    >>> lax.scan_p in rules, lax.sin_p in rules
    (True, False)
    """

    def _has(self, primitive: Any) -> bool:
        return isinstance(primitive, core.Primitive) and getattr(primitive, self._slot) is not None

    def __delitem__(self, primitive: core.Primitive) -> None:
        del self._given[primitive]
        setattr(primitive, self._slot, None)
