"""The operations: each module defines primitives with their rules, and the functions of `mpijax.lax`.

Rules refer to primitives of other modules by name, so all modules are loaded together.
"""

# Elementwise operations and reductions.
from mpijax.ops import (  # noqa: F401
    ad_ops,
    binary,
    bitwise,
    compare,
    convert,
    positions,
    power,
    reduce,
    reductions,
    select,
    special,
    transcendental,
    unary,
)

# Shapes, slices, indexing, products, sorting, random bits; communication.
from mpijax.ops import (  # noqa: F401, I001
    collectives,
    creation,
    cumulative,
    dot,
    dynamic,
    random,
    rank_ops,
    sort,
)
