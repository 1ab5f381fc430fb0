"""The steps of random programs on global arrays: operations of one or two values.

Each takes (random numbers, what is known of the operand, the program, the operand's place), and returns (function, places
of further operands, bound of the result), or None if the operand does not fit. A bound of 0: not exact any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import NamedSharding, lax
from mpijax.sharding import Mesh
from mpijax.sharding import PartitionSpec as P

LARGEST = 4096  # elements of a value


@dataclass(frozen=True)
class Known:
    """What is known of a value while the program is drawn. bound: of its magnitude, in quarters; 0: not exact."""

    shape: tuple[int, ...]
    bound: int
    whole_numbers: bool = False

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def draw_spec(rng, shape, mesh: Mesh) -> P:
    """Each mesh axis splits an array axis that it divides, or none."""
    split: list[tuple[str, ...]] = [()] * len(shape)
    for name in rng.permutation(list(mesh.axis_names)):
        fit = [
            d for d, n in enumerate(shape)
            if n % (mesh.shape[name] * math.prod(mesh.shape[a] for a in split[d])) == 0
        ]  # fmt: skip
        if fit and rng.random() < 0.8:
            d = fit[rng.integers(len(fit))]
            split[d] = (*split[d], str(name))
    return P(*(axes[0] if len(axes) == 1 else axes or None for axes in split))


OPERATIONS: dict[str, Callable] = {}


def operation(make):
    """Registers what makes a step: (function, places of further operands, bound), or None if the value does not fit."""
    OPERATIONS[make.__name__] = make
    return make


def axis_of(rng, x: Known, least: int = 1) -> int | None:
    fit = [d for d, n in enumerate(x.shape) if n >= least]
    return int(fit[rng.integers(len(fit))]) if fit else None


def some_axes(rng, x: Known) -> tuple[int, ...]:
    chosen = tuple(d for d in range(len(x.shape)) if rng.random() < 0.5)
    return chosen or (0,)


def pick(rng, program, fits) -> int | None:
    """The place of another value that fits."""
    found = [p for p, v in enumerate(program.values) if fits(v)]
    return int(found[rng.integers(len(found))]) if found else None


@operation
def rough(rng, x, program, at):
    if x.whole_numbers:
        return None
    f = [jnp.sin, jnp.tanh, lambda x: jnp.exp(-abs(x)), lambda x: x / (1 + x * x)][rng.integers(4)]
    return f, (), 0


@operation
def pointwise(rng, x, program, at):
    f = [jnp.abs, jnp.negative, lambda x: x + 1, lambda x: jnp.maximum(x, 0)][rng.integers(4)]
    return f, (), x.bound and x.bound + 4


@operation
def binary(rng, x, program, at):
    other = pick(rng, program, lambda v: v.shape == x.shape or v.shape == x.shape[-len(v.shape) :] and v.shape)
    if other is None:
        return None
    y = program.values[other]
    f, bound = [(jnp.add, x.bound + y.bound), (jnp.subtract, x.bound + y.bound), (jnp.multiply, 0),
                (jnp.maximum, max(x.bound, y.bound))][rng.integers(4)]  # fmt: skip
    return f, (other,), bound if x.bound and y.bound else 0


@operation
def column_added(rng, x, program, at):
    if not x.shape:
        return None
    return lambda x: x + x[..., :1], (), 2 * x.bound


@operation
def where(rng, x, program, at):
    if not x.bound:
        return None
    return lambda x: jnp.where(x > 1, x, -x), (), x.bound


@operation
def convert(rng, x, program, at):
    if not x.bound:
        return None
    return lambda x: x.astype(jnp.float32 if x.dtype == jnp.int32 else jnp.int32), (), x.bound * 4


@operation
def reduction(rng, x, program, at):
    if not x.shape:
        return None
    axes, keep = some_axes(rng, x), bool(rng.integers(2))
    name, bound = [("sum", x.bound * x.size), ("max", x.bound), ("min", x.bound), ("mean", 0)][rng.integers(4)]
    return lambda x: getattr(jnp, name)(x, axis=axes, keepdims=keep), (), bound


@operation
def argmax(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None or not x.bound:
        return None
    return lambda x: jnp.argmax(x, axis=axis), (), 4 * max(x.shape)


@operation
def normalised(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None or x.whole_numbers:
        return None
    return [lambda x: jax.nn.softmax(x / 8, axis=axis), lambda x: x - x.mean(axis=axis, keepdims=True)][rng.integers(2)], (), 0


@operation
def cumulative(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None:
        return None
    reverse = bool(rng.integers(2))
    f, bound = [(lax.cumsum, x.bound * x.shape[axis]), (lax.cummax, x.bound)][rng.integers(2)]
    return lambda x: f(x, axis=axis, reverse=reverse), (), bound


@operation
def transpose(rng, x, program, at):
    order = tuple(int(d) for d in rng.permutation(len(x.shape)))
    return lambda x: jnp.transpose(x, order), (), x.bound


@operation
def reshape(rng, x, program, at):
    if not x.shape:
        return None
    d = int(rng.integers(len(x.shape)))
    n = x.shape[d]
    divisors = [k for k in range(2, n) if n % k == 0]
    if d + 1 < len(x.shape) and rng.random() < 0.5:
        shape = (*x.shape[:d], n * x.shape[d + 1], *x.shape[d + 2 :])
    elif divisors and len(x.shape) < 4:
        k = divisors[rng.integers(len(divisors))]
        shape = (*x.shape[:d], k, n // k, *x.shape[d + 1 :])
    else:
        shape = (x.size,)
    return lambda x: x.reshape(shape), (), x.bound


@operation
def cut(rng, x, program, at):
    axis = axis_of(rng, x, 2)
    if axis is None:
        return None
    first = int(rng.integers(0, x.shape[axis] - 1))
    stop, step = int(rng.integers(first + 1, x.shape[axis] + 1)), int(rng.integers(1, 4))
    return lambda x: lax.slice_in_dim(x, first, stop, step, axis), (), x.bound


@operation
def difference(rng, x, program, at):
    axis = axis_of(rng, x, 2)
    if axis is None:
        return None
    return lambda x: jnp.diff(x, axis=axis), (), 2 * x.bound


@operation
def flip(rng, x, program, at):
    axis = axis_of(rng, x)
    return None if axis is None else (lambda x: jnp.flip(x, axis), (), x.bound)


@operation
def roll(rng, x, program, at):
    axis, shift = axis_of(rng, x), int(rng.integers(-5, 6))
    return None if axis is None else (lambda x: jnp.roll(x, shift, axis), (), x.bound)


@operation
def pad(rng, x, program, at):
    if not x.shape:
        return None
    width = tuple((int(rng.integers(0, 3)), int(rng.integers(0, 3))) for _ in x.shape)
    mode = ["constant", "edge", "wrap"][rng.integers(3)]
    return lambda x: jnp.pad(x, width, mode=mode), (), x.bound


@operation
def concatenate(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None:
        return None
    other = pick(rng, program, lambda v: v.whole_numbers == x.whole_numbers and len(v.shape) == len(x.shape) and all(
        a == b or d == axis for d, (a, b) in enumerate(zip(x.shape, v.shape, strict=True))))  # fmt: skip
    y = program.values[other]
    return lambda x, y: jnp.concatenate([x, y], axis), (other,), max(x.bound, y.bound) if x.bound and y.bound else 0


@operation
def repeated(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None:
        return None
    reps = tuple(2 if d == axis else 1 for d in range(len(x.shape)))
    f = [lambda x: jnp.repeat(x, 2, axis), lambda x: jnp.tile(x, reps), lambda x: jnp.stack([x, x], axis)][rng.integers(3)]
    return f, (), x.bound


@operation
def product(rng, x, program, at):
    pairs = [
        (p, a, b) for p, v in enumerate(program.values)
        for a, n in enumerate(x.shape) for b, m in enumerate(v.shape) if n == m and x.size * v.size // n**2 <= LARGEST
    ]  # fmt: skip
    if not pairs:
        return None
    other, a, b = pairs[rng.integers(len(pairs))]
    y = program.values[other]
    return lambda x, y: jnp.tensordot(x, y, axes=(a, b)), (other,), x.bound * y.bound * x.shape[a]


@operation
def pairs(rng, x, program, at):
    if len(x.shape) != 1 or x.size > 40:
        return None
    return lambda x: abs(x[:, None] - x[None]), (), 2 * x.bound


@operation
def sort(rng, x, program, at):
    axis = axis_of(rng, x)
    return None if axis is None else (lambda x: jnp.sort(x, axis=axis), (), x.bound)


@operation
def argsort(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None or not x.bound:
        return None
    return lambda x: jnp.argsort(x, axis=axis), (), 4 * x.shape[axis]


@operation
def top_k(rng, x, program, at):
    if not x.shape or not x.bound or x.shape[-1] < 2:
        return None
    which = int(rng.integers(2))
    return lambda x: lax.top_k(x, 2)[which], (), max(x.bound, 4 * x.shape[-1])


def positions(rng, program) -> int | None:
    return pick(rng, program, lambda v: v.whole_numbers and v.bound and v.size <= 64)


@operation
def rows_by_index(rng, x, program, at):
    axis, other = axis_of(rng, x), positions(rng, program)
    if axis is None or other is None:
        return None
    return lambda x, at: jnp.take(x, at % x.shape[axis], axis=axis), (other,), x.bound


@operation
def along_axis(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None or not x.bound:
        return None
    return lambda x: jnp.take_along_axis(x, jnp.argsort(x, axis=axis), axis=axis), (), x.bound


@operation
def scatter_add(rng, x, program, at):
    other = positions(rng, program)
    if other is None or not x.shape:
        return None
    y = program.values[other]
    return lambda x, at: x.at[at.reshape(-1) % x.shape[0]].add(1), (other,), x.bound and x.bound + 4 * y.size


@operation
def segment_sum(rng, x, program, at):
    if not x.shape:
        return None
    n = x.shape[0]
    return lambda x: jax.ops.segment_sum(x, (jnp.arange(n) * 7) % 5, num_segments=5), (), x.bound * n


@operation
def histogram(rng, x, program, at):
    if not x.bound or x.whole_numbers:
        return None
    return lambda x: jnp.histogram(x, bins=8, range=(-4.1, 4.1))[0], (), 4 * x.size


@operation
def searched(rng, x, program, at):
    if not x.bound or not x.shape:
        return None
    return lambda x: jnp.searchsorted(jnp.sort(x.reshape(-1)), x), (), 4 * x.size


@operation
def set_interior(rng, x, program, at):
    axis = axis_of(rng, x, 3)
    if axis is None:
        return None
    inner = (slice(None),) * axis + (slice(1, -1),)
    return lambda x: x.at[inner].add(1), (), x.bound and x.bound + 4


@operation
def stencil(rng, x, program, at):
    axis = axis_of(rng, x, 3)
    if axis is None:
        return None
    return lambda x: smoothed(x, axis), (), 5 * x.bound


def smoothed(x, axis: int):
    def part(a, b):
        return lax.slice_in_dim(x, a, b, axis=axis)

    n = x.shape[axis]
    inner = (slice(None),) * axis + (slice(1, -1),)
    return x.at[inner].add(part(2, n) + part(0, n - 2) - 2 * part(1, n - 1))


@operation
def window(rng, x, program, at):
    axis = axis_of(rng, x, 3)
    if axis is None or x.whole_numbers:
        return None
    shape, strides = [1] * len(x.shape), [1] * len(x.shape)
    shape[axis], strides[axis] = 3, int(rng.integers(1, 3))
    padding = ["SAME", "VALID"][rng.integers(2)]
    if rng.integers(2):
        return lambda x: lax.reduce_window(x, -jnp.inf, lax.max, shape, strides, padding) + 0, (), 0
    return lambda x: lax.reduce_window(x, 0.0, lax.add, shape, strides, padding), (), 3 * x.bound


@operation
def convolution(rng, x, program, at):
    if len(x.shape) != 3 or x.whole_numbers or x.shape[1] < 3:
        return None
    w = np.arange(3 * x.shape[2] * 2, dtype=np.float32).reshape(3, x.shape[2], 2) / 16
    layout = ("NWC", "WIO", "NWC")
    return lambda x: lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=layout), (), 0


@operation
def fourier(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None or x.whole_numbers:
        return None
    f = [lambda x: jnp.fft.fft(x, axis=axis).real, lambda x: abs(jnp.fft.rfft(x, axis=axis))][rng.integers(2)]
    return f, (), 0


@operation
def matrices(rng, x, program, at):
    """Of many small definite matrices."""
    if not x.shape or x.whole_numbers or not 1 < x.shape[-1] <= 8:
        return None
    n = x.shape[-1]

    def definite(x):
        x = jnp.tanh(x)
        return x[..., :, None] * x[..., None, :] + 3 * jnp.eye(n)

    f = [
        lambda x: jnp.linalg.solve(definite(x), x[..., None]),
        lambda x: jnp.linalg.cholesky(definite(x)),
        lambda x: jnp.linalg.eigvalsh(definite(x)),
        lambda x: jnp.linalg.det(definite(x)),
    ][rng.integers(4)]
    return f, (), 0


@operation
def constraint(rng, x, program, at):
    sharding = NamedSharding(program.mesh, draw_spec(rng, x.shape, program.mesh))
    return lambda x: x if program.unsharded else lax.with_sharding_constraint(x, sharding), (), x.bound


@operation
def noise(rng, x, program, at):
    return None if x.whole_numbers else (lambda x: x + jax.random.uniform(jax.random.key(3), x.shape), (), 0)
