"""``mpijax.extend.sharding``: rules for how ranks run a primitive on sharded operands.

A rule stands in a primitive's slot `sharding`. `elementwise`, `batched(ranks)`, `whole_along(parameter)` and
`finished_over_ranks(op)` are predefined rules. A `FactorRule` says which array axes of operands and results correspond,
as the letters of `einsum` do: its factors are `free`, `reduced` or `whole`. Any other function `(Operation) -> Plan or
None` is a rule, too. None, or no rule, means whole operands.

Over Explicit mesh axes, the same rule gives the types of results. If the types differ from it, set the slot
`sharding_type`, a function of a `TypedOperation`.
"""

from mpijax import missing as _missing
from mpijax.core.rules.factors import (
    Factor,
    FactorKind,
    FactorRule,
    batched,
    elementwise,
    finished_over_ranks,
    free,
    reduced,
    whole,
    whole_along,
)
from mpijax.core.rules.sharding_rules import Operation, Plan
from mpijax.core.rules.sharding_types import TypedOperation
from mpijax.core.sharding.cuts import Cut, even_cut

__all__ = [
    "Cut", "Factor", "FactorKind", "FactorRule", "Operation", "Plan", "TypedOperation", "batched", "elementwise",
    "even_cut", "finished_over_ranks", "free", "reduced", "whole", "whole_along",
]  # fmt: skip


def __getattr__(name: str):
    raise _missing.error(__name__, name)
