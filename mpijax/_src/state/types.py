"""Types of mutable array references."""

from mpijax.core.tracing.refs import AbstractRef
from mpijax.core.tracing.refs import RefView as TransformedRef

__all__ = ["AbstractRef", "TransformedRef"]
