"""Where the names stand that lower layers use of upper ones.

Imports point downwards; `mpijax.core.base.provided` loads each of these names at its first use. Prefer another way:
move what is asked for down, hand it over as an argument, or make it a slot of a primitive
(tests/structure/test_wiring.py).
"""

from mpijax.core.base import provided

# Each line: a module, and its names that are used below it, each by itself or as `name=the name in that module`. A star
# stands for the module itself.
_FROM_ABOVE = (
    # Extension modules raise errors, and use MPI and the recorder when a program needs them.
    ("mpijax.core.base.errors", "JaxRuntimeError"),
    ("mpijax.runtime.mpi.mpi_start", "rank start"),
    ("mpijax.runtime.reports.divergence", "different_collectives failed_communication"),
    ("mpijax.runtime.reports.recorder", "note_site recorder"),
    # Operations and jitted functions run when they are called; numbers and serialized data become arrays.
    ("mpijax.runtime.program.engine", "dispatch evaluate evaluate_checking run_call"),
    ("mpijax.runtime.program.stages", "lower"),
    ("mpijax.runtime.arrays.array", "from_numpy"),
    ("mpijax.runtime.arrays.placement", "device_put from_host"),
    # Meshes and shardings ask for the devices of the job, operations on ranks for its communicator.
    ("mpijax.runtime.arrays.devices", "devices local_devices process_index"),
    ("mpijax.runtime.mpi.mpi_start", "world"),
    # Programs call BLAS and LAPACK by address.
    ("mpijax.runtime.machine.blas", "blas_addresses=addresses"),
    ("mpijax.runtime.machine.lapack", "lapack_addresses=addresses"),
    # Arguments and results move to requested shardings, which may communicate.
    ("mpijax.spmd.jit_shardings", "JitShardings"),
    ("mpijax.spmd.moves", "put"),
    ("mpijax.spmd.out_shardings", "under_auto_axes with_out_sharding"),
    ("mpijax.spmd.reshard", "move_to resharded"),
    ("mpijax.spmd.shard_map", "shard_map"),
    # Arrays, their types, references and symbolic zeros apply operations.
    ("mpijax.numpy.arrays.methods", "METHODS"),
    ("mpijax.ops.basic", "basic=*"),
    ("mpijax.ops.indexing.ref_parts", "part_of read_part write_part"),
    ("mpijax.ops.shapes.dimensions", "dim_as_value"),
    ("mpijax.transforms.zeros", "add_tangents"),
    # Operations are written in terms of functions for users, some of which take long to load.
    ("mpijax.lax.implicit", "custom_linear_solve"),
    ("mpijax.lax.loops", "loop_map=map scan"),
    ("mpijax.lax.while_loops", "fori_loop while_loop"),
    ("mpijax.nn.normalize", "softmax"),
    ("mpijax.numpy.creation.matrices", "eye"),
    ("mpijax.numpy.indexing.take", "take_along_axis"),
    ("mpijax.random.gamma_algorithm", "draw_gamma=draw gamma_of_log=sample_of_log"),
    # Interpreters of libraries, and values of types that libraries define.
    ("mpijax.experimental.hijax.calls", "lowered_call"),
    ("mpijax.experimental.hijax.primitives", "parts_of raised"),
    ("mpijax.extend.linear_util", "wrap_init"),
    # Within core: sizes, rules and structs ask for types and traces.
    ("mpijax.core.types.avals", "type_of_size"),
    ("mpijax.core.tracing.jaxpr_trace", "trace_to_jaxpr"),
    ("mpijax.core.tracing.refs", "AbstractRef"),
)

# The same, for modules of one folder that need each other.
_IN_CIRCLES = (
    ("mpijax.core.programs.pretty", "eqn_text jaxpr_text"),  # a Jaxpr prints itself
    ("mpijax.core.shapes.bounds", "bounds_of"),  # comparing sizes needs bounds, which are computed from other bounds
    ("mpijax.core.tracing.checks", "checked"),  # each Jaxpr that is traced is checked, and rules of checks trace
    ("mpijax.core.types.typeof", "typeof"),  # `ShapeDtypeStruct.like`
    ("mpijax.ops.indexing.scatter", "transposed_gather"),  # gather and scatter are each other's transpose
)

# Modules that define primitives: a program read from a file may use any of them. Those come first that a first call of
# `grad` needs: the others take longer to load than such a call.
_PRIMITIVES = (
    "mpijax.ops.ad_ops",
    "mpijax.ops.shapes.creation",
    "mpijax.ops.products.dot",
    "mpijax.ops.primitives",
    "mpijax.ops.shapes.stacking",
    "mpijax.ops.sorting.approximate",
    "mpijax.ops.products.wide_product",
    "mpijax.ops.barrier",
    "mpijax.ops.callbacks.buffer_callback",
    "mpijax.ops.random.bit_generators",
    "mpijax.ops.shapes.dimensions",
    "mpijax.lax.composites",
    "mpijax.random.generators",
    "mpijax.lax.ragged_exchange",
    "mpijax.ops.convolutions.general",
    "mpijax.ops.fourier.fft",
    "mpijax.ops.linalg.cholesky",
    "mpijax.ops.linalg.eig",
    "mpijax.ops.linalg.eigh",
    "mpijax.ops.linalg.lu",
    "mpijax.ops.linalg.orthogonal",
    "mpijax.ops.linalg.qr",
    "mpijax.ops.linalg.schur",
    "mpijax.ops.linalg.svd",
    "mpijax.ops.linalg.triangular",
    "mpijax.ops.linalg.tridiagonal",
    "mpijax.ops.sorting.searchsorted",
    "mpijax.ops.windows.select_and_scatter",
    "mpijax.ops.shard_alike",
    "mpijax.ops.callbacks.sinks",
    "mpijax.ops.callbacks.tokens",
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
    "mpijax.experimental.pallas.varying",
)

provided.connect((*_FROM_ABOVE, *_IN_CIRCLES), _PRIMITIVES)
