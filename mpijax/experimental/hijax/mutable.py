"""Types of values that change (`MutableHiType`): what is known of a value's type depends on the place in the program.

The part that changes is called quasi-dynamic data (qdd): of a box, the types of what is in it. A value knows its own
(`value.cur_qdd()`). A program has it for each variable that holds such a value: as it is at the beginning, and, while
the program is written, as it is now.
"""

from __future__ import annotations

from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.state import state
from mpijax.core.programs.jaxpr import Var
from mpijax.core.tracing.jaxpr_trace import JaxprTrace, JitTracer
from mpijax.core.tracing.trace import current_trace
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.types.abstract import AbstractValue, aval_method, to_override
from mpijax.core.types.avals import NO_AXES
from mpijax.experimental.hijax.types import UserType
from mpijax.transforms.batching import BatchTracer
from mpijax.transforms.dual import PrimalTracer
from mpijax.transforms.high_programs import FlatTree, LowerTrace


def cur_qdd(x: Any) -> Any:
    """What is known of the type of a value that changes (`MutableHiType`), at this place in the program.

    >>> class Counter:
    ...     def cur_qdd(self): return "an int"
    >>> mpijax.experimental.cur_qdd(Counter())
    'an int'
    """
    trace: Any = state.trace
    while not isinstance(x, Tracer) and trace is not None and not isinstance(trace, LowerTrace):
        if isinstance(trace, JaxprTrace):
            x = trace.lift(x)
        trace = trace.parent
    while isinstance(x, (PrimalTracer, BatchTracer)):
        x = x.primal if isinstance(x, PrimalTracer) else x.batched
    if isinstance(x, QddTracer):
        aval: Any = x._aval
        return aval.mutable_qdd.cur_val
    return x.cur_qdd()


class MutableHiType(UserType):
    """Base of types of values that change.

    A subclass says of which types a value consists, given its `cur_qdd()` (`lo_ty_qdd`), takes a value apart
    (`read_loval`), makes one (`new_from_loval`), and writes into one (`update_from_loval`).

    Attributes:
      is_writer: whether values are only added to: a loop does not carry what is in them, and stacks what is added.

    >>> class CounterTy(mpijax.experimental.hijax.MutableHiType):
    ...     def __eq__(self, other): return isinstance(other, CounterTy)
    ...     def __hash__(self): return 0
    ...     def lo_ty_qdd(self, _): return [mpijax.core.ShapedArray((), np.int32)]
    ...     def new_from_loval(self, _, count): return Counter(count)
    ...     def read_loval(self, _, counter): return [counter.count]
    ...     def update_from_loval(self, _, counter, count): counter.count = count
    >>> class Counter:
    ...     def __init__(self, count): self.count = count
    ...     def cur_qdd(self): return ()
    >>> class Increase(mpijax.experimental.hijax.HiPrimitive):
    ...     multiple_results = True
    ...     def abstract_eval(self, counter): return [], set()
    ...     def to_lojax(self, counter): counter.count += 1; return []
    >>> mpijax.experimental.hijax.register_hitype(Counter, lambda _: CounterTy())
    >>> counter, increase = Counter(jnp.int32(0)), mpijax.jit(Increase("increase").bind)
    >>> increase(counter), increase(counter), counter.count
    ([], [], Array(2, dtype=int32))
    """

    has_qdd = True
    is_writer = False
    type_state = aval_method(cur_qdd)

    def with_state(self, value: Any) -> AvalQDD:
        """This type with what is known here of a value."""
        return AvalQDD(self, cur_qdd(value))

    def constant(self, trace: JaxprTrace, value: Any) -> QddTracer:
        with current_trace(trace.parent):  # type: ignore[arg-type]
            known = cur_qdd(value)
        typed = AvalMutableQDD(self, MutableQDD(known))
        return QddTracer(trace, typed, trace.new_const(value, typed).atom)  # type: ignore[arg-type]

    def lo_ty_qdd(self, qdd: Any, /) -> list[Any]:
        """The types of the values that a value consists of."""
        to_override(self, "lo_ty_qdd", "a program with values of the type")

    def new_from_loval(self, qdd: Any, /, *lo_vals: Any) -> Any:
        """A new value that consists of these."""
        to_override(self, "new_from_loval", "a program with values of the type")

    def read_loval(self, qdd: Any, hi_val: Any, /) -> list[Any]:
        """The values that a value consists of."""
        to_override(self, "read_loval", "a program with values of the type")

    def update_from_loval(self, qdd: Any, hi_val: Any, /, *lo_vals: Any) -> None:
        """Change a value into one that consists of these."""
        to_override(self, "update_from_loval", "a program that changes values of the type")

    def read_loval_in(self, qdd: Any, hi_val: Any, /) -> list[Any]:
        """What a program gets of a value."""
        return self.read_loval(qdd, hi_val)

    def read_loval_out(self, qdd: Any, hi_val: Any, /) -> FlatTree:
        """What a program returns of a value that it got."""
        return FlatTree.flatten(self.read_loval(qdd, hi_val))

    def update_from_loval2(self, qdd: Any, hi_val: Any, lo_vals: FlatTree, /) -> None:
        """Change a value as a program did that returned `lo_vals`."""
        self.update_from_loval(qdd, hi_val, *lo_vals.unflatten())


