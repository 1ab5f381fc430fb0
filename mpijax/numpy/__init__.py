"""`jax.numpy`: NumPy's functions on arrays that can be traced.

Names are loaded when they are first used; `_MODULES` says where each name lives.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES: dict[str, str] = {
    "apply": "apply_along_axis apply_over_axes",
    "arithmetic": """
        abs absolute divide divmod float_power floor_divide fmod gcd lcm mod positive pow power remainder sign
        true_divide""",
    "argreductions": "argmax argmin nanargmax nanargmin",
    "at": "put_along_axis",
    "bit_packing": "packbits unpackbits",
    "choosing": "choose compress extract piecewise",
    "complexes": "angle conj conjugate imag iscomplexobj isrealobj real",
    "conditions": "argwhere flatnonzero nonzero where",
    "constructors": "array asarray",
    "contraction": "einsum einsum_path",
    "conversion": "ascontiguousarray astype copy from_dlpack frombuffer fromfile fromiter fromstring",
    "covariance": "corrcoef cov",
    "cumulative": "cumprod cumsum cumulative_prod cumulative_sum nancumprod nancumsum",
    "differences": "diff ediff1d gradient trapezoid unwrap",
    "distinct": "unique unique_all unique_counts unique_inverse unique_values",
    "elementwise": """
        acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh
        bitwise_count cbrt cos cosh deg2rad degrees exp exp2 expm1 fabs hypot log log10 log1p log2 rad2deg
        radians reciprocal sin sinc sinh sqrt square tan tanh""",
    "fills": "empty empty_like full full_like ones ones_like zeros zeros_like",
    "floats": """
        around ceil clip copysign floor fmax fmin frexp heaviside ldexp modf nan_to_num nextafter rint round
        signbit spacing trunc""",
    "convolution": "convolve correlate",
    "grids": "c_ index_exp ix_ mgrid ogrid r_ s_",
    "histograms": "bincount histogram histogram2d histogram_bin_edges histogramdd",
    "indexing": "take take_along_axis",
    "insertion": "delete insert",
    "interpolation": "interp",
    "partitions": "argpartition lexsort partition sort_complex",
    "polynomial_fit": "polyfit",
    "polynomials": "poly polyadd polyder polydiv polyint polymul polysub polyval roots vander",
    "positions": "mask_indices ravel_multi_index unravel_index",
    "products": "cross",
    "quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
    "queries": """
        ComplexWarning can_cast finfo get_printoptions iinfo isdtype isscalar issubdtype load printoptions
        promote_types result_type set_printoptions""",
    "join": """
        array_split block column_stack concat concatenate dsplit dstack hsplit hstack split stack unstack
        vsplit vstack""",
    "linear": "dot inner kron matmul matvec outer tensordot vdot vecdot vecmat",
    "logic": """
        allclose array_equal array_equiv bitwise_invert bitwise_left_shift bitwise_not bitwise_right_shift
        equal greater greater_equal invert isclose iscomplex isfinite isinf isnan isneginf isposinf isreal
        left_shift less less_equal logical_not not_equal right_shift""",
    "matrices": """
        diag diag_indices diag_indices_from diagflat diagonal eye identity trace tri tril tril_indices
        tril_indices_from triu triu_indices triu_indices_from""",
    "namespace_info": "__array_api_version__ __array_namespace_info__",
    "padding": "pad",
    "ranges": "arange fromfunction geomspace indices linspace logspace meshgrid",
    "rearrange": "append flip fliplr flipud repeat resize roll rollaxis rot90 tile",
    "reductions": "all amax amin any max min minmax prod sum",
    "scalar_types": """
        bfloat16 bool_ cdouble complex128 complex64 complex_ csingle double float16 float32 float4_e2m1fn
        float64 float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn
        float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float_ int1 int16 int2 int32 int4 int64
        int8 int_ single uint uint1 uint16 uint2 uint32 uint4 uint64 uint8""",
    "selection": "select",
    "sets": "intersect1d isin setdiff1d setxor1d union1d",
    "shapes": """
        atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_shapes broadcast_to expand_dims
        matrix_transpose moveaxis permute_dims ravel reshape squeeze swapaxes transpose""",
    "sorting": "argsort digitize searchsorted sort top_k",
    "statistics": """
        average count_nonzero mean nanmax nanmean nanmin nanprod nanstd nansum nanvar ptp std var""",
    "trimming": "trim_zeros",
    "ufunc_type": "frompyfunc ufunc",
    "ufunc_objects": """
        add bitwise_and bitwise_or bitwise_xor logaddexp logaddexp2 logical_and logical_or logical_xor maximum
        minimum multiply negative subtract""",
    "updates": "fill_diagonal place put",
    "util": "ndim shape size",
    "vectorization": "vectorize",
    "windows": "bartlett blackman hamming hanning i0 kaiser",
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
        return importlib.import_module("mpijax.core.array_api").Array
    if name == "bool":
        return importlib.import_module("mpijax.numpy.scalar_types").bool_
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    value = globals()[name] = _find(name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# A program that imports this module is about to compute. The modules of every first operation (the primitives, the
# compiler, the methods of arrays, the elementwise functions) are loaded here, so the first call does not wait
# for it; LLVM, SciPy and MPI still wait for their first use.
importlib.import_module("mpijax.runtime.program.engine")
for _module in "array_methods elementwise arithmetic ufunc_objects reductions statistics shapes join".split():
    importlib.import_module(f"mpijax.numpy.{_module}")
