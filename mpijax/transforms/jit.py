"""Defines `jit`: traces and compiles a function once per signature, and runs the compiled program afterwards."""

from __future__ import annotations

import copyreg
import inspect
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial, update_wrapper
from numbers import Integral
from typing import Any

import numpy as np

from mpijax._ext.dispatch import JitBase
from mpijax.core.base import config, locks, provided
from mpijax.core.base.collector import rare_collections
from mpijax.core.base.source import callable_name, sources_of_function
from mpijax.core.base.state import state
from mpijax.core.base.warn import warn_user
from mpijax.core.sharding.abstract_mesh import AbstractMesh
from mpijax.core.tracing.jaxpr_trace import JaxprTrace, trace_to_jaxpr
from mpijax.core.tracing.refs import has_views, opened
from mpijax.core.tracing.requested import named_sharding, sharding_of
from mpijax.core.tracing.trace import EVAL, scope_key
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.core.types.abstract import AbstractValue
from mpijax.core.types.avals import ShapeDtypeStruct
from mpijax.core.types.typeof import abstractify, argument_type, typeof
from mpijax.transforms import ref_state, reports
from mpijax.transforms.call import call_jaxpr, hoist_tracers
from mpijax.transforms.compiler_options import check_compiler_options
from mpijax.transforms.flat import FlatFun, argument_types, check_arguments, debug_info, named_like, parameter_names
from mpijax.transforms.inlining import Inline, while_tracing
from mpijax.transforms.parameters import parameters_of
from mpijax.transforms.traced import TracedProgram

# Traced programs for each function, shared by all `jit`s of the function.
_traced: weakref.WeakKeyDictionary[Callable, dict] = weakref.WeakKeyDictionary()

# Compiled programs for each function and the options of `jit`, shared by all `jit`s of the function with these options:
# those by signatures with static arguments, and the table of the base class.
_compiled: weakref.WeakKeyDictionary[Callable, dict[tuple, tuple[dict, dict]]] = weakref.WeakKeyDictionary()

_jitted: weakref.WeakSet[PjitFunction] = weakref.WeakSet()
_jitted_lock = locks.reentrant_lock()  # the set must not grow while it is being read


class Traced(TracedProgram):
    """The result of `jit(f).trace(...)`.

    >>> mpijax.jit(lambda x: x * x).trace(jnp.float32(3)).jaxpr
    { lambda ; a:f32[]. let b:f32[] = mul a a in (b,) }
    """

    __slots__ = ()

    def lower(self, *, lowering_platforms: tuple[str, ...] | None = None):
        """Lower the program to loop nests and instructions.

        lowering_platforms: only "cpu" exists. If it is given, shardings may be over meshes without devices; `compile`
        then takes the devices.
        """
        if lowering_platforms is not None and "cpu" not in lowering_platforms:
            raise NotImplementedError(f"mpijax only lowers for 'cpu', got lowering_platforms={lowering_platforms}.")
        return provided.lower(self, devices_later=lowering_platforms is not None)


def _with_values(leaves: Sequence[Any], traced: Traced) -> list[Any]:
    """Arguments, with zeros in place of `ShapeDtypeStruct`s that the program does not read, as in JAX."""
    jaxpr = traced.jaxpr.jaxpr
    read = {id(v) for eqn in jaxpr.eqns for v in eqn.invars} | {id(v) for v in jaxpr.outvars}
    invars = jaxpr.invars[len(traced.moved) :]
    return [
        np.broadcast_to(np.zeros((), x.dtype), x.shape) if type(x) is ShapeDtypeStruct and id(v) not in read else x
        for x, v in zip(leaves, invars, strict=True)
    ]


def _sharding_of(x: Any) -> Any:
    """The sharding of an argument or its placeholder; None if it has none."""
    sharding = x._sharding if hasattr(x, "_sharding") else getattr(x, "sharding", None)
    mesh = getattr(sharding, "mesh", None)
    if isinstance(mesh, AbstractMesh):
        return None if mesh.empty else sharding  # lowering resolves the devices
    if hasattr(sharding, "partitions"):
        sharding = named_sharding(sharding, "ShapeDtypeStruct", "jit")
    return sharding if getattr(sharding, "is_followed", False) else None


