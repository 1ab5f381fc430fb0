"""What is known of the values of a graph: which part of a whole array each is on this rank, and what was sent for it.

A graph has a `Partitioner` from the first value on that lies over ranks or devices; programs without any have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mpijax.compiler.sharding.blocks import Blocks, blocks_by, whole_shape
from mpijax.core import effects as fx
from mpijax.core.avals import ShapedArray
from mpijax.core.lazy_dataclass import dataclass
from mpijax.core.sharding.cuts import Cuts
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.ops.ad_ops import copy_p

if TYPE_CHECKING:
    from mpijax.compiler.graph.nodes import Graph, Value
    from mpijax.compiler.sharding.asked import Asked
    from mpijax.core.jaxpr import Eqn, Jaxpr


@dataclass
class Frame:
    """A program without calls whose equations are being done.

    asked: how operands that are whole are to be cut before operations. at: the equation at hand.
    """

    jaxpr: Jaxpr
    asked: Asked | None = None
    at: Eqn | None = None


class GraphBuilder(Protocol):
    """What the partitioner asks of the graph that is being built: of a program, or of the body of a loop or branch.

    leaves: whether work on values from outside may be done there.
    """

    graph: Graph
    frame: Frame | None
    leaves: bool

    def literal(self, val: Any, aval: ShapedArray) -> Value: ...
    def local(self, v: Value) -> Value: ...
    def node(self, primitive, params, inputs: list, avals: list, source, effects: Any = ...) -> list[Value]: ...
    def apply(self, eqn, inputs: list, source) -> list[Value]: ...
    def inline(self, closed, inputs: list, source) -> list[Value]: ...
    def apart(self) -> AbstractContextManager[None]: ...
    def once(self, what, params, inputs: list, avals: list, make: Callable[[], list[Value]]) -> list[Value]: ...


@dataclass
class Known:
    """What is known in all graphs of a program.

    layouts: how values lie over ranks or devices, by the names they were given; of values that are whole here, too.
    blocks: which part of an array a value is. lost: how axes that are whole would be cut, had no operand been gathered.
    unreduced: partial results that wait for their sum over ranks. meshes: those of the bodies of `shard_map` at hand.
    devices: the meshes of devices that stand for those in types. tried: how carries of loops are cut in every turn, by
    the body and the cuts of what it reads. gathers: arrays that operations made whole, in order. placements: how
    results lie over the ranks, in order. inspected: functions that look at shardings, with these. own: values that
    each rank has its own of. over: the first sharding of a value; all are over the same ranks.
    """

    layouts: dict[Value, Any] = field(default_factory=dict)
    blocks: dict[Value, Blocks] = field(default_factory=dict)
    lost: dict[Value, Cuts] = field(default_factory=dict)
    unreduced: dict[Value, Any] = field(default_factory=dict)
    devices: dict[Any, Any] = field(default_factory=dict)
    meshes: list[Any] = field(default_factory=list)
    tried: dict[Any, Any] = field(default_factory=dict)
    gathers: dict[tuple, None] = field(default_factory=dict)
    placements: dict[tuple, None] = field(default_factory=dict)
    inspected: list[tuple[Any, Any]] = field(default_factory=list)
    own: set[Value] = field(default_factory=set)
    over: Any = None
    first_over: str = ""


class Partitioner:
    """What is known of the values of one graph.

    views: slices whose halos are read from the array that they are slices of. turned: arrays that are transposes, with
    what they are transposes of, its blocks and the permutation. moved: values cut otherwise, by value,
    mesh and cuts: none is sent twice. summed: the sums of partial results. waiting: what the operation at hand reads of
    partial results.
    """

    def __init__(self, graph: GraphBuilder, outer: Partitioner | None):
        self.graph, self.outer = graph, outer
        self.known: Known = outer.known if outer is not None else Known()
        self.views: dict[Value, Any] = {}
        self.turned: dict[Value, tuple[Value, Blocks, tuple[int, ...]]] = {}
        self.moved: dict[Any, Value] = {}
        self.summed: dict[Any, Value] = {}
        self.waiting: Any = None

    # ------------------------------------------------------------ bodies of shard_map

    @property
    def in_body(self) -> bool:
        """Whether values are this rank's own, as in the body of a `shard_map`."""
        return bool(self.known.meshes)

    @contextmanager
    def in_body_over(self, *meshes: Any) -> Iterator[None]:
        """What is added meanwhile works on this rank's parts, as in the body of a `shard_map`; outside, of no mesh."""
        outside = self.known.meshes
        self.known.meshes = [*outside, *meshes] if meshes else []
        try:
            yield
        finally:
            self.known.meshes = outside

    # ------------------------------------------------------------ how values lie

    def blocks_of(self, v: Value) -> Blocks | None:
        """Which part of a whole array a value is; None where every rank has all of it, and in bodies."""
        known = self.known
        if known.meshes:
            return None
        found = known.blocks.get(v)
        if found is None and (layout := known.layouts.get(v)) is not None and not layout.keeps_whole:
            found = known.blocks[v] = blocks_by(layout, whole_shape(layout, v.aval.shape))
        return found

    def global_aval(self, v: Value) -> ShapedArray:
        """The type of the whole array of which `v` may be a part."""
        blocks = self.blocks_of(v)
        return v.aval if blocks is None else v.aval.update(shape=blocks.shape)

    def layout_held(self, v: Value) -> Any:
        """The sharding of a value, by the name it was given; None where nothing is said of it."""
        return self.known.layouts.get(v)

    def layout_in_use(self, v: Value) -> Any:
        """The sharding of a value; in bodies of `shard_map`, where it is this rank's own, whole over their mesh."""
        return NamedSharding(self.known.meshes[-1], PartitionSpec()) if self.in_body else self.layout_held(v)

    def laid_out(self, v: Value, layout: Any, shape: Sequence[int]) -> None:
        """Note how an array of `shape` lies that the program is given."""
        self.are_over(layout, "an argument")
        self.known.layouts[v] = layout
        if not layout.keeps_whole:
            self.known.blocks[v] = blocks_by(layout, tuple(shape))

    def are_over(self, layout: Any, what: str) -> None:
        """Note over which devices values lie. Raises ValueError for others than before, or in another order.

        what: which values, for the error.
        """
        known = self.known
        if known.over is None:
            known.over, known.first_over = layout, what
        elif known.over._device_assignment != layout._device_assignment:
            found = ((known.first_over, known.over), (what, layout))
            said = (f"{name} with device ids {[d.id for d in x._device_assignment]}" for name, x in found)
            raise ValueError(
                f"Received incompatible devices for jitted computation. Got {' and '.join(said)}. Put arguments on the "
                "devices of the program with jax.device_put."
            )

    def go_over(self, layout: Any) -> None:
        """Note that values go from here on to other devices of the same processes, or in another order, if they do."""
        if self.known.over is not None and self.known.over.processes == layout.processes:
            self.known.over = layout

    def on_devices_of_values(self, mesh: Mesh) -> Mesh:
        """A mesh of the same axes over the devices that values lie on, if there are as many."""
        over = () if self.known.over is None else self.known.over._device_assignment
        return mesh.update(np.reshape(over, mesh.axis_sizes) if len(over) == mesh.size else None)

    def marked(self, v: Value, layout: Any, new: bool, source: Any) -> Value:
        """A value with its layout; a copy, where the value is known by another one, or is not new, outside."""
        if self.in_body:
            return v
        held, splits = self.known.layouts.get(v), not layout.keeps_whole
        if (splits and not new) if held is None else held != layout:
            v = self.copied(v, source)
        if splits or v.scalar is None:
            self.known.layouts[v] = layout
        return v

    def held_as(self, v: Value, blocks: Blocks, layout: Any, new: bool, source: Any) -> Value:
        """A value that is this rank's part of an array; `layout` names the sharding where blocks are even.

        Copies a value that is already known as part of an array, or is not new: the two are equal on this rank, not on
        all.
        """
        known = self.blocks_of(v)
        self.note_unequal(blocks.cuts)
        if known is not None and (known != blocks or not new):
            v, new = self.copied(v, source), True
        v = self.marked(v, layout if blocks.is_even else blocks.sharding, new, source)
        if not self.in_body and not blocks.is_whole:
            self.known.blocks[v] = blocks
        return v

    def alike(self, v: Value, other: Value) -> None:
        """Let `other`, which stands for `v` in another graph, be known as the same part of an array."""
        blocks, layout = self.blocks_of(v), self.layout_held(v)
        if layout is not None and not self.in_body:
            self.known.layouts[other] = layout
        if blocks is not None:
            self.known.blocks[other] = blocks

    def note_unequal(self, cuts: Cuts) -> None:
        self.graph.graph.unequal |= any(c is not None and not c.is_even for c in cuts)

    def copied(self, v: Value, source: Any) -> Value:
        """A value of its own, for a layout of its own."""
        [out] = self.graph.node(copy_p, {}, [v], [v.aval], source, fx.no_effects)
        return out

    # ------------------------------------------------------------ what an operation has made

    @property
    def nodes(self) -> list[Any]:
        """The operations so far."""
        return self.graph.graph.nodes

    def made_since(self, first: int) -> set[Value]:
        """The results of all operations but the first ones."""
        return {v for node in self.nodes[first:] for v in node.outputs}
