"""Imports all standard primitives, which defines them."""

# ruff: noqa: F401
from mpijax.ops import ad_ops, collectives, linear_solve, naming
from mpijax.ops.callbacks import debug as debug_callbacks
from mpijax.ops.callbacks import debug_nans, ffi_call, loop_progress, numba_call
from mpijax.ops.callbacks import host as callbacks
from mpijax.ops.control_flow import cond, platform, scan, while_loop
from mpijax.ops.elementwise import (
    binary,
    bitwise,
    compare,
    convert,
    extended_conversion,
    power,
    select,
    special,
    transcendental,
    unary,
)
from mpijax.ops.indexing import dynamic
from mpijax.ops.products import dot
from mpijax.ops.random import gamma as random_gamma
from mpijax.ops.random import keys as random
from mpijax.ops.ranks import messages as rank_messages
from mpijax.ops.ranks import moves as rank_moves
from mpijax.ops.ranks import ops as rank_ops
from mpijax.ops.ranks import ragged as rank_ragged
from mpijax.ops.ranks import reductions as rank_reductions
from mpijax.ops.reductions import arg_extremes as positions
from mpijax.ops.reductions import cumulative, reduce
from mpijax.ops.reductions import standard as reductions
from mpijax.ops.shapes import creation
from mpijax.ops.sorting import approximate, sort, top_k
from mpijax.ops.windows import reduce_window
