"""Jobs with one fault each, and the promise that holds for it: families of collectives, kinds of fault and transports."""

from __future__ import annotations

from dataclasses import dataclass, field

from faults import promises as p
from mpi.jobs import START, START_ALONE

BEGIN = """
def fault():
    sys.stdout.write(f'FAULT {time.time():.3f}\\n'); sys.stdout.flush()
def say(*words):  # in one piece, so that lines of ranks do not mix
    sys.stdout.write(' '.join(map(str, words)).replace('\\n', '|') + '\\n'); sys.stdout.flush()
def attempt(f):
    fault()
    try: f()
    except RuntimeError as error: say('told', f'{rank}:', error)
    else: say('passed', rank)
x = np.arange(16, dtype=np.float32).reshape(2, 8)
y = x[:, :5]
def over(mesh, body, ins=jax.P('i'), outs=jax.P('i')):
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False))
ring = jax.make_mesh((size,), ('i',))
"""
SHARED: dict[str, str] = {}
BY_MPI = {"MPIJAX_SHARED_MEMORY": "0"}
CROWDED = {"MPIJAX_WAIT": "yield"}
APART = {"MPIR_CVAR_NOLOCAL": "1", "MPIJAX_SHARED_MEMORY": "0"}  # in MPICH each rank is a node of its own, not in Open MPI
TRANSPORTS = {"shared": SHARED, "mpi": BY_MPI, "crowded": CROWDED}
SOON = {"MPIJAX_STALL_SECONDS": "1"}
# Longer, since busy cores may take a second to start a job.
ABORT = {"MPIJAX_STALL_SECONDS": "4", "MPIJAX_STALL_ABORT": "1"}


@dataclass(frozen=True)
class Row:
    """body: what each rank runs after `START` and `BEGIN`. told: more patterns, of this fault alone."""

    name: str
    promise: p.Promise
    body: str
    ranks: int = 2
    settings: dict[str, str] = field(default_factory=dict)
    start: str = START_ALONE
    told: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        return self.name.split(":")[0]


# By name: the operation on x, of two rows on each of two ranks.
COLLECTIVES = {
    "allreduce": "mpi.allreduce({x}, '{op}')",
    "reduce": "mpi.reduce({x}, '{op}', {root})",
    "scan": "mpi.scan({x}, '{op}')",
    "exscan": "mpi.exscan({x}, '{op}')",
    "reduce_scatter": "mpi.reduce_scatter({x}, '{op}')",
    "bcast": "mpi.bcast({x}, {root})",
    "gather": "mpi.gather({x}, {root})",
    "scatter": "mpi.scatter(({x}) if rank == {root} else ({x})[0], {root})",
    "allgather": "mpi.allgather({x})",
    "alltoall": "mpi.alltoall({x})",
}
# The same over a mesh axis, inside of shard_map.
OVER_MESH = {
    "psum": "lax.psum({x}, 'i')",
    "pmax": "lax.pmax({x}, 'i')",
    "all_gather": "lax.all_gather({x}, 'i')",
    "psum_scatter": "lax.psum_scatter({x}, 'i', scatter_dimension=0, tiled=True)",
    "all_to_all": "lax.all_to_all({x}, 'i', 0, 0, tiled=True)",
    "ppermute": "lax.ppermute({x}, 'i', [(0, 1), (1, 0)])",
}


def text(name: str, x: str = "x", op: str = "SUM", root: str = "0") -> str:
    return COLLECTIVES[name].format(x=x, op=op, root=root)


def _kinds(name: str) -> dict[str, tuple[str, str]]:
    """By kind of mismatch: what rank 0 runs, and what rank 1 does."""
    names = list(COLLECTIVES)
    other = names[(names.index(name) + 1) % len(names)]
    found = {
        "operation": (text(name), text(other)),
        "shape": (text(name), text(name, "x[:, :5]")),
        "dtype": (text(name), text(name, "x.astype('i4')")),
    }
    if "{op}" in COLLECTIVES[name]:
        found["reduction"] = text(name), text(name, op="MAX")
    if "{root}" in COLLECTIVES[name]:
        found["root"] = text(name), text(name, root="1")
    return found


