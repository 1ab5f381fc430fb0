"""Defines all options, under JAX's names, so programs that set them run unchanged.

Use as ``config.update("jax_enable_x64", True)``, ``config.config.jax_enable_x64``,
``with config.enable_x64(True):``, ``config.enable_x64.value``. `mpijax.core.base.option` explains how options are
stored and what ``trace_key`` is.

Options under "accepted" are JAX options for things that mpijax does not have (XLA, GPUs, its compilation cache).
Setting them is not an error and has no effect.
"""

from mpijax.core.base import logs
from mpijax.core.base.option import (
    Config,
    bool_option,
    config,
    enum_option,
    number_option,
    object_option,
    trace_key,
    update,
    values,
)

__all__ = ["Config", "checking_leaks", "config", "trace_key", "update", "values"]

# -- types ---------------------------------------------------------------------------------------------------

enable_x64 = bool_option(
    "jax_enable_x64", False, "Allow 64-bit types. Otherwise they become 32-bit types.", traced=True
)
explicit_x64_dtypes = enum_option(
    "jax_explicit_x64_dtypes",
    "warn error allow",
    "warn",
    "What happens when a program requests a 64-bit dtype while jax_enable_x64 is off: a warning and a 32-bit dtype, "
    "an error, or the 64-bit dtype.",
    traced=True,
)
numpy_dtype_promotion = enum_option(
    "jax_numpy_dtype_promotion",
    "standard strict",
    "standard",
    "Implicit type promotion between arrays. 'strict' makes operands of different dtypes an error.",
    traced=True,
)
numpy_rank_promotion = enum_option(
    "jax_numpy_rank_promotion",
    "allow warn raise",
    "allow",
    "What happens when operands have different numbers of axes: they are broadcast silently, with a warning, or an "
    "error is raised.",
    traced=True,
)
default_matmul_precision = enum_option(
    "jax_default_matmul_precision",
    "default high highest bfloat16 tensorfloat32 float32 ANY_F8_ANY_F8_F32 ANY_F8_ANY_F8_F32_FAST_ACCUM "
    "ANY_F8_ANY_F8_ANY ANY_F8_ANY_F8_ANY_FAST_ACCUM F16_F16_F16 F16_F16_F32 BF16_BF16_BF16 BF16_BF16_F32 "
    "BF16_BF16_F32_X3 BF16_BF16_F32_X6 BF16_BF16_F32_X9 TF32_TF32_F32 TF32_TF32_F32_X3 F32_F32_F32 "
    "F64_F64_F64",
    None,
    "Default precision of matrix products and convolutions.",
    traced=True,
)
allow_f16_reductions = bool_option(
    "jax_allow_f16_reductions", True, "Allow sums over float16 and bfloat16. Otherwise they raise.", checks=True
)
softmax_custom_jvp = bool_option(
    "jax_softmax_custom_jvp", False, "Give softmax its own derivative rule.", traced=True
)

# -- random numbers ------------------------------------------------------------------------------------------

default_prng_impl = enum_option(
    "jax_default_prng_impl",
    "threefry2x32 threefry4x32 rbg unsafe_rbg philox2x32 philox4x32",
    "threefry2x32",
    "Default random number generator of keys.",
    traced=True,
)
threefry_partitionable = bool_option(
    "jax_threefry_partitionable",
    True,
    "Threefry computes each random number from its own index, so that shards need no communication. If off, random "
    "numbers equal those of JAX versions before 0.5.",
    traced=True,
)
random_seed_offset = number_option(
    "jax_random_seed_offset", int, 0, "A number that is added to every random seed.", traced=True
)
high_dynamic_range_gumbel = bool_option(
    "jax_high_dynamic_range_gumbel",
    False,
    "Gumbel noise has a wider range. It draws one more random number for each value.",
    traced=True,
)
enable_custom_prng = bool_option("jax_enable_custom_prng", False, "jax.random.PRNGKey returns typed keys.", traced=True)
legacy_prng_key = enum_option(
    "jax_legacy_prng_key", "allow warn error", "allow", "What happens when jax.random gets a raw uint32 key."
)
debug_key_reuse = bool_option(
    "jax_debug_key_reuse",
    False,
    "Raise if a PRNG key is used twice.",
    traced=True,
    checks=True,
)

# -- debugging -----------------------------------------------------------------------------------------------

