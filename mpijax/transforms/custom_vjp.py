"""Defines `custom_vjp`: functions with a user-defined reverse-mode derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import config, errors, provided
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import callable_name
from mpijax.core.base.state import state
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.tracing.refs import Ref, read, write
from mpijax.core.tracing.trace import EVAL
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.transforms.custom import (
    CustomCall,
    CustomFunction,
    CustomPrimitive,
    ResultTypes,
    Rule,
    RuleWords,
    rerunnable,
)
from mpijax.transforms.dual import DualTrace
from mpijax.transforms.flat import FlatFun, debug_info
from mpijax.transforms.ref_state import check_aliases, is_ref, values_of
from mpijax.transforms.remat_opt import fwd_or_fun
from mpijax.transforms.transpose import is_undefined_primal
from mpijax.transforms.zeros import Zero, add_tangents, as_array, as_operand, instantiate


class CustomVJPException(Exception):
    """Raised for differentiation with respect to a value that a `custom_vjp` function closes over."""

    def __init__(self):
        super().__init__(
            "Detected differentiation of a custom_vjp function with respect to a closed-over value. That isn't "
            "supported because the custom VJP rule only specifies how to differentiate the custom_vjp function with "
            "respect to explicit input parameters. Try passing the closed-over value into the custom_vjp function as "
            "an argument, and adapting the custom_vjp fwd and bwd rules."
        )


class VjpCall(CustomCall):
    """A call of a `custom_vjp` function.

    `fwd(primals, perturbed) -> (results, residuals, bwd)`, all flat. `bwd(residuals, cotangents)` returns the
    cotangents of the arguments. `perturbed` has a flag for each argument: whether it is differentiated. With
    `optimize_remat`, `fun` replaces `fwd` if the residuals are not kept. The last results are the new values of
    mutable array references, whose values are the arguments at the positions `finals`.
    """

    def __init__(self, fun, fwd, bwd_name, name, symbolic_zeros, optimize_remat=False, debug=None, finals=()):
        super().__init__(fun, name, symbolic_zeros, debug)
        self.finals: tuple[int, ...] = finals
        self.fwd = fwd
        self.bwd_name = bwd_name
        self.optimize_remat = optimize_remat
        self.primitive = custom_vjp_call_p

    def differentiate(self, primals, tangents):
        """Results from `fwd`, and tangents from a linear operation whose transpose is `bwd`."""
        nonzero = [type(t) is not Zero for t in tangents]
        fwd = partial(fwd_or_fun, self.fwd, self.fun, self.name) if self.optimize_remat else self.fwd
        outs, residuals, bwd = fwd(primals, nonzero)
        out_avals = tuple(typeof(o).to_tangent_aval() for o in outs)
        flat = custom_lin_p.bind(
            *residuals,
            *(t for t in tangents if type(t) is not Zero),
            num_res=len(residuals),
            bwd=bwd,
            bwd_name=self.bwd_name,
            in_zeros=tuple(not nz for nz in nonzero),
            out_avals=out_avals,
            symbolic_zeros=self.symbolic_zeros,
        )
        varies = [True] * (len(outs) - len(self.finals)) + [nonzero[i] for i in self.finals]
        return outs, [
            t if v and not a.has_no_tangent else Zero(a) for t, a, v in zip(flat, out_avals, varies, strict=True)
        ]

    def batched(self, trace, dims, axes):
        def fwd(primals, perturbed) -> tuple[list[Any], list[Any], _BatchedBwd]:
            found_bwd: list = []

            def both(*xs):
                outs, residuals, bwd = self.fwd(xs, perturbed)
                found_bwd[:] = [bwd, len(outs)]
                return [*outs, *residuals]

            avals = [typeof(x).to_tangent_aval() for x in primals]
            flat, found = axes.run_rule(both, primals, dims)
            bwd, n = found_bwd
            target = axes.settle(found[:n])
            outs = [axes.place(o, d, t) for o, d, t in zip(flat[:n], found[:n], target, strict=True)]
            return outs, flat[n:], _BatchedBwd(bwd, axes, avals, list(dims), target, found[n:])

        fwd.__name__ = callable_name(self.fwd)
        fun = lambda *xs: axes.run(self.fun, xs, dims)
        return VjpCall(
            fun, fwd, self.bwd_name, self.name, self.symbolic_zeros, self.optimize_remat, self.debug, self.finals
        )

    def bind_params(self, count):
        last: list = []

        def fwd(*pairs):
            outs, residuals, last_bwd = self.fwd(pairs[::2], pairs[1::2])
            last[:] = last_bwd, tree.tree_structure(outs), tree.tree_structure(residuals)
            return [*residuals, *outs]

        def bwd(*xs):
            count = last[2].num_leaves
            return last[0](list(xs[:count]), list(xs[count:]))

        def out_trees():
            return last[1], last[2], [None] * last[2].num_leaves

        fwd.__name__, bwd.__name__ = callable_name(self.fwd), self.bwd_name
        subfuns = (self.wrapped_fun(), provided.wrap_init(fwd), bwd)
        return {"subfuns": subfuns, "out_trees": out_trees, "symbolic_zeros": self.symbolic_zeros}

    def params(self, closed, hoisted):
        fwd = self.fwd

        def explicit(primals, perturbed):
            if any(perturbed[:hoisted]):
                raise CustomVJPException
            outs, residuals, bwd = fwd(primals[hoisted:], perturbed[hoisted:])
            return outs, residuals, lambda res, cts: [None] * hoisted + bwd(res, cts)

        rule = Rule(callable_name(fwd), explicit if hoisted else fwd)
        finals = tuple(hoisted + i for i in self.finals)
        return {"fwd": rule, "bwd_name": self.bwd_name, "optimize_remat": self.optimize_remat, "finals": finals}


class _BatchedBwd:
    """The backward rule over batches. Batch axes of arguments, results and residuals are those of the forward rule."""

    def __init__(self, bwd, axes, in_avals, in_dims, out_dims, res_dims):
        self.bwd = bwd
        self.axes = axes
        self.in_avals = in_avals
        self.in_dims = in_dims
        self.out_dims = out_dims
        self.res_dims = res_dims

    def __call__(self, residuals, cts):
        count = len(residuals)

        def run(*xs):
            return self.bwd(list(xs[:count]), list(xs[count:]))

        result, found = self.axes.run_rule(run, [*residuals, *cts], [*self.res_dims, *self.out_dims])
        return [self._whole(*each) for each in zip(result, found, self.in_dims, self.in_avals, strict=True)]

    def _whole(self, ct, dim, wanted, aval):
        """The cotangent of one argument, summed over examples if the argument is not batched."""
        if type(ct) is Zero:
            return Zero(aval)
        if wanted is not None:
            return self.axes.place(ct, dim, wanted)
        return ct if dim is None else provided.basic.summed(ct, dim)


def _rejoined(subfuns, out_trees, symbolic_zeros) -> VjpCall:
    wrapped_fun, wrapped_fwd, bwd = subfuns
    fun, both = rerunnable(wrapped_fun), rerunnable(wrapped_fwd)

    def fwd(primals, perturbed):
        flat = both(*(x for pair in zip(primals, perturbed, strict=True) for x in pair))
        count = out_trees()[1].num_leaves
        return flat[count:], flat[:count], lambda residuals, cts: bwd(*residuals, *cts)

    fwd.__name__ = callable_name(both)
    return VjpCall(fun, fwd, callable_name(bwd), callable_name(fun), symbolic_zeros)


def _select(params, used):
    rule, out_avals = params["fwd"], params["call_jaxpr"].out_avals

    def fwd(primals, perturbed):
        outs, residuals, bwd = rule(primals, perturbed)

        def full_bwd(residuals, cts):
            given = iter(cts)
            zeros = (Zero(a.to_tangent_aval()) for a in out_avals)
            full = [next(given) if u else z for z, u in zip(zeros, used, strict=True)]
            return bwd(residuals, full if params["symbolic_zeros"] else [instantiate(ct) for ct in full])

        return [o for o, u in zip(outs, used, strict=True) if u], residuals, full_bwd

    finals = params["finals"]
    kept = used[len(used) - len(finals) :]
    return {"fwd": Rule(rule.__name__, fwd), "finals": tuple(i for i, u in zip(finals, kept, strict=True) if u)}


def _no_transpose(*_args, name, **_):
    raise NotImplementedError(
        f"Transpose rule (for reverse-mode differentiation) for 'custom_vjp_call' not implemented: the rule of {name} "
        "is for its derivative. Use jax.custom_jvp, or jax.custom_derivatives.linear_call for a rule of the transpose."
    )


custom_vjp_call_p = CustomPrimitive(
    "custom_vjp_call",
    remake=lambda fun, params: VjpCall(
        fun, params["fwd"], params["bwd_name"], params["name"], params["symbolic_zeros"], params["optimize_remat"],
        finals=params["finals"],
    ),  # fmt: skip
    select=_select,
    shown=lambda params: {"fwd": params["fwd"], "bwd": params["bwd_name"]},
    rejoin=_rejoined,
    transpose=_no_transpose,
)
custom_vjp_call_p.has_users_transpose = True


def _lin_transpose(cts, *args, num_res, bwd, in_zeros, symbolic_zeros, **_):
    given = list(cts) if symbolic_zeros else [instantiate(ct) for ct in cts]
    result = [ct for ct, zero in zip(bwd(list(args[:num_res]), given), in_zeros, strict=True) if not zero]
    linear = zip(result, args[num_res:], strict=True)
    return [None] * num_res + [ct if is_undefined_primal(x) else None for ct, x in linear]


def _no_forward_mode(*_args, **_params):
    raise TypeError(
        "can't apply forward-mode autodiff (jvp) to a custom_vjp function. Use custom_jvp for a function that needs "
        "both modes."
    )


def _pretty_lin(eqn, _names):
    p = eqn.params
    zeros = [("in_zeros", list(p["in_zeros"])), ("num_res", p["num_res"]), ("symbolic_zeros", p["symbolic_zeros"])]
    return [("bwd", p["bwd_name"]), *zeros]


custom_lin_p = Primitive(
    "custom_lin",
    type_rule=lambda *_avals, out_avals, **_: list(out_avals),
    reference=_no_forward_mode,
    lower=Decompose(_no_forward_mode),
    jvp=_no_forward_mode,
    transpose=_lin_transpose,
    batch=_no_forward_mode,
    multiple_results=True,
    vma=lambda avals, params: None,
    sharding_type=types.by_type_rule,
    pretty=_pretty_lin,
)
custom_lin_p.impl = _no_forward_mode
custom_lin_p.has_users_transpose = True


# ---------------------------------------------------------------- decorated functions


@dataclass
class CustomVJPPrimal:
    """An argument of a forward rule with `symbolic_zeros`: its value, and whether it is differentiated.

    >>> mpijax.custom_derivatives.CustomVJPPrimal(value=3.0, perturbed=True).perturbed
    True
    """

    value: Any
    perturbed: bool


def custom_vjp_primal_tree_values(args: Any) -> Any:
    """The values in a pytree of `CustomVJPPrimal`s.

    >>> primal = mpijax.custom_derivatives.CustomVJPPrimal(1.0, perturbed=True)
    >>> mpijax.custom_derivatives.custom_vjp_primal_tree_values({"x": primal})
    {'x': 1.0}
    """

    def value(leaf):
        if type(leaf) is not CustomVJPPrimal:
            raise TypeError(f"unexpected leaf type {type(leaf)}")
        return leaf.value

    return tree.tree_map(value, args)


class custom_vjp(CustomFunction):
    """Decorate a function to define its reverse-mode derivative with `defvjp(fwd, bwd)`.

    Args:
      fun: the function.
      nondiff_argnums, nondiff_argnames: arguments that are neither differentiated nor traced; `bwd` takes them first.

    >>> @mpijax.custom_vjp
    ... def f(x):
    ...     return x**2
    >>> f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * x * ct,))
    >>> mpijax.grad(f)(jnp.float32(3))
    Array(30., dtype=float32)
    """

    kind = "custom_vjp"
    fwd: Callable | None = None
    bwd: Callable | None = None
    symbolic_zeros = False
    optimize_remat = False

    def defvjp(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Set `fwd(*args) -> (out, residuals)` and `bwd(*nondiff, residuals, ct) -> tuple of cotangents`.

        With `symbolic_zeros`, `fwd` takes `CustomVJPPrimal`s instead of arrays, and zero cotangents are `SymbolicZero`
        objects. With `optimize_remat`, the first pass of `checkpoint` runs the function instead of `fwd`, if it keeps
        no residuals.
        """
        if symbolic_zeros and optimize_remat:
            raise NotImplementedError("remat optimization for custom_vjp does not support symbolic zeros")
        self.fwd, self.bwd = fwd, bwd
        self.symbolic_zeros = symbolic_zeros
        self.optimize_remat = optimize_remat

    def __call__(self, *args, **kwargs):
        name = callable_name(self.fun)
        if self.fwd is None or self.bwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {name} using defvjp.")
        args = self._positional(args, kwargs)
        fun, dynamic, nondiff = self._split(self.fun, args)
        _check_untraced(nondiff)
        leaves, in_tree = tree.tree_flatten((dynamic, {}))
        refs = _References(leaves)
        debug = debug_info("custom_vjp", self.fun, args, {})
        check_aliases((), leaves, lambda: debug)
        leaves = list(map(as_operand, values_of(leaves)))
        types = ResultTypes()
        fwd, _, _ = self._split(self.fwd, args)
        rule = _FlatFwd(self, name, fwd, nondiff, in_tree, [typeof(x) for x in leaves], types, refs)
        flat = refs.of_values(types.recorded(FlatFun(fun, in_tree)))
        call = VjpCall(
            flat, rule, callable_name(self.bwd), name, self.symbolic_zeros, self.optimize_remat, debug, tuple(refs.at)
        )
        outs = call.bind(*leaves)
        return tree.tree_unflatten(types.structure, refs.write_back(outs))


