"""From a graph to the steps that compute it: loop nests, library calls, exchanges, loops, in the order they run."""

from __future__ import annotations

from collections.abc import Callable

from mpijax.compiler.fusion import updates
from mpijax.compiler.fusion.gemm import product_operand
from mpijax.compiler.fusion.groups import Unit, grouped, kernel_of
from mpijax.compiler.fusion.kernel import Begin
from mpijax.compiler.fusion.roots import NodeKind, Roots
from mpijax.compiler.graph.nodes import Graph, Node
from mpijax.compiler.graph.products import BlasOperand
from mpijax.compiler.loops.chunks import in_chunks, running_in_chunks
from mpijax.compiler.steps.combine import combine
from mpijax.compiler.steps.overlap import Overlap
from mpijax.compiler.steps.posting import Posting
from mpijax.compiler.steps.step import BeginStep, ControlStep, KernelStep, NodeStep, Step
from mpijax.core.base import config
from mpijax.core.base.errors import BrokenForm
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import Library


@dataclass(frozen=True)
class LoweredGraph:
    """A graph with its steps. roots: which of its values have loops of their own, and which are only views."""

    graph: Graph
    roots: Roots
    steps: tuple[Step, ...]


def lowered(graph: Graph, donated: tuple[bool, ...], control: Callable[[Node], ControlStep]) -> LoweredGraph:
    """The steps of a graph.

    donated: arguments that may be overwritten. control: makes the step of a loop or branch.
    """
    roots, grouper = grouped(graph, donated)
    steps = [step for unit in grouper.units for step in _steps_of(unit, roots, control)]
    if not graph.unequal:
        steps = combine(steps)
    if config.values.mpijax_overlap:
        for rearranged in (Overlap, Posting):
            steps = rearranged(steps).steps()
    if config.values.jax_enable_checks:
        verify(steps)
    return LoweredGraph(graph, roots, tuple(steps))


def _steps_of(unit: Unit, roots: Roots, control: Callable[[Node], ControlStep]) -> list[Step]:
    if unit.group is not None:
        kernel = kernel_of(unit.group)
        return [KernelStep(part) for part in in_chunks(kernel)] if kernel.inner or kernel.outer else []
    node = unit.node
    assert node is not None  # a unit without a group is an operation
    if node.regions:
        return [control(node)]
    if roots.kinds[node] is NodeKind.UPDATE:
        steps: list[Step] = []
        for piece in updates.lower(node, roots):
            steps += [BeginStep(piece)] if isinstance(piece, Begin) else map(KernelStep, running_in_chunks(piece))
        return steps
    if isinstance(node.primitive.lower, Library):
        return [NodeStep(node, [matrix_of(node, k, roots).base for k in (0, 1)])]
    read = [v if (view := roots.sent_from(node, v)) is None else view.base for v in node.inputs]
    return [NodeStep(node, read)]


def matrix_of(node: Node, k: int, roots: Roots) -> BlasOperand:
    """Operand `k` of a matrix product, as it lies in memory."""
    found = product_operand(node, k, lambda v: id(v) in roots.ids)
    assert found is not None, node
    return found


def verify(steps: list[Step]) -> None:
    """Check the order of the steps. Raises BrokenForm where one reads what no step before it has made."""
    made = {id(v) for step in steps for v in step.writes}
    for step in steps:
        late = [v for v in step.reads if id(v) in made and v not in step.writes]
        if late:
            raise BrokenForm(f"A step reads results of earlier steps only, but {step} reads {late}.")
        made -= set(map(id, step.writes))
