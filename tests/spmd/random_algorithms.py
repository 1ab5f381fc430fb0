"""Later steps of random programs on global arrays: matrices, sorts with keys, windows, scatters, complex numbers.


Seeds from `FROM` on draw them too; programs of earlier seeds stay what they were.
"""

from __future__ import annotations

import numpy as np
from spmd.random_steps import axis_of, operation, pick, positions, some_axes

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax

FROM = 1_000_000


def choice(rng, *functions):
    return functions[rng.integers(len(functions))]


# ---------------------------------------------------------------- matrices


def well_conditioned(x):
    """A square matrix made of the rows of x, with its largest elements on the diagonal."""
    n = x.shape[-2]
    y = jnp.tanh(jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, max(0, n - x.shape[-1]))])[..., :n])
    return y / n + 2 * jnp.eye(n)


@operation
def matrix_of_rows(rng, x, program, at):
    """Of one matrix, or a stack of them."""
    if len(x.shape) < 2 or x.whole_numbers or x.shape[-2] < 2:
        return None
    f = choice(
        rng,
        lambda x: jnp.linalg.solve(well_conditioned(x), x),
        lambda x: jnp.linalg.inv(well_conditioned(x)),
        lambda x: jnp.stack(jnp.linalg.slogdet(well_conditioned(x))),
        lambda x: lax.linalg.lu(well_conditioned(x))[0],
        lambda x: jnp.linalg.cholesky(well_conditioned(x) @ jnp.swapaxes(well_conditioned(x), -1, -2)),
        lambda x: lax.linalg.triangular_solve(well_conditioned(x), x, left_side=True, lower=True),
        lambda x: lax.linalg.triangular_solve(
            well_conditioned(x), jnp.swapaxes(x, -1, -2), lower=False, transpose_a=True
        ),
        lambda x: jax.grad(lambda x: jnp.sin(jnp.linalg.solve(well_conditioned(x), x)).sum())(x),
        lambda x: jnp.linalg.svd(jnp.tanh(x), compute_uv=False),
        lambda x: abs(jnp.linalg.qr(well_conditioned(x))[1]),
        lambda x: jnp.linalg.eigvalsh(well_conditioned(x)),
        lambda x: jax.scipy.linalg.expm(well_conditioned(x) / 8),
    )
    return f, (), 0


@operation
def diagonals(rng, x, program, at):
    if len(x.shape) < 2:
        return None
    k = int(rng.integers(-1, 2))
    f = choice(rng, lambda x: jnp.tril(x, k), lambda x: jnp.triu(x, k), lambda x: jnp.diagonal(x))
    return f, (), x.bound


@operation
def batched_product(rng, x, program, at):
    if len(x.shape) < 2:
        return None
    other = pick(rng, program, lambda v: len(v.shape) >= 2 and v.shape[:-2] == x.shape[:-2] and v.shape[-1] == x.shape[-1])
    y = program.values[other]
    return lambda x, y: jnp.einsum("...ij,...kj->...ik", x, y), (other,), x.bound * y.bound * x.shape[-1]


# ---------------------------------------------------------------- reductions and cumulative operations


@operation
def other_reduction(rng, x, program, at):
    if not x.shape or not x.bound:
        return None
    axes, keep = some_axes(rng, x), bool(rng.integers(2))
    f, bound = [
        (lambda x: jnp.any(x > 1, axis=axes, keepdims=keep).astype(jnp.int32), 4),
        (lambda x: jnp.all(x > -1, axis=axes, keepdims=keep).astype(jnp.int32), 4),
        (lambda x: jnp.prod(jnp.sign(x), axis=axes, keepdims=keep), 4),
        (lambda x: jnp.argmin(x, axis=axes[0], keepdims=keep), 4 * max(x.shape)),
        (lambda x: jnp.count_nonzero(x, axis=axes), 4 * x.size),
        (lambda x: jnp.bitwise_xor.reduce(x.astype(jnp.int32), axis=axes[0]), 0),
    ][rng.integers(6)]
    return f, (), bound


