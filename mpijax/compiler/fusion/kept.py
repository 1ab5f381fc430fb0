"""Finds slices that alone would keep a larger array in memory.

A slice is read where it is used: it needs no loop and no memory of its own. But if an instruction has made the array,
and nothing else reads it any more, the array stays in memory for its slice. A factorization by blocks has such a slice
for each block. The memory of these arrays grows with the number of blocks; that of copies of the slices does not.
"""

from __future__ import annotations

from mpijax.compiler.fusion.roots import NodeKind, Roots
from mpijax.compiler.graph.nodes import Graph, Node, Value
from mpijax.compiler.graph.views import is_view

# An array must be this many times larger than its slices for these to be copied.
LARGER = 2
# Smaller arrays may stay.
LEAST = 1 << 12


def kept_by_slices(graph: Graph, roots: Roots) -> set[int]:
    """Ids of slices to copy, because their array would else stay in memory while a later instruction has results."""
    opaque = [node for node in graph.nodes if roots.kinds[node] is NodeKind.OPAQUE]
    if len(opaque) < 2:
        return set()
    found: set[int] = set()
    for node in opaque:
        for v in node.outputs:
            if v.nbytes >= LEAST and len(graph.users_of(v)) > 1:
                found |= _kept_for(v, node, opaque, roots)
    return found


def _kept_for(v: Value, node: Node, opaque: list[Node], roots: Roots) -> set[int]:
    readers = list({id(u): u for u in roots.graph.users_of(v)}.values())
    slices = [u for u in readers if is_view(u) and id(u.outputs[0]) not in roots.ids]
    if not slices or LARGER * sum(u.outputs[0].nbytes for u in slices) > v.nbytes:
        return set()
    at = max(_last_read(u, roots) for u in readers if u not in slices) if len(slices) < len(readers) else 0
    found = set()
    for u in slices:
        begin, end = max(at, roots.order[id(u)]), _last_read(u, roots)
        if any(begin < roots.order[id(other)] < end for other in opaque):
            found.add(id(u.outputs[0]))
    return found


def _last_read(node: Node, roots: Roots) -> int:
    """The order of the last operation that reads memory for a result of `node`, through values without memory."""
    last, seen, stack = 0, {id(node)}, [node]
    while stack:
        u = stack.pop()
        last = max(last, roots.order[id(u)])
        for w in u.outputs:
            if roots.kinds[u] is NodeKind.MAP and id(w) not in roots.ids:
                users = roots.graph.users_of(w)
                stack += [reader for reader in users if id(reader) not in seen]
                seen |= set(map(id, users))
    return last
