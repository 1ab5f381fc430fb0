"""Starts MPI, once, at the first use of devices or communication; never at import or while tracing.

`world()` is the communicator of all mpijax communication: a private duplicate of ``MPI_COMM_WORLD``, so messages of the
user's mpi4py code never match ours. With more than one rank, an uncaught exception ends the whole job, because the
other ranks would wait for this one forever.
"""

import atexit
import contextlib
import importlib.util
import os
import stat
import sys
import threading
import time
import traceback
from typing import Any

from mpijax.core.base import config, locks, tracebacks
from mpijax.core.base.source import current_source
from mpijax.runtime.machine import cpus, leftovers
from mpijax.runtime.reports import meeting, output, watchdog
from mpijax.runtime.reports.recorder import recorder

_lock = locks.reentrant_lock()
_state: "Start | None" = None

# (variable with the number of processes, launcher): set by the launcher in every process that it starts
_LAUNCHER_SIZES = (
    ("PMI_SIZE", "an MPICH-like mpirun (Hydra), or srun --mpi=pmi2,"),
    ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun"),
    ("SLURM_STEP_NUM_TASKS", "srun"),
    ("FLUX_JOB_SIZE", "flux run"),
    ("PALS_NRANKS", "PALS mpiexec"),
)


class Start:
    """The properties fixed when MPI starts.

    Attributes: `world`, the private communicator (mpi4py); `rank`, `size`; `yields`, whether waiting ranks must yield
    their core (more ranks than cores); `overlaps`, whether exchanges progress during computation, as rank 0 decides;
    `lanes`, whether messages to ranks of this node may use shared memory; `control`, a communicator for agreements
    outside of programs; `launched`, whether a launcher started the ranks; `ext`, the module with the communication
    shims; `survives`, whether MPI continues after a rank's death (`distributed.survivors`).
    """

    def __init__(self) -> None:
        import mpi4py

        finalizes = False
        if "mpi4py.MPI" not in sys.modules:
            # Above SERIALIZED, every small call takes locks: an allreduce takes 2.0 µs instead of 0.2 µs.
            mpi4py.rc.thread_level = "serialized"
            # mpi4py would finalize MPI before the exit status is known.
            finalizes = mpi4py.rc.finalize is not False
            mpi4py.rc.finalize = False
            leftovers.remove()
            _leave_parents_job()
        with meeting.reminded(current_source()):
            self.MPI = MPI = _import_mpi()
        _check_finalized(MPI)
        if not MPI.Is_initialized():  # mpi4py.rc.initialize is False
            MPI.Init_thread(MPI.THREAD_SERIALIZED)
        self.ext = _import_shims(MPI)
        _check_launcher(MPI.COMM_WORLD.size, MPI.Get_library_version())
        self.launched = "MPIJAX_BOOTSTRAP" not in os.environ
        self.survives = _survives(MPI)
        self._finalizes = finalizes
        _end_job_with_errors()  # again: the program may have installed its own hook
        world = meeting.duplicate_of_all(MPI) if MPI.COMM_WORLD.size > 1 else MPI.COMM_WORLD.Dup()
        leftovers.forget_names()
        self.take(world)
        if self.size > 1:
            watchdog.start()
        atexit.register(_look_back, self)

    def go_on(self, world: Any) -> None:
        """Continue the job with the ranks of a communicator, because others have died.

        Open MPI's MPI_Finalize may wait for a dead rank. So these ranks meet at exit, and exit without it.
        """
        self._finalizes = False
        self.take(world)
        atexit.register(_meet, self)

    def take(self, world: Any) -> None:
        """Make the ranks of a communicator the job; mpijax takes over the communicator. Collective over them."""
        MPI, self.world, finalizes = self.MPI, world, self._finalizes
        self.rank, self.size = world.rank, world.size
        self.world.Set_name("mpijax")
        self.world.Set_errhandler(MPI.ERRORS_RETURN)
        self.control = self.world.Dup() if self.size > 1 else self.world
        node = self.world.Split_type(MPI.COMM_TYPE_SHARED)
        ranks_per_cpu = _ranks_per_cpu(node) if self.size > 1 else 0.0
        self.yields = _must_yield(ranks_per_cpu)
        self.overlaps = False
        self.lanes = False
        self.ext.set_yielding(self.yields)
        self.ext.set_crowded(ranks_per_cpu > _CROWDED)
        if self.size > 1:
            self._share_nodes(node)
            job, self.overlaps = self.world.bcast((os.urandom(4).hex(), config.values.mpijax_overlap))
            self.ext.leave_properly(
                self.ext.handle(self.control), self.ext.handle(self.world), finalizes,
                all(self.world.allgather(finalizes)),
            )  # fmt: skip
            # If MPI survives a death, its error reports it; a rank must not end the job because of a record.
            known = MPI.COMM_SELF if self.survives else node
            recorder.share(self.world, known, job, MPI.Query_thread() < MPI.THREAD_MULTIPLE)
            self.ext.expect(recorder.file, recorder.own, len(recorder.ranks))
            self._open_lanes(node)
        else:
            self.ext.leave_properly(self.ext.handle(self.world), self.ext.handle(self.world), finalizes, False)
        node.Free()

    def _share_nodes(self, node: Any) -> None:
        """Let ranks of a node communicate through shared memory, unless MPIJAX_SHARED_MEMORY=0.

        They poll if every rank has a CPU, and otherwise sleep.
        """
        setting = os.environ.get("MPIJAX_SHARED_MEMORY", "1").lower()
        wanted = all(self.world.allgather(setting not in ("0", "off", "false", "no") and not self.survives))
        ranks, yields = zip(*node.allgather((self.rank, self.yields)))
        self.ext.set_node(ranks, self.size)
        self.ext.set_sleeping(any(yields))
        self.ext.set_sharing(wanted)
        self._polls = wanted and not any(yields)

    def name_child(self, parent: Any, child: Any) -> Any:
        """Number a communicator that all ranks of `parent` have just made from it, so that it may use lanes."""
        if (number := self.ext.next_lane_group(self.ext.handle(parent))) and child != self.MPI.COMM_NULL:
            self.ext.set_lane_group(self.ext.handle(child), number)
        return child

    def _open_lanes(self, node: Any) -> None:
        """Let messages of programs use shared memory too, if ranks poll. A run keeps other threads out."""
        if not self._polls or not 1 < node.Get_size() <= _LANE_RANKS:
            return
        self.lanes = self.ext.open_lanes(self.ext.handle(node))
        for number, comm in enumerate((self.world, self.MPI.COMM_WORLD) if self.lanes else ()):
            self.ext.set_lane_group(self.ext.handle(comm), 1 + number)


