"""Defines all options, under JAX's names, so programs that set them run unchanged.

Use as ``config.update("jax_enable_x64", True)``, ``config.config.jax_enable_x64``,
``with config.enable_x64(True):``, ``config.enable_x64.value``. `mpijax.core.option` explains how options are stored
and what ``trace_key`` is.

Options under "accepted" are JAX options for things that mpijax does not have (XLA, GPUs, its compilation cache).
Setting them is not an error and has no effect.
"""

from mpijax.core import logs
from mpijax.core.option import (
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
    "jax_enable_x64", False, "Allow 64-bit types; otherwise they become 32-bit.", traced=True
)
explicit_x64_dtypes = enum_option(
    "jax_explicit_x64_dtypes",
    "warn error allow",
    "warn",
    "What an explicitly requested 64-bit dtype does while jax_enable_x64 is off: warn and become 32-bit, "
    "raise, or be allowed.",
    traced=True,
)
numpy_dtype_promotion = enum_option(
    "jax_numpy_dtype_promotion",
    "standard strict",
    "standard",
    "Implicit type promotion between arrays; 'strict' makes differing strong dtypes an error.",
    traced=True,
)
numpy_rank_promotion = enum_option(
    "jax_numpy_rank_promotion",
    "allow warn raise",
    "allow",
    "Whether operands of different rank are broadcast silently, with a warning, or not at all.",
    traced=True,
)
default_matmul_precision = enum_option(
    "jax_default_matmul_precision",
    "default high highest bfloat16 tensorfloat32 float32 ANY_F8_ANY_F8_F32 ANY_F8_ANY_F8_F32_FAST_ACCUM "
    "ANY_F8_ANY_F8_ANY ANY_F8_ANY_F8_ANY_FAST_ACCUM F16_F16_F16 F16_F16_F32 BF16_BF16_BF16 BF16_BF16_F32 "
    "BF16_BF16_F32_X3 BF16_BF16_F32_X6 BF16_BF16_F32_X9 TF32_TF32_F32 TF32_TF32_F32_X3 F32_F32_F32 "
    "F64_F64_F64",
    None,
    "Precision of matrix products and convolutions that are given none.",
    traced=True,
)
allow_f16_reductions = bool_option(
    "jax_allow_f16_reductions", True, "Allow sums over float16 and bfloat16; off, they raise.", checks=True
)
softmax_custom_jvp = bool_option(
    "jax_softmax_custom_jvp", False, "Differentiate softmax by a rule of its own.", traced=True
)

# -- random numbers ------------------------------------------------------------------------------------------

default_prng_impl = enum_option(
    "jax_default_prng_impl",
    "threefry2x32 threefry4x32 rbg unsafe_rbg philox2x32 philox4x32",
    "threefry2x32",
    "Generator used where none is named at seeding.",
    traced=True,
)
threefry_partitionable = bool_option(
    "jax_threefry_partitionable",
    True,
    "Threefry hashes each counter by itself; off, the bits are those of older programs.",
    traced=True,
)
random_seed_offset = number_option(
    "jax_random_seed_offset", int, 0, "Added to every random seed.", traced=True
)
high_dynamic_range_gumbel = bool_option(
    "jax_high_dynamic_range_gumbel",
    False,
    "Gumbel noise reaches rarer values, at the price of a draw.",
    traced=True,
)
enable_custom_prng = bool_option("jax_enable_custom_prng", False, "PRNGKey returns typed keys.", traced=True)
legacy_prng_key = enum_option(
    "jax_legacy_prng_key", "allow warn error", "allow", "What passing a raw uint32 key to jax.random does."
)
debug_key_reuse = bool_option(
    "jax_debug_key_reuse",
    False,
    "Raise where a PRNG key is used that was used before.",
    traced=True,
    checks=True,
)

# -- debugging -----------------------------------------------------------------------------------------------

