"""``mpijax.extend.keys``: what a primitive does with PRNG keys, for the check that no key is used twice.

A primitive's slot `keys` is a `Signature`, or a function of an equation that returns one. Without it, the primitive
uses up all keys that it gets. `SAME` hands its key on, `NEW` makes a new key, `NOTHING` uses none, `DRAW` uses one up.
"""

from mpijax import missing as _missing
from mpijax.transforms.key_reuse import DRAW, NEW, NOTHING, SAME, Signature

__all__ = ["DRAW", "NEW", "NOTHING", "SAME", "Signature"]


def __getattr__(name: str):
    raise _missing.error(__name__, name)
