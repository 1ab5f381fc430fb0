"""checkpoint: values and derivatives of the function as it is, JAX's Jaxprs, and less memory."""

import functools
import importlib
import logging
import re

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, jaxpr_text, leaves_of, run, sample

import mpijax as jax
from mpijax import numpy as jnp

W, X = sample(3, 4) / 4, sample(4, seed=1)
POLICIES = {
    "none": lambda J: None,
    "everything": lambda J: J.checkpoint_policies.everything_saveable,
    "nothing": lambda J: J.checkpoint_policies.nothing_saveable,
    "dots": lambda J: J.checkpoint_policies.dots_saveable,
    "dots without batch": lambda J: J.checkpoint_policies.checkpoint_dots_with_no_batch_dims,
    "offloaded dots": lambda J: J.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host"),
    "only a": lambda J: J.checkpoint_policies.save_only_these_names("a"),
    "all but a": lambda J: J.checkpoint_policies.save_any_names_but_these("a"),
    "except a": lambda J: J.checkpoint_policies.save_anything_except_these_names("a"),
    "both": lambda J: J.checkpoint_policies.save_from_both_policies(
        J.checkpoint_policies.dots_saveable, J.checkpoint_policies.save_only_these_names("b")
    ),
    "offloaded a": lambda J: J.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["b"], names_which_can_be_offloaded=["a"],
        offload_src="device", offload_dst="pinned_host",
    ),
    "own": lambda J: lambda primitive, *avals, **params: primitive.name == "sin",
    "own enum": lambda J: lambda primitive, *avals, **params: (
        J.ad_checkpoint.Saveable if primitive.name == "cos" else J.ad_checkpoint.Recompute
    ),
}  # fmt: skip


def named(J):
    """A function with named values."""
    name = J.ad_checkpoint.checkpoint_name

    def f(W, x):
        y = name(J.numpy.sin(W @ x), "a")
        return J.numpy.sum(name(J.numpy.cos(y * x[:3]), "b") ** 2)

    return f


def chain(J):
    return lambda x: J.numpy.sin(J.numpy.sin(x))


def products(J):
    """Matrix products, with and without batch axes, and a call."""

    def f(W, x):
        y = J.numpy.tanh(J.numpy.einsum("ij,kj->ki", W, x))
        z = J.jit(lambda y: J.numpy.einsum("ki,kij->kj", y, J.numpy.sin(y)[:, :, None] * W))(y)
        return J.numpy.sum(J.numpy.exp(-(z**2)) @ W.T)

    return f


def custom(J):
    """Functions with derivatives of the user's."""
    f = J.custom_jvp(lambda x: J.numpy.sin(x))
    f.defjvp(lambda p, t: (f(p[0]), 3 * J.numpy.cos(p[0]) * t[0]))
    g = J.custom_vjp(lambda x: J.numpy.cos(x))
    g.defvjp(lambda x: (J.numpy.cos(x), J.numpy.sin(x)), lambda s, ct: (-2 * s * ct,))
    return lambda W, x: J.numpy.sum(g(f(W @ x) ** 2) * J.nn.relu(x[:3]))


def nested(J):
    def f(W, x):
        inner = J.checkpoint(lambda x: J.numpy.sin(J.checkpoint(J.numpy.tanh)(W @ x)))
        return J.numpy.sum(inner(J.numpy.cos(x)) ** 2) + J.numpy.sum(inner(x))

    return f


def closing(J):
    """A function of an array and a traced value it closes over."""
    a = np.arange(3, dtype=np.float32)
    return lambda W, x: J.checkpoint(lambda y: J.numpy.sum(J.numpy.sin(W @ y) * a))(J.numpy.cos(x))


FUNCTIONS = {"named": named, "products": products, "custom": custom, "nested": nested, "closing": closing}
ARGUMENTS = {"products": (W, sample(2, 4, seed=1))}


def assert_close(want, got, tolerance=2e-6):
    """Leaves agree within a tolerance relative to their largest elements."""
    for a, b in zip(leaves_of(want), leaves_of(got), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * np.max(np.abs(a), initial=0))


