"""The rules of the forms between fusion and machine code: kernels, and the schedules of their loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.compiler.fusion import kernel as kernels
from mpijax.compiler.fusion.expr import ExprTable, Load
from mpijax.compiler.loops import schedule as schedules
from mpijax.compiler.loops import scheduling
from mpijax.compiler.loops.scheduling import scheduled
from mpijax.compiler.steps.planner import plan_program
from mpijax.core.base.errors import BrokenForm
from mpijax.core.shapes.index import LoopVar, var


def f32(*shape):
    return np.zeros(shape, np.float32)


def i32(*shape):
    return np.zeros(shape, np.int32)


def normalized(x, axis):
    m = jnp.mean(x, axis, keepdims=True)
    return (x - m) / jnp.sqrt(jnp.var(x, axis, keepdims=True) + 1e-5)


def stencil(x):
    return x.at[1:-1, 1:-1].set(0.25 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2]))


def rotated(p, m):
    return jnp.stack([p[:, 0] * m[0] - p[:, 1] * m[1], p[:, 0] * m[1] + p[:, 1] * m[0], p[:, 2]], 1)


PROGRAMS = {
    "map": (lambda x: jnp.tanh(x) * x + 1, (f32(33, 65),)),
    "empty": (lambda x: jnp.sin(x), (f32(3, 0),)),
    "scalar": (lambda x: x * 2 + 1, (f32(),)),
    "softmax": (lambda x: mpijax.nn.softmax(x), (f32(33, 65),)),
    "softmax of columns": (lambda x: mpijax.nn.softmax(x, 0), (f32(333, 65),)),
    "long softmax": (lambda x: mpijax.nn.softmax(x), (f32(1 << 18),)),
    "layer norm": (lambda x: normalized(x, 1), (f32(65, 200),)),
    "batch norm": (lambda x: normalized(x, 0), (f32(300, 65),)),
    "sums": (lambda x: (x.sum(0), x.sum(1), x.max()), (f32(33, 65),)),
    "sum of rows": (lambda x: jnp.sum(x, 1), (f32(65, 2000),)),
    "sum of short rows": (lambda x: jnp.sum(x * x, 1), (f32(65, 200),)),
    "sum of columns": (lambda x: jnp.sum(x, 0), (f32(300, 65),)),
    "sum of few columns": (lambda x: jnp.sum(x, 0), (f32(9, 65),)),
    "large sum": (lambda x: jnp.sum(x), (f32(1 << 19),)),
    "two large sums": (lambda x: jnp.sum(x, 1), (f32(2, 1 << 19),)),
    "maximum of scores": (lambda x: jnp.max(x, 1), (f32(1000, 10),)),
    "argmax": (lambda x: jnp.argmax(x, 1), (f32(65, 200),)),
    "any": (lambda x: jnp.any(x > 1, 0), (f32(300, 65),)),
    "no elements": (lambda x: jnp.sum(x, 1), (f32(3, 0),)),
    "update": (lambda x, y: (x * 2).at[1:-1].set(y), (f32(9, 7), f32(7, 7))),
    "pad": (lambda x: lax.pad(x, np.float32(0), ((1, 2, 0), (0, -1, 1))), (f32(5, 7),)),
    "border": (lambda x: lax.pad(x, np.float32(0), ((1, 2, 0), (0, -1, 0))) * 2, (f32(5, 7),)),
    "roll": (lambda x: x - jnp.roll(x, (1, -2), (0, 1)), (f32(9, 70),)),
    "stencil": (stencil, (f32(64, 64),)),
    "concatenate": (lambda x, y: jnp.concatenate([x, jnp.sin(y), x]), (f32(7), f32(3))),
    "gather": (lambda x, i: x[i] + 1, (f32(9, 7), i32(5))),
    "dynamic slice": (lambda x, i: lax.dynamic_slice(x, (i, 0), (3, 7)) * 2, (f32(9, 7), i32())),
    "dynamic update": (lambda x, y, i: lax.dynamic_update_slice(x, y, (i, 0)), (f32(9, 7), f32(2, 7), i32())),
    "scatter": (lambda x, i, y: x.at[i].add(y), (f32(900), i32(50), f32(50))),
    "scatter of rows": (lambda x, i, y: x.at[i].max(y), (f32(90, 64), i32(50), f32(50, 64))),
    "transpose": (lambda x, y: x.T + y, (f32(48, 64), f32(64, 48))),
    "merge": (lambda x: (x[:, ::2].T * 2).reshape(-1), (f32(6, 8),)),
    "reverse": (lambda x: x[::-1] + x, (f32(100),)),
    "layer": (lambda x, w, b: jnp.tanh(x @ w + b), (f32(65, 40), f32(40, 33), f32(33))),
    "outer product": (lambda x, y: jnp.einsum("i,j->ij", x, y), (f32(9), f32(7))),
    "points": (rotated, (f32(1000, 3), f32(2))),
    "cumsum": (lambda x: jnp.cumsum(x, 1), (f32(9, 300),)),
    "cumsum of columns": (lambda x: lax.cumsum(x, 0, reverse=True), (f32(300, 200),)),
    "long cumsum": (lambda x: lax.cummax(x, 0, reverse=True), (f32(1 << 19),)),
    "random": (lambda k: mpijax.random.normal(k, (300,)), (mpijax.random.key(0),)),
    "loop": (lambda x: lax.fori_loop(0, 9, lambda _, x: jnp.cos(x) + x.sum(), x), (f32(30),)),
    "gradient": (mpijax.grad(lambda x: jnp.sum(mpijax.nn.softmax(x)[:, 0] ** 2)), (f32(33, 65),)),
}


def nests(name):
    """The kernels of a program. Others are made on the way: `test_the_compiler_verifies_what_it_makes` meets them."""
    fun, args = PROGRAMS[name]
    return plan_program(mpijax.make_jaxpr(fun)(*args)).nests


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(4)
def test_forms_of_programs_keep_their_rules(name):
    for nest in nests(name):
        kernels.verify(nest)
        schedules.verify(scheduled(nest))


def test_programs_take_all_strategies():
    taken = {scheduled(nest).strategy for name in PROGRAMS for nest in nests(name)}
    assert taken == set(schedules.Strategy)


@pytest.mark.parametrize("name", ["softmax", "long softmax", "update", "long cumsum", "scatter"])
def test_the_compiler_verifies_what_it_makes(name, monkeypatch):
    verified = []
    monkeypatch.setattr(kernels, "verify", verified.append)
    monkeypatch.setattr(scheduling, "verify", lambda s: verified.append(s.source))
    with mpijax.enable_checks(False):
        nests(name)
    assert not verified
    made = nests(name)
    sources = [x.source for x in verified]
    assert len(verified) >= 2 * len(made) > 0
    assert all(sources.count(nest.source) >= 2 for nest in made)


# ------------------------------------------------------------ kernels that break a rule


def nest(name):
    return nests(name)[0]


def with_store(kernel, **changes):
    return replace(kernel, inner=(replace(kernel.inner[0], **changes), *kernel.inner[1:]))


MAP, SUM, LAYER = (nest(name) for name in ("map", "sum of rows", "softmax"))
[STORE], OUTER, LAST = MAP.inner, SUM.outer[0], LAYER.reduces[-1]
ROWS, COLUMNS = MAP.variables
STRANGE = LoopVar(3, "j")
BROKEN_KERNELS = {
    "each loop variable is declared once": replace(MAP, variables=[ROWS, COLUMNS, ROWS]),
    "reduced axes are loops": replace(SUM, axes=(2,)),
    "a kernel has at least one store": replace(MAP, inner=()),
    "positions use loop variables of the kernel": with_store(MAP, position=STORE.position + var(STRANGE)),
    "each member is reduced once": replace(SUM, reduces=SUM.reduces * 2),
    "is the result of a reduction of the kernel": replace(SUM, reduces=()),
    "loads stay within": with_store(MAP, expr=ExprTable().load(STORE.value, STORE.position + 1)),
    "a reduced expression has the dtype of the result": replace(
        SUM, reduces=(replace(SUM.reduces[0], dtype=np.dtype(np.int32)),)),
    "a reduction reads results of earlier passes only": replace(
        LAYER, reduces=(*LAYER.reduces[:-1], replace(LAST, phase=0))),
    "a store for every element reads results of earlier passes only": with_store(LAYER, phase=0),
    "a store after the reductions does not depend on reduced loops": replace(
        SUM, outer=(replace(OUTER, expr=SUM.reduces[0].expr),)),
    "has its dtype": with_store(MAP, expr=ExprTable().const(1, np.int32)),
    "stores stay within": with_store(MAP, position=STORE.position + 1),
    "only ordered kernels have guards or combine": with_store(MAP, combine=lax.add_p),
    "iterations store to distinct elements of": with_store(MAP, position=var(ROWS) + var(COLUMNS)),
    "two stores to .* do not overlap": replace(MAP, inner=(STORE, STORE)),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN_KERNELS)
def test_a_kernel_that_breaks_a_rule_is_refused(rule):
    with pytest.raises(BrokenForm, match=rule):
        kernels.verify(BROKEN_KERNELS[rule])


def test_a_literal_is_not_loaded():
    [literal] = [v for v in (nest("scalar").expressions) if isinstance(v, Load)]
    literal.value.scalar = np.float32(2)
    with pytest.raises(BrokenForm, match="loads read arrays, not literals"):
        kernels.verify(replace(MAP, inner=(replace(STORE, expr=literal),)))


# ------------------------------------------------------------ schedules that break a rule

PLAIN, ALONG, BLOCKS, ORDERED, CHUNKS = (scheduled(nest(name)) for name in (
    "map", "sum of rows", "transpose", "scatter", "two large sums"))  # fmt: skip
BROKEN_SCHEDULES = {
    "each variable of the kernel is in one loop": replace(ALONG, loops=ALONG.loops[:1]),
    "each loop appears once": replace(ALONG, outer=()),
    "inner loops are reduced loops": replace(ALONG, inner=ALONG.loops, outer=()),
    "all other loops are kept loops": replace(ALONG, outer=ALONG.loops, inner=()),
    "`tiled` has a reduced loop": replace(PLAIN, strategy=schedules.Strategy.TILED),
    "`rows` has a loop over rows": replace(ALONG, strategy=schedules.Strategy.ROWS),
    "`blocked`, and no other strategy, has a tile loop": replace(BLOCKS, strategy=schedules.Strategy.ACROSS),
    "the kernel reads each staged array": replace(BLOCKS, staged=(ExprTable().const(1, np.float32),)),
    "lanes are along the innermost variable of their loop": replace(ALONG, vector=ALONG.outer[0][0]),
    "vector_size is the size of the vectorized loop": replace(PLAIN, vector_size=7),
    "numbers of lanes are powers of two": replace(PLAIN, lanes=6, step=6),
    "an iteration has all lanes": replace(PLAIN, lanes=8, step=4),
    "several lanes need a vectorized loop": replace(scheduled(nest("scalar")), lanes=4, step=4),
    "ordered kernels use lanes along consecutive elements, or one lane": replace(ORDERED, lanes=4, step=4),
    "a kernel with chunks, and no other, has a divided loop": replace(CHUNKS, chunked=None),
    "the loop over chunks is the outermost one": replace(CHUNKS, outer=CHUNKS.outer[::-1]),
    "the divided loop is reduced": replace(CHUNKS, chunked=1),
    "chunks cover the loop": replace(CHUNKS, chunk_length=CHUNKS.chunk_length - 1),
}


@pytest.mark.parametrize("rule", BROKEN_SCHEDULES)
def test_a_schedule_that_breaks_a_rule_is_refused(rule):
    with pytest.raises(BrokenForm, match=rule):
        schedules.verify(BROKEN_SCHEDULES[rule])
