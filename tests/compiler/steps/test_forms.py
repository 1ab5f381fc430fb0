"""The forms between the stages of the compiler keep their rules, and what breaks one is refused."""

from dataclasses import replace

import numpy as np
import pytest

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import NamedSharding
from mpijax.compiler.graph import inline, nodes
from mpijax.compiler.graph.build import build_graph
from mpijax.compiler.graph.nodes import Value, ValueKind
from mpijax.compiler.sharding import build_shards, partitioner
from mpijax.compiler.steps import lower
from mpijax.compiler.steps import plan as plans
from mpijax.compiler.steps.control import control_step
from mpijax.compiler.steps.instructions import Advance, Copy, KernelCall, Output, Place, Point, Pointer, Temp
from mpijax.compiler.steps.lower import lowered
from mpijax.compiler.steps.memory import BufferAssignment
from mpijax.compiler.steps.planner import plan_program
from mpijax.core.base import config
from mpijax.core.base.errors import BrokenForm
from mpijax.sharding import AxisType
from mpijax.sharding import PartitionSpec as P

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def attention(x):
    return jax.nn.softmax(x @ x.T / 8, axis=-1) @ x


def recurrent(x):
    return jax.lax.scan(lambda c, row: (jnp.tanh(c + row), c.sum()), x[0], x)


def stencil(x):
    def step(_, u):
        return u.at[1:-1].add(0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]))

    return jax.lax.fori_loop(0, 5, step, x)


def sorted_by_parts(x):
    return jnp.sort(jnp.concatenate([x, x[::-1]]), axis=0), jnp.cumsum(x, axis=1), jnp.argmax(x)


def searched(x):
    return jax.lax.while_loop(lambda c: c[1] < 9, lambda c: (c[0] * 0.5, c[1] + 1), (x, 0))


def chosen(x):
    return jax.lax.cond(x[0, 0] > 0, lambda x: x @ x, lambda x: x - np.arange(8, dtype=np.float32), x)


def forgotten(x):
    chosen(x)
    return x * 2


def solved(x):
    return jnp.linalg.solve(x + 9 * jnp.eye(8, dtype=x.dtype), x), jax.random.normal(jax.random.key(0), (9,))


PROGRAMS = [attention, recurrent, stencil, sorted_by_parts, searched, chosen, forgotten, solved]
PROGRAMS += [jax.grad(lambda x, f=f: f(x)[0].sum() + 0.0) for f in (attention, recurrent, stencil)]


TABLE = jnp.arange(8.0)


def calling(x, n):
    """Calls in calls: equal ones twice, with a constant, of which a result is an argument, and some that are apart."""
    twice = jax.jit(lambda v: (v + v, v))
    looked_up = jax.jit(lambda v: twice(v)[0] * TABLE[n] + twice(twice(v)[1])[1])
    apart = jax.checkpoint(lambda v: jnp.sin(twice(v)[0]))
    return looked_up(x) - looked_up(2 * x), jax.grad(lambda v: apart(apart(v)).sum())(x), twice(n)[1], 3


def test_programs_without_calls_compute_the_same():
    closed = jax.make_jaxpr(calling)(X, 2)
    program = inline.inlined(closed)
    inline.verify(program)
    found = jax.core.eval_jaxpr(program.closed.jaxpr, program.closed.consts, X, 2)
    for a, b in zip(found, calling(X, 2), strict=True):
        np.testing.assert_array_equal(a, b)
    assert program.apart and set(program.apart.values()) == set(range(1, 1 + max(program.apart.values())))


def test_programs_without_calls_stay():
    closed = jax.make_jaxpr(jnp.sin)(X)
    assert inline.inlined(closed).closed is closed


