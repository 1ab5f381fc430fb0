"""Traces functions to Jaxprs: the trace that records operations as equations, and its tracers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mpijax.core.base import config, errors, provided
from mpijax.core.base.any_depth import any_depth
from mpijax.core.base.source import NO_SCOPES, NameStack, current_source, in_scope
from mpijax.core.base.state import state
from mpijax.core.programs.debug_info import DebugInfo
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Literal, Var, is_literal_scalar
from mpijax.core.tracing.trace import Trace, current_trace
from mpijax.core.tracing.tracer import Tracer, check_alive, check_leaks, leak_message
from mpijax.core.trees.tree import keystr, tree_leaves_with_path
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof


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

    def __repr__(self) -> str:
        text_of = self._trace.text_of  # type: ignore[attr-defined]
        return (text_of and text_of(self)) or super().__repr__()

    __str__ = __repr__

    def _origin_msg(self) -> str:
        return self._trace.origin_of(self)  # type: ignore[attr-defined]

    def _creation_msg(self) -> str:
        trace: Any = self._trace
        made = [e.source for e in trace.eqns if self.atom in e.outvars]
        return f" The leaked intermediate value was created on line {made[0]}." if made else ""


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
      text_of: the text of a value, if it is not that of its type.
      outside: how many of the current scopes are not those of the program's equations.
      inner: traced functions that close over values of this trace, by what their callers choose as keys.
    """

    __slots__ = (
        "eqns", "invars", "constvars", "constvals", "_const_tracers", "debug", "finished", "refs", "written",
        "text_of", "outside", "inner",
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
        self.text_of: Callable[[JitTracer], str | None] | None = None
        self.outside = 0
        self.inner: dict[Any, Any] = {}

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
            parts = _traced_parts(x, aval) if made_here else None
            if parts is not None:
                with current_trace(self):
                    return provided.raised(aval, parts)
            if aval.is_ref:
                raise TypeError(f"a mutable array reference of type {aval} is not an array: read it first (ref[...])")
            known = self._const_tracers[id(x)] = aval.constant(self, x)
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
            raise errors.UnexpectedTracerError(leak_message(None, self))
        tracers = [x if type(x) is JitTracer and x._trace is self else self.lift(x) for x in args]
        out, effects = primitive.infer([t._aval for t in tracers], params)
        avals = out if primitive.multiple_results else (out,)
        outvars = [Var(a) for a in avals]
        source = current_source()
        if self.outside:
            source = source.in_scope(NameStack(source.name_stack[self.outside :]))
        self.eqns.append(Eqn(primitive, [t.atom for t in tracers], outvars, params, effects, source))
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
        self.inner.clear()
        return provided.checked(jaxpr), constvals


def _traced_parts(value: Any, aval: Any) -> list[Any] | None:
    """What a value of a type of a library consists of, if traced values are among it: it is then no constant."""
    if not aval.has_parts:
        return None  # programs cannot be compiled with it, but derivatives can be written down
    parts = aval.lower_val(value)
    return parts if any(isinstance(x, Tracer) for x in parts) else None


def _made_by(eqns: Sequence[Any]) -> str:
    """Lists the source lines of operations without traced operands, for a value that depends on no argument."""
    lines = list(dict.fromkeys(f"\n  {e.primitive.name} at {e.source}" for e in eqns))
    more = "\n(Additional originating lines are not shown.)" if len(lines) > 5 else ""
    listed = "".join(lines[:5]) + more
    return f" This value became a tracer due to JAX operations on these lines:{listed}" if lines else ""


def refs_refused(debug: DebugInfo | None) -> NotImplementedError:
    """The error for a mutable array reference in a function whose program cannot return its new value."""
    where = f"{debug.func_src_info} traced for {debug.traced_for}" if debug else "a transformed function"
    return NotImplementedError(
        f"{where} uses a mutable array reference from outside, which is not possible there. Pass the value in and "
        "return the new one. Of rules of custom derivatives, backward rules may use references, but not inside of "
        "`shard_map`; forward rules may where the function is differentiated without `jit` around it."
    )


def _and_list(names: Sequence[str]) -> str:
    if len(names) <= 2:
        return " and ".join(names)
    return ", ".join(names[:-1]) + f", and {names[-1]}"


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
        with in_scope(NO_SCOPES):  # a Jaxpr does not depend on where it is called
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
        check_leaks(trace, debug)
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
        types = [a.with_state(x) if a.has_qdd else a for a, x in zip(types, refs, strict=True)]
    values = [a.inner_aval if a.is_ref else a for a in types]
    return trace_to_closed_jaxpr(passing, [*avals[:at], *values, *avals[at:]], debug), refs


def trace_to_closed_jaxpr(fun: Callable, avals, debug: DebugInfo | None = None) -> ClosedJaxpr:
    """Like `trace_to_jaxpr`, but returns a ClosedJaxpr; its constants may be tracers."""
    jaxpr, consts = trace_to_jaxpr(fun, avals, debug)
    if any(typeof(c).is_ref for c in consts):
        raise refs_refused(debug)
    return ClosedJaxpr(jaxpr, consts)