class _References:
    """The mutable array references among the arguments, by position.

    A call takes their values and returns their new values. The function and the forward rule get new references, which
    hold the values in the trace that runs them. So a reference is differentiated by its value, which may belong to any
    trace. A reference from outside of the differentiated function has no derivative there; backward rules may use it.
    """

    def __init__(self, leaves: Sequence[Any]):
        self.at: dict[int, Ref] = {i: x for i, x in enumerate(leaves) if is_ref(x)}
        self.may_be_kept = {i: _is_outside(x) for i, x in self.at.items()}
        # Whether the function or the forward rule, if it has run, writes it; whether a call's new value is used.
        self.is_written = dict.fromkeys(self.at, False)
        self.is_returned: dict[int, bool] = {}

    def opened(self, values: Sequence[Any]) -> list[Any]:
        """The arguments, with new references in the current trace."""
        return [Ref.of(x, self.at[i].aval.kind) if i in self.at else x for i, x in enumerate(values)]

    def finals(self, values: Sequence[Any], opened: Sequence[Any]) -> list[Any]:
        """The new values of the references, which held `values`."""
        found = {i: read(opened[i]) for i in self.at}
        for i, value in found.items():
            self.is_written[i] |= value is not values[i]
        return list(found.values())

    def of_values(self, flat: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        """A flat function as one that takes the values of the references and also returns their new values."""

        def fun(*values):
            opened = self.opened(values)
            return [*flat(*opened), *self.finals(values, opened)]

        return fun if self.at else flat

    def write_back(self, outs: Sequence[Any]) -> Sequence[Any]:
        """The results of the call without the new values, which are written to the references.

        The value of a reference that is made in a differentiated program is always written, because the forward rule,
        which runs later, may write it. A reference that is only read stays so, for programs that must not write it.
        """
        count = len(outs) - len(self.at)
        for (i, ref), value in zip(self.at.items(), outs[count:], strict=True):
            made_here = not self.may_be_kept[i] and not ref.is_argument
            self.is_returned[i] = self.is_written[i] or made_here
            if self.is_returned[i]:
                write(ref, value)
        return outs[:count]


def _is_outside(ref: Ref) -> bool:
    """Whether a reference exists outside of the function that is being differentiated, or outside of all functions."""
    trace = state.trace
    while trace is not None and trace is not ref.home:
        if isinstance(trace, DualTrace):
            return True
        trace = trace.parent
    return ref.home is EVAL


def _check_untraced(nondiff) -> None:
    if any(isinstance(leaf, Tracer) for leaf in tree.tree_leaves(nondiff)):
        raise errors.UnexpectedTracerError(
            "Found a JAX Tracer object passed as an argument to a custom_vjp function in a position indicated by "
            "nondiff_argnums as non-differentiable. Tracers cannot be passed as non-differentiable arguments to "
            "custom_vjp functions; instead, nondiff_argnums should only be used for arguments that can't be or contain "
            "JAX tracers, e.g. function-valued arguments. In particular, array-valued arguments should typically not "
            "be indicated as nondiff_argnums."
        )


_WORDS = RuleWords(
    decorator="custom_vjp",
    rule="VJP fwd rule",
    short="fwd rule",
    equal="equal to the output of the {function}) and the second element represents residuals (i.e. values stored "
    "from the forward pass for use on the backward pass)",
)


class _FlatFwd:
    """The user's forward rule as a function of flat arguments. Checks what the rule returns."""

    def __init__(
        self, function: custom_vjp, name: str, fwd: Callable, nondiff, in_tree, in_avals, types: ResultTypes,
        refs: _References,
    ):  # fmt: skip
        self.refs = refs
        self.__name__ = callable_name(function.fwd)
        self.name = name
        self.fwd = fwd
        self.bwd = function.bwd
        self.symbolic_zeros = function.symbolic_zeros
        self.nondiff = nondiff
        self.in_tree = in_tree
        self.in_avals = in_avals
        self.types = types

    def __call__(self, primals, perturbed):
        values = list(map(as_operand, primals))
        opened = leaves = self.refs.opened(values)
        if self.symbolic_zeros:
            leaves = [CustomVJPPrimal(x, p) for x, p in zip(leaves, perturbed, strict=True)]
        pair = self.fwd(*tree.tree_unflatten(self.in_tree, leaves)[0])
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(
                f"Custom VJP fwd rule {self.__name__} for function {self.name} must produce a pair (list or tuple of "
                "length two) where the first element represents the primal output (equal to those of the "
                f"custom_vjp-decorated function {self.name}) and the second element represents residuals (i.e. values "
                "stored from the forward pass for use on the backward pass), but instead of a pair the fwd rule "
                f"{self.__name__} produced {pair}."
            )
        outs, out_tree = tree.tree_flatten(pair[0])
        residuals, res_tree = tree.tree_flatten(pair[1])
        residuals = self._with_given_refs(outs, residuals, opened)
        self.types.check_rule(out_tree, [typeof(x) for x in outs], _WORDS, self.__name__, self.name)
        # Python numbers reach the backward rule unchanged, so it may branch on them; references do too. Arguments that
        # are numbers, and not whole, are residuals as arrays are, as in JAX.
        inexact = {id(x) for x in values if type(x) in (float, complex)}
        static = [type(x) in (bool, int, float, complex, Ref) and id(x) not in inexact for x in residuals]
        finals = self._finals(values, opened)
        count = len(outs)

        def bwd(arrays, cts):
            cotangent = tree.tree_unflatten(out_tree, list(map(as_array, cts[:count])))
            self._check_kept(residuals)
            rest = iter(arrays)
            leaves = [x if s else next(rest) for x, s in zip(numbers, static, strict=True)]
            result = self._cotangents(self.bwd(*self.nondiff, tree.tree_unflatten(res_tree, leaves), cotangent))
            for i, ct in zip(self.refs.at, cts[count:], strict=False):
                result[i] = add_tangents(result[i], ct)
            return result

        numbers = [x if s else None for x, s in zip(residuals, static, strict=True)]
        return [*outs, *finals], [x for x, s in zip(residuals, static, strict=True) if not s], bwd

    def _finals(self, values: list[Any], opened: list[Any]) -> list[Any]:
        """The new values of references; raises NotImplementedError for one that the traced function did not write."""
        finals = self.refs.finals(values, opened)
        for i, returned in self.refs.is_returned.items():
            if self.refs.is_written[i] and not returned:
                raise NotImplementedError(
                    f"The forward rule {self.__name__} writes a mutable array reference of type {opened[i].aval} that "
                    f"the function {self.name} does not write, in a program that is traced before it is "
                    "differentiated. Let the function write the reference too."
                )
        return finals

    def _with_given_refs(self, outs: list[Any], residuals: list[Any], opened: list[Any]) -> list[Any]:
        """The residuals with the references of the caller in place of those that the rule got.

        Raises ValueError for returned references, except arguments among the residuals.
        """
        position = {opened[i]: i for i in self.refs.at}
        wrong = [x for x in outs if is_ref(x)] or [x for x in residuals if is_ref(x) and x not in position]
        if wrong:
            raise ValueError(
                f"custom_vjp fwd function {self.__name__} returned a mutable array reference of type {wrong[0].aval}. "
                "Residuals may only contain references that the function got as arguments."
            )
        return [self.refs.at[position[x]] if is_ref(x) else x for x in residuals]

    def _check_kept(self, residuals: list[Any]) -> None:
        """Raise NotImplementedError for a residual that is a reference from inside of the differentiated function."""
        ended = [x for i, x in self.refs.at.items() if not self.refs.may_be_kept[i]]
        for x in residuals:
            if is_ref(x) and x in ended:
                raise NotImplementedError(
                    f"custom_vjp fwd function {self.__name__} returned, among its residuals, a mutable array reference "
                    f"of type {x.aval} that was made in the differentiated function: it does not exist when the "
                    "backward rule runs. Return its value (ref[...]), or make the reference outside."
                )

    def _cotangents(self, result: Any) -> list[Any]:
        """The backward rule's cotangents, flat, with their types checked."""
        args_tree = self.in_tree.children()[0]
        places = tree.tree_unflatten(args_tree, list(range(len(self.in_avals))))
        if isinstance(result, list) and len(result) == len(places):
            result = tuple(result)
        flat: list[Any] = [None] * len(self.in_avals)

        def put(ct, place):
            for i in tree.tree_leaves(place):
                flat[i] = ct
            return ct  # the user's node classes are rebuilt with this leaf

        try:
            if not isinstance(result, tuple):
                raise ValueError("not a tuple")
            tree.tree_map(put, result, places, is_leaf=lambda x: x is None)
        except ValueError:
            raise TypeError(
                "Custom VJP bwd rule must produce an output with the same container (pytree) structure as the args "
                "tuple of the primal function, and in particular must produce a tuple of length equal to the number of "
                f"arguments to the primal function, but got bwd output structure {tree.tree_structure(result)} for "
                f"primal input structure {args_tree}."
            ) from None
        paths = [tree.keystr(path) for path, _ in tree.tree_flatten_with_path(places)[0]]
        return [_checked_cotangent(*each) for each in zip(flat, self.in_avals, paths, strict=True)]


def _checked_cotangent(ct: Any, primal: Any, path: str) -> Any:
    """The cotangent of one argument, with None as zero; raises ValueError if its type does not match the argument."""
    want = primal.to_tangent_aval()
    if ct is None or want.has_no_tangent:
        return Zero(want)
    got = ct.aval if type(ct) is Zero else typeof(ct)
    if type(ct) is Zero:
        if got.form != want.form:
            raise ValueError(
                "Custom VJP bwd rule produced a SymbolicZero with a shape/dtype that does not match the corresponding "
                f"input tangent shape/dtype: at output{path} the SymbolicZero had shape/dtype {got.str_short(False)} "
                f"while the corresponding input had shape/dtype {primal.str_short(False)}. Consider just returning a "
                "None here instead of a SymbolicZero object."
            )
        return ct
    if config.disable_bwd_checks.value or got == want:
        return ct
    # A cotangent may have another inexact dtype.
    if got.is_high or want.is_high or got.shape != want.shape or got.vma != want.vma or not _is_inexact(want):
        why = "" if got.vma == want.vma else ", so the manual axis types do not match"
        raise ValueError(
            "Custom VJP bwd rule must produce an output with the same type as the args tuple of the primal function, "
            f"but at output{path} the bwd rule produced an output of type {got.str_short(False)} corresponding to an "
            f"input of type {primal.str_short(False)}{why}"
        )
    return ct


def _is_inexact(aval: Any) -> bool:
    return dtypes.issubdtype(aval.dtype, np.inexact)
