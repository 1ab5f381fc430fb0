"""Memory spaces with JAX's names, and the types of buffers in them. All of them are the memory of the process."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.core import dtypes
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.tracing.refs import AbstractRef, Ref
from mpijax.core.types.avals import ShapedArray


class semaphore_dtype:
    """What the dtypes of semaphores have in common. A semaphore is a counter here: an int32."""


class semaphore(semaphore_dtype):
    """The dtype of a semaphore, in the name of JAX's.

    >>> from mpijax.experimental import pallas as pl
    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.SEMAPHORE((2,), pl.semaphore).dtype
    dtype('int32')
    """


def undefined(dtype: Any) -> Any:
    """The value of elements that are not written: NaN, the smallest integer, or False."""
    if dtypes.issubdtype(dtype, np.inexact):
        return np.array(np.nan, dtype)[()]
    return np.array(jnp.iinfo(dtype).min if dtypes.issubdtype(dtype, np.integer) else 0, dtype)[()]


def uninitialized(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array whose elements are not written."""
    return jnp.full(shape, undefined(dtype), dtype)


@dataclass(frozen=True)
class MemoryRef:
    """The type of a buffer: the type of its array, and the requested memory space.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.MemorySpace.ANY((2, 3), jnp.float32).shape
    (2, 3)
    """

    inner_aval: Any
    memory_space: Any

    @property
    def is_semaphore(self) -> bool:
        dtype = self.inner_aval.dtype
        return isinstance(dtype, type) and issubclass(dtype, semaphore_dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.inner_aval.shape)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.int32) if self.is_semaphore else dtypes.canonicalize_dtype(self.inner_aval.dtype)

    def get_array_aval(self) -> ShapedArray:
        return ShapedArray(self.shape, self.dtype)

    def get_ref_aval(self) -> AbstractRef:
        return AbstractRef(self.get_array_aval(), self.memory_space)

    def initial(self) -> Any:
        """The initial contents of the buffer."""
        return jnp.zeros(self.shape, self.dtype) if self.is_semaphore else uninitialized(self.shape, self.dtype)


@dataclass(frozen=True)
class _ArrayType:
    """Shape and dtype of a buffer. The dtype may be `semaphore`."""

    shape: tuple[int, ...]
    dtype: Any


class _BufferSpace(enum.Enum):
    """A kind of memory; called with a shape and a dtype it is the type of a buffer."""

    def from_type(self, type: Any) -> MemoryRef:
        """The type of a buffer for arrays of a type."""
        return MemoryRef(type, self)

    def __call__(self, shape: Any, dtype: Any) -> MemoryRef:
        return MemoryRef(_ArrayType(tuple(shape), dtype), self)

    def __str__(self) -> str:
        return self.value


class MemorySpace(_BufferSpace):
    """Memory spaces of all devices of JAX. They are all the same here.

    >>> from mpijax.experimental import pallas as pl
    >>> str(pl.MemorySpace.ANY), pl.ANY is pl.MemorySpace.ANY
    ('any', True)
    """

    ANY = "any"
    DEFAULT = "default"
    ERROR = "error"
    INDEX = "index"
    KEY = "key"
    HOST = "host"


class TPUMemorySpace(_BufferSpace):
    """Memory spaces of a TPU: `VMEM((8, 128), jnp.float32)` is a buffer in the memory of the process.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.VMEM((8, 128), jnp.float32).shape
    (8, 128)
    """

    VMEM = "vmem"
    VMEM_SHARED = "vmem_shared"
    SMEM = "smem"
    CMEM = "cmem"
    SEMAPHORE = "semaphore_mem"
    HBM = "hbm"

    def like(self, shape_dtype_like: Any) -> MemoryRef:
        """The type of a buffer for an array like another one."""
        return self(shape_dtype_like.shape, shape_dtype_like.dtype)


class SemaphoreType(enum.Enum):
    """Kinds of semaphores, for `scratch_shapes`. Each is a counter that begins at 0.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.SemaphoreType.REGULAR((2,)).shape
    (2,)
    """

    REGULAR = "regular"
    DMA = "dma"
    BARRIER = "barrier"

    def __call__(self, shape: tuple[int, ...]) -> MemoryRef:
        return TPUMemorySpace.SEMAPHORE(shape, semaphore)

    def get_array_aval(self) -> ShapedArray:
        return self(()).get_array_aval()

    def get_ref_aval(self) -> AbstractRef:
        return self(()).get_ref_aval()

    def initial(self) -> Any:
        return self(()).initial()


def buffer_of(type: Any, what: str) -> Any:
    """The contents of a new buffer of a type. Raises TypeError, which names `what`, if `type` is not the type of a
    buffer."""
    if isinstance(type, AbstractRef):
        return uninitialized(type.shape, type.dtype)
    if not isinstance(type, (MemoryRef, SemaphoreType)):
        raise TypeError(
            f"{what}: expected a buffer such as pltpu.VMEM((8, 128), jnp.float32) or pl.ANY((8,), jnp.int32), got "
            f"{type!r} of type {type.__class__.__name__}"
        )
    return type.initial()


def new_buffer(type: Any, what: str) -> Ref:
    """A reference to a new buffer of a type."""
    return Ref.of(buffer_of(type, what))
