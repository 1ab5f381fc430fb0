"""Defines `custom_vmap`: functions with a user-defined batching rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from mpijax.core.base import provided
from mpijax.core.base.source import callable_name
from mpijax.core.programs.jaxpr import eval_jaxpr
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.transforms.batching import AxisData, batch_flat, move_dim
from mpijax.transforms.call import hoist_tracers
from mpijax.transforms.custom import positional_arguments
from mpijax.transforms.derivatives import jvp
from mpijax.transforms.flat import FlatFun, debug_info
from mpijax.transforms.jvp import jvp_jaxpr
from mpijax.transforms.ref_state import values_of
from mpijax.transforms.zeros import Zero, instantiate, zeros


class custom_vmap:
    """Decorate a function to define its batching rule with `def_vmap`.

    Reverse-mode differentiation does not work; wrap the function in `custom_vjp` for that.

    >>> @mpijax.custom_batching.custom_vmap
    ... def double(x):
    ...     return 2 * x
    >>> @double.def_vmap
    ... def rule(axis_size, in_batched, xs):
    ...     return jnp.full_like(xs, axis_size), in_batched[0]
    >>> mpijax.vmap(double)(jnp.array([5.0, 6.0]))
    Array([2., 2.], dtype=float32)
    """

    def __init__(self, fun: Callable):
        update_wrapper(self, fun)
        self.fun = fun
        self.vmap_rule: Callable | None = None

    def __getattr__(self, name: str):
        if name.startswith("def"):
            return getattr(self.fun, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def def_vmap(self, vmap_rule: Callable) -> Callable:
        """Set the rule `(axis_size, in_batched, *args) -> (out, out_batched)`.

        `in_batched` is a list of pytrees of bools, one per argument; batched leaves have their examples along axis 0.
        """
        self.vmap_rule = vmap_rule
        return vmap_rule

    def __call__(self, *args, **kwargs):
        args = positional_arguments("custom_vmap", self.fun, args, kwargs)
        if self.vmap_rule is None:
            raise AttributeError(
                f"No batching rule defined for custom_vmap function {callable_name(self.fun)} using def_vmap."
            )
        leaves, args_tree = tree.tree_flatten(args)
        flat = FlatFun(self.fun, tree.tree_structure((args, {})))
        avals = [typeof(x) for x in leaves]
        jaxpr, consts = trace_to_jaxpr(flat, avals, debug_info("custom_vmap", self.fun, args, {}))
        closed, moved = hoist_tracers(jaxpr, consts, lambda _: True)
        moved = values_of(moved)
        outs = custom_vmap_p.bind(
            *moved,
            *leaves,
            call=closed,
            rule=_UserRule(self.vmap_rule),
            in_tree=tree.treedef_tuple((tree.tree_structure(moved), args_tree)),
            out_tree=flat.out_tree,
        )
        return tree.tree_unflatten(flat.out_tree, outs)


class _UserRule:
    """The user's rule for closed-over values followed by the arguments; prints as the rule."""

    def __init__(self, rule: Callable):
        self.rule = rule
        self.name = getattr(rule, "__name__", "<unnamed rule>")

    def __call__(self, axis_size, in_batched, consts, args):
        closed_over, given = in_batched
        if any(tree.tree_leaves(closed_over)):
            raise ValueError(
                f"The custom_vmap function of rule {self.name} closes over a mapped value. Pass it as an argument, so "
                "that the rule gets the whole batch."
            )
        return self.rule(axis_size, list(given), *args)

    def __str__(self) -> str:
        return str(self.rule)


class _JvpRule:
    """The batching rule of a function's JVP, for flat primals and tangents at the positions `inexact`."""

    def __init__(self, rule, in_tree, out_tree, inexact, out_inexact):
        self.rule = rule
        self.name = rule.name
        self.in_tree = in_tree
        self.out_tree = out_tree
        self.inexact = inexact
        self.out_inexact = out_inexact

    def __call__(
        self, axis_size, in_batched, primals, tangents
    ) -> tuple[tuple[list[Any], list[Any]], tuple[list[bool], list[bool]]]:
        primal_batched, live_batched = map(list, in_batched)
        live = iter(live_batched)
        tangent_batched = [next(live) if i else b for i, b in zip(self.inexact, primal_batched, strict=True)]
        # The user's rule takes one flag for primal and tangent. Map over an axis that only one of them has.
        both = [p and t for p, t in zip(primal_batched, tangent_batched, strict=True)]
        extra = [0 if b and not x else None for b, x in zip(primal_batched, both, strict=True)]
        extra += [0 if b and not x else None for b, x, i in zip(tangent_batched, both, self.inexact, strict=True) if i]
        own_batched: list[bool] = []

        def run(*xs):
            flat, found = _called(self, self.rule, axis_size, both, xs)
            own_batched[:] = found
            return flat

        def derivative(*flat):
            primals, given = flat[: len(primal_batched)], iter(flat[len(primal_batched) :])
            tangents = [
                next(given) if i else zeros(typeof(p).to_tangent_aval())
                for p, i in zip(primals, self.inexact, strict=True)
            ]
            outs, out_tangents = jvp(run, tuple(primals), tuple(tangents))
            return [*outs, *(t for t, i in zip(out_tangents, self.out_inexact, strict=True) if i)]

        flat, dims = batch_flat(derivative, AxisData(None, axis_size), [*primals, *tangents], extra)
        fronted = [x if d is None else move_dim(x, d, 0) for x, d in zip(flat, dims, strict=True)]
        own = own_batched + [b for b, i in zip(own_batched, self.out_inexact, strict=True) if i]
        batched = [d is not None or b for d, b in zip(dims, own, strict=True)]
        n = len(own_batched)
        return (fronted[:n], fronted[n:]), (batched[:n], batched[n:])


