"""For each sharding rule, operations that use it: a function draws operands and parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

import mpijax as jax
from mpijax import lax
from mpijax.core.dtypes.extended import ExtendedDType, extended
from mpijax.ops.random.keys import threefry_prng_impl

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 12)


@dataclass(frozen=True)
class Use:
    """An operation to be done. key_axes: for each operand and result, how many last axes are the words of a key."""

    arrays: list[np.ndarray]
    params: dict[str, Any] = field(default_factory=dict)
    key_axes: tuple[int, ...] = ()


def shape(rng, ndim: int | None = None, smallest: int = 1) -> tuple[int, ...]:
    ndim = int(rng.integers(1, 4)) if ndim is None else ndim
    return tuple(max(smallest, int(rng.choice(SIZES))) for _ in range(ndim))


def floats(rng, *dims: int) -> np.ndarray:
    return rng.uniform(-2, 2, dims).astype(np.float32)


def ints(rng, *dims: int) -> np.ndarray:
    return rng.integers(0, 8, dims).astype(np.int32)


def axis_of(rng, dims) -> int:
    return int(rng.integers(len(dims)))


def params_of(name: str, fun: Callable, *arrays) -> dict[str, Any]:
    """The parameters with which a function uses a primitive."""
    jaxpr = jax.make_jaxpr(fun)(*arrays)
    return dict(next(e.params for e in jaxpr.eqns if e.primitive.key == name))


# ---------------------------------------------------------------- element by element, reductions, products


def add(rng) -> Use:
    s = shape(rng)
    return Use([floats(rng, *s), floats(rng, *(1 if rng.random() < 0.2 else n for n in s))])


def clamp(rng) -> Use:
    s = shape(rng)
    return Use([np.float32(-1), floats(rng, *s), np.asarray(np.float32(1))])


def shard_alike(rng) -> Use:
    s = shape(rng)
    return Use([floats(rng, *s), floats(rng, *s)])


def select_n(rng) -> Use:
    s = shape(rng)
    return Use([rng.random(s) < 0.5, floats(rng, *s), floats(rng, *s)])


def reduction(draw: Callable) -> Callable:
    def use(rng) -> Use:
        s = shape(rng)
        axes = tuple(sorted(int(a) for a in rng.permutation(len(s))[: rng.integers(1, len(s) + 1)]))
        return Use([draw(rng, *s)], {"axes": axes})

    return use


def reduction_of_collective(rng):
    use = reduction(floats)(rng)
    return Use(use.arrays, {"axes": use.params["axes"], "axis_index_groups": None})


def cumulative(rng) -> Use:
    s = shape(rng)
    return Use([floats(rng, *s)], {"axis": axis_of(rng, s), "reverse": bool(rng.random() < 0.5)})


def dot_general(rng) -> Use:
    batch, contracted = shape(rng, int(rng.integers(0, 2))), shape(rng, int(rng.integers(0, 3)))
    rows, columns = shape(rng, int(rng.integers(0, 2))), shape(rng, int(rng.integers(0, 2)))
    places, sizes = [], []
    for free in (rows, columns):
        dims = [*batch, *contracted, *free]
        order = [int(k) for k in rng.permutation(len(dims))]
        at = [order.index(k) for k in range(len(dims))]
        places.append((at[: len(batch)], at[len(batch) : len(batch) + len(contracted)]))
        sizes.append([dims[k] for k in order])
    (lb, lc), (rb, rc) = places
    x, y = (floats(rng, *s) for s in sizes)
    return Use([x, y], params_of("dot_general", lambda x, y: lax.dot_general(x, y, ((lc, rc), (lb, rb))), x, y))


# ---------------------------------------------------------------- moving elements


def transpose(rng) -> Use:
    s = shape(rng)
    return Use([floats(rng, *s)], {"permutation": tuple(int(k) for k in rng.permutation(len(s)))})


def broadcast_in_dim(rng) -> Use:
    s = shape(rng)
    out = [int(rng.choice(SIZES)) for _ in range(len(s) + int(rng.integers(0, 2)))]
    dims = tuple(sorted(int(k) for k in rng.permutation(len(out))[: len(s)]))
    for n, d in zip(s, dims, strict=True):
        out[d] = n if n > 1 else out[d]
    return Use([floats(rng, *s)], {"shape": tuple(out), "broadcast_dimensions": dims, "sharding": None})


def tile(rng) -> Use:
    s = shape(rng)
    reps = [1] * len(s)
    reps[axis_of(rng, s)] = int(rng.choice((1, 2, 3, 4, 7, 9)))
    return Use([floats(rng, *s)], {"reps": tuple(reps)})


def squeeze(rng) -> Use:
    s = list(shape(rng))
    gone = axis_of(rng, s)
    s[gone] = 1
    return Use([floats(rng, *s)], {"dimensions": (gone,)})


def reshape(rng) -> Use:
    a, b, c = (int(rng.choice((1, 2, 3, 4, 6))) for _ in range(3))
    forms = [(a, b, c), (a * b, c), (a, b * c), (a * b * c,), (c, b, a), (b * c, a), (a, 1, b * c)]
    old, new = (forms[int(k)] for k in rng.integers(0, len(forms), 2))
    return Use([floats(rng, *old)], {"new_sizes": new, "dimensions": None, "sharding": None})


def slice_(rng) -> Use:
    s = shape(rng)
    starts = tuple(int(rng.integers(0, n)) if rng.random() < 0.7 else 0 for n in s)
    limits = tuple(int(rng.integers(a, n + 1)) if rng.random() < 0.7 else n for a, n in zip(starts, s, strict=True))
    strides = tuple(int(rng.integers(1, 4)) for _ in s) if rng.random() < 0.5 else None
    return Use([floats(rng, *s)], {"start_indices": starts, "limit_indices": limits, "strides": strides})


def pad(rng) -> Use:
    s = shape(rng)
    config = []
    for n in s:
        between = int(rng.integers(0, 3))
        total = (n - 1) * (between + 1) + 1
        low = int(rng.integers(-min(2, total // 2), 4))
        high = int(rng.integers(-min(2, (total + low) // 2), 4))
        config.append((low, high, between) if rng.random() < 0.8 else (0, 0, 0))
    return Use([floats(rng, *s), np.float32(5)], {"padding_config": tuple(config)})


def rev(rng) -> Use:
    s = shape(rng)
    return Use([floats(rng, *s)], {"dimensions": tuple(sorted({axis_of(rng, s), axis_of(rng, s)}))})


def concatenate(rng) -> Use:
    s = shape(rng)
    dim = axis_of(rng, s)
    pieces = [(*s[:dim], int(rng.choice(SIZES)), *s[dim + 1 :]) for _ in range(rng.integers(1, 4))]
    return Use([floats(rng, *p) for p in pieces], {"dimension": dim})


def _windows(rng, s) -> tuple[int, ...]:
    return tuple(n if rng.random() < 0.5 else int(rng.integers(1, n + 1)) for n in s)


def dynamic_slice(rng) -> Use:
    s = shape(rng)
    sizes = _windows(rng, s)
    starts = [np.int32(rng.integers(0, n - m + 1)) for n, m in zip(s, sizes, strict=True)]
    x = floats(rng, *s)
    return Use([x, *starts], params_of("dynamic_slice", lambda x, *at: lax.dynamic_slice(x, at, sizes), x, *starts))


def dynamic_update_slice(rng) -> Use:
    s = shape(rng)
    sizes = _windows(rng, s)
    starts = [np.int32(rng.integers(0, n - m + 1)) for n, m in zip(s, sizes, strict=True)]
    return Use([floats(rng, *s), floats(rng, *sizes), *starts])


def static_update(rng) -> Use:
    s = shape(rng)
    sizes = _windows(rng, s)
    start = tuple(int(rng.integers(0, n - m + 1)) for n, m in zip(s, sizes, strict=True))
    return Use([floats(rng, *s), floats(rng, *sizes)], {"start": start})


# ---------------------------------------------------------------- largest elements, places, windowed maxima


def top_k(rng) -> Use:
    s = shape(rng, smallest=2)
    x = floats(rng, *s)
    return Use([x], params_of("top_k", lambda x: lax.top_k(x, 2), x))


def searchsorted(rng) -> Use:
    row, values = np.sort(floats(rng, *shape(rng, 1))), floats(rng, *shape(rng))
    return Use([row, values], {"side": ("left", "right")[rng.integers(2)], "dtype": np.dtype(np.int32)})


def _pooled(x):
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 1), "VALID")


def select_and_scatter_add(rng) -> Use:
    x = floats(rng, *shape(rng, 2, 2))
    pulled = lambda x: jax.grad(lambda x: _pooled(x).sum())(x)
    return Use([np.asarray(_pooled(x)), x], params_of("select_and_scatter_add", pulled, x))


def select_and_gather_add(rng) -> Use:
    x = floats(rng, *shape(rng, 2, 2))
    pushed = lambda x, t: jax.jvp(_pooled, (x,), (t,))[1]
    return Use([floats(rng, *x.shape), x], params_of("select_and_gather_add", pushed, x, x))


# ---------------------------------------------------------------- gather and scatter


def _mode(rng) -> str:
    return str(rng.choice(["clip", "fill"]))


def gather(rng) -> Use:
    """Rows at indices; along operands that run together with the indices; or windows."""
    n, m, k, b = (int(rng.choice(SIZES)) for _ in range(4))
    kind, mode = int(rng.integers(3)), _mode(rng)
    index = rng.integers(-1, n + 1, (b, k, 1)).astype(np.int32)
    if kind == 0:
        x, numbers, sizes = floats(rng, n, m), lax.GatherDimensionNumbers((2,), (0,), (0,)), (1, m)
    elif kind == 1:
        x, sizes = floats(rng, b, n, m), (1, 1, m)
        numbers = lax.GatherDimensionNumbers((2,), (1,), (1,), (0,), (0,))
    else:
        x, sizes = floats(rng, m, n), (m, int(rng.integers(1, n + 1)))
        numbers = lax.GatherDimensionNumbers((1, 3), (), (1,))
    fun = lambda x, i: lax.gather(x, i, numbers, sizes, mode=mode)
    return Use([x, index], params_of("gather", fun, x, index))


def scatter(name: str) -> Callable:
    def use(rng) -> Use:
        n, m, k, b = (int(rng.choice(SIZES)) for _ in range(4))
        together, mode = rng.random() < 0.5, _mode(rng)
        if name == "scatter":  # at repeated positions any update may win
            k, mode = min(k, n), "fill"
            index = np.stack([rng.permutation(n)[:k] for _ in range(b)])[..., None].astype(np.int32)
        else:
            index = rng.integers(-1, n + 1, (b, k, 1)).astype(np.int32)
        if together:
            x, numbers = floats(rng, b, n, m), lax.ScatterDimensionNumbers((2,), (1,), (1,), (0,), (0,))
        else:
            index = index[:1] if name == "scatter" else index
            x, numbers = floats(rng, n, m), lax.ScatterDimensionNumbers((2,), (0,), (0,))
        new = floats(rng, *index.shape[:2], m)
        call = getattr(lax, name.replace("-", "_"))
        fun = lambda x, i, u: call(x, i, u, numbers, mode=mode)
        return Use([x, index, new], params_of(name, fun, x, index, new))

    return use


def sort(rng) -> Use:
    s = shape(rng)
    x = [np.round(floats(rng, *s)), floats(rng, *s)][: rng.integers(1, 3)]
    return Use(x, {"dimension": axis_of(rng, s), "is_stable": True, "num_keys": 1})


# ---------------------------------------------------------------- loops


def scan(rng) -> Use:
    n, m = int(rng.choice(SIZES)), int(rng.choice(SIZES))
    x, carried, reverse = floats(rng, n, m), rng.random() < 0.3, bool(rng.random() < 0.5)
    body = (lambda c, row: (c + row, c)) if carried else (lambda c, row: (c, 2 * row))
    first = np.zeros(m, np.float32) if carried else None
    fun = lambda x: lax.scan(body, first, x, reverse=reverse)
    return Use([first, x] if carried else [x], params_of("scan", fun, x))


# ---------------------------------------------------------------- windows


def reduce_window(kind: str) -> Callable:
    def use(rng) -> Use:
        s = shape(rng)
        window, steps, pads, base, dilations = [], [], [], [], []
        for n in s:
            b = 2 if rng.random() < 0.1 else 1
            size, dilation, low, high = (int(rng.integers(*r)) for r in ((1, 4), (1, 3), (0, 3), (0, 3)))
            if (n - 1) * b + 1 + low + high < (size - 1) * dilation + 1 or rng.random() < 0.2:
                size, low, high = 1, 0, 0
            window.append(size)
            steps.append(int(rng.integers(1, 4)))
            pads.append((low, high))
            base.append(b)
            dilations.append(dilation)
        op, init = {"sum": (lax.add, 0), "max": (lax.max, -np.inf), "min": (lax.min, np.inf)}[kind]
        x = floats(rng, *s)
        fun = lambda x: lax.reduce_window(x, np.float32(init), op, window, steps, pads, base, dilations)
        return Use([x], params_of(f"reduce_window_{kind}", fun, x))

    return use


def conv_general_dilated(rng) -> Use:
    space = int(rng.integers(1, 3))
    groups = 2 if rng.random() < 0.2 else 1
    batches = 2 if groups == 1 and rng.random() < 0.1 else 1
    inputs, outputs = groups * int(rng.integers(1, 4)), groups * batches * int(rng.integers(1, 4))
    size, window = shape(rng, space, 3), tuple(int(rng.integers(1, 4)) for _ in range(space))
    steps, dilation = ([int(k) for k in rng.integers(1, 3, space)] for _ in range(2))
    pads = [(int(a) + 1, int(b) + 1) for a, b in rng.integers(0, 3, (space, 2))]
    base = [2 if rng.random() < 0.1 else 1 for _ in range(space)]
    x = floats(rng, batches * int(rng.choice(SIZES)), inputs, *size)
    w = floats(rng, outputs, inputs // groups, *window)
    fun = lambda x, w: lax.conv_general_dilated(
        x, w, steps, pads, base, dilation, feature_group_count=groups, batch_group_count=batches)
    return Use([x, w], params_of("conv_general_dilated", fun, x, w))


# ---------------------------------------------------------------- keys


def _words(rng, s) -> np.ndarray:
    return rng.integers(0, 1 << 32, (*s, 2), dtype=np.uint32)


class Pair(ExtendedDType):
    """A library's dtype, stored as two uint32."""

    name = "pair"
    type = extended
    _rules = SimpleNamespace(
        physical_element_aval=lambda _: jax.core.ShapedArray((2,), np.uint32), allow_conversion=True
    )


