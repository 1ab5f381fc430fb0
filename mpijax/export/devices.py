"""An exported program on other devices than those it was exported for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core.jaxpr import ClosedJaxpr, Eqn, Literal
from mpijax.core.lowering import Layout
from mpijax.core.memo import memo_on_jaxpr
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.trace import Tracer


def devices_of(leaves: Sequence[Any]) -> tuple | None:
    """The devices that arguments are laid out over; None where no argument says it."""
    known = (x.concrete() if isinstance(x, Tracer) else x for x in leaves)
    held = (getattr(x, "_sharding", None) for x in known)
    return next((layout._device_assignment for layout in held if layout is not None), None)


@memo_on_jaxpr
def over_devices(closed: ClosedJaxpr, devices: tuple) -> ClosedJaxpr:
    """The program whose meshes of as many devices are over these; layouts over one device say nothing over several."""
    jaxpr = closed.jaxpr
    instead: dict[Any, Any] = {}
    eqns = []

    def atom(v: Any) -> Any:
        return v if type(v) is Literal else instead.get(v, v)

    for eqn in jaxpr.eqns:
        if _is_idle(eqn, devices):
            instead[eqn.outvars[0]] = atom(eqn.invars[0])
        else:
            params = {name: _value(x, devices) for name, x in eqn.params.items()}
            eqns.append(eqn.replace(invars=[*map(atom, eqn.invars)], params=params))
    return ClosedJaxpr(jaxpr.replace(eqns=eqns, outvars=[*map(atom, jaxpr.outvars)]), closed.consts)


def _is_idle(eqn: Eqn, devices: tuple) -> bool:
    """Whether an operation lays an array out over one device, and there are several."""
    lower = eqn.primitive.lower
    if not isinstance(lower, Layout) or lower.kind != "constraint" or len(devices) == 1:
        return False
    mesh = getattr(eqn.params[lower.param], "mesh", None)
    return mesh is not None and mesh.size == 1


def _value(x: Any, devices: tuple) -> Any:
    """A parameter over the devices."""
    if type(x) is Mesh:
        return x.update(np.reshape(devices, x.axis_sizes)) if x.size == len(devices) else x
    if type(x) is NamedSharding:
        return x.update(mesh=_value(x.mesh, devices))
    if type(x) is ClosedJaxpr:
        return over_devices(x, devices)
    return type(x)(_value(v, devices) for v in x) if type(x) in (tuple, list) else x
