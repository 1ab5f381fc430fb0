"""What all of `mpijax.numpy` does with its arguments, gathered from the files that define it by topic."""

# ruff: noqa: F401
from mpijax.numpy.arguments import (
    FLOAT0,
    as_array,
    canonical_axes,
    canonical_axis,
    canonical_shape,
    check_arraylike,
    check_arraylike_or_none,
    check_no_float0s,
    check_no_mixed_keys,
    ensure_arraylike,
    ensure_arraylike_tuple,
    index_tuple,
    is_arraylike,
    optional_axes,
    static,
    static_int,
    unwrap,
)
from mpijax.numpy.broadcasting import (
    _where,
    broadcast_to,
    broadcast_together,
    device_sharding,
    ndim,
    place,
    shape,
    size,
)
from mpijax.numpy.casts import (
    constant,
    convert,
    dtype_of,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    number_beside,
    requested_dtype,
    scalar_like,
    shape_of,
    strong_like,
    zero_like,
)
from mpijax.numpy.promotion import (
    promote_args,
    promote_args_complex,
    promote_args_inexact,
    promote_args_numeric,
    promote_dtypes,
    promote_dtypes_complex,
    promote_dtypes_inexact,
    promote_dtypes_numeric,
    promote_pair,
    promote_shapes,
)
