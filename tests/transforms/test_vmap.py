"""vmap: against the stacked loop and JAX; forms of in_axes and out_axes; named axes."""

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, sample
from quickly import one_in

X3, X23, X34, X234 = sample(3), sample(2, 3), sample(3, 4), sample(2, 3, 4)
I3 = np.array([2, 0, 1], np.int32)

# Functions of one example (of 3 elements) that return arrays.
EXAMPLES = {
    "elementwise": lambda J: lambda x: J.numpy.sin(x) * 2 + x**2,
    "reductions": lambda J: lambda x: (x.sum(), x.max(), x.argmin(), x.mean(), x.any()),
    "constants": lambda J: lambda x: (x, 1.0, J.numpy.ones(2)),
    "shapes": lambda J: lambda x: (x[:, None] * x, x[::-1], x.reshape(1, 3).T, J.numpy.stack([x, x])),
    "products": lambda J: lambda x: (x @ x, J.numpy.outer(x, x) @ x, J.numpy.einsum("i,j->ij", x, x)),
    "slices": lambda J: lambda x: (x[1:], x[-1], J.lax.dynamic_slice(x, (x.argmax(),), (2,))),
    "gather": lambda J: lambda x: (x[I3], x[x.argmax()], J.numpy.take(x, I3[:2])),
    "updates": lambda J: lambda x: (x.at[1].set(5.0), x.at[x.argmax()].add(1.0), x.at[:2].multiply(2)),
    "where": lambda J: lambda x: J.numpy.where(x > x.mean(), x, 0),
    "sort": lambda J: lambda x: (J.numpy.sort(x), J.numpy.argsort(x), J.numpy.cumsum(x)),
    "padding": lambda J: lambda x: (J.numpy.pad(x, 1), J.numpy.concatenate([x, X3])),
    "softmax": lambda J: lambda x: J.nn.softmax(x),
    "jitted": lambda J: J.jit(lambda x: x * J.jit(lambda y: y.sum())(x)),
    "gradient": lambda J: J.grad(lambda x: (x**3).sum()),
    "jvp": lambda J: lambda x: J.jvp(J.numpy.sin, (x,), (x,)),
    "pytrees": lambda J: lambda x: {"a": [x, x.sum()], "b": None},
    "dtypes": lambda J: lambda x: (x.astype(np.int32), x.astype(np.float16) * 2, x > 0, x + 1j),
}


@pytest.mark.parametrize("name", one_in(3, EXAMPLES))
def test_vmap_is_the_stacked_loop(name):
    f = EXAMPLES[name](OURS)
    batch = OURS.numpy.asarray(sample(4, 3, seed=1))
    together = OURS.tree.leaves(OURS.vmap(f)(batch))
    one_by_one = [OURS.tree.leaves(f(x)) for x in batch]
    for i, result in enumerate(together):
        for j, example in enumerate(one_by_one):
            np.testing.assert_allclose(result[j], example[i], rtol=1e-6, atol=1e-6)


