"""Convolutions and pooling, split by batch and by space."""

from bench.partition.modules import jax, jnp, lax
from bench.partition.program import Array, program, rows, whole

LAYOUT = ("NHWC", "HWIO", "NHWC")
IMAGES = rows(8, 32, 32, 4)
SPACE = Array((2, 64, 32, 4), (None, "i"))
SERIES = Array((4, 1024, 4), (None, "i"))
LINE = 2 * 32 * 4 * 4  # bytes of a line of the images that are split by space


def both_halos(n: int) -> float:
    return (1 if n == 2 else 2) * LINE


def convolved(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAYOUT)


def pooled(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@program("conv/batch split", IMAGES, whole(3, 3, 4, 8))
def batch_split(x, w):
    return convolved(x, w)


@program("conv/space split", SPACE, whole(3, 3, 4, 8), least=both_halos)
def space_split(x, w):
    return convolved(x, w)


@program("conv/channels split", whole(2, 16, 16, 4), Array((3, 3, 4, 16), (None, None, None, "i")))
def channels_split(x, w):
    return convolved(x, w)


@program("conv/1-D, dilated, space split", SERIES, whole(3, 4, 8), least=lambda n: (1 if n == 2 else 2) * 4 * 64)
def dilated(x, w):
    return lax.conv_general_dilated(x, w, (1,), "SAME", rhs_dilation=(4,), dimension_numbers=("NWC", "WIO", "NWC"))


@program("conv/max pooling, batch split", IMAGES)
def pooling_batch(x):
    return pooled(x)


@program("conv/max pooling, space split", SPACE)
def pooling_space(x):
    return pooled(x)


@program("conv/moving average by reduce_window", rows(1024, 16), least=lambda n: (1 if n == 2 else 2) * 2 * 64)
def moving_average(x):
    return lax.reduce_window(x, 0.0, lax.add, (5, 1), (1, 1), "SAME") / 5


@program("conv/training step, batch split", IMAGES, whole(3, 3, 4, 8), whole(8, 10), rows(8, drawn=10))
def training_step(x, w, v, labels):
    def loss(w, v):
        features = pooled(jax.nn.relu(convolved(x, w))).mean(axis=(1, 2))
        return -jnp.take_along_axis(jax.nn.log_softmax(features @ v), labels[:, None], axis=1).mean()

    gw, gv = jax.grad(loss, (0, 1))(w, v)
    return w - 0.1 * gw, v - 0.1 * gv


@program("conv/resize, batch split", IMAGES)
def resize_batch(x):
    return jax.image.resize(x, (x.shape[0], 64, 64, 4), "linear")


@program("conv/resize, space split", rows(64, 32), least=lambda n: (1 if n == 2 else 2) * 32 * 4)
def resize_space(x):
    return jax.image.resize(x, (2 * x.shape[0], 64), "linear")
