"""The operations: each module defines primitives with their rules, and the functions of `mpijax.lax` that apply them.

Rules refer to primitives of other modules by name, so all modules are loaded together.
"""

# Elementwise operations and reductions.
from mpijax.ops import ad_ops as _ad_ops
from mpijax.ops import binary as _binary
from mpijax.ops import bitwise as _bitwise
from mpijax.ops import compare as _compare
from mpijax.ops import convert as _convert
from mpijax.ops import reduce as _reduce
from mpijax.ops import reductions as _reductions
from mpijax.ops import select as _select
from mpijax.ops import special as _special
from mpijax.ops import transcendental as _transcendental
from mpijax.ops import unary as _unary

# Shapes, slices, indexing, products, sorting, random bits.
from mpijax.ops import creation as _creation
from mpijax.ops import cumulative as _cumulative
from mpijax.ops import dot as _dot
from mpijax.ops import dynamic as _dynamic
from mpijax.ops import random as _random
from mpijax.ops import sort as _sort
from mpijax.ops import stacking as _stacking

# Communication.
from mpijax.ops import collectives as _collectives
from mpijax.ops import rank_ops as _rank_ops
