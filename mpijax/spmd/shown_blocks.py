"""The text of a value inside a `shard_map` that runs without `jit`: its block on every device, as in JAX.

The body is only traced when Python prints the value. So the operations traced so far run for the text alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core.programs.jaxpr import Eqn, Jaxpr, Literal, eval_jaxpr
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.tracing.jaxpr_trace import JaxprTrace, JitTracer
from mpijax.core.tracing.trace import outside
from mpijax.core.types.effects import CommunicationEffect, NamedAxisEffect
from mpijax.ops.shapes.reshape import expand_dims


def text_of(mesh: Mesh, run: Callable[[Callable], Any], tracer: JitTracer) -> str | None:
    """One paragraph for each device of the mesh; None if the value's operations have side effects.

    run: calls a function of the shards on every device, and returns its results along a new first axis.
    """
    trace: JaxprTrace = tracer._trace  # type: ignore[assignment]
    program = _program_of(trace, tracer)
    if program is None:
        return None
    with outside():
        blocks = np.asarray(run(lambda *shards: expand_dims(eval_jaxpr(program, trace.constvals, *shards)[0], (0,))))
    names = f"({', '.join(map(str, mesh.axis_names))},)"
    return "\n".join(
        f"On {device} at mesh coordinates {names} = {place}:\n{block}\n"
        for (place, device), block in zip(np.ndenumerate(mesh.devices), blocks, strict=True)
    )


def _program_of(trace: JaxprTrace, tracer: JitTracer) -> Jaxpr | None:
    """The operations that `tracer` needs, as a program of the arguments of the trace."""
    wanted, eqns = {tracer.atom}, []
    for eqn in reversed(trace.eqns):
        if not wanted.isdisjoint(eqn.outvars):
            eqns.append(eqn)
            wanted.update(v for v in eqn.invars if type(v) is not Literal)
    if not all(map(_is_pure, eqns)) or trace.refs or trace.finished or not isinstance(tracer.dtype, np.dtype):
        return None
    return Jaxpr(list(trace.constvars), trace.invars, [tracer.atom], eqns[::-1])


def _is_pure(eqn: Eqn) -> bool:
    """Whether only the text changes if the operation runs. Collectives along the mesh are; messages of MPI are not."""
    kinds = set(map(type, eqn.effects))
    return kinds <= {NamedAxisEffect} or kinds == {NamedAxisEffect, CommunicationEffect}
