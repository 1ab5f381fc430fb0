"""``mpijax.extend.keys``: what a primitive does with PRNG keys, for the key-reuse check.

A primitive's slot `keys` is a `Signature`, or a function of an equation that returns one. By default, a primitive
consumes all keys that it gets. `SAME` passes its key on, `NEW` makes a new key, `NOTHING` uses none, `DRAW` consumes
one.
"""

from mpijax import missing as _missing
from mpijax.transforms.key_reuse import DRAW, NEW, NOTHING, SAME, Signature

__all__ = ["DRAW", "NEW", "NOTHING", "SAME", "Signature"]


def __getattr__(name: str):
    raise _missing.error(__name__, name)