# Maximum number of ranks of a node with lanes: each pair and direction takes 66 kB of memory.
_LANE_RANKS = 16

# Above this number of ranks per CPU, waiting ranks test rarely, because tests alone would keep the CPU busy.
_CROWDED = 4


def _survives(MPI: Any) -> bool:
    """Whether the library can revoke and shrink communicators: User Level Failure Mitigation, which Open MPI's
    `mpirun --with-ft ulfm` turns on."""
    enabled = os.environ.get("OMPI_MCA_mpi_ft_enable", "0").lower() in ("1", "true", "yes")
    return enabled and MPI.Get_library_version().startswith("Open MPI")


def _ranks_per_cpu(node: Any) -> float:
    """Ranks per CPU on this node, given affinity masks and quotas. Collective over its ranks."""
    masks = node.allgather((cpus.affinity(), cpus.cgroup_cpus()))
    available = min([len(frozenset().union(*(mask for mask, _ in masks)))] + [quota for _, quota in masks])
    return len(masks) / available


def _must_yield(ranks_per_cpu: float) -> bool:
    """Whether a polling rank would keep another one from running. Raises ValueError for an unknown setting."""
    choice = os.environ.get("MPIJAX_WAIT", "").lower()
    if choice not in ("", "block", "yield"):
        raise ValueError(f"MPIJAX_WAIT must be 'block' or 'yield', got {choice!r}")
    return choice == "yield" or (not choice and ranks_per_cpu > 1)


