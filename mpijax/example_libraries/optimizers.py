"""``jax.example_libraries.optimizers``: optimizers as triples of functions over trees of parameters.

    opt_init, opt_update, get_params = optimizers.adam(1e-3)
    state = opt_init(params)
    state = opt_update(i, grad(loss)(get_params(state)), state)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import mpijax.numpy as jnp
from mpijax.core.trees import tree
from mpijax.example_libraries.schedules import (
    Schedule,
    constant,
    exponential_decay,
    inverse_time_decay,
    make_schedule,
    piecewise_constant,
    polynomial_decay,
)

__all__ = [
    "JoinPoint", "Optimizer", "OptimizerState", "Schedule", "Step", "adagrad", "adam", "adamax", "clip_grads",
    "constant", "exponential_decay", "inverse_time_decay", "l2_norm", "make_schedule", "momentum", "nesterov",
    "optimizer", "pack_optimizer_state", "piecewise_constant", "polynomial_decay", "rmsprop",
    "rmsprop_momentum", "sgd", "sm3", "unpack_optimizer_state",
]  # fmt: skip

Step = int


class OptimizerState(NamedTuple):
    """The state of an optimizer over a tree of parameters; a pytree of arrays.

    Attributes:
      packed_state: the arrays of the state of each parameter.
      tree_def: the structure of the parameters.
      subtree_defs: the structure of the state of each parameter.

    >>> mpijax.example_libraries.optimizers.sgd(0.1).init_fn({"w": jnp.ones(2)}).packed_state
    ([Array([1., 1.], dtype=float32)],)
    """

    packed_state: Any
    tree_def: Any
    subtree_defs: Any


tree.register_pytree_node(
    OptimizerState,
    lambda state: ((state.packed_state,), (state.tree_def, state.subtree_defs)),
    lambda defs, children: OptimizerState(children[0], *defs),
)


class Optimizer(NamedTuple):
    """An optimizer.

    Attributes:
      init_fn: `(params) -> state`.
      update_fn: `(iteration, gradients, state) -> state`.
      params_fn: `(state) -> params`.

    >>> type(mpijax.example_libraries.optimizers.sgd(0.1)).__name__
    'Optimizer'
    """

    init_fn: Callable
    update_fn: Callable
    params_fn: Callable


def optimizer(opt_maker: Callable[..., Any]) -> Callable[..., Optimizer]:
    """Decorator: turns a maker of `(init, update, get_params)` for one array into a maker for trees of arrays.

    The functions of the optimizer raise TypeError if the gradients have another structure than the parameters, or if an
    update changes the structure of the state.

    >>> @mpijax.example_libraries.optimizers.optimizer
    ... def halving():
    ...     return lambda x: x, lambda i, gradient, x: x / 2, lambda x: x
    >>> init, update, params = halving()
    >>> params(update(0, {"w": jnp.ones(2)}, init({"w": jnp.ones(2)})))
    {'w': Array([0.5, 0.5], dtype=float32)}
    """

    @functools.wraps(opt_maker)
    def tree_opt_maker(*args: Any, **kwargs: Any) -> Optimizer:
        init, update, get_params = opt_maker(*args, **kwargs)

        def tree_init(params: Any) -> OptimizerState:
            leaves, tree_def = tree.tree_flatten(params)
            return OptimizerState(*_packed([init(x) for x in leaves], tree_def))

        def tree_update(i: Any, gradients: Any, state: OptimizerState) -> OptimizerState:
            leaves, given = tree.tree_flatten(gradients)
            if given != state.tree_def:
                raise TypeError(
                    "optimizer update function was passed a gradient tree that did not match the parameter tree "
                    f"structure with which it was initialized: parameters {state.tree_def}, gradients {given}."
                )
            states = [update(i, g, s) for g, s in zip(leaves, _states(state))]
            new = OptimizerState(*_packed(states, state.tree_def))
            for before, after in zip(state.subtree_defs, new.subtree_defs):
                if before != after:
                    raise TypeError(
                        "optimizer update function produced an output structure that did not match its input "
                        f"structure: input {before} and output {after}."
                    )
            return new

        def tree_get_params(state: OptimizerState) -> Any:
            return tree.tree_unflatten(state.tree_def, [get_params(s) for s in _states(state)])

        return Optimizer(tree_init, tree_update, tree_get_params)

    return tree_opt_maker


def _packed(states: list[Any], tree_def: Any) -> tuple[Any, Any, Any]:
    flat = [tree.tree_flatten(state) for state in states]
    return tuple(leaves for leaves, _ in flat), tree_def, tuple(subtree for _, subtree in flat)


def _states(state: OptimizerState) -> list[Any]:
    return [tree.tree_unflatten(d, leaves) for d, leaves in zip(state.subtree_defs, state.packed_state)]


# ---------------------------------------------------------------- optimizers


def _first(state: Any) -> Any:
    return state[0]


@optimizer
def sgd(step_size: Any) -> Any:
    """Gradient descent. `step_size`: a number, or a function of the iteration, as for all optimizers here.

    >>> init, update, params = mpijax.example_libraries.optimizers.sgd(0.1)
    >>> params(update(0, jnp.array([1.0, -2.0]), init(jnp.zeros(2)))).round(4)
    Array([-0.1,  0.2], dtype=float32)
    """
    step_size = make_schedule(step_size)
    return lambda x: x, lambda i, g, x: x - step_size(i) * g, lambda x: x


@optimizer
def momentum(step_size: Any, mass: float) -> Any:
    """Gradient descent with momentum: each step keeps the fraction `mass` of the velocity.

    >>> init, update, params = mpijax.example_libraries.optimizers.momentum(0.1, mass=0.9)
    >>> params(update(0, jnp.array([1.0, -2.0]), init(jnp.zeros(2)))).round(4)
    Array([-0.1,  0.2], dtype=float32)
    """
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - step_size(i) * velocity, velocity

    return lambda x: (x, jnp.zeros_like(x)), update, _first


@optimizer
def nesterov(step_size: Any, mass: float) -> Any:
    """Nesterov's accelerated gradient descent.

    >>> init, update, params = mpijax.example_libraries.optimizers.nesterov(0.1, mass=0.9)
    >>> params(update(0, jnp.array([1.0, -2.0]), init(jnp.zeros(2)))).round(4)
    Array([-0.19,  0.38], dtype=float32)
    """
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, velocity = state
        velocity = mass * velocity + g
        return x - step_size(i) * (mass * velocity + g), velocity

    return lambda x: (x, jnp.zeros_like(x)), update, _first


def _inverse_root(squares: Any) -> Any:
    """1 / sqrt, and 0 for 0."""
    return jnp.where(squares > 0, 1.0 / jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)


@optimizer
def adagrad(step_size: Any, momentum: float = 0.9) -> Any:
    """Adagrad: divides steps by the root of the sum of squared gradients (Duchi, Hazan and Singer, JMLR 12, 2011).

    >>> init, update, params = mpijax.example_libraries.optimizers.adagrad(0.1)
    >>> params(update(0, jnp.array([1.0, -2.0]), init(jnp.zeros(2)))).round(4)
    Array([-0.01,  0.01], dtype=float32)
    """
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, m = state
        squares = squares + jnp.square(g)
        m = (1.0 - momentum) * (g * _inverse_root(squares)) + momentum * m
        return x - step_size(i) * m, squares, m

    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def rmsprop(step_size: Any, gamma: float = 0.9, eps: float = 1e-8) -> Any:
    """RMSProp: divides steps by the root of a running mean of squared gradients, which keeps the fraction `gamma`.

    >>> init, update, params = mpijax.example_libraries.optimizers.rmsprop(0.1)
    >>> params(update(0, jnp.array([1.0, -2.0]), init(jnp.zeros(2)))).round(4)
    Array([-0.3162,  0.3162], dtype=float32)
    """
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares = state
        squares = squares * gamma + jnp.square(g) * (1.0 - gamma)
        return x - step_size(i) * g / jnp.sqrt(squares + eps), squares

    return lambda x: (x, jnp.zeros_like(x)), update, _first


@optimizer
def rmsprop_momentum(step_size: Any, gamma: float = 0.9, eps: float = 1e-8, momentum: float = 0.9) -> Any:
    """`rmsprop` with a velocity.

    >>> init, update, params = mpijax.example_libraries.optimizers.rmsprop_momentum(0.1)
    >>> params(update(0, jnp.array([1.0, -2.0]), init(jnp.zeros(2)))).round(4)
    Array([-0.3162,  0.3162], dtype=float32)
    """
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, squares, velocity = state
        squares = squares * gamma + jnp.square(g) * (1.0 - gamma)
        velocity = momentum * velocity + step_size(i) * g / jnp.sqrt(squares + eps)
        return x - velocity, squares, velocity

    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


def _bias(decay: float, i: Any, like: Any) -> Any:
    """1 - decay ** (i + 1): the factor by which a running mean that starts at 0 is too small."""
    return 1 - jnp.asarray(decay, like.dtype) ** (i + 1)


@optimizer
def adam(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adam: uses running means of the gradients and of their squares (Kingma and Ba, arXiv:1412.6980).

    >>> init, update, params = mpijax.example_libraries.optimizers.adam(0.1)
    >>> params(update(0, jnp.array([1.0, -2.0]), init(jnp.zeros(2)))).round(4)
    Array([-0.1,  0.1], dtype=float32)
    """
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, v = state
        m = (1 - b1) * g + b1 * m
        v = (1 - b2) * jnp.square(g) + b2 * v
        return x - step_size(i) * (m / _bias(b1, i, m)) / (jnp.sqrt(v / _bias(b2, i, m)) + eps), m, v

    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def adamax(step_size: Any, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> Any:
    """Adamax: Adam with the largest gradient instead of the mean square.

    >>> init, update, params = mpijax.example_libraries.optimizers.adamax(0.1)
    >>> params(update(0, jnp.array([1.0, -2.0]), init(jnp.zeros(2)))).round(4)
    Array([-0.1,  0.1], dtype=float32)
    """
    step_size = make_schedule(step_size)

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, u = state
        m = (1 - b1) * g + b1 * m
        u = jnp.maximum(b2 * u, jnp.abs(g))
        return x - (step_size(i) / _bias(b1, i, m)) * m / (u + eps), m, u

    return lambda x: (x, jnp.zeros_like(x), jnp.zeros_like(x)), update, _first


@optimizer
def sm3(step_size: Any, momentum: float = 0.9) -> Any:
    """SM3: Adagrad with one vector of squares for each axis (Anil and others, arXiv:1901.11150).

    >>> init, update, params = mpijax.example_libraries.optimizers.sm3(0.1)
    >>> params(update(0, jnp.array([1.0, -2.0]), init(jnp.zeros(2)))).round(4)
    Array([-0.01,  0.01], dtype=float32)
    """
    step_size = make_schedule(step_size)

    def init(x: Any) -> Any:
        shape = x.shape
        x = jnp.atleast_1d(x)
        return x, jnp.zeros_like(x), [jnp.zeros(n, x.dtype) for n in x.shape], shape

    def update(i: Any, g: Any, state: Any) -> Any:
        x, m, along, shape = state
        ndim = x.ndim
        g = g.reshape(x.shape)
        spread = [v.reshape((1,) * k + (-1,) + (1,) * (ndim - k - 1)) for k, v in enumerate(along)]
        squares = functools.reduce(jnp.minimum, spread) + jnp.square(g)
        m = (1.0 - momentum) * (g * _inverse_root(squares)) + momentum * m
        along = [squares.max(axis=tuple(a for a in range(ndim) if a != k)) for k in range(ndim)]
        return x - step_size(i) * m, m, along, shape

    return init, update, lambda state: state[0].reshape(state[3])


# ---------------------------------------------------------------- gradients, checkpoints


def l2_norm(tree_of_arrays: Any) -> Any:
    """The Euclidean norm of all elements of a tree.

    >>> mpijax.example_libraries.optimizers.l2_norm({"a": jnp.array([3.0]), "b": jnp.array([4.0])})
    Array(5., dtype=float32)
    """
    return jnp.sqrt(sum(jnp.vdot(x, x) for x in tree.tree_leaves(tree_of_arrays)))


def clip_grads(grad_tree: Any, max_norm: float) -> Any:
    """The gradients, scaled down if their norm is larger than `max_norm`.

    >>> mpijax.example_libraries.optimizers.clip_grads(jnp.array([3.0, 4.0]), max_norm=1.0).round(4)
    Array([0.6, 0.8], dtype=float32)
    """
    norm = l2_norm(grad_tree)
    return tree.tree_map(lambda g: jnp.where(norm < max_norm, g, g * (max_norm / norm)), grad_tree)


class JoinPoint:
    """Marks the place in a tree at which the state of one parameter begins.

    >>> mpijax.example_libraries.optimizers.JoinPoint((1.0, 2.0)).subtree
    (1.0, 2.0)
    """

    def __init__(self, subtree: Any):
        self.subtree = subtree

    def __iter__(self) -> Any:
        yield self.subtree


def unpack_optimizer_state(opt_state: OptimizerState) -> Any:
    """A state in a form to save: the tree of the parameters, with a `JoinPoint` of the state of each parameter.

    >>> from mpijax.example_libraries import optimizers
    >>> state = optimizers.sgd(0.1).init_fn({"w": jnp.ones(2)})
    >>> optimizers.unpack_optimizer_state(state)["w"].subtree
    Array([1., 1.], dtype=float32)
    """
    return tree.tree_unflatten(opt_state.tree_def, [JoinPoint(state) for state in _states(opt_state)])


def pack_optimizer_state(marked_pytree: Any) -> OptimizerState:
    """A state from the tree that `unpack_optimizer_state` returns.

    Raises:
      TypeError: a leaf is not a JoinPoint.

    >>> from mpijax.example_libraries import optimizers
    >>> state = optimizers.sgd(0.1).init_fn({"w": jnp.ones(2)})
    >>> saved = optimizers.unpack_optimizer_state(state)
    >>> optimizers.pack_optimizer_state(saved).packed_state
    ([Array([1., 1.], dtype=float32)],)
    """
    points, tree_def = tree.tree_flatten(marked_pytree)
    strange = [type(p).__name__ for p in points if not isinstance(p, JoinPoint)]
    if strange:
        raise TypeError(f"pack_optimizer_state expects a tree of JoinPoints, got a leaf of type {strange[0]}.")
    return OptimizerState(*_packed([point.subtree for point in points], tree_def))
