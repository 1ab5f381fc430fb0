"""Moves an exported program to other devices than those it was exported for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core.base.any_depth import any_depth
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Literal, subjaxprs
from mpijax.core.rules.lowering import Reshard, ReshardKind
from mpijax.core.sharding.abstract_mesh import AbstractMesh
from mpijax.core.sharding.context import context_mesh
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.tracing.tracer import Tracer


def devices_of(leaves: Sequence[Any]) -> tuple | None:
    """The devices of the arguments' shardings, or else of the mesh in context; None if there are none."""
    known = (x.concrete() if isinstance(x, Tracer) else x for x in leaves)
    held = (getattr(x, "_sharding", None) for x in known)
    found = next((sharding._device_assignment for sharding in held if sharding is not None), None)
    mesh = context_mesh()
    return tuple(mesh.devices.flat) if found is None and mesh is not None else found


@any_depth
def meshes_of_shardings(jaxpr: Jaxpr) -> set[Mesh | AbstractMesh]:
    """The meshes of all shardings in a program."""
    found: set[Mesh | AbstractMesh] = set()
    for eqn in jaxpr.eqns:
        found |= {x.mesh for x in eqn.params.values() if type(x) is NamedSharding}
        found = found.union(*map(meshes_of_shardings, subjaxprs(eqn.params)))
    return found


# Stands for the devices of arguments that are known when the enclosing program is compiled.
LATER = ()


def sharding_on(sharding: Any, devices: tuple) -> NamedSharding | None:
    """An argument's sharding moved to these devices; None if its mesh has another number of devices."""
    if sharding is None or (devices and sharding.mesh.size != len(devices)):
        return None
    return sharding.update(mesh=_mesh_over(sharding.mesh, devices))


@memo_on_jaxpr
def over_devices(closed: ClosedJaxpr, devices: tuple) -> ClosedJaxpr:
    """The program with all meshes of the same size moved to these devices. Drops constraints to one device."""
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
    """Whether an operation constrains an array to one device, although there are several."""
    lower = eqn.primitive.lower
    if not isinstance(lower, Reshard) or lower.kind is not ReshardKind.CONSTRAINT or len(devices) < 2:
        return False
    mesh = getattr(eqn.params[lower.param], "mesh", None)
    return mesh is not None and mesh.size == 1


def _value(x: Any, devices: tuple) -> Any:
    """A parameter moved to the devices."""
    if type(x) is Mesh:
        return _mesh(x, devices)
    if type(x) is NamedSharding:
        return x.update(mesh=_mesh(x.mesh, devices))
    if type(x) is ClosedJaxpr:
        return over_devices(x, devices)
    return type(x)(_value(v, devices) for v in x) if type(x) in (tuple, list) else x


def _mesh(mesh: Any, devices: tuple) -> Any:
    """The mesh moved to the devices if its size matches. Meshes of Explicit types have no devices, and stay."""
    of_types = type(mesh) is AbstractMesh and mesh.explicit_axes
    return mesh if (devices and mesh.size != len(devices)) or of_types else _mesh_over(mesh, devices)


def _mesh_over(mesh: Any, devices: tuple) -> Any:
    if not devices:
        return mesh.standing_in() if type(mesh) is Mesh else mesh
    return Mesh(np.reshape(devices, mesh.axis_sizes), mesh.axis_names, mesh.axis_types)