def random_split(rng) -> Use:
    return Use([_words(rng, shape(rng, 1))], {"shape": shape(rng, 1)}, (1, 1))


def random_bits(rng) -> Use:
    return Use([_words(rng, shape(rng, 2))], {"bit_width": 32, "shape": shape(rng, 1)}, (1, 0))


def random_fold_in(rng) -> Use:
    s = shape(rng, 2)
    return Use([_words(rng, s), rng.integers(0, 99, s, dtype=np.uint32)], {}, (1, 0, 1))


def fft(rng) -> Use:
    s = shape(rng)
    return Use([floats(rng, *s).astype(np.complex64)], {"fft_type": lax.FftType.FFT, "fft_lengths": s[-1:]})


TABLE: dict[str, Callable] = {
    "add": add,
    "clamp": clamp,
    "select_n": select_n,
    "shard_alike": shard_alike,
    "reduce_sum": reduction(floats),
    "reduce_prod": reduction(floats),
    "reduce_max": reduction(floats),
    "reduce_min": reduction(floats),
    "reduce_and": reduction(ints),
    "reduce_or": reduction(ints),
    "reduce_xor": reduction(ints),
    **dict.fromkeys(("psum", "pmax", "pmin"), reduction_of_collective),
    "cumsum": cumulative,
    "cumprod": cumulative,
    "cummin": cumulative,
    "cumlogsumexp": cumulative,
    "top_k": top_k,
    "searchsorted": searchsorted,
    "select_and_scatter_add": select_and_scatter_add,
    "select_and_gather_add": select_and_gather_add,
    "cummax": cumulative,
    "dot_general": dot_general,
    "transpose": transpose,
    "broadcast_in_dim": broadcast_in_dim,
    **{name: lambda rng: Use([floats(rng, *shape(rng))], {"axes": ()})
       for name in ("preduced", "pvary", "reduced_vary_cast_p", "vary_unreduced_cast_p")},
    "vary_as": lambda rng: Use([floats(rng, *shape(rng))], {"axes": frozenset()}),
    "stop_gradient": lambda rng: Use([floats(rng, *shape(rng))], {}),
    "squeeze": squeeze,
    "reshape": reshape,
    "tile": tile,
    "slice": slice_,
    "pad": pad,
    "rev": rev,
    "concatenate": concatenate,
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
    **{name: scatter(name) for name in ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")},
    "sort": sort,
    "scan": scan,
    "reduce_window_sum": reduce_window("sum"),
    "reduce_window_max": reduce_window("max"),
    "reduce_window_min": reduce_window("min"),
    "conv_general_dilated": conv_general_dilated,
    "random_seed": lambda rng: Use([ints(rng, *shape(rng))], {"impl": threefry_prng_impl}, (0, 1)),
    "random_wrap": lambda rng: Use([_words(rng, shape(rng))], {"impl": threefry_prng_impl}, (0, 1)),
    "random_unwrap": lambda rng: Use([_words(rng, shape(rng))], {}, (1, 0)),
    "to_edtype": lambda rng: Use([_words(rng, shape(rng))], {"edtype": Pair()}, (0, 1)),
    "from_edtype": lambda rng: Use([_words(rng, shape(rng))], {"dtype": np.dtype(np.uint32)}, (1, 0)),
    "random_clone": lambda rng: Use([_words(rng, shape(rng))], {}, (1, 1)),
    "random_split": random_split,
    "random_bits": random_bits,
    "fold_in_equal_shapes": random_fold_in,
    "fft": fft,
}  # fmt: skip
