"""The one place that knows how a system's modules are called; cases only see a `Backend`."""

import functools
import importlib
import types

from bench.case import ROOT


class Backend:
    """The modules of one system: `.jax .jnp .lax .nn .random`, and communication between ranks."""

    def __init__(self, system: str):
        self.system = system
        self.root = "mpijax" if system == "mpijax" else "jax"
        self.jax = importlib.import_module(self.root)
        self.jnp = importlib.import_module(f"{self.root}.numpy")

    @functools.cached_property
    def lax(self):
        return importlib.import_module(f"{self.root}.lax")

    @functools.cached_property
    def nn(self):
        return importlib.import_module(f"{self.root}.nn")

    @functools.cached_property
    def random(self):
        return importlib.import_module(f"{self.root}.random")

    @property
    def native_ranks(self) -> bool:
        """Whether the ranks of the job are the system's devices (else each rank is a world of its own)."""
        return self.root == "mpijax"

    @functools.cached_property
    def comm(self):
        """The world of ranks, through mpi4py. mpijax starts MPI itself, as it would in a user's program."""
        if self.native_ranks:
            self.jax.devices()
        else:
            importlib.import_module("mpi4jax")
        return importlib.import_module("mpi4py.MPI").COMM_WORLD

    @property
    def messages(self):
        """The library for explicit MPI calls in traced code."""
        return importlib.import_module("mpijax.mpi" if self.native_ranks else "mpi4jax")

    @property
    def mpi_grids(self):
        """What has `create_cart` and `halo_exchange`; ask for `comm` first, which starts MPI."""
        return importlib.import_module("mpijax.mpi" if self.native_ranks else "bench.peer_mpi")

    def allreduce(self, x):
        """Sum over the ranks."""
        comm = self.comm
        return self.messages.allreduce(x, op=importlib.import_module("mpi4py.MPI").SUM, comm=comm)

    def array(self, x):
        """A host array as an array of the system, not computed by it (so that nothing is compiled for it)."""
        return self.jax.device_put(x)

    def example(self, name: str):
        """The module `examples/<name>.py`, its imports turned to this system."""
        path = ROOT / "examples" / f"{name}.py"
        source = path.read_text()
        if not self.native_ranks:
            ours, theirs = "from mpijax import lax, mpi", "from jax import lax\nfrom bench import peer_mpi as mpi"
            source = source.replace(ours, theirs)
        module = types.ModuleType(name)
        exec(compile(source.replace("mpijax", self.root), str(path), "exec"), module.__dict__)
        return module
