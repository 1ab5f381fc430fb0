"""Derivatives and optimizer steps."""

from bench.partition.modules import jax, jnp
from bench.partition.program import columns, program, rows, whole
from bench.partition.programs.networks import LONG, LONG_TENSOR, SEQUENCE, TENSOR, attend
from bench.partition.programs.scans import ROW


def loss(parameters, x, y):
    v, w = parameters
    return jnp.mean((jnp.tanh(x @ v) @ w - y) ** 2)


@program("grad/data parallel", whole(32, 64), whole(64, 8), rows(256, 32), rows(256, 8))
def data_parallel(v, w, x, y):
    return jax.value_and_grad(loss)((v, w), x, y)


@program("grad/tensor parallel", columns(32, 64), rows(64, 8), whole(64, 32), whole(64, 8))
def tensor_parallel(v, w, x, y):
    return jax.grad(loss)((v, w), x, y)


@program("grad/parameters split", rows(32, 64), rows(64, 8), rows(256, 32), rows(256, 8))
def parameters_split(v, w, x, y):
    return jax.tree.map(lambda p, g: p - 0.1 * g, (v, w), jax.grad(loss)((v, w), x, y))


@program("grad/Adam step", rows(256, 64), rows(256, 64), rows(256, 64), rows(256, 64))
def adam(p, m, v, g):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2
    return p - 1e-3 * m / (jnp.sqrt(jnp.abs(v)) + 1e-8), m, v


@program("grad/clip by global norm", rows(256, 64), columns(64, 256))
def clip(a, b):
    norm = jnp.sqrt((a**2).sum() + (b**2).sum())
    return a / jnp.maximum(norm, 1), b / jnp.maximum(norm, 1)


@program("grad/of softmax, classes split", columns(64, 128))
def of_softmax(x):
    return jax.grad(lambda x: (jax.nn.softmax(x) ** 2).sum())(x)


@program("grad/of embedding, rows split", rows(128, 32), whole(64, drawn=128))
def of_embedding(table, tokens):
    return jax.grad(lambda table: (table[tokens] ** 2).sum())(table)


@program("grad/of attention, sequence", *SEQUENCE, least=lambda n: 4 * TENSOR * (n - 1) / n)
def of_attention(q, k, v):
    return jax.grad(lambda q, k, v: (attend(q, k, v) ** 2).sum(), (0, 1, 2))(q, k, v)


# Keys and values go round, then queries and the gradients of results and queries.
@program("grad/of attention, long sequence", *LONG, least=lambda n: 5 * LONG_TENSOR * (n - 1) / n)
def of_long_attention(q, k, v):
    return of_attention(q, k, v)


@program("grad/of cumsum across", rows(256, 64), least=lambda n: 2 * ROW)
def of_cumsum(x):
    return jax.grad(lambda x: (jnp.cumsum(x, axis=0) ** 2).sum())(x)


@program("grad/custom_vjp", rows(256, 64), whole(64, 64))
def custom_vjp(x, w):
    @jax.custom_vjp
    def f(x, w):
        return jnp.sin(x @ w)

    f.defvjp(lambda x, w: (f(x, w), (x, w)), lambda r, ct: (ct @ r[1].T * 0.5, r[0].T @ ct))
    return jax.grad(lambda x, w: f(x, w).sum(), (0, 1))(x, w)


@program("grad/jvp and Hessian product", rows(256, 16), whole(16))
def hessian_product(x, w):
    def f(w):
        return jnp.log1p(jnp.exp(x @ w)).sum()

    return jax.jvp(jax.grad(f), (w,), (jnp.ones_like(w),))


@program("grad/of scan over the split axis", rows(128, 64), whole(64))
def of_scan_over_split_axis(x, w):
    def f(x, w):
        return jax.lax.scan(lambda c, row: (jnp.tanh(c * w + row), None), jnp.zeros(64), x)[0].sum()

    return jax.grad(f, (0, 1))(x, w)


@program("grad/through scan, batch split", rows(64, 16, 8), whole(8, 8))
def through_scan(x, w):
    def f(w):
        return jax.lax.scan(lambda h, row: (jnp.tanh(h @ w + row), None), x[:, 0], x.swapaxes(0, 1))[0].sum()

    return jax.grad(f)(w)