disable_jit = bool_option(
    "jax_disable_jit", False, "Run functions under jit operation by operation.", traced=True
)
debug_nans = bool_option("jax_debug_nans", False, "Raise where a NaN first appears.", checks=True)
debug_infs = bool_option("jax_debug_infs", False, "Raise where an infinity first appears.", checks=True)
enable_checks = bool_option(
    "jax_enable_checks",
    False,
    "Check each program that a transformation builds, equation by equation, by the operations' own type rules, "
    "and what each stage of the compiler makes of it by the rules of its form.",
    traced=True,
)
check_tracer_leaks = bool_option(
    "jax_check_tracer_leaks", False, "Raise when a traced value outlives its trace.", traced=True
)
check_static_indices = bool_option(
    "jax_check_static_indices", False, "Check constant indices against bounds while tracing.", traced=True
)
check_vma = bool_option(
    "check_vma", False, "Check which mesh axes values vary over inside shard_map.", traced=True
)
no_tracing = bool_option("jax_no_tracing", False, "Raise when a jitted function would be traced again.")
no_execution = bool_option("jax_no_execution", False, "Raise when a compiled program would run.", checks=True)
log_compiles = bool_option("jax_log_compiles", False, "Log each compilation at WARNING.")
explain_cache_misses = bool_option("jax_explain_cache_misses", False, "Log why a call was traced again.")
log_checkpoint_residuals = bool_option(
    "jax_log_checkpoint_residuals", False, "Log what jax.checkpoint keeps for the backward pass."
)
traceback_filtering = enum_option(
    "jax_traceback_filtering",
    "off tracebackhide remove_frames quiet_remove_frames auto",
    "auto",
    "Whether tracebacks of exceptions that nobody catches leave mpijax's own frames out: not if off or tracebackhide.",
)
tracer_error_num_traceback_frames = number_option(
    "jax_tracer_error_num_traceback_frames", int, 5, "Frames of a leaked value's origin that an error shows."
)
error_checking_behavior_nan = enum_option(
    "jax_error_checking_behavior_nan", "ignore raise", "ignore", "error_check on NaN.", traced=True
)
error_checking_behavior_divide = enum_option(
    "jax_error_checking_behavior_divide",
    "ignore raise",
    "ignore",
    "error_check on division by zero.",
    traced=True,
)
error_checking_behavior_oob = enum_option(
    "jax_error_checking_behavior_oob",
    "ignore raise",
    "ignore",
    "error_check on out-of-bounds access.",
    traced=True,
)
pprint_use_color = bool_option("jax_pprint_use_color", True, "Colour printed programs on a terminal.")
debug_print_rank = bool_option(
    "mpijax_debug_print_rank", False, "debug.print and debug.log begin each message with the rank.", traced=True
)

logging_level = enum_option(
    "jax_logging_level",
    "NOTSET DEBUG INFO WARNING ERROR CRITICAL",
    None,
    "Messages of this library from this level on are written to the standard error.",
    changed=logs.set_level,
)
debug_log_modules = object_option(
    "jax_debug_log_modules",
    "",
    "Comma-separated loggers, such as mpijax.jit, all of whose messages are written to the standard error.",
    changed=logs.set_modules,
)
thread_guard = bool_option(
    "jax_thread_guard", False, "Accepted without effect: which thread communicates is not looked at."
)

overlap = bool_option(
    "mpijax_overlap",
    True,
    "Compiled programs go on with what does not need an exchange's result until it is there.",
    traced=True,
)
time_tiles = bool_option(
    "mpijax_time_tiles",
    True,
    "Loops over arrays larger than the cache run several iterations of a tile while it is in cache; same bits.",
    traced=True,
)

gather = enum_option(
    "mpijax_gather",
    "allow warn raise",
    "warn",
    "What happens when a program makes a large array whole on every rank although it is split.",
)
keep_denormals = bool_option(
    "mpijax_keep_denormals",
    False,
    "Compute with denormals as NumPy does; otherwise programs take them for zero, as XLA does.",
    checks=True,
)
profile_kernels = bool_option(
    "mpijax_profile_kernels",
    False,
    "Programs note when each of their kernels begins and ends, for profiler.trace and mpijax trace.",
    checks=True,
)

same_bits = bool_option(
    "mpijax_same_bits",
    False,
    "Sums and products of matrices of floats have the same bits on any number of ranks. They take about five times "
    "as long.",
    checks=True,
)

# -- devices -------------------------------------------------------------------------------------------------

