"""Devices and processes: JAX's view of an MPI job. A rank is a process and owns one CPU device.

A job of one process may have several devices, which share its cores; `local_count` gives their number. Then meshes,
`shard_map` and `pmap` can be tried without a launcher.

Every function but `default_backend` starts MPI on its first call, because only MPI knows the number of ranks.
"""

import os
import re
from functools import cache
from typing import Any

from mpijax.core.base import config
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.simulation import Simulation
from mpijax.core.sharding.memory_space import DEVICE, KINDS
from mpijax.runtime.mpi import mpi_start

PLATFORM = "cpu"
# Platforms that JAX programs request and that mpijax never has.
_FOREIGN_PLATFORMS = ("gpu", "cuda", "rocm")


class Device:
    """A place for arrays: the memory and the cores of one rank. There is one object per device, so identity is
    equality.

    Attributes: `id` counts over the whole job; `process_index` is the rank that owns the device;
    `local_hardware_id` counts over the devices of that rank.

    >>> mpijax.local_devices()[0].platform
    'cpu'
    """

    # Also makes them attributes of the class, as in JAX: tests of libraries specify mocks by it.
    __slots__ = ("__weakref__", "id", "local_hardware_id", "process_index")
    platform = PLATFORM
    runtime_type = "mpi"
    device_kind = PLATFORM

    def __init__(self, id: int, process_index: int, local_hardware_id: int = 0):
        self.id = id
        self.process_index = process_index
        self.local_hardware_id = local_hardware_id

    @property
    def host_id(self) -> int:
        return self.process_index

    def addressable_memories(self) -> list["Memory"]:
        """The kinds of memory that arrays on the device may have; all are this process's memory."""
        return [Memory(self, kind) for kind in KINDS]

    def default_memory(self) -> "Memory":
        """The default memory of arrays."""
        return Memory(self, DEVICE)

    def memory(self, kind: str) -> "Memory":
        """The memory of a kind. Raises ValueError for an unknown kind."""
        if kind not in KINDS:
            raise ValueError(
                f"Could not find memory addressable by device {PLATFORM}. Device {PLATFORM} can address the following "
                f"memory kinds: {', '.join(KINDS)}. Got memory kind: {kind}"
            )
        return Memory(self, kind)

    @property
    def client(self) -> "Client":
        return CLIENT

    def memory_stats(self) -> None:
        """None: statistics of device memory, which JAX does not have for CPUs either."""
        return None

    def __repr__(self) -> str:
        return f"CpuDevice(id={self.id})"

    def __str__(self) -> str:
        return f"{PLATFORM}:{self.id}"

    def __reduce__(self):
        return _device_with_id, (self.id,)


class SimulatedDevice(Device):
    """The device of a simulated rank (`mpijax.simulate`). Programs over it are planned but not run."""

    __slots__ = ("simulation",)

    def __init__(self, id: int, simulation: Simulation):
        super().__init__(id, id)
        self.simulation = simulation

    def __repr__(self) -> str:
        return f"SimulatedDevice(id={self.id}, ranks={self.simulation.ranks})"

    def __reduce__(self):
        self.simulation.refuse("pickling a device")


def simulated_devices(ranks: int, rank: int) -> list[Device]:
    """The devices of a simulated job of `ranks` ranks, one for each, as rank `rank` sees them."""
    simulation = Simulation(ranks, rank)
    return [SimulatedDevice(r, simulation) for r in range(ranks)]


@dataclass(frozen=True)
class Memory:
    """A kind of memory of a device. All kinds are the memory of the process.

    >>> mpijax.local_devices()[0].default_memory().kind
    'device'
    """

    device: Device
    kind: str

    platform = PLATFORM
    runtime_type = "mpi"
    process_index = property(lambda self: self.device.process_index)

    def addressable_by_devices(self) -> list[Device]:
        """The devices whose arrays may be in this memory."""
        return [self.device]

    def _number(self) -> int:
        return self.device.id * len(KINDS) + KINDS.index(self.kind)

    def __repr__(self) -> str:
        return f"{'cpu_device' if self.kind == DEVICE else self.kind}_{self._number()}".upper()

    def __str__(self) -> str:
        name = {DEVICE: "CpuDeviceMemory", "pinned_host": "PinnedHostMemory"}.get(self.kind, "UnpinnedHostMemorySpace")
        return f"{name}(id={self._number()}, process_index={self.process_index}, client={PLATFORM})"


class Client:
    """JAX's backend object, with the facts about the only one."""

    platform = PLATFORM
    runtime_type = "mpi"

    @property
    def platform_version(self) -> str:
        return mpi_start.library_version()

    def devices(self) -> list[Device]:
        return devices()

    def local_devices(self) -> list[Device]:
        return local_devices()

    def device_count(self) -> int:
        return device_count()

    def process_index(self) -> int:
        return process_index()


CLIENT = Client()


