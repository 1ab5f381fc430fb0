"""Functions with derivatives given by the user: `custom_jvp` and `custom_vjp`.

Both stay functions until a trace that only records (jit, make_jaxpr) meets them; a
differentiating trace calls the user's rule, a vectorizing one vectorizes both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

import numpy as np

from mpijax.core import dtypes, tree
from mpijax.core.jaxpr import ClosedJaxpr, eval_jaxpr
from mpijax.core.lowering import Decompose, Inline
from mpijax.core.primitive import Primitive
from mpijax.core.source import callable_name
from mpijax.core.trace import Tracer, state, trace_to_jaxpr, typeof
from mpijax.transforms.batching import batch_at, batch_flat
from mpijax.transforms.call import hoist_tracers
from mpijax.transforms.flat import FlatFun, debug_info
from mpijax.transforms.transpose import is_undefined_primal
from mpijax.transforms.zeros import Zero, as_array, instantiate


def resolve_kwargs(fun: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Arguments by position, defaults included."""
    import inspect

    try:
        bound = inspect.signature(fun).bind(*args, **kwargs)
    except ValueError:
        return tuple(args)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(f"keyword arguments could not be resolved to positions: {bound.kwargs}")
    return bound.args


class _Call:
    """One application of a custom function: flat function, rule and the ways traces use them."""

    primitive: Primitive

    def bind(self, *args: Any) -> list[Any]:
        raise NotImplementedError

    def stage(self, trace, args) -> list[Any]:
        """Record the application as an equation that holds the traced function."""
        avals = [typeof(x) for x in args]
        jaxpr, consts = trace_to_jaxpr(self.fun, avals, self.debug)  # type: ignore[attr-defined]
        closed, moved = hoist_tracers(jaxpr, consts, lambda c: isinstance(c, Tracer))
        return trace.process_primitive(self.primitive, (*moved, *args), self.params(closed, len(moved)))  # type: ignore[attr-defined]


class JvpCall(_Call):
    """An application of a `custom_jvp` function."""

    def __init__(self, fun, rule, name, symbolic_zeros, debug=None):
        self.fun = fun
        self.rule = rule
        self.name = name
        self.symbolic_zeros = symbolic_zeros
        self.debug = debug
        self.primitive = custom_jvp_call_p

    def bind(self, *args):
        return state.trace.process_custom_call(self, args)

    def differentiate(self, primals, tangents):
        """Results and tangents by the user's rule, in the current trace."""
        tangents = tangents if self.symbolic_zeros else [instantiate(t) for t in tangents]
        outs = self.rule(*primals, *tangents)
        n = len(outs) // 2
        return outs[:n], outs[n:]

    def bind_batched(self, axis, args, dims):
        out_dims: list = []

        def fun(*xs):
            outs, found = batch_flat(self.fun, axis, xs, dims)
            out_dims[:] = found
            return outs

        def rule(*xs):
            outs, found = batch_flat(self.rule, axis, xs, [*dims, *dims])
            n = len(outs) // 2
            # A result and its tangent share one batch axis.
            target = [d if d is not None else t for d, t in zip(found[:n], found[n:], strict=True)]
            out_dims[:] = target
            aligned = [
                o if t is None or type(o) is Zero else batch_at(o, d, t, axis.size)
                for o, d, t in zip(outs, found, target * 2, strict=True)
            ]
            return aligned

        rule.__name__ = callable_name(self.rule)
        outs = JvpCall(fun, rule, self.name, self.symbolic_zeros, self.debug).bind(*args)
        return outs, list(out_dims)

    def params(self, closed, hoisted):
        rule = self.rule
        if hoisted:
            inner = rule

            def rule(*xs):
                half = len(xs) // 2
                return inner(*xs[hoisted:half], *xs[half + hoisted :])

        return {
            "call_jaxpr": closed,
            "jvp": Rule(callable_name(self.rule), rule),
            "name": self.name,
            "symbolic_zeros": self.symbolic_zeros,
        }