def _unknown() -> list[Row]:
    """Programs that differ, at their first run."""
    rows = []
    for name in COLLECTIVES:
        kinds = _kinds(name)
        kinds["twice"] = text(name), f"({text(name)}, {text(name)})"
        kinds["none"] = text(name), f"({text(name)}, x)[1]" if name == "barrier" else "mpi.allreduce(x, 'MIN')"
        for kind, (a, b) in kinds.items():
            body = (
                f"a, b = jax.jit(lambda x: {a}), jax.jit(lambda x: {b})\n"
                "attempt(lambda: (b if rank else a)(x))\ntotal(x)\nsay('went on', rank)"
            )
            rows.append(Row(f"first run: {name}, other {kind}", p.DIFFERENT, body))
    names = list(OVER_MESH)
    for name, code in OVER_MESH.items():
        other = OVER_MESH[names[(names.index(name) + 1) % len(names)]]
        for kind, second in {"operation": other.format(x="x"), "shape": code.format(x="x[:, :4]")}.items():
            first = code.format(x="x")
            body = (
                f"a, b = over(ring, lambda x: {first}), over(ring, lambda x: {second})\n"
                "z = np.arange(8 * size * size, dtype=np.float32).reshape(-1, 8)\n"
                "attempt(lambda: (b if rank else a)(z))\ntotal(x)\nsay('went on', rank)"
            )
            rows.append(Row(f"first run over a mesh: {name}, other {kind}", p.DIFFERENT, body))
    return rows


def _known() -> list[Row]:
    """Programs that all ranks have run, which then run in another order."""
    rows = []
    for transport, settings in (TRANSPORTS | {"apart": APART}).items():
        for name in COLLECTIVES:
            for kind, (a, b) in _kinds(name).items():
                promise = p.KNOWN
                if transport == "apart":
                    if kind not in ("reduction", "shape") or name not in ("allreduce", "allgather", "alltoall"):
                        continue  # MPI's error names what does not fit only where both ranks send and receive
                    promise = p.KNOWN_APART
                body = (
                    f"a, b = jax.jit(lambda x: {a}), jax.jit(lambda x: {b})\na(x); b(x); total(x)\n"
                    "fault()\n(b if rank else a)(x)\ntotal(x)"
                )
                rows.append(Row(f"known, by {transport}: {name}, other {kind}", promise, body, settings=settings))
    large = "x = np.arange(1 << 17, dtype=np.float32)\nlargest = jax.jit(lambda x: mpi.allreduce(x, 'MAX'))\n"
    for transport, settings in TRANSPORTS.items():
        body = f"{large}total(x); largest(x)\nfault()\n(largest if rank else total)(x)\ntotal(x)"
        rows.append(Row(f"known, by {transport}: large allreduce, other reduction", p.KNOWN, body, settings=settings))
    return rows


# By kind: what rank 1 does in place of the operation; the promise; patterns.
ENDS = {
    "raises": ("raise ValueError('unwell')", p.RAISED, ()),
    "exits": ("sys.exit(3)", p.EXITED, ()),
    "ends": ("sys.exit(0)", p.ENDED, ()),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", p.GONE, ()),
    "crashes": ("os.kill(os.getpid(), signal.SIGSEGV)", p.GONE, ()),
}
LATES = {
    "sleeps": ("time.sleep(3); go()", p.LATE, SOON),
    "is stopped": ("os.system(f'(sleep 3; kill -CONT {os.getpid()}) & kill -STOP {os.getpid()}'); go()", p.LATE, SOON),
    "sleeps for ever": ("time.sleep(100)", p.ABORTED, ABORT),
    "is stopped for ever": ("os.kill(os.getpid(), signal.SIGSTOP)", p.ABORTED, ABORT),
}
# Operations in which rank 0 blocks if rank 1 never calls them.
WAITED_FOR = {
    **{name: text(name) for name in ("allreduce", "allgather", "alltoall", "reduce_scatter")},
    "bcast": text("bcast", root="1"),
    "scatter": text("scatter", root="1"),
    "gather": text("gather"),
    "reduce": text("reduce"),
}
WAYS = {"recv": ("mpi.recv(x, source=1)", "mpi.send(x, dest=0)"), **{k: (v, v) for k, v in WAITED_FOR.items()}}