@operation
def statistics(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None or x.whole_numbers:
        return None
    f = choice(
        rng,
        lambda x: jnp.std(x, axis=axis),
        lambda x: jax.nn.logsumexp(x / 8, axis=axis),
        lambda x: jnp.median(x, axis=axis),
        lambda x: jnp.quantile(x, 0.3, axis=axis),
        lambda x: jnp.linalg.norm(x, axis=axis),
        lambda x: jnp.ptp(x, axis=axis),
        lambda x: jnp.average(x, axis=axis, weights=jnp.arange(1.0, x.shape[axis] + 1)),
    )
    return f, (), 0


@operation
def other_cumulative(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None or x.whole_numbers:
        return None
    reverse = bool(rng.integers(2))
    f = choice(
        rng,
        lambda x: lax.cummin(x, axis=axis, reverse=reverse),
        lambda x: lax.cumprod(jnp.cos(x / 16), axis=axis, reverse=reverse),
        lambda x: lax.cumlogsumexp(x / 8, axis=axis, reverse=reverse),
        lambda x: lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (jnp.cos(x), x / 8), axis=axis)[1],
        lambda x: jax.grad(lambda x: jnp.sin(jnp.cumsum(x / 8, axis)).sum())(x),
    )
    return f, (), 0


# ---------------------------------------------------------------- order


@operation
def sort_with_keys(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None or not x.bound:
        return None

    def f(x):
        places = lax.broadcasted_iota(jnp.int32, x.shape, axis)
        return lax.sort((x, x * 2, places), dimension=axis, num_keys=1 + int(rng_keys))[-1]

    rng_keys = rng.integers(2)
    return f, (), 4 * x.shape[axis]


@operation
def ranked(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None or not x.bound:
        return None
    f = choice(
        rng,
        lambda x: jnp.argsort(x, axis=axis, descending=True),
        lambda x: jnp.argsort(jnp.argsort(x, axis=axis), axis=axis),
        lambda x: jnp.unique(x.astype(jnp.int32), size=7, fill_value=3),
        lambda x: jnp.nonzero(x.reshape(-1) > 0, size=5, fill_value=2)[0],
        lambda x: jnp.digitize(x, jnp.arange(-3.0, 3.0)),
        lambda x: jnp.bincount(abs(x.reshape(-1)).astype(jnp.int32) % 7, length=7),
    )
    return f, (), 4 * x.size


# ---------------------------------------------------------------- positions


@operation
def dynamic_window(rng, x, program, at):
    """A window whose start is a value of the program, read or written, perhaps beyond the end."""
    other, axis = positions(rng, program), axis_of(rng, x, 2)
    if other is None or axis is None:
        return None
    size = int(rng.integers(1, x.shape[axis] + 1))

    def start(at):
        return (abs(at).sum() % (x.shape[axis] + 1)).astype(jnp.int32)

    def read(x, at):
        return lax.dynamic_slice_in_dim(x, start(at), size, axis)

    def write(x, at):
        return lax.dynamic_update_slice_in_dim(x, lax.slice_in_dim(x, 0, size, axis=axis) + 1, start(at), axis)

    return choice(rng, read, write), (other,), x.bound and x.bound + 4


@operation
def scatter(rng, x, program, at):
    other = positions(rng, program)
    if other is None or not x.shape:
        return None
    which = choice(rng, "max", "min", "mul", "set", "subtract")

    def f(x, at):
        at = at.reshape(-1) % (x.shape[0] + 2)  # some lie outside, and are dropped
        ref = x.at[jnp.unique(at, size=at.size, fill_value=x.shape[0] + 5) if which == "set" else at]
        return getattr(ref, which)(2 if which == "mul" else 1)

    return f, (other,), 0 if which == "mul" else x.bound and x.bound + 4 * program.values[other].size


@operation
def gather(rng, x, program, at):
    """Positions in the first axis, of which some lie outside; or in two axes."""
    other = positions(rng, program)
    if other is None or not x.shape:
        return None
    mode, n = choice(rng, "clip", "fill", "wrap"), x.shape[0]
    if len(x.shape) > 1 and rng.integers(2):
        m = x.shape[1]
        return lambda x, at: x[at % n, (at // 2) % m], (other,), x.bound
    return lambda x, at: jnp.take(x, at - 2, axis=0, mode=mode, fill_value=1), (other,), x.bound


# ---------------------------------------------------------------- windows


@operation
def pooling_gradient(rng, x, program, at):
    axis = axis_of(rng, x, 4)
    if axis is None or x.whole_numbers:
        return None
    shape = tuple(2 if d == axis else 1 for d in range(len(x.shape)))

    def pooled(x):
        kinds = [(-jnp.inf, lax.max), (0.0, lax.add)]
        return sum(jnp.sin(lax.reduce_window(x, *kind, shape, shape, "VALID")).sum() for kind in kinds)

    return jax.grad(pooled), (), 0


@operation
def convolution_of_images(rng, x, program, at):
    """With strides, dilations, groups of channels; and its derivatives."""
    if len(x.shape) != 3 or x.whole_numbers or min(x.shape[:2]) < 3:
        return None
    w = np.cos(np.arange(3 * 2 * x.shape[2] * 2, dtype=np.float32)).reshape(3, 2, x.shape[2], 2)
    options = {
        "window_strides": choice(rng, (1, 1), (2, 1)), "padding": choice(rng, "SAME", "VALID"),
        "rhs_dilation": choice(rng, (1, 1), (1, 2)), "dimension_numbers": ("NHWC", "HWIO", "NHWC"),
    }  # fmt: skip

    def f(x, w=w):
        return lax.conv_general_dilated(x[None] / 8, w, **options)

    which = choice(
        rng, f, jax.grad(lambda x: jnp.sin(f(x)).sum()), lambda x: jax.grad(lambda w: jnp.sin(f(x, w)).sum())(jnp.asarray(w))
    )
    return which, (), 0


@operation
def resized(rng, x, program, at):
    axis = axis_of(rng, x, 2)
    if axis is None or x.whole_numbers:
        return None
    shape = tuple(2 * n - 1 if d == axis else n for d, n in enumerate(x.shape))
    method = choice(rng, "linear", "nearest")
    return lambda x: jax.image.resize(x, shape, method), (), 0


@operation
def interpolated(rng, x, program, at):
    if x.whole_numbers:
        return None
    return lambda x: jnp.interp(x, jnp.linspace(-4, 4, 9), jnp.cos(jnp.arange(9.0))), (), 0


# ---------------------------------------------------------------- complex numbers, bits


@operation
def complex_numbers(rng, x, program, at):
    axis = axis_of(rng, x)
    if axis is None or x.whole_numbers:
        return None

    def z(x):
        return lax.complex(x, jnp.flip(x, axis) / 2)

    f = choice(
        rng,
        lambda x: jnp.max(z(x), axis=axis).imag,
        lambda x: abs(jnp.fft.ifft(z(x), axis=axis)),
        lambda x: jnp.cumsum(z(x), axis=axis).imag,
        lambda x: (z(x).conj() * z(x)).real,
        lambda x: jnp.sum(z(x) ** 2, axis=axis).real,
        lambda x: jnp.fft.fftn(z(x) / x.size).real,
        lambda x: jnp.roll(z(x), 2, axis).imag,
    )
    return f, (), 0


@operation
def whole_number_bits(rng, x, program, at):
    if not x.whole_numbers:
        return None
    f = choice(
        rng,
        lambda x: x ^ (x >> 1),
        lambda x: (x & 6) | 1,
        lambda x: lax.population_count(x),
        lambda x: jnp.clip(x, -3, 9),
        lambda x: x % 5,
    )
    return f, (), 0


# ---------------------------------------------------------------- shapes, random numbers, loops


@operation
def rearranged(rng, x, program, at):
    axis = axis_of(rng, x, 2)
    if axis is None:
        return None
    n = x.shape[axis]
    f = choice(
        rng,
        lambda x: jnp.moveaxis(x, axis, 0),
        lambda x: jnp.concatenate(jnp.split(x, [n // 2], axis)[::-1], axis),
        lambda x: jnp.stack(jnp.unstack(x, axis=axis)[::2]),
        lambda x: jnp.roll(x, (1, 2), (0, -1)),
        lambda x: jnp.broadcast_to(jnp.expand_dims(x, axis), (*x.shape[:axis], 2, *x.shape[axis:])),
        lambda x: jnp.rot90(x, axes=(0, -1)) if x.ndim > 1 else x[::-1],
        lambda x: jnp.delete(x, 0, axis=axis),
        lambda x: lax.pad(x, jnp.zeros((), x.dtype), [(1, -1, 1) if d == axis else (0, 0, 0) for d in range(x.ndim)]),
    )
    return f, (), x.bound


@operation
def drawn(rng, x, program, at):
    if x.whole_numbers or not x.shape:
        return None
    key = jax.random.key(int(rng.integers(9)))
    f = choice(
        rng,
        lambda x: x + jax.random.normal(key, x.shape),
        lambda x: jax.random.permutation(key, x),
        lambda x: jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0),
        lambda x: jax.vmap(lambda k, row: row + jax.random.uniform(k))(jax.random.split(key, x.shape[0]), x),
    )
    return f, (), 0


@operation
def mapped(rng, x, program, at):
    if x.whole_numbers or not x.shape:
        return None
    f = choice(
        rng,
        lambda x: lax.map(lambda row: jnp.sin(row) + row.sum() / 8, x),
        lambda x: lax.switch(x.shape[0] % 3, [jnp.sin, jnp.cos, jnp.tanh], x),
        lambda x: lax.scan(lambda c, row: (c, row * c.mean()), x, x)[1],
        lambda x: jax.vjp(lambda x: jnp.sort(x, 0), x)[1](jnp.cos(x))[0],
        lambda x: lax.reduce(x, jnp.float32(-jnp.inf), lax.max, (0,)),
    )
    return f, (), 0