class MutableQDD:
    """What is known of the type of one variable's value, at the beginning of its program and now."""

    def __init__(self, init_val: Any):
        self.init_val = init_val
        self.cur_val = init_val

    def update(self, val: Any) -> None:
        """From here on, `val` is known."""
        self.cur_val = val


class _WithQDD(AbstractValue):
    """A type with what is known of a value beside."""

    aval: Any
    is_high = True
    has_qdd = True
    vma = NO_AXES
    split = None
    weak_type = False

    @property
    def form(self) -> Any:
        return self.aval

    def str_short(self, short_dtypes: bool = False, mesh_axis_types: bool = False) -> str:
        return self.aval.str_short(short_dtypes)

    def initial(self) -> Any:
        raise NotImplementedError

    def to_tangent_aval(self) -> Any:
        qdd = self.initial()
        return AvalQDD(self.aval.to_tangent_aval(), qdd and qdd.to_tangent_qdd())

    def argument(self, trace: JaxprTrace) -> QddTracer:
        aval = AvalMutableQDD(self.aval, MutableQDD(self.initial()))
        var = Var(aval)  # type: ignore[arg-type]
        trace.invars.append(var)
        return QddTracer(trace, aval, var)  # type: ignore[arg-type]


@dataclass(frozen=True)
class AvalQDD(_WithQDD):
    """A type of values that change, with what is known of one value (`qdd`): the type of a new one.

    >>> mpijax.experimental.hijax.AvalQDD(mpijax.typeof(1.0), "new").qdd
    'new'
    """

    aval: Any
    qdd: Any

    def initial(self) -> Any:
        return self.qdd


@dataclass(frozen=True)
class AvalMutableQDD(_WithQDD):
    """The same of a variable of a program: `mutable_qdd.update(qdd)` says what is known after an operation.

    >>> known = mpijax.experimental.hijax.mutable.MutableQDD("before")
    >>> mpijax.experimental.hijax.AvalMutableQDD(mpijax.typeof(1.0), known).mutable_qdd.update("after")
    >>> known.cur_val
    'after'
    """

    aval: Any
    mutable_qdd: MutableQDD

    def initial(self) -> Any:
        return self.mutable_qdd.init_val


class QddTracer(JitTracer):
    """A value that changes, of which only the type is known."""

    __slots__ = ()

    aval = property(lambda self: self._aval.aval)


def made(result: Any) -> Any:
    """A result of an operation: a new value that changes is one that is followed."""
    if type(result) is JitTracer and type(result._aval) is AvalQDD:
        aval = AvalMutableQDD(result._aval.aval, MutableQDD(result._aval.qdd))
        return QddTracer(result._trace, aval, result.atom)  # type: ignore[arg-type]
    return result
