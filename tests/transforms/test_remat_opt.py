"""`custom_vjp` with `optimize_remat`: where the residuals are not kept, the function runs and not the forward rule.

The rules here return another value than the function, so that one sees which of them has run.
"""

import numpy as np
import pytest
from oracle import OURS, check, sample

X = sample(3)


def tangent(J, of=lambda x: x):
    f = J.custom_vjp(lambda x: J.numpy.tan(of(x)))
    f.defvjp(
        lambda x: (J.numpy.sin(x), J.numpy.exp(x)),
        lambda res, ct: (J.numpy.log(res) * ct,),
        optimize_remat=True,
    )
    return f


def of_outer_value(J, y):
    """The function closes over a traced value, and the rule does not."""
    return J.checkpoint(tangent(J, lambda x: x * y))


PROGRAMS = {
    "no checkpoint": lambda J: J.value_and_grad(tangent(J)),
    "checkpoint": lambda J: J.value_and_grad(lambda x: J.checkpoint(tangent(J))(x) ** 2),
    "residuals kept": lambda J: J.value_and_grad(
        J.checkpoint(tangent(J), policy=J.checkpoint_policies.everything_saveable)
    ),
    "jit": lambda J: J.jit(J.value_and_grad(J.checkpoint(tangent(J)))),
    "inner jit": lambda J: J.value_and_grad(J.checkpoint(lambda x: J.jit(tangent(J))(x) * 2)),
    "loop": lambda J: J.value_and_grad(
        lambda x: J.lax.scan(lambda c, _: (J.checkpoint(tangent(J))(c), None), x, None, length=3)[0]
    ),
    "outer value": lambda J: J.jit(lambda y: J.value_and_grad(of_outer_value(J, y))(0.5)),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.one_in(2)
def test_one_number(program):
    check(program, np.float32(0.3), jaxpr=False, rtol=1e-5)


@pytest.mark.parametrize("program", [PROGRAMS["checkpoint"], PROGRAMS["outer value"]])
def test_vectorized(program):
    check(lambda J: J.vmap(program(J)), X, jaxpr=False, rtol=1e-5)


def test_vectorized_inside():
    total = lambda J: lambda x: J.vmap(J.checkpoint(tangent(J)))(x).sum()
    check(lambda J: J.value_and_grad(total(J)), X, jaxpr=False, rtol=1e-5)


def test_second_derivative():
    """That of the rule, as without `checkpoint`; JAX has none of a function under `checkpoint`."""
    assert OURS.grad(OURS.grad(OURS.checkpoint(tangent(OURS))))(0.3) == 1


def test_residuals_that_are_arguments_need_no_rule():
    f = OURS.custom_vjp(OURS.numpy.tan)
    f.defvjp(lambda x: (OURS.numpy.sin(x), x), lambda x, ct: (OURS.numpy.cos(x) * ct,), optimize_remat=True)
    pullback = OURS.make_jaxpr(OURS.value_and_grad(f))(0.3)
    (rule,) = (eqn for eqn in pullback.eqns if eqn.primitive.name == "remat_opt")
    assert pullback.jaxpr.outvars[0] is rule.outvars[0]
    assert all(v not in rule.outvars for eqn in pullback.eqns for v in eqn.invars)