class VjpCall(_Call):
    """An application of a `custom_vjp` function.

    `fwd(*args)` returns flat results followed by flat residuals; `bwd(residuals, cotangents)`
    returns flat cotangents of the arguments. `counts()` tells how many residuals there are.
    """

    def __init__(self, fun, fwd, bwd, name, symbolic_zeros, debug=None):
        self.fun = fun
        self.fwd = fwd
        self.bwd = bwd
        self.name = name
        self.symbolic_zeros = symbolic_zeros
        self.debug = debug
        self.primitive = custom_vjp_call_p

    def bind(self, *args):
        return state.trace.process_custom_call(self, args)

    def differentiate(self, primals, tangents):
        """Results by `fwd`; tangents as a linear operation whose transpose is `bwd`."""
        outs, residuals = self.fwd(*primals)
        out_avals = tuple(typeof(o).to_tangent_aval() for o in outs)
        nonzero = [type(t) is not Zero for t in tangents]

        def bwd(residuals, cts):
            return [ct for ct, nz in zip(self.bwd(residuals, cts), nonzero, strict=True) if nz]

        flat = custom_lin_p.bind(
            *residuals,
            *(t for t in tangents if type(t) is not Zero),
            num_res=len(residuals),
            bwd=bwd,
            out_avals=out_avals,
            symbolic_zeros=self.symbolic_zeros,
        )
        return outs, [Zero(a) if a.dtype == dtypes.float0 else t for t, a in zip(flat, out_avals, strict=True)]

    def bind_batched(self, axis, args, dims):
        out_dims: list = []
        in_avals = [typeof(x) for x in args]

        def fun(*xs):
            outs, found = batch_flat(self.fun, axis, xs, dims)
            out_dims[:] = found
            return outs

        shared: dict[str, Any] = {}

        def fwd(*xs):
            count: list[int] = []

            def both(*ys):
                outs, residuals = self.fwd(*ys)
                count.append(len(outs))
                return [*outs, *residuals]

            flat, found = batch_flat(both, axis, xs, dims)
            n = count[0]
            out_dims[:] = found[:n]
            shared["outs"], shared["residuals"] = found[:n], found[n:]
            return flat[:n], flat[n:]

        def bwd(residuals, cts):
            ct_dims = [d if type(ct) is not Zero else None for ct, d in zip(cts, shared["outs"], strict=True)]
            m = len(residuals)

            def run(*ys):
                return self.bwd(list(ys[:m]), list(ys[m:]))

            result, found = batch_flat(run, axis, [*residuals, *cts], [*shared["residuals"], *ct_dims])
            aligned = []
            for ct, d, want, aval in zip(result, found, dims, in_avals, strict=True):
                if type(ct) is Zero:
                    aligned.append(Zero(aval.to_tangent_aval()))
                elif want is None:
                    aligned.append(ct if d is None else _sum_over(ct, d))
                else:
                    aligned.append(batch_at(ct, d, want, axis.size))
            return aligned

        fwd.__name__, bwd.__name__ = callable_name(self.fwd), callable_name(self.bwd)
        outs = VjpCall(fun, fwd, bwd, self.name, self.symbolic_zeros, self.debug).bind(*args)
        return outs, list(out_dims)

    def params(self, closed, hoisted):
        fwd, bwd = self.fwd, self.bwd
        if hoisted:
            inner_fwd, inner_bwd = fwd, bwd

            def fwd(*xs):
                return inner_fwd(*xs[hoisted:])

            def bwd(residuals, cts):
                return [None] * hoisted + list(inner_bwd(residuals, cts))

        return {
            "call_jaxpr": closed,
            "fwd": Rule(callable_name(self.fwd), fwd),
            "bwd": Rule(callable_name(self.bwd), bwd),
            "name": self.name,
            "symbolic_zeros": self.symbolic_zeros,
        }


class Rule:
    """A user's rule as an equation's parameter; prints as its name."""

    __slots__ = ("__name__", "call")

    def __init__(self, name: str, call: Callable):
        self.__name__ = name
        self.call = call

    def __call__(self, *args):
        return self.call(*args)


def _sum_over(x: Any, axis: int) -> Any:
    from mpijax.core.primitive import registry

    return registry["reduce_sum"].bind(x, axes=(axis,), out_sharding=None)


class _CustomPrimitive(Primitive):
    """Binding an equation of a custom function makes a new application of it."""

    def __init__(self, name: str, remake: Callable):
        def unreachable(*_args, **_params):
            raise AssertionError(f"{name} is handled by the traces themselves")

        super().__init__(
            name,
            type_rule=lambda *_avals, call_jaxpr, **_: call_jaxpr.out_avals,
            reference=lambda *args, call_jaxpr, **_: eval_jaxpr(call_jaxpr.jaxpr, call_jaxpr.consts, *args),
            lower=Inline("call_jaxpr"),
            jvp=unreachable,
            transpose=unreachable,
            batch=unreachable,
            multiple_results=True,
            effects=lambda params: params["call_jaxpr"].effects,
            pretty=_pretty,
            vma=lambda avals, params: None,
        )
        self.remake = remake

    def bind(self, *args, **params):
        return self.remake(params).bind(*args)