def test_broken_programs_are_refused():
    program = inline.inlined(jax.make_jaxpr(calling)(X, 2))
    jaxpr = program.closed.jaxpr

    def refused(rule, eqns):
        with pytest.raises(BrokenForm, match=rule):
            inline.verify(inline.InlinedJaxpr(program.closed.replace(jaxpr=jaxpr.replace(eqns=eqns))))

    refused("assigned before they are read", jaxpr.eqns[1:])
    refused("assigned once", [*jaxpr.eqns, jaxpr.eqns[0]])
    refused("has no calls", [*jaxpr.eqns, *jax.make_jaxpr(jax.jit(jnp.sin))(1.0).eqns])


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
@pytest.mark.parametrize("donated", [False, True])
@pytest.mark.one_in(3)
def test_all_forms_of_a_program_keep_their_rules(number, donated):
    closed = jax.make_jaxpr(PROGRAMS[number])(X)
    with config.enable_checks(True):
        plan_program(closed, (donated,))


def test_operations_with_several_results_keep_their_rules():
    with config.enable_checks(True), config.threefry_partitionable(False):
        bits = jax.jit(lambda k: jax.random.bits(k, (5,)))(jax.random.key(3))
    assert bits.shape == (5,)


# ---------------------------------------------------------------- graphs


def graph(fun=lambda x: jnp.sin(x).sum(axis=0) + jnp.cos(x[0])):
    return build_graph(jax.make_jaxpr(fun)(X))


def node_of(found, name):
    return next(n for n in found.nodes if n.primitive.name == name)


def unordered(found):
    return replace(found, nodes=found.nodes[::-1])


def unknown_result(found):
    return replace(found, outputs=(Value(found.outputs[0].aval, ValueKind.NODE, found.nodes[0], 0),))


def forgotten_reader(found):
    [x] = found.inputs
    return replace(found, users={**found.users, x: found.users[x][1:]})


def other_shape(found):
    node_of(found, "sin").inputs[0] = node_of(found, "cos").outputs[0]
    return found


def other_axes(found):
    node = node_of(found, "reduce_sum")
    node.params = {**node.params, "axes": ()}
    return found


def made_twice(found):
    node_of(found, "cos").outputs[0].position = 1
    return found


GRAPHS = {
    unordered: "operands are arguments or results of earlier operations",
    unknown_result: "A graph computes its results",
    forgotten_reader: "`users` of a value must list each operation that reads it",
    other_shape: "operands are arguments or results of earlier operations|have the result's shape",
    other_axes: "a reduction keeps the other axes",
    made_twice: "a result is computed once, by its producer",
}


@pytest.mark.parametrize("broken", GRAPHS, ids=lambda f: f.__name__)
def test_broken_graphs_are_refused(broken):
    found = graph()
    nodes.verify(found)
    with pytest.raises(BrokenForm, match=GRAPHS[broken]):
        nodes.verify(broken(found))


# ---------------------------------------------------------------- shards


def wrong_shape(p, v, blocks):
    p.known.blocks[v] = blocks.recut((None, None))


def wrong_sharding(p, v, blocks):
    p.known.shardings[v] = NamedSharding(blocks.mesh, P(None, "i"))


SHARDS = {
    wrong_shape: "A shard has the shape of its part",
    wrong_sharding: "A sharding describes the shard that it belongs to",
}


@pytest.mark.parametrize("broken", SHARDS, ids=lambda f: f.__name__)
def test_broken_shards_are_refused(broken, monkeypatch):
    sharding = NamedSharding(jax.make_mesh((4,), ("i",), (AxisType.Auto,), devices=jax.simulate.devices(4, 2)), P("i"))
    partitioners = []
    monkeypatch.setattr(build_shards, "verify", partitioners.append)
    with config.enable_checks(True):
        found = build_shards.build_shards(jax.make_jaxpr(lambda x: jnp.sin(x)[1:])(np.ones((8, 4))), (sharding,))
    [p] = partitioners
    partitioner.verify(p)
    broken(p, found.inputs[0], p.blocks_of(found.inputs[0]))
    with pytest.raises(BrokenForm, match=SHARDS[broken]):
        partitioner.verify(p)


# ---------------------------------------------------------------- steps


def test_steps_in_the_wrong_order_are_refused():
    steps = list(lowered(graph(lambda x: jnp.sin(x @ x) @ x), (), control_step).steps)
    lower.verify(steps)
    with pytest.raises(BrokenForm, match="A step reads results of earlier steps only"):
        lower.verify(steps[::-1])


# ---------------------------------------------------------------- plans


