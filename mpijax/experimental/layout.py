"""``mpijax.experimental.layout``: how arrays lie in memory and over devices."""

from mpijax import missing as _missing
from mpijax.core.sharding.format import Format, Layout

__all__ = ["Format", "Layout"]


def __getattr__(name: str):
    raise _missing.error(__name__, name)
