"""Meshes, and that of `with mesh:`."""

import numpy as np

from mpijax.core.base import config
from mpijax.core.sharding.abstract_mesh import AbstractMesh, AxisType
from mpijax.core.sharding.context import get_abstract_mesh, use_abstract_mesh
from mpijax.core.sharding.mesh import Mesh, set_mesh
from mpijax.sharding import get_mesh as get_concrete_mesh

__all__ = [
    "AbstractMesh",
    "AxisType",
    "Mesh",
    "get_abstract_mesh",
    "get_concrete_mesh",
    "set_mesh",
    "thread_resources",
    "use_abstract_mesh",
]


class _Environment:
    @property
    def physical_mesh(self) -> Mesh:
        """The mesh of the enclosing `with mesh:`; one without axes if there is none."""
        entered = config.entered_mesh.value
        return Mesh(np.empty((), object), ()) if entered is None else entered


class _ThreadResources:
    env = _Environment()


thread_resources = _ThreadResources()
