"""Converts between extended dtypes of libraries and the arrays that store their elements. Nothing is computed."""

from __future__ import annotations

from typing import Any

from mpijax.core import dtypes
from mpijax.core.rules import shape_rules
from mpijax.core.rules.index_maps import identity
from mpijax.core.rules.lowering import Structural
from mpijax.core.rules.primitive import Primitive
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.families import ATTACHED, PerOperand
from mpijax.transforms.batching import move_dim


def _converted_tangent(g: Any, ans: Any, x: Any, **_: Any) -> Any:
    return convert_element_type(g, typeof(ans).to_tangent_aval().dtype)


def _define(name: str, **slots: Any) -> Primitive:
    def batch(axis, args, dims, **params):
        return primitive.bind(move_dim(args[0], dims[0], 0), **params), 0

    primitive: Primitive = Primitive(
        name,
        reference=lambda x, **_: x,
        lower=Structural(identity, words=True),
        jvp=ATTACHED,
        batch=batch,
        **slots,
    )
    primitive.jvp = PerOperand(_converted_tangent).attach(primitive)
    return primitive


def _to_type(x: ShapedArray, *, edtype: dtypes.ExtendedDType) -> ShapedArray:
    if not edtype.has_conversion("convert_to", x.dtype, edtype):
        raise ValueError(f"Cannot convert_element_type from {x.dtype} to {edtype}")
    words, element = edtype.physical_shape, edtype.physical_dtype
    split = x.ndim - len(words)
    if x.dtype != element or split < 0 or x.shape[split:] != words:
        raise ValueError(
            f"can only convert to extended dtype {edtype} from an array of its representation type, which has dtype "
            f"{element} and last axes {words}; got {x.str_short(True)}"
        )
    return x.update(shape=x.shape[:split], dtype=edtype, weak_type=False)


to_edtype_p: Primitive = _define(
    "to_edtype",
    type_rule=_to_type,
    transpose=lambda ct, x, *, edtype: [from_edtype_p.bind(ct, dtype=x.aval.dtype)],
    sharding=shape_rules.of_keys,
)


def _from_type(x: ShapedArray, *, dtype: Any) -> ShapedArray:
    if not x.dtype.has_conversion("convert_from", x.dtype, dtype):
        raise ValueError(f"Cannot convert_element_type from {x.dtype} to {dtype}")
    if dtype != x.dtype.physical_dtype:
        raise ValueError(
            f"can only convert from extended dtype {x.dtype} to its representation dtype "
            f"{x.dtype.physical_dtype}, got {dtype}"
        )
    return x.update(shape=x.shape + x.dtype.physical_shape, dtype=dtype)


from_edtype_p: Primitive = _define(
    "from_edtype",
    type_rule=_from_type,
    transpose=lambda ct, x, *, dtype: [to_edtype_p.bind(ct, edtype=x.aval.dtype)],
    sharding=shape_rules.of_keys,
)
