"""Random programs, and what they mean: the NumPy references of a Jaxpr's primitives.

A program is a list of operations on earlier values, drawn from a seed. Values that went through a rounding
operation are `rough`: those are never compared, converted to integers or searched, where a last bit would
become a different result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import mpijax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.core.programs.jaxpr import Literal
from mpijax.core.rules.lowering import InlineJaxpr

SHAPES = [
    (), (1,), (7,), (33,), (65,), (0,), (1, 7), (7, 1), (7, 33), (33, 7), (65, 33), (3, 0), (2, 7, 3),
    (5, 1, 9), (4, 3, 8, 5), (16, 16), (40, 36), (128,), (2, 33, 34), (1, 1),
]  # fmt: skip
FLOATS = ("float32", "bfloat16", "float16", "float64")
INTEGERS = ("int32", "uint8", "int8", "uint32")
# Narrower indices cannot tell the sizes of all axes, which is an error, as in JAX.
INDEX = ("int32", "uint32")
DTYPES = (
    ("float32",) * 6 + ("int32",) * 3 + ("uint8", "int8", "bool", "bool", "bfloat16", "float16", "complex64")
)
LARGEST = 30_000
# Operations whose results are made of parts; some programs have more of them.
PARTS = ("roll", "stencil", "window", "border", "concatenate", "stack", "static_index")
# What a few rounding operations may be off by, relative to 1 or to the number.
ERROR = {
    "float16": 2e-2,
    "bfloat16": 1e-1,
    "float32": 3e-4,
    "complex64": 3e-4,
    "float64": 1e-9,
    "complex128": 1e-9,
}
ERROR.update(dict.fromkeys((*INTEGERS, "bool", "int64", "uint64"), 0.0))


def reference(closed, args: list[Any]) -> list[np.ndarray]:
    """The results of a Jaxpr by the NumPy reference of each primitive."""
    env: dict[Any, Any] = {}

    def read(atom):
        return np.asarray(atom.val, atom.aval.dtype) if type(atom) is Literal else env[atom]

    env.update(zip(closed.jaxpr.constvars, map(np.asarray, closed.consts), strict=True))
    env.update(zip(closed.jaxpr.invars, map(np.asarray, args), strict=True))
    for eqn in closed.jaxpr.eqns:
        inputs = [read(v) for v in eqn.invars]
        lower = eqn.primitive.lower
        if isinstance(lower, InlineJaxpr):
            outs = reference(eqn.params[lower.param], inputs)
        else:
            outs = eqn.primitive.reference(*inputs, **eqn.params)
            outs = outs if eqn.primitive.multiple_results else [outs]
        for v, x in zip(eqn.outvars, outs, strict=True):
            x = np.asarray(x)
            assert x.shape == v.aval.shape, (eqn, x.shape)
            env[v] = x.astype(v.aval.dtype)
    return [read(v) for v in closed.jaxpr.outvars]


def array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Small multiples of 1/4, so that short sums are exact; complex numbers with both parts."""
    x = rng.integers(-12, 13, shape)
    if dtype == "bool":
        return np.asarray(x > 0)
    if dtype in INTEGERS:
        return np.asarray(x).astype(dtype)
    values = np.asarray(x * 0.25)
    if dtype == "complex64":
        values = values + 1j * rng.integers(-8, 9, shape) * 0.5
    return np.asarray(values).astype(jnp.dtype(dtype))


@dataclass
class Value:
    """A value of the program: its type, and how far it may be from the reference (0: equal)."""

    shape: tuple[int, ...]
    dtype: str
    rough: float = 0.0

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def floating(self) -> bool:
        return self.dtype in FLOATS

    @property
    def inexact(self) -> bool:
        return self.floating or self.dtype == "complex64"


@dataclass
class Step:
    """`fun(*operands)`, appended to the values."""

    fun: Any
    operands: tuple[int, ...]
    label: str


