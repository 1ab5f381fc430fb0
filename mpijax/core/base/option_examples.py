"""Examples for the docstrings of the options that are names of `mpijax`."""

EXAMPLES = {
    "allow_f16_reductions": """
    >>> with mpijax.allow_f16_reductions(False):
    ...     lax.reduce_sum(jnp.ones(3, "float16"), (0,))
    Traceback (most recent call last):
    ...
    ValueError: reduce_sum on operand f16[3] is not allowed when jax_allow_f16_reductions=False. ...""",
    "array_garbage_collection_guard": """
    >>> with mpijax.array_garbage_collection_guard("log"):
    ...     jnp.sum(jnp.arange(3))
    Array(3, dtype=int32)""",
    "auto_pcast": """
    >>> with mpijax.auto_pcast(False):
    ...     mpijax.auto_pcast.value
    False""",
    "check_tracer_leaks": """
    >>> with mpijax.check_tracer_leaks(True):
    ...     mpijax.jit(jnp.negative)(jnp.arange(3))
    Array([ 0, -1, -2], dtype=int32)""",
    "debug_infs": """
    >>> with mpijax.debug_infs(True):
    ...     1 / jnp.zeros(2)
    Traceback (most recent call last):
    ...
    FloatingPointError: invalid value (inf) encountered in div ...""",
    "debug_key_reuse": """
    >>> with mpijax.debug_key_reuse(True):
    ...     mpijax.debug_key_reuse.value
    True""",
    "debug_nans": """
    >>> with mpijax.debug_nans(True):
    ...     jnp.log(-jnp.ones(2))
    Traceback (most recent call last):
    ...
    FloatingPointError: invalid value (nan) encountered in log ...""",
    "default_device": """
    >>> with mpijax.default_device(mpijax.local_devices()[0]):
    ...     jnp.arange(3)
    Array([0, 1, 2], dtype=int32)""",
    "default_matmul_precision": """
    >>> with mpijax.default_matmul_precision("highest"):
    ...     jnp.arange(3.0) @ jnp.arange(3.0)
    Array(5., dtype=float32)""",
    "default_prng_impl": """
    >>> with mpijax.default_prng_impl("threefry2x32"):
    ...     mpijax.random.key_impl(mpijax.random.key(0))
    'threefry2x32'""",
    "enable_checks": """
    >>> with mpijax.enable_checks(True):
    ...     mpijax.jit(jnp.negative)(jnp.arange(3))
    Array([ 0, -1, -2], dtype=int32)""",
    "enable_custom_prng": """
    >>> with mpijax.enable_custom_prng(True):
    ...     mpijax.random.PRNGKey(0).dtype
    key<fry>""",
    "enable_x64": """
    >>> with mpijax.enable_x64(True):
    ...     jnp.arange(2.0).dtype
    dtype('float64')""",
    "explain_cache_misses": """
    >>> with mpijax.explain_cache_misses(False):
    ...     mpijax.jit(jnp.negative)(jnp.arange(3))
    Array([ 0, -1, -2], dtype=int32)""",
    "legacy_prng_key": """
    >>> with mpijax.legacy_prng_key("error"):
    ...     mpijax.random.bits(mpijax.random.PRNGKey(0))
    Traceback (most recent call last):
    ...
    ValueError: Legacy uint32 key array passed as key to jax.random function. ...""",
    "log_compiles": """
    >>> with mpijax.log_compiles(False):
    ...     mpijax.jit(jnp.negative)(jnp.arange(3))
    Array([ 0, -1, -2], dtype=int32)""",
    "no_execution": """
    >>> with mpijax.no_execution(True):
    ...     jnp.negative(1.0)
    Traceback (most recent call last):
    ...
    RuntimeError: jit(...) would be executed, but the no_execution config option is set. ...""",
    "no_tracing": """
    >>> with mpijax.no_tracing(True):
    ...     mpijax.jit(lambda x: x + 1)(1.0)
    Traceback (most recent call last):
    ...
    RuntimeError: re-tracing function <lambda> at ...""",
    "numpy_dtype_promotion": """
    >>> with mpijax.numpy_dtype_promotion("strict"):
    ...     jnp.arange(3) + jnp.ones(3)
    Traceback (most recent call last):
    ...
    mpijax.core.dtypes.promotion.TypePromotionError: Input dtypes ('int32', 'float32') have no ...""",
    "numpy_rank_promotion": """
    >>> with mpijax.numpy_rank_promotion("raise"):
    ...     jnp.ones((2, 3)) + jnp.ones(3)
    Traceback (most recent call last):
    ...
    ValueError: Operands could not be broadcast together for add on shapes (2, 3) (3,) ...""",
    "remove_size_one_mesh_axis_from_type": """
    >>> with mpijax.remove_size_one_mesh_axis_from_type(True):
    ...     mpijax.remove_size_one_mesh_axis_from_type.value
    True""",
    "softmax_custom_jvp": """
    >>> with mpijax.softmax_custom_jvp(True):
    ...     mpijax.grad(lambda x: mpijax.nn.softmax(x)[0])(jnp.zeros(2))
    Array([ 0.25, -0.25], dtype=float32)""",
    "thread_guard": """
    >>> with mpijax.thread_guard(True):
    ...     mpijax.mpi.allgather(jnp.ones(1))
    Array([[1.]], dtype=float32)""",
    "threefry_partitionable": """
    >>> with mpijax.threefry_partitionable(False):
    ...     mpijax.random.bits(mpijax.random.key(0), (2,))
    Array([ 928981903, 3453687069], dtype=uint32)""",
    "transfer_guard": """
    >>> with mpijax.transfer_guard("disallow"):
    ...     mpijax.jit(jnp.sum)(mpijax.device_put(np.arange(3)))
    Array(3, dtype=int32)""",
    "transfer_guard_device_to_device": """
    >>> with mpijax.transfer_guard_device_to_device("log"):
    ...     mpijax.device_put(jnp.arange(3), mpijax.local_devices()[0])
    Array([0, 1, 2], dtype=int32)""",
    "transfer_guard_device_to_host": """
    >>> with mpijax.transfer_guard_device_to_host("disallow"):
    ...     np.asarray(jnp.arange(3))
    array([0, 1, 2], dtype=int32)""",
    "transfer_guard_host_to_device": """
    >>> with mpijax.transfer_guard_host_to_device("disallow"):
    ...     mpijax.jit(jnp.sum)(np.arange(3))
    Traceback (most recent call last):
        ...
    mpijax.errors.JaxRuntimeError: Disallowed host-to-device transfer: ndarray of shape (3,)...""",
    "pallas_enable_debug_checks": """
    >>> from mpijax.experimental import pallas as pl
    >>> with pl.enable_debug_checks(True):
    ...     pl.debug_checks_enabled()
    True""",
    "pallas_poison_buffers": """
    >>> from mpijax.experimental import pallas as pl
    >>> with pl.enable_poison_buffers(True):
    ...     pl.enable_poison_buffers.value
    True""",
}
