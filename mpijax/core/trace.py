"""Traces functions: holds the current trace, the tracers, and the trace that builds Jaxprs.

The only global state is the current trace. `Primitive.bind` passes every operation to it. Each transformation defines
a `Trace` with its own `Tracer`s. A trace treats values of other traces as constants and passes operations on to its
parent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mpijax._ext import dispatch
from mpijax.core import config, dtypes, errors, provided
from mpijax.core.abstract import AbstractValue, lent
from mpijax.core.any_depth import any_depth
from mpijax.core.array_api import Array
from mpijax.core.avals import NO_AXES, ShapedArray, ShapeDtypeStruct
from mpijax.core.foreign import pytype_aval_mappings, rule_for
from mpijax.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Literal, Var, is_literal_scalar
from mpijax.core.source import current_source, in_scope
from mpijax.core.state import State, state
from mpijax.core.tree import keystr, tree_leaves_with_path


class Trace:
    """Interprets operations in one way, and passes operations on to the trace `parent`.

    >>> mpijax.eval_shape(lambda x: print(isinstance(x._trace, mpijax.core.Trace)) or x, 1.0).shape
    True
    ()
    """

    __slots__ = ("parent", "__weakref__")

    # The mesh axes that a `vmap` splits its batch axis over.
    along: tuple[Any, ...] = ()

    def __init__(self, parent: Trace | None = None):
        self.parent = parent

    def recorder(self) -> JaxprTrace | None:
        """The trace that records constants; None where constants stay arrays."""
        return None if self.parent is None else self.parent.recorder()

    @property
    def main(self) -> Any:
        """An object that all tracers of one use of a transformation share."""
        return self

    def full_raise(self, x: Any) -> Any:
        """Lifts a value into this trace, for traces of libraries: here every value is accepted unchanged."""
        return x

    def records(self, args) -> bool:
        """Whether an operation on `args` is recorded in a Jaxpr rather than run."""
        return False

    def process_primitive(self, primitive, args, params):
        raise NotImplementedError

    def process_custom_call(self, call, args):
        """Processes a call of a function with a user-defined derivative; see `transforms.custom`."""
        raise NotImplementedError

    def without_derivative(self, value: Any) -> Any:
        """The primal of a value of this trace, without its tangent or residuals."""
        return value if self.parent is None else self.parent.without_derivative(value)

    def read_ref(self, ref) -> Any:
        """The value of a mutable array reference created outside this trace; see `core.refs`."""
        if self.parent is None:
            raise ref.leaked()
        return ref.read_in(self.parent)

    def write_ref(self, ref, value) -> None:
        """Replace the value of a reference created outside this trace."""
        if self.parent is None:
            raise ref.leaked()
        ref.write_in(self.parent, value)


# Attributes of arrays about memory and devices, which tracers lack; with the start of the error message for each.
_OF_MEMORY = {
    **dict.fromkeys(("addressable_shards", "committed"), "The '{}' attribute is not available"),
    **dict.fromkeys(("global_shards", "is_fully_addressable", "is_fully_replicated"), "The {} property was called"),
    **dict.fromkeys(
        ("addressable_data", "delete", "devices", "on_device_size_in_bytes", "unsafe_buffer_pointer"),
        "The {}() method was called",
    ),
}


class Tracer(Array):
    """A value inside a transformation.

    >>> mpijax.eval_shape(lambda x: print(isinstance(x, mpijax.core.Tracer)) or x, 1.0).shape
    True
    ()
    """

    __slots__ = ("_trace", "__weakref__")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000

    _trace: Trace

    @property
    def aval(self) -> ShapedArray:
        raise NotImplementedError

    def concrete(self) -> Any | None:
        """The concrete value of this tracer if it is known now, else None."""
        return None

    def _origin_msg(self) -> str:
        """The origin of the value, for error messages."""
        return ""

    def _error_repr(self) -> str:
        return f"traced array with shape {self.aval.str_short(short_dtypes=False)}"

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)
    weak_type = property(lambda self: self.aval.weak_type)
    itemsize = property(lambda self: self.aval.dtype.itemsize)
    nbytes = property(lambda self: self.aval.nbytes)

    def __len__(self) -> int:
        return len(self.aval)

    def __getattr__(self, name: str) -> Any:
        """Raise an error that explains why a tracer lacks the attribute. Called for missing attributes only."""
        if name in _OF_MEMORY:
            text = f"{_OF_MEMORY[name].format(name)} on {self._error_repr()}."
            raise errors.ConcretizationTypeError(self, text)
        if name == "sharding":  # hasattr and getattr with a default work, as in JAX
            raise AttributeError(
                f"The 'sharding' attribute is not available on {self._error_repr()}. To query sharding information on "
                "tracers, use `jax.typeof(x)`."
            )
        if name != "aval" and self.aval.is_high:
            return lent(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _known_scalar(self, error, *extra):
        known = self.concrete()
        if known is None:
            raise error(self, *extra)
        return known

    def __bool__(self) -> bool:
        _check_scalar(self, "bool")
        return bool(self._known_scalar(errors.TracerBoolConversionError))

    def __int__(self) -> int:
        _check_scalar(self, "int")
        return int(self._known_scalar(errors.ConcretizationTypeError, _scalar_hint("int")))

    def __float__(self) -> float:
        _check_scalar(self, "float")
        return float(self._known_scalar(errors.ConcretizationTypeError, _scalar_hint("float")))

    def __complex__(self) -> complex:
        _check_scalar(self, "complex")
        return complex(self._known_scalar(errors.ConcretizationTypeError, _scalar_hint("complex")))

    def __index__(self) -> int:
        if self.ndim or not dtypes.issubdtype(self.dtype, np.integer):
            raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
        known = self._known_scalar(errors.TracerIntegerConversionError)
        return known.__index__()

    def __array__(self, *_args, **_kwargs):
        raise errors.TracerArrayConversionError(self)

    def _known_value(self, method: str):
        return self._known_scalar(
            errors.ConcretizationTypeError, f"The {method}() method was called on {self._error_repr()}."
        )

    def tolist(self):
        return self._known_value("tolist").tolist()

    def item(self, *args):
        return self._known_value("item").item(*args)

    def tobytes(self, order="C"):
        return np.asarray(self._known_value("tobytes")).tobytes(order)

    def __reduce__(self):
        raise errors.ConcretizationTypeError(
            self,
            "The error occurred in the __reduce__ method, which may indicate an attempt to serialize/pickle a traced "
            "value. Methods of mpi4py in small letters do so: mpijax.mpi has those that communicate in programs.",
        )

    def __deepcopy__(self, _memo):
        return self.copy()  # type: ignore[attr-defined]  # one of numpy's methods

    def __copy__(self):
        return self.copy()  # type: ignore[attr-defined]

    def block_until_ready(self):
        return self

    def is_deleted(self) -> bool:
        return False

    def _contents(self) -> str:
        return f"{self.aval.str_short(short_dtypes=False)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._contents()})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(
                f"unsupported format string passed to {type(self).__name__}.__format__: a traced value has "
                "no digits to format; jax.debug.print shows values"
            )
        return str(self)


def _scalar_hint(kind: str) -> str:
    return (
        f"The problem arose with the `{kind}` function. If trying to convert the data type of a value, "
        f"try using `x.astype({kind})` or `jnp.array(x, {kind})` instead."
    )


def _check_scalar(tracer: Tracer, kind: str) -> None:
    if kind == "bool":
        if tracer.aval.size != 1:
            which = "an array with more than one element" if tracer.aval.size else "an empty array"
            raise ValueError(f"The truth value of {which} is ambiguous. Use a.any() or a.all()")
    elif tracer.aval.shape != ():
        raise TypeError(
            f"Only scalar arrays can be converted to Python scalars; got arr.ndim={tracer.aval.ndim}"
        )


class EvalTrace(Trace):
    """Runs operations immediately."""

    __slots__ = ()

    def process_primitive(self, primitive, args, params):
        impl = primitive.impl
        if impl is not None:
            return impl(*args, **params)
        if config.values.checks_operations:
            return provided.evaluate_checking(primitive, args, params)
        return provided.evaluate(primitive, args, params)

    def process_custom_call(self, call, args):
        return call.fun(*args)


def evaluate(primitive, args, params):
    """Compile and run an operation as a program, even if its primitive could run it directly."""
    return provided.evaluate(primitive, args, params)


EVAL = EvalTrace(None)


State.first_trace = state.trace = EVAL
dispatch.connect(state, EVAL, config.values)


@contextmanager
def current_trace(trace: Trace):
    """Make `trace` current inside the block."""
    saved = state.trace
    state.trace = trace
    try:
        yield trace
    finally:
        state.trace = saved


def eval_context() -> Any:
    """Inside, every operation runs immediately, even during tracing. Operands must not be tracers.

    >>> def f(x):
    ...     with mpijax.core.eval_context():
    ...         table = [float(v) for v in jnp.arange(3.0)]
    ...     return x + sum(table)
    >>> mpijax.jit(f)(jnp.float32(1))
    Array(4., dtype=float32)
    """
    return current_trace(EVAL)


class FoldingTrace(Trace):
    """Runs operations on concrete values immediately, and passes operations on tracers to its parent."""

    __slots__ = ()

    def recorder(self) -> None:
        return None

    def _for(self, args) -> Trace:
        return self.parent if any(isinstance(x, Tracer) for x in args) else EVAL  # type: ignore[return-value]

    def records(self, args) -> bool:
        return self._for(args).records(args)

    def process_primitive(self, primitive, args, params):
        with current_trace(self._for(args)) as trace:
            return trace.process_primitive(primitive, args, params)

    def process_custom_call(self, call, args):
        with current_trace(self._for(args)) as trace:
            return trace.process_custom_call(call, args)


@contextmanager
def ensure_compile_time_eval():
    """Inside, operations on concrete arrays run immediately, even during tracing.

    Their results can decide a Python `if`, a shape or a table that the traced function then uses as a constant.
    Operations on traced values are traced as usual.

    >>> @mpijax.jit
    ... def f(x):
    ...     with mpijax.ensure_compile_time_eval():
    ...         small = jnp.max(jnp.arange(3)) < 5
    ...     return x if small else -x
    >>> f(jnp.arange(2))
    Array([0, 1], dtype=int32)
    """
    with current_trace(EVAL if state.trace is EVAL else FoldingTrace(state.trace)):
        yield


@contextmanager
def named_axes(axes: dict[Any, int], manual: frozenset | None = None, mesh: Any = None):
    """Bring axis names into scope. `manual` replaces the set of mesh axes over which values may vary.

    mesh: the mesh that has these axes, in the body of a `shard_map` over them.
    """
    saved = state.axis_env, state.manual_axes, state.body
    state.axis_env = {**state.axis_env, **axes}
    if manual is not None:
        state.manual_axes = manual
    if mesh is not None:
        outer = NO_AXES if state.body is None or state.body[0] != mesh else state.body[1]
        state.body = mesh, outer | frozenset(axes)
    try:
        yield
    finally:
        state.axis_env, state.manual_axes, state.body = saved


def scope_key() -> tuple:
    """Everything a traced program depends on besides the function and the types of its arguments."""
    return config.trace_key(), tuple(state.axis_env.items()), state.manual_axes, state.body, examples_over()


def examples_over() -> frozenset:
    """The mesh axes that enclosing `vmap`s split their batch axes over."""
    trace, found = state.trace, NO_AXES
    while trace is not None:
        found = found.union(trace.along)
        trace = trace.parent
    return found


def axis_size(name: Any, caller: str = "the function") -> int:
    """Size of a named axis in scope; the product for a tuple of names. Errors tell the user to call `caller`."""
    if isinstance(name, (tuple, list)):
        return int(np.prod([axis_size(n, caller) for n in name], dtype=np.int64))
    try:
        return state.axis_env[name]
    except KeyError:
        known = ", ".join(map(repr, state.axis_env)) or "none"
        raise NameError(
            f"Found an unbound axis name: {name}. To fix this, please call {caller} under `jax.shard_map` over a mesh "
            f"that has the axis, or under `jax.vmap` with axis_name={name!r}. The axis names in scope are: {known}."
        ) from None


def trace_state_clean() -> bool:
    """Whether no transformation is active in this thread."""
    return state.trace is EVAL


# ---------------------------------------------------------------- types of values

_scalar_avals: dict[type, ShapedArray] = {}


def typeof(x: Any) -> ShapedArray:
    """The type of an array, tracer, NumPy array or scalar. Raises TypeError for anything else.

    >>> mpijax.typeof(jnp.zeros((2, 3)))
    ShapedArray(float32[2,3])
    """
    try:
        return x.aval
    except AttributeError:
        pass  # so that a later error does not show this one as its cause
    return _typeof_other(x)


get_aval = typeof


def abstractify(x: Any) -> ShapedArray:
    """Like `typeof`, but also accepts any object with `shape` and `dtype`, because only the type is needed.

    >>> mpijax.api_util.shaped_abstractify(np.zeros((2, 3), np.float32))
    ShapedArray(float32[2,3])
    """
    try:
        return typeof(x)
    except TypeError:
        shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
        if shape is None or dtype is None:
            raise
        return ShapedArray(
            tuple(shape), dtypes.canonicalize_dtype(dtype), bool(getattr(x, "weak_type", False)),
            sharding=getattr(x, "sharding", None),
        )  # fmt: skip


def _typeof_other(x: Any) -> ShapedArray:
    kind = type(x)
    if kind in (bool, int, float, complex):
        return ShapedArray(
            (), dtypes.scalar_dtype(x) if kind is int else dtypes.dtype(kind), kind is not bool
        )
    if isinstance(x, (np.ndarray, np.generic)):
        if kind is not np.ndarray and _is_masked(x):
            raise ValueError(
                "numpy masked arrays are not supported as direct inputs to JAX functions: their masks would be lost. "
                "Give the array that arr.filled() returns."
            )
        if x.dtype == dtypes.float0:
            return ShapedArray(x.shape, dtypes.float0)
        dtypes.check_valid_dtype(x.dtype)
        return ShapedArray(x.shape, dtypes.canonicalize_dtype(x.dtype))
    if isinstance(x, ShapeDtypeStruct):
        dtype = dtypes.canonicalize_dtype(x.dtype, allow_extended_dtype=True)
        vma = NO_AXES if x.manual_axis_type is None else x.manual_axis_type.varying
        aval = ShapedArray(x.shape, dtype, x.weak_type, vma, sharding=x.sharding)
        return provided.AbstractRef(aval) if x.is_ref else aval
    if isinstance(x, AbstractValue):
        return x  # type: ignore[return-value]  # types of libraries have what tracing asks of a type
    if isinstance(x, (bool, int, float, complex)):
        return ShapedArray((), dtypes.dtype(_builtin_scalar(kind)), not isinstance(x, bool))
    if hasattr(x, "__jax_array__"):
        return typeof(x.__jax_array__())
    rule = rule_for(pytype_aval_mappings, kind)
    if rule is not None:
        return rule(x)
    raise TypeError(f"Argument '{x}' of type '{kind}' is not a valid JAX type")


def _is_masked(x: Any) -> bool:
    """Whether x is a masked array. Importing numpy.ma takes long; if nobody imported it, no masked array exists."""
    module = sys.modules.get("numpy.ma")
    return module is not None and isinstance(x, module.MaskedArray)


def _builtin_scalar(kind: type) -> type:
    return next(base for base in (bool, int, float, complex) if issubclass(kind, base))


# ---------------------------------------------------------------- building Jaxprs


class JitTracer(Tracer):
    """A tracer that knows only its type: a value in a Jaxpr under construction.

    >>> mpijax.make_jaxpr(lambda x: print(type(x) is mpijax.interpreters.partial_eval.DynamicJaxprTracer) or x)(1.0)
    True
    { lambda ; a:f32[]. let  in (a,) }
    """

    __slots__ = ("_aval", "atom")

    def __init__(self, trace: JaxprTrace, aval: ShapedArray, atom):
        self._trace = trace
        self._aval = aval
        self.atom = atom

    aval = property(lambda self: self._aval)

    def _contents(self) -> str:
        return str(self._aval)

    def _origin_msg(self) -> str:
        return self._trace.origin_of(self)  # type: ignore[attr-defined]


def literal_value(x: Any) -> Any:
    """The number of a tracer that is a literal of the program being traced; None for everything else.

    A literal of an enclosing program is a constant of the inner program, like the other values of the enclosing one.
    """
    known = type(x) is JitTracer and type(x.atom) is Literal and state.trace.recorder() in (None, x._trace)
    return x.atom.val if known else None


class JaxprTrace(Trace):
    """Records operations as equations of a Jaxpr.

    Attributes:
      refs: the current value of each outside reference that is read or written. A reference that is read first
        is a constant of the program.
      written: the outside references that are written, in order.
    """

    __slots__ = (
        "eqns", "invars", "constvars", "constvals", "_const_tracers", "debug", "finished", "hoist", "refs", "written"
    )  # fmt: skip

    def __init__(self, parent: Trace | None = None, debug: DebugInfo | None = None):
        super().__init__(parent)
        self.eqns: list[Eqn] = []
        self.invars: list[Var] = []
        self.constvars: list[Var] = []
        self.constvals: list[Any] = []
        self._const_tracers: dict[int, JitTracer] = {}
        self.debug = debug
        self.finished = False
        self.refs: dict[Any, Any] = {}
        self.written: dict[Any, None] = {}

    def records(self, args) -> bool:
        return True

    def recorder(self) -> JaxprTrace | None:
        return self

    def new_arg(self, aval: ShapedArray) -> JitTracer:
        return self.new_variable(aval) if type(aval) is ShapedArray else aval.argument(self)

    def new_variable(self, aval: Any) -> JitTracer:
        """An argument that is one variable of the program; a mutable array reference is its value here."""
        var = Var(aval)
        self.invars.append(var)
        return JitTracer(self, aval, var)

    def lift(self, x: Any) -> JitTracer:
        """`x` as a tracer of this trace."""
        if isinstance(x, JitTracer) and x._trace is self:
            return x
        if isinstance(x, Tracer):
            check_alive(x)
        elif is_literal_scalar(x):
            aval = typeof(x)
            # A Python number has the same type when the Jaxpr is evaluated.
            value = x if aval.weak_type else np.asarray(x).astype(aval.dtype)[()]
            return JitTracer(self, aval, Literal(value, aval))
        known = self._const_tracers.get(id(x))
        if known is None:
            aval = typeof(x)
            if not aval.is_high and hasattr(x, "__jax_array__"):
                return self.lift(x.__jax_array__())
            made_here = aval.is_high and not aval.has_qdd and not isinstance(x, Tracer)
            parts = provided.traced_parts(x, aval) if made_here else None
            if parts is not None:
                with current_trace(self):
                    return provided.raised(aval, parts)
            if aval.is_ref:
                raise TypeError(f"a mutable array reference of type {aval} is not an array: read it first (ref[...])")
            make = provided.captured_state if aval.has_qdd else JaxprTrace.new_const
            known = self._const_tracers[id(x)] = make(self, x, aval)
        return known

    def new_const(self, x: Any, aval: ShapedArray) -> JitTracer:
        var = Var(aval)
        self.constvars.append(var)
        self.constvals.append(x)
        return JitTracer(self, aval, var)

    def read_ref(self, ref) -> Any:
        known = self.refs.get(ref)
        if known is None:
            known = self.refs[ref] = self.new_const(ref, ref.aval.inner_aval)
        return known

    def write_ref(self, ref, value) -> None:
        self.refs[ref] = self.lift(value)
        self.written[ref] = None

    def process_primitive(self, primitive, args, params):
        if self.finished:
            raise errors.UnexpectedTracerError(_leak_message(None, self))
        tracers = [x if type(x) is JitTracer and x._trace is self else self.lift(x) for x in args]
        out, effects = primitive.infer([t._aval for t in tracers], params)
        avals = out if primitive.multiple_results else (out,)
        outvars = [Var(a) for a in avals]
        self.eqns.append(
            Eqn(primitive, [t.atom for t in tracers], outvars, params, effects, current_source())
        )
        if primitive.multiple_results:
            return [JitTracer(self, v.aval, v) for v in outvars]
        return JitTracer(self, out, outvars[0])

    def process_custom_call(self, call, args):
        return call.stage(self, args)

    def origin_of(self, tracer: JitTracer) -> str:
        """Describes which arguments of the traced function the value depends on, or else which operations made it."""
        if self.debug is None:
            return ""
        needed, first = {tracer.atom}, []
        for eqn in reversed(self.eqns):
            if any(v in needed for v in eqn.outvars):
                operands = [v for v in eqn.invars if isinstance(v, Var)]
                needed.update(operands)
                if not operands:
                    first.append(eqn)
        names = [n for v, n in zip(self.invars, self.debug.arg_names or (), strict=False) if n and v in needed]
        function = f"{self.debug.func_src_info} for {self.debug.traced_for}"
        text = f"The error occurred while tracing the function {function}."
        if not names:
            return text + _made_by(first[::-1])
        plural = "s" if len(names) > 1 else ""
        return (
            f"{text} This concrete value was not available in Python because it depends on the value"
            f"{plural} of the argument{plural} {_and_list(names)}."
        )

    @contextmanager
    def holding(self, refs: Sequence[Any], values: Sequence[Any]):
        """Inside, references from outside have the given values here; the list gets their values at the end.

        A value of a library that changes, among the references, is the given one, and nothing is added to the list.
        """
        given = dict(zip(refs, map(self.lift, values), strict=True))
        targets = [ref for ref in refs if typeof(ref).is_ref]
        self.refs.update((ref, given[ref]) for ref in targets)
        self._const_tracers.update((id(x), given[x]) for x in refs if typeof(x).has_qdd)
        finals: list[Any] = []
        yield finals
        for ref in targets:
            finals.append(self.refs.pop(ref))
            self.written.pop(ref, None)

    def refuse_refs(self) -> None:
        """Raise NotImplementedError if the program reads or writes a mutable array reference from outside."""
        if self.refs:
            raise refs_refused(self.debug)

    def to_jaxpr(self, outs: Sequence[Any]) -> tuple[Jaxpr, list[Any]]:
        """End the trace. Returns the Jaxpr with the given results, and the values of its constants."""
        tracers = [self.lift(x) for x in outs]
        used = {v for e in self.eqns for v in e.invars if type(v) is not Literal}
        used.update(t.atom for t in tracers if type(t.atom) is not Literal)
        keep = [v in used for v in self.constvars]
        constvars = [v for v, k in zip(self.constvars, keep, strict=True) if k]
        constvals = [c for c, k in zip(self.constvals, keep, strict=True) if k]
        jaxpr = Jaxpr(constvars, self.invars, [t.atom for t in tracers], self.eqns, debug_info=self.debug)
        self.finished = True
        self._const_tracers.clear()  # a cycle: they would keep the constants alive until the collector runs
        if config.values.jax_enable_checks:
            provided.check_jaxpr(jaxpr)
        return jaxpr, constvals


def _made_by(eqns: Sequence[Any]) -> str:
    """Lists the source lines of operations without traced operands, for a value that depends on no argument."""
    lines = list(dict.fromkeys(f"\n  {e.primitive.name} at {e.source}" for e in eqns))
    more = "\n(Additional originating lines are not shown.)" if len(lines) > 5 else ""
    listed = "".join(lines[:5]) + more
    return f" This value became a tracer due to JAX operations on these lines:{listed}" if lines else ""


def refs_refused(debug: DebugInfo | None) -> NotImplementedError:
    """The error for a mutable array reference in a function whose program cannot return its new value."""
    where = f"{debug.func_src_info} traced for {debug.traced_for}" if debug else "a function inside of a transformation"
    return NotImplementedError(
        f"{where} uses a mutable array reference from outside, which is not possible there. Pass the value in and "
        "return the new one. Of rules of custom derivatives, backward rules may use references, but not inside of "
        "`shard_map`; forward rules may where the function is differentiated without `jit` around it."
    )


class DebugInfo:
    """What error messages say about a traced function.

    Args:
      traced_for: the transformation, as `"jit"`.
      func_src_info: `name at file:line`, or the name alone.
      arg_names: the names of the array arguments, "" for an argument without a name; or a function that returns them.
      result_paths: the position of each result in what the function returns, as `"result[0]"`; None if unknown.

    >>> mpijax.extend.core.DebugInfo("jit", "step at model.py:7", ("x",), None).func_name
    'step'
    """

    __slots__ = ("_arg_names", "func_src_info", "result_paths", "traced_for")

    def __init__(
        self,
        traced_for: str,
        func_src_info: str,
        arg_names: Sequence[str] | Callable[[], Sequence[str]] | None,
        result_paths: Sequence[str] | None,
    ):
        self.traced_for = traced_for
        self.func_src_info = func_src_info
        self._arg_names = arg_names
        self.result_paths = result_paths

    @property
    def arg_names(self) -> tuple[str, ...] | None:
        if callable(self._arg_names):
            self._arg_names = self._arg_names()
        return None if self._arg_names is None else tuple(self._arg_names)

    @property
    def func_name(self) -> str:
        return self.func_src_info.split(" ")[0]

    def __repr__(self) -> str:
        return (
            f"DebugInfo(traced_for={self.traced_for!r}, func_src_info={self.func_src_info!r}, "
            f"arg_names={self.arg_names!r}, result_paths={self.result_paths!r})"
        )


def _and_list(names: Sequence[str]) -> str:
    if len(names) <= 2:
        return " and ".join(names)
    return ", ".join(names[:-1]) + f", and {names[-1]}"


def check_alive(tracer: Tracer) -> None:
    """Raise UnexpectedTracerError if the trace that made `tracer` has ended."""
    if getattr(tracer._trace, "finished", False):
        raise leaked(tracer)


def leaked(tracer: Tracer) -> errors.UnexpectedTracerError:
    """The error for a value that is used outside of its transformation."""
    return errors.UnexpectedTracerError(_leak_message(tracer, tracer._trace))


def _leak_message(tracer: Tracer | None, trace) -> str:
    debug = getattr(trace, "debug", None)
    where = (
        f" The function being traced when the value leaked was {debug.func_src_info} traced for "
        f"{debug.traced_for}."
        if debug
        else ""
    )
    what = (
        f"an intermediate value with type {tracer.aval.str_short(short_dtypes=False)}"
        if tracer is not None
        else "an operation"
    )
    return (
        "Encountered an unexpected tracer. A function transformed by JAX had a side effect, allowing for a "
        f"reference to {what} wrapped in a {type(tracer).__name__ if tracer is not None else 'tracer'} to "
        "escape the scope of the transformation.\nJAX transformations require that functions explicitly "
        f"return their outputs, and disallow saving intermediate values to global state.{where}{_creation(tracer)}\n"
        "To catch the leak earlier, try setting the environment variable JAX_CHECK_TRACER_LEAKS or using the "
        "`jax.checking_leaks` context manager."
    )


def _creation(tracer: Tracer | None) -> str:
    """A sentence with the source line that computed the value, if an equation recorded it."""
    if type(tracer) is not JitTracer:
        return ""
    trace: Any = tracer._trace
    made = [e.source for e in trace.eqns if tracer.atom in e.outvars]
    return f" The leaked intermediate value was created on line {made[0]}." if made else ""


@any_depth
def trace_to_jaxpr(
    fun: Callable, avals: Sequence[ShapedArray], debug: DebugInfo | None = None, written: list[Any] | None = None
) -> tuple[Jaxpr, list[Any]]:
    """Trace a function of flat arguments that returns a flat list.

    Returns the Jaxpr and the values of its constants. Constants may be tracers of an enclosing trace. A constant may
    also be a mutable array reference: its value is read when the program is called.
    written: receives the references that the function writes; arguments appear as their number. The Jaxpr returns
    their new values as additional results. Without it, a function that writes a reference raises NotImplementedError.
    """
    trace = JaxprTrace(state.trace, debug)
    args = [trace.new_arg(a) for a in avals]
    saved = state.trace
    state.trace = trace
    try:
        with in_scope(""):  # a Jaxpr does not depend on where it is called
            outs = fun(*args)
        try:
            jaxpr, consts = trace.to_jaxpr([*outs, *_written_values(trace, args, written)])
        except TypeError:
            _check_results(fun, outs, debug, trace)
            raise
    finally:
        state.trace = saved
        trace.finished = True
    if config.checking_leaks():
        del args, outs
        provided.check_leaks(trace, debug)
    return jaxpr, consts


def _written_values(trace: JaxprTrace, args: Sequence[Any], written: list[Any] | None) -> list[Any]:
    """The new values of the references that a traced function wrote; appends these references to `written`."""
    given = [(i, x) for i, x in enumerate(args) if not isinstance(x, JitTracer)]
    changed = [(i, x.read_in(trace)) for i, x in given]
    changed = [(i, v) for i, v in changed if type(v) is not JitTracer or v.atom is not trace.invars[i]]
    found = [*changed, *((ref, trace.refs[ref]) for ref in trace.written)]
    if found and written is None:
        raise refs_refused(trace.debug)
    if written is not None:
        written += [which for which, _ in found]
    return [value for _, value in found]


def _check_results(fun: Callable, outs: Sequence[Any], debug: DebugInfo | None, trace: JaxprTrace) -> None:
    """Raise TypeError for a result that is not an array, ValueError for a mutable array reference.

    The message names the function and the position of the result.
    """
    where = f"function {debug.func_src_info} traced for {debug.traced_for}" if debug else "a traced function"
    structure = getattr(fun, "out_tree", None)
    for i, x in enumerate(outs):
        leaves = tree_leaves_with_path(structure.unflatten(range(len(outs)))) if structure else None
        path = keystr(leaves[i][0]) if leaves else ""
        try:
            if typeof(x).is_ref:
                raise ValueError(
                    f"{where} returned a mutable array reference of type {x.aval}"
                    f"{f' at output tree path result{path}' if path else ''}, but mutable array references cannot be "
                    f"returned.{x.origin(trace)} Return its value (ref[...]), or nothing."
                )
        except TypeError:
            place = f" at output component {path}" if path else ""
            raise TypeError(
                f"{where} returned a value of type {type(x)}{place}, which is not a valid JAX type. Return "
                "arrays, numbers or pytrees of them."
            ) from None


def trace_passing_refs(
    fun: Callable, avals: Sequence[ShapedArray], debug: DebugInfo | None, refs: Sequence[Any] = (), at: int = 0
) -> tuple[ClosedJaxpr, tuple[Any, ...]]:
    """Trace a function that may use outside mutable array references. Returns the program and the references it uses.

    The program takes their values before its argument number `at`, and returns their new values first. Values of
    libraries that change, which the function closes over, come before references; they are arguments as they are.
    """
    written: list[Any] = []
    jaxpr, consts = trace_to_jaxpr(fun, avals, debug, written)
    changing = [c for c in consts if typeof(c).has_qdd]
    refs = tuple(dict.fromkeys([*changing, *refs, *(c for c in consts if typeof(c).is_ref), *written]))
    if not refs:
        return ClosedJaxpr(jaxpr, consts), ()
    end = at + len(refs)

    def passing(*flat):
        with state.trace.holding(refs, flat[at:end]) as finals:
            outs = fun(*flat[:at], *flat[end:])
        return [*finals, *outs]

    types: list[Any] = [typeof(x) for x in refs]
    if changing:
        types = list(provided.with_states(types, refs))
    values = [a.inner_aval if a.is_ref else a for a in types]
    return trace_to_closed_jaxpr(passing, [*avals[:at], *values, *avals[at:]], debug), refs


def trace_to_closed_jaxpr(fun: Callable, avals, debug: DebugInfo | None = None) -> ClosedJaxpr:
    """Like `trace_to_jaxpr`, but returns a ClosedJaxpr; its constants may be tracers."""
    jaxpr, consts = trace_to_jaxpr(fun, avals, debug)
    if any(typeof(c).is_ref for c in consts):
        raise refs_refused(debug)
    return ClosedJaxpr(jaxpr, consts)


# ---------------------------------------------------------------- varying axes

def unify_varying(primitive, args):
    """Convert all operands of an operation to vary over the union of their mesh axes."""
    if primitive.vma is not None:
        return args
    avals = [typeof(a) for a in args]
    union = frozenset().union(*(a.vma for a in avals)) if avals else NO_AXES
    if not union or all(a.vma == union for a in avals):
        return args
    return tuple(varying_over(union, x) for x in args)


def varying_over(axes: frozenset, x: Any) -> Any:
    """x converted to vary also over these mesh axes."""
    missing = axes - typeof(x).vma
    return provided.pvary(x, tuple(n for n in state.axis_env if n in missing)) if missing else x