def _pretty(eqn, names):
    return [("name", eqn.params["name"]), *sorted((k, v) for k, v in eqn.params.items() if k != "name")]


def _fun_of(params):
    closed: ClosedJaxpr = params["call_jaxpr"]
    return lambda *xs: eval_jaxpr(closed.jaxpr, closed.consts, *xs)


custom_jvp_call_p = _CustomPrimitive(
    "custom_jvp_call",
    lambda params: JvpCall(_fun_of(params), params["jvp"], params["name"], params["symbolic_zeros"]),
)
custom_vjp_call_p = _CustomPrimitive(
    "custom_vjp_call",
    lambda params: VjpCall(_fun_of(params), params["fwd"], params["bwd"], params["name"], params["symbolic_zeros"]),
)


def _lin_transpose(cts, *args, num_res, bwd, out_avals, symbolic_zeros):
    residuals = list(args[:num_res])
    given = list(cts) if symbolic_zeros else [instantiate(ct) for ct in cts]
    result = bwd(residuals, given)
    return [None] * num_res + [
        ct if is_undefined_primal(x) else None for ct, x in zip(result, args[num_res:], strict=True)
    ]


def _no_forward_mode(*_args, **_params):
    raise TypeError(
        "can't apply forward-mode autodiff (jvp) to a custom_vjp function. "
        "Use custom_jvp for a function that needs both modes."
    )


def _lin_batch(axis, args, dims, *, num_res, bwd, out_avals, symbolic_zeros):
    size = axis.size
    moved = [x if d is None else batch_at(x, d, 0, size) for x, d in zip(args, dims, strict=True)]
    res_dims = [None if d is None else 0 for d in dims[:num_res]]
    in_dims = dims[num_res:]

    def batched_bwd(residuals, cts):
        m = len(residuals)
        flat, found = batch_flat(
            lambda *ys: bwd(list(ys[:m]), list(ys[m:])),
            axis,
            [*residuals, *cts],
            [*res_dims, *[0] * len(cts)],
        )
        return [
            ct
            if type(ct) is Zero or ct is None
            else (batch_at(ct, d, 0, size) if want is not None else (ct if d is None else _sum_over(ct, d)))
            for ct, d, want in zip(flat, found, in_dims, strict=True)
        ]

    avals = tuple(a.update(shape=(size, *a.shape)) for a in out_avals)
    outs = custom_lin_p.bind(*moved, num_res=num_res, bwd=batched_bwd, out_avals=avals, symbolic_zeros=symbolic_zeros)
    return outs, [0] * len(outs)


custom_lin_p = Primitive(
    "custom_lin",
    type_rule=lambda *_avals, out_avals, **_: list(out_avals),
    reference=_no_forward_mode,
    lower=Decompose(_no_forward_mode),
    jvp=_no_forward_mode,
    transpose=_lin_transpose,
    batch=_lin_batch,
    multiple_results=True,
    vma=lambda avals, params: None,
)
custom_lin_p.impl = _no_forward_mode


def _flatten_call(fun, args, nondiff_argnums):
    """Split arguments into the differentiated (flattened) and the others; the function of the former."""
    nondiff = {i: args[i] for i in nondiff_argnums}
    count = len(args)  # not the arguments: rules live as long as the programs that hold them
    dynamic = [a for i, a in enumerate(args) if i not in nondiff]

    def partial(*dyn):
        it = iter(dyn)
        return fun(*[nondiff[i] if i in nondiff else next(it) for i in range(count)])

    leaves, in_tree = tree.tree_flatten((tuple(dynamic), {}))
    return (
        partial,
        list(map(as_array, leaves)),
        in_tree,
        [nondiff[i] for i in sorted(nondiff)],
        tuple(dynamic),
    )


