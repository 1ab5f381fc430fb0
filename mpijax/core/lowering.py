"""What a primitive is to the compiler. Records only; the compiler reads them.

- `Elementwise(rule)`: the same scalar expression for every element.
- `Structural(read)`: elements are moved without rounding: views, pads, gathers, iota.
- `Reduction(op)`: elements combined along axes.
- `Cumulative(op)`: elements combined with all before them along an axis.
- `Library(kind)`: a matrix product.
- `Inline(param)`: the Jaxpr in a parameter, in place of the call.
- `HostCall(fun)`: a NumPy function called by the executor.
- `Communication(exchange)`: an exchange with other ranks.
- `Partitioned(param)`: the Jaxpr in a parameter, on this rank's shards of the operands.
- `Decompose(fun)`: a function of tracers, in terms of other primitives.
- `Layout(param)`: the operand, laid out over devices as a parameter says.
- `ControlFlow(kind)`: a loop or branch over Jaxprs held in parameters.
- `Native(code)`: machine code that the user brings, called by the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Protocol

from mpijax.core.index_maps import IndexMap
from mpijax.core.lazy_dataclass import dataclass


class Zeros(Enum):
    """What becomes of the sign of a zero among real operands: -0 and +0 are equal numbers.

    SHOWN: the result may differ. PASSED: at most in the sign of a zero. EQUAL: the result is the same.
    POSITIVE: it is the same, and is never -0, so that adding a zero of either sign to it is the same.
    """

    SHOWN = auto()
    PASSED = auto()
    EQUAL = auto()
    POSITIVE = auto()


@dataclass(frozen=True)
class Elementwise:
    """`rule(builder, *scalars, **params) -> scalar` of the scalar layer.

    Operands have the shape of the result, or are scalars, or have size-1 axes to be repeated.
    additive: the result for sums of operands is the sum of the results.
    zeros: what becomes of the sign of a zero.

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


@dataclass(frozen=True)
class Reduction:
    """Combine along `axes` (a parameter) with `op`: add, mul, max, min, and, or, xor."""

    op: str


@dataclass(frozen=True)
class Cumulative:
    """Running combinations along `axis`, from its end if `reverse` (parameters): add, mul, max, min or logaddexp."""

    op: str


@dataclass(frozen=True)
class Library:
    """A library routine: `dot_general`."""

    kind: str


@dataclass(frozen=True)
class Inline:
    """Run the Jaxpr held in parameter `param` in place of the equation.

    apart: `(params) -> bool`, whether to compute again what has been computed before the equation instead of
    keeping it until here.
    """

    param: str
    apart: Callable[[dict[str, Any]], bool] | None = None

    def is_apart(self, params: dict[str, Any]) -> bool:
        return self.apart is not None and self.apart(params)


@dataclass(frozen=True)
class HostCall:
    """`fun(*numpy arrays, **params) -> array or list of arrays`, called with the GIL held.

    >>> from mpijax.extend import core, lowering
    >>> rule = lowering.HostCall(np.sort)
    >>> p = core.Primitive("sorted_on_the_host", type_rule=lambda x: x, reference=np.sort, lower=rule)
    >>> mpijax.jit(p.bind)(jnp.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    """

    fun: Callable


class Exchange(Enum):
    """What ranks do together; the values are MPI's names, where it has one."""

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
    PERMUTE = "permute"  # each rank sends to one at most, and receives from one at most
    POSITION = "position"  # this rank's number; nothing is sent


@dataclass(frozen=True)
class Communication:
    """An exchange with other ranks: over axes of a mesh, or on a communicator.

    operation: of a reduction over mesh axes, "sum", "max", "min" ...; on a communicator a parameter names it.
    counted: operands hold how many rows each rank sends or receives; they are read when the exchange runs.
    on_communicator: parameter `comm` says which ranks; otherwise parameters name axes of the mesh.
    """

    exchange: Exchange
    operation: str | None = None
    counted: bool = False
    on_communicator: bool = False

    @property
    def name(self) -> str:
        """What reports call it: `allreduce_sum`, `alltoallv`."""
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
    """How the elements of a result lie in memory beside those of the operand which they are.

    >>> from mpijax.extend import lowering
    >>> [kind.name for kind in lowering.ViewKind]
    ['SAME', 'REGROUPED', 'STRIDED', 'REPEATED', 'REVERSED']
    """

    SAME = auto()  # as they do; only axes of size 1 come or go
    REGROUPED = auto()  # as they do, with other axes
    STRIDED = auto()  # from element to element of each axis another stride
    REPEATED = auto()  # each several times
    REVERSED = auto()  # in another direction


