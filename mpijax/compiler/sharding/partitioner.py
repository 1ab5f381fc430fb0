"""Tracks, for each value of a graph, which shard of a whole array it is, and which messages were sent for it.

A graph gets a `Partitioner` at its first value that is split over ranks or devices; other graphs have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.sharding.blocks import Blocks, blocks_by, whole_shape
from mpijax.core.base.errors import BrokenForm
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.sharding.cuts import Cuts
from mpijax.core.sharding.mesh import Mesh
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.ad_ops import copy_p

if TYPE_CHECKING:
    from mpijax.compiler.sharding.asked import Asked
    from mpijax.compiler.sharding.build_shards import ShardBuilder
    from mpijax.compiler.sharding.pairs import Pairs, Uses
    from mpijax.core.programs.jaxpr import Eqn, Jaxpr


@dataclass
class JaxprFrame:
    """A program without calls whose equations are being added to the graph.

    asked: the cuts requested for whole operands. values: those of the variables so far. at: the current equation.
    pairs: the arrays of pairs that are computed in rounds. uses: where the program reads its variables, once needed.
    """

    jaxpr: Jaxpr
    asked: Asked | None = None
    values: dict[Any, Value] = field(default_factory=dict)
    at: Eqn | None = None
    pairs: list[Pairs] = field(default_factory=list)
    uses: Uses | None = None


@dataclass
class PartitionState:
    """State shared by all graphs of a program.

    shardings: of values over ranks or devices, as the user named them; also of values that are whole here.
    blocks: the part of an array that a value is. uneven: blocks of a value over devices of one process that no
    sharding describes; the shardings of results computed from it follow from them. lost: cuts that whole axes would
    have, had no operand been gathered.
    unreduced: partial results whose sum over ranks is pending. meshes: those of the enclosing `shard_map` bodies.
    devices: concrete meshes, keyed by the abstract meshes in types. tried: cuts of loop carries, keyed by the body and
    the cuts of its inputs. gathers: arrays that operations gathered, in order. placements: shardings of results over
    the ranks, in order. inspected: callbacks that inspect shardings, with these. own: values that differ by rank, from
    messages on a communicator. over: the first sharding of a value; all use the same ranks.
    """

    shardings: dict[Value, Any] = field(default_factory=dict)
    blocks: dict[Value, Blocks] = field(default_factory=dict)
    uneven: dict[Value, Blocks] = field(default_factory=dict)
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
    first_over: Callable[[], str] = str


class Partitioner:
    """Partitioning state of one graph.

    views: slices, whose halos are read from the sliced array. turned: for each array that is a transpose, the
    transposed value, its blocks and the permutation. moved: redistributed values, keyed by value, mesh and cuts, so
    that each is sent once. summed: finished sums of partial results. waiting: the pending sum of the current
    operation's operands.
    """

    def __init__(self, graph: ShardBuilder, outer: Partitioner | None):
        self.graph, self.outer = graph, outer
        self.known: PartitionState = outer.known if outer is not None else PartitionState()
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
        """Adds operations on this rank's shards, as in a `shard_map` body over `meshes`; without meshes, as outside."""
        outside = self.known.meshes
        self.known.meshes = [*outside, *meshes] if meshes else []
        try:
            yield
        finally:
            self.known.meshes = outside

    # ------------------------------------------------------------ shardings of values

    def blocks_of(self, v: Value) -> Blocks | None:
        """The part of a whole array that `v` is; None if every rank has all of it, and inside bodies."""
        known = self.known
        if known.meshes:
            return None
        found = known.blocks.get(v)
        if found is None and (sharding := known.shardings.get(v)) is not None and not sharding.keeps_whole:
            found = known.blocks[v] = blocks_by(sharding, whole_shape(sharding, v.aval.shape))
        return found

    def global_aval(self, v: Value) -> ShapedArray:
        """The type of the whole array, also if `v` is a shard of it."""
        blocks = self.blocks_of(v)
        return v.aval if blocks is None else v.aval.update(shape=blocks.shape)

    def sharding_held(self, v: Value) -> Any:
        """The sharding of a value, as the user named it; None if it has none."""
        return self.known.shardings.get(v)

    def sharding_in_use(self, v: Value) -> Any:
        """The sharding of a value; inside `shard_map` bodies, replicated over their mesh."""
        return NamedSharding(self.known.meshes[-1], PartitionSpec()) if self.in_body else self.sharding_held(v)

    def record_sharding(self, v: Value, sharding: Any, shape: Sequence[int], describe: Callable[[], str]) -> None:
        """Record the sharding of an argument or constant whose whole array has `shape`. describe: as for `are_over`."""
        self.are_over(sharding, describe)
        self.known.shardings[v] = sharding
        if not sharding.keeps_whole:
            self.known.blocks[v] = blocks_by(sharding, tuple(shape))

    def are_over(self, sharding: Any, describe: Callable[[], str]) -> None:
        """Record the devices of values. Raises ValueError if other values use other devices or another order.

        describe: says which values, for the error.
        """
        known = self.known
        if known.over is None:
            known.over, known.first_over = sharding, describe
        elif known.over._device_assignment != sharding._device_assignment:
            found = ((known.first_over, known.over), (describe, sharding))
            ids = ([d.id for d in x._device_assignment] for _, x in found)
            said = (f"{what()} with device ids {of} on platform CPU" for (what, _), of in zip(found, ids, strict=True))
            raise ValueError(
                f"Received incompatible devices for jitted computation. Got {' and '.join(said)}. Put arguments on the "
                "devices of the program with jax.device_put."
            )

    def go_over(self, sharding: Any) -> None:
        """Switch to the device order of `sharding`, if it has the same processes."""
        if self.known.over is not None and self.known.over.processes == sharding.processes:
            self.known.over = sharding

    def on_devices_of_values(self, mesh: Mesh) -> Mesh:
        """The mesh with the same axes over the devices of the program's values, if there are as many."""
        over = () if self.known.over is None else self.known.over._device_assignment
        return mesh.update(np.reshape(over, mesh.axis_sizes) if len(over) == mesh.size else None)

    def marked(self, v: Value, sharding: Any, new: bool, source: Any) -> Value:
        """A value with its sharding. Copies a value that has another sharding, or that was not just made (`new`)."""
        if self.in_body:
            return v
        held, splits = self.known.shardings.get(v), not sharding.keeps_whole
        if (splits and not new) if held is None else held != sharding:
            v = self.copied(v, source)
        if splits or v.scalar is None:
            self.known.shardings[v] = sharding
        return v

    def held_as(self, v: Value, blocks: Blocks, sharding: Any, new: bool, source: Any) -> Value:
        """A value recorded as this rank's part of an array. sharding: used where blocks are even.

        Copies a value that is already recorded as a part of an array, or is not new: the two arrays are equal on this
        rank but not on all.
        """
        known = self.blocks_of(v)
        self.note_unequal(blocks.cuts)
        if known is not None and (known != blocks or not new):
            v, new = self.copied(v, source), True
        v = self.marked(v, sharding if blocks.is_even else blocks.sharding, new, source)
        if not self.in_body and not blocks.is_whole:
            self.known.blocks[v] = blocks
        return v

    def alike(self, v: Value, other: Value) -> None:
        """Record `other`, which represents `v` in another graph, as the same part of an array."""
        blocks, sharding = self.blocks_of(v), self.sharding_held(v)
        if sharding is not None and not self.in_body:
            self.known.shardings[other] = sharding
        if blocks is not None:
            self.known.blocks[other] = blocks

    def note_unequal(self, cuts: Cuts) -> None:
        self.graph.graph.unequal |= any(c is not None and not c.is_even for c in cuts)

    def copied(self, v: Value, source: Any) -> Value:
        """A copy of a value, which can have another sharding."""
        [out] = self.graph.node(copy_p, {}, [v], [v.aval], source, fx.no_effects)
        return out

    # ------------------------------------------------------------ operations added

    @property
    def nodes(self) -> list[Any]:
        """The operations so far."""
        return self.graph.graph.nodes

    def made_since(self, first: int) -> set[Value]:
        """The results of all operations from index `first` on."""
        return {v for node in self.nodes[first:] for v in node.outputs}


def verify(p: Partitioner) -> None:
    """Check that each value has the shape of its part, and that its sharding describes this part.

    Raises:
      BrokenForm: a rule does not hold; the message names it.
    """
    for v, blocks in p.known.blocks.items():
        if v.aval.shape != blocks.local_shape:
            raise BrokenForm(f"A shard has the shape of its part, {blocks.local_shape}, but {v} does not.")
        sharding = p.sharding_held(v)
        if sharding is not None and blocks.is_even and blocks_by(sharding, blocks.shape).local_shape != v.aval.shape:
            raise BrokenForm(f"A sharding describes the shard that it belongs to; {sharding} does not describe {v}.")