disable_jit = bool_option(
    "jax_disable_jit", False, "Run jitted functions operation by operation, without compiling.", traced=True
)
debug_nans = bool_option("jax_debug_nans", False, "Raise at the first operation that returns a NaN.", checks=True)
debug_infs = bool_option("jax_debug_infs", False, "Raise at the first operation that returns an infinity.", checks=True)
enable_checks = bool_option(
    "jax_enable_checks",
    False,
    "Type-check each Jaxpr that a transformation builds, and verify the output of each stage of the compiler.",
    traced=True,
)
check_tracer_leaks = bool_option(
    "jax_check_tracer_leaks", False, "Raise if a traced value outlives its trace.", traced=True
)
check_static_indices = bool_option(
    "jax_check_static_indices", False, "Check constant indices against bounds while tracing.", traced=True
)
check_vma = bool_option(
    "check_vma", False, "Check over which mesh axes values vary inside shard_map.", traced=True
)
no_tracing = bool_option("jax_no_tracing", False, "Raise instead of tracing a jitted function again.")
no_execution = bool_option("jax_no_execution", False, "Raise instead of running a compiled program.", checks=True)
log_compiles = bool_option("jax_log_compiles", False, "Log each compilation at level WARNING.")
explain_cache_misses = bool_option("jax_explain_cache_misses", False, "Log why a call traces its function again.")
log_checkpoint_residuals = bool_option(
    "jax_log_checkpoint_residuals", False, "Log which values jax.checkpoint saves for the backward pass."
)
traceback_filtering = enum_option(
    "jax_traceback_filtering",
    "off tracebackhide remove_frames quiet_remove_frames auto",
    "auto",
    "Whether tracebacks of uncaught exceptions leave out mpijax's own frames. 'off' and 'tracebackhide' show them.",
)
tracer_error_num_traceback_frames = number_option(
    "jax_tracer_error_num_traceback_frames",
    int,
    5,
    "How many frames an error shows of the place where a leaked value was made.",
)
error_checking_behavior_nan = enum_option(
    "jax_error_checking_behavior_nan", "ignore raise", "ignore", "Whether error_check raises for a NaN.", traced=True
)
error_checking_behavior_divide = enum_option(
    "jax_error_checking_behavior_divide",
    "ignore raise",
    "ignore",
    "Whether error_check raises for a division by zero.",
    traced=True,
)
error_checking_behavior_oob = enum_option(
    "jax_error_checking_behavior_oob",
    "ignore raise",
    "ignore",
    "Whether error_check raises for an index out of bounds.",
    traced=True,
)
pprint_use_color = bool_option("jax_pprint_use_color", True, "Print Jaxprs in colour on a terminal.")
debug_print_rank = bool_option(
    "mpijax_debug_print_rank", False, "debug.print and debug.log begin each message with the rank.", traced=True
)

logging_level = enum_option(
    "jax_logging_level",
    "NOTSET DEBUG INFO WARNING ERROR CRITICAL",
    None,
    "mpijax writes log messages of this level and above to the standard error.",
    changed=logs.set_level,
)
debug_log_modules = object_option(
    "jax_debug_log_modules",
    "",
    "Names of loggers, separated by commas, such as mpijax.jit. All their messages are written to the standard error.",
    changed=logs.set_modules,
)
log_operations = bool_option(
    "mpijax_log_operations",
    False,
    "Each rank prints a line when an operation between ranks begins, and one when it ends. Process-wide only.",
    variable="MPI4JAX_DEBUG",
    changed=logs.set_operations,
)
thread_guard = bool_option(
    "jax_thread_guard", False, "Accepted without effect: mpijax does not check which thread communicates."
)

overlap = bool_option(
    "mpijax_overlap",
    True,
    "While a message is under way, compiled programs compute whatever does not need it.",
    traced=True,
)
time_tiles = bool_option(
    "mpijax_time_tiles",
    True,
    "Loops over arrays larger than the cache run several iterations on one tile while it is in the cache. Results are "
    "identical.",
    traced=True,
)

gather = enum_option(
    "mpijax_gather",
    "allow warn raise",
    "warn",
    "What happens when a program gathers a large sharded array on every rank: nothing, a warning or an error.",
)
keep_denormals = bool_option(
    "mpijax_keep_denormals",
    False,
    "Compute with denormals, as NumPy does. Otherwise programs treat them as zero, as XLA does.",
    checks=True,
)
profile_kernels = bool_option(
    "mpijax_profile_kernels",
    False,
    "Programs record the begin and end of each kernel, for profiler.trace and mpijax trace.",
    checks=True,
)

same_bits = bool_option(
    "mpijax_same_bits",
    False,
    "Sums and matrix products of floats are identical bit by bit on any number of ranks. They take about five times "
    "as long.",
    checks=True,
)

# -- devices -------------------------------------------------------------------------------------------------

