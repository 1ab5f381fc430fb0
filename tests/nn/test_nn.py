"""jax.nn against JAX: Jaxprs, values, derivatives."""

# ruff: noqa: B023 (functions of loop variables are called before the next iteration)
import numpy as np
import pytest
from oracle import OURS, check, sample
from quickly import one_in

X = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
ACTIVATIONS = (
    "celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid mish "
    "relu relu6 selu "
    "sigmoid silu soft_sign softplus sparse_plus sparse_sigmoid squareplus swish tanh"
).split()
NORMALIZERS = "log_softmax logmeanexp logsumexp softmax standardize".split()
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")  # JAX's, of -inf as integer
@pytest.mark.parametrize("name", one_in(3, ACTIVATIONS + NORMALIZERS))
@pytest.mark.one_in(3)
def test_values(name):
    for x in (X, X.astype(np.int32)) + ((2.0,) if name in ACTIVATIONS and name != "glu" else ()):
        check(lambda J: lambda x: getattr(J.nn, name)(x), x, **CLOSE)


@pytest.mark.parametrize("name", one_in(3, ACTIVATIONS + NORMALIZERS))
@pytest.mark.one_in(3)
def test_half_precision(name):
    check(lambda J: lambda x: getattr(J.nn, name)(x.astype("bfloat16")), X, eager=False, rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ACTIVATIONS + NORMALIZERS)
@pytest.mark.one_in(4)
def test_derivatives(name, order):
    def loss(J):
        return lambda x: getattr(J.nn, name)(x).sum()

    if order == 1:  # the identity's Jaxpr is not compared: JAX drops results of calls that are their arguments
        check(lambda J: J.grad(loss(J)), X, jaxpr=name != "identity", compiled=True, **CLOSE)
    else:
        check(lambda J: J.grad(lambda x: (J.grad(loss(J))(x) * X).sum()), X, jaxpr=False, compiled=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", one_in(2, NORMALIZERS))
def test_axes(name):
    for how in ({"axis": 0}, {"axis": None}, {"axis": (0, 1)}, {"axis": 1, "where": X > -1}):
        check(lambda J: lambda x: getattr(J.nn, name)(x, **how), X, **CLOSE)


def test_relu_at_its_kink():
    zero = np.zeros(2, np.float32)
    check(lambda J: J.grad(lambda x: J.nn.relu(x).sum()), zero)
    check(lambda J: J.grad(lambda x: J.nn.relu6(x).sum()), zero + 6)


def test_gelu_exact():
    check(lambda J: lambda x: J.nn.gelu(x, approximate=False), X, **CLOSE)


def test_log1mexp():
    check(lambda J: lambda x: J.nn.log1mexp(x), np.abs(X) + 0.1, **CLOSE)
    check(lambda J: J.grad(lambda x: J.nn.log1mexp(x).sum()), np.abs(X) + 0.1, **CLOSE)


def test_glu_of_odd_size():
    check(lambda J: lambda x: J.nn.glu(x), X[:, :3])


@pytest.mark.parametrize(
    "how",
    one_in(2, [{"b": 2.0}, {"return_sign": True}, {"b": X, "return_sign": True}, {"b": X, "axis": 1}]),
    ids=lambda h: str([*h]),
)
def test_logsumexp_weights(how):
    check(lambda J: lambda x: J.nn.logsumexp(x, **how), X, **CLOSE)
    check(lambda J: lambda x: J.scipy.special.logsumexp(x, **how), X, **CLOSE)


def test_extremes():
    x = np.array([1000.0, 999.0, -np.inf], np.float32)
    for name in ("softmax", "log_softmax", "logsumexp"):
        check(lambda J: lambda x: getattr(J.nn, name)(x), x, **CLOSE)
        check(lambda J: lambda x: getattr(J.nn, name)(x), np.full(3, -np.inf, np.float32), **CLOSE)


def test_softmax_rule_of_its_own():
    import jax

    import mpijax
    from mpijax.core.base import config

    before = jax.config.jax_softmax_custom_jvp, config.config.jax_softmax_custom_jvp
    try:
        for on in (False, True):
            jax.config.update("jax_softmax_custom_jvp", on)
            mpijax.config.update("jax_softmax_custom_jvp", on)
            check(lambda J: J.grad(lambda x: (J.nn.softmax(x) * X).sum()), X, **CLOSE)
    finally:
        jax.config.update("jax_softmax_custom_jvp", before[0])
        mpijax.config.update("jax_softmax_custom_jvp", before[1])


def test_standardize():
    for how in (
        {"algorithm": "stable"},
        {"algorithm": "x"},
        {"mean": 1.0},
        {"variance": np.float32(2), "epsilon": 0},
    ):
        check(lambda J: lambda x: J.nn.standardize(x, **how), X, **CLOSE)


@pytest.mark.parametrize("how", one_in(2, [{}, {"dtype": int}, {"axis": 0}, {"dtype": "bfloat16", "axis": -1}]), ids=repr)
def test_one_hot(how):
    for x in (np.array([0, 2, 5, -1]), np.array([[1, 2]]), 1, np.array([1], np.uint8)):
        check(lambda J: lambda x: J.nn.one_hot(x, 5, **how), x)


def test_one_hot_wants_integers():
    with pytest.warns(DeprecationWarning, match="integer"):
        OURS.nn.one_hot(np.array([1.0]), 3)


Q, K = sample(2, 5, 4, 8), sample(2, 6, 2, 8, seed=1)
ATTENTION = [
    {},
    {"is_causal": True},
    {"scale": 2.0},
    {"local_window_size": 2},
    {"local_window_size": (1, 0)},
    {"bias": sample(2, 1, 5, 6)},
    {"mask": sample(2, 4, 5, 6, dtype=bool)},
    {"query_seq_lengths": np.array([1, 2], np.int32), "key_value_seq_lengths": np.array([1, 2], np.int32)},
    {"return_residual": True},
    {"implementation": "other"},
]


@pytest.mark.parametrize("how", one_in(3, ATTENTION), ids=lambda h: "-".join(h))
@pytest.mark.one_in(2)
def test_dot_product_attention(how):
    check(
        lambda J: lambda q, k: J.nn.dot_product_attention(q, k, k, **how),
        Q,
        K,
        jaxpr=False,
        eager=False,
        rtol=1e-4,
        atol=1e-5,
    )


def test_dot_product_attention_of_misfits():
    for q, k in ((Q[..., :3], K), (Q[:, :, :3], K), (Q[:1], K)):
        check(lambda J: lambda q, k: J.nn.dot_product_attention(q, k, k), q, k, jaxpr=False, eager=False)


def test_attention_without_batch():
    check(
        lambda J: lambda q, k: J.nn.dot_product_attention(q, k, k),
        Q[0],
        K[0],
        jaxpr=False,
        eager=False,
        **CLOSE,
    )
