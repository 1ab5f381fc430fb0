"""A product with a result dtype that differs from the operands': `mul` with the parameter `out_dtype`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.dtypes import canonical
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.elementwise.binary import mul
from mpijax.ops.elementwise.convert import convert
from mpijax.ops.families import NUMERIC, batch_elementwise, broadcast_type, check_dtype
from mpijax.ops.rules import is_linear, unbroadcast
from mpijax.transforms.zeros import Zero, add_tangents


def _type(*operands: ShapedArray, out_dtype: Any) -> ShapedArray:
    for i, aval in enumerate(operands):
        check_dtype("mul", aval.dtype, NUMERIC, f" at position {i}")
    dtype = canonical.dtype(out_dtype)
    check_dtype("mul", dtype, NUMERIC, " as out_dtype")
    return ShapedArray(broadcast_type("mul", operands), dtype, all(a.weak_type for a in operands))


def _reference(x, y, *, out_dtype):
    dtype = canonical.dtype(out_dtype)
    return np.multiply(x.astype(dtype), y.astype(dtype))


def _in_dtype(x: Any, y: Any, *, out_dtype: Any) -> Any:
    return mul(convert(x, out_dtype), convert(y, out_dtype))


def _product(x: Any, y: Any, out_dtype: Any) -> Any:
    return wide_product_p.bind(x, y, out_dtype=out_dtype)


def _transpose(ct, x, y, *, out_dtype):
    del out_dtype  # cotangents have the dtypes of the operands
    if is_linear(x):
        return [unbroadcast(x.aval, _product(ct, y, x.aval.dtype)), None]
    return [None, unbroadcast(y.aval, _product(x, ct, y.aval.dtype))]


def _jvp(primals, tangents, *, out_dtype):
    x, y = primals
    out = _product(x, y, out_dtype)
    g, h = tangents
    terms = [Zero.of_primal(out) if type(g) is Zero else _product(g, y, out_dtype)]
    terms.append(Zero.of_primal(out) if type(h) is Zero else _product(x, h, out_dtype))
    return out, add_tangents(*terms)


def _batch(axis, args, dims, **params):
    return batch_elementwise(wide_product_p)(axis, args, dims, **params)


wide_product_p = Primitive(
    "mul",
    key="wide_product",
    type_rule=_type,
    reference=_reference,
    lower=Decompose(_in_dtype),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
)
