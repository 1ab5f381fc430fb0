"""Where the names stand that lower layers use of upper ones.

Imports point downwards; `mpijax.core.provided` loads each of these names at its first use.
"""

from mpijax.core import provided

# Module: its names, each by itself or as `name=the name in that module`.
_HOMES = {
    "mpijax.checkify.check": "check_error",
    "mpijax.core.avals": "ShapedArray",
    "mpijax.core.checks": "check_jaxpr",
    "mpijax.core.dimension_bounds": "bounds_of",
    "mpijax.core.errors": "JaxRuntimeError",
    "mpijax.core.leaks": "check_leaks",
    "mpijax.core.pretty": "eqn_text jaxpr_text",
    "mpijax.core.trace": "typeof",
    "mpijax.dlpack": "from_dlpack",
    "mpijax.experimental.sparse.bcoo": "BCOO",
    "mpijax.lax.implicit": "custom_linear_solve",
    "mpijax.lax.loops": "loop_map=map scan",
    "mpijax.lax.while_loops": "fori_loop",
    "mpijax.nn": "softmax",
    "mpijax.numpy.array_methods": "METHODS",
    "mpijax.numpy.indexing": "take_along_axis",
    "mpijax.numpy.matrices": "eye",
    "mpijax.ops.collectives.varying": "pvary",
    "mpijax.ops.dimensions": "dim_as_value",
    "mpijax.ops.scatter": "transposed_gather",
    "mpijax.random.gamma_algorithm": "draw_gamma=draw gamma_of_log=sample_of_log",
    "mpijax.runtime.array": "from_numpy",
    "mpijax.runtime.blas": "blas_addresses=addresses",
    "mpijax.runtime.devices": "devices local_devices process_index",
    "mpijax.runtime.engine": "evaluate evaluate_checking run_call",
    "mpijax.runtime.lapack": "lapack_addresses=addresses",
    "mpijax.runtime.mpi_start": "rank start world",
    "mpijax.runtime.placement": "device_put from_host",
    "mpijax.runtime.recorder": "note_site recorder",
    "mpijax.runtime.stages": "dispatch lower",
    "mpijax.spmd.constraints": "check_fits named_sharding",
    "mpijax.spmd.jit_shardings": "JitShardings on_device",
    "mpijax.spmd.moves": "put",
    "mpijax.spmd.out_shardings": "explicit_layout laid_out_inside lay_result_out over_context_mesh over_devices",
    "mpijax.spmd.reshard": "lay_out",
    "mpijax.spmd.shard_map": "shard_map",
}

# Modules that define primitives: a program read from a file may use any of them.
_PRIMITIVES = (
    "mpijax.ops.primitives",
    "mpijax.ops.stacking",
    "mpijax.ops.approximate",
    "mpijax.ops.wide_product",
    "mpijax.ops.barrier",
    "mpijax.ops.bit_generators",
    "mpijax.ops.dimensions",
    "mpijax.lax.composites",
    "mpijax.random.generators",
    "mpijax.lax.ragged_exchange",
    "mpijax.ops.convolution",
    "mpijax.ops.fft",
    "mpijax.ops.linalg",
    "mpijax.ops.searchsorted",
    "mpijax.ops.select_and_scatter",
    "mpijax.ops.sinks",
    "mpijax.ops.tokens",
    "mpijax.transforms.remat",
    "mpijax.transforms.custom_vjp",
    "mpijax.transforms.custom_vmap",
    "mpijax.transforms.linear_call",
    "mpijax.spmd.shard_map",
    "mpijax.spmd.constraints",
    "mpijax.spmd.reshard",
    "mpijax.spmd.moves",
    "mpijax.spmd.local_views",
    "mpijax.checkify",
)

provided.connect(_HOMES, _PRIMITIVES)
