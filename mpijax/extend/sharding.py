"""``mpijax.extend.sharding``: rules for how ranks run a primitive on sharded operands.

A rule is a function `(Operation) -> Plan or None`, in a primitive's slot `sharding`. `elementwise`, `batched(ranks)`,
`whole_along(parameter)` and `finished_over_ranks(op)` are predefined rules. None, or no rule, means whole operands.

Over Explicit mesh axes, the same rule gives the types of results. If the types differ from it, set the slot
`sharding_type`, a function of a `TypedOperation`.
"""

from mpijax import missing as _missing
from mpijax.core.rules.sharding_rules import Operation, Plan, batched, elementwise, finished_over_ranks, whole_along
from mpijax.core.rules.sharding_types import TypedOperation
from mpijax.core.sharding.cuts import Cut, even_cut

__all__ = [
    "Cut", "Operation", "Plan", "TypedOperation", "batched", "elementwise", "even_cut", "finished_over_ranks",
    "whole_along",
]  # fmt: skip


def __getattr__(name: str):
    raise _missing.error(__name__, name)
