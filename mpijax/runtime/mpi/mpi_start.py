"""MPI starts here, once, at the first use of devices or communication; never at import or while tracing.

`world()` is the communicator of everything mpijax sends: a private duplicate of ``MPI_COMM_WORLD``, so that
messages of the user's own mpi4py code never match ours. With more than one rank an uncaught exception ends
the whole job (the other ranks would wait for this one for ever).
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

from mpijax.core import config, tracebacks
from mpijax.core.source import current_source
from mpijax.runtime.machine import cpus, leftovers
from mpijax.runtime.reports import meeting, output, watchdog
from mpijax.runtime.reports.recorder import recorder

_lock = threading.RLock()
_state: "Start | None" = None

# (variable with the number of processes, launcher): set by the launcher in every process it starts
_LAUNCHER_SIZES = (
    ("PMI_SIZE", "an MPICH-like mpirun (Hydra), or srun --mpi=pmi2,"),
    ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun"),
    ("SLURM_STEP_NUM_TASKS", "srun"),
    ("FLUX_JOB_SIZE", "flux run"),
    ("PALS_NRANKS", "PALS mpiexec"),
)


class Start:
    """What is decided when MPI starts.

    Attributes: `world`, the private communicator (mpi4py); `rank`, `size`; `yields`, whether waiting ranks
    must hand their core over (more ranks than cores); `overlaps`, whether exchanges go on beside computation, as
    rank 0 says; `lanes`, whether messages to ranks of this node may go through memory; `control`, a
    communicator for what ranks agree on apart from programs; `launched`, whether a launcher started the ranks; `ext`,
    the module with the communication shims; `survives`, whether MPI goes on when a rank dies (`distributed.survivors`).
    """

    def __init__(self) -> None:
        import mpi4py

        finalizes = False
        if "mpi4py.MPI" not in sys.modules:
            # A level above SERIALIZED makes every small call take locks: 2.0 µs instead of 0.2 µs an
            # allreduce.
            mpi4py.rc.thread_level = "serialized"
            # mpi4py would leave MPI before the exit status is known.
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
        _end_job_with_errors()  # again: the program may have its own hook by now
        world = meeting.duplicate_of_all(MPI) if MPI.COMM_WORLD.size > 1 else MPI.COMM_WORLD.Dup()
        leftovers.forget_names()
        self.take(world)
        if self.size > 1:
            watchdog.start()
        atexit.register(_look_back, self)

    def go_on(self, world: Any) -> None:
        """Let the ranks of a communicator be the job from now on: others have died.

        Open MPI's MPI_Finalize may wait for a rank that has died. So these ranks meet, and end without it.
        """
        self._finalizes = False
        self.take(world)
        atexit.register(_meet, self)

    def take(self, world: Any) -> None:
        """Make this the job of the ranks of a communicator, which becomes mpijax's own. Collective over them."""
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
            # Where MPI survives a death, its error tells of it, and no rank may end the job that sees it in a record.
            known = MPI.COMM_SELF if self.survives else node
            recorder.share(self.world, known, job, MPI.Query_thread() < MPI.THREAD_MULTIPLE)
            self._open_lanes(node)
        else:
            self.ext.leave_properly(self.ext.handle(self.world), self.ext.handle(self.world), finalizes, False)
        node.Free()

    def _share_nodes(self, node: Any) -> None:
        """Let ranks of a node communicate through memory that they share, unless MPIJAX_SHARED_MEMORY=0.

        Where every rank has a CPU they poll there, else they sleep.
        """
        setting = os.environ.get("MPIJAX_SHARED_MEMORY", "1").lower()
        wanted = all(self.world.allgather(setting not in ("0", "off", "false", "no") and not self.survives))
        ranks, yields = zip(*node.allgather((self.rank, self.yields)))
        self.ext.set_node(ranks, self.size)
        self.ext.set_sleeping(any(yields))
        self.ext.set_sharing(wanted)
        self._polls = wanted and not any(yields)

    def name_child(self, parent: Any, child: Any) -> Any:
        """A communicator that all ranks of `parent` have just made of it, of which messages may go through memory."""
        if (number := self.ext.next_lane_group(self.ext.handle(parent))) and child != self.MPI.COMM_NULL:
            self.ext.set_lane_group(self.ext.handle(child), number)
        return child

    def _open_lanes(self, node: Any) -> None:
        """Let messages of programs go through memory too, where ranks poll. A run keeps other threads out."""
        if not self._polls or not 1 < node.Get_size() <= _LANE_RANKS:
            return
        self.lanes = self.ext.open_lanes(self.ext.handle(node))
        for number, comm in enumerate((self.world, self.MPI.COMM_WORLD) if self.lanes else ()):
            self.ext.set_lane_group(self.ext.handle(comm), 1 + number)


