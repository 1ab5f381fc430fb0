"""One operand or result divided into blocks: its types, and the block that a program gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import callable_location
from mpijax.core.programs.jaxpr import ClosedJaxpr, Literal, jaxpr_as_fun
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.tracing.refs import Ref
from mpijax.core.trees import tree
from mpijax.core.types.array_api import Array
from mpijax.core.types.avals import ShapedArray
from mpijax.experimental.pallas import programs
from mpijax.experimental.pallas.memory import uninitialized
from mpijax.experimental.pallas.specs import BlockDim, Blocked, BlockSpec, Element, NoBlockSpec, Squeezed, squeezed
from mpijax.transforms.flat import debug_info
from mpijax.transforms.ref_state import values_of

INDEX = ShapedArray((), np.dtype(np.int32))


@dataclass(frozen=True)
class Scalars:
    """The types and the structure of the operands of index maps."""

    avals: tuple[ShapedArray, ...] = ()
    structure: Any = None

    def refs(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """References to the values, in the structure of the operands."""
        return () if self.structure is None else tree.tree_unflatten(self.structure, map(Ref.of, values))


@dataclass(frozen=True)
class BlockedOperand:
    """An operand or result and its division.

    aval: the type of the whole array. dims: the kinds of its axes. index_map: function from the position of a program
    and the scalars to an int32 for each axis.
    """

    aval: ShapedArray
    dims: tuple[BlockDim, ...]
    index_map: ClosedJaxpr

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of a block along each axis of the array."""
        return tuple(1 if isinstance(d, Squeezed) else d.block_size for d in self.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the block in the kernel."""
        return tuple(d.block_size for d in self.dims if not isinstance(d, Squeezed))

    @property
    def block_aval(self) -> ShapedArray:
        return ShapedArray(self.shape, self.aval.dtype)

    @property
    def padding(self) -> list[tuple[int, int]]:
        """The number of undefined elements before and after the array along each axis.

        The padding after the array makes the last block whole.
        """
        found = []
        for n, size, dim in zip(self.aval.shape, self.sizes, self.dims, strict=True):
            low, high = dim.padding if isinstance(dim, Element) else (0, 0)
            found.append((low, high + (-(low + n + high) % size if size else 0)))
        return found

    @property
    def padded_shape(self) -> tuple[int, ...]:
        return tuple(n + low + high for n, (low, high) in zip(self.aval.shape, self.padding, strict=True))

    @property
    def is_whole(self) -> bool:
        """Whether the padded array is one block."""
        return self.padded_shape == self.sizes

    def padded(self, x: Any) -> Any:
        """The array with the padding around it."""
        if self.padded_shape == self.aval.shape:
            return x
        value = uninitialized((), self.aval.dtype)
        return lax.pad(x, value, [(low, high, 0) for low, high in self.padding])

    def without_padding(self, x: Any) -> Any:
        if self.padded_shape == self.aval.shape:
            return x
        lows = [low for low, _ in self.padding]
        return lax.slice(x, lows, [low + n for low, n in zip(lows, self.aval.shape, strict=True)])

    def numbers(self, ids: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        """The result of the index map for a position."""
        return jaxpr_as_fun(self.index_map)(*ids, *scalars)

    def starts(self, ids: Sequence[Any], scalars: Sequence[Any]) -> list[Any]:
        """The start of the block of a position."""
        numbers = self.numbers(ids, scalars)
        return [n * d.block_size if isinstance(d, Blocked) else n for n, d in zip(numbers, self.dims, strict=True)]

    @property
    def may_be_negative(self) -> list[bool]:
        """For each axis whether the index map may return a negative number."""
        jaxpr = self.index_map.jaxpr
        return [not (v in jaxpr.invars if not isinstance(v, Literal) else v.val >= 0) for v in jaxpr.outvars]

    def read(self, x: Any, starts: Sequence[Any]) -> Any:
        """The block of the padded array that begins at `starts`, as the kernel sees it."""
        if not self.is_whole:
            x = lax.dynamic_slice(x, starts, self.sizes, allow_negative_indices=self.may_be_negative)
        return lax.reshape(x, self.shape)

    def write(self, x: Any, starts: Sequence[Any], block: Any) -> Any:
        """The padded array with the block at `starts` replaced."""
        block = lax.reshape(block, self.sizes)
        if self.is_whole:
            return block
        return lax.dynamic_update_slice(x, block, starts, allow_negative_indices=self.may_be_negative)


def blocks_of(
    spec: BlockSpec | NoBlockSpec, aval: ShapedArray, origin: str, grid: Sequence[int | None], scalars: Scalars
) -> BlockedOperand:
    """The division of an array by a spec. grid: sizes of the grid, None for a computed size.

    Raises:
      ValueError: the spec does not match the array, or its index map is not an index map.
      NotImplementedError: a kind of axis whose index map returns more than a number.
    """
    given = BlockSpec() if isinstance(spec, NoBlockSpec) else spec
    shape = aval.shape if given.block_shape is None else given.block_shape
    dims = tuple(_dim(d, origin) for d in shape)
    if len(dims) != aval.ndim:
        raise ValueError(
            f"Block shape for {origin} (= {dims}) must have the same number of dimensions as the array shape "
            f"{aval.shape}."
        )
    index_map = given.index_map or (lambda *_: (0,) * aval.ndim)
    return BlockedOperand(aval, dims, _index_map(index_map, origin, dims, grid, scalars))


def _dim(dim: Any, origin: str) -> BlockDim:
    if dim is None:
        return squeezed
    if isinstance(dim, (Squeezed, Blocked, Element)):
        return dim
    if isinstance(dim, (int, np.integer)):
        return Blocked(int(dim))
    if isinstance(dim, BlockDim):
        raise NotImplementedError(
            f"pallas: {dim} in the block shape of {origin} is not supported. Use an int or pl.Element(size), or pass "
            "the whole array and read a part of it with pl.ds in the kernel."
        )
    raise ValueError(
        f"Unsupported block dimension type: {type(dim)}. Allowed types: `pl.Squeezed`, `pl.Blocked`, `pl.Element`, "
        "`int`, `None`."
    )


def _index_map(
    index_map: Callable, origin: str, dims: Sequence[Any], grid: Sequence[int | None], scalars: Scalars
) -> ClosedJaxpr:
    """The index map as a program of the position and the scalars."""
    where = f"Index map function {callable_location(index_map)} for {origin}"

    def call(*args):
        ids = args[: len(grid)]
        with programs.at(ids, grid):
            found = index_map(*ids, *scalars.refs(args[len(grid) :]))
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(dims):
            raise ValueError(
                f"{where} must return {len(dims)} values to match block_shape={tuple(dims)}. Currently returning "
                f"{len(found)} values:"
            )
        return [_number(x, i, where) for i, x in enumerate(found)]

    avals = [INDEX] * len(grid) + list(scalars.avals)
    jaxpr, consts = trace_to_jaxpr(call, avals, debug_info("pallas_call index_map", index_map, (), {}))
    return closed_without_arrays(jaxpr, consts, where)


def _number(x: Any, i: int, where: str) -> Any:
    dtype, shape = jnp.result_type(x), jnp.shape(x)
    if shape or not jnp.issubdtype(dtype, np.integer):
        raise ValueError(f"{where} must return integer scalars. Output[{i}] has type {ShapedArray(shape, dtype)}.")
    return lax.convert_element_type(x, np.int32)


def closed_without_arrays(jaxpr: Any, consts: Sequence[Any], where: str) -> ClosedJaxpr:
    """A traced program with its constants. No constant may be a JAX array from outside.

    Raises ValueError for such an array.
    """
    values = values_of(consts)
    arrays = ", ".join(c.aval.str_short(True) for c in values if isinstance(c, Array))
    if arrays:
        raise ValueError(f"{where} captures constants [{arrays}]. You should pass them as inputs.")
    return ClosedJaxpr(jaxpr, values)