def _called(spec, rule, axis_size, in_batched, args) -> tuple[list, list[bool]]:
    """Call a rule on flat arguments. Returns flat results and batched flags; raises ValueError for an invalid result.

    `spec` has the structures `in_tree` and `out_tree` of the function.
    """
    structured = tree.tree_unflatten(spec.in_tree, list(args))
    out, out_batched = rule(axis_size, tree.tree_unflatten(spec.in_tree, list(in_batched)), *structured)
    outs, found = tree.tree_flatten(out)
    flags, flags_tree = tree.tree_flatten(out_batched)
    if found != flags_tree:
        raise ValueError(
            "structure of output value and output batching specification returned by custom vmap rule "
            f"({rule.name}) do not match.\nOutput values: {found}\nBatching spec: {flags_tree}"
        )
    if found != spec.out_tree:
        raise ValueError(
            f"structure of output returned by custom vmap rule ({rule.name}) does not match that of original "
            f"custom-vmapped function.\nOriginal output: {spec.out_tree}\nRule output: {found}"
        )
    return outs, flags


class _Trees:
    """Structures of the arguments and the results of a call."""

    def __init__(self, in_tree, out_tree):
        self.in_tree = in_tree
        self.out_tree = out_tree


def _batch(axis, args, dims, *, call, rule, in_tree, out_tree):
    moved = [x if d is None else move_dim(x, d, 0) for x, d in zip(args, dims, strict=True)]
    outs, batched = _called(_Trees(in_tree, out_tree), rule, axis.size, [d is not None for d in dims], moved)
    return outs, [0 if b else None for b in batched]


def _jvp(primals, tangents, *, call, rule, in_tree, out_tree):
    inexact = tuple(not typeof(p).to_tangent_aval().has_no_tangent for p in primals)
    out_inexact = tuple(not a.to_tangent_aval().has_no_tangent for a in call.out_avals)
    live = [instantiate(t) for t, i in zip(tangents, inexact, strict=True) if i]
    closed, _ = jvp_jaxpr(call, inexact, out_inexact)
    outs = custom_vmap_p.bind(
        *primals,
        *live,
        call=closed,
        rule=_JvpRule(rule, in_tree, out_tree, inexact, out_inexact),
        in_tree=tree.tree_structure((list(primals), live)),
        out_tree=tree.tree_structure(([0] * len(out_inexact), [0] * sum(out_inexact))),
    )
    n = len(out_inexact)
    given = iter(outs[n:])
    return outs[:n], [next(given) if i else Zero.of_primal(o) for o, i in zip(outs[:n], out_inexact, strict=True)]


def _no_reverse_mode(*_args, **_params):
    raise ValueError(
        "Linearization failed to produce known values for all output primals. A custom_vmap function cannot be "
        "differentiated in reverse mode. Wrap it in a custom_vjp function."
    )


custom_vmap_p = Primitive(
    "custom_vmap_call",
    type_rule=lambda *_avals, call, **_: call.out_avals,
    reference=lambda *args, call, **_: eval_jaxpr(call.jaxpr, call.consts, *args),
    lower=InlineJaxpr("call"),
    jvp=_jvp,
    transpose=Unsupported("custom_vmap functions have no transpose. Wrap the function in a custom_vjp function."),
    batch=_batch,
    linearize=_no_reverse_mode,
    multiple_results=True,
    effects=lambda params: params["call"].effects,
    vma=lambda avals, params: None,
)


def sequential_vmap(f: Callable) -> custom_vmap:
    """Decorate a function so that `vmap` calls it in a loop, one example at a time.

    >>> square = mpijax.custom_batching.sequential_vmap(lambda x: x * x)
    >>> mpijax.vmap(square)(jnp.arange(3))
    Array([0, 1, 4], dtype=int32)
    """
    f = custom_vmap(f)

    @f.def_vmap
    def rule(axis_size, in_batched, *args):
        flags, structure = tree.tree_flatten(list(in_batched))
        leaves = structure.flatten_up_to(list(args))
        mapped = [x for x, b in zip(leaves, flags, strict=True) if b]

        def one(examples):
            given = iter(examples)
            full = [next(given) if b else x for x, b in zip(leaves, flags, strict=True)]
            return f(*tree.tree_unflatten(structure, full))

        out = provided.loop_map(one, mapped)
        return out, tree.tree_map(lambda _: True, out)

    return f
