"""One rank of ``mpijax predict``: runs the program as one of many ranks; the others are treated as copies of this one.

The arguments are SETTINGS (JSON) and the program's command line. Computation runs for real, on this rank's part.
Exchanges do not run: their results are filled with this rank's own values, and the `Clock` adds their cost from the
model. The results are written to the file named in SETTINGS.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from mpijax.aliasing import program
from mpijax.cli.loggp import Cost, LogGP, Network, RankGroup
from mpijax.compiler.steps.instructions import Communicate, Finish, Operand, PythonCall, mapped
from mpijax.compiler.steps.plan import ProgramPlan
from mpijax.core.base import provided
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import UNKNOWN
from mpijax.core.rules.lowering import Exchange, OverRanks
from mpijax.runtime.mpi import mpi_start
from mpijax.runtime.program import loader
from mpijax.runtime.program.explain import explanation
from mpijax.transforms.jit import jit

# The code that Python runs. It is not a module, because the program replaces the module `__main__`.
STARTER = "from mpijax.cli.predicted import main; raise SystemExit(main())"
_CALIBRATION = 2000


class _World:
    """The communicator of all ranks. Python values come back as if every rank had sent the same."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def allgather(self, value: Any) -> list[Any]:
        return [value] * self.size

    def bcast(self, value: Any, root: int = 0) -> Any:
        return value

    def Barrier(self) -> None:
        return None

    def Iprobe(self, *_: Any) -> bool:
        return False

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"mpijax predict runs some of the ranks only, so the program cannot use {name}. Use meshes of "
            "mpijax.devices(), and mpijax.mpi without comm=, or measure with mpijax run."
        )


@dataclass
class _PredictedExchange:
    """An exchange of a program: its cost, and how often it ran."""

    line: str
    operation: str
    nbytes: int
    cost: Cost
    times: int = 0


@dataclass
class _PredictedProgram:
    """A compiled program. runs: [computing, sending, waiting] of each run, in seconds."""

    name: str
    facts: dict[str, Any]
    runs: list[list[float]] = field(default_factory=list)
    exchanges: list[_PredictedExchange] = field(default_factory=list)