@pytest.mark.sweep
@pytest.mark.parametrize("name", [n for n in EXAMPLES if n != "pytrees"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.one_in(3)
def test_vmap_is_jaxs(name, axis):
    batch = np.moveaxis(sample(4, 3, seed=1), 0, axis)
    check(
        lambda J: J.vmap(EXAMPLES[name](J), in_axes=axis),
        batch,
        jaxpr=False,
        eager=False,
        rtol=2e-6,
        atol=1e-6,
    )


FORMS = {
    "two axes": (lambda J: J.vmap(lambda x, y: x * y, in_axes=(0, 1)), (X23, X23.T.copy().T.T)),
    "shared argument": (lambda J: J.vmap(lambda x, y: x + y, in_axes=(0, None)), (X23, X3)),
    "negative axes": (lambda J: J.vmap(lambda x: x * 2, in_axes=-1, out_axes=-1), (X234,)),
    "out_axes": (lambda J: J.vmap(lambda x: (x * 2, x.sum()), out_axes=(1, 0)), (X234,)),
    "out_axes None": (lambda J: J.vmap(lambda x: (x, X3 * 2), out_axes=(0, None)), (X23,)),
    "out_axes in a tree": (
        lambda J: J.vmap(lambda x: {"a": x * 2, "b": x.sum()}, out_axes={"a": 1, "b": 0}),
        (X23,),
    ),
    "in_axes in a tree": (
        lambda J: J.vmap(lambda d, y: d["a"] + d["b"] + y, in_axes=({"a": 0, "b": None}, 0)),
        ({"a": X3, "b": 1.0}, X3),
    ),
    "in_axes prefix": (
        lambda J: J.vmap(lambda d: d["a"] * d["b"], in_axes=({"a": 1, "b": 0},)),
        ({"a": X23, "b": X3},),
    ),
    "in_axes list": (lambda J: J.vmap(lambda x, y: x + y, in_axes=[0, None]), (X3, 1.0)),
    "keywords": (lambda J: lambda x: J.vmap(lambda x, *, y: x + y)(x, y=x), (X3,)),
    "axis_size": (lambda J: lambda: J.vmap(lambda: J.numpy.ones(2), axis_size=3)(), ()),
    "python numbers": (lambda J: J.vmap(lambda x, n: x * n, in_axes=(0, None)), (X3, 2)),
    "nested": (lambda J: J.vmap(J.vmap(lambda x, y: x * y, (None, 0)), (0, None)), (X3, sample(4))),
    "three deep": (lambda J: J.vmap(J.vmap(J.vmap(lambda x: x + 1))), (X234,)),
    "different axes nested": (
        lambda J: J.vmap(J.vmap(lambda x: x * 2, in_axes=1), in_axes=2, out_axes=1),
        (X234,),
    ),
    "closure over the outer batch": (lambda J: J.vmap(lambda x: J.vmap(lambda y: x * y)(X34)), (sample(2),)),
    "of grad": (lambda J: J.vmap(J.grad(lambda w, x: (w @ x).sum()), in_axes=(None, 0)), (X34, sample(5, 4))),
    "grad of": (lambda J: J.grad(lambda w: J.vmap(lambda x: (w @ x) ** 2)(sample(5, 4)).sum()), (X34,)),
    "of jit of grad": (lambda J: J.vmap(J.jit(J.grad(lambda x: J.numpy.sin(x) * x))), (X3,)),
    "jacobian": (
        lambda J: lambda x: J.vmap(lambda t: J.jvp(lambda y: y**2, (x,), (t,))[1])(np.eye(3, dtype=np.float32)),
        (X3,),
    ),
    "per-example gradients": (
        lambda J: J.vmap(J.value_and_grad(lambda w, x: J.nn.logsumexp(w.T @ x)), (None, 0)),
        (X34, sample(5, 3)),
    ),
    "empty batch": (lambda J: J.vmap(lambda x: x.sum()), (X23[:0],)),
    "batch of one": (lambda J: J.vmap(lambda x: x @ x), (X23[:1],)),
}

NAMED = {
    "psum": lambda J: J.vmap(lambda x: J.lax.psum(x, "i"), axis_name="i"),
    "psum of a number": lambda J: J.vmap(lambda x: x / J.lax.psum(1, "i"), axis_name="i"),
    "pmean": lambda J: J.vmap(lambda x: x - J.lax.pmean(x, "i"), axis_name="i"),
    "pmax and pmin": lambda J: J.vmap(lambda x: (J.lax.pmax(x, "i"), J.lax.pmin(x, "i")), axis_name="i"),
    "axis_index": lambda J: J.vmap(lambda x: x * J.lax.axis_index("i"), axis_name="i"),
    "axis_size": lambda J: J.vmap(lambda x: x * J.lax.axis_size("i"), axis_name="i"),
    "all_gather": lambda J: J.vmap(lambda x: J.lax.all_gather(x, "i"), axis_name="i"),
    "all_gather tiled": lambda J: J.vmap(lambda x: J.lax.all_gather(x, "i", tiled=True), axis_name="i"),
    "ppermute": lambda J: J.vmap(lambda x: J.lax.ppermute(x * 2, "i", [(0, 1), (1, 0)]), axis_name="i"),
    "two axes": lambda J: J.vmap(J.vmap(lambda x: J.lax.psum(x, ("i", "j")), axis_name="j"), axis_name="i"),
    "inner axis": lambda J: J.vmap(J.vmap(lambda x: J.lax.psum(x, "j"), axis_name="j"), axis_name="i"),
    "outer axis": lambda J: J.vmap(J.vmap(lambda x: J.lax.psum(x, "i"), axis_name="j"), axis_name="i"),
    "in jit": lambda J: J.vmap(lambda x: J.jit(lambda y: J.lax.psum(y, "i"))(x), axis_name="i"),
    "gradient": lambda J: J.vmap(J.grad(lambda x: (J.lax.psum(x, "i") ** 2).sum()), axis_name="i"),
    "gradient of the whole": lambda J: J.grad(
        lambda x: J.vmap(lambda y: J.lax.psum(y**2, "i"), axis_name="i")(x)[0].sum()
    ),
}


@pytest.mark.parametrize("name", one_in(3, FORMS))
def test_forms_are_jaxs(name):
    make, args = FORMS[name]
    check(make, *args, jaxpr=False, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", one_in(3, NAMED))
def test_named_axes_are_jaxs(name):
    check(NAMED[name], X23, jaxpr=False, rtol=1e-6)


def test_python_runs_once_for_all_examples():
    seen = []
    OURS.vmap(lambda x: seen.append(x.shape) or x)(X23)
    assert seen == [(3,)]


def test_random_numbers_of_a_batch_of_keys():
    def draws(J):
        return np.asarray(J.vmap(lambda k: J.random.uniform(k, (2,)))(J.random.split(J.random.key(0), 3)))

    np.testing.assert_array_equal(draws(OURS), draws(THEIRS))
