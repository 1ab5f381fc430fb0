"""`jax.numpy`: NumPy's functions on arrays that can be traced.

Names are loaded when they are first used; `_MODULES` says where each name lives.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from mpijax.faces import Face

_MODULES: dict[str, str] = {
    "ufuncs.apply": "apply_along_axis apply_over_axes",
    "ufuncs.arithmetic": """
        abs absolute divide divmod float_power floor_divide fmod gcd lcm mod positive pow power remainder sign
        true_divide""",
    "reductions.argreductions": "argmax argmin nanargmax nanargmin",
    "indexing.at": "put_along_axis",
    "ufuncs.bit_packing": "packbits unpackbits",
    "indexing.choosing": "choose compress extract piecewise",
    "ufuncs.complexes": "angle conj conjugate imag iscomplexobj isrealobj real",
    "indexing.conditions": "argwhere flatnonzero nonzero where",
    "creation.constructors": "array asarray",
    "linear_algebra.contraction": "einsum einsum_path",
    "creation.conversion": "ascontiguousarray astype copy from_dlpack frombuffer fromfile fromiter fromstring",
    "reductions.covariance": "corrcoef cov",
    "reductions.cumulative": "cumprod cumsum cumulative_prod cumulative_sum nancumprod nancumsum",
    "reductions.differences": "diff ediff1d gradient trapezoid unwrap",
    "sorting.distinct": "unique unique_all unique_counts unique_inverse unique_values",
    "ufuncs.elementwise": """
        acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh
        bitwise_count cbrt cos cosh deg2rad degrees exp exp2 expm1 fabs hypot log log10 log1p log2 rad2deg
        radians reciprocal sin sinc sinh sqrt square tan tanh""",
    "creation.fills": "empty empty_like full full_like ones ones_like zeros zeros_like",
    "ufuncs.floats": """
        around ceil clip copysign floor fmax fmin frexp heaviside ldexp modf nan_to_num nextafter rint round
        signbit spacing trunc""",
    "polynomials.convolution": "convolve correlate",
    "creation.grids": "c_ index_exp ix_ mgrid ogrid r_ s_",
    "reductions.histograms": "bincount histogram histogram2d histogram_bin_edges histogramdd",
    "indexing.take": "take take_along_axis",
    "shapes.insertion": "delete insert",
    "polynomials.interpolation": "interp",
    "sorting.partitions": "argpartition lexsort partition sort_complex",
    "polynomials.fit": "polyfit",
    "polynomials.coefficients": "poly polyadd polyder polydiv polyint polymul polysub polyval roots vander",
    "indexing.positions": "mask_indices ravel_multi_index unravel_index",
    "linear_algebra.products": "cross",
    "reductions.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
    "dtypes.queries": """
        ComplexWarning can_cast finfo get_printoptions iinfo isdtype isscalar issubdtype load printoptions
        promote_types result_type set_printoptions""",
    "shapes.join": """
        array_split block column_stack concat concatenate dsplit dstack hsplit hstack split stack unstack
        vsplit vstack""",
    "linear_algebra.linear": "dot inner kron matmul matvec outer tensordot vdot vecdot vecmat",
    "ufuncs.logic": """
        allclose array_equal array_equiv bitwise_invert bitwise_left_shift bitwise_not bitwise_right_shift
        equal greater greater_equal invert isclose iscomplex isfinite isinf isnan isneginf isposinf isreal
        left_shift less less_equal logical_not not_equal right_shift""",
    "creation.matrices": """
        diag diag_indices diag_indices_from diagflat diagonal eye identity trace tri tril tril_indices
        tril_indices_from triu triu_indices triu_indices_from""",
    "namespace_info": "__array_api_version__ __array_namespace_info__",
    "shapes.padding": "pad",
    "creation.ranges": "arange fromfunction geomspace indices linspace logspace meshgrid",
    "shapes.rearrange": "append flip fliplr flipud repeat resize roll rollaxis rot90 tile",
    "reductions.standard": "all amax amin any max min minmax prod sum",
    "dtypes.scalar_types": """
        bfloat16 bool_ cdouble complex128 complex64 complex_ csingle double float16 float32 float4_e2m1fn
        float64 float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn
        float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float_ int1 int16 int2 int32 int4 int64
        int8 int_ single uint uint1 uint16 uint2 uint32 uint4 uint64 uint8""",
    "indexing.selection": "select",
    "sorting.sets": "intersect1d isin setdiff1d setxor1d union1d",
    "shapes.reshape": """
        atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_shapes broadcast_to expand_dims
        matrix_transpose moveaxis permute_dims ravel reshape squeeze swapaxes transpose""",
    "sorting.sort": "argsort digitize searchsorted sort top_k",
    "reductions.statistics": """
        average count_nonzero mean nanmax nanmean nanmin nanprod nanstd nansum nanvar ptp std var""",
    "shapes.trimming": "trim_zeros",
    "ufuncs.ufunc_type": "frompyfunc ufunc",
    "ufuncs.ufunc_objects": """
        add bitwise_and bitwise_or bitwise_xor logaddexp logaddexp2 logical_and logical_or logical_xor maximum
        minimum multiply negative subtract""",
    "indexing.updates": "fill_diagonal place put",
    "util": "ndim shape size",
    "ufuncs.vectorization": "vectorize",
    "creation.windows": "bartlett blackman hamming hanning i0 kaiser",
}

# The names that NumPy itself provides.
_NUMPYS = frozenset(
    """
    array_repr array_str character complexfloating dtype e euler_gamma flexible floating generic inexact inf
    integer iterable nan newaxis number object_ pi save savez signedinteger unsignedinteger""".split()
)

_HOME: dict[str, str] = {name: module for module, names in _MODULES.items() for name in names.split()}

_SUBMODULES = frozenset({"fft", "linalg"})

__all__ = sorted([*_HOME, *_NUMPYS, *_SUBMODULES, "bool", "ndarray"])  # noqa: PLE0605


def _find(name: str) -> Any:
    module = _HOME.get(name)
    if module is not None:
        return getattr(importlib.import_module(f"mpijax.numpy.{module}"), name)
    if name in _SUBMODULES:
        return importlib.import_module(f"mpijax.numpy.{name}")
    if name in _NUMPYS:
        return getattr(importlib.import_module("numpy"), name)
    if name == "ndarray":
        return importlib.import_module("mpijax.core.types.array_api").Array
    if name == "bool":
        return importlib.import_module("mpijax.numpy.dtypes.scalar_types").bool_
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    value = globals()[name] = _find(name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = Face

# A program that imports this module is about to compute. The modules of every first operation (the primitives, the
# compiler, the methods of arrays, the elementwise functions) are loaded here, so the first call does not wait
# for it; LLVM, SciPy and MPI still wait for their first use.
importlib.import_module("mpijax.runtime.program.engine")
for _module in (
    "arrays.methods", "ufuncs.elementwise", "ufuncs.arithmetic", "ufuncs.ufunc_objects", "reductions.standard",
    "reductions.statistics", "shapes.reshape", "shapes.join",
):  # fmt: skip
    importlib.import_module(f"mpijax.numpy.{_module}")
