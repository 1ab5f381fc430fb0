"""Names of mpijax.lax. Written by tools/make_stubs.py from its table."""

from typing import Any

from mpijax.lax import linalg as linalg
from mpijax.lax.arrays import broadcast_like as broadcast_like
from mpijax.lax.arrays import dtype as dtype
from mpijax.lax.arrays import empty as empty
from mpijax.lax.arrays import shape_as_value as shape_as_value
from mpijax.lax.branches import platform_dependent as platform_dependent
from mpijax.lax.composites import composite as composite
from mpijax.lax.convolution import conv as conv
from mpijax.lax.convolution import conv_general_dilated_local as conv_general_dilated_local
from mpijax.lax.convolution import conv_general_dilated_patches as conv_general_dilated_patches
from mpijax.lax.convolution import conv_transpose as conv_transpose
from mpijax.lax.convolution import conv_with_general_padding as conv_with_general_padding
from mpijax.lax.futures import Future as Future
from mpijax.lax.implicit import custom_linear_solve as custom_linear_solve
from mpijax.lax.implicit import custom_root as custom_root
from mpijax.lax.loops import map as map
from mpijax.lax.loops import scan as scan
from mpijax.lax.ragged import RaggedDotDimensionNumbers as RaggedDotDimensionNumbers
from mpijax.lax.ragged import ragged_dot as ragged_dot
from mpijax.lax.ragged import ragged_dot_general as ragged_dot_general
from mpijax.lax.ragged_exchange import ragged_all_to_all as ragged_all_to_all
from mpijax.lax.scaled import scaled_dot as scaled_dot
from mpijax.lax.while_loops import fori_loop as fori_loop
from mpijax.lax.while_loops import while_loop as while_loop
from mpijax.ops.accuracy import AccuracyMode as AccuracyMode
from mpijax.ops.accuracy import Tolerance as Tolerance
from mpijax.ops.ad_ops import stop_gradient as stop_gradient
from mpijax.ops.barrier import optimization_barrier as optimization_barrier
from mpijax.ops.callbacks.sinks import dce_sink as dce_sink
from mpijax.ops.callbacks.tokens import after_all as after_all
from mpijax.ops.callbacks.tokens import create_token as create_token
from mpijax.ops.convolutions.general import conv_general_dilated as conv_general_dilated
from mpijax.ops.convolutions.shapes import ConvDimensionNumbers as ConvDimensionNumbers
from mpijax.ops.convolutions.shapes import conv_dimension_numbers as conv_dimension_numbers
from mpijax.ops.convolutions.shapes import conv_general_permutations as conv_general_permutations
from mpijax.ops.convolutions.shapes import conv_shape_tuple as conv_shape_tuple
from mpijax.ops.elementwise.binary import add as add
from mpijax.ops.elementwise.binary import complex as complex
from mpijax.ops.elementwise.binary import div as div
from mpijax.ops.elementwise.binary import max as max
from mpijax.ops.elementwise.binary import min as min
from mpijax.ops.elementwise.binary import mul as mul
from mpijax.ops.elementwise.binary import mulhi as mulhi
from mpijax.ops.elementwise.binary import neg as neg
from mpijax.ops.elementwise.binary import nextafter as nextafter
from mpijax.ops.elementwise.binary import rem as rem
from mpijax.ops.elementwise.binary import sub as sub
from mpijax.ops.elementwise.bitwise import bitwise_and as bitwise_and
from mpijax.ops.elementwise.bitwise import bitwise_not as bitwise_not
from mpijax.ops.elementwise.bitwise import bitwise_or as bitwise_or
from mpijax.ops.elementwise.bitwise import bitwise_xor as bitwise_xor
from mpijax.ops.elementwise.bitwise import clz as clz
from mpijax.ops.elementwise.bitwise import population_count as population_count
from mpijax.ops.elementwise.bitwise import shift_left as shift_left
from mpijax.ops.elementwise.bitwise import shift_right_arithmetic as shift_right_arithmetic
from mpijax.ops.elementwise.bitwise import shift_right_logical as shift_right_logical
from mpijax.ops.elementwise.compare import eq as eq
from mpijax.ops.elementwise.compare import ge as ge
from mpijax.ops.elementwise.compare import gt as gt
from mpijax.ops.elementwise.compare import le as le
from mpijax.ops.elementwise.compare import lt as lt
from mpijax.ops.elementwise.compare import ne as ne
from mpijax.ops.elementwise.convert import bitcast_convert_type as bitcast_convert_type
from mpijax.ops.elementwise.convert import convert_element_type as convert_element_type
from mpijax.ops.elementwise.convert import stage as stage
from mpijax.ops.elementwise.power import integer_pow as integer_pow
from mpijax.ops.elementwise.power import pow as pow
from mpijax.ops.elementwise.power import reciprocal as reciprocal
from mpijax.ops.elementwise.power import square as square
from mpijax.ops.elementwise.select import clamp as clamp
from mpijax.ops.elementwise.select import select as select
from mpijax.ops.elementwise.select import select_n as select_n
from mpijax.ops.elementwise.special import bessel_i0e as bessel_i0e
from mpijax.ops.elementwise.special import bessel_i1e as bessel_i1e
from mpijax.ops.elementwise.special import betainc as betainc
from mpijax.ops.elementwise.special import digamma as digamma
from mpijax.ops.elementwise.special import erf as erf
from mpijax.ops.elementwise.special import erf_inv as erf_inv
from mpijax.ops.elementwise.special import erfc as erfc
from mpijax.ops.elementwise.special import igamma as igamma
from mpijax.ops.elementwise.special import igamma_grad_a as igamma_grad_a
from mpijax.ops.elementwise.special import igammac as igammac
from mpijax.ops.elementwise.special import lgamma as lgamma
from mpijax.ops.elementwise.special import polygamma as polygamma
from mpijax.ops.elementwise.special import random_gamma_grad as random_gamma_grad
from mpijax.ops.elementwise.special import zeta as zeta
from mpijax.ops.elementwise.transcendental import acos as acos
from mpijax.ops.elementwise.transcendental import acosh as acosh
from mpijax.ops.elementwise.transcendental import asin as asin
from mpijax.ops.elementwise.transcendental import asinh as asinh
from mpijax.ops.elementwise.transcendental import atan as atan
from mpijax.ops.elementwise.transcendental import atan2 as atan2
from mpijax.ops.elementwise.transcendental import atanh as atanh
from mpijax.ops.elementwise.transcendental import cosh as cosh
from mpijax.ops.elementwise.transcendental import sinh as sinh
from mpijax.ops.elementwise.unary import RoundingMethod as RoundingMethod
from mpijax.ops.elementwise.unary import abs as abs
from mpijax.ops.elementwise.unary import ceil as ceil
from mpijax.ops.elementwise.unary import conj as conj
from mpijax.ops.elementwise.unary import floor as floor
from mpijax.ops.elementwise.unary import imag as imag
from mpijax.ops.elementwise.unary import is_finite as is_finite
from mpijax.ops.elementwise.unary import real as real
from mpijax.ops.elementwise.unary import reduce_precision as reduce_precision
from mpijax.ops.elementwise.unary import round as round
from mpijax.ops.elementwise.unary import sign as sign
from mpijax.ops.fourier.fft import FftType as FftType
from mpijax.ops.indexing.dynamic import dynamic_slice as dynamic_slice
from mpijax.ops.indexing.dynamic import dynamic_slice_in_dim as dynamic_slice_in_dim
from mpijax.ops.indexing.dynamic import dynamic_update_slice as dynamic_update_slice
from mpijax.ops.indexing.dynamic import dynamic_update_slice_in_dim as dynamic_update_slice_in_dim
from mpijax.ops.indexing.gather import GatherDimensionNumbers as GatherDimensionNumbers
from mpijax.ops.indexing.gather import GatherScatterMode as GatherScatterMode
from mpijax.ops.indexing.gather import gather as gather
from mpijax.ops.indexing.gather import index_take as index_take
from mpijax.ops.indexing.scatter import ScatterDimensionNumbers as ScatterDimensionNumbers
from mpijax.ops.indexing.scatter import scatter as scatter
from mpijax.ops.indexing.scatter import scatter_add as scatter_add
from mpijax.ops.indexing.scatter import scatter_apply as scatter_apply
from mpijax.ops.indexing.scatter import scatter_max as scatter_max
from mpijax.ops.indexing.scatter import scatter_min as scatter_min
from mpijax.ops.indexing.scatter import scatter_mul as scatter_mul
from mpijax.ops.indexing.scatter import scatter_sub as scatter_sub
from mpijax.ops.indexing.slicing import concatenate as concatenate
from mpijax.ops.indexing.slicing import index_in_dim as index_in_dim
from mpijax.ops.indexing.slicing import slice as slice
from mpijax.ops.indexing.slicing import slice_in_dim as slice_in_dim
from mpijax.ops.indexing.slicing import split as split
from mpijax.ops.products.algorithm import DotAlgorithm as DotAlgorithm
from mpijax.ops.products.algorithm import DotAlgorithmPreset as DotAlgorithmPreset
from mpijax.ops.products.dot import Precision as Precision
from mpijax.ops.products.dot import batch_matmul as batch_matmul
from mpijax.ops.random.bit_generators import RandomAlgorithm as RandomAlgorithm
from mpijax.ops.random.bit_generators import rng_bit_generator as rng_bit_generator
from mpijax.ops.random.bit_generators import rng_uniform as rng_uniform
from mpijax.ops.reductions.arg_extremes import argmax as argmax
from mpijax.ops.reductions.arg_extremes import argmin as argmin
from mpijax.ops.reductions.associative import associative_scan as associative_scan
from mpijax.ops.reductions.cumulative import cumlogsumexp as cumlogsumexp
from mpijax.ops.reductions.cumulative import cummax as cummax
from mpijax.ops.reductions.cumulative import cummin as cummin
from mpijax.ops.reductions.cumulative import cumprod as cumprod
from mpijax.ops.reductions.cumulative import cumsum as cumsum
from mpijax.ops.reductions.standard import reduce_and as reduce_and
from mpijax.ops.reductions.standard import reduce_or as reduce_or
from mpijax.ops.reductions.standard import reduce_prod as reduce_prod
from mpijax.ops.reductions.standard import reduce_xor as reduce_xor
from mpijax.ops.shapes.creation import iota as iota
from mpijax.ops.shapes.padding import pad as pad
from mpijax.ops.shapes.reshape import broadcast_shapes as broadcast_shapes
from mpijax.ops.shapes.reshape import broadcast_to_rank as broadcast_to_rank
from mpijax.ops.shapes.reshape import collapse as collapse
from mpijax.ops.shapes.reshape import expand_dims as expand_dims
from mpijax.ops.shapes.reshape import rev as rev
from mpijax.ops.shapes.reshape import squeeze as squeeze
from mpijax.ops.shapes.reshape import transpose as transpose
from mpijax.ops.shapes.stacking import stack as stack
from mpijax.ops.shapes.stacking import tile as tile
from mpijax.ops.shapes.stacking import unstack as unstack
from mpijax.ops.sorting.approximate import approx_max_k as approx_max_k
from mpijax.ops.sorting.approximate import approx_min_k as approx_min_k
from mpijax.ops.sorting.sort import sort as sort
from mpijax.ops.sorting.sort import sort_key_val as sort_key_val
from mpijax.ops.sorting.top_k import top_k as top_k
from mpijax.ops.windows.reduce_window import reduce_window as reduce_window
from mpijax.ops.windows.shapes import padtype_to_pads as padtype_to_pads
from mpijax.spmd.constraints import with_sharding_constraint as with_sharding_constraint

