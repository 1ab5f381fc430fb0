"""Convolutions and Fourier transforms."""

import numpy as np

from bench.case import case


def floats(backend, *shape):
    return backend.array(np.random.default_rng(shape[0]).normal(size=shape).astype(np.float32))


@case("conv/3x3, 8x64x56x56", ratio=1)
def convolution(backend):
    f = backend.jax.jit(lambda x, w: backend.jax.lax.conv_general_dilated(x, w, (1, 1), "SAME"))
    x, w = floats(backend, 8, 64, 56, 56), floats(backend, 64, 64, 3, 3)
    return lambda: f(x, w)


@case("conv/training step, 32x28x28, 16 to 32", ratio=1)
def convolution_step(backend):
    layouts = ("NHWC", "HWIO", "NHWC")

    def loss(w, x):
        y = backend.jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layouts)
        return backend.jnp.maximum(y, 0).sum()

    f = backend.jax.jit(lambda w, x: w - 0.01 * backend.jax.grad(loss)(w, x))
    w, x = floats(backend, 3, 3, 16, 32), floats(backend, 32, 28, 28, 16)
    return lambda: f(w, x)


@case("1M/fft", ratio=0.9)
def fft(backend):
    f = backend.jax.jit(lambda x: backend.jnp.fft.fft(x))
    x = backend.array(np.random.default_rng(0).normal(size=(1 << 20, 2)).astype(np.float32).view(np.complex64)[:, 0])
    return lambda: f(x)


def of_square(name, function):
    """A case: a transform of 1024x1024 numbers, on two threads."""

    @case(name, ratio=1, cores=2)
    def build(backend):
        f = backend.jax.jit(getattr(backend.jnp.fft, function))
        x = np.random.default_rng(0).normal(size=(1024, 1024, 2)).astype(np.float32).view(np.complex64)[..., 0]
        x = backend.array(x)
        return lambda: f(x)


of_square("1024x1024/fft of rows, 2 threads", "fft")
of_square("1024x1024/fft2, 2 threads", "fft2")
