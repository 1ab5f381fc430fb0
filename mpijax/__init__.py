"""mpijax: JAX's programming model, native to MPI. ``import mpijax as jax; import mpijax.numpy as jnp``.

The names are JAX's. Each is loaded when it is first used, so that importing mpijax costs next to nothing; MPI
starts at the first use of devices or communication.
"""

import importlib as _importlib
import sys as _sys
from typing import Any as _Any

from mpijax import bytecode as _bytecode

_bytecode.install(__spec__)

from mpijax import faces as _faces  # noqa: E402
from mpijax import missing as _missing  # noqa: E402
from mpijax import wiring as _wiring  # noqa: E402, F401
from mpijax.version import __version__ as __version__  # noqa: E402
from mpijax.version import __version_info__ as __version_info__  # noqa: E402

_MODULES = frozenset(
    """ad ad_checkpoint api_util checkpoint_policies core custom_batching custom_derivatives debug distributed dlpack
    dtypes errors example_libraries experimental export extend federated ffi flatten_util image interpreters lax memory
    monitoring mpi nn numpy ops profiler random ref scipy sharding simulate stages test_util tree tree_util typing
    version""".split()
)

# Where the public names live.
_HOMES = {
    "mpijax.core.types.array_api": "Array",
    "mpijax.core.types.avals": "ShapeDtypeStruct",
    "mpijax.core.base.config": """allow_f16_reductions array_garbage_collection_guard auto_pcast check_tracer_leaks
    config
        debug_infs debug_key_reuse debug_nans default_device default_matmul_precision default_prng_impl
        enable_checks enable_custom_prng enable_x64 explain_cache_misses legacy_prng_key log_compiles
        no_execution no_tracing numpy_dtype_promotion numpy_rank_promotion remove_size_one_mesh_axis_from_type
        softmax_custom_jvp thread_guard threefry_partitionable transfer_guard transfer_guard_device_to_device
        transfer_guard_device_to_host transfer_guard_host_to_device""",
    "mpijax.core.dtypes": "float0",
    "mpijax.core": "ensure_compile_time_eval",
    "mpijax.core.shapes.slices": "ds",
    "mpijax.core.types.typeof": "typeof",
    "mpijax.core.base.user_context": "make_user_context",
    "mpijax.distributed.notebook": "load_ipython_extension",
    "mpijax.distributed.spawning": "spawn",
    "mpijax.progress_bars": "progress",
    "mpijax.core.tracing.refs": "Ref empty_ref free_ref freeze new_ref",
    "mpijax.ops.callbacks.host": "pure_callback",
    "mpijax.ops.callbacks.numba_call": "numba_call",
    "mpijax.runtime.arrays.devices": """Device default_backend device_count devices host_count host_id host_ids
        local_device_count
        local_devices process_count process_index process_indices""",
    "mpijax.runtime.arrays.array": "Shard",
    "mpijax.runtime.arrays.live": "live_arrays",
    "mpijax.runtime.arrays.placement": "block_until_ready device_get device_put",
    "mpijax.sharding": "get_mesh",
    "mpijax.scopes": """checking_leaks copy_to_host_async disable_jit effects_barrier
        named_call named_scope print_environment_info""",
    "mpijax.spmd.arrays": """make_array_from_callback make_array_from_process_local_data
        make_array_from_single_device_arrays""",
    "mpijax.spmd.reshard": "reshard",
    "mpijax.core.sharding.context": "get_abstract_mesh use_abstract_mesh",
    "mpijax.core.sharding.mesh": "make_mesh set_mesh",
    "mpijax.core.sharding.shardings": "NamedSharding",
    "mpijax.spmd.pmap": "pmap",
    "mpijax.spmd.shard_map": "P shard_map smap",
    "mpijax.checkpoint": "checkpoint",
    "mpijax.transforms.checkpoint": "remat",
    "mpijax.transforms.inlining": "Inline",
    "mpijax.transforms.custom_gradient": "closure_convert custom_gradient",
    "mpijax.transforms.api": """clear_caches custom_jvp custom_vjp eval_shape fwd_and_bwd grad hessian jacfwd jacobian
        jacrev jit jvp linear_transpose linearize make_jaxpr
        value_and_grad vjp vmap""",
}
_WHERE = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [*_WHERE, *sorted(_MODULES)]  # noqa: PLE0604


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"mpijax.{name}")
    home = _WHERE.get(name)
    if home is None:
        raise _missing.error("mpijax", name)
    value = globals()[name] = getattr(_importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_sys.modules[__name__].__class__ = _faces.Face
