"""The communicators of groups of ranks along mesh axes; each is created once."""

from __future__ import annotations

import hashlib
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.runtime.matching import guard
from mpijax.runtime.mpi import mpi_start
from mpijax.runtime.reports.recorder import GUARD, Site, recorder

_communicators: dict[Any, Any] = {}


def communicator(mesh: Any, names: tuple[Any, ...], groups: tuple[tuple[int, ...], ...] | None = None, line: str = ""):
    """The communicator (of mpi4py) of this rank's group along mesh axes, ranked in row-major order of `names`.

    groups: subgroups of positions along the axes; ranks are numbered in the order in which their group lists them.
    Created once per mesh, axes and groups; the creation is collective over all ranks of the mesh. It raises
    MismatchError on all of them if they request different communicators. line: the user's line, for that error.
    """
    key = (mesh, names, groups)
    found = _communicators.get(key)
    if found is None and groups is not None:
        whole = communicator(mesh, names, None, line)
        here = whole.Get_rank()
        number = next(k for k, g in enumerate(groups) if here in g)
        meant = _Meant(mesh, names, groups, line)
        found = _communicators[key] = _split(whole, number, groups[number].index(here), meant)
    if found is None:
        meant = _Meant(mesh, names, None, line)
        ranks = list(dict.fromkeys(d.process_index for d in mesh.devices.flat))
        everyone, coords, sizes = _of_ranks(sorted(ranks), meant), mesh.place, tuple(mesh.processes_along.values())
        along = [mesh.axis_names.index(n) for n in names]
        if len(along) == len(sizes) and along == sorted(along) and ranks == sorted(ranks):
            found = everyone
        else:
            color = 0
            for axis, c in enumerate(coords):
                if axis not in along:
                    color = color * sizes[axis] + c
            rank = 0
            for axis in along:
                rank = rank * sizes[axis] + coords[axis]
            found = _split(everyone, color, rank, meant)
        _communicators[key] = found
    return found


def _of_ranks(ranks: list[int], meant: _Meant) -> Any:
    """The communicator of the given ranks. Other ranks take no part in its creation and may do something else."""
    world = mpi_start.world()
    if len(ranks) == world.Get_size():
        return world
    found = _communicators.get(key := tuple(ranks))
    if found is None:
        group = recorder.new_group(key)
        with recorder.operation(Site("making the communicator of a mesh", meant.line, group), GUARD):
            if guard.enabled():
                guard.agree(group, meant.digest(), str(meant), meant.line)
            found = _communicators[key] = world.Create_group(world.Get_group().Incl(ranks))
        recorder.keep(group, found)
    return found


def made() -> list[Any]:
    """The communicators of mesh axes created so far."""
    return list(_communicators.values())


def forget() -> None:
    """Drop all communicators, because the job's ranks have changed."""
    _communicators.clear()


@dataclass(frozen=True)
class _Meant:
    """The communicator to create, which ranks must agree on. line: of the first operation that needs it, or ""."""

    mesh: Any
    names: tuple[Any, ...]
    groups: tuple[tuple[int, ...], ...] | None
    line: str

    def __str__(self) -> str:
        ids = list(self.mesh.device_ids.flat)
        shown = str([int(i) for i in ids[:_IDS]])[:-1] + (", ...]" if len(ids) > _IDS else "]")
        sizes = ", ".join(f"{name!r}: {size}" for name, size in self.mesh.shape.items())
        within = "" if self.groups is None else f", in groups {str(self.groups)[:_GROUPS]}"
        return f"making the communicator of mesh axes {self.names} of a mesh ({sizes}) over devices {shown}{within}"

    def digest(self) -> bytes:
        everything = self.mesh.device_ids.tolist(), self.mesh.axis_names, self.names, self.groups
        return hashlib.blake2b(repr(everything).encode(), digest_size=16).digest()


# Maximum number of devices of a mesh, and of characters of groups, in an error.
_IDS, _GROUPS = 32, 200


def _split(comm: Any, color: int, rank: int, meant: _Meant) -> Any:
    """Splits a communicator. Its ranks first compare their requests, since different axes may give equal colours."""
    group = recorder.group(comm, mpi_start.world())
    with recorder.operation(Site(f"making the communicator of mesh axes {meant.names}", meant.line, group), GUARD):
        if group is not None and guard.enabled():
            guard.agree(group, meant.digest(), str(meant), meant.line)
        return comm.Split(color, rank)
