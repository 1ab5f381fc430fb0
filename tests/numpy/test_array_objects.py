"""Objects that stand for an array by `__jax_array__`, inside of transformations."""

import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp


@mpijax.tree_util.register_pytree_node_class
class Parameter:
    """A box that has its array's attributes too."""

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value

    def __getattr__(self, name):
        if name == "value" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.value, name)

    def tree_flatten(self):
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


FUNCTIONS = {
    "sin": jnp.sin,
    "matmul": lambda p: jnp.matmul(p, p),
    "kron": lambda p: jnp.kron(p, p),
    "stack": lambda p: jnp.stack([p, p]),
    "sum": jnp.sum,
    "add": lambda p: jnp.ones((2, 2)) + p,
    "where": lambda p: jnp.where(jnp.eye(2) > 0, p, 2.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.one_in(2)
def test_derivatives_and_programs_of_objects(name):
    fun = FUNCTIONS[name]
    x = jnp.arange(1.0, 5.0).reshape(2, 2)
    wanted = fun(x)
    np.testing.assert_allclose(fun(Parameter(x)), wanted)
    np.testing.assert_allclose(mpijax.jit(fun)(Parameter(x)), wanted, rtol=1e-6)
    gradient = mpijax.grad(lambda p: jnp.sum(fun(p)))
    np.testing.assert_allclose(gradient(Parameter(x)).value, gradient(x), rtol=1e-6)
    batch = jnp.stack([x, x + 1])
    np.testing.assert_allclose(mpijax.vmap(fun)(Parameter(batch)), mpijax.vmap(fun)(batch), rtol=1e-6)


@pytest.mark.parametrize("call", [mpijax.jit, lambda f: lambda x: mpijax.eval_shape(f, x)])
def test_arguments_that_only_convert_to_an_array(call):
    class Box:
        def __jax_array__(self):
            return jnp.arange(4)

    assert mpijax.jit(lambda: jnp.sum(Box()))() == 6
    for _ in range(2):
        with pytest.raises(ValueError, match=r"Triggering __jax_array__\(\) during abstractification .* type Box"):
            call(lambda x: x)(Box())
        call(lambda x: x)(jnp.arange(4))