# Ranks of a node up to which there are lanes from each to each: 66 kB of memory for each pair and direction.
_LANE_RANKS = 16

# Ranks on a CPU above which waiting ranks test rarely: their tests alone would keep it busy.
_CROWDED = 4


def _survives(MPI: Any) -> bool:
    """Whether the library revokes and shrinks communicators: User Level Failure Mitigation, which `--with-ft ulfm` of
    Open MPI's mpirun turns on."""
    enabled = os.environ.get("OMPI_MCA_mpi_ft_enable", "0").lower() in ("1", "true", "yes")
    return enabled and MPI.Get_library_version().startswith("Open MPI")


def _ranks_per_cpu(node: Any) -> float:
    """Of this node, as far as affinity masks and quotas allow. Collective over its ranks."""
    masks = node.allgather((cpus.affinity(), cpus.cgroup_cpus()))
    available = min([len(frozenset().union(*(mask for mask, _ in masks)))] + [quota for _, quota in masks])
    return len(masks) / available


def _must_yield(ranks_per_cpu: float) -> bool:
    """Whether a rank that polls keeps another from running. Raises ValueError for an unknown setting."""
    choice = os.environ.get("MPIJAX_WAIT", "").lower()
    if choice not in ("", "block", "yield"):
        raise ValueError(f"MPIJAX_WAIT must be 'block' or 'yield', got {choice!r}")
    return choice == "yield" or (not choice and ranks_per_cpu > 1)


def start() -> Start:
    """Starts MPI if it has not been; the same object every time. Collective over all ranks on the first call.

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
            "MPI has been finalized, and mpijax cannot communicate any more: let MPI.Finalize() be the last that the "
            "program does"
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
    """``MPICH Version: 5.0.2`` or ``Open MPI v5.0.11``: what the MPI library says first of itself."""
    return _name(start().MPI.Get_library_version())


def _name(library: str) -> str:
    return " ".join(library.splitlines()[0].split(",")[0].split())


def _leave_parents_job() -> None:
    """A process that a rank starts inherits the launcher's variables, not the connection they name: it is alone."""
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
            f"no MPI library could be loaded: {error}\n"
            "Install one (pip install mpich), or load your cluster's MPI module before starting Python; an "
            "MPI in another place is named by MPI4PY_LIBMPI=/path/to/libmpi.so."
        ) from None
    return MPI


def _import_shims(MPI: Any) -> Any:
    """The compiled shims, checked to call the library that mpi4py runs: two MPI libraries in one process
    corrupt both."""
    library = _name(MPI.Get_library_version())
    rebuild = (
        "Rebuild mpijax for it: MPICC=/path/to/its/mpicc pip install --force-reinstall --no-deps . (and pip "
        "uninstall mpich if a system MPI is meant), or name the library it was built for with "
        "MPI4PY_LIBMPI=/path/to/libmpi.so."
    )
    try:
        from mpijax._ext import mpi as ext
    except ImportError as error:
        if importlib.util.find_spec("mpijax._ext.mpi") is None:
            raise RuntimeError(
                "the extension mpijax._ext.mpi has not been built: run `make ext` or `pip install .`"
            ) from error
        raise RuntimeError(
            f"the communication module does not fit the MPI library that mpi4py loaded ({library}): {error}\n"
            f"{rebuild}"
        ) from error
    if not ext.same_library(MPI.__file__):
        raise RuntimeError(
            f"mpi4py runs {library}, but mpijax was built for another MPI ({ext.library_path()}).\n{rebuild}"
        )
    return ext


def _check_launcher(size: int, library: str) -> None:
    """N copies of rank 0 of 1: the launcher belongs to another MPI, and every process thinks that it is
    alone."""
    if size > 1:
        return
    # Set by mpijax.distributed while it starts MPI.
    if "MPIJAX_BOOTSTRAP" in os.environ and os.environ.get("PMI_SIZE") != "1":
        raise RuntimeError(
            f"{os.environ.get('PMI_SIZE')} processes have been brought together without a launcher, but the MPI "
            f"library ({_name(library)}) sees only one: it does not speak PMI-1, as MPICH does. Start the program "
            f"by `mpijax run -n {os.environ.get('PMI_SIZE')} ...`, that library's mpirun, or srun; or use MPICH "
            "(pip install mpich)."
        )
    for variable, launcher in _LAUNCHER_SIZES:
        expected = os.environ.get(variable, "")
        if variable == "PMI_SIZE" and not {"PMI_FD", "PMI_PORT"} & os.environ.keys():
            continue  # left behind by a job of which this process is no part
        if expected.isdigit() and int(expected) > 1:
            raise RuntimeError(
                f"{launcher} started {expected} processes ({variable}={expected}), but MPI sees only one: "
                f"the launcher and the MPI library ({_name(library)}) do not belong "
                "together. Use the mpirun of that library (for the mpich wheel: the one beside this Python), "
                "or, under srun, try srun --mpi=pmi2 or --mpi=pmix."
            )


