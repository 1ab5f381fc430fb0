"""`jax.lax`: the basic operations on which everything else is built.

Nothing is imported until the first use of a name; `_MODULES` lists the module of each name.
"""

from __future__ import annotations

from mpijax import faces as _faces

_MODULES: dict[str, str] = {
    # -- elementwise operations and reductions
    "ops.accuracy": "AccuracyMode Tolerance",
    "ops.callbacks.sinks": "dce_sink dce_sink_p",
    "ops.callbacks.tokens": "after_all after_all_p create_token create_token_p",
    "ops.ad_ops": "copy_p stop_gradient stop_gradient_p",
    "ops.sorting.approximate": "approx_max_k approx_min_k approx_top_k_p",
    "ops.reductions.associative": "associative_scan",
    "ops.elementwise.binary": """
        add add_p complex complex_p div div_p max max_p min min_p mul mul_p mulhi mulhi_p neg neg_p
        nextafter nextafter_p rem rem_p sub sub_p""",
    "ops.barrier": "optimization_barrier optimization_barrier_p",
    "ops.random.bit_generators": "RandomAlgorithm rng_bit_generator rng_bit_generator_p rng_uniform rng_uniform_p",
    "lax.arrays": "broadcast_like dtype empty shape_as_value",
    "lax.composites": "composite",
    "lax.futures": "Future all_gather_start all_to_all_start ppermute_start psum_scatter_start psum_start",
    "lax.ragged": "RaggedDotDimensionNumbers ragged_dot ragged_dot_general",
    "lax.ragged_exchange": "ragged_all_to_all ragged_all_to_all_p",
    "lax.scaled": "scaled_dot",
    "ops.elementwise.bitwise": """
        and_p bitwise_and bitwise_not bitwise_or bitwise_xor clz clz_p not_p or_p population_count
        population_count_p shift_left shift_left_p shift_right_arithmetic shift_right_arithmetic_p
        shift_right_logical shift_right_logical_p xor_p""",
    "ops.elementwise.compare": "eq eq_p eq_to_p ge ge_p gt gt_p le le_p le_to_p lt lt_p lt_to_p ne ne_p",
    "ops.convolutions.shapes": """
        ConvDimensionNumbers ConvGeneralDilatedDimensionNumbers conv_dimension_numbers conv_general_permutations
        conv_general_shape_tuple conv_shape_tuple conv_transpose_shape_tuple""",
    "ops.convolutions.general": "conv_general_dilated conv_general_dilated_p",
    "lax.convolution": """
        conv conv_general_dilated_local conv_general_dilated_patches conv_transpose conv_with_general_padding""",
    "ops.elementwise.convert": """
        bitcast_convert_type bitcast_convert_type_p convert_element_type convert_element_type_p stage
        stage_p""",
    "ops.reductions.arg_extremes": "argmax argmax_p argmin argmin_p",
    "ops.elementwise.power": "integer_pow integer_pow_p pow pow_p reciprocal square square_p",
    "ops.reductions.reduce": "reduce reduce_p",
    "ops.windows.reduce_window": """
        reduce_window reduce_window_max_p reduce_window_min_p reduce_window_p reduce_window_sum_p""",
    "ops.reductions.standard": """
        reduce_and reduce_and_p reduce_max reduce_max_p reduce_min reduce_min_p reduce_or reduce_or_p
        reduce_prod reduce_prod_p reduce_sum reduce_sum_p reduce_xor reduce_xor_p""",
    "ops.elementwise.select": "clamp clamp_p select select_n select_n_p",
    "ops.elementwise.special": """
        bessel_i0e bessel_i0e_p bessel_i1e bessel_i1e_p betainc digamma digamma_p erf erf_inv erf_inv_p
        erf_p erfc erfc_p igamma igamma_grad_a igamma_grad_a_p igamma_p igammac igammac_p lgamma lgamma_p
        polygamma polygamma_p random_gamma_grad regularized_incomplete_beta_p zeta zeta_p""",
    "ops.elementwise.transcendental": """
        acos acos_p acosh acosh_p asin asin_p asinh asinh_p atan atan2 atan2_p atan_p atanh atanh_p cbrt
        cbrt_p cos cos_p cosh cosh_p exp exp2 exp2_p exp_p expm1 expm1_p log log1p log1p_p log2 log_p
        logistic logistic_p rsqrt rsqrt_p sin sin_p sinh sinh_p sqrt sqrt_p tan tan_p tanh tanh_p""",
    "ops.elementwise.unary": """
        RoundingMethod abs abs_p ceil ceil_p conj conj_p floor floor_p imag imag_p is_finite is_finite_p
        real real_p reduce_precision reduce_precision_p round round_p sign sign_p""",
    # -- shapes, slices, indexing, products, sorting, random bits
    "ops.shapes.creation": "broadcasted_iota full full_like iota iota_p",
    "ops.reductions.cumulative": """
        cumlogsumexp cumlogsumexp_p cummax cummax_p cummin cummin_p cumprod cumprod_p cumsum cumsum_p""",
    "ops.products.algorithm": "DotAlgorithm DotAlgorithmPreset",
    "ops.products.dot": "DotDimensionNumbers Precision PrecisionLike batch_matmul dot dot_general dot_general_p",
    "ops.indexing.dynamic": """
        dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim dynamic_slice_p
        dynamic_update_index_in_dim dynamic_update_slice dynamic_update_slice_in_dim
        dynamic_update_slice_p""",
    "ops.fourier.fft": "FftType fft fft_p",
    "ops.indexing.gather": "GatherDimensionNumbers GatherScatterMode gather gather_p index_take",
    "ops.shapes.padding": "pad pad_p",
    "ops.indexing.scatter": """
        ScatterDimensionNumbers scatter scatter_add scatter_add_p scatter_apply scatter_max scatter_max_p
        scatter_min scatter_min_p scatter_mul scatter_mul_p scatter_p scatter_sub scatter_sub_p""",
    "ops.shapes.reshape": """
        broadcast broadcast_in_dim broadcast_in_dim_p broadcast_shapes broadcast_to broadcast_to_rank
        collapse expand_dims reshape reshape_p rev rev_p squeeze squeeze_p transpose transpose_p""",
    "ops.indexing.slicing": """
        concatenate concatenate_p index_in_dim slice slice_in_dim slice_p split split_p""",
    "ops.shapes.stacking": "stack stack_p tile tile_p unstack unstack_p",
    "ops.windows.select_windows": "select_and_gather_add_p select_and_scatter_add_p",
    "ops.windows.select_and_scatter": "select_and_scatter_p",
    "ops.sorting.sort": "sort sort_key_val sort_p",
    "ops.sorting.top_k": "top_k top_k_p",
    "ops.windows.shapes": "padtype_to_pads reduce_window_shape_tuple",
    # -- control flow
    "lax.branches": "cond platform_dependent switch",
    "lax.while_loops": "fori_loop while_loop",
    "ops.linear_solve": "linear_solve_p",
    "ops.control_flow.cond": "cond_p",
    "ops.control_flow.while_loop": "while_p",
    "lax.implicit": "custom_linear_solve custom_root",
    "lax.loops": "map scan",
    "ops.control_flow.scan": "scan_p",
    # -- communication
    "spmd.moves": "device_put_p",
    "spmd.constraints": "sharding_constraint_p with_sharding_constraint",
    "ops.collectives": """
        all_gather all_gather_p all_to_all all_to_all_p axis_index axis_index_p axis_size pbroadcast pcast pmax pmax_p
        pmean pmin pmin_p ppermute ppermute_p precv psend pshuffle psum psum_invariant_p psum_p psum_scatter pswapaxes
        pvary pvary_p reduce_scatter_p""",
}

_HOME = _faces.homes_of(_MODULES)

_SUBMODULES = frozenset({"linalg"})

__all__ = sorted({*(name for name in _HOME if not name.endswith("_p")), *_SUBMODULES})  # noqa: PLE0605

__getattr__, __dir__ = _faces.on_demand(__name__, _HOME, _SUBMODULES)