default_device = object_option("jax_default_device", None, "Device on which new arrays are made.", checks=True)
num_cpu_devices = number_option(
    "jax_num_cpu_devices",
    int,
    -1,
    "Number of devices per process. -1: as XLA_FLAGS or MPIJAX_NUM_LOCAL_DEVICES says, otherwise 1.",
)
platforms = object_option("jax_platforms", None, "Names of platforms, separated by commas. mpijax has only 'cpu'.")
platform_name = object_option("jax_platform_name", "", "Name of a platform. mpijax has only 'cpu'.")
auto_pcast = bool_option(
    "jax_auto_pcast",
    True,
    "Convert operands to vary over the mesh axes that an operation needs; if False, operands must vary over the same.",
    traced=True,
)
disable_bwd_checks = bool_option(
    "jax_disable_bwd_checks",
    False,
    "Do not check the results of a custom_vjp's backward function.",
    traced=True,
)
remove_size_one_mesh_axis_from_type = bool_option(
    "jax_remove_size_one_mesh_axis_from_type",
    False,
    "Leave mesh axes of size one out of types.",
    traced=True,
)

abstract_mesh = object_option(
    "mpijax_abstract_mesh", None, "The mesh of use_abstract_mesh, and the traced function that entered it.", traced=True
)
current_mesh = object_option(
    "mpijax_current_mesh", None, "The mesh of set_mesh: the default mesh of shard_map.", traced=True
)
entered_mesh = object_option(
    "mpijax_entered_mesh", None, "The mesh of `with mesh:`, for a PartitionSpec outside of set_mesh.", traced=True
)
placing_mesh = object_option(
    "mpijax_placing_mesh", None, "The mesh of set_mesh: the default mesh of results.", checks=True
)

_GUARDS = "allow log disallow log_explicit disallow_explicit"
transfer_guard_host_to_device = enum_option(
    "jax_transfer_guard_host_to_device",
    _GUARDS,
    None,
    "What happens when a value of the host becomes an array. 'log' and 'disallow' are for implicit transfers: "
    "arguments of jitted functions, operands and conversions. 'log_explicit' and 'disallow_explicit' are for "
    "device_put, too.",
    guards=True,
)
transfer_guard_device_to_device = enum_option(
    "jax_transfer_guard_device_to_device",
    _GUARDS,
    None,
    "As `transfer_guard_host_to_device`, for arrays that move to another device.",
)
transfer_guard_device_to_host = enum_option(
    "jax_transfer_guard_device_to_host",
    _GUARDS,
    None,
    "Accepted without effect: arrays are in the host's memory, so NumPy reads them where they are.",
)
transfer_guard = enum_option(
    "jax_transfer_guard",
    _GUARDS,
    None,
    "Sets the three other guards of transfers.",
    guards=True,
    also=tuple(f"jax_transfer_guard_{way}" for way in ("host_to_device", "device_to_device", "device_to_host")),
)

# -- compilation ---------------------------------------------------------------------------------------------

compilation_cache_dir = object_option(
    "jax_compilation_cache_dir", None, "Folder of the cache of compiled programs. Overrides MPIJAX_CACHE_DIR."
)
compilation_cache_max_size = number_option(
    "jax_compilation_cache_max_size",
    int,
    1 << 30,
    "Limit in bytes of the cache of compiled programs on disk. Above it, the least recently used programs are removed. "
    "0 keeps none, -1 means no limit. The environment variable MPIJAX_CACHE_MAX_SIZE sets it, too.",
    variable="MPIJAX_CACHE_MAX_SIZE",
)
captured_constants_warn_bytes = number_option(
    "jax_captured_constants_warn_bytes",
    int,
    2_000_000_000,
    "Warn if a jitted function closes over arrays of at least this many bytes together. -1 never warns.",
)
enable_compilation_cache = bool_option(
    "jax_enable_compilation_cache", True, "Keep compiled programs on disk."
)
disable_most_optimizations = bool_option(
    "jax_disable_most_optimizations",
    False,
    "The same as `jax_optimization_level` O0: compile quickly, without optimisation.",
    traced=True,
)
optimization_level = enum_option(
    "jax_optimization_level",
    "UNKNOWN O0 O1 O2 O3",
    "UNKNOWN",
    "O0: compile quickly, without optimisation. O2, O3: optimise before the first run. Otherwise: compile quickly, and "
    "optimise programs that run often, while they run.",
    traced=True,
)

export_calling_convention_version = number_option(
    "jax_export_calling_convention_version",
    int,
    1,
    "File format version of exported programs. mpijax.export lists the versions.",
)

pallas_enable_debug_checks = bool_option(
    "jax_pallas_enable_debug_checks", False, "Run the checks of pl.debug_check in kernels.", traced=True
)