def start() -> Start:
    """Start MPI if it is not running; always the same object. The first call is collective over all ranks.

    Raises RuntimeError once MPI has been finalized.
    """
    state = _once()
    _check_finalized(state.MPI)
    return state


def _once() -> Start:
    global _state
    if _state is None:
        with _lock:
            if _state is None:
                _state = Start()
    return _state


def _check_finalized(MPI: Any) -> None:
    if MPI.Is_finalized():
        raise RuntimeError(
            "MPI has been finalized, so mpijax can no longer communicate. Call MPI.Finalize() at the very end of the "
            "program."
        )


def started() -> bool:
    return _state is not None


def world() -> Any:
    """The private communicator (mpi4py's ``MPI.Intracomm``)."""
    return start().world


def rank() -> int:
    return _once().rank


def size() -> int:
    return _once().size


def library_version() -> str:
    """The first line of the MPI library's version: ``MPICH Version: 5.0.2`` or ``Open MPI v5.0.11``."""
    return _name(start().MPI.Get_library_version())


def _name(library: str) -> str:
    return " ".join(library.splitlines()[0].split(",")[0].split())


def _leave_parents_job() -> None:
    """Remove the launcher's variables in a child process of a rank, which inherits them but not their connection."""
    number = os.environ.get("PMI_FD", "")
    try:
        connected = not number.isdigit() or stat.S_ISSOCK(os.fstat(int(number)).st_mode)
    except OSError:
        connected = False
    if not connected:
        for name in [name for name in os.environ if name.startswith("PMI_")]:
            del os.environ[name]


def _import_mpi() -> Any:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"mpijax could not load an MPI library: {error}\n"
            "Install one (pip install mpich), or load the MPI module of your cluster before you start Python, or set "
            "MPI4PY_LIBMPI=/path/to/libmpi.so."
        ) from None
    return MPI


def _import_shims(MPI: Any) -> Any:
    """The compiled shims, checked to use the same MPI library as mpi4py: two libraries in one process corrupt both."""
    library = _name(MPI.Get_library_version())
    rebuild = (
        "Rebuild mpijax for this library: MPICC=/path/to/its/mpicc pip install --force-reinstall --no-deps . (for a "
        "system MPI, run pip uninstall mpich first). Or set MPI4PY_LIBMPI=/path/to/libmpi.so to the library that "
        "mpijax was built for."
    )
    try:
        from mpijax._ext import mpi as ext
    except ImportError as error:
        if importlib.util.find_spec("mpijax._ext.mpi") is None:
            raise RuntimeError(
                "the extension mpijax._ext.mpi has not been built: run `make ext` or `pip install .`"
            ) from error
        raise RuntimeError(
            f"mpijax was not built for the MPI library that mpi4py loaded ({library}): {error}\n"
            f"{rebuild}"
        ) from error
    if not ext.same_library(MPI.__file__):
        raise RuntimeError(
            f"mpi4py runs {library}, but mpijax was built for another MPI ({ext.library_path()}).\n{rebuild}"
        )
    return ext


def _check_launcher(size: int, library: str) -> None:
    """Raise if a launcher of another MPI started N copies of rank 0 of 1, where every process believes it is alone."""
    if size > 1:
        return
    # Set by mpijax.distributed while it starts MPI.
    if "MPIJAX_BOOTSTRAP" in os.environ and os.environ.get("PMI_SIZE") != "1":
        raise RuntimeError(
            f"{os.environ.get('PMI_SIZE')} processes started without a launcher, but the MPI library "
            f"({_name(library)}) sees only one, because it does not support PMI-1. Start the program with `mpijax run "
            f"-n {os.environ.get('PMI_SIZE')} ...`, mpirun of that library, or srun. Or use MPICH (pip install mpich)."
        )
    for variable, launcher in _LAUNCHER_SIZES:
        expected = os.environ.get(variable, "")
        if variable == "PMI_SIZE" and not {"PMI_FD", "PMI_PORT"} & os.environ.keys():
            continue  # a leftover of a job that this process does not belong to
        if expected.isdigit() and int(expected) > 1:
            raise RuntimeError(
                f"{launcher} started {expected} processes ({variable}={expected}), but MPI sees only one: the "
                f"launcher and the MPI library ({_name(library)}) do not belong together. Use mpirun of that library "
                "(for the mpich wheel, it is next to this Python). With srun, try srun --mpi=pmi2 or --mpi=pmix."
            )


