"""``mpijax.interpreters``: the rules of primitives, under the names of ``jax.interpreters``."""

from mpijax import missing as _missing
from mpijax.interpreters import ad as ad
from mpijax.interpreters import batching as batching
from mpijax.interpreters import mlir as mlir
from mpijax.interpreters import partial_eval as partial_eval
from mpijax.interpreters import xla as xla

__all__ = ["ad", "batching", "mlir", "partial_eval", "xla"]


def __getattr__(name: str):
    raise _missing.error(__name__, name)
