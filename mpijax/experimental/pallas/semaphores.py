"""Semaphores as counters, and copies between references.

Programs run one after the other, and a copy is finished where it starts. So waiting never blocks.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.core.tracing.refs import addupdate, get, swap
from mpijax.core.trees import tree


class DeviceIdType(enum.Enum):
    """The form of a device's name in exchanges between devices. There is only one device here.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.DeviceIdType.MESH.value
    'mesh'
    """

    MESH = "mesh"
    LOGICAL = "logical"


def _check_local(what: str, device: Any) -> None:
    if device is not None:
        raise NotImplementedError(
            f"pallas does not support {what} on another device. Communicate outside of the kernel, with "
            "jax.lax.ppermute and jax.lax.psum in a shard_map."
        )


def semaphore_read(sem_or_view: Any) -> Any:
    """The count of a semaphore.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.semaphore_read(mpijax.new_ref(jnp.int32(2)))
    Array(2, dtype=int32)
    """
    return jnp.asarray(get(sem_or_view), np.int32)


def semaphore_signal(
    sem_or_view: Any,
    inc: Any = 1,
    *,
    device_id: Any = None,
    device_id_type: DeviceIdType = DeviceIdType.MESH,
    core_index: Any = None,
) -> None:
    """Add `inc` to a semaphore. Raises NotImplementedError for one on another device.

    >>> from mpijax.experimental import pallas as pl
    >>> sem = mpijax.new_ref(jnp.int32(0))
    >>> pl.semaphore_signal(sem, 2)
    >>> sem[...]
    Array(2, dtype=int32)
    """
    _check_local("a semaphore", device_id)
    addupdate(sem_or_view, ..., jnp.asarray(inc, np.int32))


def semaphore_wait(sem_or_view: Any, value: Any = 1, *, decrement: bool = True) -> None:
    """Subtract `value` from a semaphore if `decrement`. It does not block, because no other program runs at the same
    time.

    >>> from mpijax.experimental import pallas as pl
    >>> sem = mpijax.new_ref(jnp.int32(2))
    >>> pl.semaphore_wait(sem)
    >>> sem[...]
    Array(1, dtype=int32)
    """
    if decrement:
        addupdate(sem_or_view, ..., jnp.asarray(-value, np.int32))


class AsyncCopyDescriptor:
    """A copy from one reference or view to another; made by `make_async_copy`."""

    def __init__(self, src_ref: Any, dst_ref: Any):
        self.src_ref = src_ref
        self.dst_ref = dst_ref

    def start(self, priority: int = 0, *, add: bool = False) -> None:
        """Copy, or add the source to the destination."""
        if add:
            addupdate(self.dst_ref, ..., get(self.src_ref))
        else:
            swap(self.dst_ref, ..., get(self.src_ref), False)

    def wait(self) -> None:
        """Does nothing: the copy is finished."""

    wait_send = wait_recv = wait


def make_async_copy(src_ref: Any, dst_ref: Any, sem: Any) -> AsyncCopyDescriptor:
    """A copy between references. `.start()` copies everything, so `.wait()` never waits.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> src, dst = mpijax.new_ref(jnp.arange(3)), mpijax.new_ref(jnp.zeros(2, jnp.int32))
    >>> copy = pltpu.make_async_copy(src.at[1:], dst, None)
    >>> copy.start()
    >>> copy.wait()
    >>> dst[...]
    Array([1, 2], dtype=int32)
    """
    return AsyncCopyDescriptor(src_ref, dst_ref)


def async_copy(src_ref: Any, dst_ref: Any, sem: Any, *, priority: int = 0, add: bool = False) -> AsyncCopyDescriptor:
    """`make_async_copy`, started.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> src, dst = mpijax.new_ref(jnp.arange(3)), mpijax.new_ref(jnp.zeros(3, jnp.int32))
    >>> pltpu.async_copy(src, dst, None).wait()
    >>> dst[...]
    Array([0, 1, 2], dtype=int32)
    """
    copy = make_async_copy(src_ref, dst_ref, sem)
    copy.start(priority, add=add)
    return copy


def sync_copy(src_ref: Any, dst_ref: Any, *, add: bool = False) -> None:
    """Copy a pytree of references to another one.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> src, dst = mpijax.new_ref(jnp.arange(3)), mpijax.new_ref(jnp.zeros(3, jnp.int32))
    >>> pltpu.sync_copy(src, dst)
    >>> dst[...]
    Array([0, 1, 2], dtype=int32)
    """
    tree.tree_map(lambda src, dst: make_async_copy(src, dst, None).start(add=add), src_ref, dst_ref)
