"""Types of mutable array references."""

from mpijax.core.refs import AbstractRef
from mpijax.core.refs import RefView as TransformedRef

__all__ = ["AbstractRef", "TransformedRef"]
