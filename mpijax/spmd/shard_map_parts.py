"""`shard_map` of values of types of libraries: it is over what they consist of, sharded as a `HiPspec` says."""

from __future__ import annotations

from typing import Any

from mpijax.core.base import provided
from mpijax.core.base.source import callable_name
from mpijax.core.programs.jaxpr import eval_jaxpr
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.trees import tree
from mpijax.core.trees.prefix import flatten_axes
from mpijax.core.types.abstract import HiPspec
from mpijax.core.types.typeof import typeof
from mpijax.transforms.linearize import LinearizedJaxpr


def has_hi_specs(*specs: Any) -> bool:
    """Whether a `HiPspec` is among the leaves."""
    return any(isinstance(s, HiPspec) for s in tree.tree_leaves(specs))


def over_parts(mapped: Any, args: Any) -> Any:
    """`mapped(args)`, by a `shard_map` of the arrays that values of these types consist of."""
    mesh, check_vma, in_specs = mapped.mesh, mapped.check_vma, mapped.in_specs
    leaves, in_tree = tree.tree_flatten(args)
    given = flatten_axes("shard_map in_specs", in_tree, tuple(in_specs) if isinstance(in_specs, list) else in_specs)
    high = [isinstance(s, HiPspec) for s in given]
    triples = zip(leaves, given, high, strict=True)
    local = [typeof(x).shard(mesh, mapped.names, check_vma, s) if h else None for x, s, h in triples]
    returned: list[tuple[Any, Any]] = []  # the type of the shard of each result, and its spec
    structures: list[Any] = []
    specs_of_parts: list[Any] = []  # read when the body has been traced

    def body(*shards: Any) -> list[Any]:
        values = [provided.raised(a, list(x)) if h else x for a, x, h in zip(local, shards, high, strict=True)]
        outs, structure = tree.tree_flatten(mapped.f(*tree.tree_unflatten(in_tree, values)))
        wanted = flatten_axes("shard_map out_specs", structure, mapped.out_specs)
        structures[:] = [structure]
        returned[:] = [(typeof(x), s) for x, s in zip(outs, wanted, strict=True)]
        specs_of_parts[:] = [list(s.to_lo()) if isinstance(s, HiPspec) else s for s in wanted]
        return [provided.parts_of(x) if isinstance(s, HiPspec) else x for x, s in zip(outs, wanted, strict=True)]

    body.__name__ = callable_name(mapped.f)
    parts = tuple(provided.parts_of(x) if h else x for x, h in zip(leaves, high, strict=True))
    part_specs = tuple(list(s.to_lo()) if h else s for s, h in zip(given, high, strict=True))
    outs = mapped.over(body, part_specs, specs_of_parts)(parts)
    whole = [
        provided.raised(aval.unshard(mesh, check_vma, s), x) if isinstance(s, HiPspec) else x
        for (aval, s), x in zip(returned, outs, strict=True)
    ]
    return tree.tree_unflatten(structures[0], whole)


def with_parts_as_residuals(split: LinearizedJaxpr, n: int) -> LinearizedJaxpr:
    """A body split in two, the first of which returns `n` results, and then residuals as what they consist of."""
    primal, linear = split.primal, split.linear
    avals = primal.out_avals[n:]
    if not any(a.is_high for a in avals):
        return split
    returned = iter(avals)
    of_residuals = [next(returned) if i is None else linear.in_avals[k] for k, i in enumerate(split.forwarded)]
    widths = [len(a.lo_ty()) for a in of_residuals]

    def out_fun(*args: Any) -> list[Any]:
        outs = eval_jaxpr(primal.jaxpr, primal.consts, *args)
        groups = [provided.parts_of(x) if a.is_high else [x] for x, a in zip(outs[n:], avals, strict=True)]
        return [*outs[:n], *(part for group in groups for part in group)]

    def in_fun(*args: Any) -> list[Any]:
        rest = iter(args)
        groups = [[next(rest) for _ in range(w)] for w in widths]
        whole = [provided.raised(a, xs) if a.is_high else xs[0] for a, xs in zip(of_residuals, groups, strict=True)]
        return eval_jaxpr(linear.jaxpr, linear.consts, *whole, *rest)

    in_avals = [part for a in of_residuals for part in a.lo_ty()] + linear.in_avals[len(widths) :]
    return LinearizedJaxpr(
        trace_to_closed_jaxpr(out_fun, primal.in_avals),
        trace_to_closed_jaxpr(in_fun, in_avals),
        [i for i, w in zip(split.forwarded, widths, strict=True) for _ in range(w)],
        split.nonzero_out,
    )
