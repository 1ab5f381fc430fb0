"""Looking at values in running programs: what is printed, when, from where; the debugger; shardings."""

from __future__ import annotations

import io
import re
from functools import partial

import numpy as np
import pytest
from oracle import OURS, THEIRS, jaxpr_text, run, sample
from quickly import one_in

from mpijax.core.base.config import debug_print_rank

X = sample(3)


def said(J, call, capfd) -> str:
    """What a program prints."""
    capfd.readouterr()
    call(J)
    J.effects_barrier()
    return capfd.readouterr().out


# ---------------------------------------------------------------- print


def square(J):
    def f(x):
        J.debug.print("x={x} twice={}", x * 2, x=x)
        return (x**2).sum()

    return f


def reference(J):
    def f(x):
        ref = J.new_ref(x)
        J.debug.print("{} {again}", ref, again=ref)
        ref[0] = 7.0
        J.debug.callback(lambda v: print(v), ref)
        return ref[...]

    return f


PROGRAMS = [
    lambda J: square(J)(X),
    lambda J: J.jit(square(J))(X),
    lambda J: J.grad(square(J))(X),
    lambda J: J.grad(J.jit(square(J)))(X),
    lambda J: J.jit(J.value_and_grad(square(J)))(X),
    lambda J: J.jvp(square(J), (X,), (X,)),
    lambda J: J.vmap(square(J))(sample(2, 3)),
    lambda J: J.jit(J.vmap(square(J), in_axes=1))(sample(2, 3)),
    lambda J: J.vmap(J.grad(square(J)))(sample(2, 3)),
    lambda J: J.debug.print("no values"),
    lambda J: J.debug.print("{:.2f} {name!r:>6} {t[0]}", 1.239, name="a", t=(3, 4)),
    lambda J: J.jit(lambda x: J.debug.print("d: {d}", d={"a": [x, 1, "text"]}))(X),
    lambda J: J.jit(lambda x: J.debug.print("{}", x > 0))(X),
    lambda J: J.debug.print(ordered=True)("{ordered}", ordered=3),
    lambda J: J.debug.print("a", X, skip_format_check=True),
    lambda J: J.jit(lambda x: [J.debug.print("{}", i, ordered=True) for i in range(5)][1:1])(X),
    lambda J: J.jit(lambda x: J.lax.scan(lambda c, v: (J.debug.print("{} {}", c, v) or c + v, v), 0.0, x))(X),
    lambda J: J.jit(lambda x: J.lax.fori_loop(0, 3, lambda i, c: J.debug.print("{}", i, ordered=True) or c, x))(X),
    lambda J: J.lax.cond(X[0] > 0, square(J), lambda x: J.debug.print("no") or 0.0, X),
    lambda J: J.grad(lambda x: J.lax.scan(lambda c, v: (c * v + J.jit(square(J))(v), v), 1.0, x)[0])(X),
    lambda J: J.jit(J.vmap(lambda n: J.lax.while_loop(lambda i: i < n, lambda i: J.debug.print("{}", i) or i + 1, 0)))(
        np.arange(3)
    ),
    lambda J: J.grad(J.checkpoint(square(J)))(X),
    lambda J: J.vmap(lambda x: J.lax.cond(x > 1, lambda: J.debug.print("{}", x, ordered=True) or x, lambda: -x))(X),
    lambda J: J.vmap(lambda n: J.lax.while_loop(
        lambda i: i < n, lambda i: J.debug.print("{}", i, ordered=True) or i + 1, 0))(np.arange(3)),
    lambda J: J.jit(lambda x: J.debug.callback(lambda v, s: print(s, v.sum()), x, s="sum"))(X),
    lambda J: J.jit(reference(J))(X),
    lambda J: J.jit(lambda r: J.debug.print("{}", r))(J.new_ref(X)),
]


def named_steps(J, ordered):
    def f(x):
        y = J.ad_checkpoint.checkpoint_name(x + 1, "y")
        z = J.ad_checkpoint.checkpoint_name(y * 2, "z")
        J.debug.print("y={} z={}", y, z, ordered=ordered)
        return J.numpy.exp(z)

    return f


def all_but(*names):
    return lambda primitive, *_, **params: not (primitive.name == "name" and params["name"] in names)


