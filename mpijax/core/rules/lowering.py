"""Defines the lowering records, which tell the compiler what a primitive does. They hold data only.

- `Elementwise(rule)`: the same scalar expression for every element.
- `Structural(read)`: moves elements without rounding: views, pads, gathers, iota.
- `Reduction(op)`: elements combined along axes.
- `Cumulative(op)`: each element combined with all elements before it along an axis.
- `Library()`: a matrix product.
- `InlineJaxpr(param)`: the Jaxpr in a parameter, inlined at the call.
- `HostCall(fun)`: a NumPy function called by the executor.
- `Communication(exchange)`: an exchange with other ranks.
- `Partitioned(param)`: the Jaxpr in a parameter, run on this rank's shards of the operands.
- `Decompose(fun)`: a function of tracers that uses other primitives.
- `Reshard(param)`: the operand, resharded to the sharding in a parameter.
- `ControlFlow(kind)`: a loop or branch over Jaxprs in parameters.
- `Native(code)`: machine code of the user, called by the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Any, Protocol

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.index_maps import IndexMap

if TYPE_CHECKING:
    from mpijax.core.rules.primitive import Primitive


class Zeros(Enum):
    """How the result depends on the sign of a zero operand. -0 and +0 are equal numbers.

    SHOWN: the result may differ. PASSED: it differs in the sign of a zero at most. EQUAL: the result is the same.
    POSITIVE: the result is the same and is never -0, so adding a zero of either sign does not change it.
    """

    SHOWN = auto()
    PASSED = auto()
    EQUAL = auto()
    POSITIVE = auto()


class Meaning(Enum):
    """What an elementwise operation computes, where the compiler treats it in a way of its own.

    SUM, DIFFERENCE, PRODUCT, QUOTIENT, MAXIMUM, MINIMUM: of two operands. COTANGENT_SUM: a sum, too; an operand that is
    known to be zero may be left out. NEGATION, EXPONENTIAL: of one operand. CONVERSION: the operand in the dtype of the
    result. GREATER: whether the first operand is greater than the second. SELECTION: one of the operands after the
    first, which says which one. CHAIN: something of many integer instructions, each of which waits for the one before.
    OTHER: anything else.
    """

    SUM = auto()
    COTANGENT_SUM = auto()
    DIFFERENCE = auto()
    PRODUCT = auto()
    QUOTIENT = auto()
    MAXIMUM = auto()
    MINIMUM = auto()
    NEGATION = auto()
    EXPONENTIAL = auto()
    CONVERSION = auto()
    GREATER = auto()
    SELECTION = auto()
    CHAIN = auto()
    OTHER = auto()


@dataclass(frozen=True)
class Elementwise:
    """`rule(builder, *scalars, **params) -> scalar` of the scalar layer.

    Each operand has the shape of the result, or is a scalar, or has axes of size 1 that are broadcast.
    additive: whether the result for sums of operands is the sum of the results.
    zeros: how the result depends on the sign of a zero.
    meaning: what the operation computes, if the compiler knows more of it.
    over_words: for PRNG keys, how the results for their words are combined, AND or OR. By default it takes no keys.

    >>> from mpijax.extend import core, lowering
    >>> rule = lowering.Elementwise(lambda b, x: lowering.on_floats(b, lambda x: x / (1.0 + x * x), x))
    >>> p = core.Primitive("witch", type_rule=lambda x: x, reference=lambda x: x / (1 + x * x), lower=rule)
    >>> p.bind(jnp.array([0.0, 1.0, 2.0]))
    Array([0. , 0.5, 0.4], dtype=float32)
    """

    rule: Callable
    cost: int = 1
    additive: bool = False
    zeros: Zeros = Zeros.SHOWN
    meaning: Meaning = Meaning.OTHER
    over_words: Combiner | None = None


def meaning_of(lower: Any) -> Meaning:
    """What an operation with this lowering computes."""
    return lower.meaning if isinstance(lower, Elementwise) else Meaning.OTHER


class OverRanks(StrEnum):
    """An operation that combines the elements of several ranks, with MPI's name.

    SUM, PROD, MAX, MIN: of numbers. BAND, BOR, BXOR: of bits, or of booleans.
    """

    SUM = "sum"
    PROD = "prod"
    MAX = "max"
    MIN = "min"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"


class Combiner(StrEnum):
    """An operation that combines elements along axes, with the name of its primitive.

    ADD, MUL, MAX, MIN: of numbers. AND, OR, XOR: of bits, or of booleans. LOGADDEXP: log(exp(x) + exp(y)), which has no
    primitive and is only cumulative.
    """

    ADD = "add"
    MUL = "mul"
    MAX = "max"
    MIN = "min"
    AND = "and"
    OR = "or"
    XOR = "xor"
    LOGADDEXP = "logaddexp"


@dataclass(frozen=True)
class Reduction:
    """A reduction along `axes` (a parameter)."""

    op: Combiner


@dataclass(frozen=True)
class Cumulative:
    """A cumulative operation along `axis`, from its end if `reverse` (parameters)."""

    op: Combiner


@dataclass(frozen=True)
class Library:
    """A matrix product with the parameters of `dot_general`, which a library computes if it is large."""


@dataclass(frozen=True)
class InlineJaxpr:
    """Inlines the Jaxpr in parameter `param` at the equation.

    apart: `(params) -> bool`, whether to recompute values from before the equation instead of keeping them alive.
    """

    param: str
    apart: Callable[[dict[str, Any]], bool] | None = None

    def is_apart(self, params: dict[str, Any]) -> bool:
        return self.apart is not None and self.apart(params)


@dataclass(frozen=True)
class HostCall:
    """`fun(*numpy arrays, **params) -> array or list of arrays`, called with the GIL held.

    once: by the operation's parameters, whether processes that run a program on parts of the same arrays call it once,
    as a function with side effects must be. One process then sends the results to the others.

    >>> from mpijax.extend import core, lowering
    >>> rule = lowering.HostCall(np.sort)
    >>> p = core.Primitive("sorted_on_the_host", type_rule=lambda x: x, reference=np.sort, lower=rule)
    >>> mpijax.jit(p.bind)(jnp.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """

    fun: Callable
    once: Callable[[Mapping[str, Any]], bool] = lambda params: False


class Exchange(Enum):
    """A collective or message between ranks; the values are MPI's names where MPI has one."""

    ALLREDUCE = "allreduce"
    REDUCE = "reduce"
    SCAN = "scan"
    EXSCAN = "exscan"
    REDUCE_SCATTER = "reduce_scatter"
    BCAST = "bcast"
    ALLGATHER = "allgather"
    GATHER = "gather"
    SCATTER = "scatter"
    ALLTOALL = "alltoall"
    SEND = "send"
    RECV = "recv"
    SENDRECV = "sendrecv"
    BARRIER = "barrier"
    PERMUTE = "permute"  # each rank sends to at most one rank and receives from at most one
    POSITION = "position"  # this rank's position along the axes; no message


@dataclass(frozen=True)
class Communication:
    """Communication with other ranks: over mesh axes, or on a communicator.

    operation: of a reduction over mesh axes; on a communicator, a parameter is the operation.
    counted: operands hold the number of rows each rank sends or receives; they are read when the exchange runs.
    on_communicator: parameter `comm` gives the ranks; otherwise parameters name mesh axes.
    """

    exchange: Exchange
    operation: OverRanks | None = None
    counted: bool = False
    on_communicator: bool = False

    @property
    def name(self) -> str:
        """The name in reports: `allreduce_sum`, `alltoallv`."""
        reduces = f"_{self.operation}" if self.exchange is Exchange.ALLREDUCE and self.operation else ""
        return self.exchange.value + ("v" if self.counted else "") + reduces


@dataclass(frozen=True)
class Decompose:
    """`fun(*tracers, **params) -> tracer(s)`: traced and inlined in place of the equation.

    >>> from mpijax.extend import core, lowering
    >>> rule = lowering.Decompose(lambda x: lax.mul(x, x))
    >>> p = core.Primitive("squared_by_parts", type_rule=lambda x: x, reference=np.square, lower=rule)
    >>> p.bind(jnp.arange(3))
    Array([0, 1, 4], dtype=int32)
    """

    fun: Callable


class ViewKind(Enum):
    """How the result's elements are arranged in memory, compared with the operand's elements.

    >>> from mpijax.extend import lowering
    >>> [kind.name for kind in lowering.ViewKind]
    ['SAME', 'REGROUPED', 'STRIDED', 'REPEATED', 'REVERSED']
    """

    SAME = auto()  # unchanged; only axes of size 1 are added or removed
    REGROUPED = auto()  # unchanged, but with other axes
    STRIDED = auto()  # axes have other strides
    REPEATED = auto()  # elements are repeated
    REVERSED = auto()  # axes are traversed backwards


class Writes(Enum):
    """How loops write a result part by part; parameters and operands are those of the `lax` primitive of that name."""

    CONCATENATE = auto()
    PAD = auto()
    WINDOW = auto()  # `compiler.graph.normalize.static_update_p`
    DYNAMIC_UPDATE_SLICE = auto()
    SCATTER = auto()


@dataclass(frozen=True)
class Window:
    """The only window that an operation reads or writes, if it is known at compile time.

    start: its first position in the first operand; None if nothing is written. sizes: its size along each axis of that
    operand. new: the number of the operand that is written there.
    """

    start: tuple[int, ...] | None
    sizes: tuple[int, ...]
    new: int = 1


@dataclass(frozen=True)
class Structural:
    """Moves elements without rounding: views, slices, pads, gathers, scatters, iota, random bits.

    read: an index map (`core.rules.index_maps`) that computes an element of the result where it is read. None if an
      element depends on too many others; then the result is written part by part.
    view: given if every element is an element of the operand at a position known at compile time.
    cost: of recomputing an element, in additions.
    words: whether `read` sees PRNG keys as their uint32 words, with one more axis.
    writes: how parts of the result are written.
    window: `(params, shapes of the operands, known) -> Window or None`, where `known(k)` is the value of operand k, or
      None. Given if the operation may be a single slice, or may write a single part.
    axes: `(params) -> axes of the result`, for each axis of the operand the one along which it lies. Given if the axes
      have another order in the result. With the view REPEATED, the result may have more axes; these, and axes of size 1
      in the operand, repeat the elements.
    start: `(params) -> position or None`, of the operand's element with which the result starts, if the result is a
      window of the operand.
    counts: `(params) -> axis`, given if each element is its position along that axis of the result.
    combine: the elementwise primitive that merges the written elements with the existing ones. None: it replaces them.

    >>> from mpijax.extend import core, lowering
    >>> def even(elements, index, avals, params):
    ...     return elements.read(0, (index[0] * 2,))
    >>> p = core.Primitive(
    ...     "even_elements",
    ...     type_rule=lambda x: x.update(shape=((x.shape[0] + 1) // 2,)),
    ...     reference=lambda x: x[::2],
    ...     lower=lowering.Structural(even, lowering.ViewKind.STRIDED),
    ... )
    >>> mpijax.jit(lambda x: p.bind(x) + 1)(jnp.arange(5))
    Array([1, 3, 5], dtype=int32)
    """

    read: IndexMap | None = None
    view: ViewKind | None = None
    cost: int = 0
    words: bool = False
    writes: Writes | None = None
    window: Callable[[dict[str, Any], Sequence[tuple[int, ...]], Callable[[int], Any]], Window | None] | None = None
    axes: Callable[[dict[str, Any]], Sequence[int]] | None = None
    start: Callable[[dict[str, Any]], Sequence[int] | None] | None = None
    counts: Callable[[dict[str, Any]], int] | None = None
    combine: Primitive | None = None

    @property
    def in_place(self) -> bool:
        """Whether the result starts as a copy of the first operand, of which parts are then overwritten."""
        return self.writes in (Writes.WINDOW, Writes.DYNAMIC_UPDATE_SLICE, Writes.SCATTER)

    @property
    def in_pieces(self) -> bool:
        """Whether an element's position decides which operand it comes from."""
        return self.writes in (Writes.CONCATENATE, Writes.PAD, Writes.WINDOW)


@dataclass(frozen=True)
class Partitioned:
    """The Jaxpr in a parameter, which every rank runs on its shards: `shard_map`."""

    param: str


class ReshardKind(Enum):
    """What an operation does with the sharding in its parameter.

    CONSTRAINT: the result is the same array, with this sharding. MOVE: also, possibly on other devices. RESHARD: also,
    over Explicit mesh axes. FROM_LOCAL: each rank's array is its shard of the result. TO_LOCAL: the result is this
    rank's shard. INSPECT: no result; the parameter is a function that is called with the operand's sharding.
    """

    CONSTRAINT = auto()
    MOVE = auto()
    RESHARD = auto()
    FROM_LOCAL = auto()
    TO_LOCAL = auto()
    INSPECT = auto()


@dataclass(frozen=True)
class Reshard:
    """The operand, resharded to the sharding in parameter `param`."""

    param: str
    kind: ReshardKind = ReshardKind.CONSTRAINT


class Flow(Enum):
    """The kind of loop or branch. Its Jaxprs are in the parameters of JAX's primitive of that name."""

    COND = auto()
    WHILE = auto()
    SCAN = auto()


@dataclass(frozen=True)
class ControlFlow:
    """A loop or branch over Jaxprs in parameters.

    written_out: whether the loop with these parameters is unrolled: `unrolled(*operands, **params)` then replaces it.
    """

    kind: Flow
    written_out: Callable[[dict[str, Any]], bool] | None = None
    unrolled: Callable[..., Any] | None = None


class NativeCode(Protocol):
    """Machine code and its arguments.

    The function is `void f(void **buffers, const int64_t *words)`. `buffers` are the operands, the results, and
    `STATUS_BYTES` status bytes. The status bytes begin with an int32: 0 before the call, not 0 after a failed call.

    >>> [name for name in ("address", "failed") if hasattr(mpijax.extend.lowering.NativeCode, name)]
    ['address', 'failed']
    """

    @property
    def words(self) -> tuple[int, ...]:
        """The integers passed to the function as `words`."""

    @property
    def label(self) -> str:
        """The name in the program's text."""

    def address(self) -> int:
        """The address of the function; called when the program is loaded."""

    def failed(self, *arrays: Any) -> Any:
        """Raise the error for a failed call; receives the operands and the status bytes as ndarrays."""


STATUS_BYTES = 256


@dataclass(frozen=True)
class Native:
    """Machine code of the user: `code(operand types, result types, **params) -> NativeCode`.

    aliases: the parameter with pairs (operand, result). The result starts with the operand's bytes, and its buffer is
    also passed as that operand.
    symmetrizes: a parameter that makes the code compute (x + x^T) / 2 of its first operand, real matrices.
    triangular: the first result, matrices, has zeros above the diagonal.
    takes_reals: whether, with these parameters, the first operand may be the reals that it was converted from.
    counts: `(operand types, parameters) -> parameters`, with which the code makes the last operand itself, or None;
      called if that operand counts the positions along its last axis.
    in_place: `(operand types, parameters) -> pairs (operand, result)` that may be one buffer.
    foreign: the code keeps denormals, as Python code does; otherwise it treats them as zero.

    >>> import numba
    >>> from mpijax.extend import core, lowering
    >>> floats, ints = numba.types.CPointer(numba.types.float32), numba.types.CPointer(numba.types.int64)
    >>> @numba.cfunc(numba.types.void(numba.types.CPointer(floats), ints))
    ... def double(buffers, words):
    ...     for i in range(words[0]):
    ...         buffers[1][i] = 2 * buffers[0][i]
    >>> class Doubled:
    ...     words, label = (3,), "doubled"
    ...     def address(self):
    ...         return double.address
    ...     def failed(self, *arrays):
    ...         raise RuntimeError("doubling failed")
    >>> rule = lowering.Native(lambda operands, results: Doubled())
    >>> p = core.Primitive("doubled_natively", type_rule=lambda x: x, reference=lambda x: 2 * x, lower=rule)
    >>> p.bind(jnp.arange(3.0, dtype="float32"))
    Array([0., 2., 4.], dtype=float32)
    """

    code: Callable[..., NativeCode]
    aliases: str = ""
    symmetrizes: str = ""
    triangular: bool = False
    takes_reals: Callable[[dict[str, Any]], bool] | None = None
    counts: Callable[[Sequence[Any], dict[str, Any]], dict[str, Any] | None] | None = None
    in_place: Callable[[Sequence[Any], dict[str, Any]], Sequence[tuple[int, int]]] | None = None
    foreign: bool = True

    def aliased(self, params: dict[str, Any]) -> tuple[tuple[int, int], ...]:
        return params[self.aliases] if self.aliases else ()