# What is made of a function of W and x.
DERIVED = {
    "value": lambda J, f: f,
    "gradient": lambda J, f: J.grad(f, (0, 1)),
    "gradient of the gradient": lambda J, f: J.grad(lambda W, x: J.numpy.sum(J.grad(f)(W, x) ** 2), (0, 1)),
    "examples": lambda J, f: J.vmap(J.value_and_grad(f, (0, 1)), (None, 0)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("derived", DERIVED)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.one_in(2)
def test_values_are_jaxs_without_checkpoint(name, derived):
    args = ARGUMENTS.get(name, (W, X))
    if derived == "examples":
        args = args[0], np.stack([args[1], args[1] + 1])
    want = THEIRS.jit(DERIVED[derived](THEIRS, FUNCTIONS[name](THEIRS)))(*args)
    ours = DERIVED[derived](OURS, OURS.checkpoint(FUNCTIONS[name](OURS)))
    for f in (ours, OURS.jit(ours)):
        assert_close(want, f(*args), 2e-5)


def test_forward_over_reverse_and_reverse_over_forward():
    f = jax.checkpoint(named(OURS))
    for make in (
        lambda f: lambda W, x: jax.jvp(jax.grad(f, 1), (W, x), (W, x))[1],
        lambda f: jax.grad(lambda W, x: jax.jvp(f, (W, x), (W, x))[1], 1),
    ):
        want = make(named(OURS))(W, X)
        for form in (make(f), jax.jit(make(f))):
            assert_close(want, form(W, X), 2e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["named", "products"])
@pytest.mark.one_in(3)
def test_policies_change_no_gradient(name, policy):
    args = ARGUMENTS.get(name, (W, X))
    f = FUNCTIONS[name](OURS)
    wrapped = jax.checkpoint(f, policy=POLICIES[policy](OURS))
    for make in (lambda f: jax.grad(f, (0, 1)), lambda f: jax.jit(jax.grad(f, (0, 1)))):
        assert_close(make(f)(*args), make(wrapped)(*args), 5e-6)
    twice = [jax.jit(jax.grad(lambda x, g=g: jax.grad(g, 1)(args[0], x).sum()))(args[1]) for g in (f, wrapped)]
    assert_close(twice[0], twice[1], 2e-5)


# ---------------------------------------------------------------- Jaxprs

TEXTS = {
    "call": (lambda J: J.checkpoint(chain(J)), 1.0),
    "two calls": (lambda J: (lambda c: lambda x: c(c(x)))(J.checkpoint(chain(J))), 1.0),
    "remat": (lambda J: J.remat(chain(J), prevent_cse=False), 1.0),
    "gradient": (lambda J: J.grad(J.checkpoint(chain(J))), 1.0),
    "gradient of a jitted function": (lambda J: J.grad(J.jit(J.checkpoint(chain(J)))), 1.0),
    "gradient of the gradient": (lambda J: J.grad(J.grad(J.checkpoint(chain(J)))), 1.0),
    "jvp": (lambda J: lambda x: J.jvp(J.checkpoint(chain(J)), (x,), (x,)), 1.0),
    "linearize": (lambda J: lambda x: J.linearize(J.checkpoint(chain(J)), x)[1](x), 1.0),
    "named": (lambda J: J.grad(J.checkpoint(named(J)), (0, 1)), W, X),
    "examples": (lambda J: J.vmap(J.checkpoint(named(J)), (None, 0)), W, sample(2, 4)),
    "per argument": (lambda J: J.grad(J.checkpoint(named(J), prevent_cse=(True, False)), (0, 1)), W, X),
    "unused argument": (lambda J: J.grad(J.checkpoint(lambda x, y: J.numpy.sin(x)), (0, 1)), 1.0, 2.0),
    "integers": (lambda J: J.grad(J.checkpoint(lambda x, i: J.numpy.sum(x * i))), X, np.arange(4)),
    "closing over": (lambda J: closing(J), W, X),
    **{
        f"policy {policy}": (lambda J, policy=policy: J.checkpoint(named(J), policy=POLICIES[policy](J)), W, X)
        for policy in POLICIES
        if not policy.startswith("own")
    },
    # Where results are kept that the forward pass reads, JAX also rounds them to their dtype once more.
    "gradient, everything kept": (
        lambda J: J.grad(J.checkpoint(chain(J), policy=POLICIES["everything"](J))), 1.0
    ),
    "gradient, nothing kept": (lambda J: J.grad(J.checkpoint(named(J), policy=POLICIES["nothing"](J)), 1), W, X),
    "gradient, all but a": (lambda J: J.grad(J.checkpoint(chain(J), policy=POLICIES["all but a"](J))), 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.one_in(4)
def test_jaxprs_are_jaxs(name):
    make, *args = TEXTS[name]
    theirs, ours = (jaxpr_text(J, make, args) for J in (THEIRS, OURS))
    assert theirs[0] == "value", theirs
    hidden = [re.sub(r"0x\w*| at 0x", "", re.sub(r"np\.int64\((\d+)\)", r"\1", text)) for _, text in (theirs, ours)]
    assert [_without_module(t) for t in hidden][0] == [_without_module(t) for t in hidden][1]


def _without_module(text: str) -> str:
    """Functions made by a function of either library have names that differ."""
    return re.sub(r"<function [\w.<>]*?(\w+|<lambda>) at ", r"<function \1 at ", text)


# ---------------------------------------------------------------- what is kept


def printed(J, capsys, f, *args) -> list[str]:
    """What print_saved_residuals says, without line numbers."""
    J.ad_checkpoint.print_saved_residuals(f, *args)
    return [re.sub(r" from \S*:\d+.*", " from a line", line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("policy", [p for p in POLICIES if not p.startswith(("offloaded", "own"))])
@pytest.mark.parametrize("name", ["named", "custom"])
@pytest.mark.one_in(3)
def test_kept_values_are_jaxs(name, policy, capsys):
    theirs, ours = (
        printed(J, capsys, J.checkpoint(FUNCTIONS[name](J), policy=POLICIES[policy](J)), W, X) for J in (THEIRS, OURS)
    )
    assert sorted(ours) == sorted(theirs)


@pytest.mark.parametrize(
    "make",
    [
        lambda J: named(J),
        lambda J: lambda W, x: J.checkpoint(named(J))(W, J.numpy.sin(x)),
        lambda J: lambda W, x: J.jit(named(J))(np.ones((3, 4), np.float32), x),
        lambda J: lambda W, x: J.numpy.sum(W * x + W @ x[:, None]),
    ],
)
def test_kept_values_without_checkpoint_are_jaxs(make, capsys):
    theirs, ours = (printed(J, capsys, make(J), W, X) for J in (THEIRS, OURS))
    assert sorted(ours) == sorted(theirs)


def test_lines_of_kept_values(capsys):
    f = jax.checkpoint(named(OURS), policy=jax.checkpoint_policies.save_only_these_names("a"))
    jax.ad_checkpoint.print_saved_residuals(f, W, X)
    line = named.__code__.co_firstlineno + 5
    assert f"f32[3] named 'a' from {__file__}:{line} (f)" in capsys.readouterr().out


def test_offloaded_values_are_kept():
    for policy, count in (("offloaded a", 2), ("offloaded dots", 1)):
        f = jax.checkpoint(named(OURS), policy=POLICIES[policy](OURS))
        kept = [source for _, source in jax.ad_checkpoint.saved_residuals(f, W, X)]
        assert sum("from the argument" not in source for source in kept) == count


@pytest.mark.parametrize(
    ("slots", "kept_by"),
    [
        ({"product": lambda params: True}, {"dots", "dots without batch", "offloaded dots", "both"}),
        ({"product": lambda params: False}, {"dots", "both"}),
        ({"value_name": lambda params: params["tag"]}, {"only a", "offloaded a"}),
    ],
)
def test_policies_know_own_primitives_by_their_slots(slots, kept_by):
    p = jax.extend.core.Primitive("triple", origin=lambda params: f"triple of '{params['tag']}'", **slots)
    p.def_impl(lambda x, *, tag: 3 * x)
    p.def_abstract_eval(lambda x, *, tag: x)
    jax.interpreters.ad.deflinear(p, lambda ct, *, tag: [p.bind(ct, tag=tag)])
    jax.interpreters.mlir.register_lowering(p, jax.interpreters.mlir.lower_fun(lambda x, *, tag: 3 * x, False))
    said = set()
    for name, policy in POLICIES.items():
        if policy(OURS) is not None and not name.startswith("own"):
            f = jax.checkpoint(lambda x: jnp.sin(p.bind(x, tag="a")), policy=policy(OURS))
            origins = [origin for _, origin in jax.ad_checkpoint.saved_residuals(f, X)]
            said |= {name} if any(o.startswith("triple of 'a' from") for o in origins) else set()
    assert said == kept_by


# ---------------------------------------------------------------- memory

LAYERS, WIDTH, ROWS = 12, 32, 64
ONE = ROWS * 4 * WIDTH * 4  # bytes of a layer's hidden values


def layer(p, x):
    return x + jnp.tanh(x @ p[0]) @ p[1]


def attention(p, x):
    """A transformer's layer: softmax over all pairs of rows."""
    scores = jax.nn.softmax((x @ p[0]) @ (x @ p[0]).T / 8, axis=-1)
    return x + jnp.tanh((scores @ x) @ p[0]) @ p[1]


def parameters(layers=LAYERS):
    rng = np.random.default_rng(0)
    return [
        tuple(rng.standard_normal(s).astype(np.float32) / 16 for s in ((WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)))
        for _ in range(layers)
    ]


def loss(f):
    def run(params, x):
        for p in params:
            x = f(p, x)
        return jnp.sum(x**2)

    return run


def compiled(f, layers=LAYERS):
    """Bytes of intermediate values of the compiled gradient, and the gradient."""
    gradient = jax.jit(jax.grad(f))
    args = parameters(layers), sample(ROWS, WIDTH)
    return gradient.lower(*args).compile().memory_analysis().temp_size_in_bytes, gradient(*args)


@pytest.mark.parametrize(("body", "layers"), [(layer, LAYERS), (attention, 6)])
@pytest.mark.one_in(2)
def test_less_memory(body, layers):
    plain, want = compiled(loss(body), layers)
    less, got = compiled(loss(jax.checkpoint(body)), layers)
    assert plain >= layers * ONE
    assert less < 0.45 * plain
    assert_close(want, got)


def test_memory_by_policy():
    def kept(**options):
        return compiled(loss(jax.checkpoint(layer, **options)))[0]

    nothing, names = kept(), kept(policy=jax.checkpoint_policies.save_only_these_names("hidden"))
    assert names == nothing
    for more in (
        {"policy": jax.checkpoint_policies.dots_saveable},
        {"policy": jax.checkpoint_policies.everything_saveable},
        {"prevent_cse": False},
    ):
        assert kept(**more) >= nothing + (LAYERS - 2) * ONE


def test_halves_within_halves():
    """A checkpoint of each half within a checkpoint of the whole keeps fewer of the layers' inputs."""

    def nested_loss(params, x):
        for i in range(0, LAYERS, 4):
            block = jax.checkpoint(lambda ps, x: functools.reduce(lambda x, p: jax.checkpoint(layer)(p, x), ps, x))
            x = block(params[i : i + 4], x)
        return jnp.sum(x**2)

    flat, want = compiled(loss(jax.checkpoint(layer)))
    nested, got = compiled(nested_loss)
    assert nested <= flat - 3 * ROWS * WIDTH * 4
    assert_close(want, got)


def test_a_name_costs_nothing():
    plain = compiled(loss(layer))[0]
    name = jax.ad_checkpoint.checkpoint_name
    assert compiled(loss(lambda p, x: name(layer(p, name(x, "in")), "out")))[0] == plain


def scanned(wrap, whole=lambda f: f):
    stacked = [np.stack(p) for p in zip(*parameters(), strict=True)]

    def f(params, x):
        return jnp.sum(jax.lax.scan(lambda x, p: (wrap(layer)(p, x), None), x, params)[0] ** 2)

    gradient = jax.jit(jax.grad(whole(f)))
    args = stacked, sample(ROWS, WIDTH)
    size = gradient.lower(*args).compile().memory_analysis().temp_size_in_bytes
    return size, gradient(*args), jax.ad_checkpoint.saved_residuals(whole(f), *args)


def test_scan_keeps_the_carry_of_each_step():
    plain, want, _ = scanned(lambda f: f)
    for wrap in (jax.checkpoint, functools.partial(jax.checkpoint, prevent_cse=False)):
        size, got, kept = scanned(wrap)
        assert size < 0.4 * plain
        assert_close(want, got)
        steps = [aval.shape for aval, source in kept if source.startswith("output of scan")]
        assert steps == [(LAYERS, ROWS, WIDTH)]


def test_checkpoint_of_a_scan():
    plain, want, _ = scanned(lambda f: f)
    size, got, kept = scanned(jax.checkpoint, whole=jax.checkpoint)
    assert size < 0.4 * plain
    assert_close(want, got)
    assert all("from the argument" in source for _, source in kept)


CONTROL = {
    "cond": lambda x: jax.lax.cond(x.sum() > 1, lambda x: jnp.sin(jnp.sin(x)), lambda x: x * x, x),
    "in a branch": lambda x: jax.lax.cond(x.sum() > 1, jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), jnp.cos, x),
    "fori_loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, x: jnp.sin(x) * x, x),
    "while_loop": lambda x: jnp.sin(jnp.sin(x)) * jax.lax.while_loop(lambda i: i < 3, lambda i: i + 1, 0),
    "scan": lambda x: jax.lax.scan(jax.checkpoint(lambda c, y: (jnp.sin(c) * y, c * y)), x[0], x)[1],
    "pure_callback": lambda x: jnp.sin(
        x * jax.pure_callback(np.sign, jax.ShapeDtypeStruct((4,), np.float32), jax.lax.stop_gradient(x))
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("policy", ["none", "own"])
@pytest.mark.parametrize("name", CONTROL)
@pytest.mark.one_in(2)
def test_control_flow(name, policy):
    def f(x):
        return jnp.sum(CONTROL[name](x) ** 2)

    g = jax.checkpoint(f, policy=POLICIES[policy](OURS))
    twice = [jax.jit(jax.grad(lambda x, f=f: jnp.sum(jax.grad(f)(x) ** 2)))(X) for f in (f, g)]
    assert_close(*twice)
    assert_close(jax.grad(f)(X), jax.grad(g)(X))


# ---------------------------------------------------------------- ways to call it


class Model:
    def __init__(self, w):
        self.w = w

    @functools.partial(jax.checkpoint, static_argnums=(0,))
    def decorated(self, x):
        return jnp.sin(self.w * x)

    def plain(self, x):
        return jnp.sin(self.w * x)


def test_methods():
    want = np.float32(2 * np.cos(2))
    np.testing.assert_allclose(jax.grad(Model(2.0).decorated)(1.0), want, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(jax.checkpoint(Model(2.0).plain))(1.0), want, rtol=1e-6)


def test_static_arguments_are_values():
    for options in ({"static_argnums": 1}, {"static_argnums": (-1,)}):
        check(
            lambda J, options=options: (
                lambda x: [
                    J.grad(J.checkpoint(lambda x, flag: J.numpy.sin(x) if flag else x**2, **options))(x, flag)
                    for flag in (True, False)
                ]
            ),
            1.5,
            rtol=1e-6,
        )
    f = jax.checkpoint(lambda x, *, flag, scale: x**2 if flag else scale["a"] * x, static_argnames="flag")
    assert float(jax.grad(f)(3.0, flag=True, scale={"a": 5.0})) == 6
    assert float(jax.grad(f)(3.0, flag=False, scale={"a": 5.0})) == 5


def test_a_function_is_traced_once_per_type():
    count = []
    f = jax.checkpoint(lambda x: (count.append(1), jnp.sin(x))[1])
    for x in (1.0, 2.0, X, X):
        jax.grad(lambda x: f(x).sum())(x)
    assert len(count) == 2


def test_results_keep_their_structure():
    f = jax.checkpoint(lambda x: ({"a": jnp.sin(x)}, (x * 2, None)))
    value, grad = jax.value_and_grad(lambda x: (f(x)[0]["a"], f(x)[1]), has_aux=True)(1.0)
    assert value[1][1] is None and float(value[1][0]) == 2
    np.testing.assert_allclose(grad, np.cos(1), rtol=1e-6)


ERRORS = {
    "concrete": lambda J: J.checkpoint(chain(J), concrete=True),
    "prevent_cse": lambda J: J.checkpoint(chain(J), prevent_cse=3),
    "no function": lambda J: J.checkpoint(policy=None),
    "static_argnums no ints": lambda J: J.checkpoint(chain(J), static_argnums=["x"])(1.0),
    "static_argnums out of range": lambda J: J.checkpoint(chain(J), static_argnums=3)(1.0),
    "no array": lambda J: J.checkpoint(lambda x: 1.0)("text"),
    "no array returned": lambda J: J.checkpoint(lambda x: "text")(1.0),
    "a condition": lambda J: J.checkpoint(lambda x: x if x > 0 else -x)(1.0),
    "a policy's answer": lambda J: J.grad(J.checkpoint(chain(J), policy=lambda *_, **__: None))(1.0),
    "both policies": lambda J: J.grad(J.checkpoint(named(J), policy=J.checkpoint_policies.save_from_both_policies(
        POLICIES["dots"](J), POLICIES["offloaded a"](J))))(W, X),
    "names in both": lambda J: J.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["a"], names_which_can_be_offloaded=["a"], offload_src="x", offload_dst="y"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_of_jaxs_classes(name):
    theirs, ours = (run(lambda J=J: ERRORS[name](J)) for J in (THEIRS, OURS))
    assert theirs[0] == ours[0] == "error"
    assert ours[1] == theirs[1], ours


def test_effects_on_the_world_are_refused():
    def effect(J):
        io_callback = importlib.import_module(f"{J.name}.experimental").io_callback
        shape = J.ShapeDtypeStruct((), np.float32)
        return J.grad(J.checkpoint(lambda x: x * io_callback(lambda: np.float32(3), shape)))(1.0)

    for J in (THEIRS, OURS):
        with pytest.raises(NotImplementedError, match="IO"):
            effect(J)


def test_what_is_kept_can_be_logged(caplog):
    f = jax.checkpoint(named(OURS), policy=jax.checkpoint_policies.save_only_these_names("a"))
    jax.config.update("jax_log_checkpoint_residuals", True)
    try:
        jax.grad(f)(W, X)
    finally:
        jax.config.update("jax_log_checkpoint_residuals", False)
    [message] = caplog.messages
    arguments, values = message.split("\nand saving these intermediates:")
    assert arguments.splitlines()[0] == "remat-decorated function saving inputs with shapes:"
    assert arguments.split()[-2:] == ["float32[3,4]", "float32[4]"]
    assert values.startswith("\n  float32[3] from named 'a' from")
    with caplog.at_level(logging.DEBUG):
        jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))))(1.0)
    assert "remat-decorated function saving inputs with shapes:\n  float32[]" in caplog.messages


def test_a_condition_points_to_static_arguments():
    with pytest.raises(jax.errors.TracerBoolConversionError, match="name it in the static_argnums of checkpoint"):
        jax.checkpoint(lambda x: x if x > 0 else -x)(1.0)


def test_what_a_function_prints_it_prints_each_time(capsys):
    def f(x):
        jax.debug.print("x = {}", x)
        return jnp.sin(jnp.sin(x))

    for g in (jax.grad(jax.checkpoint(f)), jax.jit(jax.grad(jax.checkpoint(f)))):
        g(1.0).block_until_ready()
        jax.effects_barrier()
        assert capsys.readouterr().out.count("x = 1.0") == 2


def looped(J):
    """Matrix products in a loop, in a loop in it, and in a branch of that."""

    def step(W, x):
        x = J.numpy.sin(W @ x)
        x, ys = J.lax.scan(lambda x, _: (J.jit(J.numpy.cos)(W @ x), J.numpy.sin(x)), x, None, length=2)
        return J.lax.cond(x[0] > 0, lambda x: J.numpy.sin(W @ x), lambda x: J.numpy.cos(x * x), x) + ys.sum(0)

    return lambda W, x: J.lax.scan(lambda x, _: (step(W, x), None), x, None, length=3)[0]


def chosen_branch(J):
    branches = [lambda W, x: J.numpy.sin(W @ x), lambda W, x: J.numpy.cos(x) * x, lambda W, x: x]
    return lambda W, x: J.lax.switch(J.numpy.int32(x[0] > 0), branches, W, x)


INSIDE = {
    "dots": lambda J: J.checkpoint_policies.dots_saveable,
    "sines": lambda J: lambda primitive, *_, **__: str(primitive) == "sin",
    "cosines": lambda J: lambda primitive, *_, **__: str(primitive) == "cos",
    "everything": lambda J: J.checkpoint_policies.everything_saveable,
}
SQUARE = sample(4, 4) / 4


def work_of_derivative(J, f, policy) -> list[int]:
    """How many products, sines and cosines the derivative of a function under `checkpoint` computes."""
    lin = J.linearize(J.checkpoint(lambda x: f(J)(SQUARE, x), policy=policy(J)), X)[1]
    text = str(J.make_jaxpr(lin)(X))
    return [len(re.findall(rf"\b{word}\b", text)) for word in ("dot_general", "sin", "cos")]


@pytest.mark.sweep
@pytest.mark.parametrize("policy", INSIDE)
@pytest.mark.parametrize("f", [looped, chosen_branch])
@pytest.mark.one_in(2)
def test_policies_hold_inside_of_loops_and_branches(f, policy):
    assert work_of_derivative(OURS, f, INSIDE[policy]) == work_of_derivative(THEIRS, f, INSIDE[policy])
    kept = jax.checkpoint(f(OURS), policy=INSIDE[policy](OURS))
    for derive in (jax.jacrev, jax.jacfwd):
        got, want = (jax.jit(derive(g, argnums=(0, 1)))(SQUARE, X) for g in (kept, f(OURS)))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    batched = jax.vmap(jax.grad(lambda x: kept(SQUARE, x).sum()))(np.stack([X, -X]))
    np.testing.assert_allclose(batched[0], jax.grad(lambda x: f(OURS)(SQUARE, x).sum())(X), rtol=2e-5, atol=1e-6)