POLICIES = {
    "everything": lambda J: J.checkpoint_policies.everything_saveable,
    "nothing": lambda J: J.checkpoint_policies.nothing_saveable,
    "products": lambda J: J.checkpoint_policies.dots_saveable,
    "names but z": lambda J: J.checkpoint_policies.save_any_names_but_these("z"),
    "all but y": lambda J: all_but("y"),
    "all but y and z": lambda J: all_but("y", "z"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_checkpoint_prints_again_what_it_does_not_keep(policy, ordered, capfd):
    def program(J):
        return J.grad(J.checkpoint(named_steps(J, ordered), policy=POLICIES[policy](J)))(np.float32(2))

    theirs, ours = (said(J, program, capfd) for J in (THEIRS, OURS))
    assert ours == theirs and theirs.count("y=3.0 z=6.0") in (1, 2)


@pytest.mark.parametrize("number", one_in(2, range(len(PROGRAMS))))
@pytest.mark.one_in(3)
def test_programs_print_what_jax_prints(number, capfd):
    theirs, ours = (said(J, PROGRAMS[number], capfd).splitlines() for J in (THEIRS, OURS))
    # What is not ordered comes in the order of XLA's schedule.
    assert sorted(ours) == sorted(theirs) and ours


def test_precision_is_that_of_the_call(capfd):
    def call(J):
        with np.printoptions(precision=2):
            f = J.jit(lambda x: J.debug.print("{}", x))
            f(X / 3)

    assert said(OURS, call, capfd) == said(THEIRS, call, capfd)


@pytest.mark.parametrize(
    "args, kwargs",
    [(("{} {}", X), {}), (("{}", X, 3), {}), (("a",), {"q": X}), (("a", X), {}), (("{q}",), {}), ((), {"x": 3})],
)
def test_formats_are_checked_while_tracing(args, kwargs):
    theirs, ours = (run(lambda J=J: J.jit(lambda: J.debug.print(*args, **kwargs))()) for J in (THEIRS, OURS))
    assert theirs[:2] == ours[:2] and ours[0] == "error"


def test_unordered_messages_come_in_the_order_of_the_program_too(capfd):
    def f(x):
        OURS.debug.print("{{first}} {}", x)
        OURS.debug.print("second")

    assert said(OURS, lambda J: J.jit(f)(3), capfd) == "{first} 3\nsecond\n"


def test_rank_in_front_of_a_message(capfd):
    rank = OURS.process_index()
    f = OURS.jit(lambda x: OURS.debug.print("x {rank}", rank=x, show_rank=True))
    assert said(OURS, lambda J: f(3), capfd) == f"[rank {rank}] x 3\n"
    with debug_print_rank(True):
        assert said(OURS, lambda J: J.jit(lambda: J.debug.print("hello"))(), capfd) == f"[rank {rank}] hello\n"


def test_log_goes_to_the_logger(caplog):
    with caplog.at_level("INFO"):
        OURS.jit(lambda x: OURS.debug.log("value {}", x))(3)
    [record] = caplog.records
    assert record.getMessage() == "value 3" and record.pathname == __file__


def test_jaxpr_is_jaxs():
    def make(J):
        return lambda x: J.debug.print("{x} {}", x * 2, x=x, ordered=True)

    assert jaxpr_text(OURS, make, (X,)) == jaxpr_text(THEIRS, make, (X,))
    text = str(OURS.make_jaxpr(lambda x: OURS.debug.callback(print, x, ordered=True))(X))
    assert re.sub(r"\s+", " ", text) == (
        "{ lambda ; a:f32[3]. let debug_callback[ callback=<built-in function print> effect=OrderedDebug "
        "partitioned=False ] a in () }"
    )


# ---------------------------------------------------------------- callback


def test_callbacks_are_not_dropped_and_not_merged():
    seen = []

    @OURS.jit
    def f(x):
        for _ in range(2):
            OURS.debug.callback(seen.append, x)
        return 1.0

    f(3.0)
    OURS.grad(lambda x: OURS.jit(f)(x) * x)(4.0)
    assert [float(v) for v in seen] == [3.0, 3.0, 4.0, 4.0]


def test_callback_failures():
    def fails(_):
        raise KeyError("row")

    with pytest.raises(KeyError):
        OURS.debug.callback(fails, X)
    with pytest.raises(OURS.errors.JaxRuntimeError, match=r"callback fails at (.|\n)*KeyError: 'row'"):
        OURS.jit(lambda x: OURS.debug.callback(fails, x))(X)
    with pytest.raises(TypeError, match="must be callable"):
        OURS.debug.callback(3, X)


# ---------------------------------------------------------------- breakpoint


def talk(commands: str, f, *args, **options) -> list[str]:
    """What the debugger answers to each command."""
    out = io.StringIO()
    f(partial(OURS.debug.breakpoint, stdin=io.StringIO(commands), stdout=out, **options))(*args)
    return out.getvalue().replace("(jdb) ", "\x00").split("\x00")


def program(stop):
    @OURS.jit
    def inner(x):
        doubled = x * 2
        stop()
        return doubled

    def outer(x):
        scale = 10
        return inner(x) * scale

    return outer


def test_breakpoint_evaluates_in_the_frames():
    said = talk("p doubled\nx + 1\npp [1]\nnothing\nu\nlist\np scale\nd\nc\n", program, 3.0)
    assert said[0] == "Entering jdb:\n"
    assert said[1:4] == ["Array(6., dtype=float32)\n", "Array(4., dtype=float32)\n", "[1]\n"]
    assert said[4].startswith("*** NameError") and "->          return inner(x) * scale" in said[5]
    assert said[7] == "10\n"


@pytest.mark.parametrize("values", [(2, 2.5, True, 1j, None, "a"), (np.arange(2), np.float32(2)), ([1, {"k": 2.0}],)], ids=str)
@pytest.mark.one_in(3)
def test_breakpoint_shows_untraced_values_as_jax(values):
    said = []
    for J in (THEIRS, OURS):
        out = io.StringIO()

        @J.jit
        def f(x, J=J, out=out):
            here = values
            commands = io.StringIO("p here, x\nl\nu\nd\nc\n")
            J.debug.breakpoint(backend="cli", stdin=commands, stdout=out, num_frames=2)  # others are pytest's
            return len(here) + x

        f(3.0)
        J.effects_barrier()
        said.append(out.getvalue().replace(", weak_type=True", ""))
    assert said[1] == said[0]


def test_breakpoint_among_values_that_are_no_pytrees():
    def containers(stop):
        def f(x):
            holds_itself: dict = {}
            holds_itself["again"], mixed = holds_itself, {1: x, "a": 3}
            kind, spec = OURS.core.Tracer, OURS.ShapeDtypeStruct((2,), np.float32)
            stop()
            return mixed["a"], kind, spec

        return f

    commands = "p holds_itself['again'] is holds_itself\np sorted(map(str, mixed))\np kind.__name__, spec.shape\nc\n"
    said = talk(commands, containers, 3.0)
    assert said[1:4] == ["True\n", "['1', 'a']\n", "('Tracer', (2,))\n"]


def test_breakpoint_shows_where_it_is():
    said = talk("where\nlist\n\nc\n", program, 3.0)
    assert said[1].startswith("Traceback:\n") and said[1].splitlines()[-1].strip() == "stop()"
    assert "-> " in said[2]


def test_breakpoint_number_of_frames_and_ends():
    assert "At topmost frame." in talk("u\nd\nc\n", program, 3.0, num_frames=1)[1]
    with pytest.raises(SystemExit):
        talk("q\n", program, 3.0)
    with pytest.raises(ValueError, match="unknown debugger 'web'"):
        OURS.debug.breakpoint(backend="web")
    with pytest.raises(ValueError, match="mutually exclusive"):
        OURS.debug.breakpoint(ordered=True, token=X)


def test_breakpoint_with_a_token_is_pure():
    out = io.StringIO()

    def f(x, used):
        y = x * 2
        token = OURS.debug.breakpoint(token=y, stdin=io.StringIO("p y\nc\n"), stdout=out)
        return token if used else y

    f = OURS.jit(f, static_argnums=1)
    assert float(f(3.0, False)) == 6 and out.getvalue() == ""
    assert float(f(3.0, True)) == 6 and "Array(6., dtype=float32)" in out.getvalue()


# ---------------------------------------------------------------- shardings


def test_sharding_of_arrays():
    seen = []
    OURS.debug.inspect_array_sharding(OURS.numpy.ones(3), callback=seen.append)
    OURS.jit(lambda x: OURS.debug.inspect_array_sharding(x, callback=seen.append))(X)
    assert seen == [OURS.sharding.SingleDeviceSharding(OURS.devices()[0])] * 2


def test_shardings_are_drawn(capsys):
    class Columns:
        def devices_indices_map(self, shape):
            half = shape[1] // 2
            return {type("D", (), {"id": i})(): (slice(None), slice(i * half, i * half + half)) for i in (0, 1)}

    OURS.debug.visualize_sharding((4, 8), Columns())
    drawn = capsys.readouterr().out.splitlines()
    assert drawn[0] == "┌─────────┬─────────┐" and drawn[2] == "│  CPU 0  │  CPU 1  │"
    OURS.debug.visualize_array_sharding(OURS.numpy.ones(4))
    assert "CPU 0" in capsys.readouterr().out
    with pytest.raises(ValueError, match="1 and 2 dimensions"):
        OURS.debug.visualize_sharding((1, 2, 3), Columns())
