"""Walks through a program, and adds up what its operations take."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax.core.base.any_depth import any_depth
from mpijax.core.programs.jaxpr import ClosedJaxpr, Jaxpr, Literal, dead_code, last_uses
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapeDtypeStruct
from mpijax.experimental.roofline.results import RooflineResult, RooflineRuleContext, RooflineShape
from mpijax.experimental.roofline.rules import rule_of
from mpijax.spmd.shard_map import shard_map
from mpijax.transforms.api import make_jaxpr
from mpijax.transforms.derivatives import vjp as _vjp

_log = logging.getLogger(__name__)


def roofline(
    f: Callable,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    *,
    pin_lhs_in_vmem: bool = False,
    pin_rhs_in_vmem: bool = False,
    vjp: bool = False,
    print_jaxpr: bool = False,
) -> Callable[..., tuple[Any, RooflineResult]]:
    """A function that returns the result's shapes and an estimate for one device. It does not run `f`.

    As in JAX, loops and branches count as free, except `scan`, whose body counts once. A primitive of the user's
    without a rule (`register_roofline`) counts as free, and a warning is logged. Nothing is communicated.

    Args:
      f: a function of arrays or `ShapeDtypeStruct`s.
      mesh, in_specs, out_specs: with all three, `f` is the body of a `shard_map`.
      pin_lhs_in_vmem, pin_rhs_in_vmem: matrix products do not read this operand from memory (the left one: nor write
        their result).
      vjp: estimate `f` and its backward pass, with cotangents in bfloat16.
      print_jaxpr: also print the program.

    >>> layer = mpijax.experimental.roofline.roofline(lambda a, b: jnp.tanh(a @ b))
    >>> shape, found = layer(jnp.ones((4, 8)), jnp.ones((8, 2)))
    >>> found.flops, found.unfused_flops, found.hbm_bytes, found.peak_hbm_bytes
    (128, 136, 224, 192)
    """

    @wraps(f)
    def wrapped(*args):
        fun = f
        if in_specs is not None and out_specs is not None and mesh is not None:
            fun = shard_map(fun, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
        if vjp:
            fun = _with_backward_pass(fun)
        closed, shapes = make_jaxpr(fun, return_shape=True)(*args)
        if out_specs is not None and mesh is not None:
            leaves, structure = tree.tree_flatten(shapes)
            specs = tree.broadcast_prefix(out_specs, shapes)
            leaves = [
                ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, spec))
                for x, spec in zip(leaves, specs, strict=True)
            ]
            shapes = tree.tree_unflatten(structure, leaves)
        jaxpr, _ = dead_code(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
        bodies = [eqn.params["jaxpr"] for eqn in jaxpr.eqns if eqn.primitive.name == "shard_map"]
        jaxpr = bodies[-1] if bodies else jaxpr
        if print_jaxpr:
            print(jaxpr)
        return shapes, of_jaxpr(jaxpr, mesh, pin_lhs_in_vmem=pin_lhs_in_vmem, pin_rhs_in_vmem=pin_rhs_in_vmem)

    return wrapped


def roofline_and_grad(
    f: Callable,
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    *,
    pin_lhs_in_vmem: bool = False,
    pin_rhs_in_vmem: bool = False,
    print_jaxpr: bool = False,
) -> Callable[..., tuple[Any, RooflineResult, RooflineResult]]:
    """As `roofline`; also returns the estimate with `vjp`, whose arguments are bfloat16 except those of int32.

    What only the result of the forward pass needs is not part of the second estimate.

    >>> mesh, P = mpijax.sharding.AbstractMesh((4,), ("x",)), mpijax.P
    >>> estimate = mpijax.experimental.roofline.roofline_and_grad(lambda a, b: a @ b, mesh, (P("x"), P()), P("x"))
    >>> a, b = mpijax.ShapeDtypeStruct((8, 4), jnp.float32), mpijax.ShapeDtypeStruct((4, 4), jnp.float32)
    >>> [found.flops for found in estimate(a, b)[1:]]
    [64, 128]
    """
    options = {"pin_lhs_in_vmem": pin_lhs_in_vmem, "pin_rhs_in_vmem": pin_rhs_in_vmem, "print_jaxpr": print_jaxpr}

    def narrow(x: Any) -> ShapeDtypeStruct:
        dtype = x.dtype if x.dtype == np.int32 else jnp.bfloat16
        return ShapeDtypeStruct(x.shape, dtype, sharding=getattr(x, "sharding", None))

    @wraps(f)
    def wrapped(*args):
        shapes, forward = roofline(f, mesh, in_specs, out_specs, **options)(*args)
        both = roofline(f, mesh, in_specs, out_specs, vjp=True, **options)
        return shapes, forward, both(*tree.tree_map(narrow, args))[1]

    return wrapped


def _with_backward_pass(f: Callable) -> Callable:
    @wraps(f)
    def wrapped(*args):
        results, backward = _vjp(f, *args)
        return backward(tree.tree_map(jnp.bfloat16, results))

    return wrapped


@any_depth
def of_jaxpr(
    jaxpr: Jaxpr | ClosedJaxpr, mesh: Any, *, pin_lhs_in_vmem: bool = False, pin_rhs_in_vmem: bool = False
) -> RooflineResult:
    """The estimate of a program; what it calls is added."""
    pins = {"pin_lhs_in_vmem": pin_lhs_in_vmem, "pin_rhs_in_vmem": pin_rhs_in_vmem}
    jaxpr = jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr
    last = last_uses(jaxpr)
    alive = sum(map(_nbytes, (*jaxpr.constvars, *jaxpr.invars)))
    total = RooflineResult(peak_hbm_bytes=alive)
    for i, eqn in enumerate(jaxpr.eqns):
        body = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
        if body is not None:
            total += of_jaxpr(body, mesh, **pins)
        elif (rule := rule_of(eqn.primitive)) is None:
            _log.warning("No roofline rule for %s, skipping...", eqn.primitive)
        else:
            types = [[v.aval for v in atoms] for atoms in (eqn.invars, eqn.outvars)]
            context = RooflineRuleContext(
                name_stack=eqn.source.name_stack, primitive=eqn.primitive, avals_in=types[0], avals_out=types[1],
                jaxpr_eqn_ctx=None, mesh=mesh, **pins,
            )  # fmt: skip
            total += rule(context, *map(RooflineShape.from_aval, types[0]), **eqn.params)
        alive += sum(map(_nbytes, eqn.outvars))
        alive -= sum(map(_nbytes, {v for v in eqn.invars if type(v) is not Literal and last[v] == i}))
        total += RooflineResult(peak_hbm_bytes=alive)
    return total


def _nbytes(v: Any) -> int:
    return RooflineShape.from_aval(v.aval).bytes