@dataclass
class Program:
    """What a seed gives: inputs, steps, which values are results."""

    inputs: list[np.ndarray]
    steps: list[Step] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    def __call__(self, *args):
        values = list(args)
        for step in self.steps:
            values.append(step.fun(*(values[k] for k in step.operands)))
        return [values[k] for k in self.results]

    @property
    def reordered(self) -> bool:
        """Whether any result depends on the order in which floats are summed."""
        return any(s.label.startswith("~") for s in self.steps)

    def text(self) -> str:
        n = len(self.inputs)
        lines = [f"v{i} = {v.dtype}{list(v.shape)}" for i, v in enumerate(self.values[:n])]
        for i, s in enumerate(self.steps):
            v = self.values[n + i]
            lines.append(
                f"v{n + i} = {s.label}({', '.join(f'v{k}' for k in s.operands)})  {v.dtype}{list(v.shape)}"
            )
        return "\n".join([*lines, f"return {self.results}"])


class Maker:
    """Draws a program."""

    def __init__(self, seed: int, length: int = 12, x64: bool = False, parts: bool = False):
        self.rng = np.random.default_rng(seed)
        self.x64 = x64
        count = self.rng.integers(1, 5)
        shape = self.shape()
        self.program = Program([])
        for _ in range(count):
            if self.rng.random() < 0.4:
                shape = self.shape()
            dtype = self.pick(DTYPES if not x64 else (*DTYPES, *("float64",) * 6))
            self.program.inputs.append(array(self.rng, shape, dtype))
            self.program.values.append(Value(shape, dtype))
        kinds = [getattr(self, n) for n in sorted(dir(self)) if n.startswith("make_")]
        if parts:
            kinds += 5 * [getattr(self, f"make_{n}") for n in PARTS]
        while len(self.program.steps) < length:
            self.pick(kinds)()
        n = len(self.program.values)
        results = sorted({int(k) for k in self.rng.integers(0, n, self.rng.integers(1, 4))} | {n - 1})
        if self.rng.random() < 0.2:
            results.append(results[0])
        self.program.results = results

    # ------------------------------------------------------------ drawing

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def shape(self):
        return self.pick(SHAPES)

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def value(self, accept=lambda v: True) -> int | None:
        """A value, the last ones rather than the first."""
        found = [i for i, v in enumerate(self.program.values) if accept(v)]
        if not found:
            return None
        return found[-1 - min(int(self.rng.exponential(2.5)), len(found) - 1)]

    def of(self, k: int) -> Value:
        return self.program.values[k]

    def add(self, label: str, fun, *operands: int | None, rough: bool = False) -> None:
        """Append a step if its operands exist and its result is not too large."""
        if any(k is None for k in operands):
            return
        args = [mpijax.ShapeDtypeStruct(self.of(k).shape, jnp.dtype(self.of(k).dtype)) for k in operands]
        out = mpijax.eval_shape(fun, *args)
        v = Value(out.shape, out.dtype.name)
        if v.size > LARGEST:
            return
        if v.inexact and (rough or any(self.of(k).rough for k in operands)):
            v.rough = max(
                [
                    ERROR[v.dtype],
                    *(ERROR[self.of(k).dtype] for k in operands if rough),
                    *(self.of(k).rough for k in operands),
                ]
            )
        self.program.steps.append(Step(fun, operands, label))
        self.program.values.append(v)

    def axes_of(self, v: Value) -> tuple[int, ...]:
        n = len(v.shape)
        return tuple(sorted(self.rng.permutation(n)[: self.number(0, n + 1)].tolist()))

    # ------------------------------------------------------------ element by element

    def make_unary(self):
        name = self.pick(
            ["neg", "abs", "sign", "square", "sin", "tanh", "exp", "floor", "sqrt", "not", "logistic"]
        )
        exact = name in ("neg", "abs", "sign", "floor", "not")
        if name == "not":
            k = self.value(lambda v: not v.inexact)
        elif name in ("floor", "sign"):
            k = self.value(lambda v: v.floating and not v.rough)
        elif exact or name == "square":
            k = self.value(lambda v: v.dtype not in ("bool", "complex64"))
        else:
            k = self.value(lambda v: v.floating)
        fun = jnp.abs if name == "abs" else getattr(lax, {"not": "bitwise_not"}.get(name, name))
        if name in ("exp", "square"):
            bound = jnp.tanh if k is not None and self.of(k).floating else (lambda x: x)
            self.add(name, lambda x: fun(bound(x)), k, rough=True)
        elif name == "sqrt":
            self.add(name, lambda x: fun(jnp.abs(x)), k, rough=True)
        else:
            self.add(name, fun, k, rough=not exact)

    def make_binary(self):
        a = self.value()
        b = self.value(lambda v: _broadcasts(v.shape, self.of(a).shape))
        name = self.pick(["add", "subtract", "multiply", "maximum", "minimum", "add"])
        if self.of(a).dtype == "bool" == self.of(b).dtype:
            name = "logical_xor"
        if "complex64" in (self.of(a).dtype, self.of(b).dtype) and name in ("maximum", "minimum"):
            name = "multiply"
        fun = getattr(jnp, name)
        if name == "multiply":
            # NumPy fuses the products of complex numbers where the machine can.
            rough = "complex64" in (self.of(a).dtype, self.of(b).dtype)
            self.add(
                name,
                lambda x, y: fun(x, y) * 0.125 if rough or jnp.issubdtype(x.dtype, np.inexact) else fun(x, y),
                a,
                b,
                rough=rough,
            )
        else:
            self.add(name, fun, a, b)

    def make_scalar_operand(self):
        k = self.value(lambda v: v.dtype != "bool")
        c = self.pick([1, 2, -1 if k is not None and not self.of(k).dtype.startswith("u") else 3])
        self.add(f"+ {c}", lambda x: x + c, k)

    def make_compare(self):
        a = self.value(lambda v: not v.rough and v.dtype != "complex64")
        b = (
            None
            if a is None
            else self.value(
                lambda v: _broadcasts(v.shape, self.of(a).shape) and not v.rough and v.dtype != "complex64"
            )
        )
        self.add("less", self.pick([jnp.less, jnp.greater_equal, jnp.equal]), a, b)

    def make_where(self):
        c = self.value(lambda v: v.dtype == "bool")
        a = self.value()
        if c is None or not _broadcasts(self.of(c).shape, self.of(a).shape):
            return
        self.add("where", lambda c, x: jnp.where(c, x, jnp.zeros((), x.dtype)), c, a)

    def make_cast(self):
        k = self.value(lambda v: not v.rough)
        if k is None:
            return
        options = [d for d in DTYPES if d != "complex64"] + ["float64"] * self.x64
        if self.of(k).dtype == "complex64":
            self.add("real", jnp.real, k)
            return
        dtype = jnp.dtype(self.pick(options))
        if self.of(k).inexact and dtype.name in INTEGERS:
            # What becomes of a number that does not fit is not defined.
            self.add("cast", lambda x: jnp.clip(x, 0, 100).astype(dtype), k)
        else:
            self.add(f"cast {dtype}", lambda x: x.astype(dtype), k)

    # ------------------------------------------------------------ moving elements

    def make_broadcast(self):
        k = self.value(lambda v: v.size < 2000)
        n = self.pick([1, 2, 7, 33])
        self.add(
            "broadcast",
            self.pick(
                [
                    lambda x: jnp.broadcast_to(x, (n, *x.shape)),
                    lambda x: jnp.broadcast_to(x[..., None], (*x.shape, n)),
                ]
            ),
            k,
        )

    def make_transpose(self):
        k = self.value(lambda v: len(v.shape) > 1)
        if k is not None:
            order = tuple(self.rng.permutation(len(self.of(k).shape)).tolist())
            self.add(f"transpose {order}", lambda x: jnp.transpose(x, order), k)

    def make_reshape(self):
        k = self.value(lambda v: v.size > 0)
        if k is None:
            return
        v = self.of(k)
        primes = _primes(v.size)
        self.rng.shuffle(primes)
        new: list[int] = []
        for p in primes:
            if new and (self.rng.random() < 0.4 or len(new) > 3):
                new[-1] *= p
            else:
                new.append(int(p))
        if self.rng.random() < 0.3:
            new.insert(self.number(0, len(new) + 1), 1)
        self.add(f"reshape {new}", lambda x: jnp.reshape(x, tuple(new)), k)

    def make_ravel(self):
        self.add("ravel", jnp.ravel, self.value())

    def make_slice(self):
        k = self.value(lambda v: v.shape != ())
        if k is None:
            return
        index = []
        for d in self.of(k).shape:
            start, step = self.number(0, d + 1), self.pick([1, 1, 2, 3, -1])
            stop = self.number(start, d + 1)
            index.append(
                slice(None)
                if self.rng.random() < 0.5
                else slice(start, stop, step)
                if step > 0
                else slice(None, None, -1)
            )
        self.add(f"slice {index}", lambda x: x[tuple(index)], k)

    def make_rev(self):
        k = self.value(lambda v: v.shape != ())
        if k is not None:
            axes = self.axes_of(self.of(k))
            self.add(f"rev {axes}", lambda x: lax.rev(x, axes), k)

    def make_pad(self):
        k = self.value()
        config = []
        for d in self.of(k).shape:
            inner = self.pick([0, 0, 1, 2])
            spread = d + max(d - 1, 0) * inner
            low, high = self.number(-3, 4), self.number(-3, 4)
            if spread + low + high < 0:
                low = high = 0
            config.append((low, high, inner))
        self.add(f"pad {config}", lambda x: lax.pad(x, jnp.ones((), x.dtype), config), k)

    def make_concatenate(self):
        a = self.value(lambda v: v.shape != ())
        if a is None:
            return
        axis = self.number(0, len(self.of(a).shape))

        def fits(v):
            s, t = v.shape, self.of(a).shape
            return (
                len(s) == len(t)
                and v.dtype == self.of(a).dtype
                and s[:axis] + s[axis + 1 :] == t[:axis] + t[axis + 1 :]
            )

        b = self.value(fits)
        self.add(f"concatenate {axis}", lambda x, y: lax.concatenate([x, y, x], axis), a, b)

    def make_dynamic_slice(self):
        k = self.value(lambda v: v.shape != ())
        i = self.value(lambda v: v.dtype in INDEX and v.size > 0)
        if k is None or i is None:
            return
        sizes = tuple(self.number(0, d + 1) for d in self.of(k).shape)
        self.add(
            f"dynamic_slice {sizes}", lambda x, i: lax.dynamic_slice(x, (i.ravel()[0],) * x.ndim, sizes), k, i
        )

    def make_dynamic_update(self):
        k = self.value(lambda v: v.shape != ())
        i = self.value(lambda v: v.dtype in INDEX and v.size > 0)
        if k is None or i is None:
            return
        part = tuple(slice(0, self.number(0, d + 1)) for d in self.of(k).shape)
        self.add(
            f"dynamic_update_slice {part}",
            lambda x, i: lax.dynamic_update_slice(x, x[part] + x[part], (i.ravel()[-1],) * x.ndim),
            k, i,
        )  # fmt: skip

    def make_gather(self):
        k = self.value(lambda v: v.shape != () and v.size > 0)
        i = self.value(lambda v: v.dtype in INDEX and v.size < 200)
        mode = self.pick(["fill", "clip", "wrap"])
        if k is not None:
            axis = self.number(0, len(self.of(k).shape))
            self.add(f"take {mode} {axis}", lambda x, i: jnp.take(x, i, axis=axis, mode=mode), k, i)

    def make_scatter(self):
        k = self.value(lambda v: v.shape != () and v.dtype != "bool")
        i = self.value(lambda v: v.dtype in INDEX and len(v.shape) == 1)
        how = self.pick(["set", "add", "max", "min", "multiply"])
        if k is None or (self.of(k).dtype == "complex64" and how in ("max", "min")):
            return
        rough = how in ("add", "multiply") and self.of(k).inexact
        self.add(
            ("~" if rough else "") + f"at {how}", lambda x, i: getattr(x.at[i], how)(2), k, i, rough=rough
        )

    def make_static_update(self):
        k = self.value(lambda v: len(v.shape) > 0 and min(v.shape) > 2)
        if k is not None:
            index = (slice(1, -1),) * len(self.of(k).shape)
            self.add("at interior", lambda x: x.at[index].set(-x[index] if x.dtype != bool else ~x[index]), k)

    def make_roll(self):
        k = self.value(lambda v: v.shape != () and v.dtype != "bool")
        if k is not None:
            axes = self.axes_of(self.of(k))
            shifts = tuple(self.number(-3, 4) for _ in axes)
            self.add(f"- roll {shifts} {axes}", lambda x: x - jnp.roll(x, shifts, axes), k)

    def make_border(self):
        k = self.value()
        config = [(self.number(-1, 3), self.number(-1, 3), 0) if d > 1 else (0, 1, 0) for d in self.of(k).shape]
        self.add(f"border {config}", lambda x: lax.pad(x, jnp.zeros((), x.dtype), config), k)

    def make_stencil(self):
        k = self.value(lambda v: v.shape != () and min(v.shape) > 1 and v.dtype != "bool")
        if k is None:
            return
        mode = self.pick(["constant", "constant", "edge", "wrap", "reflect"])
        offsets = [tuple(self.number(0, 3) for _ in self.of(k).shape) for _ in range(self.number(2, 6))]

        def fun(x):
            p = jnp.pad(x, 1, mode=mode)
            shifted = [p[tuple(slice(o, o + d) for o, d in zip(at, x.shape, strict=True))] for at in offsets]
            return sum(shifted[1:], x) - shifted[0]

        self.add(f"stencil {mode} {offsets}", fun, k)

    def make_window(self):
        k = self.value(lambda v: v.shape != () and v.size > 0)
        if k is None:
            return
        how = self.pick(["set", "set", "add", "max", "multiply"])
        v = self.of(k)
        if how != "set" and v.dtype in ("bool", "complex64"):
            how = "set"
        index: list = []
        for d in v.shape:
            low = self.number(0, d)
            index.append(self.pick([slice(None), slice(low, self.number(low, d) + 1), low, low - d]))
        index = index[: self.number(1, len(index) + 1)]
        other = self.value(lambda w: w.dtype == v.dtype and w.size > 0)

        def fun(x, y):
            new = jnp.ravel(y)[0] if len(offset) == 0 else x[offset] * 2 if x.dtype != bool else ~x[offset]
            return getattr(x.at[tuple(index)], how)(new)

        offset: tuple = ()
        if self.rng.random() < 0.5:
            # The window's new value are those of another window of the same shape, where there is one.
            offset = tuple(
                slice(i.start - 1, i.stop - 1) if isinstance(i, slice) and i.start else i for i in index
            )
        self.add(f"at {index} {how} {offset}", fun, k, other)

    def make_stack(self):
        k = self.value(lambda v: v.size < 5000)
        if k is not None:
            axis = self.number(0, len(self.of(k).shape) + 1)
            self.add(f"stack {axis}", lambda x: jnp.stack([x, x * 2 if x.dtype != bool else ~x, x], axis), k)

    def make_static_index(self):
        k = self.value(lambda v: v.shape != () and v.size > 0)
        if k is None:
            return
        shape = self.of(k).shape
        starts = [self.number(-2, d + 2) for d in shape]
        sizes = tuple(self.number(1, d + 1) for d in shape)
        at = [self.number(-3, shape[0] + 3)]
        self.add(
            f"static {starts} {sizes} {at}",
            self.pick(
                [
                    lambda x: lax.dynamic_slice(x, starts, sizes),
                    lambda x: lax.dynamic_update_slice(x, lax.slice(x, (0,) * x.ndim, sizes), starts),
                    lambda x: jnp.take(x, jnp.array(at), axis=0),
                    lambda x: x.at[jnp.array(at)].set(x[0]),
                ]
            ),
            k,
        )

    def make_iota(self):
        k = self.value(lambda v: v.shape != () and v.dtype not in ("bool", "complex64", "int8", "uint8"))
        if k is not None:
            axis = self.number(0, len(self.of(k).shape))
            self.add(f"+ iota {axis}", lambda x: x + lax.broadcasted_iota(x.dtype, x.shape, axis), k)

    # ------------------------------------------------------------ reductions

    def make_sum(self):
        k = self.value()
        axes = self.axes_of(self.of(k))
        rough = self.of(k).inexact
        scale = 1.0 / max(1, math.prod(self.of(k).shape[a] for a in axes)) if rough else 1
        keep = bool(self.rng.random() < 0.5)
        label = ("~" if rough else "") + f"sum {axes}"
        self.add(
            label,
            lambda x: (
                jnp.sum(x, axis=axes, keepdims=keep) * scale
                if rough
                else jnp.sum(x, axis=axes, keepdims=keep)
            ),
            k,
            rough=rough,
        )

    def make_max(self):
        k = self.value(lambda v: v.size > 0 and v.dtype != "complex64")
        if k is not None:
            axes = self.axes_of(self.of(k))
            fun = self.pick([jnp.max, jnp.min])
            keep = bool(self.rng.random() < 0.5)
            self.add(f"{fun.__name__} {axes}", lambda x: fun(x, axis=axes, keepdims=keep), k)

    def make_center(self):
        k = self.value(lambda v: v.shape != () and v.size > 0 and v.floating)
        if k is not None:
            axis = self.number(0, len(self.of(k).shape))
            self.add(
                f"~center {axis}",
                lambda x: (lambda y: y * y)(jnp.tanh(x - jnp.mean(x, axis=axis, keepdims=True))),
                k,
                rough=True,
            )

    def make_softmax(self):
        k = self.value(lambda v: v.shape != () and v.size > 0 and v.floating)
        if k is not None:
            axis = self.number(0, len(self.of(k).shape))
            self.add(f"~softmax {axis}", lambda x: mpijax.nn.softmax(x, axis=axis), k, rough=True)

    def make_argmax(self):
        k = self.value(lambda v: v.size > 0 and not v.rough and v.shape != () and v.dtype != "complex64")
        if k is not None:
            axis = self.number(0, len(self.of(k).shape))
            self.add(f"argmax {axis}", lambda x: jnp.argmax(x, axis=axis), k)

    def make_any(self):
        k = self.value(lambda v: v.dtype == "bool")
        if k is not None:
            axes = self.axes_of(self.of(k))
            self.add(f"any {axes}", lambda x: jnp.any(x, axis=axes) | jnp.all(x, axis=axes), k)

    def make_cumsum(self):
        k = self.value(
            lambda v: v.shape != () and v.dtype not in ("bool", "uint8", "int8", "float16", "bfloat16")
        )
        if k is not None:
            axis = self.number(0, len(self.of(k).shape))
            rough = self.of(k).inexact
            self.add(
                ("~" if rough else "") + f"cumsum {axis}", lambda x: lax.cumsum(x, axis=axis), k, rough=rough
            )

    # ------------------------------------------------------------ products

    def make_matmul(self):
        a = self.value(lambda v: len(v.shape) >= 2 and v.dtype not in ("uint8", "int8"))
        if a is None:
            return
        rough = self.of(a).inexact
        scale = 1.0 / max(self.of(a).shape[-1], 1)
        sort = self.pick(["gram", "gram_t", "outer", "batch"])

        def fun(x):
            y = jnp.swapaxes(x, -1, -2)
            if sort == "gram":
                out = x @ y
            elif sort == "gram_t":
                out = y @ x
            elif sort == "outer":
                out = jnp.tensordot(x, x, axes=((-1,), (-1,)))
            else:
                out = jnp.einsum("...ij,...kj->...ki", x, x + x)
            return out * scale if rough else out

        self.add(("~" if rough else "") + sort, fun, a, rough=rough)

    def make_product(self):
        a = self.value(lambda v: v.shape != () and v.dtype == "float32")
        b = (
            None
            if a is None
            else self.value(
                lambda v: v.shape != () and v.dtype == "float32" and v.shape[0] == self.of(a).shape[-1]
            )
        )
        if b is not None:
            scale = 1.0 / max(self.of(a).shape[-1], 1)
            self.add("~tensordot", lambda x, y: jnp.tensordot(x, y, axes=1) * scale, a, b, rough=True)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def _primes(n: int) -> list[int]:
    found, p = [], 2
    while n > 1:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return found
