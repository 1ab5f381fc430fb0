"""Programs as JAX's documentation explains transformations with, for the text of their Jaxprs and their values: each is
a function of the library `j` that returns a function and its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from transforms.programs import I3, X3, X4, X23, X34, X44, array

DOCUMENTED: dict[str, Callable] = {}
# Those whose values are compared, too.
VALUED: list[str] = []


def documented(make: Callable) -> Callable:
    DOCUMENTED[make.__name__] = make
    return make


# Those whose text is not: these keep fewer values for the backward pass than JAX, or JAX's text has leftovers.
OTHER_TEXT: list[str] = []


def valued(make: Callable) -> Callable:
    VALUED.append(make.__name__)
    return documented(make)


def by_value(make: Callable) -> Callable:
    OTHER_TEXT.append(make.__name__)
    return valued(make)


# -- Jaxprs --------------------------------------------------------------------------------------------------


@documented
def jaxpr_of_arithmetic(j):
    return lambda a, b: j.numpy.sum(a + j.numpy.sin(b) * 3.0), (array(8), array(8))


@documented
def jaxpr_of_nested_functions(j):
    def inner(y, z, c):
        return y + z * c if y.shape[0] > 4 else y - z

    return lambda a, b: j.numpy.sum(inner(a, j.numpy.ones(8) + b, 2.0)), (array(8), array(8))


@documented
def jaxpr_of_a_tree(j):
    return lambda pair: (pair[0] * pair[1]["k"], {"out": pair[0]}), ((X3, {"k": np.float32(2)}),)


@documented
def jaxpr_with_constant(j):
    c = j.numpy.asarray(array(2, 3))
    return lambda x: x @ c.T + c.sum(), (X3,)


@documented
def jaxpr_of_switch(j):
    return lambda i, x: j.lax.switch(i, [lambda y: y + 1.0, lambda y: y - 2.0, lambda y: y * 3.0], x), (1, 5.0)


@documented
def jaxpr_of_cond_with_a_tree(j):
    def f(x, y):
        return j.lax.cond(y >= 0.0, lambda p: p[0] + y, lambda p: p[0] - y * p[1], (x, 4.0))

    return f, (5.0, 2.0)


@documented
def jaxpr_of_cond_with_a_constant_array(j):
    def f(x, flag):
        return j.lax.cond(flag, lambda a: a + np.ones(1, np.float32), lambda a: a + 5.0, x)

    return f, (array(1), True)


@valued
def jaxpr_of_a_counted_loop(j):
    def f(x, n):
        ones = j.numpy.ones(x.shape)
        return j.lax.fori_loop(0, n, lambda i, total: total + ones * 3.0 + x, x + ones)

    return f, (array(4), 6)


@documented
def jaxpr_of_a_counted_loop_of_fixed_length(j):
    return lambda x: j.lax.fori_loop(0, 5, lambda i, v: v + i * x, x), (array(4),)


@valued
def jaxpr_of_a_while_loop(j):
    def f(x):
        return j.lax.while_loop(lambda s: s[1] < 100.0, lambda s: (s[0] + 1, s[1] * 2.0 + (x * x).sum()), (0, x[0] ** 2))

    return f, (X3,)


@valued
def jaxpr_of_a_scan(j):
    def f(xs, extra):
        ones = j.numpy.ones(xs.shape)

        def body(c, a):
            x, y = a
            return c + x * y + extra, c - x

        return j.lax.scan(body, 0.0, (xs, ones))

    return f, (array(5), np.float32(4.0))


@documented
def jaxpr_of_a_jit_with_closure(j):
    def f(x):
        @j.jit
        def inner(y):
            return y + x * j.numpy.ones(1)

        return x + inner(x - 2.0)

    return f, (1.0,)


@documented
def jaxpr_of_control_flow_in_each_other(j):
    lax = j.lax

    def f(x, n):
        def body(c, a):
            return lax.fori_loop(0, n, lambda i, v: lax.cond(v > a, lambda: v * 0.5, lambda: v + i), c), a * c

        return lax.scan(body, x, X4)

    return f, (np.float32(1.0), 3)


@documented
def jaxpr_of_random_numbers(j):
    return lambda key: j.random.normal(j.random.split(key)[0], (2,)), (np.array([0, 7], np.uint32),)


# -- derivatives, the cookbook -------------------------------------------------------------------------------


def predict(j, w, b, x):
    return j.nn.sigmoid(x @ w + b)


def likelihood(j):
    def loss(w, b, x, labels):
        p = predict(j, w, b, x)
        return -j.numpy.sum(j.numpy.log(p * labels + (1 - p) * (1 - labels)))

    return loss


LABELS = np.array([True, False, True, True])
DATA = (X3, np.float32(0.3), array(4, 3), LABELS)


@documented
def logistic_regression_gradient(j):
    return j.grad(likelihood(j), (0, 1)), DATA


@documented
def logistic_regression_value_and_gradient_of_a_dictionary(j):
    loss = likelihood(j)
    return j.value_and_grad(lambda p, x, l: loss(p["w"], p["b"], x, l)), ({"w": X3, "b": DATA[1]}, *DATA[2:])


@by_value
def forward_and_reverse_jacobians(j):
    def f(w):
        return predict(j, w, 0.3, DATA[2])

    return lambda w: (j.jacfwd(f)(w), j.jacrev(f)(w)), (X3,)


@by_value
def jacobian_of_a_dictionary(j):
    return j.jacrev(lambda p, x: predict(j, p["w"], p["b"], x)), ({"w": X3, "b": DATA[1]}, DATA[2])


@by_value
def hessian_of_the_loss(j):
    loss = likelihood(j)
    return j.jacfwd(j.jacrev(loss)), DATA


@documented
def hessian_vector_product_forward_over_reverse(j):
    f = lambda x: j.numpy.sum(j.numpy.tanh(x) ** 2)
    return lambda x, v: j.jvp(j.grad(f), (x,), (v,))[1], (X34, X34)


@documented
def hessian_vector_product_reverse_over_forward(j):
    def f(x, v):
        g = lambda x: j.jvp(lambda x: j.numpy.sum(j.numpy.tanh(x) ** 2), (x,), (v,))[1]
        return j.grad(g)(x)

    return f, (X34, X34)


@valued
def hessian_vector_product_reverse_over_reverse(j):
    f = lambda x: j.numpy.sum(j.numpy.tanh(x) ** 2)
    return lambda x, v: j.grad(lambda x: j.numpy.vdot(j.grad(f)(x), v))(x), (X34, X34)


@documented
def matrix_jacobian_products(j):
    def f(w, m):
        y, pull = j.vjp(lambda w: predict(j, w, 0.3, DATA[2]), w)
        return j.vmap(pull)(m)

    return f, (X3, array(2, 4))


@documented
def jacobian_matrix_products(j):
    def f(w, m):
        push = lambda s: j.jvp(lambda w: predict(j, w, 0.3, DATA[2]), (w,), (s,))[1]
        return j.vmap(push)(m)

    return f, (X3, array(2, 3))


@documented
def gradients_per_example(j):
    loss = lambda w, x, y: (j.numpy.tanh(x @ w) - y) ** 2
    return j.jit(j.vmap(j.grad(loss), in_axes=(None, 0, 0))), (X3, array(4, 3), X4)


@documented
def directional_second_derivative(j):
    f = lambda x: j.numpy.sin(x) * x**2
    return lambda x: j.jvp(lambda x: j.jvp(f, (x,), (1.0,))[1], (x,), (1.0,)), (0.7,)


@documented
def gradient_of_a_holomorphic_function(j):
    return j.grad(lambda z: j.numpy.sin(z) * (1 + 2j) * z, holomorphic=True), (np.complex64(3 + 4j),)


@documented
def gradient_of_a_real_part(j):
    return j.grad(lambda z: j.numpy.real(j.numpy.exp(z)) + j.numpy.imag(z) ** 2), (np.complex64(0.3 - 1j),)


@documented
def complex_jvp_of_two_reals(j):
    def f(x, y):
        z = j.numpy.sin(x + 1j * y)
        return j.numpy.real(z), j.numpy.imag(z)

    return lambda x, y: j.jvp(f, (x, y), (1.0, 0.0)), (np.float32(0.5), np.float32(1.5))


@by_value
def jacobian_of_a_holomorphic_function(j):
    return j.jacfwd(lambda z: z**2 * j.numpy.conj(1j * z[0] * 0 + 2), holomorphic=True), (X3 + 1j * X3[::-1],)


@documented
def stopped_target_of_temporal_differences(j):
    value = lambda w, s: s @ w

    def loss(w, s0, r, s1):
        return (j.lax.stop_gradient(r + value(w, s1)) - value(w, s0)) ** 2

    return j.grad(loss), (X3, X3, np.float32(1), X3[::-1].copy())


@documented
def straight_through_estimator(j):
    def f(x):
        zero = x - j.lax.stop_gradient(x)
        return (zero + j.lax.stop_gradient(j.numpy.round(x))).sum()

    return j.grad(f), (X3,)


@valued
def one_step_of_meta_learning(j):
    loss = lambda x: (x**2 * X3).sum()

    def outer(x, rate):
        return loss(x - rate * j.grad(loss)(x))

    return j.grad(outer, (0, 1)), (X3, np.float32(0.1))


# -- custom rules --------------------------------------------------------------------------------------------


def log1pexp(j):
    @j.custom_jvp
    def f(x):
        return j.numpy.log(1.0 + j.numpy.exp(x))

    @f.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), (1 - 1 / (1 + j.numpy.exp(x))) * t

    return f


@documented
def stable_logarithm(j):
    f = log1pexp(j)
    return lambda x: (f(x), j.vmap(j.grad(f))(x)), (X3,)


@valued
def stable_logarithm_twice(j):
    return j.vmap(j.grad(j.jit(j.grad(log1pexp(j))))), (np.array([-100.0, 0.5, 100.0], np.float32),)


@documented
def rule_by_argument(j):
    @j.custom_jvp
    def f(x, y):
        return j.numpy.sin(x) * y

    f.defjvps(lambda t, out, x, y: j.numpy.cos(x) * t * y, lambda t, out, x, y: out / y * t)
    return j.grad(f, (0, 1)), (2.0, 3.0)


@documented
def rule_with_a_function_as_argument(j):
    @partial(j.custom_jvp, nondiff_argnums=(0,))
    def apply(f, x):
        return f(x)

    @apply.defjvp
    def rule(f, primals, tangents):
        return f(primals[0]), 2.0 * tangents[0]

    return j.grad(lambda x: apply(lambda y: y**3, x)), (3.0,)


@valued
def derivative_at_the_edge(j):
    """x / (1 + sqrt(x)), whose naive derivative at 0 is no number."""

    @j.custom_jvp
    def f(x):
        return x / (1 + j.numpy.sqrt(x))

    @f.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        root = j.numpy.sqrt(x)
        return f(x), (root / 2 + 1) / (root + 1) ** 2 * t

    return j.vmap(j.grad(f)), (np.array([0.0, 1.0, 4.0], np.float32),)


@valued
def safe_square_root_by_two_selections(j):
    def f(x):
        safe = j.numpy.where(x > 0, x, 1.0)
        return j.numpy.where(x > 0, j.numpy.sqrt(safe), 0.0).sum()

    return j.grad(f), (np.array([0.0, 1.0, 4.0], np.float32),)


def clip_gradient(j):
    @j.custom_vjp
    def clip(lo, hi, x):
        return x

    clip.defvjp(lambda lo, hi, x: (x, (lo, hi)), lambda res, g: (None, None, j.numpy.clip(g, res[0], res[1])))
    return clip


@documented
def clipped_gradient(j):
    clip = clip_gradient(j)
    return j.vmap(j.grad(lambda x: j.numpy.sin(clip(-0.75, 0.75, x) * 2))), (array(6),)


@documented
def clipped_gradient_in_jit(j):
    clip = clip_gradient(j)
    return j.jit(j.grad(lambda x: j.numpy.cos(clip(-0.1, 0.1, x)).sum())), (array(6),)


def fixed_point(j):
    """The solution of x = f(a, x), differentiated by the equation, not through the iteration."""
    lax = j.lax

    def iterate(step, x):
        far = lambda pair: j.numpy.abs(pair[0] - pair[1]).max() > 1e-6
        return lax.while_loop(far, lambda pair: (pair[1], step(pair[1])), (x, step(x)))[1]

    @partial(j.custom_vjp, nondiff_argnums=(0,))
    def solve(f, a, guess):
        return iterate(lambda x: f(a, x), guess)

    def fwd(f, a, guess):
        x = solve(f, a, guess)
        return x, (a, x)

    def bwd(f, res, ct):
        a, x = res
        _, pull_a = j.vjp(lambda a: f(a, x), a)
        _, pull_x = j.vjp(lambda x: f(a, x), x)
        return pull_a(iterate(lambda u: ct + pull_x(u)[0], ct))[0], j.numpy.zeros_like(x)

    solve.defvjp(fwd, bwd)
    return solve


@by_value
def square_root_by_newton(j):
    solve = fixed_point(j)
    return j.value_and_grad(lambda a: solve(lambda a, x: 0.5 * (x + a / x), a, a)), (2.0,)


@by_value
def fixed_point_of_a_matrix(j):
    solve = fixed_point(j)
    return j.grad(lambda a: solve(lambda a, x: j.numpy.tanh(a @ x * 0.2 + X3), a, X3).sum()), (array(3, 3),)


@documented
def custom_rule_of_a_tree(j):
    @j.custom_vjp
    def f(p):
        return {"s": p["x"] * p["y"], "d": (p["x"] - p["y"],)}

    f.defvjp(lambda p: (f(p), p), lambda p, ct: ({"x": ct["s"] * p["y"], "y": ct["d"][0] * 3},))
    return j.grad(lambda p: f(p)["s"].sum() + f(p)["d"][0].sum()), ({"x": X3, "y": X3},)


@by_value
def custom_vjp_in_a_scan(j):
    clip = clip_gradient(j)

    def f(x):
        c, ys = j.lax.scan(lambda c, y: (clip(-0.1, 0.1, c) * y, c), x, X3)
        return c + ys.sum()

    return j.grad(f), (1.5,)


# -- checkpoint ----------------------------------------------------------------------------------------------


def layers(j):
    def g(w, x):
        return j.numpy.sin(w @ x)

    return g


@documented
def checkpoint_of_each_layer(j):
    g = j.checkpoint(layers(j))
    return j.grad(lambda w1, w2, x: g(w2, g(w1, x)).sum(), (0, 1)), (X44, X44, X4)


@by_value
def checkpoint_that_keeps_products(j):
    g = j.checkpoint(layers(j), policy=j.checkpoint_policies.dots_with_no_batch_dims_saveable)
    return j.grad(lambda w, x: g(w, g(w, x)).sum()), (X44, X4)


@by_value
def checkpoint_by_names(j):
    name = j.ad_checkpoint.checkpoint_name

    def f(w, x):
        a = name(w @ x, "a")
        return name(j.numpy.sin(a), "b") * x

    g = j.checkpoint(f, policy=j.checkpoint_policies.save_only_these_names("a"))
    return j.grad(lambda w, x: g(w, x).sum()), (X44, X4)


@by_value
def checkpoint_within_checkpoint(j):
    def chain(funs):
        if len(funs) == 1:
            return funs[0]
        first, second = chain(funs[: len(funs) // 2]), chain(funs[len(funs) // 2 :])
        return lambda x: j.checkpoint(second)(j.checkpoint(first)(x))

    return j.grad(chain([j.numpy.sin, j.numpy.cos, j.numpy.tanh, j.numpy.exp])), (0.4,)


@valued
def checkpoint_in_a_scan(j):
    body = j.checkpoint(lambda c, w: (j.numpy.sin(w @ c), None))
    return j.grad(lambda ws, x: j.lax.scan(body, x, ws)[0].sum()), (array(3, 4, 4), X4)


@documented
def checkpoint_with_static_argument(j):
    f = j.checkpoint(lambda x, train: j.numpy.sin(x) if train else x, static_argnums=(1,))
    return j.grad(lambda x: f(x, True).sum()), (X3,)


# -- loops and branches that depend on values ----------------------------------------------------------------


@documented
def branch_on_a_static_argument(j):
    f = j.jit(lambda x, n: x * n if n < 3 else x - n, static_argnums=1)
    return lambda x: f(x, 2) + f(x, 7), (X3,)


@documented
def length_as_static_argument(j):
    f = j.jit(lambda length, x: j.numpy.ones((length,)) * x, static_argnames="length")
    return lambda x: f(length=4, x=x), (2.0,)


@documented
def python_loop_is_unrolled(j):
    def f(x):
        for k in range(3):
            x = x * j.numpy.cos(x) + k
        return x

    return j.grad(f), (0.1,)


@valued
def derivative_of_a_branch(j):
    f = lambda x: j.lax.cond(x < 3, lambda x: 3.0 * x**2, lambda x: -4 * x, x)
    return lambda x: (j.grad(f)(x), j.vmap(j.grad(f))(j.numpy.array([2.0, 4.0]))), (2.0,)


@valued
def forward_derivative_of_a_while_loop(j):
    f = lambda x: j.lax.while_loop(lambda v: v < 20.0, lambda v: v * x, x)
    return lambda x: j.jvp(f, (x,), (1.0,)), (2.5,)


@valued
def while_loops_of_different_length(j):
    f = lambda x: j.lax.while_loop(lambda s: s[1] < 20.0, lambda s: (s[0] + 1, s[1] * 2), (0, x))
    return j.vmap(f), (np.array([1.0, 30.0, 7.0], np.float32),)


@documented
def select_instead_of_cond(j):
    return lambda x: j.lax.select(x > 0, x, j.numpy.zeros_like(x)) + j.numpy.where(x > 1, 1.0, x), (X3,)


@valued
def recurrent_network(j):
    def loss(params, xs):
        def step(h, x):
            h = j.numpy.tanh(params["u"] @ h + params["v"] @ x)
            return h, h.sum()

        h, outs = j.lax.scan(step, j.numpy.zeros(4), xs)
        return (outs**2).sum() + h[0]

    return j.grad(loss), ({"u": X44, "v": array(4, 3)}, array(5, 3))


# -- sharp edges ---------------------------------------------------------------------------------------------


@documented
def indices_out_of_bounds(j):
    return lambda x: (x[11], x.at[11].add(1.0), x.at[11].get(mode="fill", fill_value=-1.0)), (X4,)


@documented
def update_in_place_of_a_column(j):
    return j.jit(lambda x: x.at[:, 1].set(1.0).at[::2, 2:].add(7.0)), (X44,)


@documented
def repeated_indices_add_up(j):
    return lambda x, i: x.at[i].add(1.0), (X4, np.array([1, 1, 2], np.int32))


@documented
def mixed_precision(j):
    return lambda x, i: (x.astype(j.numpy.bfloat16) + 1, x + i, i / 2, x.astype(j.numpy.float16) * x), (X3, I3)


@documented
def keys_in_a_loop(j):
    def f(key):
        def draw(key, _):
            key, sub = j.random.split(key)
            return key, j.random.uniform(sub)

        return j.lax.scan(draw, key, length=3)[1]

    return f, (np.array([3, 4], np.uint32),)


# -- examples as batches -------------------------------------------------------------------------------------


def convolve(j):
    def f(x, w):
        return j.numpy.array([j.numpy.dot(x[i - 1 : i + 2], w) for i in range(1, len(x) - 1)])

    return f


@documented
def convolution_by_slices(j):
    return convolve(j), (array(5), X3)


@documented
def batch_of_convolutions(j):
    return j.vmap(convolve(j)), (array(2, 5), X23)


@documented
def batch_of_convolutions_in_columns(j):
    return j.vmap(convolve(j), in_axes=1, out_axes=1), (array(5, 2), array(3, 2))


@documented
def batch_of_convolutions_of_one_weight(j):
    return j.jit(j.vmap(convolve(j), in_axes=[0, None])), (array(2, 5), X3)


@valued
def log_joint_density_of_a_batch(j):
    n = j.numpy

    def density(beta, x, y):
        return -0.5 * (beta**2).sum() - n.sum(n.log1p(n.exp(-(2 * y - 1) * (x @ beta))))

    return j.vmap(j.value_and_grad(density), (0, None, None)), (X23, array(4, 3), np.float32([1, 0, 1, 1]))


@documented
def normalization_over_a_named_axis(j):
    def f(x):
        return (x - j.lax.pmean(x, "batch")) / j.lax.psum(x, "batch")

    return j.vmap(f, axis_name="batch"), (X23,)


# -- first steps ---------------------------------------------------------------------------------------------


@documented
def scaled_exponential_unit(j):
    n = j.numpy
    return j.jit(lambda x, a=1.67, l=1.05: l * n.where(x > 0, x, a * n.exp(x) - a)), (X4,)


@documented
def normalized_columns(j):
    return j.jit(lambda x: (x - x.mean(0)) / x.std(0)), (X44,)


@by_value
def third_derivative(j):
    f = lambda x: j.numpy.sum(1.0 / (1.0 + j.numpy.exp(-x)))
    return j.grad(j.jit(j.grad(j.jit(j.grad(f))))), (1.0,)


@documented
def step_of_training(j):
    def update(params, x, y):
        def loss(params):
            for w, b in params[:-1]:
                hidden = j.nn.relu(x @ w + b)
            w, b = params[-1]
            return j.numpy.mean((hidden @ w + b - y) ** 2)

        return j.tree.map(lambda p, g: p - 0.1 * g, params, j.grad(loss)(params))

    return j.jit(update), ([(X34, X4), (X44, X4)], X23, array(2, 4))
