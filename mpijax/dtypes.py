"""``mpijax.dtypes``: the names of ``jax.dtypes``."""

from mpijax.core.dtypes.canonical import canonicalize_dtype, scalar_type_of
from mpijax.core.dtypes.extended import extended, prng_key
from mpijax.core.dtypes.kinds import bfloat16, finfo, float0, iinfo, issubdtype, itemsize_bits
from mpijax.core.dtypes.promotion import TypePromotionError
from mpijax.core.dtypes.result_type import result_type

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