def plan():
    """Two temporaries, of which one is made of the other, and a loop."""

    def fun(x):
        a = x @ x
        b = jnp.sin(a) @ a
        return b @ a, recurrent(x)

    return plan_program(jax.make_jaxpr(fun)(X))


def at(found, kind, number=0):
    return [i for i, b in enumerate(found.buffers) if isinstance(b, kind)][number]


def changed(found, i, **fields):
    buffers = (*found.buffers[:i], replace(found.buffers[i], **fields), *found.buffers[i + 1 :])
    return replace(found, buffers=buffers)


def added(found, *instructions, buffers=()):
    return replace(found, instructions=(*found.instructions, *instructions), buffers=(*found.buffers, *buffers))


def two_in_one_place(found):
    first, second = at(found, Temp), at(found, Temp, 1)
    touch = [Copy(Place(i), Place(0), 4) for i in (first, second, first)]
    found = replace(found, instructions=(*touch, *found.instructions))
    return changed(found, second, offset=found.buffers[first].offset)


@pytest.mark.parametrize(
    "broken, message",
    [
        (("_dies", lambda self, u, t, outputs: True), "was overwritten by"),
        (("_group_last", lambda self, key: self.first_def[key]), "was overwritten by|which it still reads|in one place"),
    ],
    ids=["operands that live on", "lives that are too short"],
)
def test_broken_memory_is_refused(broken, message, monkeypatch):
    def f(x):
        y = x @ x
        return (jnp.tanh(y) @ x) @ y

    closed = jax.make_jaxpr(f)(np.zeros((64, 64), np.float32))
    plan_program(closed)
    monkeypatch.setattr(BufferAssignment, *broken)
    with pytest.raises(BrokenForm, match=message):
        plan_program(closed)


def test_memory_of_no_bytes_lies_anywhere():
    found = plan()
    first, inside = at(found, Temp), len(found.buffers)
    empty = replace(found.buffers[first], offset=found.buffers[first].offset + 64, nbytes=0)
    touch = [Copy(Place(first), Place(0), 4), Copy(Place(inside), Place(0), 0), Copy(Place(first), Place(0), 4)]
    instructions = (*touch, *found.instructions)
    plans.verify(replace(found, instructions=instructions, buffers=(*found.buffers, empty)))


PLANS = {
    "outside of the arena": (lambda p: changed(p, at(p, Temp), offset=1 << 20), "temporaries lie in the arena"),
    "unaligned": (lambda p: replace(changed(p, at(p, Temp), offset=4), arena=1 << 12), "temporaries begin at multiples of 64"),
    "two in one place": (two_in_one_place, "in use at the same time do not overlap"),
    "a donor too many": (lambda p: changed(changed(p, at(p, Output), donor=0), at(p, Output, 1), donor=0), "donates its memory to one"),
    "no such argument": (lambda p: changed(p, at(p, Output), donor=3), "that of arguments of the program"),
    "no such kernel": (lambda p: replace(p, kernels={}), "the plan contains the kernels that it calls"),
    "no such buffer": (lambda p: added(p, Copy(Place(99), Place(0), 4)), "places lie in buffers of the plan"),
    "beyond the end": (lambda p: added(p, Copy(Place(at(p, Output), 252), Place(0), 8)), "places lie within their buffers"),
    "not a pointer": (lambda p: added(p, Point(0, Place(0))), "only pointers move"),
    "points nowhere": (lambda p: added(p, Advance(len(p.buffers), 4), buffers=[Pointer()]), "before it moves"),
    "negative extent": (lambda p: added(p, KernelCall([*p.kernels][0], (), (), -1, 1)), "an extent is at least 0"),
    "a result elsewhere": (lambda p: replace(p, results=(replace(p.results[0], kind=plans.ResultKind.CONST), *p.results[1:])), "a result buffer or a constant"),
    "not returned": (lambda p: added(p, buffers=[Output(4)]), "each result buffer is returned"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.one_in(3)
def test_broken_plans_are_refused(name):
    breaks, rule = PLANS[name]
    found = plan()
    plans.verify(found)
    with pytest.raises(BrokenForm, match=rule):
        plans.verify(breaks(found))
