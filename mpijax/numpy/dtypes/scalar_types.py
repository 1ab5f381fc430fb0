"""`jnp.float32` and the other scalar types: dtypes, constructors of scalars, and equal to NumPy's types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from mpijax.core import dtypes
from mpijax.numpy.creation.constructors import asarray


class ScalarMeta(type):
    """The type of `jnp.float32`. A call of `jnp.float32` makes or casts a 0-d array; NumPy reads its `dtype`."""

    dtype: np.dtype

    @property
    def __numpy_dtype__(cls) -> np.dtype:
        return cls.dtype

    def __hash__(cls) -> int:
        return hash(cls.dtype.type)

    def __eq__(cls, other: Any) -> bool:
        return cls is other or cls.dtype.type == other

    def __ne__(cls, other: Any) -> bool:
        return not cls == other

    def __call__(cls, x: Any = 0):
        return asarray(x, dtype=cls.dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __reduce_ex__(cls, protocol):
        return cls.__name__


def _scalar_type(of: type, given: str, result: str) -> ScalarMeta:
    """The dtype `of` as such a type; its docstring shows the `result` of calling it with `given`."""
    made = ScalarMeta(of.__name__, (object,), {"dtype": np.dtype(of)})
    made.__module__ = "mpijax.numpy"
    made.__doc__ = f"""The dtype {of.__name__}. Call it to convert an array, or a number to a 0-d array.

    {_example(of.__name__, given, result)}
    """
    return made


def _example(name: str, given: str, result: str) -> str:
    call = f"jnp.{name}({given})\n    Array({result}, dtype={name})"
    if name not in _WIDE:
        return f">>> {call}"
    return f"""Without `jax_enable_x64`, it becomes the 32-bit dtype, with a warning.

    >>> with mpijax.enable_x64(True):
    ...     {call}"""


_WIDE = frozenset("int64 uint64 float64 complex128".split())

# The examples: two numbers as integers, and pi as floats.
_SIGNED = "jnp.array([1.9, -1.9])", "[ 1, -1]"
_UNSIGNED = "jnp.array([1.2, 3.9])", "[1, 3]"
_COMPLEX = "2", "2.+0.j"

bool_ = _scalar_type(np.bool_, "jnp.array([0.0, 0.5])", "[False,  True]")
uint2, uint4 = _scalar_type(dtypes.uint2, *_UNSIGNED), _scalar_type(dtypes.uint4, *_UNSIGNED)
uint8, uint16, uint32, uint64 = (_scalar_type(t, *_UNSIGNED) for t in (np.uint8, np.uint16, np.uint32, np.uint64))
int2, int4 = _scalar_type(dtypes.int2, *_SIGNED), _scalar_type(dtypes.int4, *_SIGNED)
int8, int16, int32, int64 = (_scalar_type(t, *_SIGNED) for t in (np.int8, np.int16, np.int32, np.int64))
float4_e2m1fn = _scalar_type(dtypes.float4_e2m1fn, "3.14159", "3")
float6_e2m3fn = _scalar_type(dtypes.float6_e2m3fn, "3.14159", "3.25")
float6_e3m2fn = _scalar_type(dtypes.float6_e3m2fn, "3.14159", "3")
float8_e3m4 = _scalar_type(dtypes.float8_e3m4, "3.14159", "3.125")
float8_e4m3 = _scalar_type(dtypes.float8_e4m3, "3.14159", "3.25")
float8_e4m3b11fnuz = _scalar_type(dtypes.float8_e4m3b11fnuz, "3.14159", "3.25")
float8_e4m3fn = _scalar_type(dtypes.float8_e4m3fn, "3.14159", "3.25")
float8_e4m3fnuz = _scalar_type(dtypes.float8_e4m3fnuz, "3.14159", "3.25")
float8_e5m2 = _scalar_type(dtypes.float8_e5m2, "3.14159", "3")
float8_e5m2fnuz = _scalar_type(dtypes.float8_e5m2fnuz, "3.14159", "3")
float8_e8m0fnu = _scalar_type(dtypes.float8_e8m0fnu, "3.14159", "4")
int1 = _scalar_type(ml_dtypes.int1, "-1", "-1")
uint1 = _scalar_type(ml_dtypes.uint1, "1", "1")
bfloat16 = _scalar_type(dtypes.bfloat16, "3.14159", "3.14062")
float16 = _scalar_type(np.float16, "3.14159", "3.14")
float32 = single = _scalar_type(np.float32, "3.14159", "3.14159")
float64 = double = _scalar_type(np.float64, "3.14159", "3.14159")
complex64 = csingle = _scalar_type(np.complex64, *_COMPLEX)
complex128 = cdouble = _scalar_type(np.complex128, *_COMPLEX)
int_, uint, float_, complex_ = int64, uint64, float64, complex128
