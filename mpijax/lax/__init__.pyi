"""Names of mpijax.lax. Written by tools/make_stubs.py from the table of mpijax.lax."""

from mpijax.lax import linalg as linalg
from mpijax.lax.arrays import broadcast_like as broadcast_like
from mpijax.lax.arrays import dtype as dtype
from mpijax.lax.arrays import empty as empty
from mpijax.lax.arrays import shape_as_value as shape_as_value
def cond(pred: Any, true_fun: Any, false_fun: Any, *operands: Any, operand: Any = ...) -> Any: ...
from mpijax.lax.branches import platform_dependent as platform_dependent
def switch(index: Any, branches: Any, *operands: Any, operand: Any = ...) -> Any: ...
from mpijax.lax.composite import composite as composite
from mpijax.lax.convolution import conv as conv
from mpijax.lax.convolution import conv_general_dilated_local as conv_general_dilated_local
from mpijax.lax.convolution import conv_general_dilated_patches as conv_general_dilated_patches
from mpijax.lax.convolution import conv_transpose as conv_transpose
from mpijax.lax.convolution import conv_with_general_padding as conv_with_general_padding
from mpijax.lax.implicit import custom_linear_solve as custom_linear_solve
from mpijax.lax.implicit import custom_root as custom_root
from mpijax.lax.loops import map as map
from mpijax.lax.loops import scan as scan
from mpijax.lax.ragged import RaggedDotDimensionNumbers as RaggedDotDimensionNumbers
from mpijax.lax.ragged import ragged_all_to_all as ragged_all_to_all
from mpijax.lax.ragged import ragged_dot as ragged_dot
from mpijax.lax.ragged import ragged_dot_general as ragged_dot_general
from mpijax.lax.scaled import scaled_dot as scaled_dot
from mpijax.lax.sinks import dce_sink as dce_sink
from mpijax.lax.while_loops import fori_loop as fori_loop
from mpijax.lax.while_loops import while_loop as while_loop
from mpijax.ops.accuracy import AccuracyMode as AccuracyMode
from mpijax.ops.accuracy import Tolerance as Tolerance
copy_p: Any
from mpijax.ops.ad_ops import stop_gradient as stop_gradient
stop_gradient_p: Any
from mpijax.ops.approximate import approx_max_k as approx_max_k
from mpijax.ops.approximate import approx_min_k as approx_min_k
approx_top_k_p: Any
from mpijax.ops.associative import associative_scan as associative_scan
from mpijax.ops.barrier import optimization_barrier as optimization_barrier
optimization_barrier_p: Any
from mpijax.ops.binary import add as add
add_p: Any
from mpijax.ops.binary import complex as complex
complex_p: Any
from mpijax.ops.binary import div as div
div_p: Any
from mpijax.ops.binary import max as max
max_p: Any
from mpijax.ops.binary import min as min
min_p: Any
from mpijax.ops.binary import mul as mul
mul_p: Any
from mpijax.ops.binary import mulhi as mulhi
mulhi_p: Any
from mpijax.ops.binary import neg as neg
neg_p: Any
from mpijax.ops.binary import nextafter as nextafter
nextafter_p: Any
from mpijax.ops.binary import rem as rem
rem_p: Any
from mpijax.ops.binary import sub as sub
sub_p: Any
from mpijax.ops.bit_generators import RandomAlgorithm as RandomAlgorithm
from mpijax.ops.bit_generators import rng_bit_generator as rng_bit_generator
rng_bit_generator_p: Any
from mpijax.ops.bit_generators import rng_uniform as rng_uniform
rng_uniform_p: Any
and_p: Any
from mpijax.ops.bitwise import bitwise_and as bitwise_and
from mpijax.ops.bitwise import bitwise_not as bitwise_not
from mpijax.ops.bitwise import bitwise_or as bitwise_or
from mpijax.ops.bitwise import bitwise_xor as bitwise_xor
from mpijax.ops.bitwise import clz as clz
clz_p: Any
not_p: Any
or_p: Any
from mpijax.ops.bitwise import population_count as population_count
population_count_p: Any
from mpijax.ops.bitwise import shift_left as shift_left
shift_left_p: Any
from mpijax.ops.bitwise import shift_right_arithmetic as shift_right_arithmetic
shift_right_arithmetic_p: Any
from mpijax.ops.bitwise import shift_right_logical as shift_right_logical
shift_right_logical_p: Any
xor_p: Any
def all_gather(x: Any, axis_name: Any, *, axis_index_groups: Any = ..., axis: Any = ..., tiled: Any = ..., to: Any = ...) -> Any: ...
all_gather_p: Any
def all_to_all(x: Any, axis_name: Any, split_axis: Any, concat_axis: Any, *, axis_index_groups: Any = ..., tiled: Any = ...) -> Any: ...
all_to_all_p: Any
def axis_index(axis_name: Any) -> Any: ...
axis_index_p: Any
def axis_size(axis_name: Any) -> Any: ...
def pbroadcast(x: Any, axis_name: Any, source: Any) -> Any: ...
def pcast(x: Any, axis_name: Any, *, to: Any) -> Any: ...
def pmax(x: Any, axis_name: Any, *, axis_index_groups: Any = ...) -> Any: ...
pmax_p: Any
def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = ...) -> Any: ...
def pmin(x: Any, axis_name: Any, *, axis_index_groups: Any = ...) -> Any: ...
pmin_p: Any
def ppermute(x: Any, axis_name: Any, perm: Any) -> Any: ...
ppermute_p: Any
def pshuffle(x: Any, axis_name: Any, perm: Any) -> Any: ...
def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = ...) -> Any: ...
psum_invariant_p: Any
psum_p: Any
def psum_scatter(x: Any, axis_name: Any, *, scatter_dimension: Any = ..., axis_index_groups: Any = ..., tiled: Any = ...) -> Any: ...
def pswapaxes(x: Any, axis_name: Any, axis: Any, *, axis_index_groups: Any = ...) -> Any: ...
def pvary(x: Any, axis_name: Any) -> Any: ...
pvary_p: Any
reduce_scatter_p: Any
from mpijax.ops.compare import eq as eq
eq_p: Any
eq_to_p: Any
from mpijax.ops.compare import ge as ge
ge_p: Any
from mpijax.ops.compare import gt as gt
gt_p: Any
from mpijax.ops.compare import le as le
le_p: Any
le_to_p: Any
from mpijax.ops.compare import lt as lt
lt_p: Any
lt_to_p: Any
from mpijax.ops.compare import ne as ne
ne_p: Any
cond_p: Any
scan_p: Any
while_p: Any
from mpijax.ops.conv_shapes import ConvDimensionNumbers as ConvDimensionNumbers
ConvGeneralDilatedDimensionNumbers: Any
from mpijax.ops.conv_shapes import conv_dimension_numbers as conv_dimension_numbers
from mpijax.ops.conv_shapes import conv_general_permutations as conv_general_permutations
def conv_general_shape_tuple(lhs_shape: Any, rhs_shape: Any, window_strides: Any, padding: Any, dimension_numbers: Any) -> Any: ...
from mpijax.ops.conv_shapes import conv_shape_tuple as conv_shape_tuple
def conv_transpose_shape_tuple(lhs_shape: Any, rhs_shape: Any, window_strides: Any, padding: Any, dimension_numbers: Any) -> Any: ...
from mpijax.ops.convert import bitcast_convert_type as bitcast_convert_type
bitcast_convert_type_p: Any
from mpijax.ops.convert import convert_element_type as convert_element_type
convert_element_type_p: Any
from mpijax.ops.convert import stage as stage
from mpijax.ops.convolution import conv_general_dilated as conv_general_dilated
conv_general_dilated_p: Any
def broadcasted_iota(dtype: Any, shape: Any, dimension: Any, *, out_sharding: Any = ...) -> Any: ...
def full(shape: Any, fill_value: Any, dtype: Any = ..., *, sharding: Any = ...) -> Any: ...
def full_like(x: Any, fill_value: Any, dtype: Any = ..., shape: Any = ..., sharding: Any = ...) -> Any: ...
from mpijax.ops.creation import iota as iota
iota_p: Any
from mpijax.ops.cumulative import cumlogsumexp as cumlogsumexp
cumlogsumexp_p: Any
from mpijax.ops.cumulative import cummax as cummax
cummax_p: Any
from mpijax.ops.cumulative import cummin as cummin
cummin_p: Any
from mpijax.ops.cumulative import cumprod as cumprod
cumprod_p: Any
from mpijax.ops.cumulative import cumsum as cumsum
cumsum_p: Any
DotDimensionNumbers: Any
from mpijax.ops.dot import Precision as Precision
from mpijax.ops.dot import batch_matmul as batch_matmul
def dot(lhs: Any, rhs: Any, *, dimension_numbers: Any = ..., precision: Any = ..., preferred_element_type: Any = ..., out_sharding: Any = ...) -> Any: ...
def dot_general(lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = ..., preferred_element_type: Any = ..., *, out_sharding: Any = ...) -> Any: ...
dot_general_p: Any
from mpijax.ops.dot_algorithm import DotAlgorithm as DotAlgorithm
from mpijax.ops.dot_algorithm import DotAlgorithmPreset as DotAlgorithmPreset
def dynamic_index_in_dim(operand: Any, index: Any, axis: Any = ..., keepdims: Any = ..., *, allow_negative_indices: Any = ...) -> Any: ...
from mpijax.ops.dynamic import dynamic_slice as dynamic_slice
from mpijax.ops.dynamic import dynamic_slice_in_dim as dynamic_slice_in_dim
dynamic_slice_p: Any
def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: Any, *, allow_negative_indices: Any = ...) -> Any: ...
from mpijax.ops.dynamic import dynamic_update_slice as dynamic_update_slice
from mpijax.ops.dynamic import dynamic_update_slice_in_dim as dynamic_update_slice_in_dim
dynamic_update_slice_p: Any
from mpijax.ops.fft import FftType as FftType
def fft(x: Any, fft_type: Any, fft_lengths: Any) -> Any: ...
fft_p: Any
from mpijax.ops.indexing import GatherDimensionNumbers as GatherDimensionNumbers
from mpijax.ops.indexing import GatherScatterMode as GatherScatterMode
from mpijax.ops.indexing import gather as gather
gather_p: Any
from mpijax.ops.indexing import index_take as index_take
linear_solve_p: Any
from mpijax.ops.padding import pad as pad
pad_p: Any
from mpijax.ops.positions import argmax as argmax
argmax_p: Any
from mpijax.ops.positions import argmin as argmin
argmin_p: Any
from mpijax.ops.power import integer_pow as integer_pow
integer_pow_p: Any
from mpijax.ops.power import pow as pow
pow_p: Any
from mpijax.ops.power import reciprocal as reciprocal
from mpijax.ops.power import square as square
square_p: Any
def reduce(operands: Any, init_values: Any, computation: Any, dimensions: Any, out_sharding: Any = ...) -> Any: ...
reduce_p: Any
from mpijax.ops.reduce_window import reduce_window as reduce_window
reduce_window_max_p: Any
reduce_window_min_p: Any
reduce_window_p: Any
reduce_window_sum_p: Any
from mpijax.ops.reductions import reduce_and as reduce_and
reduce_and_p: Any
def reduce_max(operand: Any, axes: Any, *, out_sharding: Any = ...) -> Any: ...
reduce_max_p: Any
def reduce_min(operand: Any, axes: Any, *, out_sharding: Any = ...) -> Any: ...
reduce_min_p: Any
from mpijax.ops.reductions import reduce_or as reduce_or
reduce_or_p: Any
from mpijax.ops.reductions import reduce_prod as reduce_prod
reduce_prod_p: Any
def reduce_sum(operand: Any, axes: Any, *, out_sharding: Any = ...) -> Any: ...
reduce_sum_p: Any
from mpijax.ops.reductions import reduce_xor as reduce_xor
reduce_xor_p: Any
from mpijax.ops.scatter import ScatterDimensionNumbers as ScatterDimensionNumbers
from mpijax.ops.scatter import scatter as scatter
from mpijax.ops.scatter import scatter_add as scatter_add
scatter_add_p: Any
from mpijax.ops.scatter import scatter_apply as scatter_apply
from mpijax.ops.scatter import scatter_max as scatter_max
scatter_max_p: Any
from mpijax.ops.scatter import scatter_min as scatter_min
scatter_min_p: Any
from mpijax.ops.scatter import scatter_mul as scatter_mul
scatter_mul_p: Any
scatter_p: Any
from mpijax.ops.scatter import scatter_sub as scatter_sub
scatter_sub_p: Any
from mpijax.ops.select import clamp as clamp
clamp_p: Any
from mpijax.ops.select import select as select
from mpijax.ops.select import select_n as select_n
select_n_p: Any
select_and_gather_add_p: Any
select_and_scatter_add_p: Any
def broadcast(operand: Any, sizes: Any, *, out_sharding: Any = ...) -> Any: ...
def broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Any, *, out_sharding: Any = ...) -> Any: ...
broadcast_in_dim_p: Any
from mpijax.ops.shapes import broadcast_shapes as broadcast_shapes
def broadcast_to(arr: Any, shape: Any, sharding: Any = ...) -> Any: ...
from mpijax.ops.shapes import broadcast_to_rank as broadcast_to_rank
from mpijax.ops.shapes import collapse as collapse
from mpijax.ops.shapes import expand_dims as expand_dims
def reshape(operand: Any, new_sizes: Any, dimensions: Any = ..., *, out_sharding: Any = ...) -> Any: ...
reshape_p: Any
from mpijax.ops.shapes import rev as rev
rev_p: Any
from mpijax.ops.shapes import squeeze as squeeze
squeeze_p: Any
from mpijax.ops.shapes import transpose as transpose
transpose_p: Any
from mpijax.ops.slicing import concatenate as concatenate
concatenate_p: Any
from mpijax.ops.slicing import index_in_dim as index_in_dim
from mpijax.ops.slicing import slice as slice
from mpijax.ops.slicing import slice_in_dim as slice_in_dim
slice_p: Any
from mpijax.ops.slicing import split as split
split_p: Any
from mpijax.ops.sort import sort as sort
from mpijax.ops.sort import sort_key_val as sort_key_val
sort_p: Any
from mpijax.ops.special import bessel_i0e as bessel_i0e
bessel_i0e_p: Any
from mpijax.ops.special import bessel_i1e as bessel_i1e
bessel_i1e_p: Any
from mpijax.ops.special import betainc as betainc
from mpijax.ops.special import digamma as digamma
digamma_p: Any
from mpijax.ops.special import erf as erf
from mpijax.ops.special import erf_inv as erf_inv
erf_inv_p: Any
erf_p: Any
from mpijax.ops.special import erfc as erfc
erfc_p: Any
from mpijax.ops.special import igamma as igamma
from mpijax.ops.special import igamma_grad_a as igamma_grad_a
igamma_grad_a_p: Any
igamma_p: Any
from mpijax.ops.special import igammac as igammac
igammac_p: Any
from mpijax.ops.special import lgamma as lgamma
lgamma_p: Any
from mpijax.ops.special import polygamma as polygamma
polygamma_p: Any
from mpijax.ops.special import random_gamma_grad as random_gamma_grad
regularized_incomplete_beta_p: Any
from mpijax.ops.special import zeta as zeta
zeta_p: Any
from mpijax.ops.stacking import stack as stack
stack_p: Any
from mpijax.ops.stacking import tile as tile
tile_p: Any
from mpijax.ops.stacking import unstack as unstack
unstack_p: Any
from mpijax.ops.top_k import top_k as top_k
top_k_p: Any
from mpijax.ops.transcendental import acos as acos
acos_p: Any
from mpijax.ops.transcendental import acosh as acosh
acosh_p: Any
from mpijax.ops.transcendental import asin as asin
asin_p: Any
from mpijax.ops.transcendental import asinh as asinh
asinh_p: Any
from mpijax.ops.transcendental import atan as atan
from mpijax.ops.transcendental import atan2 as atan2
atan2_p: Any
atan_p: Any
from mpijax.ops.transcendental import atanh as atanh
atanh_p: Any
def cbrt(x: Any, *, accuracy: Any = ...) -> Any: ...
cbrt_p: Any
def cos(x: Any, *, accuracy: Any = ...) -> Any: ...
cos_p: Any
from mpijax.ops.transcendental import cosh as cosh
cosh_p: Any
def exp(x: Any, *, accuracy: Any = ...) -> Any: ...
def exp2(x: Any, *, accuracy: Any = ...) -> Any: ...
exp2_p: Any
exp_p: Any
def expm1(x: Any, *, accuracy: Any = ...) -> Any: ...
expm1_p: Any
def log(x: Any, *, accuracy: Any = ...) -> Any: ...
def log1p(x: Any, *, accuracy: Any = ...) -> Any: ...
log1p_p: Any
log_p: Any
def logistic(x: Any, *, accuracy: Any = ...) -> Any: ...
logistic_p: Any
def rsqrt(x: Any, *, accuracy: Any = ...) -> Any: ...
rsqrt_p: Any
def sin(x: Any, *, accuracy: Any = ...) -> Any: ...
sin_p: Any
from mpijax.ops.transcendental import sinh as sinh
sinh_p: Any
def sqrt(x: Any, *, accuracy: Any = ...) -> Any: ...
sqrt_p: Any
def tan(x: Any, *, accuracy: Any = ...) -> Any: ...
tan_p: Any
def tanh(x: Any, *, accuracy: Any = ...) -> Any: ...
tanh_p: Any
from mpijax.ops.unary import RoundingMethod as RoundingMethod
from mpijax.ops.unary import abs as abs
abs_p: Any
from mpijax.ops.unary import ceil as ceil
ceil_p: Any
from mpijax.ops.unary import conj as conj
conj_p: Any
from mpijax.ops.unary import floor as floor
floor_p: Any
from mpijax.ops.unary import imag as imag
imag_p: Any
from mpijax.ops.unary import is_finite as is_finite
is_finite_p: Any
from mpijax.ops.unary import real as real
real_p: Any
from mpijax.ops.unary import reduce_precision as reduce_precision
reduce_precision_p: Any
from mpijax.ops.unary import round as round
round_p: Any
from mpijax.ops.unary import sign as sign
sign_p: Any
from mpijax.ops.window_shapes import padtype_to_pads as padtype_to_pads
def reduce_window_shape_tuple(operand_shape: Any, window_dimensions: Any, window_strides: Any, padding: Any, base_dilation: Any = ..., window_dilation: Any = ...) -> Any: ...
sharding_constraint_p: Any
from mpijax.spmd.constraints import with_sharding_constraint as with_sharding_constraint