def local_count() -> int:
    """The requested number of devices per process, from the option `jax_num_cpu_devices`, MPIJAX_NUM_LOCAL_DEVICES, or
    --xla_force_host_platform_device_count in XLA_FLAGS, in that order; otherwise 1.

    Raises ValueError for anything but a positive number.
    """
    given = config.values.jax_num_cpu_devices
    what, text = "jax_num_cpu_devices", "" if given == -1 else str(given)
    if not text:
        what, text = "MPIJAX_NUM_LOCAL_DEVICES", os.environ.get("MPIJAX_NUM_LOCAL_DEVICES", "").strip()
    if not text:
        flag = "--xla_force_host_platform_device_count"
        found = re.findall(rf"{flag}=(\S+)", os.environ.get("XLA_FLAGS", ""))
        what, text = flag, found[-1] if found else "1"
    if not text.isdigit() or int(text) == 0:
        raise ValueError(f"{what} must be the number of devices of a process, 1 or more, got {text!r}")
    return int(text)


_parse_count = config.num_cpu_devices.parse


def _too_late(value: Any) -> Any:
    raise RuntimeError(
        "jax_num_cpu_devices config should be updated before backends are initialized, that is before the first "
        f"computation or call of jax.devices(). It can no longer become {_parse_count(value)}"
    )


@cache
def _all_devices() -> tuple[Device, ...]:
    ranks, count = mpi_start.size(), local_count()
    config.num_cpu_devices.parse = _too_late
    return tuple(Device(rank * count + i, rank, i) for rank in range(ranks) for i in range(count))


def forget() -> None:
    """Forget the devices, because the job's ranks have changed."""
    _all_devices.cache_clear()


def are_known() -> bool:
    """Whether devices have been created, after which their number is fixed."""
    return _all_devices.cache_info().currsize > 0


def _device_with_id(id: int) -> Device:
    """The device of this job with that id, for pickle."""
    return _all_devices()[id]


def _check_backend(backend: Any) -> None:
    if backend is None or backend == PLATFORM or isinstance(backend, Client):
        return
    if backend in _FOREIGN_PLATFORMS:
        raise RuntimeError(
            f"Unknown backend: '{backend}' requested, but no platforms that are instances of {backend} "
            f"are present. Platforms present are: {PLATFORM}. mpijax computes on the CPUs of its MPI ranks."
        )
    raise RuntimeError(f"Unknown backend {backend}. Available backends are ['{PLATFORM}']")


def devices(backend: Any = None) -> list[Device]:
    """All devices of the job, in rank order: one per rank, or all devices of a single process.

    >>> [device.id for device in mpijax.devices()] == list(range(mpijax.device_count()))
    True
    """
    _check_backend(backend)
    return list(_all_devices())


def local_devices(
    process_index: int | None = None, backend: Any = None, host_id: int | None = None
) -> list[Device]:
    """The devices of one rank: this one, or the one given.

    >>> [device.process_index for device in mpijax.local_devices()]
    [0]
    """
    _check_backend(backend)
    index = process_index if process_index is not None else host_id
    if index is None:
        index = mpi_start.rank()
    if index not in range(mpi_start.size()):
        raise ValueError(
            f"Unknown process_index {index}: this job has {mpi_start.size()} processes, counted from 0"
        )
    return [device for device in _all_devices() if device.process_index == index]


def process_index(backend: Any = None) -> int:
    """The rank of this process in the job.

    >>> mpijax.process_index()
    0
    """
    _check_backend(backend)
    return mpi_start.rank()


def process_count(backend: Any = None) -> int:
    """The number of ranks of the job.

    >>> mpijax.process_count()
    1
    """
    _check_backend(backend)
    return mpi_start.size()


def process_indices(backend: Any = None) -> list[int]:
    """The numbers of all ranks.

    >>> mpijax.process_indices()
    [0]
    """
    return list(range(process_count(backend)))


def device_count(backend: Any = None) -> int:
    """The number of devices of the whole job.

    >>> mpijax.device_count() == len(mpijax.devices())
    True
    """
    return len(devices(backend))


def local_device_count(backend: Any = None) -> int:
    """The number of devices of this rank.

    >>> mpijax.local_device_count() == len(mpijax.local_devices())
    True
    """
    return len(local_devices(backend=backend))


def host_id(backend: Any = None) -> int:
    """The older name of `process_index`.

    >>> mpijax.host_id() == mpijax.process_index()
    True
    """
    return process_index(backend)


def host_ids(backend: Any = None) -> list[int]:
    """The older name of `process_indices`.

    >>> mpijax.host_ids() == mpijax.process_indices()
    True
    """
    return process_indices(backend)


def host_count(backend: Any = None) -> int:
    """The older name of `process_count`.

    >>> mpijax.host_count() == mpijax.process_count()
    True
    """
    return process_count(backend)


def default_backend() -> str:
    """The platform of the default device; does not start MPI.

    >>> mpijax.default_backend()
    'cpu'
    """
    return PLATFORM
