"""Fourier transforms, along the split axis and another."""

from bench.partition.modules import jnp
from bench.partition.program import grid, program, rows


def turned(nbytes: int):
    """One exchange that turns an array of so many bytes from split rows to split columns."""
    return lambda n: nbytes / n * (n - 1) / n


@program("fft/along", rows(64, 256, dtype="complex64"))
def along(x):
    return jnp.fft.fft(x, axis=1)


@program("fft/across", rows(256, 64, dtype="complex64"), least=turned(2 * 256 * 64 * 8))
def across(x):
    return jnp.fft.fft(x, axis=0)


@program("fft/one long line", rows(4096, dtype="complex64"), least=turned(2 * 4096 * 8))
def long_line(x):
    return jnp.fft.fft(x)


@program("fft/fft2", rows(128, 128, dtype="complex64"), least=turned(2 * 128 * 128 * 8))
def fft2(x):
    return jnp.fft.fft2(x)


@program("fft/rfftn of three axes", grid(32, 32, 32))
def rfftn(x):
    return jnp.fft.rfftn(x)


@program("fft/Poisson solver", rows(128, 128), least=turned(2 * 128 * 65 * 8))
def poisson(f):
    k = jnp.fft.fftfreq(128)[:, None] ** 2 + jnp.fft.rfftfreq(128) ** 2
    return jnp.fft.irfft2(jnp.fft.rfft2(f) / jnp.where(k == 0, 1, k), s=f.shape)
