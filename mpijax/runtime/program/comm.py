"""Communication steps as instructions of the executor: which communicator, which datatype, how many elements."""

from __future__ import annotations

import hashlib
import math
import zlib
from dataclasses import dataclass, replace
from typing import Any

from mpijax.compiler.steps.plan import CommStep
from mpijax.core.source import FirstCall
from mpijax.ops.rank_messages import SHOWN
from mpijax.runtime.machine import program
from mpijax.runtime.matching import guard
from mpijax.runtime.mpi import mpi_start
from mpijax.runtime.program.rank_comm import per_rank
from mpijax.runtime.reports.recorder import GUARD, MESSAGES, VARYING, Site, recorder

_communicators: dict[Any, Any] = {}

# What MPI can do beside computation, and bytes from which its non-blocking form costs nothing.
EARLY = frozenset(("allreduce", "reduce_scatter", "allgather", "alltoall", "bcast", "sendrecv"))
EARLY_ABOVE = 1 << 16


def communicator(mesh: Any, names: tuple[Any, ...], groups: tuple[tuple[int, ...], ...] | None = None, line: str = ""):
    """The communicator (of mpi4py) of this rank's group along mesh axes, ranked in row-major order of `names`.

    groups: positions along the axes, divided once more; ranked in the order in which a group lists them.
    Made once per mesh, axes and groups; the first time is collective over all ranks of the job. Raises MismatchError on
    all of them then if they mean different ones. line: the user's, for that error.
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
        world = mpi_start.world()
        meant = _Meant(mesh, names, None, line)
        ids = mesh.device_ids
        coords = mesh.coordinates()
        along = [mesh.axis_names.index(n) for n in names]
        sizes = ids.shape
        if len(along) == len(sizes) and along == sorted(along) and list(ids.flat) == list(range(world.Get_size())):
            found = world
        elif coords is None:
            found = _split(world, mpi_start.start().MPI.UNDEFINED, 0, meant)
        else:
            color = 0
            for axis, c in enumerate(coords):
                if axis not in along:
                    color = color * sizes[axis] + c
            rank = 0
            for axis in along:
                rank = rank * sizes[axis] + coords[axis]
            found = _split(world, color, rank, meant)
        _communicators[key] = found
    return found


@dataclass(frozen=True)
class _Meant:
    """Which communicator is to be made, on all ranks the same. line: of the operation that needs it first, or ""."""

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


# Devices of a mesh, and characters of groups, that an error shows.
_IDS, _GROUPS = 32, 200


def _split(comm: Any, color: int, rank: int, meant: _Meant) -> Any:
    """The part of a communicator. All of its ranks compare what they mean: colours of different axes may be equal."""
    group = recorder.group(comm, mpi_start.world())
    with recorder.operation(Site(f"making the communicator of mesh axes {meant.names}", meant.line, group), GUARD):
        if group is not None and guard.enabled():
            guard.agree(group, meant.digest(), str(meant), meant.line)
        return comm.Split(color, rank)


def instructions_for(step: CommStep) -> list[Any]:
    """The instructions of one communication step. Starts MPI."""
    from mpijax._ext import mpi  # needs MPI to be running

    mpi_start.start()
    line = str(step.source) if step.source.file else step.label
    if "comm" in step.params:
        comm = step.params["comm"].value or mpi_start.world()
        found = per_rank(step, mpi, line)
    else:
        comm = communicator(step.params["mesh"], step.params["names"], step.params.get("axis_index_groups"), line)
        found = _over_mesh(step, mpi, comm, line)
    return _labelled(found, step, recorder.group(comm, mpi_start.world(), "comm" in step.params))


def _labelled(instructions: list[Any], step: CommStep, group: Any) -> list[Any]:
    """The instructions with what reports and the matching guard say of them."""
    nbytes = sum(_count(view) * view[2].itemsize for view in step.inputs)
    messages = MESSAGES if "comm" in step.params else ()  # along a mesh axis all ranks exchange

    def labelled(i: program.Comm) -> program.Comm:
        label = _label(step, i.op)
        dtypes = _dtypes(step) if i.op in messages else {}
        return replace(
            i, label=label, what=_what(label, i.op), nbytes=nbytes, group=group,
            matched=i.op not in messages, early=_early(step, i.op, nbytes), goes_on=step.goes_on,
            role=step.params.get("role", ""), eager=isinstance(step.source, FirstCall),
            senddtype=dtypes.get("senddtype", i.senddtype), recvdtype=dtypes.get("recvdtype", i.recvdtype),
        )  # fmt: skip

    return [labelled(i) if isinstance(i, program.Comm) else i for i in instructions]


def _early(step: CommStep, op: str, nbytes: int) -> bool:
    """Whether an operation takes MPI's non-blocking form, which matches no blocking one on another rank.

    So it does not depend on whether this rank has something to do meanwhile. Sums that round do in any case: the two
    forms may add in different orders. Messages match in any form; the non-blocking one fills in no status.
    """
    if step.posted or (step.goes_on and op in MESSAGES):
        return True
    if op not in EARLY or nbytes < EARLY_ABOVE or step.params.get("status") is not None:
        return False
    rounds = op in ("allreduce", "reduce_scatter") and step.inputs[0][2].kind not in "biu"
    return rounds or mpi_start.start().overlaps


def _label(step: CommStep, op: str) -> str:
    """What the ranks must agree on: ``allreduce float32[4] sum``. Sizes that differ between ranks are left out."""
    params = step.params
    words = [op if "comm" in params else step.kind]
    words += [SHOWN[params["role"]]] if params.get("role") in SHOWN else []
    views = step.outputs if op in ("scatter", "recv") else step.inputs
    for _, shape, dtype in views[:1]:
        words.append(str(dtype) if op in VARYING else f"{dtype}[{','.join(map(str, shape))}]")
    operation = params.get("op")
    words += [] if operation is None else [getattr(operation, "name", str(operation)).lower()]
    for name in ("counts", "root", "source", "dest", "perm"):
        if params.get(name) is not None:
            value = "any" if name == "source" and _is_any(params[name]) else str(params[name])
            words.append(f"{name}={value if len(value) < 80 else hashlib.sha256(value.encode()).hexdigest()[:12]}")
    if "names" in params:
        words.append(f"over {','.join(map(str, params['names']))}")
    if groups := params.get("axis_index_groups"):
        words.append(f"in groups {_short(groups)}")
    return " ".join(words)


def _short(value: Any) -> str:
    """Its text, without spaces, or what stands for a long one."""
    text = str(value).replace(" ", "")
    return text if len(text) < 80 else hashlib.sha256(text.encode()).hexdigest()[:12]


def _is_any(source: int) -> bool:
    return source == mpi_start.start().MPI.ANY_SOURCE


def _what(label: str, op: str) -> int:
    """A number of what the ranks must agree on, which is the same on all; 0 where they need not."""
    return zlib.crc32(label.encode()) if op not in MESSAGES and guard.enabled() else 0


def _dtypes(step: CommStep) -> dict[str, str]:
    """Of a message, what is sent and what is received."""
    views = {"senddtype": step.inputs, "recvdtype": step.outputs}
    return {name: str(found[0][2]) for name, found in views.items() if found}


def _count(view) -> int:
    return math.prod(view[1])


def _at(view) -> program.Ref:
    return program.Ref(view[0].buffer, view[0].offset)


def _over_mesh(step: CommStep, mpi, comm, line: str) -> list[Any]:
    handle = mpi.handle(comm)
    [source, *counts], [target] = step.inputs, step.outputs
    if step.kind == "alltoallv":
        return [_counted(mpi, comm, handle, source, target, counts, line)]
    if step.kind.startswith("allreduce"):
        return [_allreduce(mpi, handle, step.kind.split("_")[1], source, target, line)]
    nbytes = _count(source) * source[2].itemsize
    kind = mpi.move_type()
    if step.kind in ("allgather", "alltoall"):
        # Counts of one rank's block.
        block = nbytes if step.kind == "allgather" else nbytes // comm.Get_size()
        return [program.Comm(step.kind, handle, _at(source), _at(target), block, block, kind, kind, source_line=line)]
    if step.kind == "reduce_scatter":
        datatype, operation = mpi.reduction("sum", source[2])
        n = _count(target)
        return [program.Comm(
            "reduce_scatter", handle, _at(source), _at(target), n, n, datatype, datatype, operation, source_line=line
        )]  # fmt: skip
    if step.kind == "broadcast":
        # In place: every rank starts from a copy of its own value.
        return [
            program.Copy(_at(target), _at(source), nbytes),
            program.Comm("bcast", handle, _at(target), _at(target), nbytes, nbytes, kind, kind,
                         root=step.params["source"], source_line=line),
        ]  # fmt: skip
    return _permute(step, mpi, comm, handle, source, target, nbytes, line)


def _counted(mpi, comm, handle, source, target, counts, line: str):
    """An alltoallv of rows, which reads its counts when it runs."""
    kind, size = mpi.move_type(), math.prod(source[1][1:]) * source[2].itemsize
    sent, received = (
        program.Rows(_at(c), comm.Get_size(), comm.Get_rank(), view[1][0], -1, size)
        for c, view in zip(counts, (source, target), strict=True)
    )
    return program.Comm(
        "alltoallv", handle, _at(source), _at(target), sendtype=kind, recvtype=kind, sendrows=sent, recvrows=received,
        source_line=line,
    )  # fmt: skip


def _allreduce(mpi, handle, op, source, target, line: str):
    datatype, operation = mpi.reduction(op, source[2])
    n = _count(source)
    return program.Comm(
        "allreduce", handle, _at(source), _at(target), n, n, datatype, datatype, operation, source_line=line
    )


def _permute(step: CommStep, mpi, comm, handle, source, target, nbytes: int, line: str) -> list[Any]:
    """One sendrecv; a rank nobody sends to starts from zeros and receives from nobody."""
    nobody = mpi_start.start().MPI.PROC_NULL
    rank = comm.Get_rank()
    goes_to = dict(step.params["perm"]).get(rank, nobody)
    comes_from = {b: a for a, b in step.params["perm"]}.get(rank, nobody)
    out: list[Any] = []
    if comes_from == nobody:
        out.append(program.Fill(_at(target), nbytes, b"\0"))
    kind = mpi.move_type()
    out.append(
        program.Comm(
            "sendrecv",
            handle,
            _at(source),
            _at(target),
            nbytes,
            nbytes,
            kind,
            kind,
            source=comes_from,
            dest=goes_to,
            source_line=line,
        )  # fmt: skip
    )
    return out
