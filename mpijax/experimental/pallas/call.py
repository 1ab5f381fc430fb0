"""`pallas_call`: a kernel over a grid, as an ordinary traced program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.trees import tree
from mpijax.core.types.array_api import Array
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.experimental.pallas import grid_loop, grid_map, kernels
from mpijax.experimental.pallas.blocks import BlockedOperand, Scalars, blocks_of
from mpijax.experimental.pallas.memory import MemoryRef, buffer_of, uninitialized
from mpijax.experimental.pallas.specs import BlockSpec, GridSpec, no_block_spec
from mpijax.experimental.pallas.varying import vary_as
from mpijax.ops.control_flow.varying import vary
from mpijax.scopes import named_scope
from mpijax.sharding import NamedSharding, PartitionSpec
from mpijax.spmd.reshard import reshard
from mpijax.transforms.jit import jit


def pallas_call(
    kernel: Callable[..., None],
    out_shape: Any,
    *,
    grid_spec: GridSpec | None = None,
    grid: Any = (),
    in_specs: Any = no_block_spec,
    out_specs: Any = no_block_spec,
    scratch_shapes: Any = (),
    input_output_aliases: Mapping[int, int] | None = None,
    debug: bool = False,
    interpret: Any = False,
    name: str | None = None,
    compiler_params: Any = None,
    cost_estimate: Any = None,
    metadata: dict[str, str] | None = None,
) -> Callable[..., Any]:
    """A function that runs a kernel for each position of a grid, on blocks of its operands and results.

    The programs run one after the other, as one compiled program; the last axis of the grid changes fastest. Elements
    that no program writes are NaN, the smallest integer, or False.

    Args:
      kernel: a function of references to the blocks of the operands, to the blocks of the results, and to the scratch
        memory. It returns None.
      out_shape: a pytree of objects with the shapes and dtypes of the results.
      grid_spec: `grid`, `in_specs`, `out_specs` and `scratch_shapes` as one object, instead of these.
      grid: number of programs along each axis: integers, or computed int32 scalars; or pairs of a name and such a size.
      in_specs: a sequence like the arguments, with a `BlockSpec` for each array. By default, each array is one block.
      out_specs: a pytree like `out_shape`, with a `BlockSpec` for each.
      scratch_shapes: a pytree of types of buffers, such as `pltpu.VMEM((8, 128), jnp.float32)`. Buffers keep their
        contents from one program to the next.
      input_output_aliases: {number of an operand: number of the result that begins with its contents}.
      debug: print the kernel's Jaxpr.
      interpret, compiler_params, cost_estimate, metadata: accepted; they have no effect.
      name: name of the kernel in messages and profiles.

    On global arrays, a rank may gather its operands and run all programs. Inside `shard_map`, each rank runs the kernel
    on its shard, without communication.

    Raises:
      ValueError: specs, grid or aliases do not match the arrays; or the kernel returns a value, or uses an array that
        is not an operand.

    >>> from mpijax.experimental import pallas as pl
    >>> def add(x_ref, y_ref, o_ref):
    ...     o_ref[...] = x_ref[...] + y_ref[...]
    >>> rows = pl.BlockSpec((1, 3), lambda i: (i, 0))
    >>> sums = pl.pallas_call(add, out_shape=mpijax.ShapeDtypeStruct((2, 3), jnp.float32), grid=(2,),
    ...                       in_specs=[rows, rows], out_specs=rows)
    >>> sums(jnp.ones((2, 3)), jnp.eye(2, 3))
    Array([[2., 1., 1.],
           [1., 2., 1.]], dtype=float32)
    """
    spec = _spec(grid_spec, grid, in_specs, out_specs, scratch_shapes)
    shapes, out_tree = tree.tree_flatten(tuple(out_shape) if isinstance(out_shape, list) else out_shape)
    aliases = dict(input_output_aliases or {})

    def call(*args):
        leaves, in_tree = tree.tree_flatten(args)
        axes = frozenset[Any]().union(*(typeof(x).vma for x in (*leaves, *spec.grid)))
        leaves, grid = ([_whole(x, axes) if isinstance(x, Array) else x for x in xs] for xs in (leaves, spec.grid))
        results = [_result_aval(s) for s in shapes]
        _check_aliases(aliases, [typeof(x) for x in leaves], results, args)
        known = tuple(None if isinstance(n, Array) else n for n in grid)
        scalars, inputs, operands_tree = _operands(spec, known, args, in_tree, leaves)
        outputs = _results(spec, known, results, out_tree, scalars)
        types, scratch_tree = tree.tree_flatten(spec.scratch_shapes)
        scratch = [buffer_of(t, "scratch_shapes") for t in types]
        structures = operands_tree, out_tree, scratch_tree
        avals = [typeof(x) for x in scratch]
        traced = kernels.traced(kernel, name, known, spec.grid_names, scalars, inputs, outputs, avals, structures)
        if debug:
            print(f"The kernel {call.__name__}:\n{traced.closed}")
        sources = {o: leaves[i] for i, o in aliases.items()}
        before = [sources[i] if i in sources else uninitialized(a.shape, a.dtype) for i, a in enumerate(results)]
        first = len(scalars.avals)
        arrays = [b.padded(x) for b, x in zip((*inputs, *outputs), (*leaves[first:], *before), strict=True)]
        found = grid_map.run(traced, grid, arrays, scratch)
        if found is None:
            found = grid_loop.run(traced, grid, leaves[:first], arrays, scratch)
        cut = [vary_as(b.without_padding(x), axes) for b, x in zip(outputs, found, strict=True)]
        return tree.tree_unflatten(out_tree, cut)

    call.__name__ = call.__qualname__ = str(name or getattr(kernel, "__name__", "pallas_call"))
    compiled = jit(named_scope(name)(call) if name is not None else call)

    def wrapped(*args):
        return compiled(*args)

    wrapped.__name__ = wrapped.__qualname__ = call.__name__
    return wrapped


def _spec(grid_spec: GridSpec | None, grid: Any, in_specs: Any, out_specs: Any, scratch_shapes: Any) -> GridSpec:
    if grid_spec is None:
        return GridSpec(grid, in_specs, out_specs, scratch_shapes)
    given = {"grid": grid, "in_specs": in_specs, "out_specs": out_specs, "scratch_shapes": scratch_shapes}
    for what, value in given.items():
        default = no_block_spec if what.endswith("specs") else ()
        if value is not default and (default is no_block_spec or value):
            text = "no_block_spec" if default is no_block_spec else "()"
            raise ValueError(f"If `grid_spec` is specified, then `{what}` must be `{text}`. It is {value}")
    return grid_spec


def _whole(x: Any, axes: frozenset) -> Any:
    """`x` without mesh axes in its type: an array that is split over Explicit axes is gathered.

    axes: over which results vary. The cotangent of an operand that does not is summed over them.
    """
    aval = typeof(x)
    if aval.split is not None:
        x = reshard(x, NamedSharding(aval.sharding.mesh, PartitionSpec()))
    return vary_as(vary(x, axes), frozenset())


def _result_aval(shape: Any) -> ShapedArray:
    if isinstance(shape, MemoryRef):
        return shape.get_array_aval()
    if not (hasattr(shape, "shape") and hasattr(shape, "dtype")):
        raise ValueError(f"Invalid out_shape type: {type(shape)}")
    return ShapedArray(tuple(shape.shape), dtypes.canonicalize_dtype(np.dtype(shape.dtype)))


def _operands(
    spec: GridSpec, grid: tuple[int | None, ...], args: tuple[Any, ...], in_tree: Any, leaves: Sequence[Any]
) -> tuple[Scalars, tuple[BlockedOperand, ...], Any]:
    """What index maps get; the other operands, divided; and the structure of these."""
    count = spec.num_scalar_prefetch
    scalars = Scalars()
    if count:
        values, structure = tree.tree_flatten(args[:count])
        scalars = Scalars(tuple(ShapedArray(typeof(x).shape, typeof(x).dtype) for x in values), structure)
        in_tree = tree.tree_structure(args[count:])
    specs = _flat_specs(spec.in_specs, in_tree, "`in_specs`", "`inputs`")
    first = len(scalars.avals)
    paths = [path for path, _ in tree.tree_flatten_with_path(args)[0]][first:]
    inputs = tuple(
        blocks_of(s, typeof(x), f"args{tree.keystr(p)}", grid, scalars)
        for s, x, p in zip(specs, leaves[first:], paths, strict=True)
    )
    return scalars, inputs, in_tree


def _results(
    spec: GridSpec, grid: tuple[int | None, ...], avals: Sequence[ShapedArray], out_tree: Any, scalars: Scalars
) -> tuple[BlockedOperand, ...]:
    """The results, divided."""
    specs = _flat_specs(spec.out_specs, out_tree, "`out_specs`", "`out_shape`")
    numbered = tree.tree_unflatten(out_tree, range(out_tree.num_leaves))
    paths = [path for path, _ in tree.tree_flatten_with_path(numbered)[0]]
    return tuple(
        blocks_of(s, a, f"outputs{tree.keystr(p)}", grid, scalars) for s, a, p in zip(specs, avals, paths, strict=True)
    )


def _flat_specs(specs: Any, structure: Any, what: str, other: str) -> list[Any]:
    """A spec for each leaf of a structure."""
    if specs is no_block_spec:
        return [no_block_spec] * structure.num_leaves
    leaves, found = tree.tree_flatten(specs)
    if found != structure:
        errors = [
            f"  * at {tree.keystr(path) or 'the top'}, {what} is a {given} but {other} is a {known}, so {why}"
            for path, given, known, why in tree.equality_errors_pytreedef(found, structure)
        ]
        raise ValueError(
            f"Pytree for {what} and {other} do not match. There are {len(errors)} mismatches, including:\n"
            + "\n".join(errors)
        )
    if not all(isinstance(s, BlockSpec) or s is no_block_spec for s in leaves):
        raise ValueError(f"{what} must be made of BlockSpecs, got {specs}")
    return leaves


def _check_aliases(aliases: Mapping[int, int], avals: Sequence[Any], results: Sequence[Any], args: Any) -> None:
    for i, o in aliases.items():
        text = f"input_output_aliases contains the mapping '{i}:{o}'"
        if i not in range(len(avals)):
            raise ValueError(f"{text} with input index {i} outside the range [0, {len(avals)})")
        if o not in range(len(results)):
            raise ValueError(f"{text} with output index {o} outside the range [0, {len(results)})")
        if (avals[i].shape, avals[i].dtype) != (results[o].shape, results[o].dtype):
            path = tree.tree_flatten_with_path(args)[0][i][0]
            raise ValueError(
                f"{text} referring to input{tree.keystr(path)} with abstract value {avals[i]} and to output[{o}] with "
                f"a different abstract value {results[o]}."
            )
