"""``mpijax.export``: serializes programs to bytes, for other ranks or later jobs.

    exported = export.export(jax.jit(f))(jax.ShapeDtypeStruct((8, 3), jnp.float32))
    blob = exported.serialize(vjp_order=1)
    ...
    f = export.deserialize(blob)
    y = f.call(x)

Dimensions may be symbolic (`symbolic_shape`): one program then accepts all sizes, and is specialized at each call.

The bytes contain the traced program and no Python code: loading them runs no code.
"""

from mpijax.core.shapes.dimensions import is_symbolic_dim
from mpijax.core.shapes.scope import SymbolicScope, symbolic_shape
from mpijax.export.checks import DisabledSafetyCheck, default_export_platform
from mpijax.export.exported import (
    Exported,
    deserialize,
    export,
    maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version,
)
from mpijax.export.symbolic import symbolic_args_specs, symbolic_dim_bounds
from mpijax.export.trees import register_namedtuple_serialization, register_pytree_node_serialization

__all__ = [
    "DisabledSafetyCheck",
    "Exported",
    "SymbolicScope",
    "default_export_platform",
    "deserialize",
    "export",
    "is_symbolic_dim",
    "maximum_supported_calling_convention_version",
    "minimum_supported_calling_convention_version",
    "register_namedtuple_serialization",
    "register_pytree_node_serialization",
    "symbolic_args_specs",
    "symbolic_dim_bounds",
    "symbolic_shape",
]