disable_vmap_shmap_error = bool_option(
    "jax_disable_vmap_shmap_error",
    False,
    "Allow vmap of a shard_map whose specs name the mesh axes of spmd_axis_name, for arguments that are not mapped.",
    traced=True,
)

mutable_array_checks = bool_option(
    "jax_mutable_array_checks",
    True,
    "Refuse mutable array references in the carry of a loop. Otherwise a loop may carry them in fixed places.",
    traced=True,
)

# -- accepted without effect ---------------------------------------------------------------------------------

_ACCEPTED_OFF = """
eager_constant_folding jax2tf_associative_scan_reductions jax_bcoo_cusparse_lowering
jax_compilation_cache_check_contents jax_compilation_cache_expect_pgle
jax_compilation_cache_include_metadata_in_key jax_custom_vjp3 jax_debug_leaked_clients_on_clear_backends
jax_disallow_mesh_context_manager jax_distributed_debug jax_enable_pgle
jax_enable_recoverability jax_experimental_unsafe_xla_runtime_errors jax_export_ignore_forward_compatibility
jax_force_dcn_cross_host_transfers jax_mosaic_allow_hlo jax_pallas_poison_buffers
jax_pallas_verbose_errors jax_raise_persistent_cache_errors jax_ragged_dot_use_gpu_pallas_triton_lowering
jax_refs_to_pins jax_remat3 jax_remove_custom_partitioning_ptr_from_cache_key jax_scan3
jax_share_binary_between_hosts jax_threefry_gpu_kernel_lowering jax_use_emit_pipeline_primitive
jax_use_simplified_jaxpr_constants
"""
_ACCEPTED_ON = """
jax2tf_default_native_serialization jax_check_proxy_envs jax_compiler_enable_remat_pass
jax_cpu_enable_async_dispatch jax_enable_preemption_service jax_include_debug_info_in_dumps
jax_include_full_tracebacks_in_locations jax_pallas_use_mosaic_gpu
jax_ragged_dot_use_ragged_dot_instruction jax_sort_devices_by_process_index jax_use_direct_linearize
jax_use_shardy_partitioner
"""
_ACCEPTED_VALUES = {
    "jax_array_garbage_collection_guard": None,
    "jax_backend_target": "",
    "jax_captured_constants_report_frames": 0,
    "jax_compiler_detailed_logging_min_ops": 10,
    "jax_cpu_collectives_implementation": "gloo",
    "jax_cpu_get_global_topology_timeout_minutes": 5,
    "jax_cpu_get_local_topology_timeout_minutes": 2,
    "jax_cross_host_transfer_socket_address": "",
    "jax_cross_host_transfer_timeout_seconds": None,
    "jax_cross_host_transfer_transfer_size": None,
    "jax_cross_host_transport_addresses": "",
    "jax_cuda_visible_devices": "all",
    "jax_dump_ir_modes": "stablehlo",
    "jax_dump_ir_to": "",
    "jax_embedded_constants_max_bytes": 32,
    "jax_exec_time_optimization_effort": 0.0,
    "jax_hlo_source_file_canonicalization_regex": None,
    "jax_memory_fitting_effort": 0.0,
    "jax_memory_fitting_level": "O2",
    "jax_mock_gpu_topology": "",
    "jax_oneapi_visible_devices": "all",
    "jax_persistent_cache_enable_xla_caches": "xla_gpu_per_fusion_autotune_cache_dir",
    "jax_persistent_cache_min_compile_time_secs": 1.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
    "jax_pgle_aggregation_percentile": 90,
    "jax_pgle_profiling_runs": 3,
    "jax_pjrt_client_create_options": None,
    "jax_rocm_visible_devices": "all",
    "jax_send_traceback_to_runtime": "off",
    "jax_serialization_version": 0,
    "jax_share_binary_between_hosts_timeout_ms": 1_200_000,
    "jax_source_url_schema": None,
    "jax_traceback_in_locations_limit": 100,
    "jax_use_magma": "auto",
    "jax_xla_backend": "",
    "jax_xla_profile_version": 0,
    "mock_num_gpu_processes": 0,
}
_NO_EFFECT = "Accepted without effect."
for _name in (*_ACCEPTED_OFF.split(), *_ACCEPTED_ON.split()):
    globals()[_name.removeprefix("jax_")] = bool_option(_name, _name in _ACCEPTED_ON.split(), _NO_EFFECT)
for _name, _default in _ACCEPTED_VALUES.items():
    globals()[_name.removeprefix("jax_")] = object_option(_name, _default, _NO_EFFECT)


def checking_leaks() -> bool:
    """Whether to check for tracers that outlive their trace."""
    return values.jax_check_tracer_leaks