class _Compared:
    """A static argument that is comparable but not hashable, as part of a key."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Compared) and self.value == other.value

    def __hash__(self) -> int:
        return hash(type(self.value))


def _in_key(value: Any, what: str, fun: Callable) -> Any:
    """A static argument as part of a key: itself, or a stand-in for an object of mpi4py such as a communicator."""
    try:
        hash(value)
        return value
    except TypeError:
        if type(value).__module__ == "mpi4py.MPI":
            return _Compared(value)
        raise ValueError(
            f"Non-hashable static arguments are not supported: {what} of {callable_name(fun)} has the value "
            f"{value!r} of type {type(value)}. Make it hashable (a tuple instead of a list, say), "
            "or do not declare it static."
        ) from None


# Maximal number of cached programs of a function, and of cached operations. When it is exceeded, the cache is cleared.
MOST_PROGRAMS = 4096


def find(table: dict, key: Any) -> Any:
    """The entry of a program table for a key with static arguments, or None; ValueError if they are not comparable."""
    try:
        return table.get(key)
    except Exception as error:
        raise ValueError(
            "static arguments should be comparable using __eq__. The following error was raised when comparing two "
            f"of them: {type(error).__name__}: {error}"
        ) from error


def _is_operand(constant: Any) -> bool:
    """Whether what a function closes over is an operand of its calls, and no constant of its program."""
    return isinstance(constant, Tracer) or (AbstractValue.any_high and typeof(constant).has_qdd)


def _states(values: Sequence[Any]) -> tuple[Any, ...]:
    """The types of values that change, with what is known of them here."""
    return tuple(typeof(x).with_state(x) for x in values)


def _positions(nums: tuple[int, ...], count: int) -> Collection[int]:
    """The positions of the arguments `nums` in a call with `count` arguments; -1 is the last one."""
    if min(nums, default=0) >= 0:
        return nums
    for i in nums:
        if i < -count:
            raise ValueError(
                "Positional argument indices, e.g. for `static_argnums`, must have value greater than or equal to "
                f"-len(args) and less than len(args), but got value of {i} for len(args) == {count}."
            )
    return {i + count if i < 0 else i for i in nums}


def _as_tuple(what: str, value: Any, kind: type) -> tuple:
    """`value`, a sequence of this type or one of its values, as a tuple. Raises TypeError for anything else."""
    if value is None:
        return ()
    found = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    if not all(isinstance(x, kind) for x in found):
        hint = f" Pass names to {what.replace('nums', 'names')}." if kind is not str else ""
        name = "str" if kind is str else "int"
        raise TypeError(f"{what} of jit must be of type {name} or a sequence of {name}s, got {value!r}.{hint}")
    return found


class PjitFunction(JitBase):
    """The result of `jit`: call it, or use its stages `trace`, `lower` and `eval_shape`.

    >>> isinstance(mpijax.jit(jnp.sin), mpijax.stages.Wrapped)
    True
    """

    # Whether unspecified results are placed on the mesh of `with mesh:` too, and not only on that of `set_mesh`.
    _over_mesh = False
    # The values that change over which the function closes.
    _changing: tuple[Any, ...] = ()

    def __init__(
        self,
        fun: Callable,
        static_argnums,
        static_argnames,
        donate_argnums,
        donate_argnames,
        keep_unused,
        inline,
        shardings=None,
        compiler_options=None,
    ):
        update_wrapper(self, fun)
        self.__wrapped__ = fun
        self._fun = fun
        nums = _as_tuple("static_argnums", static_argnums, Integral)
        names = _as_tuple("static_argnames", static_argnames, str)
        self._static_argnums, self._static_argnames = self._complete(
            "static", nums, names, static_argnums, static_argnames
        )
        dnums = _as_tuple("donate_argnums", donate_argnums, Integral)
        dnames = _as_tuple("donate_argnames", donate_argnames, str)
        self._donate_argnums, self._donate_argnames = self._complete(
            "donate", dnums, dnames, donate_argnums, donate_argnames
        )
        for kind, found, static, donated in (
            ("argnames", "names", self._static_argnames, self._donate_argnames),
            ("argnums", "numbers", self._static_argnums, self._donate_argnums),
        ):
            clash = set(static) & set(donated)
            if clash:
                raise ValueError(
                    f"static_{kind} and donate_{kind} cannot intersect. Argument {found} {clash} appear in both."
                )
        self._keep_unused = keep_unused
        self._inline = inline
        self._shardings = shardings
        self._compiler_options = compiler_options
        self._name = callable_name(fun)
        self._options = (
            self._static_argnums, self._static_argnames,
            self._donate_argnums, self._donate_argnames, keep_unused,
        )  # fmt: skip
        try:
            self._cache = _traced.setdefault(fun, {})
        except TypeError:
            self._cache = {}
        self._share_programs()
        self._plain = not (self._static_argnums or self._static_argnames)
        self._set_typeof(argument_type)
        with _jitted_lock:
            _jitted.add(self)

    def _share_programs(self) -> None:
        """Use the compiled programs of other `jit`s of the function with the same options."""
        shared: tuple[dict, dict] = {}, {}
        if not self._compiler_options:  # each `jit` checks its own
            given = None if self._shardings is None else self._shardings.key
            try:
                of_fun = _compiled.setdefault(self._fun, {})
                shared = of_fun.setdefault((self._options, self._over_mesh, given), shared)
            except TypeError:
                pass
        self._programs, entries = shared
        self._set_entries(entries)

    def _complete(self, kind, nums, names, given_nums, given_names):
        """Complete positions from names and names from positions, using the signature; -1 is the last position."""
        known = parameters_of(self._fun) if nums or names else None
        if known is None:
            if kind == "donate" and names:
                raise ValueError(
                    f"Getting the signature of function {self._fun} failed. Pass donate_argnums instead of "
                    "donate_argnames."
                )
            return nums, names
        positional = known.positional
        if nums and not known.variadic:
            for i in nums:
                if not -len(positional) <= i < len(positional):
                    raise ValueError(
                        f"Jitted function has {kind}_argnums={nums}, but only accepts {len(positional)} "
                        "positional arguments."
                    )
        unnamed = set(names) & known.unnameable
        if unnamed:
            raise ValueError(
                f"Jitted function has invalid argnames {unnamed} in {kind}_argnames. These are positional-only: use "
                f"{kind}_argnums."
            )
        missing = set() if known.any_keyword else set(names) - known.names
        if missing:
            raise ValueError(
                f"Jitted function has invalid argnames {missing} in {kind}_argnames. Function does not take these args."
            )
        if not known.variadic:  # otherwise each call says which argument is the last
            nums = tuple(i % len(positional) for i in nums)
        if nums and given_names is None:
            names = tuple(positional[i] for i in nums if known.unnamed <= i < len(positional))
        elif names and given_nums is None:
            nums = tuple(i for i, name in enumerate(positional) if name in names)
        return tuple(sorted(set(nums))), tuple(sorted(set(names)))

    # ------------------------------------------------------------ calling

    def _slow_call(self, args, kwargs):
        """Handles a call whose program is not cached, or that is being traced."""
        if config.disable_jit.value:
            return self._fun(*args, **kwargs)
        if state.trace is EVAL:
            return provided.dispatch(self, args, kwargs)
        leaves, traced = self._prepare(args, kwargs)
        if any(type(x) is ShapeDtypeStruct for x in leaves):
            leaves = _with_values(leaves, traced)
        if traced.uses_refs and ref_state.has_refs(leaves) and ref_state.has_rules(traced.jaxpr.jaxpr):
            ref_state.check_aliases(traced.moved, leaves, lambda: traced.jaxpr.jaxpr.debug_info)
            return self._closing_over_refs(*opened((args, kwargs)))
        return self._bind(leaves, traced)

    def _closing_over_refs(self, args, kwargs):
        """Call a program that holds the references among the arguments; it is traced for these references.

        User-defined derivative rules inside may keep references, and may run after the program has finished. So they
        need the original references, which live on.
        """
        statics, dynamic, fun = self._split(args, kwargs)
        leaves, in_tree = tree.tree_flatten(dynamic)
        refs = {i: x for i, x in enumerate(leaves) if ref_state.is_ref(x)}
        key = ((statics, in_tree, tuple(refs.items())), "holding")
        held = find(self._cache, key)
        if held is None:

            def of_others(*others):
                rest = iter(others)
                merged = [refs[i] if i in refs else next(rest) for i in range(in_tree.num_leaves)]
                positional, named = tree.tree_unflatten(in_tree, merged)
                return fun(*positional, **named)

            held = type(self)(named_like(self._fun)(of_others), (), (), (), (), self._keep_unused, self._inline)
            if ref_state.may_be_kept(list(refs.values())):
                self._cache[key] = held
        return held(*(x for i, x in enumerate(leaves) if i not in refs))

    def _bind(self, leaves, traced: Traced):
        if traced.uses_refs:
            return self._bind_refs(leaves, traced)
        outs = call_jaxpr(
            traced.jaxpr,
            [*traced.moved, *leaves],
            name=traced.name,
            inline=self._inline,
            keep_unused=traced.keep_unused,
            donated=traced.donated,
        )
        return tree.tree_unflatten(traced.out_tree, outs)

    def _bind_refs(self, leaves, traced: Traced):
        """Like `_bind`, for mutable array references among the arguments or closed-over values."""
        ref_state.check_aliases(traced.moved, leaves, lambda: traced.jaxpr.jaxpr.debug_info)

        def bind(operands, given_away):
            donated = tuple(map(any, zip(traced.donated, given_away, strict=True)))
            return call_jaxpr(
                traced.jaxpr, operands, name=traced.name, inline=self._inline, keep_unused=traced.keep_unused,
                donated=donated,
            )  # fmt: skip

        return tree.tree_unflatten(traced.out_tree, ref_state.call(bind, traced.moved, leaves, traced.written))

    def _split(self, args, kwargs) -> tuple[tuple, tuple, Callable]:
        """Static arguments as a hashable key, the other arguments as a pytree, and the function of the others."""
        if self._plain:
            return (), (args, kwargs), self._fun
        fixed: dict[Any, Any] = {}
        statics: list[tuple[Any, type, Any]] = []
        dynamic = []
        positions = _positions(self._static_argnums, len(args))
        for i, a in enumerate(args):
            if i in positions:
                statics.append((i, type(a), _in_key(a, f"positional argument {i}", self._fun)))
                fixed[i] = a
            else:
                dynamic.append(a)
        dyn_kwargs = {}
        for k, v in sorted(kwargs.items()):
            if k in self._static_argnames:
                statics.append((k, type(v), _in_key(v, f"argument {k!r}", self._fun)))
                fixed[k] = v
            else:
                dyn_kwargs[k] = v
        count = len(args)
        fun = self._fun

        def call(*dyn, **kw):
            it = iter(dyn)
            full = [fixed[i] if i in fixed else next(it) for i in range(count)]
            return fun(*full, **kw, **{k: v for k, v in fixed.items() if isinstance(k, str)})

        return tuple(statics), (tuple(dynamic), dyn_kwargs), call

    def _prepare(self, args, kwargs, type_of: Callable = argument_type) -> tuple[list[Any], Traced]:
        """Flat dynamic arguments and the traced program for their types, cached if possible.

        Raises ValueError for options of the compiler in a program inside another one.
        """
        if self._compiler_options:
            if type(state.trace) is JaxprTrace:
                raise ValueError(
                    "`compiler_options` can only be passed to top-level `jax.jit`. Got compiler_options="
                    f"{self._compiler_options} specified on a nested jit with name: {self._name}. Pass them to the "
                    "outermost jit."
                )
            check_compiler_options(self._compiler_options)
        statics, dynamic, fun = self._split(args, kwargs)
        leaves, in_tree = tree.tree_flatten(dynamic)
        if has_views(leaves):
            args, kwargs = opened((args, kwargs))
            return self._prepare(args, kwargs, type_of)
        try:
            avals = tuple(argument_types(leaves, type_of))
        except (TypeError, OverflowError):
            self._refuse_arguments(args, kwargs, leaves)
            raise
        scope = scope_key()
        shardings = None
        if self._shardings is not None:
            positional, named = dynamic
            shardings = self._shardings.of_arguments(self._name, positional, named, avals, leaves)
            scope = *scope, shardings, self._shardings.key
        base = (self._options[:2], in_tree, avals, statics, *scope)
        signature = (*base, _states(self._changing)) if self._changing else base
        key = (signature, self._options[2:])
        traced = find(self._cache, key)
        outer = state.trace if type(state.trace) is JaxprTrace else None
        if traced is None and outer is not None and outer.inner:
            _, traced = find(outer.inner, (id(self), key)) or (None, None)
        if traced is None:
            if max(len(self._cache) // 2, self._cache_size()) >= MOST_PROGRAMS:
                self.clear_cache()
            ref_state.check_aliases((), leaves, lambda: debug_info("jit", self._fun, args, kwargs))
            closed, moved, out_tree, written = self._trace(fun, signature, args, kwargs, shardings)
            donated = (False,) * len(moved) + self._donated(args, kwargs)
            uses_refs = bool(written) or ref_state.has_refs(moved) or any(a.is_ref for a in avals)
            asked = () if self._shardings is None else self._shardings.asked_of_results(out_tree)
            traced = Traced(
                closed, in_tree, out_tree, self._name, donated, self._keep_unused, moved, None, written, uses_refs,
                asked,
            )  # fmt: skip
            if self._changing:  # tracing may have found values that change
                key = ((*base, _states(self._changing)), self._options[2:])
            if ref_state.may_be_kept(moved):
                self._cache[key] = traced
            elif outer is not None and not uses_refs and not AbstractValue.any_high:
                outer.inner[id(self), key] = self, traced  # `self` lives on, so that its id stays its own
        return leaves, traced

    def _follow(self, moved) -> bool:
        """Remember values that change over which the function closes: programs depend on what is known of them.

        Returns whether there are new ones.
        """
        known = set(map(id, self._changing))
        new = [x for x in moved if typeof(x).has_qdd and not isinstance(x, Tracer) and id(x) not in known]
        self._changing = (*self._changing, *new)
        return bool(new)

    def _trace(self, fun, signature, args, kwargs, shardings=None) -> tuple[Any, ...]:
        """The Jaxpr, closed-over tracers and references, the structure of the result, and the written references.

        All `jit`s of the function share it.
        """
        known = self._cache.get(signature)
        if known is None:
            _, in_tree, avals, *_ = signature
            flat = (
                FlatFun(fun, in_tree) if self._shardings is None else self._shardings.function(fun, in_tree, shardings)
            )
            reports.refuse_tracing(self._fun)
            reports.explain_miss(self._fun, signature, [k for k in list(self._cache) if len(k) > 2], args, kwargs)
            timed = reports.timed(f"tracing {self._name} for jit")
            with sources_of_function(self._fun), timed, rare_collections():
                written: list[Any] = []
                jaxpr, consts = trace_to_jaxpr(flat, avals, debug_info("jit", self._fun, args, kwargs), written)
            known = *hoist_tracers(jaxpr, consts, _is_operand), flat.out_tree, written
            if ref_state.may_be_kept(known[1]) and not (AbstractValue.any_high and self._follow(known[1])):
                self._cache[signature] = known
        return known

    def _donated(self, args, kwargs) -> tuple[bool, ...]:
        """For each flat dynamic argument, whether it is donated."""
        flags: list[bool] = []
        static = _positions(self._static_argnums, len(args))
        for i, a in enumerate(args):
            if i not in static:
                flags += [i in self._donate_argnums] * len(tree.tree_leaves(a))
        rest = {k: v for k, v in kwargs.items() if k not in self._static_argnames}
        for path, _ in tree.tree_flatten_with_path(rest)[0]:
            flags.append(path[0].key in self._donate_argnames)
        return tuple(flags)

    def _refuse_arguments(self, args, kwargs, leaves):
        names = parameter_names(self._fun, args, kwargs)
        check_arguments(leaves, f"jit({self._name})", lambda i: names[i] if i < len(names) else str(i))

    # ------------------------------------------------------------ stages

    def trace(self, *args, **kwargs) -> Traced:
        """The traced program for these arguments. Arguments may be any objects with `shape` and `dtype`."""
        leaves, traced = self._prepare(args, kwargs, abstractify)
        held = tuple(map(_sharding_of, leaves))
        if self._shardings is None:
            return traced.of_shardings(held)
        positional, named = self._split(args, kwargs)[1]
        avals = traced.jaxpr.in_avals[len(traced.moved) :]
        return traced.of_shardings(self._shardings.of_traced(self._name, positional, named, avals, leaves, held))

    def lower(self, *args, **kwargs):
        """The program lowered to loop nests, ready to compile."""
        if self._shardings is not None:
            self._shardings.check_devices(tree.tree_leaves((args, kwargs)))
        return self.trace(*args, **kwargs).lower()

    def graph(self, *args, **kwargs):
        """The program compiled for these arguments as an HTML page; see `Compiled.show`. Does not run it."""
        return self.lower(*args, **kwargs).compile().show()

    def eval_shape(self, *args, **kwargs):
        """Shapes and dtypes of the result, with shardings from `out_shardings`, without computing anything."""
        types = self.trace(*args, **kwargs).out_info
        return types if self._shardings is None else self._shardings.of_results(types)

    def clear_cache(self) -> None:
        """Forget traced and compiled programs."""
        self._cache.clear()
        self._programs.clear()
        self._forget()

    def _cache_size(self) -> int:
        return len(self._programs) + self._num_programs()

    def __get__(self, instance, owner=None):
        return self if instance is None else partial(self, instance)

    def __reduce__(self):
        """Pickle function and options without programs; as state, because the function may reference itself."""
        options = *self._options, self._inline, self._shardings, self._compiler_options
        return copyreg.__newobj__, (type(self),), (self._fun, *options)

    def __setstate__(self, given: tuple) -> None:
        PjitFunction.__init__(self, *given)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._fun)

    def __repr__(self) -> str:
        try:
            return f"<PjitFunction of {self.__wrapped__!r}>"
        except Exception:  # the function's own repr raised
            return "<PjitFunction>"


def clear_caches() -> None:
    """Clear the caches of traced and compiled programs of all `jit` functions.

    >>> f = mpijax.jit(lambda x: print("traced"))
    >>> f(1), f(2)
    traced
    (None, None)
    >>> mpijax.clear_caches()
    >>> f(3)
    traced
    """
    with _jitted_lock:
        everything = list(_jitted)
    for jitted in everything:
        jitted.clear_cache()


def jit(
    fun: Callable | None = None,
    /,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool | Inline = False,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """Compile a function: it is traced once for each signature of its arguments, and runs as one program.

    Args:
      fun: a function of pytrees of arrays. Without it, `jit(**options)` is a decorator.
      in_shardings, out_shardings: shardings of arguments and results: prefix pytrees of shardings, or of PartitionSpecs
        over the mesh of `set_mesh`. None keeps the sharding of arguments, and lets the program choose it for results.
        Whole arguments are cut without communication; results are cut or gathered.
      static_argnums, static_argnames: arguments that are Python values known during tracing; they
        must be hashable, and each new value causes a new trace.
      donate_argnums, donate_argnames: arguments whose memory the program may reuse; the arrays
        passed there are deleted.
      keep_unused: keep arguments that the function does not read.
      inline: inside another traced function, record the operations without a call: True, or `Inline.JAX_EARLY`.
      compiler_options: names of XLA's options are accepted, and have no effect.

    Raises:
      ValueError: for an unhashable static argument, argument positions that do not exist, and shardings that do not
        match: sizes that do not divide evenly, or an argument with another sharding.
      TypeError: for an argument that is not an array.

    >>> mpijax.jit(lambda x: jnp.sum(x * x))(jnp.arange(4))
    Array(14, dtype=int32)
    """
    if device is not None or backend is not None:
        warn_user(
            "backend and device argument on jit is deprecated. Place the arguments of the function with "
            "jax.device_put.",
            DeprecationWarning,
        )
        if device is not None and backend is not None:
            raise ValueError(f"can't specify both a device and a backend for jit, got {device=} and {backend=}")
        for what, given in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
            if given is not None:
                raise ValueError(f"If backend or device is specified on jit, then {what} should not be specified.")
    shardings = None
    if in_shardings is not None or out_shardings is not None or device is not None:
        if device is not None:
            in_shardings = out_shardings = sharding_of(device, "jit")
        shardings = provided.JitShardings(in_shardings, out_shardings, device is not None)
    make = partial(
        PjitFunction,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
        donate_argnames=donate_argnames,
        keep_unused=keep_unused,
        inline=while_tracing(inline),
        shardings=shardings,
        compiler_options=compiler_options,
    )

    def decorate(fun: Callable) -> PjitFunction:
        _check_function(fun)
        return make(fun)

    return decorate if fun is None else decorate(fun)


def _check_function(fun: Any) -> None:
    """Raise TypeError for what `jit` cannot call."""
    if isinstance(fun, staticmethod):
        raise TypeError(f"staticmethod arguments are not supported, got {fun}. Apply jit first: staticmethod(jit(f)).")
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    if inspect.isgeneratorfunction(fun):
        raise TypeError(f"Expected a function, got a generator function: {fun}")
