"""``mpijax.checkpoint``: JAX's function of that name, which also has functions to save and restore pytrees of arrays.

``jax.checkpoint`` is a function (it recomputes values instead of keeping them). Here it also has the attributes `save`,
`restore`, `Checkpointer`, ..., and this module is the same object, so that both of

    mpijax.checkpoint.save(path, state)
    from mpijax.checkpoint import Checkpointer, restore, save

work, as does all that libraries do with ``jax.checkpoint``.
"""

import sys as _sys

from mpijax.checkpointing.errors import CheckpointError, CheckpointWarning
from mpijax.checkpointing.restoring import restore
from mpijax.checkpointing.saving import save
from mpijax.distributed.checkpointer import Checkpointer
from mpijax.transforms.checkpoint import checkpoint

__all__ = ["CheckpointError", "CheckpointWarning", "Checkpointer", "checkpoint", "restore", "save"]

vars(checkpoint).update({name: globals()[name] for name in __all__}, __all__=__all__)
_sys.modules[__name__] = checkpoint  # type: ignore[assignment]
