"""Runs eager operations, traced programs, and calls of jitted functions.

Eager operations and jitted functions take one path: a Jaxpr is planned, its kernels are compiled or loaded, and the
executor runs the program. Programs are cached by the types of their arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from mpijax._ext.array import ArrayBase
from mpijax._ext.dispatch import Eager
from mpijax.compiler.steps.planner import plan_program
from mpijax.core.base import config, provided, tracebacks
from mpijax.core.base.collector import rare_collections
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.base.source import FirstCall, current_source, sources_from
from mpijax.core.programs.jaxpr import ClosedJaxpr, subjaxprs
from mpijax.core.rules.index_maps import identity
from mpijax.core.rules.lowering import Partitioned, Reshard, Structural
from mpijax.core.rules.primitive import Primitive
from mpijax.core.sharding.mesh import current_mesh
from mpijax.core.tracing import transfers
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.refs import has_views, opened
from mpijax.core.tracing.tracer import Tracer, leaked
from mpijax.core.trees import tree
from mpijax.core.types.abstract import AbstractValue
from mpijax.core.types.avals import ShapedArray, ShapeDtypeStruct
from mpijax.core.types.foreign import canonicalize_dtype_handlers
from mpijax.core.types.typeof import typeof
from mpijax.ops.callbacks import debug_nans
from mpijax.runtime.arrays import key_reuse
from mpijax.runtime.arrays.array import ArrayImpl
from mpijax.runtime.arrays.default_sharding import default_sharding, over_mesh
from mpijax.runtime.mpi.freed import forget_with
from mpijax.runtime.program import plan_cache, tiers
from mpijax.runtime.program.constants import check_constants
from mpijax.runtime.program.loader import load_plan, watchers
from mpijax.transforms import reports
from mpijax.transforms.flat import parameter_names
from mpijax.transforms.high_programs import lower_jaxpr, run_high
from mpijax.transforms.jit import MOST_PROGRAMS, find
from mpijax.transforms.key_reuse import signature_of

_WITHOUT_VALUE = (ShapeDtypeStruct, ShapedArray)


def _no_value(name: str, x: Any) -> str:
    return (
        f"Argument{name} of shape {typeof(x).str_short(False)} of type {type(x)} is not a valid JAX type: it has no "
        "value. Pass an array. eval_shape and jit(f).lower take shapes."
    )


def physical(x: Any, aval) -> Any:
    """An argument in the executor's form: an array, or a C-contiguous, aligned ndarray of the right dtype."""
    if issubclass(type(x), ArrayBase):  # `isinstance` is true for a proxy of an array
        return x
    if isinstance(x, Tracer):
        raise leaked(x)
    if aval.is_high:
        return x
    if hasattr(x, "__jax_array__"):
        return physical(x.__jax_array__(), aval)
    if isinstance(x, _WITHOUT_VALUE):
        raise TypeError(_no_value("", x))
    transfers.to_device(x)
    elements = canonicalize_dtype_handlers.get(type(x))
    if elements is not None:
        x = elements(x)
    x = np.ascontiguousarray(np.asarray(x).astype(aval.dtype, copy=False))
    return (x if x.flags.aligned else x.copy()).reshape(aval.shape)


