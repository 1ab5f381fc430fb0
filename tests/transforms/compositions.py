"""Random compositions of transformations: functions of two vectors of length 3 that return one.

`compose(seed)` draws an expression, a tree of operations and transformations, and returns its text and a function of
the library. `forward` and `reverse` say which modes of differentiation an expression will see: a `while_loop` has no
reverse mode, a `custom_vjp` no forward mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

N = 3
W = np.array([[0.3, -0.7, 0.2], [0.5, 0.1, -0.4], [-0.2, 0.6, 0.8]], np.float32)
STEPS = np.array([[0.3, -0.2, 0.9], [0.1, 0.8, -0.5]], np.float32)
PICK = np.array([2, 0, 2])


@dataclass
class Expression:
    """`make(J)` is the function of (x, y) in a library."""

    text: str
    make: Callable[[Any], Callable]


def operations(J) -> dict[str, Callable]:
    n, lax = J.numpy, J.lax
    return {
        "sin": lambda x, y: n.sin(x * 1.5) + 0.3 * y,
        "product": lambda x, y: n.tanh(x) * y,
        "bump": lambda x, y: n.exp(-((x - y) ** 2)),
        "matrix": lambda x, y: W @ x + y,
        "outer": lambda x, y: n.tanh((n.outer(x, y) @ W).sum(0)),
        "einsum": lambda x, y: n.einsum("i,ij,j->i", x, W, n.cos(y)),
        "softmax": lambda x, y: J.nn.softmax(x + y) * 2,
        "logsumexp": lambda x, y: x - J.nn.logsumexp(n.stack([x, y]), axis=0),
        "cumsum": lambda x, y: n.cumsum(x) * 0.5 - y,
        "cumprod": lambda x, y: n.cumprod(n.tanh(x) + 1.2) - y,
        "sort": lambda x, y: n.sort(x * y) + x,
        "reversed": lambda x, y: x[::-1] * 0.8 + y[0],
        "gather": lambda x, y: n.sin(x)[PICK] + y * x[1],
        "scatter": lambda x, y: n.asarray(x).at[PICK].add(y).at[1].multiply(y[0]),
        "update": lambda x, y: lax.dynamic_update_slice(n.sin(x), n.cos(y[:2]), (1,)),
        "at an index": lambda x, y: x * n.take(y, n.argmax(x)),
        "where": lambda x, y: n.where(x > 0.13, x * y, n.sin(y)),
        "maximum": lambda x, y: n.maximum(x, y) + 0.1 * n.minimum(x, 0.21),
        "joined": lambda x, y: n.concatenate([x, y]).reshape(3, 2).sum(1),
        "padded": lambda x, y: n.pad(x, (1, 1))[1:-1] * 0.5 + n.roll(y, 1),
        "largest": lambda x, y: x * x.max() - y.mean(),
        "scaled": lambda x, y: x / n.sqrt(1 + (x * x).sum() + (y * y).sum()),
        "stopped": lambda x, y: x * lax.stop_gradient(n.sin(y + x)),
        "division": lambda x, y: x / (1.5 + y * y),
        "logistic": lambda x, y: J.nn.sigmoid(x) ** 2 + n.arctan(y),
        "norm of parts": lambda x, y: n.split(n.stack([x, y]), 3, axis=1)[1].sum() * x,
        "complex": lambda x, y: n.abs((x + 1j * y) * (0.5 - 0.3j)) + n.real(n.exp(1j * x)),
        "integers": lambda x, y: x * (n.floor(y * 2).astype(n.int32) % 3) + y,
        "half": lambda x, y: x + y.astype(n.bfloat16).astype(n.float32) * 0.5,
        "unused": lambda x, y: n.cos(x),
    }


OPERATIONS = sorted(operations(__import__("types").SimpleNamespace(numpy=None, lax=None, nn=None)))


def squashed(J, fun):
    """Keeps numbers, and derivatives of derivatives, from growing."""
    return lambda *args: J.numpy.tanh(fun(*args) * 0.5)


# -- transformations of one expression g, or two g and h: `(J, g, h) -> function` -----------------------------


def _jit(J, g, h):
    return J.jit(g)


def _chain(J, g, h):
    return lambda x, y: h(g(x, y), y)


def _sum(J, g, h):
    return lambda x, y: g(x, y) * 0.5 + h(y, x)


def _closure(J, g, h):
    def f(x, y):
        t = g(x, y)
        return J.jit(lambda z: h(z, t))(x) + h(t, x)

    return f


def _checkpoint(J, g, h):
    return J.checkpoint(g)


def _checkpoint_dots(J, g, h):
    return J.checkpoint(lambda x, y: h(g(x, y), x), policy=J.checkpoint_policies.dots_saveable)


def _vmap(J, g, h):
    return lambda x, y: J.vmap(g, (0, None))(J.numpy.stack([x, y * 0.5]), y).sum(0)


def _vmap_both(J, g, h):
    return lambda x, y: J.vmap(g, (1, 0), 1)(J.numpy.outer(x, y), STEPS[:1] * y[:, None] + x)[:, 1]


def _vmap_elements(J, g, h):
    return lambda x, y: J.vmap(lambda s: g(s * x, y)[1])(y)


def _vmap_named(J, g, h):
    return lambda x, y: J.vmap(lambda a: J.lax.pmean(g(a, y), "i") + J.lax.psum(a, "i") * a, axis_name="i")(
        STEPS * x).mean(0)  # fmt: skip


def _map(J, g, h):
    return lambda x, y: J.lax.map(lambda a: g(a, y), STEPS + x).sum(0)


def _grad(J, g, h):
    return J.grad(lambda x, y: g(x, y).sum(), 0)


def _grad_tree(J, g, h):
    def f(x, y):
        (value, aux), ct = J.value_and_grad(
            lambda p: ((g(p["a"], p["b"][0]) ** 2).sum(), p["b"][0] * 2), has_aux=True)({"b": [y, None], "a": x})
        return ct["a"] + ct["b"][0] * value + aux  # fmt: skip

    return f


def _grad_closed(J, g, h):
    """The gradient by a scalar, of a function that closes over all else."""
    return lambda x, y: x * J.grad(lambda s: g(s * x, y) @ x)(y[0])


def _jvp(J, g, h):
    return lambda x, y: J.jvp(lambda x: g(x, y), (x,), (y,))[1]


def _jvp_both(J, g, h):
    def f(x, y):
        out, tangent = J.jvp(g, (x, y), (J.numpy.sin(y), x))
        return out + tangent * 0.7

    return f


def _vjp(J, g, h):
    def f(x, y):
        out, pull = J.vjp(g, x, y)
        a, b = pull(x)
        return a - b + out

    return f


def _linearize(J, g, h):
    def f(x, y):
        out, push = J.linearize(lambda x: g(x, y), x)
        return out + push(y) - push(x * 0.3)

    return f


def _hessian(J, g, h):
    return lambda x, y: J.hessian(lambda x: g(x, y).sum())(x) @ y


def _jacfwd(J, g, h):
    return lambda x, y: J.jacfwd(g, 1)(x, y) @ x


def _jacrev(J, g, h):
    return lambda x, y: x @ J.jacrev(g)(x, y)


def _scan(J, g, h):
    def f(x, y):
        c, ys = J.lax.scan(lambda c, a: (g(c, a * y), h(c, a) + x), x, STEPS)
        return c + ys.sum(0)

    return f


def _scan_back(J, g, h):
    def f(x, y):
        def body(carry, a):
            c, i = carry
            return (g(c, y) + a["s"] * i, i + 1), c * i

        (c, i), ys = J.lax.scan(body, (x, 0), {"s": J.numpy.sin(STEPS) * x}, reverse=True)
        return c + ys[0] * i

    return f


def _scan_checkpoint(J, g, h):
    return lambda x, y: J.lax.scan(J.checkpoint(lambda c, _: (g(c, y), None)), x, length=2)[0]


def _fori(J, g, h):
    return lambda x, y: J.lax.fori_loop(0, 2, lambda i, c: g(c, y + i) - c * 0.1, x)


def _while(J, g, h):
    def f(x, y):
        more = lambda s: (s[0] < 3) & (s[1].sum() < 2.5)
        return J.lax.while_loop(more, lambda s: (s[0] + 1, g(s[1], y)), (0, x))[1]

    return f


def _fori_traced(J, g, h):
    return lambda x, y: J.lax.fori_loop(0, 1 + (x[0] > 0.05).astype(int), lambda i, c: g(c, y), x)


def _cond(J, g, h):
    return lambda x, y: J.lax.cond(x[0] > 0.07, g, lambda a, b: h(b, a) + x, x, y)


def _switch(J, g, h):
    def f(x, y):
        i = J.numpy.floor(x[1] * 2 + 1).astype(int)
        return J.lax.switch(i, [g, h, lambda a, b: a * y], y, x)

    return f


def _custom_jvp(J, g, h):
    f = J.custom_jvp(lambda x, y: g(x, y))

    @f.defjvp
    def rule(primals, tangents):
        out, tangent = J.jvp(g, primals, tangents)
        return f(*primals), tangent * 1.5 + out * tangents[0]

    return f


def _custom_vjp(J, g, h):
    f = J.custom_vjp(lambda x, y: g(x, y))
    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda res, ct: tuple(2 * t for t in J.vjp(g, *res)[1](ct)))
    return f


def _custom_vjp_kept(J, g, h):
    """Keeps the pullback of the forward pass."""
    f = J.custom_vjp(lambda x, y: g(x, y))

    def bwd(pull, ct):
        a, b = pull(ct)
        return a * 1.5, b

    f.defvjp(lambda x, y: J.vjp(g, x, y), bwd)
    return f


# Name: (transformation, expressions it takes, needs forward mode, needs reverse mode)
TRANSFORMATIONS = {
    "jit": (_jit, 1, 0, 0), "chain": (_chain, 2, 0, 0), "sum": (_sum, 2, 0, 0), "closure": (_closure, 2, 0, 0),
    "checkpoint": (_checkpoint, 1, 0, 0), "checkpoint dots": (_checkpoint_dots, 2, 0, 0), "vmap": (_vmap, 1, 0, 0),
    "vmap both": (_vmap_both, 1, 0, 0), "vmap elements": (_vmap_elements, 1, 0, 0),
    "vmap named": (_vmap_named, 1, 0, 0), "map": (_map, 1, 0, 0), "grad": (_grad, 1, 0, 1),
    "grad tree": (_grad_tree, 1, 0, 1), "grad closed": (_grad_closed, 1, 0, 1), "jvp": (_jvp, 1, 1, 0),
    "jvp both": (_jvp_both, 1, 1, 0), "vjp": (_vjp, 1, 0, 1), "linearize": (_linearize, 1, 1, 0),
    "hessian": (_hessian, 1, 1, 1), "jacfwd": (_jacfwd, 1, 1, 0), "jacrev": (_jacrev, 1, 0, 1),
    "scan": (_scan, 2, 0, 0), "scan back": (_scan_back, 1, 0, 0), "scan checkpoint": (_scan_checkpoint, 1, 0, 0),
    "fori": (_fori, 1, 0, 0), "while": (_while, 1, 0, 0), "fori traced": (_fori_traced, 1, 0, 0),
    "cond": (_cond, 2, 0, 0), "switch": (_switch, 2, 0, 0), "custom_jvp": (_custom_jvp, 1, 1, 0),
    "custom_vjp": (_custom_vjp, 1, 0, 1), "custom_vjp kept": (_custom_vjp_kept, 1, 0, 1),
}  # fmt: skip
NO_REVERSE = ("while", "fori traced")
NO_FORWARD = ("custom_vjp", "custom_vjp kept")
# Derivatives of derivatives of derivatives take long to trace, and mean little in float32.
DERIVATIVES = frozenset(name for name, (_, _, forward, reverse) in TRANSFORMATIONS.items() if forward or reverse)


class Composer:
    """Draws expressions."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def expression(self, depth: int, forward: bool, reverse: bool, orders: int) -> Expression:
        if depth == 0:
            return self.operation()
        allowed = [
            name for name in TRANSFORMATIONS
            if not (reverse and name in NO_REVERSE) and not (forward and name in NO_FORWARD)
            and (orders > 0 or name not in DERIVATIVES)
        ]  # fmt: skip
        name = self.pick(allowed)
        transform, takes, needs_forward, needs_reverse = TRANSFORMATIONS[name]
        left = orders - (2 if name == "hessian" else name in DERIVATIVES)
        # The expressions need not be equally deep.
        depths = [depth - 1, int(self.rng.integers(depth))][:takes]
        parts = [self.expression(d, forward or bool(needs_forward), reverse or bool(needs_reverse), left) for d in depths]

        def make(J):
            g, h = (parts[0].make(J), parts[-1].make(J))
            return squashed(J, transform(J, g, h))

        return Expression(f"{name}({', '.join(p.text for p in parts)})", make)

    def operation(self) -> Expression:
        names = [self.pick(OPERATIONS) for _ in range(int(self.rng.integers(1, 3)))]

        def make(J):
            table = operations(J)

            def f(x, y):
                for name in names:
                    x = table[name](x, y)
                return x

            return f

        return Expression("; ".join(names), make)


def compose(seed: int, depth: int = 4) -> Expression:
    return Composer(seed).expression(depth, False, False, 3)


def arguments(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, 1])
    return tuple(rng.uniform(-1.5, 1.5, N).astype(np.float32) for _ in range(2))
