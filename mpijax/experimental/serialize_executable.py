"""``mpijax.experimental.serialize_executable``: a compiled program as bytes.

The bytes contain the program as `mpijax.export` writes it, without machine code. To read them runs no code, and checks
every operation. Machine code comes from the cache on disk, or mpijax compiles it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.trees import tree
from mpijax.export.exported import deserialize, of_traced
from mpijax.runtime.arrays import devices
from mpijax.runtime.program.stages import Compiled, lower
from mpijax.transforms.traced import TracedProgram

__all__ = ["deserialize_and_load", "serialize"]


def _flat(leaves: int) -> tuple[tree.PyTreeDef, tree.PyTreeDef]:
    """The flat structures of the arguments and of the result: one tuple each."""
    values = (0,) * leaves
    return tree.tree_structure((values, {})), tree.tree_structure(values)


def serialize(compiled: Compiled) -> tuple[bytes, tree.PyTreeDef, tree.PyTreeDef]:
    """(bytes of a compiled program, structure of its arguments, structure of its result). The structures are Python
    objects.

    Raises TypeError if the argument is not a compiled program, NotImplementedError for Python callbacks and other
    values that are not data, and ValueError for mutable references.

    >>> from mpijax.experimental import serialize_executable
    >>> compiled = mpijax.jit(lambda x: x * x).lower(jnp.arange(3)).compile()
    >>> serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))(jnp.array([1, 2, 3]))
    Array([1, 4, 9], dtype=int32)
    """
    if not isinstance(compiled, Compiled):
        raise TypeError(f"expected a compiled program, such as jax.jit(f).lower(x).compile(), got {compiled!r}")
    traced = compiled._traced
    if traced.moved and traced.uses_refs:
        raise ValueError(
            f"can't serialize with a closed-over mutable array ref: {traced.fun_name} closes over one. Pass its value "
            "as an argument, and return the new one."
        )
    shardings = tree.tree_leaves(compiled.output_shardings)
    exported = of_traced(traced, _flat(len(traced.shardings))[0], _flat(len(shardings))[1], shardings)
    return bytes(traced.donated) + b"\n" + bytes(exported.serialize()), compiled.in_tree, compiled.out_tree


def deserialize_and_load(
    serialized: bytes,
    in_tree: tree.PyTreeDef,
    out_tree: tree.PyTreeDef,
    backend: Any = None,
    execution_devices: Sequence[Any] | None = None,
) -> Compiled:
    """The compiled program from `serialize`, which may have run in another process or on another rank.

    Args:
      serialized, in_tree, out_tree: the result of `serialize`.
      backend: "cpu" or None.
      execution_devices: the devices of this job. The shardings of a program say where it runs.

    Raises:
      ValueError: the bytes are damaged, the structures do not match, or a device does not exist.

    >>> from mpijax.experimental import serialize_executable
    >>> blob, in_tree, out_tree = serialize_executable.serialize(mpijax.jit(jnp.sin).lower(jnp.ones(2)).compile())
    >>> serialize_executable.deserialize_and_load(blob, in_tree, out_tree)(jnp.zeros(2))
    Array([0., 0.], dtype=float32)
    """
    known = devices.devices(backend)
    unknown = [d for d in execution_devices or () if d not in known]
    if unknown:
        raise ValueError(f"execution_devices {unknown} are not devices of this job. Its devices are {known}")
    donated, _, blob = serialized.partition(b"\n")
    exported = deserialize(blob)
    flags = tuple(flag == 1 for flag in donated)
    if len(flags) != in_tree.num_leaves or in_tree.num_leaves != exported.in_tree.num_leaves:
        raise ValueError(f"the program has {exported.in_tree.num_leaves} arguments, but in_tree is {in_tree}")
    if out_tree.num_leaves != exported.out_tree.num_leaves:
        raise ValueError(f"the program has {exported.out_tree.num_leaves} results, but out_tree is {out_tree}")
    program: ClosedJaxpr = exported.program
    traced = TracedProgram(program, in_tree, out_tree, exported.fun_name, flags, True, [], exported.in_shardings)
    return lower(traced).compile()
