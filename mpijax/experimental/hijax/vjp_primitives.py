"""Operations on pytrees, each an object with its rules as methods (`VJPHiPrimitive`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpijax.core.trees import tree
from mpijax.core.types.abstract import to_override
from mpijax.experimental.hijax.accumulators import GradAccum, ValAccum
from mpijax.experimental.hijax.call_primitives import call_hi_primitive_p
from mpijax.experimental.hijax.operators import follow_types
from mpijax.ops.reductions.standard import reduce_sum
from mpijax.transforms.batching import batch_at, batch_flat
from mpijax.transforms.zeros import Zero


class VJPHiPrimitive:
    """Base of operations on pytrees, with derivatives and rules for `vmap` of their own.

    A subclass sets in `__init__` the types of the arguments `in_avals` (a tuple of pytrees), that of the result
    `out_aval` (a pytree) and `params` (a dict, which also become attributes), and calls `super().__init__()`. Then
    `operation(*args)` applies it.

    Methods, each needed for what it names only: `expand(*args)` computes it; `jvp(primals, tangents)`; for gradients
    `vjp_fwd(nonzero, *args) -> (result, residuals)` with `vjp_bwd(residuals, ct, *accumulators)` or
    `vjp_bwd_retval(residuals, ct) -> cts`; `lin` with `linearized`; `transpose(ct, *args)`; `batch(axis, args, dims) ->
    (result, dims)` or `batch_dim_rule(axis, dims) -> dims`.

    >>> class Cube(mpijax.experimental.hijax.VJPHiPrimitive):
    ...     def __init__(self, aval):
    ...         self.in_avals, self.out_aval, self.params = (aval,), aval, {}
    ...         super().__init__()
    ...     def expand(self, x): return x**3
    ...     def vjp_fwd(self, nonzero, x): return self(x), x
    ...     def vjp_bwd_retval(self, x, ct): return (3 * x**2 * ct,)
    >>> mpijax.grad(lambda x: Cube(mpijax.typeof(x))(x))(jnp.float32(2))
    Array(12., dtype=float32)
    """

    in_avals: tuple[Any, ...]
    out_aval: Any
    params: dict[str, Any]
    effects: frozenset = frozenset()

    def __init__(self) -> None:
        for name in ("in_avals", "out_aval", "params"):
            if not hasattr(self, name):
                raise AttributeError(f"{type(self).__name__}.__init__ must set self.{name} before super().__init__()")
        if self.overrides("vjp_bwd") and self.overrides("vjp_bwd_retval"):
            raise AttributeError(f"{type(self).__name__} defines both vjp_bwd and vjp_bwd_retval. Define one of them.")
        self.in_avals_flat, self.in_tree = tree.tree_flatten(self.in_avals)
        self.out_avals_flat, self.out_tree = tree.tree_flatten(self.out_aval)
        self.__dict__.update(self.params)
        follow_types()
        self.check(*self.in_avals)

    def overrides(self, method: str) -> bool:
        """Whether the subclass has a method of its own."""
        return getattr(type(self), method) is not getattr(VJPHiPrimitive, method)

    def check(self, *arg_tys: Any) -> None:
        """Raise an error for types that the operation does not take."""

    def expand(self, *args: Any) -> Any:
        """The result, in terms of other operations."""
        to_override(self, "expand", "a value")

    def jvp(self, primals: Any, tangents: Any) -> tuple[Any, Any]:
        to_override(self, "jvp", "jvp")

    def vjp_fwd(self, nzs_in: Any, /, *args: Any) -> tuple:
        to_override(self, "vjp_fwd", "grad")

    def vjp_bwd(self, res: Any, outgrad: Any, /, *arg_accums: Any) -> None:
        found = tree.tree_structure(arg_accums).flatten_up_to(self.vjp_bwd_retval(res, outgrad))
        for accumulator, ct in zip(tree.tree_leaves(arg_accums), found, strict=True):
            if isinstance(accumulator, GradAccum):
                accumulator.accum(ct)

    def vjp_bwd_retval(self, res: Any, outgrad: Any, /) -> Any:
        to_override(self, "vjp_bwd or vjp_bwd_retval", "grad")

    def lin(self, nzs_in: Any, *primals: Any) -> tuple:
        to_override(self, "lin", "linearize")

    def linearized(self, residuals: Any, *tangents: Any) -> Any:
        to_override(self, "linearized", "linearize")

    def transpose(self, out_ct: Any, *maybe_accums: Any) -> None:
        to_override(self, "transpose", "reverse mode through an operation that is linear in an operand")

    def batch(self, axis_data: Any, args: Any, dims: Any) -> tuple[Any, Any]:
        out_dim = self.batch_dim_rule(axis_data, dims)
        return VmapOf(self, axis_data, dims, out_dim)(*args), out_dim

    def batch_dim_rule(self, axis_data: Any, dims: Any, /) -> Any:
        to_override(self, "batch or batch_dim_rule", "vmap")

    def dce(self, used_outs: Any) -> tuple[Any, Any, Any]:
        """Which arguments it reads and which results it gives if those marked are used, and by which operation.

        The last is None if it is not needed.
        """
        used = any(tree.tree_leaves(used_outs))
        return (True, True, self) if used else (False, False, None)

    def __call__(self, *args: Any) -> Any:
        leaves = self.in_tree.flatten_up_to(args)
        return tree.tree_unflatten(self.out_tree, call_hi_primitive_p.bind(*leaves, _prim=self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.params}]"

    def __hash__(self) -> int:
        return hash((type(self).__name__, tuple(self.params.items()), self.effects))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        return (self.params, self.effects) == (other.params, other.effects)  # type: ignore[attr-defined]


# ---------------------------------------------------------------- batches


class _ResidualDims:
    """Where the examples are in residuals, as a node of pytrees without leaves."""

    def __init__(self, dims: list[Any]):
        self.dims = dims


tree.register_pytree_node(_ResidualDims, lambda node: ((), tuple(node.dims)), lambda dims, _: _ResidualDims(list(dims)))


class VmapOf(VJPHiPrimitive):
    """An operation on batches, whose rules are those of the operation on examples, applied to each."""

    def __init__(self, prim: VJPHiPrimitive, axis_data: Any, in_dims: Any, out_dim: Any):
        size = axis_data.size
        self.in_dims_flat = prim.in_tree.flatten_up_to(in_dims)
        self.out_dims_flat = prim.out_tree.flatten_up_to(out_dim)
        in_avals = [a.inc_rank(size, d) for a, d in zip(prim.in_avals_flat, self.in_dims_flat, strict=True)]
        out_avals = [a.inc_rank(size, d) for a, d in zip(prim.out_avals_flat, self.out_dims_flat, strict=True)]
        self.in_avals = tree.tree_unflatten(prim.in_tree, in_avals)
        self.out_aval = tree.tree_unflatten(prim.out_tree, out_avals)
        self.effects = prim.effects
        self.params = {"prim": prim, "axis_data": axis_data, "in_dims": in_dims, "out_dim": out_dim}
        super().__init__()

    def overrides(self, method: str) -> bool:
        return super().overrides(method) and (method == "batch_dim_rule" or self.params["prim"].overrides(method))

    def _args(self, leaves: Sequence[Any]) -> tuple:
        return tree.tree_unflatten(self.in_tree, leaves)

    def _over_examples(self, fun: Callable, leaves: Sequence[Any], dims: Sequence[Any]) -> tuple[list, list]:
        """Run a function of flat examples; its results and where the examples are in them."""
        size = self.params["axis_data"].size
        given = [Zero(x.aval.dec_rank(size, d)) if type(x) is Zero else x for x, d in zip(leaves, dims, strict=True)]
        own = [None if type(x) is Zero else d for x, d in zip(leaves, dims, strict=True)]
        return batch_flat(fun, self.params["axis_data"], given, own)

    def _placed(self, outs: Sequence[Any], found: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
        """Results with their examples where they are wanted."""
        axis = self.params["axis_data"]
        return [
            Zero(x.aval.inc_rank(axis.size, to)) if type(x) is Zero else x if to is None else batch_at(x, d, to, axis)
            for x, d, to in zip(outs, found, wanted, strict=True)
        ]

    def _result(self, outs: Sequence[Any], found: Sequence[Any]) -> Any:
        return tree.tree_unflatten(self.out_tree, self._placed(outs, found, self.out_dims_flat))

    def expand(self, *args: Any) -> Any:
        prim = self.params["prim"]

        def run(*xs: Any) -> list[Any]:
            return self.out_tree.flatten_up_to(prim.expand(*self._args(xs)))

        return self._result(*self._over_examples(run, self.in_tree.flatten_up_to(args), self.in_dims_flat))

    def jvp(self, primals: Any, tangents: Any) -> tuple[Any, Any]:
        prim, n, m = self.params["prim"], len(self.in_dims_flat), len(self.out_dims_flat)

        def run(*xs: Any) -> list[Any]:
            return [x for part in prim.jvp(self._args(xs[:n]), self._args(xs[n:]))
                    for x in self.out_tree.flatten_up_to(part)]  # fmt: skip

        leaves = [*self.in_tree.flatten_up_to(primals), *self.in_tree.flatten_up_to(tangents)]
        outs, found = self._over_examples(run, leaves, self.in_dims_flat * 2)
        return self._result(outs[:m], found[:m]), self._result(outs[m:], found[m:])

    def vjp_fwd(self, nzs_in: Any, /, *args: Any) -> tuple:
        prim, m = self.params["prim"], len(self.out_dims_flat)
        made: list[Any] = []

        def run(*xs: Any) -> list[Any]:
            out, residuals, *said = prim.vjp_fwd(nzs_in, *self._args(xs))
            leaves, structure = tree.tree_flatten(residuals)
            made[:] = [structure, said]
            return [*self.out_tree.flatten_up_to(out), *leaves]

        outs, found = self._over_examples(run, self.in_tree.flatten_up_to(args), self.in_dims_flat)
        structure, said = made
        residuals = tree.tree_unflatten(structure, outs[m:])
        return self._result(outs[:m], found[:m]), (residuals, _ResidualDims(found[m:])), *said

    def vjp_bwd_retval(self, res: Any, outgrad: Any, /) -> Any:
        prim = self.params["prim"]
        (residuals, dims) = res
        leaves, structure = tree.tree_flatten(residuals)
        n = len(leaves)

        def run(*xs: Any) -> list[Any]:
            ct = tree.tree_unflatten(self.out_tree, xs[n:])
            accumulators = [ValAccum(a.to_cotangent_aval()) for a in prim.in_avals_flat]
            prim.vjp_bwd(tree.tree_unflatten(structure, xs[:n]), ct, *self._args(accumulators))
            return [a.value for a in accumulators]

        cts = self.out_tree.flatten_up_to(outgrad)
        outs, found = self._over_examples(run, [*leaves, *cts], [*dims.dims, *self.out_dims_flat])
        # What all examples share gets the sum of their cotangents.
        shared = zip(outs, found, self.in_dims_flat, strict=True)
        outs = [reduce_sum(x, (d,)) if d is not None and to is None else x for x, d, to in shared]
        return self._args(self._placed(outs, found, self.in_dims_flat))

    def batch_dim_rule(self, axis_data: Any, dims: Any, /) -> Any:
        """Where a further batch has its examples, by the rule for one without this one's axes."""
        prim = self.params["prim"]
        without = [
            d if d is None or own is None else d - (own < d)
            for d, own in zip(self.in_tree.flatten_up_to(dims), self.in_dims_flat, strict=True)
        ]
        found = self.out_tree.flatten_up_to(prim.batch_dim_rule(axis_data, self._args(without)))
        pairs = zip(found, self.out_dims_flat, strict=True)
        out_dims = [d if d is None or own is None else d + (own < d) for d, own in pairs]
        return tree.tree_unflatten(self.out_tree, out_dims)