def _failing() -> list[Row]:
    """A rank that ends, or does not come, while another waits for it."""
    rows = []
    for transport, settings in TRANSPORTS.items():
        for name, (mine, theirs) in WAYS.items():
            both = f"{mine} if rank == 0 else {theirs}"
            go = f"go = jax.jit(lambda x: {both}).lower(x).compile()\ndef go(go=go): return go(x)\n"
            for kind, (code, promise, told) in ENDS.items():
                body = f"{go}go(); total(x)\nfault()\nif rank == 1: {code}\ngo()"
                rows.append(Row(f"rank 1 {kind}, by {transport}: {name}", promise, body, settings=settings, told=told))
            for kind, (code, promise, more) in LATES.items():
                end = "say('went on', rank)" if promise is p.LATE else "pass"
                body = f"{go}go(); total(x)\nfault()\nif rank == 1:\n    {code}\nelse: go()\n{end}"
                rows.append(Row(f"rank 1 {kind}, by {transport}: {name}", promise, body, settings=settings | more))
    for kind, (code, promise, _) in ENDS.items():
        body = f"total(x)\nfault()\nif rank == 1: {code}\njax.jit(lambda x: mpi.allreduce(x, 'MIN'))(x)"
        rows.append(Row(f"rank 1 {kind} before a first run: allreduce", promise, body))
    callback = "def check(y):\n    if rank == 1: raise KeyError('unwell')\n"
    for name, call in {"debug.callback": "jax.debug.callback(check, x)", "pure_callback": (
        "x = x + jax.pure_callback(lambda y: (check(y), y)[1], jax.ShapeDtypeStruct(x.shape, x.dtype), x)"
    )}.items():  # fmt: skip
        body = f"{callback}@jax.jit\ndef f(x):\n    {call}\n    return mpi.allreduce(x, 'SUM')\ntotal(x); fault(); f(x); total(x)"
        rows.append(Row(f"rank 1 raises in a callback: {name}", p.RAISED, body))
    return rows


def _messages() -> list[Row]:
    say_on = "\ntotal(x)\nsay('went on', rank)"
    send = "jax.jit(lambda x: mpi.send({sent}, dest=1{tag}) if rank == 0 else mpi.recv({received}, source=0{tag}))"

    def one(sent: str, received: str, tag: str = "") -> str:
        return f"attempt(lambda: {send.format(sent=sent, received=received, tag=tag)}(x)){say_on}"

    receive = "jax.jit(lambda x: mpi.recv(x, source=1 - rank))(x)"
    rows = []
    for transport, settings in TRANSPORTS.items():
        rows += [
            Row(f"message, by {transport}: other dtype", p.MESSAGE, one("x", "x.astype('i4')"), settings=settings),
            Row(f"message, by {transport}: other dtype, other size", p.MESSAGE, one("x", "x.astype('f2')"), settings=settings),
            Row(f"message, by {transport}: too long", p.SHORT, one("x", "x[:1]"), settings=settings),
            Row(f"message, by {transport}: too short", p.SHORT, one("x[:1]", "x"), settings=settings),
            Row(f"message, by {transport}: two receives", p.RING, f"total(x); fault(); {receive}", settings=settings),
            Row(
                f"message, by {transport}: receive and collective", p.RING,
                "r = jax.jit(lambda x: mpi.recv(x, source=1))\ntotal(x); fault()\nr(x) if rank == 0 else total(x)",
                settings=settings,
            ),
            Row(
                f"message, by {transport}: ring of receives", p.RING,
                "total(x); fault(); jax.jit(lambda x: mpi.recv(x, source=(rank + 1) % size))(x)", 3, settings,
            ),
            Row(
                f"message, by {transport}: never received", p.UNRECEIVED,
                "total(x); fault()\nif rank == 0: mpi.send(x, dest=1)\ntotal(x)", settings=settings,
            ),
            Row(
                f"message, by {transport}: sent after the receiver's end", p.UNRECEIVED,
                "total(x); fault()\nif rank == 0: time.sleep(1); mpi.send(x, dest=1)", settings=settings,
            ),
            Row(
                f"message, by {transport}: other tag", p.ABORTED,
                "total(x); fault()\nif rank == 1: mpi.recv(x, source=0, tag=2)\nelse: mpi.send(x, dest=1, tag=1); time.sleep(60)",
                settings=settings | ABORT,
            ),
            Row(
                f"message, by {transport}: a sender that ended", p.ENDED,
                "total(x); fault()\nif rank == 0: mpi.recv(x, source=1)", settings=settings,
            ),
        ]  # fmt: skip
    rows.append(Row(
        "message: counts of alltoallv", p.DIFFERENT,
        f"attempt(lambda: mpi.alltoallv(x, [1, 1], [1, 1] if rank == 0 else [2, 1])){say_on}",
    ))  # fmt: skip
    return rows