# Seconds that a rank waits at exit for others to reach theirs.
_MEETING = 10.0


def _meet(mpi: Start) -> None:
    """Wait until all ranks reach this point, or the time is over."""
    if mpi.MPI.Is_finalized():
        return
    end = time.monotonic() + _MEETING
    with contextlib.suppress(mpi.MPI.Exception):
        request = mpi.control.Ibarrier()
        while not request.Test() and time.monotonic() < end:
            time.sleep(1e-3)


def _look_back(mpi: Start) -> None:
    """At exit: end the job if ranks ran different collectives; report a message that nobody received."""
    watchdog.end_if_diverged()
    MPI, status = mpi.MPI, mpi.MPI.Status()
    if MPI.Is_finalized() or recorder.progress(recorder.mine)[1] or _users_threads():
        return  # another thread may communicate
    if any(mpi.world.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status) for _ in range(_LOOKS)):
        tag, derivative = mpi.ext.value_tag(status.tag)
        what = "the derivative of a message" if derivative else "a message"
        why = "only one of the two ranks differentiates it" if derivative else "a `send` without `recv`"
        text = (
            f"mpijax: the program ends, but {what} of rank {status.source} with tag {tag} "
            f"({status.Get_count(MPI.BYTE)} bytes) has not been received: {why}"
        )
        output.say(mpi.rank, text)
        mpi.ext.looked()


def _users_threads() -> int:
    """The number of threads, except the main one, without mpijax's name prefix; mpijax's threads do not communicate."""
    return sum(not thread.name.startswith("mpijax") for thread in threading.enumerate()) - 1


# How often to probe for messages, which libraries may deliver slightly late.
_LOOKS = 100

# Seconds for srun to read a rank's last output; it drops unread output when the step is cancelled.
_READING = 0.3


_copied = False  # this process was forked from a rank


def _running() -> Any:
    """mpi4py's MPI, whoever started it, if it runs on several ranks and this process is one of them; else None."""
    MPI = getattr(sys.modules.get("mpi4py"), "MPI", None)
    if _copied or MPI is None or not MPI.Is_initialized() or MPI.Is_finalized() or MPI.COMM_WORLD.size == 1:
        return None
    return MPI


def _end_job_with_errors() -> None:
    """Install an excepthook that ends the job after printing the traceback once."""
    previous = sys.excepthook
    if getattr(tracebacks.behind(previous), "ends_job", False):
        return

    def hook(kind, value, trace):
        MPI = _running()
        if MPI is None:
            previous(kind, value, trace)
            return
        rank = MPI.COMM_WORLD.rank
        output.flush()  # the program's earlier output comes first
        try:
            if tracebacks.behind(previous) is sys.__excepthook__:
                tracebacks.leave_out_own_frames(value)
                output.say(rank, "".join(traceback.format_exception(value)))
            else:  # another library formats tracebacks: let it, and add the rank
                previous(kind, value, trace)
                output.say(rank, "ended by the exception above")
            output.flush()
        finally:
            if not hasattr(sys, "ps1"):  # an interactive session continues
                status = 130 if issubclass(kind, KeyboardInterrupt) else 1
                output.wait_until_read()
                if _state is not None and not _state.launched:
                    os._exit(status)  # exit, since nobody kills a rank that aborts; the coordinator informs the others
                if "SLURM_STEP_ID" in os.environ:
                    time.sleep(_READING)
                MPI.COMM_WORLD.Abort(status)

    hook.ends_job = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def _leave_to_parent() -> None:
    global _copied
    _copied = _running() is not None


def _come_late() -> None:
    """At exit: start mpijax if other ranks may, so that they learn that this one has ended."""
    if _state is None and _running() is not None:
        start()


# A program that starts MPI with mpi4py may end, or raise, before it first communicates through mpijax.
_end_job_with_errors()
os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(_come_late)