class custom_jvp:
    """Decorate a function to give its derivative by `defjvp` or `defjvps`.

    Args:
      fun: the function.
      nondiff_argnums: positions of arguments that are not differentiated; they come first in the rule.
    """

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        import inspect

        update_wrapper(self, fun)
        self.fun = fun
        named = ()
        if nondiff_argnames:
            names = list(inspect.signature(fun).parameters)
            named = tuple(names.index(n) for n in nondiff_argnames)
        self.nondiff_argnums = tuple(sorted({*nondiff_argnums, *named}))
        self.jvp: Callable | None = None
        self.symbolic_zeros = False

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        from functools import partial

        return partial(self, instance)

    def defjvp(self, jvp: Callable, symbolic_zeros: bool = False) -> Callable:
        """Give the rule `(*nondiff, primals, tangents) -> (primal_out, tangent_out)`."""
        self.jvp = jvp
        self.symbolic_zeros = symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """Give one rule per argument, `(tangent, primal_out, *primals) -> tangent_out` or None for zero."""
        if self.nondiff_argnums:
            raise TypeError("Can't use ``defjvps`` with ``nondiff_argnums``.")

        def jvp(primals, tangents):
            from mpijax.transforms.zeros import add_tangents

            out = self(*primals)
            zero = tree.tree_map(Zero.of_primal, out)
            parts = [rule(t, out, *primals) for rule, t in zip(jvps, tangents, strict=True) if rule is not None]
            total = zero
            for part in parts:
                total = tree.tree_map(add_tangents, total, part)
            return out, tree.tree_map(instantiate, total)

        self.defjvp(jvp)

    def __call__(self, *args, **kwargs):
        name = callable_name(self.fun)
        if self.jvp is None:
            raise AttributeError(f"No JVP defined for custom_jvp function {name} using defjvp.")
        args = resolve_kwargs(self.fun, args, kwargs)
        fun, leaves, in_tree, nondiff, dynamic = _flatten_call(self.fun, args, self.nondiff_argnums)
        flat = FlatFun(fun, in_tree)
        trees: dict[str, Any] = {}
        call = JvpCall(
            flat, self._flat_rule(name, flat, nondiff, in_tree, trees), name, self.symbolic_zeros,
            debug_info("custom_jvp", self.fun, args, {}),
        )  # fmt: skip
        outs = call.bind(*leaves)
        return tree.tree_unflatten(trees.get("out", flat.out_tree), outs)

    def _flat_rule(self, name, flat, nondiff, in_tree, trees):
        jvp = self.jvp

        def rule(*primals_and_tangents):
            n = len(primals_and_tangents) // 2
            arrays = list(map(as_array, primals_and_tangents))
            primals = tree.tree_unflatten(in_tree, arrays[:n])[0]
            tangents = tree.tree_unflatten(in_tree, arrays[n:])[0]
            pair = jvp(*nondiff, primals, tangents)
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise TypeError(
                    f"Custom JVP rule {callable_name(jvp)} for function {name} must produce a pair (list or "
                    f"tuple of length two) representing primal and tangent outputs, but got {pair}."
                )
            outs, out_tree = tree.tree_flatten(pair[0])
            out_tangents, tangent_tree = tree.tree_flatten(pair[1])
            if tangent_tree != out_tree:
                raise TypeError(
                    f"Custom JVP rule {callable_name(jvp)} for function {name} must produce primal and "
                    f"tangent outputs with equal container (pytree) structures, but got {out_tree} and "
                    f"{tangent_tree} respectively."
                )
            trees["out"] = out_tree
            return [*outs, *_checked_tangents(jvp, name, outs, out_tangents)]

        rule.__name__ = callable_name(jvp)
        return rule


def _checked_tangents(jvp, name, outs, tangents):
    checked = []
    for out, t in zip(outs, tangents, strict=True):
        want = typeof(out).to_tangent_aval()
        if type(t) is Zero:
            checked.append(t)
            continue
        if want.dtype == dtypes.float0:
            checked.append(Zero(want))
            continue
        got = typeof(t)
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            raise TypeError(
                f"Custom JVP rule {callable_name(jvp)} for function {name} must produce primal and tangent "
                f"outputs with corresponding shapes and dtypes. Expected {want.str_short()} (tangent type of "
                f"{typeof(out).str_short()}) but got {got.str_short()}."
            )
        checked.append(t)
    return checked