def cond(pred: Any, true_fun: Any, false_fun: Any, *operands: Any, operand: Any = ...) -> Any: ...
def switch(index: Any, branches: Any, *operands: Any, operand: Any = ...) -> Any: ...
def all_gather_start(x: Any, axis_name: Any, *, axis_index_groups: Any = ..., axis: Any = ..., tiled: Any = ..., to: Any = ...) -> Any: ...
def all_to_all_start(x: Any, axis_name: Any, split_axis: Any, concat_axis: Any, *, axis_index_groups: Any = ..., tiled: Any = ...) -> Any: ...
def ppermute_start(x: Any, axis_name: Any, perm: Any) -> Any: ...
def psum_scatter_start(x: Any, axis_name: Any, *, scatter_dimension: Any = ..., axis_index_groups: Any = ..., tiled: Any = ...) -> Any: ...
def psum_start(x: Any, axis_name: Any, *, axis_index_groups: Any = ...) -> Any: ...
ragged_all_to_all_p: Any
copy_p: Any
stop_gradient_p: Any
optimization_barrier_p: Any
dce_sink_p: Any
after_all_p: Any
create_token_p: Any
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
def precv(token: Any, out_shape: Any, axis_name: Any, perm: Any) -> Any: ...
def psend(x: Any, axis_name: Any, perm: Any) -> Any: ...
def pshuffle(x: Any, axis_name: Any, perm: Any) -> Any: ...
def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = ...) -> Any: ...
psum_invariant_p: Any
psum_p: Any
def psum_scatter(x: Any, axis_name: Any, *, scatter_dimension: Any = ..., axis_index_groups: Any = ..., tiled: Any = ...) -> Any: ...
def pswapaxes(x: Any, axis_name: Any, axis: Any, *, axis_index_groups: Any = ...) -> Any: ...
def pvary(x: Any, axis_name: Any) -> Any: ...
pvary_p: Any
reduce_scatter_p: Any
cond_p: Any
scan_p: Any
while_p: Any
conv_general_dilated_p: Any
ConvGeneralDilatedDimensionNumbers: Any
def conv_general_shape_tuple(lhs_shape: Any, rhs_shape: Any, window_strides: Any, padding: Any, dimension_numbers: Any) -> Any: ...
def conv_transpose_shape_tuple(lhs_shape: Any, rhs_shape: Any, window_strides: Any, padding: Any, dimension_numbers: Any) -> Any: ...
add_p: Any
complex_p: Any
div_p: Any
max_p: Any
min_p: Any
mul_p: Any
mulhi_p: Any
neg_p: Any
nextafter_p: Any
rem_p: Any
sub_p: Any
and_p: Any
clz_p: Any
not_p: Any
or_p: Any
population_count_p: Any
shift_left_p: Any
shift_right_arithmetic_p: Any
shift_right_logical_p: Any
xor_p: Any
eq_p: Any
eq_to_p: Any
ge_p: Any
gt_p: Any
le_p: Any
le_to_p: Any
lt_p: Any
lt_to_p: Any
ne_p: Any
bitcast_convert_type_p: Any
convert_element_type_p: Any
stage_p: Any
integer_pow_p: Any
pow_p: Any
square_p: Any
clamp_p: Any
select_n_p: Any
bessel_i0e_p: Any
bessel_i1e_p: Any
digamma_p: Any
erf_inv_p: Any
erf_p: Any
erfc_p: Any
igamma_grad_a_p: Any
igamma_p: Any
igammac_p: Any
lgamma_p: Any
polygamma_p: Any
regularized_incomplete_beta_p: Any
zeta_p: Any
acos_p: Any
acosh_p: Any
asin_p: Any
asinh_p: Any
atan2_p: Any
atan_p: Any
atanh_p: Any
def cbrt(x: Any, *, accuracy: Any = ...) -> Any: ...
cbrt_p: Any
def cos(x: Any, *, accuracy: Any = ...) -> Any: ...
cos_p: Any
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
def log2(x: Any, *, accuracy: Any = ...) -> Any: ...
log_p: Any
def logistic(x: Any, *, accuracy: Any = ...) -> Any: ...
logistic_p: Any
def rsqrt(x: Any, *, accuracy: Any = ...) -> Any: ...
rsqrt_p: Any
def sin(x: Any, *, accuracy: Any = ...) -> Any: ...
sin_p: Any
sinh_p: Any
def sqrt(x: Any, *, accuracy: Any = ...) -> Any: ...
sqrt_p: Any
def tan(x: Any, *, accuracy: Any = ...) -> Any: ...
tan_p: Any
def tanh(x: Any, *, accuracy: Any = ...) -> Any: ...
tanh_p: Any
abs_p: Any
ceil_p: Any
conj_p: Any
floor_p: Any
imag_p: Any
is_finite_p: Any
real_p: Any
reduce_precision_p: Any
round_p: Any
sign_p: Any
def fft(x: Any, fft_type: Any, fft_lengths: Any) -> Any: ...
fft_p: Any
def dynamic_index_in_dim(operand: Any, index: Any, axis: Any = ..., keepdims: Any = ..., *, allow_negative_indices: Any = ...) -> Any: ...
dynamic_slice_p: Any
def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: Any, *, allow_negative_indices: Any = ...) -> Any: ...
dynamic_update_slice_p: Any
gather_p: Any
scatter_add_p: Any
scatter_max_p: Any
scatter_min_p: Any
scatter_mul_p: Any
scatter_p: Any
scatter_sub_p: Any
concatenate_p: Any
slice_p: Any
split_p: Any
linear_solve_p: Any
DotDimensionNumbers: Any
PrecisionLike: Any
def dot(lhs: Any, rhs: Any, *, dimension_numbers: Any = ..., precision: Any = ..., preferred_element_type: Any = ..., out_sharding: Any = ...) -> Any: ...
def dot_general(lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = ..., preferred_element_type: Any = ..., *, out_sharding: Any = ...) -> Any: ...
dot_general_p: Any
rng_bit_generator_p: Any
rng_uniform_p: Any
argmax_p: Any
argmin_p: Any
cumlogsumexp_p: Any
cummax_p: Any
cummin_p: Any
cumprod_p: Any
cumsum_p: Any
def reduce(operands: Any, init_values: Any, computation: Any, dimensions: Any, out_sharding: Any = ...) -> Any: ...
reduce_p: Any
reduce_and_p: Any
def reduce_max(operand: Any, axes: Any, *, out_sharding: Any = ...) -> Any: ...
reduce_max_p: Any
def reduce_min(operand: Any, axes: Any, *, out_sharding: Any = ...) -> Any: ...
reduce_min_p: Any
reduce_or_p: Any
reduce_prod_p: Any
def reduce_sum(operand: Any, axes: Any, *, out_sharding: Any = ...) -> Any: ...
reduce_sum_p: Any
reduce_xor_p: Any
def broadcasted_iota(dtype: Any, shape: Any, dimension: Any, *, out_sharding: Any = ...) -> Any: ...
def full(shape: Any, fill_value: Any, dtype: Any = ..., *, sharding: Any = ...) -> Any: ...
def full_like(x: Any, fill_value: Any, dtype: Any = ..., shape: Any = ..., sharding: Any = ...) -> Any: ...
iota_p: Any
pad_p: Any
def broadcast(operand: Any, sizes: Any, *, out_sharding: Any = ...) -> Any: ...
def broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Any, *, out_sharding: Any = ...) -> Any: ...
broadcast_in_dim_p: Any
def broadcast_to(arr: Any, shape: Any, sharding: Any = ...) -> Any: ...
def reshape(operand: Any, new_sizes: Any, dimensions: Any = ..., *, out_sharding: Any = ...) -> Any: ...
reshape_p: Any
rev_p: Any
squeeze_p: Any
transpose_p: Any
stack_p: Any
tile_p: Any
unstack_p: Any
approx_top_k_p: Any
sort_p: Any
top_k_p: Any
reduce_window_max_p: Any
reduce_window_min_p: Any
reduce_window_p: Any
reduce_window_sum_p: Any
select_and_scatter_p: Any
select_and_gather_add_p: Any
select_and_scatter_add_p: Any
def reduce_window_shape_tuple(operand_shape: Any, window_dimensions: Any, window_strides: Any, padding: Any, base_dilation: Any = ..., window_dilation: Any = ...) -> Any: ...
sharding_constraint_p: Any
device_put_p: Any