class Writes(Enum):
    """How loops write a result part by part, with parameters and operands of the `lax` primitive of that name."""

    CONCATENATE = auto()
    PAD = auto()
    WINDOW = auto()  # `compiler.graph.normalize.static_update_p`
    DYNAMIC_UPDATE_SLICE = auto()
    SCATTER = auto()


@dataclass(frozen=True)
class Window:
    """The only window that an operation reads or writes, where that is known when compiling.

    start: its first element in the first operand; None where nothing is written. sizes: of the window, an entry for
    each axis of that operand. new: number of the operand that is written there.
    """

    start: tuple[int, ...] | None
    sizes: tuple[int, ...]
    new: int = 1


@dataclass(frozen=True)
class Structural:
    """Moves elements without rounding: views, slices, pads, gathers, scatters, iota, random bits.

    read: an index map (`core.index_maps`), by which an element of the result is computed where it is read. None where
      elements depend on too many others: then the result is written part by part.
    view: given if every element is one of the operand's, at a position known when compiling.
    cost: of computing an element once more, in additions.
    words: whether `read` sees PRNG keys as their uint32 words, with one more axis.
    writes: how parts of the result are written.
    window: `(params, shapes of the operands, known) -> Window or None`, where `known(k)` is what operand k holds, or
      None. Given if there may be one window only; the operation then is a slice, or writes one part.
    combine: the primitive that merges what is written with what is there.

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
    combine: str | None = None

    @property
    def in_place(self) -> bool:
        """Whether the result starts as a copy of the first operand, and parts of it are written."""
        return self.writes in (Writes.WINDOW, Writes.DYNAMIC_UPDATE_SLICE, Writes.SCATTER)

    @property
    def in_pieces(self) -> bool:
        """Whether elements of the result are those of different operands, by their position."""
        return self.writes in (Writes.CONCATENATE, Writes.PAD, Writes.WINDOW)


@dataclass(frozen=True)
class Partitioned:
    """The Jaxpr in a parameter, run by every rank on its shards: `shard_map`."""

    param: str


@dataclass(frozen=True)
class Layout:
    """The operand, laid out over devices by the sharding in parameter `param`.

    kind: "constraint": the same array; "move": the same, which may go to other devices; "from_local": each rank's array
    is its shard of the result; "to_local": the result is this rank's shard; "inspect": no result, the parameter is a
    function, which is called with the sharding.
    """

    param: str
    kind: str = "constraint"


class Flow(Enum):
    """Which loop or branch: its Jaxprs are in the parameters of JAX's primitive of that name."""

    COND = auto()
    WHILE = auto()
    SCAN = auto()


@dataclass(frozen=True)
class ControlFlow:
    """A loop or branch over Jaxprs in parameters.

    written_out: whether, by its parameters, `turns` (operands, then parameters) takes the place of a loop.
    """

    kind: Flow
    written_out: Callable[[dict[str, Any]], bool] | None = None
    turns: Callable[..., Any] | None = None


class NativeCode(Protocol):
    """Machine code and what it is called with.

    The function is `void f(void **buffers, const int64_t *words)`. buffers: operands, results, and
    `STATUS_BYTES` bytes that begin with an int32, which is 0 before the call and not 0 after one that failed.

    >>> [name for name in ("address", "failed") if hasattr(mpijax.extend.lowering.NativeCode, name)]
    ['address', 'failed']
    """

    @property
    def words(self) -> tuple[int, ...]:
        """What the function gets as its `words`."""

    @property
    def label(self) -> str:
        """What the program's text calls it."""

    def address(self) -> int:
        """Where the function is; asked for when the program is loaded."""

    def failed(self, *arrays: Any) -> Any:
        """Raise what a failed call means; gets the operands and the status bytes as ndarrays."""


STATUS_BYTES = 256


@dataclass(frozen=True)
class Native:
    """Machine code that the user brings: `code(operand types, result types, **params) -> NativeCode`.

    aliases: the parameter with pairs (operand, result): the result begins with the operand's bytes, and is passed in
    the operand's place too.
    symmetrizes: a parameter that has the code take (x + x^T) / 2 of its first operand, real matrices.
    triangular: the first result, matrices, has zeros above the diagonal.
    foreign: the code sees denormals, as the process does outside of programs; otherwise they are zero to it.

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
    foreign: bool = True

    def aliased(self, params: dict[str, Any]) -> tuple[tuple[int, int], ...]:
        return params[self.aliases] if self.aliases else ()