class custom_vjp:
    """Decorate a function to give its reverse-mode derivative by `defvjp(fwd, bwd)`."""

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] = (), nondiff_argnames: Sequence[str] = ()):
        import inspect

        update_wrapper(self, fun)
        self.fun = fun
        named = ()
        if nondiff_argnames:
            names = list(inspect.signature(fun).parameters)
            named = tuple(names.index(n) for n in nondiff_argnames)
        self.nondiff_argnums = tuple(sorted({*nondiff_argnums, *named}))
        self.fwd: Callable | None = None
        self.bwd: Callable | None = None
        self.symbolic_zeros = False

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        from functools import partial

        return partial(self, instance)

    def defvjp(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Give `fwd(*args) -> (out, residuals)` and `bwd(*nondiff, residuals, ct) -> tuple of cotangents`."""
        self.fwd, self.bwd = fwd, bwd
        self.symbolic_zeros = symbolic_zeros

    def __call__(self, *args, **kwargs):
        name = callable_name(self.fun)
        if self.fwd is None or self.bwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {name} using defvjp.")
        args = resolve_kwargs(self.fun, args, kwargs)
        fun, leaves, in_tree, nondiff, dynamic = _flatten_call(self.fun, args, self.nondiff_argnums)
        flat = FlatFun(fun, in_tree)
        trees: dict[str, Any] = {}
        partial_fwd, *_ = _flatten_call(self.fwd, args, self.nondiff_argnums)
        avals = [typeof(x) for x in leaves]
        call = VjpCall(
            flat,
            self._flat_fwd(name, partial_fwd, in_tree, trees),
            self._flat_bwd(name, nondiff, in_tree, avals, trees),
            name,
            self.symbolic_zeros,
            debug_info("custom_vjp", self.fun, args, {}),
        )
        outs = call.bind(*leaves)
        return tree.tree_unflatten(trees.get("out", flat.out_tree), outs)

    def _flat_fwd(self, name, fwd, in_tree, trees):
        def run(*leaves):
            args, _ = tree.tree_unflatten(in_tree, list(map(as_array, leaves)))
            pair = fwd(*args)
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise TypeError(
                    f"Custom VJP fwd rule {callable_name(self.fwd)} for function {name} must produce a pair "
                    "(list or tuple of length two) where the first element represents the primal output "
                    "(equal to the output of the custom_vjp-decorated function) and the second element "
                    "represents residuals (i.e. values stored from the forward pass for use on the backward "
                    f"pass), but instead the fwd rule output was {pair}."
                )
            outs, trees["out"] = tree.tree_flatten(pair[0])
            residuals, trees["residuals"] = tree.tree_flatten(pair[1])
            return outs, residuals

        run.__name__ = callable_name(self.fwd)
        return run

    def _flat_bwd(self, name, nondiff, in_tree, avals, trees):
        bwd = self.bwd

        def run(residuals, cts):
            res = tree.tree_unflatten(trees["residuals"], residuals)
            ct = tree.tree_unflatten(trees["out"], list(map(as_array, cts)))
            result = bwd(*nondiff, res, ct)
            args_tree = in_tree.children()[0]
            if not isinstance(result, (list, tuple)):
                raise TypeError(
                    f"Custom VJP bwd rule {callable_name(bwd)} must produce a tuple but got {type(result)}."
                )
            dummy = tree.tree_unflatten(args_tree, list(range(len(avals))))
            if len(result) != len(dummy):
                raise TypeError(
                    f"Custom VJP bwd rule {callable_name(bwd)} must produce a tuple of length equal to the "
                    f"primal args tuple, but the bwd output has length {len(result)} and the primal args "
                    f"tuple has length {len(dummy)}."
                )
            flat: list[Any] = []
            for part, positions in zip(result, dummy, strict=True):
                flat += _bwd_part(bwd, name, part, positions, avals)
            return flat

        run.__name__ = callable_name(bwd)
        return run


def _bwd_part(bwd, name, part, positions, avals) -> list[Any]:
    """The cotangents for one argument, flat, None as zeros; checked against the argument's types."""
    indices, structure = tree.tree_flatten(positions)
    if part is None:
        return [Zero(avals[i].to_tangent_aval()) for i in indices]
    flat, got = tree.tree_flatten(part, is_leaf=lambda x: x is None)
    if got != structure and len(flat) != len(indices):
        raise TypeError(
            f"Custom VJP bwd rule {callable_name(bwd)} for function {name} must produce an output with the "
            f"same container (pytree) structure as the args tuple of the primal function, but got {got} for "
            f"an argument with {structure}."
        )
    out: list[Any] = []
    for ct, i in zip(flat, indices, strict=True):
        want = avals[i].to_tangent_aval()
        if ct is None or want.dtype == dtypes.float0 or (isinstance(ct, np.ndarray) and ct.dtype == dtypes.float0):
            out.append(Zero(want))
            continue
        aval = ct.aval if type(ct) is Zero else typeof(ct)
        if aval.shape != want.shape:
            raise ValueError(
                f"Custom VJP bwd rule {callable_name(bwd)} must produce a cotangent of the same shape as the "
                f"argument: expected {want.str_short()}, got {aval.str_short()}."
            )
        out.append(ct)
    return out