def _meshes() -> list[Row]:
    """The same axes, and not the same communicators."""
    rows = []
    four = "def made(order, names=('i',)): return jax.sharding.Mesh(np.array(jax.devices())[list(order)].reshape((2, 2) if len(names) == 2 else -1), names)\n"
    end = "\ntotal(x)\nsay('went on', rank)"
    cases = {
        "order of devices": ("(0, 1, 2, 3) if rank < 2 else (1, 0, 2, 3)", "('i', 'j')"),
        "order of devices, reversed": ("(0, 1, 2, 3) if rank != 1 else (3, 2, 1, 0)", "('i', 'j')"),
        "names of axes": ("(0, 1, 2, 3)", "('i', 'j') if rank < 2 else ('j', 'i')"),
    }
    for name, (order, names) in cases.items():
        for op in ("psum", "pmax", "all_gather"):
            body = (
                f"{four}m = made({order}, {names})\n"
                f"attempt(lambda: over(m, lambda x: lax.{op}(x, 'i'), jax.P(('i', 'j')))(np.ones((8, 8), np.float32))){end}"
            )
            rows.append(Row(f"mesh: {name}, {op}", p.MEANT, body, 4))
    for op in ("psum", "all_gather"):
        body = (
            f"{four}m = made(range(4))\ng = [[0, 1], [2, 3]] if rank < 2 else [[0, 2], [1, 3]]\n"
            f"attempt(lambda: over(m, lambda x: lax.{op}(x, 'i', axis_index_groups=g))(np.ones((8, 8), np.float32))){end}"
        )
        rows.append(Row(f"mesh: groups, {op}", p.MEANT, body, 4))
    crossed = """
a, b = MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()
first, second = (b, a) if rank else (a, b)
fault()
"""
    rows += [
        Row("communicators: in another order", p.COMMUNICATORS, crossed + "mpi.allreduce(x, MPI.SUM, comm=first)", start=START),
        Row(
            "communicators: crossed in a program", p.COMMUNICATORS,
            crossed + "jax.jit(lambda x: mpi.allreduce(mpi.allreduce(x, MPI.SUM, comm=first), MPI.SUM, comm=second))(x)",
            start=START,
        ),
        Row("communicators: rows and columns", p.RING, """
row, column = mpi.split(rank // 2), mpi.split(rank % 2)
rows = jax.jit(lambda x: mpi.allreduce(x, 'SUM', comm=row))
columns = jax.jit(lambda x: mpi.allreduce(x, 'MAX', comm=column))
rows(x); columns(x); total(x)
fault()
for f in (rows, columns)[:: 1 if rank in (0, 3) else -1]: f(x)
""", 4),
    ]  # fmt: skip
    for name in COLLECTIVES:
        call = f"{text(name)[:-1]}, comm=c)"
        body = (
            f"c = MPI.COMM_WORLD.Dup()\nf = jax.jit(lambda x: {call})\nf(x); c.Free()\nattempt(lambda: f(x))\ntotal(x)"
        )
        rows.append(Row(f"communicators: freed, {name}", p.FREED, body, start=START))
    return rows


