"""``mpijax.dtypes``: the names of ``jax.dtypes``."""

from mpijax.core.canonical import canonicalize_dtype, scalar_type_of
from mpijax.core.dtype_kinds import bfloat16, finfo, float0, iinfo, issubdtype, itemsize_bits
from mpijax.core.extended import extended, prng_key
from mpijax.core.promotion import TypePromotionError
from mpijax.core.result_type import result_type

__all__ = [
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "result_type",
    "scalar_type_of",
]
