"""The dtypes as `jnp.float32` and its kin: dtypes, constructors of scalars, and equal to NumPy's types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from mpijax.core import dtypes


class ScalarMeta(type):
    """The type of `jnp.float32`: calling that makes a 0-d array or casts one, NumPy reads its `dtype`."""

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
        from mpijax.numpy.constructors import asarray

        return asarray(x, dtype=cls.dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.dtype.type)

    def __reduce_ex__(cls, protocol):
        return cls.__name__


def _scalar_type(of: type) -> ScalarMeta:
    made = ScalarMeta(of.__name__, (object,), {"dtype": np.dtype(of)})
    made.__module__ = "mpijax.numpy"
    made.__doc__ = f"The dtype {of.__name__}; calling it makes a 0-d array of it."
    return made


bool_ = _scalar_type(np.bool_)
uint2, uint4 = _scalar_type(dtypes.uint2), _scalar_type(dtypes.uint4)
uint8, uint16, uint32, uint64 = map(_scalar_type, (np.uint8, np.uint16, np.uint32, np.uint64))
int2, int4 = _scalar_type(dtypes.int2), _scalar_type(dtypes.int4)
int8, int16, int32, int64 = map(_scalar_type, (np.int8, np.int16, np.int32, np.int64))
float4_e2m1fn = _scalar_type(dtypes.float4_e2m1fn)
float6_e2m3fn = _scalar_type(dtypes.float6_e2m3fn)
float6_e3m2fn = _scalar_type(dtypes.float6_e3m2fn)
float8_e3m4 = _scalar_type(dtypes.float8_e3m4)
float8_e4m3 = _scalar_type(dtypes.float8_e4m3)
float8_e4m3b11fnuz = _scalar_type(dtypes.float8_e4m3b11fnuz)
float8_e4m3fn = _scalar_type(dtypes.float8_e4m3fn)
float8_e4m3fnuz = _scalar_type(dtypes.float8_e4m3fnuz)
float8_e5m2 = _scalar_type(dtypes.float8_e5m2)
float8_e5m2fnuz = _scalar_type(dtypes.float8_e5m2fnuz)
float8_e8m0fnu = _scalar_type(dtypes.float8_e8m0fnu)
if hasattr(ml_dtypes, "int1"):  # came with ml_dtypes 0.6
    int1, uint1 = _scalar_type(ml_dtypes.int1), _scalar_type(ml_dtypes.uint1)
bfloat16, float16 = _scalar_type(dtypes.bfloat16), _scalar_type(np.float16)
float32 = single = _scalar_type(np.float32)
float64 = double = _scalar_type(np.float64)
complex64 = csingle = _scalar_type(np.complex64)
complex128 = cdouble = _scalar_type(np.complex128)
int_, uint, float_, complex_ = int64, uint64, float64, complex128
