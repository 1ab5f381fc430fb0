"""Collectives over named axes: mesh axes under `shard_map`, batch axes under `vmap`."""

from mpijax.ops.collectives.exchange import all_to_all, all_to_all_p, pswapaxes
from mpijax.ops.collectives.gather_scatter import (
    all_gather,
    all_gather_invariant_p,
    all_gather_p,
    all_gather_reduced_p,
    psum_scatter,
    reduce_scatter_p,
    unreduced_reduce_scatter_p,
)
from mpijax.ops.collectives.one_sided import precv, precv_p, psend, psend_p
from mpijax.ops.collectives.pending_sums import preduced_p, reduced_vary_cast_p, unreduced_psum_p, vary_unreduced_cast_p
from mpijax.ops.collectives.permutations import pbroadcast, pbroadcast_p, ppermute, ppermute_p, pshuffle
from mpijax.ops.collectives.position import axis_index, axis_index_p, axis_size
from mpijax.ops.collectives.reductions import pmax, pmax_p, pmean, pmin, pmin_p, psum, psum_invariant_p, psum_p
from mpijax.ops.collectives.varying import pcast, pvary, pvary_p

__all__ = [
    "all_gather", "all_gather_invariant_p", "all_gather_p", "all_gather_reduced_p", "all_to_all", "all_to_all_p",
    "axis_index", "axis_index_p", "axis_size", "pbroadcast", "pbroadcast_p", "pcast", "pmax", "pmax_p", "pmean",
    "pmin", "pmin_p", "ppermute", "ppermute_p", "precv", "precv_p", "preduced_p", "psend", "psend_p", "pshuffle",
    "psum", "psum_invariant_p", "psum_p", "psum_scatter", "pswapaxes", "pvary", "pvary_p", "reduce_scatter_p",
    "reduced_vary_cast_p", "unreduced_psum_p", "unreduced_reduce_scatter_p", "vary_unreduced_cast_p",
]  # fmt: skip
