"""The names of Pallas on TPUs that make sense on a CPU: memory spaces, prefetched scalars, copies, semaphores.

You can import names that need a TPU, but they raise NotImplementedError when you call them.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

import mpijax.numpy as jnp
from mpijax import lax
from mpijax import missing as _missing
from mpijax.core import dtypes as _dtypes
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.tracing.refs import get as _get
from mpijax.experimental.pallas import access as _access
from mpijax.experimental.pallas import specs as _specs
from mpijax.experimental.pallas.memory import MemorySpace as _AnyMemorySpace
from mpijax.experimental.pallas.memory import SemaphoreType
from mpijax.experimental.pallas.memory import TPUMemorySpace as MemorySpace
from mpijax.experimental.pallas.memory import semaphore_dtype as _semaphore_dtype
from mpijax.experimental.pallas.semaphores import async_copy, make_async_copy, sync_copy
from mpijax.experimental.pallas.specs import PrefetchScalarGridSpec

__all__ = [
    "ARBITRARY", "CMEM", "CORE_PARALLEL", "CompilerParams", "CoreType", "GridDimensionSemantics", "HBM", "HOST",
    "InterpretParams", "MemorySpace", "PARALLEL", "PrefetchScalarGridSpec", "SEMAPHORE", "SMEM", "SUBCORE_PARALLEL",
    "SemaphoreType", "SideEffectType", "VMEM", "VMEM_SHARED", "async_copy", "bitcast", "dma_semaphore",
    "force_tpu_interpret_mode", "is_tpu_device", "load", "make_async_copy", "reset_tpu_interpret_mode_state", "roll",
    "set_tpu_interpret_mode", "store", "sync_copy", "touch", "trace_value", "with_memory_space_constraint",
]  # fmt: skip

CMEM = MemorySpace.CMEM
HBM = MemorySpace.HBM
SEMAPHORE = MemorySpace.SEMAPHORE
SMEM = MemorySpace.SMEM
VMEM = MemorySpace.VMEM
VMEM_SHARED = MemorySpace.VMEM_SHARED
HOST = _AnyMemorySpace.HOST


class dma_semaphore(_semaphore_dtype):
    """The dtype of a semaphore for copies.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.SEMAPHORE((), pltpu.dma_semaphore).dtype
    dtype('int32')
    """


class CoreType(enum.Enum):
    """Kinds of cores of a TPU.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.CoreType.TC.value
    'tc'
    """

    TC = "tc"
    SC_SCALAR_SUBCORE = "sc_scalar_subcore"
    SC_VECTOR_SUBCORE = "sc_vector_subcore"


class GridDimensionSemantics(enum.Enum):
    """The order in which programs along an axis of the grid may run. Here they always run one after the other.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.PARALLEL.value
    'parallel'
    """

    PARALLEL = "parallel"
    CORE_PARALLEL = "core_parallel"
    SUBCORE_PARALLEL = "subcore_parallel"
    ARBITRARY = "arbitrary"


PARALLEL = GridDimensionSemantics.PARALLEL
CORE_PARALLEL = GridDimensionSemantics.CORE_PARALLEL
SUBCORE_PARALLEL = GridDimensionSemantics.SUBCORE_PARALLEL
ARBITRARY = GridDimensionSemantics.ARBITRARY


class SideEffectType(enum.Enum):
    """The side effects of a kernel.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.SideEffectType.PURE.value
    'pure'
    """

    PURE = "pure"
    DATAFLOW_SIDE_EFFECTING = "dataflow_side_effecting"
    SIDE_EFFECTING = "side_effecting"


@dataclass(frozen=True)
class CompilerParams(_specs.CompilerParams):
    """Parameters for the compiler of TPUs; they have no effect.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")).dimension_semantics
    ('parallel', 'arbitrary')
    """

    dimension_semantics: Any = None
    allow_input_fusion: Any = None
    vmem_limit_bytes: int | None = None
    collective_id: int | None = None
    has_side_effects: bool | SideEffectType = False
    flags: Any = None
    internal_scratch_in_bytes: int | None = None
    serialization_format: int = 1
    disable_bounds_checks: bool = False
    disable_semaphore_checks: bool = False
    skip_device_barrier: bool = False
    allow_collective_id_without_custom_barrier: bool = False
    shape_invariant_numerics: bool = True
    use_tc_tiling_on_sc: bool | None = None
    needs_layout_passes: bool = True
    fuse_transposed_lhs_in_matmul: bool = False

    def __post_init__(self) -> None:
        for name in ("dimension_semantics", "allow_input_fusion"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else tuple(value))


class InterpretParams:
    """Parameters of JAX's simulation of a TPU, for `interpret` of `pallas_call`; they have no effect.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.InterpretParams(detect_races=True).options
    {'detect_races': True}
    """

    def __init__(self, **options: Any):
        self.options = options


@contextlib.contextmanager
def force_tpu_interpret_mode(params: Any = None) -> Iterator[None]:
    """Has no effect: there is one way to run a kernel.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> with pltpu.force_tpu_interpret_mode():
    ...     pass
    """
    yield


def set_tpu_interpret_mode(params: Any = None) -> None:
    """Has no effect: there is one way to run a kernel.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.set_tpu_interpret_mode()
    """


def reset_tpu_interpret_mode_state() -> None:
    """Has no effect: nothing is simulated.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.reset_tpu_interpret_mode_state()
    """


def is_tpu_device() -> bool:
    """False.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.is_tpu_device()
    False
    """
    return False


# ---------------------------------------------------------------- operations


def load(ref: Any, *, mask: Any = None) -> Any:
    """The contents of a reference or view; undefined where `mask` is False.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.load(mpijax.new_ref(jnp.arange(3)).at[1:])
    Array([1, 2], dtype=int32)
    """
    return _access.load(ref, mask=mask)


def store(ref: Any, val: Any, *, mask: Any = None) -> None:
    """Write `val` to a reference or view where `mask` is True.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> ref = mpijax.new_ref(jnp.arange(3))
    >>> pltpu.store(ref, jnp.array([7, 8, 9]), mask=jnp.array([True, False, True]))
    >>> ref[...]
    Array([7, 1, 9], dtype=int32)
    """
    _access.store(ref, None, val, mask=mask)


def roll(x: Any, shift: Any, axis: int, *, stride: int | None = None, stride_axis: int | None = None) -> Any:
    """The elements shifted by `shift` positions along an axis, with wrap-around.

    Args:
      stride, stride_axis: along `stride_axis`, each position shifts its elements by `stride` more than the previous
        position.

    Raises:
      ValueError: a negative shift or stride, an axis that x does not have, or only one of `stride` and `stride_axis`.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.roll(jnp.arange(4), 1, 0)
    Array([3, 0, 1, 2], dtype=int32)
    """
    if isinstance(shift, int) and shift < 0:
        raise ValueError(f"shift must be non-negative, got {shift}")
    if not 0 <= axis < x.ndim:
        raise ValueError(f"axis is out of range: {axis} of shape {x.shape}")
    if (stride is None) != (stride_axis is None):
        raise ValueError("stride and stride_axis must be both specified or not.")
    if stride is None or stride_axis is None:
        return jnp.roll(x, shift, axis)
    if stride < 0:
        raise ValueError(f"stride must be non-negative, got {stride}")
    if not 0 <= stride_axis < x.ndim or stride_axis == axis:
        raise ValueError(f"stride_axis must be an axis of shape {x.shape} other than {axis}, got {stride_axis}")
    shifts = shift + stride * lax.broadcasted_iota(jnp.int32, x.shape, stride_axis)
    places = (lax.broadcasted_iota(jnp.int32, x.shape, axis) - shifts) % x.shape[axis]
    return jnp.take_along_axis(x, places, axis)


def bitcast(x: Any, ty: Any) -> Any:
    """The bits of an array as a dtype of the same size.

    Raises NotImplementedError for a dtype of another size.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.bitcast(jnp.ones(1), jnp.int32)
    Array([1065353216], dtype=int32)
    """
    if _dtypes.canonicalize_dtype(ty).itemsize != x.dtype.itemsize:
        raise NotImplementedError(
            f"pltpu.bitcast from {x.dtype} to {ty}: only dtypes of the same size are supported. Use "
            "jax.lax.bitcast_convert_type, which adds a last axis for the parts of an element."
        )
    return lax.bitcast_convert_type(x, ty)


def touch(ref: Any) -> None:
    """Checks that `ref` is a reference, and does nothing else.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.touch(mpijax.new_ref(jnp.ones(1)))
    """
    _get(ref)


def trace_value(label: str, value: Any) -> None:
    """Has no effect: there is no trace of a TPU.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.trace_value("x", jnp.int32(1))
    """


def with_memory_space_constraint(x: Any, memory_space: Any) -> Any:
    """Returns `x`: there is one memory.

    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> pltpu.with_memory_space_constraint(jnp.ones(1), pltpu.VMEM)
    Array([1.], dtype=float32)
    """
    return x


# ---------------------------------------------------------------- what needs a TPU


def _needs_tpu(names: str, instead: str) -> None:
    for name in names.split():
        globals()[name] = _missing.missing(f"pallas.tpu.{name}", instead)


_needs_tpu(
    "emit_pipeline emit_pipeline_with_allocations BufferedRef BufferedRefBase BufferType",
    "mpijax does not copy blocks; add an axis to the grid of pallas_call, or write a pl.loop over ref[pl.ds(...)]",
)
_needs_tpu(
    """async_remote_copy make_async_remote_copy get_barrier_semaphore core_barrier create_tensorcore_mesh
    run_on_first_core""",
    "kernels cannot send to other devices; use jax.lax.ppermute and jax.lax.psum in a shard_map around the kernel",
)
_needs_tpu(
    """prng_seed prng_random_bits stateful_bernoulli stateful_bits stateful_normal stateful_uniform sample_block
    to_pallas_key stochastic_round""",
    "it is the random number generator of a TPU; pass random numbers of jax.random to the kernel, or the data of a key",
)
_needs_tpu(
    "matmul_push_rhs matmul_acc_lhs matmul_pop pack_elementwise unpack_elementwise einshape",
    "it is an instruction of a TPU; write the operation in jax.numpy",
)
_needs_tpu(
    "get_tpu_info get_tpu_info_for_chip TpuInfo ChipVersion Tiling core LoweringException",
    "it describes a TPU, and mpijax runs on CPUs",
)
