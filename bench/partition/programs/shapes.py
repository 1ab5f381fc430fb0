"""What moves elements: reshape, transpose, flip, concatenate, repeat."""

from bench.partition.modules import jnp
from bench.partition.program import columns, program, rows

SHARD = lambda n: 256 * 64 * 4 / n  # bytes of a shard


@program("shape/transpose", rows(256, 64))
def transpose(x):
    return x.T + 1


@program("shape/x plus transpose", rows(128, 128), least=lambda n: 128 * 128 * 4 / n * (n - 1) / n)
def x_plus_transpose(x):
    return x + x.T


@program("shape/merge the split axis", rows(64, 4, 64))
def merge(x):
    return x.reshape(256, 64) * 2


@program("shape/split the split axis", rows(256, 64))
def divide(x):
    return x.reshape(16, 16, 64).sum(axis=1)


@program("shape/merge an inner split axis", columns(64, 256), least=lambda n: SHARD(n) * (n - 1) / n)
def merge_inner(x):
    return x.reshape(-1) * 2


@program("shape/concatenate across", rows(256, 64), rows(256, 64), least=lambda n: 2 * SHARD(n))
def concatenate(x, y):
    return jnp.concatenate([x, y], axis=0)


@program("shape/concatenate along", rows(256, 64), rows(256, 64))
def concatenate_along(x, y):
    return jnp.concatenate([x, y], axis=1)


@program("shape/stack", rows(256, 64), rows(256, 64))
def stack(x, y):
    return jnp.stack([x, y])


@program("shape/flip", rows(256, 64), least=SHARD)
def flip(x):
    return jnp.flip(x, axis=0)


@program("shape/flip along", rows(256, 64))
def flip_along(x):
    return x[:, ::-1]


@program("shape/strided slice", rows(256, 64))
def strided(x):
    return x[::2]


@program("shape/first half", rows(256, 64), least=lambda n: SHARD(n) / 2)
def first_half(x):
    return x[:128] * 2


@program("shape/repeat", rows(256, 64))
def repeat(x):
    return jnp.repeat(x, 2, axis=0)


@program("shape/tile", rows(256, 64), least=lambda n: 2 * SHARD(n))
def tile(x):
    return jnp.tile(x, (2, 1))


@program("shape/tile, 8 copies", rows(256, 64), least=lambda n: (n - 1) * SHARD(n))
def tile_often(x):
    return jnp.tile(x, (8, 1))


@program("shape/roll by half", rows(256, 64), least=SHARD)
def roll_by_half(x):
    return jnp.roll(x, 128, axis=0)


@program("shape/kron", rows(32, 16), columns(8, 8))
def kron(x, y):
    return jnp.kron(x, y)


@program("shape/broadcast and expand", rows(256, 64))
def broadcast(x):
    return jnp.broadcast_to(x[:, None], (256, 8, 64)) * jnp.arange(8.0)[None, :, None]