def _first_evaluation(programs: dict, key, primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Run an operation without a cached program; caches it under `key`, which is None if it is not hashable."""
    avals = tuple([typeof(x) for x in args])
    if AbstractValue.any_high and (any(a.is_high for a in avals) or any(j.is_high for j in subjaxprs(params))):
        return provided.lowered_call(primitive, args, params)
    program = _eager_program(primitive, avals, params, args)
    if key is not None:
        if len(programs) >= MOST_PROGRAMS:
            programs.clear()
        _tables[id(programs)] = programs
        programs[key] = program
        if "comm" in params:
            forget_with(params, lambda: programs.pop(key, None))
    outs = program.run([physical(x, a) for x, a in zip(args, avals, strict=True)])
    return outs if primitive.multiple_results else outs[0]


_tables: dict[int, dict] = {}


def forget() -> None:
    """Drop the programs of single operations: those over ranks that are gone can no longer run."""
    for programs in _tables.values():
        programs.clear()


def shardings_of(
    args: Sequence[Any], names: Callable[[], list[str]] | None = None, default: Any = None
) -> tuple[Any, ...] | None:
    """Shardings of the arguments that are shards or decide where results go; None if there are none.

    names: returns the arguments' names, for errors. default: see `compile_jaxpr`.
    """
    found = [x._sharding if isinstance(x, ArrayBase) else None for x in args]
    if all(s is None or not s.is_followed for s in found):
        return None
    shardings = tuple(None if s is None or not s.is_followed else s for s in found)
    _check_devices(args, found, shardings, names, default or default_sharding())
    return shardings


def _check_devices(args: Sequence[Any], held, shardings, names: Callable[[], list[str]] | None, default: Any) -> None:
    """Raise ValueError for arrays on different devices of this process, on devices outside the mesh in context, or over
    different ranks: the choice would be ambiguous."""
    here = [i for i, s in enumerate(shardings) if s is not None and s.is_fully_addressable]
    spread = [i for i, s in enumerate(held) if s is not None and (hasattr(s, "mesh") or s.is_elsewhere)]
    other = next((i for i in spread if held[i].processes != held[spread[0]].processes), None)
    context = None
    if other is not None:
        here, shardings = spread, held
    elif here:
        context = default if default is not None and default.committed else None
        first = (context or shardings[here[0]])._device_assignment
        other = next((i for i in here if shardings[i]._device_assignment != first), None)
    if other is None:
        return
    known = names() if names is not None else []

    def described(i: int) -> str:
        name = f"argument {known[i]}" if i < len(known) else "an argument"
        ids = [d.id for d in shardings[i]._device_assignment]
        return f"{name} with shape {typeof(args[i]).str_short(False)} and with device ids {ids} on platform CPU"

    if context is None:
        said = f"{described(here[0])} and {described(other)}"
    else:
        ids = [d.id for d in first]
        said = f"{described(other)} and jit's context mesh with device ids {ids} on platform CPU"
    raise ValueError(
        f"Received incompatible devices for jitted computation. Got {said}. Put them on the same devices with "
        "jax.device_put."
    )


def _eager_program(primitive: Primitive, avals, params, args):
    def fun(*xs):
        out = primitive.bind(*xs, **params)
        return list(out) if primitive.multiple_results else [out]

    _check_execution(primitive.name)
    with sources_from(None if primitive.effects is None else FirstCall(*current_source())):
        closed = trace_to_closed_jaxpr(fun, avals)
    shardings = shardings_of(args, lambda: [f"args[{i}] of {primitive.name}" for i in range(len(args))])
    exact = isinstance(primitive.lower, (Partitioned, Reshard))  # its parameters contain the shardings of its results
    asked = _of_words(primitive, closed, shardings or ())
    return compile_jaxpr(closed, primitive.name, (), shardings or (), keep=False, asked=asked, worded=not exact)


def _of_words(primitive: Primitive, closed: ClosedJaxpr, shardings: Sequence[Any]) -> Sequence[Any]:
    """The sharding of the words of keys, or of keys of words, which are the same memory; else empty."""
    lower = primitive.lower
    same_memory = isinstance(lower, Structural) and lower.words and lower.read is identity
    if not same_memory or not shardings or not hasattr(shardings[0], "mesh"):
        return ()
    [given], [out], held = closed.in_avals, closed.out_avals, shardings[0]
    spec = held.spec.padded(max(given.ndim, out.ndim)) if held.mesh.size > 1 else held.spec
    return [held.update(spec=spec.update([*spec][: out.ndim]))]


def _check_execution(name: str) -> None:
    """Raise RuntimeError under `no_execution`. Called when no program is cached under the options' key."""
    if config.values.jax_no_execution:
        raise RuntimeError(
            f"jit({name}) would be executed, but the no_execution config option is set. eval_shape, make_jaxpr and "
            "lower(...).compile() work without execution."
        )


def compile_jaxpr(
    closed: ClosedJaxpr,
    name: str,
    donated: tuple[bool, ...] = (),
    in_shardings: tuple = (),
    keep: bool = True,
    default: Any = None,
    asked: Sequence[Any] = (),
    worded: bool = True,
):
    """The loaded program of a Jaxpr; its plan comes from disk if an earlier process had the same program.

    default: the sharding of results that no argument determines, if the options do not determine it.
    asked: for each result its sharding as the caller wrote it, or None.
    worded: whether the shardings of results are written as JAX writes them.
    keep: whether to read and write the disk cache. Not used for single operations: they are planned as quickly, and
        their result may be their argument.
    """
    reports.compiling(name, closed.in_avals)
    if donated:
        reports.unused_donations(closed.in_avals, donated, closed.out_avals)
    if debug_nans.wanted():
        closed, donated = debug_nans.checked(closed, name), ()
    default = default or default_sharding()
    with reports.timed(f"compilation of jit({name})"), rare_collections():
        kept = plan_cache.entry(closed, donated, in_shardings, default) if keep and not watchers else None
        make = partial(plan_program, closed, donated, in_shardings, default, fresh=keep)
        plan = make() if kept is None else kept.plan(make)
        if worded:
            plan = plan.worded(in_shardings, asked)
        return load_plan(plan, name, tiers.baseline_runs(plan))


@memo_on_jaxpr
def program_of(closed: ClosedJaxpr, name: str, donated: tuple[bool, ...], in_shardings: tuple, _options: int):
    _check_execution(name)
    return compile_jaxpr(closed, name, donated, in_shardings)


def run_call(*args, jaxpr: ClosedJaxpr, name: str, donated_invars=(), **_):
    """An eager `jit` equation: runs the compiled program on concrete arguments."""
    if jaxpr.is_high:
        return run_high(run_call, args, jaxpr, name=name, donated_invars=donated_invars)
    shardings = shardings_of(args) or ()
    program = program_of(jaxpr, name, donated_invars if any(donated_invars) else (), shardings, config.trace_key())

    def run():
        return program.run([physical(x, a) for x, a in zip(args, jaxpr.in_avals, strict=True)])

    if config.values.jax_debug_key_reuse:
        return key_reuse.watched(signature_of(jaxpr), "jit-compiled function", [*args, *jaxpr.consts], run)
    return run()


def dispatch(jitted, args, kwargs):
    """Call a jitted function outside of any trace, for uncached argument types, or with static arguments."""
    statics, dynamic, _ = jitted._split(args, kwargs)
    leaves, in_tree = tree.tree_flatten(dynamic)
    if has_views(leaves):
        return dispatch(jitted, *opened((args, kwargs)))
    if config.values.jax_debug_key_reuse:
        return _call_watched(jitted, args, kwargs)
    key = entry = None
    names = partial(parameter_names, jitted._fun, args, kwargs)
    default = over_mesh(current_mesh()) if jitted._over_mesh else None
    if jitted._shardings is not None:
        leaves = jitted._shardings.moved(*dynamic, leaves)
    shardings = shardings_of(leaves, lambda: [f"{name} of {jitted._name}" for name in names()], default)
    for i, x in enumerate(leaves):
        if isinstance(x, _WITHOUT_VALUE):
            raise TypeError(_no_value(f" '{dict(enumerate(names())).get(i, i)}'", x))
    if statics or not jitted._plain:
        try:
            key = (in_tree, tuple([typeof(x) for x in leaves]), statics, config.trace_key(), shardings)
        except TypeError:
            jitted._prepare(args, kwargs)
            raise
        entry = find(jitted._programs, key)
    if entry is None:
        if jitted._shardings is not None:
            jitted._shardings.check_devices(leaves)
        _, traced = jitted._prepare(args, kwargs)
        closed = traced.jaxpr
        high = closed.is_high
        if traced.moved or traced.uses_refs or (high and any(a.is_high for a in closed.in_avals + closed.out_avals)):
            return jitted._bind(leaves, traced)
        if high:
            closed = lower_jaxpr(closed)
        donated = traced.donated if any(traced.donated) else ()
        avals = closed.in_avals
        _check_execution(traced.name)
        check_constants(closed)
        program = compile_jaxpr(closed, traced.name, donated, shardings or (), default=default, asked=traced.asked)
        entry = (program, traced.out_tree, avals)
        if key is not None:
            jitted._programs[key] = entry
        else:
            jitted._remember(jitted._key(args, kwargs), program, traced.out_tree, avals, physical)
    program, out_tree, avals = entry
    outs = program.run([x if type(x) is ArrayImpl else physical(x, a) for x, a in zip(leaves, avals, strict=True)])
    return tree.tree_unflatten(out_tree, outs)


def _call_watched(jitted, args, kwargs):
    """`dispatch` under `debug_key_reuse`."""
    leaves, traced = jitted._prepare(args, kwargs)
    if traced.moved or traced.uses_refs:
        return jitted._bind(leaves, traced)
    outs = run_call(*leaves, jaxpr=traced.jaxpr, name=traced.name, donated_invars=traced.donated)
    return tree.tree_unflatten(traced.out_tree, outs)


@functools.cache
def _checking(_options: int) -> Eager:
    """The cache of single-operation programs under options that check them, separate from other programs."""
    return Eager(typeof, _first_evaluation, physical)


evaluate = Eager(typeof, _first_evaluation, physical)
"""How operations run outside of any transformation: `(primitive, args, params) -> value(s)`."""


def evaluate_checking(primitive: Primitive, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """`evaluate` under an option that checks single operations, such as `debug_nans`."""
    transfers.operands(args)
    run = partial(_checking(config.trace_key()), primitive, args, params)
    if config.values.jax_debug_key_reuse:
        return key_reuse.watched_operation(primitive, args, params, run)
    return run()


# This module is loaded at the first computation, so importing mpijax alone does not change Python's excepthook.
tracebacks.install()
