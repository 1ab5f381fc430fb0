"""Calls of Python functions with side effects, from a program that several processes run on their parts of arrays.

The process of the first device calls the function on whole arrays, and sends the results to the others. So a line is
printed once, and numbers that a function reads or draws are the same on all ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.compiler.sharding import messages
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.core.base import provided
from mpijax.core.rules.lowering import HostCall
from mpijax.core.sharding.mesh import Mesh
from mpijax.ops.collectives.permutations import pbroadcast
from mpijax.ops.shapes.creation import full

_AXIS = "processes"


def called_once(p: Partitioner, eqn, inputs, avals, source) -> list | None:
    """The results of a call on whole arrays; None if each process makes it itself."""
    over, lower = p.known.over, eqn.primitive.lower
    if p.in_body or over is None or not isinstance(lower, HostCall) or not lower.once(eqn.params):
        return None
    devices = {d.process_index: d for d in reversed(over._device_assignment)}
    first = over._device_assignment[0].process_index
    if len(devices) == 1 or provided.process_index() not in devices:
        return None
    others = (d for process, d in devices.items() if process != first)
    mesh = Mesh(np.array([devices[first], *others]), (_AXIS,))

    def program(*args: Any) -> list[Any]:
        if provided.process_index() == first:
            outs = eqn.primitive.bind(*args, **eqn.params)
        else:
            outs = [full(aval.shape, 0, aval.dtype) for aval in avals]
        return [pbroadcast(out, _AXIS, 0) for out in outs]

    return messages.computed_together(p, mesh, program, inputs, eqn.primitive.name, source)
