"""Defines `custom_linear_solve` and `custom_root`: solutions with derivatives by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from mpijax.core.programs.jaxpr import ClosedJaxpr, eval_jaxpr
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof
from mpijax.ops.linear_solve import LinearSolveTuple, linear_solve_p
from mpijax.transforms.call import hoist_tracers
from mpijax.transforms.custom_jvp import custom_jvp
from mpijax.transforms.derivatives import linear_transpose, linearize
from mpijax.transforms.flat import FlatFun, debug_info
from mpijax.transforms.jvp import jvp_flat
from mpijax.transforms.ref_state import values_of
from mpijax.transforms.zeros import Zero, zeros

__all__ = ["custom_linear_solve", "custom_root"]


def _traced(fun: Callable, what: str, *args: Any) -> tuple[ClosedJaxpr, list[Any], Any]:
    """The Jaxpr of `fun` with closed-over values as leading arguments; these values; the structure of the result."""
    flat = FlatFun(fun, tree.tree_structure((args, {})))
    avals = [typeof(x) for x in tree.tree_leaves(args)]
    jaxpr, consts = trace_to_jaxpr(flat, avals, debug_info(what, fun, args, {}))
    closed, moved = hoist_tracers(jaxpr, consts, lambda _: True)
    return closed, values_of(moved), flat.out_tree


def _check_structure(what: str, expected: str, found, wanted, has_aux: bool) -> None:
    if has_aux:
        children = found.children()
        if len(children) != 2:
            raise ValueError(
                f"{what}() produced a pytree with structure {found}, but a pytree tuple with auxiliary output was "
                "expected because has_aux was set to True."
            )
        found = children[0]
    if found != wanted:
        raise TypeError(f"{what}() output pytree structure must match {expected}, got {found} and {wanted}.")


# ---------------------------------------------------------------- linear systems


def _check_shapes(what: str, found: Any, b: Any) -> None:
    shapes, wanted = ([typeof(x).shape for x in tree.tree_leaves(t)] for t in (found, b))
    if shapes != wanted:
        raise ValueError(f"{what}() output shapes must match b, got {shapes} and {wanted}")


def custom_linear_solve(
    matvec: Callable,
    b: Any,
    solve: Callable[[Callable, Any], Any],
    transpose_solve: Callable[[Callable, Any], Any] | None = None,
    symmetric: bool = False,
    has_aux: bool = False,
) -> Any:
    """`solve(matvec, b)`, the x with `matvec(x) == b`, differentiated as the solution of that equation.

    Args:
      matvec: a linear function of pytrees like `b`; the derivative includes the values it closes over.
      b: the right-hand side.
      solve: `(matvec, b) -> x`, or `(x, aux)` with `has_aux`; it need not be differentiable.
      transpose_solve: the same for the transpose of `matvec`; reverse mode needs it.
      symmetric: `matvec` is its own transpose, and `solve` is used for both.

    Raises:
      TypeError: if a function returns another structure than that of `b`; in reverse mode without `transpose_solve`.
      ValueError: if it returns other shapes.

    >>> halve = lambda matvec, b: b / 2
    >>> solve = lambda b: lax.custom_linear_solve(lambda x: 2 * x, b, halve, transpose_solve=halve)
    >>> solve(jnp.array([4.0, 6.0])), mpijax.grad(lambda b: jnp.sum(solve(b)))(jnp.array([4.0, 6.0]))
    (Array([2., 3.], dtype=float32), Array([0.5, 0.5], dtype=float32))
    """
    if transpose_solve is None and symmetric:
        transpose_solve = solve
    structure = tree.tree_structure(b)

    def traced(fun, what, aux):
        def checked(x):
            out = fun(x)
            _check_shapes(what, out[0] if aux else out, b)
            return out

        closed, consts, found = _traced(checked, f"custom_linear_solve {what}", b)
        _check_structure(what, "b", found, structure, aux)
        return closed, consts, found

    none: tuple[Any, list[Any]] = (None, [])
    matvec_jaxpr, matvec_consts, _ = traced(matvec, "matvec", False)
    solve_jaxpr, solve_consts, out_tree = traced(partial(solve, matvec), "solve", has_aux)
    vecmat_jaxpr, vecmat_consts = tr_solve_jaxpr, tr_solve_consts = none
    if transpose_solve is not None:
        if symmetric:
            vecmat, vecmat_jaxpr, vecmat_consts = matvec, matvec_jaxpr, matvec_consts
        else:
            transposed = linear_transpose(matvec, b)

            def vecmat(x):
                return transposed(x)[0]

            vecmat_jaxpr, vecmat_consts, _ = traced(vecmat, "vecmat", False)
        tr_solve_jaxpr, tr_solve_consts, _ = traced(partial(transpose_solve, vecmat), "transpose_solve", has_aux)
    consts = LinearSolveTuple(matvec_consts, vecmat_consts, solve_consts, tr_solve_consts)
    outs = linear_solve_p.bind(
        *(c for part in consts for c in part),
        *tree.tree_leaves(b),
        const_lengths=LinearSolveTuple(*map(len, consts)),
        jaxprs=LinearSolveTuple(matvec_jaxpr, vecmat_jaxpr, solve_jaxpr, tr_solve_jaxpr),
    )
    return tree.tree_unflatten(out_tree, outs)


# ---------------------------------------------------------------- roots


class _RootTuple(NamedTuple):
    """One item for each of the three functions of a root search."""

    f: Any
    solve: Any
    l_and_s: Any


def custom_root(
    f: Callable,
    initial_guess: Any,
    solve: Callable[[Callable, Any], Any],
    tangent_solve: Callable[[Callable, Any], Any],
    has_aux: bool = False,
) -> Any:
    """`solve(f, initial_guess)`, an x with `f(x) == 0`, differentiable by the values that `f` closes over.

    Args:
      f: a function of pytrees like `initial_guess`, which returns the same structure.
      solve: `(f, initial_guess) -> x`, or `(x, aux)` with `has_aux`; it need not be differentiable.
      tangent_solve: `(g, y) -> x` with `g(x) == y`, where g is the linearization of `f` at the root.

    Raises:
      TypeError: if a function returns another structure than that of `initial_guess`.

    >>> newton = lambda f, x: lax.fori_loop(0, 9, lambda i, x: x - f(x) / mpijax.grad(f)(x), x)
    >>> linear = lambda g, y: y / g(jnp.float32(1))
    >>> root = lambda a: lax.custom_root(lambda x: x * x - a, jnp.float32(1), newton, linear)
    >>> root(4.0), mpijax.grad(root)(4.0)
    (Array(2., dtype=float32), Array(0.25, dtype=float32, weak_type=True))
    """
    guess, structure = tree.tree_flatten(initial_guess)
    f_jaxpr, f_consts, found = _traced(f, "custom_root", initial_guess)
    _check_structure("f", "initial_guess", found, structure, False)
    solve_jaxpr, solve_consts, out_tree = _traced(partial(solve, f), "custom_root solve", initial_guess)
    _check_structure("solve", "initial_guess", out_tree, structure, has_aux)

    def linearize_and_solve(x, b):
        _, f_jvp = linearize(f, x)
        return tangent_solve(f_jvp, b)

    tangent_jaxpr, tangent_consts, found = _traced(
        linearize_and_solve, "custom_root tangent_solve", initial_guess, initial_guess
    )
    _check_structure("tangent_solve", "x", found, structure, False)
    consts = [f_consts, solve_consts, tangent_consts]
    lengths, jaxprs = _RootTuple(*map(len, consts)), _RootTuple(f_jaxpr, solve_jaxpr, tangent_jaxpr)
    outs = _custom_root(lengths, jaxprs, *(c for part in consts for c in part), *guess)
    return tree.tree_unflatten(out_tree, outs)


def _split(args: Sequence[Any], lengths: _RootTuple) -> tuple[_RootTuple, list[Any]]:
    parts, at = [], 0
    for n in lengths:
        parts.append(list(args[at : at + n]))
        at += n
    return _RootTuple(*parts), list(args[at:])


def _call(closed: ClosedJaxpr, *args: Any) -> list[Any]:
    return eval_jaxpr(closed.jaxpr, closed.consts, *args)


@partial(custom_jvp, nondiff_argnums=(0, 1))
def _custom_root(lengths, jaxprs, *args):
    params, guess = _split(args, lengths)
    return _call(jaxprs.solve, *params.solve, *guess)


@_custom_root.defjvp
def _root_jvp(lengths, jaxprs, primals, tangents):
    """With F(m, u) = 0 and the root u(m): the tangent of u solves dF/du du = -dF/dm dm."""
    params, _ = _split(primals, lengths)
    params_dot, _ = _split(tangents, lengths)
    outs = _custom_root(lengths, jaxprs, *primals)
    n = len(jaxprs.f.out_avals)
    solution, aux = outs[:n], outs[n:]
    still = [Zero.of_primal(x) for x in solution]
    _, rhs = jvp_flat(lambda *xs: _call(jaxprs.f, *xs), [*params.f, *solution], [*params_dot.f, *still])
    rhs = [zeros(t.aval) if type(t) is Zero else t for t in rhs]
    moved = _call(jaxprs.l_and_s, *params.l_and_s, *solution, *rhs)
    tangent = [registry["neg"].bind(t) for t in moved]
    return outs, [*tangent, *(zeros(typeof(a).to_tangent_aval()) for a in aux)]