default_device = object_option("jax_default_device", None, "Device that new arrays go to.", checks=True)
num_cpu_devices = number_option(
    "jax_num_cpu_devices",
    int,
    -1,
    "Devices per process; -1 leaves it to XLA_FLAGS or MPIJAX_NUM_LOCAL_DEVICES.",
)
platforms = object_option("jax_platforms", None, "Comma-separated platforms; only 'cpu' exists here.")
platform_name = object_option("jax_platform_name", "", "Platform; only 'cpu' exists here.")
auto_pcast = bool_option(
    "jax_auto_pcast",
    True,
    "Convert operands to vary over the mesh axes that an operation needs; if False, operands must vary over the same.",
    traced=True,
)
disable_bwd_checks = bool_option(
    "jax_disable_bwd_checks",
    False,
    "Do not check what a custom_vjp's backward function returns.",
    traced=True,
)
remove_size_one_mesh_axis_from_type = bool_option(
    "jax_remove_size_one_mesh_axis_from_type",
    False,
    "Leave mesh axes of size one out of types.",
    traced=True,
)

abstract_mesh = object_option(
    "mpijax_abstract_mesh", None, "The mesh of use_abstract_mesh, and the body it was entered in.", traced=True
)
current_mesh = object_option(
    "mpijax_current_mesh", None, "The mesh that shard_map takes when it is given none.", traced=True
)
placing_mesh = object_option(
    "mpijax_placing_mesh", None, "The mesh of set_mesh, over which results lie that nothing lays out.", checks=True
)

# Arrays are in the memory of the process, so there are no transfers to guard against.
_GUARDS = "allow log disallow log_explicit disallow_explicit"
transfer_guard = enum_option(
    "jax_transfer_guard", _GUARDS, None, "Accepted without effect: arrays are in the host's memory."
)
transfer_guard_host_to_device = enum_option(
    "jax_transfer_guard_host_to_device", _GUARDS, None, "As `transfer_guard`, for transfers to devices."
)
transfer_guard_device_to_device = enum_option(
    "jax_transfer_guard_device_to_device", _GUARDS, None, "As `transfer_guard`, for transfers between devices."
)
transfer_guard_device_to_host = enum_option(
    "jax_transfer_guard_device_to_host", _GUARDS, None, "As `transfer_guard`, for transfers to the host."
)

# -- compilation ---------------------------------------------------------------------------------------------

compilation_cache_dir = object_option(
    "jax_compilation_cache_dir", None, "Folder in which compiled programs are kept, in place of MPIJAX_CACHE_DIR."
)
compilation_cache_max_size = number_option(
    "jax_compilation_cache_max_size",
    int,
    1 << 30,
    "Limit in bytes of the compiled programs on disk: those used least recently are removed. 0 keeps none, -1 is no "
    "limit. The environment variable MPIJAX_CACHE_MAX_SIZE sets it too.",
    variable="MPIJAX_CACHE_MAX_SIZE",
)
enable_compilation_cache = bool_option(
    "jax_enable_compilation_cache", True, "Keep compiled programs on disk."
)
disable_most_optimizations = bool_option(
    "jax_disable_most_optimizations",
    False,
    "As `jax_optimization_level` O0: compile fast rather than well.",
    traced=True,
)
optimization_level = enum_option(
    "jax_optimization_level",
    "UNKNOWN O0 O1 O2 O3",
    "UNKNOWN",
    "O0: machine code is made fast and runs slower. O2, O3: it is optimised before the first run. Else it is optimised "
    "while a program runs often.",
    traced=True,
)

export_calling_convention_version = number_option(
    "jax_export_calling_convention_version",
    int,
    1,
    "Version of the files of exported programs that are written; mpijax.export says which there are.",
)

pallas_enable_debug_checks = bool_option(
    "jax_pallas_enable_debug_checks", False, "Do the checks of pl.debug_check in kernels.", traced=True
)

# -- accepted without effect ---------------------------------------------------------------------------------

_ACCEPTED_OFF = """
eager_constant_folding jax2tf_associative_scan_reductions jax_bcoo_cusparse_lowering
jax_compilation_cache_check_contents jax_compilation_cache_expect_pgle
jax_compilation_cache_include_metadata_in_key jax_custom_vjp3 jax_debug_leaked_clients_on_clear_backends
jax_disable_vmap_shmap_error jax_disallow_mesh_context_manager jax_distributed_debug jax_enable_pgle
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
jax_include_full_tracebacks_in_locations jax_mutable_array_checks jax_pallas_use_mosaic_gpu
jax_ragged_dot_use_ragged_dot_instruction jax_sort_devices_by_process_index jax_use_direct_linearize
jax_use_shardy_partitioner
"""
_ACCEPTED_VALUES = {
    "jax_array_garbage_collection_guard": None,
    "jax_backend_target": "",
    "jax_captured_constants_report_frames": 0,
    "jax_captured_constants_warn_bytes": 2_000_000_000,
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