class Clock:
    """The time of this rank's programs: computation by wall clock, exchanges by the model."""

    def __init__(self) -> None:
        self.running: list[_PredictedProgram] = []
        self.pending: list[float] = []  # end times of exchanges that overlap with computation
        self.plain = 0.0  # seconds of calling one of the functions below from a program
        self.overhead = 0.0  # the same, as last measured
        self.dispatch = 0.0  # seconds of dispatching a program by the types of its arguments
        self._left = 0.0
        self._called: float | None = None  # when Python began the dispatch, for calls that depend on shardings

    def _passed(self) -> float:
        return time.perf_counter() - self._left

    def _enter(self) -> list[float]:
        passed = self._passed()
        run = self.running[-1].runs[-1]
        run[0] += passed - self.overhead
        return run

    def _leave(self) -> list[Any]:
        self._left = time.perf_counter()
        return []

    def called(self, find_and_run: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the function that dispatches a program, to record its start."""

        def noted(*args: Any) -> Any:
            self._called = time.perf_counter()
            return find_and_run(*args)

        return noted

    def begin(self, p: _PredictedProgram) -> list[Any]:
        called, self._called = self._called, None
        found = 0.0 if called is None or not p.runs else time.perf_counter() - called  # the first call compiles
        if self.running:
            self._enter()
        self.running.append(p)
        p.runs.append([self.dispatch + found, 0.0, 0.0])
        self.overhead = self.plain
        return self._leave()

    def end(self) -> list[Any]:
        run = self._enter()
        run[0] = max(0.0, run[0])
        self.running.pop()
        self.pending.clear()
        return self._leave()

    def exchange(self, x: _PredictedExchange, goes_on: bool, fill: Callable[[], None]) -> list[Any]:
        run = self._enter()
        x.times += 1
        run[1] += x.cost.sending
        if goes_on:
            self.pending.append(sum(run) + x.cost.waiting)
        else:
            run[2] += x.cost.waiting
        fill()
        return self._leave()

    def after_exchange(self, *_: Any) -> list[Any]:
        """Called right after `exchange`, in the same way, with no computation between: measures the overhead of a call.
        It also grows if other programs use the caches and the core."""
        self.overhead = min(self._passed(), 4 * self.plain)  # it is longer if another program had the core
        return self._leave()

    def finish(self) -> list[Any]:
        run = self._enter()
        if self.pending:
            run[2] += max(0.0, self.pending.pop(0) - sum(run))
        return self._leave()


class Imagined:
    """A job of `ranks` ranks on `nodes` nodes, simulated from one of them."""

    def __init__(self, ranks: int, nodes: int, rank: int, network: Network):
        self.ranks, self.on_node, self.rank, self.network = ranks, -(-ranks // nodes), rank, network
        self.clock, self.programs = Clock(), list[_PredictedProgram]()

    def start(self) -> None:
        """Make this process that rank, and measure the overhead of calling and timing programs."""
        mpi = mpi_start.start()
        mpi.rank, mpi.size = self.rank, self.ranks
        mpi.world = mpi.control = _World(self.rank, self.ranks)
        # The other ranks are copies of this one, so they agree with it.
        os.environ["MPIJAX_GUARD"] = "0"
        self.clock.dispatch = _fastest_call(jit(lambda x: x + 1))
        loader.stand_in = self.instructions
        _fastest_call(jit(lambda x: x + 2))
        self.clock.plain = min(run[0] for run in self.programs[-1].runs) - self.clock.dispatch
        provided.dispatch = self.clock.called(provided.dispatch)
        self.programs.clear()

    def instructions(self, plan: ProgramPlan, name: str) -> tuple[Any, ...]:
        """A program's instructions, with calls of the clock at its begin and end and instead of its exchanges."""
        p = _PredictedProgram(name, explanation(plan))
        self.programs.append(p)

        def changed(x: Any) -> tuple[Any, ...]:
            if isinstance(x, Finish):
                return (_call(self.clock.finish),)
            return self._stand_in(p, x) if isinstance(x, Communicate) else (x,)

        inner = mapped(plan.instructions, changed)
        return _call(lambda: self.clock.begin(p)), *inner, _call(self.clock.end)

    def _stand_in(self, p: _PredictedProgram, x: Communicate) -> tuple[PythonCall, ...]:
        members = self._members(x)
        nbytes = sum(view.nbytes for view in x.inputs[:1])
        line = str(x.source) if x.source.file else ""
        found = _PredictedExchange(line, x.label, nbytes, self._cost(x, members, nbytes))
        p.exchanges.append(found)
        here = members.index(self.rank)
        views = (*x.inputs[:1], *x.outputs)

        def call(method: Callable[..., list[Any]]) -> PythonCall:
            def run(*arrays: np.ndarray) -> list[Any]:
                return method(found, x.goes_on, lambda: _fill(x, arrays, here, len(members)))

            return PythonCall(run, tuple(views), (), x.source, x.label)

        # Twice: code after `exchange` runs slower than code after a function that does nothing.
        return call(self.clock.exchange), call(self.clock.after_exchange), call(self.clock.after_exchange)

    def _members(self, x: Communicate) -> list[int]:
        """The participating ranks, in order."""
        if x.lower.on_communicator:
            if x.params["comm"].value is not None:
                getattr(mpi_start.world(), "comm=")
            return list(range(self.ranks))
        mesh, names, groups = x.params["mesh"], x.params["names"], x.params.get("axis_index_groups")
        along = [mesh.axis_names.index(name) for name in names]
        at = tuple(slice(None) if i in along else c for i, c in enumerate(mesh.coordinates()))
        # The remaining axes are those in `names`, in mesh order; ranks are ordered by `names`.
        members = mesh.device_ids[at].transpose(np.argsort(np.argsort(along))).ravel().tolist()
        if groups is not None:
            own = members.index(self.rank)
            members = [members[i] for i in next(group for group in groups if own in group)]
        return members

    def _node(self, rank: int) -> int:
        return rank // self.on_node

    def _cost(self, x: Communicate, members: list[int], nbytes: int) -> Cost:
        kind, params, here = x.lower.exchange, x.params, members.index(self.rank)
        if kind is Exchange.POSITION:
            return Cost()
        if kind not in (Exchange.PERMUTE, Exchange.SEND, Exchange.RECV, Exchange.SENDRECV):
            group = RankGroup(len(members), len({self._node(r) for r in members}))
            return self.network.collective(kind, group, nbytes)
        if kind is Exchange.PERMUTE:
            to = dict(params["perm"]).get(here, -1)
            origin = {b: a for a, b in params["perm"]}.get(here, -1)
        else:
            to, origin = params.get("dest", -1), params.get("source", -1)
        ends = [r for r in (to, origin) if 0 <= r < len(members) and r != here]
        if not ends:
            return Cost()
        far = any(self._node(members[r]) != self._node(self.rank) for r in ends)
        nbytes = nbytes or sum(view.nbytes for view in x.outputs[:1])
        return self.network.message(nbytes, far, to in ends, origin in ends)


def _fastest_call(step: Callable[[Any], Any]) -> float:
    x, times = np.float32(0), []
    for _ in range(_CALIBRATION):
        begin = time.perf_counter()
        step(x)
        times.append(time.perf_counter() - begin)
    return min(times)


def _call(fun: Callable[..., list[Any]]) -> PythonCall:
    return PythonCall(fun, (), (), UNKNOWN, "clock")


def _fill(x: Communicate, arrays: Sequence[np.ndarray], here: int, ranks: int) -> None:
    """Fill results as if every rank had this rank's operand; sums are those of `ranks` equal operands."""
    results = arrays[min(len(x.inputs), 1) :]
    if not results:
        return
    out, kind = _writable(results[0], x.outputs[0]), x.lower.exchange
    if kind is Exchange.POSITION:
        out[...] = here
        return
    if not x.inputs or kind is Exchange.RECV or arrays[0].size == 0:
        out[...] = np.zeros((), out.dtype)
        return
    data = arrays[0].reshape(-1)
    if kind in (Exchange.ALLTOALL, Exchange.SCATTER, Exchange.REDUCE_SCATTER):  # the block for this rank
        block = max(1, data.size // ranks)
        data = data[here * block : (here + 1) * block] if (here + 1) * block <= data.size else data[:block]
    flat = out.reshape(-1)
    whole = flat.size // data.size
    flat[: whole * data.size].reshape(whole, data.size)[...] = data
    flat[whole * data.size :] = data[: flat.size - whole * data.size]
    name = x.lower.operation or str(getattr(x.params.get("op"), "name", "")).lower()
    if name == OverRanks.SUM and out.dtype != np.bool_:
        factor = {Exchange.SCAN: here + 1, Exchange.EXSCAN: here}.get(kind, ranks)
        np.multiply(flat, np.asarray(factor).astype(out.dtype), out=flat)


def _writable(view: np.ndarray, operand: Operand) -> np.ndarray:
    """The memory of a result as a writable array; a `PythonCall` passes results read-only, like operands."""
    memory = (ctypes.c_char * operand.nbytes).from_address(view.ctypes.data)
    return np.ndarray(operand.shape, operand.dtype, memoryview(memory))


def main() -> int:
    """Run the program and return its exit status."""
    settings = json.loads(sys.argv[1])
    sys.argv[1:] = sys.argv[2:]
    if settings["cpus"]:
        os.sched_setaffinity(0, settings["cpus"])
    within, between = (LogGP(**settings[name]) for name in ("within", "between"))
    network = Network(within, between, settings["rows"], settings["measured"])
    job = Imagined(settings["ranks"], settings["nodes"], settings["rank"], network)
    job.start()
    try:
        return program.main()
    finally:
        Path(settings["file"]).write_text(json.dumps([_told(p) for p in job.programs if p.runs]))


def _told(p: _PredictedProgram) -> dict[str, Any]:
    """A program as data. Seconds are medians of its runs, without the first of several. fastest: the minimum of all
    runs, which other programs on the machine disturb least."""
    runs = p.runs[1:] or p.runs
    computing, sending, waiting = (statistics.median(run[i] for run in runs) for i in range(3))
    return {
        "name": p.name, "calls": len(p.runs), "computing": computing, "sending": sending, "waiting": waiting,
        "fastest": min(map(sum, runs)), "memory": p.facts["memory"], "sent": p.facts["sent"],
        "exchanges": [
            {"line": x.line, "operation": x.operation, "bytes": x.nbytes, "times": x.times / len(p.runs),
             "sending": x.cost.sending, "waiting": x.cost.waiting}
            for x in p.exchanges if x.times
        ],
    }  # fmt: skip
