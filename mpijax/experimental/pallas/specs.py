"""The user's description of blocks: `BlockSpec`, `GridSpec` and the kinds of dimensions."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.types.array_api import Array


class RevisitMode(enum.Enum):
    """When a block of a result may be written again. Here always: a block is in the result's own memory.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.RevisitMode.ANY.value
    'any'
    """

    IMMEDIATE = "immediate"
    ANY = "any"


@dataclass(frozen=True)
class Buffered:
    """How devices with their own memory prefetch blocks. It has no effect: blocks are read in place.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.Buffered(2).buffer_count
    2
    """

    buffer_count: int
    use_lookahead: bool = False
    revisit: RevisitMode | None = None


@dataclass(frozen=True)
class Element:
    """A dimension of a block of `block_size` whose index map returns its first element, not the number of a block.

    padding: numbers of undefined elements to add before and after the array along this axis.

    >>> from mpijax.experimental import pallas as pl
    >>> def kernel(x_ref, o_ref):
    ...     o_ref[0] = x_ref[...].sum()
    >>> pl.pallas_call(kernel, out_shape=mpijax.ShapeDtypeStruct((3,), jnp.int32), grid=(3,),
    ...                in_specs=[pl.BlockSpec((pl.Element(2),), lambda i: (i,))],
    ...                out_specs=pl.BlockSpec((1,), lambda i: (i,)))(jnp.arange(4))
    Array([1, 3, 5], dtype=int32)
    """

    block_size: int
    padding: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Squeezed:
    """A dimension of size 1 that the kernel's references do not have; None in a block shape means the same.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.BlockSpec((pl.squeezed, 8), lambda i: (i, 0)).block_shape[0]
    Squeezed()
    """


@dataclass(frozen=True)
class Blocked:
    """A dimension of `block_size` whose index map returns the number of a block; an int means the same.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.Blocked(8).block_size
    8
    """

    block_size: int


@dataclass(frozen=True)
class BoundedSlice:
    """A dimension whose index map returns a `ds` of at most `block_size`. Raises NotImplementedError when used.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.BoundedSlice(8).block_size
    8
    """

    block_size: int


@dataclass(frozen=True)
class Indirect:
    """A dimension whose index map returns an array of positions. Raises NotImplementedError when used.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.Indirect(8).block_size
    8
    """

    block_size: int


BlockDim = Element | Squeezed | Blocked | BoundedSlice | Indirect
squeezed = Squeezed()


class NoBlockSpec:
    """Stands for specs: every operand or result is one block."""

    def __repr__(self) -> str:
        return "NoBlockSpec"


no_block_spec = NoBlockSpec()


@dataclass
class BlockSpec:
    """The block of an array that each program of the grid gets.

    Args:
      block_shape: for each axis, the size of a block, None for an axis of size 1 to leave out, or an `Element`,
        `Blocked` or `Squeezed`. None instead of a sequence means the whole array.
      index_map: function from the position of the program in the grid to the number of the block along each axis. None
        means the first block.
      memory_space: has no effect: there is one memory.
      pipeline_mode: has no effect: blocks are read in place.

    >>> from mpijax.experimental import pallas as pl
    >>> rows = pl.BlockSpec((2, 4), lambda i: (i, 0))
    >>> double = pl.pallas_call(
    ...     lambda x_ref, o_ref: o_ref.set(2 * x_ref[...]), out_shape=mpijax.ShapeDtypeStruct((4, 4), jnp.int32),
    ...     grid=(2,), in_specs=[rows], out_specs=rows)
    >>> double(jnp.eye(4, dtype=jnp.int32))[0]
    Array([2, 0, 0, 0], dtype=int32)
    """

    block_shape: Sequence[BlockDim | int | None] | None = None
    index_map: Callable[..., Any] | None = None
    memory_space: Any | None = dataclasses.field(kw_only=True, default=None)
    pipeline_mode: Buffered | None = None

    def replace(self, **changes: Any) -> BlockSpec:
        """The same with other fields.

        >>> from mpijax.experimental import pallas as pl
        >>> pl.BlockSpec((8, 128)).replace(block_shape=(8, 64)).block_shape
        (8, 64)
        """
        return dataclasses.replace(self, **changes)


@dataclass(init=False, kw_only=True)
class GridSpec:
    """A grid with the specs of operands and results, as one object for `pallas_call(..., grid_spec=...)`.

    Raises:
      ValueError: `in_specs` is not a sequence, or the grid does not consist of integers.

    The axes of a grid may have names: `grid=(("i", 4), ("j", 2))`. `jax.lax.axis_size` gives their sizes in kernels.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.GridSpec(grid=4).grid
    (4,)
    """

    grid: tuple[Any, ...]
    in_specs: Any
    out_specs: Any
    scratch_shapes: Any = ()
    grid_names: tuple[Any, ...] | None = None

    num_scalar_prefetch = 0

    def __init__(
        self, grid: Any = (), in_specs: Any = no_block_spec, out_specs: Any = no_block_spec, scratch_shapes: Any = ()
    ):
        if in_specs is not no_block_spec and not isinstance(in_specs, Sequence):
            raise ValueError(f"`in_specs` must be a tuple or a list. Found: {in_specs}")
        self.in_specs = tuple(in_specs) if isinstance(in_specs, list) else in_specs
        self.out_specs = tuple(out_specs) if isinstance(out_specs, list) else out_specs
        self.scratch_shapes = scratch_shapes if isinstance(scratch_shapes, dict) else tuple(scratch_shapes)
        self.grid_names, self.grid = _grid(grid)


def _grid(grid: Any) -> tuple[tuple[Any, ...] | None, tuple[Any, ...]]:
    """The names of the axes, None for a grid without, and their sizes."""
    grid, names = (grid,) if isinstance(grid, int) else tuple(grid), None
    if grid and all(isinstance(axis, tuple) and len(axis) == 2 for axis in grid):
        names, grid = zip(*grid, strict=True)
    if not all(isinstance(size, (int, np.integer, Array)) for size in grid):
        raise ValueError(f"Grid must be a tuple of integers or jax.Array, got {grid}")
    return names, tuple(size if isinstance(size, Array) else int(size) for size in grid)


@dataclass(init=False, kw_only=True)
class PrefetchScalarGridSpec(GridSpec):
    """A `GridSpec` whose index maps depend on data: the first operands go to them, and to the kernel, as references.

    Args:
      num_scalar_prefetch: number of these operands. Index maps get them after the position; they have no specs.

    >>> from mpijax.experimental import pallas as pl
    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> spec = pltpu.PrefetchScalarGridSpec(
    ...     num_scalar_prefetch=1, grid=(3,), in_specs=[pl.BlockSpec((1,), lambda i, order: (order[i],))],
    ...     out_specs=pl.BlockSpec((1,), lambda i, order: (i,)))
    >>> take = pl.pallas_call(
    ...     lambda order, x_ref, o_ref: o_ref.set(x_ref[...]), out_shape=mpijax.ShapeDtypeStruct((3,), jnp.float32),
    ...     grid_spec=spec)
    >>> take(jnp.array([2, 0, 1]), jnp.array([10.0, 20.0, 30.0]))
    Array([30., 10., 20.], dtype=float32)
    """

    num_scalar_prefetch: int

    def __init__(
        self,
        num_scalar_prefetch: int,
        grid: Any = (),
        in_specs: Any = no_block_spec,
        out_specs: Any = no_block_spec,
        scratch_shapes: Any = (),
    ):
        super().__init__(grid, in_specs, out_specs, scratch_shapes)
        self.num_scalar_prefetch = num_scalar_prefetch


class CompilerParams:
    """Base of the parameters for a device's compiler. Those of TPUs and GPUs are accepted and have no effect.

    >>> from mpijax.experimental import pallas as pl
    >>> from mpijax.experimental.pallas import tpu as pltpu
    >>> isinstance(pltpu.CompilerParams(), pl.CompilerParams)
    True
    """