def _orders() -> list[Row]:
    rows = []
    for name in ("allreduce", "bcast", "allgather", "alltoall", "reduce_scatter"):
        code = text(name).replace("SUM", "MIN")
        body = f"new = jax.jit(lambda x: {code})\ntotal(x)\nfault()\nif rank == 0: new(x)\nelse: total(x)"
        rows.append(Row(f"order: a new {name} while the other waits", p.EARLIER, body))
    return rows


def _processes() -> list[Row]:
    """Threads, copies, signals, starts and ends."""
    first = """
def first():
    try: total(x)
    except RuntimeError as error: say('told', f'{rank}:', error)
total(x); fault()
if rank == 1: time.sleep(3)
t = threading.Thread(target=first); t.start(); time.sleep(1)
if rank == 0: first()
t.join()
"""
    rows = [Row(f"threads: two, {name}", p.THREADS, first, start=start) for name, start in
            {"alone": START_ALONE, "as MPI allows": START}.items()]  # fmt: skip
    for name in ("recv", "allreduce", "alltoall", "gather"):
        mine, theirs = WAYS[name]
        body = (
            f"f = jax.jit(lambda x: {mine} if rank == 0 else {theirs}).lower(x).compile()\ntotal(x); f(x); fault()\n"
            "if rank == 0: threading.Thread(target=f, args=(x,), daemon=True).start()\ntime.sleep(1)"
        )
        rows.append(Row(f"threads: at the end, {name}", p.THREAD_AT_END, body))
    for name in ("allreduce", "allgather", "bcast", "alltoall"):
        one = f"jax.jit(lambda x: {text(name)})"
        forked = f"f = {one}\nf(x)\nif rank == 1 and os.fork() == 0: attempt(lambda: f(x)); os._exit(0)\nif rank == 1: os.wait()\nf(x)"
        rows.append(Row(f"copies: forked, {name}", p.NOT_A_RANK, forked))
        done = f"from mpi4py import MPI\nf = {one}\nf(x); MPI.Finalize(); time.sleep(rank)\nattempt(lambda: f(x))"
        rows.append(Row(f"copies: after the end of MPI, {name}", p.NOT_A_RANK, done))
    ctrl_c = "threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()"
    for transport, settings in TRANSPORTS.items():
        for name, (mine, theirs) in WAYS.items():
            body = (
                f"go = jax.jit(lambda x: {mine} if rank == 0 else {theirs})\ngo(x); total(x); fault()\n"
                f"if rank: time.sleep(100)\n{ctrl_c}\ngo(x)"
            )
            rows.append(Row(f"Ctrl-C, by {transport}: {name}", p.INTERRUPTED, body, settings=settings))
    late = "import os, sys, time\nif os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK')) == '1': CODE\n"
    # The fault begins when rank 0 starts MPI: to import mpijax may take seconds.
    late += START_ALONE.replace("rank, size", "print(f'FAULT {time.time():.3f}', flush=True)\nrank, size", 1)
    missing = {
        "sleeps": ("time.sleep(100)", p.UNSTARTED, ABORT),
        "ends": ("os._exit(0)", p.UNSTARTED_ENDED, {}),
        "exits": ("sys.exit(0)", p.UNSTARTED_ENDED, {}),
    }
    for name, (code, promise, settings) in missing.items():
        rows.append(Row(f"start: rank 1 {name}", promise, "total(x)", settings=settings, start=late.replace("CODE", code)))
    mpi4py_first = START.replace("jax.process_index(), jax.process_count()", "MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size")
    mpi4py_first = mpi4py_first.replace(
        "x = np.arange", "print(f'FAULT {time.time():.3f}', flush=True)\nif rank == 1: CODE\nx = np.arange"
    )
    starts = {
        "sleeps": ("time.sleep(100)", p.UNSTARTED, ABORT),
        "raises": ("raise ValueError('unwell')", p.RAISED, {}),
        "ends": ("sys.exit(0)", p.ENDED, {}),
    }
    for name, (code, promise, settings) in starts.items():
        rows.append(Row(
            f"start: rank 1 {name} after MPI has started", promise, "total(x)", settings=settings,
            start=mpi4py_first.replace("CODE", code),
        ))  # fmt: skip
    return rows


ROWS = [*_unknown(), *_known(), *_failing(), *_messages(), *_meshes(), *_orders(), *_processes()]