# Seconds that a rank which ends waits for others to end.
_MEETING = 10.0


def _meet(mpi: Start) -> None:
    """Wait until all ranks end, or a while."""
    if mpi.MPI.Is_finalized():
        return
    end = time.monotonic() + _MEETING
    with contextlib.suppress(mpi.MPI.Exception):
        request = mpi.control.Ibarrier()
        while not request.Test() and time.monotonic() < end:
            time.sleep(1e-3)


def _look_back(mpi: Start) -> None:
    """At the end of the program: end the job if ranks ran different collectives; tell of a message that is left."""
    watchdog.end_if_diverged()
    MPI, status = mpi.MPI, mpi.MPI.Status()
    if MPI.Is_finalized() or recorder.progress(recorder.mine)[1] or _users_threads():
        return  # another thread may communicate
    if any(mpi.world.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status) for _ in range(_LOOKS)):
        tag, derivative = mpi.ext.value_tag(status.tag)
        what = "the derivative of a message" if derivative else "a message"
        why = "only one of the two ranks differentiates it" if derivative else "a `send` without `recv`"
        text = (
            f"mpijax: the program ends, and {what} of rank {status.source} with tag {tag} "
            f"({status.Get_count(MPI.BYTE)} bytes) has not been received: {why}"
        )
        output.say(mpi.rank, text)
        mpi.ext.looked()


def _users_threads() -> int:
    """How many threads beside the main one are not mpijax's own, whose names say so: those do not communicate."""
    return sum(not thread.name.startswith("mpijax") for thread in threading.enumerate()) - 1


# Looks for messages, which libraries may hand over a little late.
_LOOKS = 100

# Seconds for srun to read what a rank said last: it drops what is unread when the step is cancelled.
_READING = 0.3


_copied = False  # this process was forked from a rank


def _running() -> Any:
    """mpi4py's MPI while it runs on several ranks, of which this process is one, whoever started it; else None."""
    MPI = getattr(sys.modules.get("mpi4py"), "MPI", None)
    if _copied or MPI is None or not MPI.Is_initialized() or MPI.Is_finalized() or MPI.COMM_WORLD.size == 1:
        return None
    return MPI


def _end_job_with_errors() -> None:
    """Makes an uncaught exception of a rank end the job, after its traceback is printed once."""
    previous = sys.excepthook
    if getattr(tracebacks.behind(previous), "ends_job", False):
        return

    def hook(kind, value, trace):
        MPI = _running()
        if MPI is None:
            previous(kind, value, trace)
            return
        rank = MPI.COMM_WORLD.rank
        output.flush()  # what the program printed before comes first
        try:
            if tracebacks.behind(previous) is sys.__excepthook__:
                tracebacks.leave_out_own_frames(value)
                output.say(rank, "".join(traceback.format_exception(value)))
            else:  # another library formats tracebacks: let it, and say whose this was
                previous(kind, value, trace)
                output.say(rank, "ended by the exception above")
            output.flush()
        finally:
            if not hasattr(sys, "ps1"):  # an interactive session goes on
                status = 130 if issubclass(kind, KeyboardInterrupt) else 1
                output.wait_until_read()
                if _state is not None and not _state.launched:
                    os._exit(status)  # nobody kills a rank that aborts: it goes, and the coordinator tells the others
                if "SLURM_STEP_ID" in os.environ:
                    time.sleep(_READING)
                MPI.COMM_WORLD.Abort(status)

    hook.ends_job = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def _leave_to_parent() -> None:
    global _copied
    _copied = _running() is not None


def _come_late() -> None:
    """At the end of a program: start if the other ranks may, which are then told that this one has ended."""
    if _state is None and _running() is not None:
        start()


# Programs that start MPI by mpi4py may end, or raise, before they first communicate by mpijax.
_end_job_with_errors()
os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(_come_late)
