"""Programs whose Jaxprs are compared with JAX's: each is a function of the library `j` (see `oracle`) that
returns a function and its arguments.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

PROGRAMS: dict[str, Callable] = {}


def program(make: Callable) -> Callable:
    PROGRAMS[make.__name__] = make
    return make


def array(*shape: int, dtype=np.float32) -> np.ndarray:
    """Different values everywhere, some negative."""
    size = int(np.prod(shape))
    return (np.arange(size).reshape(shape) * 0.37 % 2.0 - 0.6).astype(dtype)


X3, X4, X23, X34, X44 = array(3), array(4), array(2, 3), array(3, 4), array(4, 4)
I3 = np.array([2, 0, 1], np.int32)
B3 = np.array([True, False, True])


# -- operations ----------------------------------------------------------------------------------------------


@program
def arithmetic(j):
    return lambda x, y: (x + y * 2 - x / 3) ** 2 - (-x), (X23, X23)


@program
def python_scalars_on_either_side(j):
    return lambda x: 2 * x + 1 - x * 3.0 + (1 - x) / (2 / x), (X3,)


@program
def integers(j):
    return lambda x, y: ((x + 1) // 2, x % 3, x / 2, x**2, x & y, x | 1, x ^ y, ~x, x << 1, x >> 1), (I3, I3)


@program
def comparisons(j):
    return lambda x, y: (x < y, x <= 0, x == y, x != 1.0, x > y, x >= y), (X3, X3)


@program
def booleans(j):
    return lambda a, b: (a & b, a | b, ~a, a ^ b, j.numpy.logical_not(a), j.numpy.logical_and(a, b)), (B3, B3)


@program
def elementwise_functions(j):
    n = j.numpy

    def f(x):
        return (
            n.sin(x),
            n.cos(x),
            n.tan(x),
            n.exp(x),
            n.log(x),
            n.tanh(x),
            n.sqrt(x),
            n.abs(x),
            n.sign(x),
            n.floor(x),
        )

    return f, (X3,)


@program
def more_elementwise_functions(j):
    n = j.numpy

    def f(x):
        y = n.expm1(x) + n.log1p(x) + n.square(x) + n.exp2(x) + n.cbrt(x) + n.sinh(x) + n.cosh(x) + n.arctan(x)
        return y, n.reciprocal(x), n.isnan(x), n.isfinite(x), n.negative(x), n.positive(x)

    return f, (X3,)


@program
def binary_functions(j):
    n = j.numpy
    return lambda x, y: (n.maximum(x, y), n.minimum(x, 0), n.power(x, y), n.arctan2(x, y), n.hypot(x, y)), (
        X3,
        X3,
    )


@program
def operands_of_different_rank(j):
    return lambda x, y, z: (x + y, x * z, y - z), (X23, X3, np.float32(2))


@program
def operands_with_axes_of_one(j):
    return lambda x, y: x * y + y, (array(2, 1, 4), array(3, 1))


@program
def types_that_promote(j):
    return lambda x, y, b: (x + y, y * b, x * b, y * 1.5, b + 1), (X3, I3, B3)


@program
def half_precision(j):
    def f(x):
        y = x.astype(j.numpy.bfloat16)
        return y * 2 + y.sum(), (x.astype(j.numpy.float16) @ x.astype(j.numpy.float16)).astype(j.numpy.float32)

    return f, (X3,)


@program
def complex_numbers(j):
    n = j.numpy
    return lambda z: (z * (1 + 2j), n.real(z), n.imag(z), n.conj(z), abs(z), z * z), (X3 + 1j * X3,)


@program
def weak_types(j):
    return lambda x: (x + 1, j.numpy.sin(x), j.numpy.asarray(x) * X3), (2.0,)


@program
def where(j):
    n = j.numpy
    return lambda c, x, y: (n.where(c, x, y), n.where(x > 0, x, 0.0), n.where(c, 1, x)), (B3, X3, X3)


@program
def clip(j):
    return lambda x: (j.numpy.clip(x, 0, 1), x.clip(-1.0), j.numpy.clip(x, max=0.5)), (X3,)


@program
def reductions(j):
    def f(x):
        return x.sum(), x.mean(0), x.max(axis=1), x.min(), x.prod(-1), x.sum(axis=(0, 1), keepdims=True)

    return f, (X23,)


@program
def statistics(j):
    return lambda x: (x.std(), x.var(axis=1), j.numpy.mean(x, axis=-1, keepdims=True)), (X23,)


@program
def tests_of_all_elements(j):
    return lambda x: ((x > 0).any(), (x > 0).all(axis=0), j.numpy.argmax(x), x.argmin(axis=1)), (X23,)


@program
def shapes(j):
    def f(x):
        y = x.reshape(3, 2).T
        return (
            y[None],
            x.ravel(),
            j.numpy.expand_dims(x, (0, 2)),
            x[None, :, :, None].squeeze(),
            j.numpy.swapaxes(x, 0, 1),
        )

    return f, (X23,)


@program
def joining(j):
    n = j.numpy
    return lambda x, y: (n.concatenate([x, y], 1), n.stack([x, y]), n.vstack([x, y]), n.hstack([x, y])), (
        X23,
        X23,
    )


@program
def creation(j):
    n = j.numpy

    def f(x):
        return (
            n.zeros(3),
            n.ones((2, 2), n.int32),
            n.full((2,), 7.0),
            n.arange(4),
            n.zeros_like(x),
            n.eye(3),
            x,
        )

    return f, (X3,)


@program
def broadcasting(j):
    return lambda x: (j.numpy.broadcast_to(x, (2, 3)), j.lax.broadcast(x, (2,)), j.numpy.tile(x, 2)), (X3,)


@program
def products(j):
    n = j.numpy
    return lambda a, b, v: (a @ b, a @ v, v @ v, n.dot(a, b), n.outer(v, v), n.matmul(a, b)), (X44, X44, X4)


@program
def einsums(j):
    n = j.numpy

    def f(a, b):
        return n.einsum("ij,jk->ik", a, b), n.einsum("bij,bjk->bik", a[None], b[None]), n.einsum("ij->j", a)

    return f, (X44, X44)


@program
def tensordot(j):
    return lambda a, b: (j.numpy.tensordot(a, b, 1), j.numpy.tensordot(a, b, ((0,), (1,)))), (X44, X44)


@program
def static_slices(j):
    return lambda x: (x[1:3], x[:, ::2], x[0], x[-1, 1:], x[..., 0], x[::-1]), (X44,)


@program
def integer_array_indices(j):
    return lambda x, i: (x[i], x[:, i], x[i, i]), (X44, I3)


@program
def traced_index(j):
    return lambda x, i: x[i], (X44, np.int32(2))


@program
def updates(j):
    return lambda x, y: (x.at[1].set(y), x.at[0, 1].add(1.0), x.at[1:3].multiply(2)), (X44, X4)


@program
def takes(j):
    n = j.numpy
    return lambda x, i: (n.take(x, i, axis=0), n.take_along_axis(x, i[:, None], axis=1)), (X34, I3)


@program
def dynamic_slices(j):
    lax = j.lax

    def f(x, i):
        y = lax.dynamic_slice(x, (i, 0), (2, 2))
        return lax.dynamic_update_slice(x, y, (0, i)), lax.dynamic_index_in_dim(x, i, 0)

    return f, (X44, np.int32(1))


@program
def lax_operations(j):
    lax = j.lax

    def f(x, y):
        return lax.add(x, y), lax.select(x > y, x, y), lax.rsqrt(x), lax.clamp(0.0, x, 1.0), lax.rev(x, (0,))

    return f, (X3, X3)


@program
def padding(j):
    return lambda x: (j.lax.pad(x, 0.0, [(1, 2, 0), (0, 0, 1)]), j.numpy.pad(x, 1)), (X23,)


@program
def iotas(j):
    return lambda x: (j.lax.iota("int32", 5), x + j.lax.broadcasted_iota("float32", (2, 3), 1)), (X23,)


@program
def conversions(j):
    lax = j.lax

    def f(x):
        return (
            x.astype("int32"),
            lax.convert_element_type(x, "bfloat16"),
            lax.bitcast_convert_type(x, "int32"),
        )

    return f, (X3,)


@program
def lax_dot_general(j):
    def f(a, b):
        numbers = (((2,), (1,)), ((0,), (0,)))
        return j.lax.dot_general(a, b, numbers, preferred_element_type="float32")

    return f, (array(2, 3, 4), array(2, 4, 5))


# -- neural networks and random numbers ----------------------------------------------------------------------


@program
def activations(j):
    return lambda x: (j.nn.relu(x), j.nn.sigmoid(x), j.nn.softplus(x), j.nn.silu(x), j.nn.gelu(x)), (X3,)


@program
def softmaxes(j):
    return lambda x: (j.nn.softmax(x), j.nn.log_softmax(x, axis=0), j.nn.logsumexp(x, axis=1)), (X23,)


@program
def one_hot(j):
    return lambda i: j.nn.one_hot(i, 4), (I3,)


@program
def random_numbers(j):
    def f(seed):
        key = j.random.key(seed)
        a, b = j.random.split(key)
        return j.random.uniform(a, (3,)), j.random.normal(b, (2,)), j.random.bits(j.random.fold_in(key, 1))

    return f, (np.uint32(1),)


@program
def old_style_keys(j):
    return lambda key: j.random.uniform(j.random.split(key, 3)[1], (2, 2)), (np.array([0, 1], np.uint32),)


# -- jit -----------------------------------------------------------------------------------------------------


@program
def nested_jit(j):
    @j.jit
    def inner(x, y):
        return j.numpy.sin(x) * y

    return lambda x: inner(x, 2.0) + inner(x, x), (X3,)


@program
def jit_called_twice_with_the_same_types(j):
    @j.jit
    def inner(x):
        return x * 2 + 1

    return lambda x: inner(inner(x)), (X3,)


@program
def jits_of_the_same_name(j):
    def make(n):
        @j.jit
        def g(x):
            return x * n

        return g

    g2, g3 = make(2.0), make(3.0)
    return lambda x: g2(g3(g2(g3(x)))), (X3,)


@program
def jit_in_jit_in_jit(j):
    @j.jit
    def a(x):
        return j.numpy.cos(x)

    @j.jit
    def b(x):
        return a(x) + a(x * 2)

    return j.jit(lambda x: b(x) - b(b(x))), (X3,)


@program
def long_jit_is_printed_ahead(j):
    @j.jit
    def many(x):
        for i in range(12):
            x = x * float(i)
        return x

    return lambda x: many(x) + 1, (X3,)


@program
def jit_with_static_argument(j):
    from functools import partial

    @partial(j.jit, static_argnums=1)
    def power(x, n):
        return x**n

    return lambda x: power(x, 3) + power(x, 2), (X3,)


@program
def jit_that_closes_over_a_tracer(j):
    def f(x):
        y = j.numpy.sin(x)
        return j.jit(lambda z: z * y)(x)

    return f, (X3,)


@program
def jit_that_closes_over_an_array(j):
    c = j.numpy.asarray(X3)
    return lambda x: j.jit(lambda z: z * c)(x) + c, (X3,)


@program
def jit_with_unused_arguments_and_results(j):
    @j.jit
    def g(x, y):
        return x * 2, y, 3.0

    return lambda x, y: g(x, y)[0], (X3, X3)


@program
def inlined_jit(j):
    return lambda x: j.jit(lambda y: y * 2 + 1, inline=True)(x), (X3,)


@program
def donated_arguments(j):
    return lambda x: j.jit(lambda y: y * 2, donate_argnums=0)(x), (X3,)


@program
def kept_unused_arguments(j):
    return lambda x, y: j.jit(lambda a, b: a * 2, keep_unused=True)(x, y), (X3, X3)


@program
def pytrees(j):
    def f(params, x):
        return {"y": x @ params["w"] + params["b"], "n": (params["b"].sum(), [x])}

    return f, ({"w": X34, "b": X4}, X3)


@program
def keyword_defaults_and_constants(j):
    def f(x, scale=3.0):
        return x * scale + np.float32(1.5) + np.array([1.0, 2.0, 3.0], np.float32)

    return f, (X3,)


@program
def numbers_of_the_program_around(j):
    def f(x):
        i, y = j.numpy.array(0), j.numpy.zeros((3, 3))

        @j.jit
        def g(x):
            return (j.numpy.arange(3, dtype="int16") + i).astype("float32") + x, y[i] * j.lax.convert_element_type(i, "float32")

        return j.lax.scan(lambda c, _: (c * (i + x), i), x, length=2), g(x), i

    return f, (X3,)


@program
def results_that_are_arguments_or_literals(j):
    return lambda x, y: (x, 1.0, y, x, 2), (X3, I3)


@program
def many_arguments_in_long_lines(j):
    def f(*xs):
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        return (*xs, total)

    return f, tuple(array(10, 10) for _ in range(30))


@program
def unused_results_are_dropped(j):
    def f(x):
        j.numpy.sin(x)
        return x * 2

    return f, (X3,)


@program
def no_arguments(j):
    return lambda: j.numpy.arange(3) * 2, ()


# -- derivatives ---------------------------------------------------------------------------------------------


@program
def gradient_of_a_sum(j):
    return j.grad(lambda x: (x**2).sum()), (X3,)


@program
def gradient_of_functions(j):
    n = j.numpy
    return j.grad(lambda x: (n.sin(x) * n.exp(x) + n.log(x) / x - n.tanh(x)).sum()), (X3,)


@program
def gradient_of_a_scalar(j):
    return j.grad(lambda x: j.numpy.sin(j.numpy.sin(x)) * x), (0.5,)


@program
def second_derivative(j):
    return j.grad(j.grad(lambda x: x**3 * j.numpy.sin(x))), (0.5,)


@program
def value_and_gradient(j):
    return j.value_and_grad(lambda x, y: (x * y).sum(), argnums=(0, 1)), (X3, X3)


@program
def gradient_with_aux(j):
    return j.value_and_grad(lambda x: (j.numpy.sin(x).sum(), x * 2), has_aux=True), (X3,)


@program
def gradient_of_a_linear_model(j):
    def loss(params, x, y):
        return j.numpy.mean((x @ params["w"] + params["b"] - y) ** 2)

    return j.grad(loss), ({"w": X34, "b": X4}, X23, array(2, 4))


@program
def gradient_of_an_mlp(j):
    def loss(params, x, labels):
        (w1, b1), (w2, b2) = params
        h = j.numpy.tanh(x @ w1 + b1)
        logits = h @ w2 + b2
        return -j.numpy.mean(j.numpy.sum(j.nn.one_hot(labels, 4) * j.nn.log_softmax(logits), axis=-1))

    params = [(X34, X4), (X44, X4)]
    return j.value_and_grad(loss), (params, X23, np.array([1, 3], np.int32))


@program
def gradient_of_maximum_and_where(j):
    n = j.numpy
    return j.grad(lambda x, y: (n.maximum(x, y) + n.where(x > 0, x * 2, y)).sum()), (X3, X3)


@program
def gradient_of_indexing(j):
    return j.grad(lambda x: (x[1:] * x[:-1]).sum() + x[0]), (X4,)


@program
def gradient_of_a_gather(j):
    return j.grad(lambda x, i: (x[i] ** 2).sum()), (X44, I3)


@program
def gradient_of_reductions(j):
    return j.grad(lambda x: x.max() + x.mean() + x.prod() + (x - x.mean(0)).min()), (X23,)


@program
def gradient_through_jit(j):
    @j.jit
    def g(x, y):
        return j.numpy.sin(x) * y

    return j.grad(lambda x: g(x, 2.0).sum() + g(x, x).sum()), (X3,)


@program
def gradient_of_jit_of_gradient(j):
    inner = j.jit(j.grad(lambda x: j.numpy.exp(x) * x))
    return j.grad(lambda x: inner(x) * x), (0.3,)


@program
def gradient_of_relu(j):
    return j.grad(lambda x: j.nn.relu(x).sum()), (X3,)


@program
def stopped_gradient(j):
    return j.grad(lambda x: (x * j.lax.stop_gradient(x)).sum()), (X3,)


@program
def gradient_with_respect_to_nothing_read(j):
    return j.grad(lambda x, y: (y * 2).sum(), argnums=0), (X3, X3)


@program
def jvp(j):
    return lambda x, t: j.jvp(lambda z: j.numpy.sin(z) * z, (x,), (t,)), (X3, X3)


@program
def jvp_through_jit(j):
    g = j.jit(lambda x, y: j.numpy.cos(x) * y)
    return lambda x, t: j.jvp(lambda z: g(z, 3.0), (x,), (t,)), (X3, X3)


@program
def vjp(j):
    def f(x, ct):
        y, pull = j.vjp(lambda a: j.numpy.sin(a) @ X34, x)
        return y, pull(ct)

    return f, (X3, X4)


@program
def linearize(j):
    def f(x, t):
        y, lin = j.linearize(lambda a: j.numpy.exp(a) * a, x)
        return y, lin(t), lin(t * 2)

    return f, (X3, X3)


@program
def forward_over_reverse(j):
    def f(x, v):
        return j.jvp(j.grad(lambda a: (j.numpy.sin(a) * a).sum()), (x,), (v,))[1]

    return f, (X3, X3)


# -- custom derivatives --------------------------------------------------------------------------------------


def _clipped(j):
    @j.custom_jvp
    def f(x, y):
        return j.numpy.sin(x) * y

    @f.defjvp
    def f_jvp(primals, tangents):
        (x, y), (tx, ty) = primals, tangents
        return f(x, y), j.numpy.cos(x) * tx * y + ty

    return f


@program
def custom_jvp_call(j):
    f = _clipped(j)
    return lambda x: f(x, 2.0), (X3,)


@program
def custom_jvp_differentiated(j):
    f = _clipped(j)
    return lambda x, t: j.jvp(lambda z: f(z, z), (x,), (t,)), (X3, X3)


@program
def custom_jvp_transposed(j):
    f = _clipped(j)
    return j.grad(lambda x: f(x, x).sum()), (X3,)


@program
def custom_jvp_vectorized(j):
    f = _clipped(j)
    return j.vmap(f, in_axes=(0, None)), (X23, X3)


def _scaled(j):
    @j.custom_vjp
    def f(x, y):
        return x * y

    def fwd(x, y):
        return f(x, y), (x, y)

    def bwd(res, ct):
        x, y = res
        return ct * y * 2, ct * x * 3

    f.defvjp(fwd, bwd)
    return f


@program
def custom_vjp_call(j):
    f = _scaled(j)
    return lambda x: f(x, x), (X3,)


@program
def custom_vjp_differentiated(j):
    f = _scaled(j)
    return j.grad(lambda x, y: f(x, y).sum(), (0, 1)), (X3, X3)


@program
def calls_of_a_closure(j):
    def outer(x, y):
        inner = j.jit(lambda x: x * y)
        return inner(x) + inner(y), j.lax.map(lambda x: inner(x) + inner(x), x), j.grad(lambda x: inner(inner(x)).sum())(x)

    return j.jit(outer), (X3, X3)


@program
def custom_vjp_linearized(j):
    f = _scaled(j)
    return lambda x: (j.linearize(f, x, x)[1](x, x), j.jvp(lambda x: f(x, 2.0), (x,), (x,))), (X3,)


@program
def custom_vjp_in_jit_differentiated(j):
    f = _scaled(j)
    return j.grad(lambda x: j.jit(f)(x, x).sum()), (X3,)


@program
def custom_vjp_vectorized(j):
    f = _scaled(j)
    return j.vmap(j.grad(lambda x, y: f(x, y).sum())), (X23, X23)


# -- vmap ----------------------------------------------------------------------------------------------------


@program
def vmap_elementwise(j):
    return j.vmap(lambda x, y: j.numpy.sin(x) + y * 2), (X23, X23)


@program
def vmap_over_other_axes(j):
    return j.vmap(lambda x, y: x * y, in_axes=(1, 0), out_axes=1), (X23, X3)


@program
def vmap_with_shared_argument(j):
    return j.vmap(lambda x, y: x + y, in_axes=(0, None)), (X23, X3)


@program
def vmap_of_matrix_vector(j):
    return j.vmap(lambda a, v: a @ v, in_axes=(None, 0)), (X44, X34)


@program
def vmap_of_batched_matrices(j):
    return j.vmap(lambda a, b: a @ b), (array(2, 3, 4), array(2, 4, 3))


@program
def vmap_of_reductions(j):
    return j.vmap(lambda x: (x.sum(), x.max(), x.argmax(), x.mean())), (X23,)


@program
def vmap_of_shapes(j):
    return j.vmap(lambda x: (x.reshape(2, 2).T, x[::-1], x[1:], x[None])), (X44,)


@program
def vmap_of_indexing(j):
    return j.vmap(lambda x, i: x[i]), (X34, I3)


@program
def vmap_of_vmap(j):
    return j.vmap(j.vmap(lambda a, b: a * b, in_axes=(None, 0)), in_axes=(0, None)), (X3, X4)


@program
def vmap_of_jit(j):
    g = j.jit(lambda x, y: j.numpy.sin(x) * y)
    return j.vmap(lambda x: g(x, 2.0) + g(x, x)), (X23,)


@program
def vmap_of_gradient(j):
    def loss(w, x):
        return (j.numpy.tanh(x @ w) ** 2).sum()

    return j.vmap(j.grad(loss), in_axes=(None, 0)), (X34, X23)


@program
def gradient_of_vmap(j):
    return j.grad(lambda w, x: j.vmap(lambda v: j.numpy.sin(v @ w))(x).sum()), (X34, X23)


@program
def vmap_with_collectives(j):
    lax = j.lax
    return j.vmap(lambda x: (x - lax.pmean(x, "i")) / lax.psum(1, "i"), axis_name="i"), (X23,)


@program
def vmap_over_a_dictionary(j):
    f = j.vmap(lambda d, s: d["a"] * s + d["b"], in_axes=({"a": 0, "b": None}, 0))
    return f, ({"a": X23, "b": X3}, array(2))


# -- shard_map -----------------------------------------------------------------------------------------------


def _mesh(j):
    return j.make_mesh((1,), ("i",), axis_types=(j.sharding.AxisType.Auto,), devices=j.devices()[:1])


@program
def shard_map_elementwise(j):
    def f(x):
        return x * 2

    return j.shard_map(f, mesh=_mesh(j), in_specs=j.P("i"), out_specs=j.P("i")), (X4,)


@program
def shard_map_with_psum(j):
    def f(x, w):
        return j.lax.psum(x @ w, "i")

    return j.shard_map(f, mesh=_mesh(j), in_specs=(j.P("i"), j.P()), out_specs=j.P()), (X44, X4)


@program
def shard_map_with_axis_index(j):
    def f(x):
        return x + j.lax.axis_index("i"), j.lax.all_gather(x, "i")

    return j.shard_map(f, mesh=_mesh(j), in_specs=j.P("i"), out_specs=(j.P("i"), j.P("i"))), (X4,)


@program
def shard_map_in_jit_with_ppermute(j):
    def f(x):
        return j.lax.ppermute(x, "i", [(0, 0)]) + j.lax.pmax(x, "i")

    return j.jit(j.shard_map(f, mesh=_mesh(j), in_specs=j.P("i"), out_specs=j.P("i"))), (X4,)
