"""Options and contexts for finding faults: NaN, leaks, compilation logs, refused tracing, spans of time."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from numpy_oracle import rows
from oracle import OURS, THEIRS, run, sample

from mpijax._ext import record
from mpijax.core.base.config import captured_constants_warn_bytes, profile_kernels
from mpijax.core.base.errors import JaxprTypeError
from mpijax.core.programs.jaxpr import Var

X = sample(3)
NEGATIVE = np.array([1.0, -1.0, 4.0], np.float32)

# ---------------------------------------------------------------- NaN and infinity

FAULTY = {
    "eager": lambda J: J.numpy.log(J.numpy.asarray(NEGATIVE)),
    "jit": lambda J: J.jit(lambda x: J.numpy.sin(J.numpy.log(x)) * 2)(NEGATIVE),
    "jit in jit": lambda J: J.jit(lambda x: J.jit(lambda y: J.numpy.sqrt(y))(x * 2) + 1)(NEGATIVE),
    "grad": lambda J: J.grad(lambda x: J.numpy.sqrt(x) * 0)(0.0),
    "vmap": lambda J: J.vmap(lambda x: J.numpy.sqrt(x) + 1)(NEGATIVE),
    "hidden": lambda J: J.jit(lambda x: J.numpy.where(x > 0, J.numpy.log(x), 0.0))(NEGATIVE),
    "integers": lambda J: J.jit(lambda x: x + 1)(3),
}


@pytest.mark.parametrize("name", FAULTY)
def test_debug_nans(name):
    outcomes = []
    for J in (THEIRS, OURS):
        with J.debug_nans(True):
            outcomes.append(run(lambda J=J: FAULTY[name](J)))
    theirs, ours = outcomes
    assert theirs[:1] == ours[:1]
    if theirs[0] == "error":
        assert theirs[1] == ours[1] == "FloatingPointError"
        primitive = theirs[2].split("\n")[0].removesuffix(".")
        assert ours[2].startswith(primitive + " at ") and __file__ in ours[2]


@pytest.mark.parametrize("number", [np.nan, np.float32(np.nan), complex(0, np.nan)], ids=repr)
def test_debug_nans_of_numbers_that_are_results(number):
    for J in (THEIRS, OURS):
        with J.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
            J.jit(lambda x, J=J: (J.lax.stop_gradient(number), x + 2))(3)
    with OURS.debug_nans(True):
        assert OURS.jit(lambda x: (np.inf, x))(3)[0] == np.inf
    for J in (THEIRS, OURS):
        with J.debug_nans(True), pytest.raises(FloatingPointError, match="the de-optimized function did not .*literal"):
            J.jit(lambda x: (number, x + 2))(3)


def test_debug_infs_and_both():
    with OURS.debug_infs(True):
        with pytest.raises(FloatingPointError, match=r"\(inf\) encountered in div"):
            1 / OURS.numpy.zeros(2)
        assert np.isnan(OURS.jit(OURS.numpy.log)(np.float32(-1)))
    with OURS.debug_infs(True), OURS.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        OURS.jit(OURS.numpy.log)(np.float32(-1))
    assert np.isinf(1 / OURS.numpy.zeros(2)).all()


def test_checks_name_the_line_and_leave_donated_arguments():
    @OURS.jit
    def f(x):
        y = OURS.numpy.log(x)  # the line
        return y + x

    with OURS.debug_nans(True), pytest.raises(FloatingPointError) as caught:
        f(NEGATIVE)
    assert f"{__file__}:{f.__wrapped__.__code__.co_firstlineno + 2}" in str(caught.value)
    donating = OURS.jit(lambda x: x * 0 + np.nan, donate_argnums=0)
    with OURS.debug_nans(True), pytest.raises(FloatingPointError):
        donating(OURS.numpy.ones(1000))


def test_sharded_computations_are_named():
    for J in (THEIRS, OURS):
        P = J.sharding.PartitionSpec
        f = J.shard_map(lambda x: 0.0 / x, mesh=J.sharding.Mesh(J.devices()[:1], "x"), in_specs=P("x"), out_specs=P("x"))
        with J.debug_nans(True), pytest.raises(FloatingPointError, match=r"^Invalid value \(nan\) encountered in sharded"):
            f(J.numpy.zeros(1))


def test_loops_are_checked():
    with OURS.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        OURS.jit(lambda x: OURS.lax.fori_loop(0, 3, lambda i, c: OURS.numpy.sqrt(c - 1), x))(X)


# ---------------------------------------------------------------- disable_jit


def test_disable_jit_runs_python():
    seen = []

    def program(J, x):
        out = J.jit(lambda v: seen.append(float(v)) or v * 2)(x)
        return J.lax.cond(out > 0, lambda v: seen.append(float(v)) or v, lambda v: -v, out)

    for J in (THEIRS, OURS):
        seen.clear()
        with J.disable_jit():
            assert float(program(J, J.numpy.float32(1.5))) == 3.0
        assert seen == [1.5, 3.0]


# ---------------------------------------------------------------- logs


def messages(caplog, call) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        call()
    return [r.getMessage() for r in caplog.records if r.name == "mpijax.jit"]


def test_log_compiles(caplog):
    def named(x):
        return x * 3 + 1

    with OURS.log_compiles():
        said = messages(caplog, lambda: OURS.jit(named)(X))
        assert messages(caplog, lambda: OURS.jit(named)(X)) == [] or "Compiling" in said[1]
    assert said[0].startswith("Finished tracing named for jit in ") and said[0].endswith(" sec")
    assert said[1] == "Compiling jit(named) with global shapes and types (ShapedArray(float32[3]),)."
    assert said[2].startswith("Finished compilation of jit(named) in ")
    assert messages(caplog, lambda: OURS.jit(lambda x: x * 5)(X)) == []


def test_explain_cache_misses(caplog):
    f = OURS.jit(lambda x, n: x * n, static_argnums=1)
    f(X, 2)
    with OURS.explain_cache_misses():
        assert "never seen function" in messages(caplog, lambda: OURS.jit(lambda x: x + 7)(X))[0]
        shapes = messages(caplog, lambda: f(X[:2], 2))[0]
        statics = messages(caplog, lambda: f(X, 3))[0]
        trees = messages(caplog, lambda: OURS.jit(lambda x: x)({"a": X}))[0]
        assert messages(caplog, lambda: f(X, 3)) == []
        with OURS.numpy_rank_promotion("warn"), OURS.default_matmul_precision("high"):
            context = messages(caplog, lambda: f(X, 3))[0]
        g = OURS.jit(lambda x: x)
        g(np.float32(1))
        weak = messages(caplog, lambda: g(1.0))[-1]
    assert "racing context" in context and "numpy_rank_promotion, now warn and before allow" in context
    assert "now f32[]{weak_type=True} and before f32[]{weak_type=False}" in weak and "#weak-types" in weak
    assert f"TRACING CACHE MISS at {__file__}" in shapes and "at x, now f32[2] and before f32[3]" in shapes
    assert "different static arguments:\n  * now 1=3 and before 1=2" in statics
    assert "never seen" in trees


def test_no_tracing():
    f = OURS.jit(lambda x: x + 1)
    f(X)
    with OURS.no_tracing(True):
        f(X)
        with pytest.raises(RuntimeError, match="re-tracing function .* for `jit`, but 'no_tracing' is set"):
            f(X[:2])


@pytest.mark.parametrize("J", [OURS, THEIRS])
@pytest.mark.parametrize("make", [lambda J: J.numpy.negative, lambda J: J.jit(lambda x: -x), lambda J: lambda x: x + 1])
def test_nothing_runs_under_no_execution(J, make):
    run, x = make(J), J.numpy.asarray(X)
    run(x)
    with J.no_execution(True):
        assert J.eval_shape(run, x).shape == x.shape
        with pytest.raises(RuntimeError, match="the no_execution config option is set"):
            run(x)
    run(x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("J", [OURS, THEIRS])
def test_sums_over_narrow_floats_can_be_refused(J, dtype):
    total = lambda x: J.lax.reduce_sum_p.bind(x, axes=(0,), out_sharding=None)
    narrow, wide = J.numpy.ones((3, 1), dtype), J.numpy.ones(3)
    assert float(total(narrow)[0]) == 3
    with J.allow_f16_reductions(False):
        assert float(total(wide)) == 3 and total(narrow[:1]).shape == (1,)
        with pytest.raises(ValueError, match="not allowed when jax_allow_f16_reductions=False"):
            total(narrow)
    assert float(total(narrow)[0]) == 3


# ---------------------------------------------------------------- leaks, names, options that only have to be there


@pytest.mark.parametrize("context", ["checking_leaks", "check_tracer_leaks"])
def test_leaked_tracers(context):
    kept = []
    with getattr(OURS, context)(), pytest.raises(Exception, match="Leaked trace"):
        OURS.jit(lambda x: kept.append(x) or x)(X)


CONTEXTS = {
    "transfer_guard": "disallow",
    "transfer_guard_host_to_device": "log",
    "transfer_guard_device_to_host": "disallow",
    "transfer_guard_device_to_device": "allow",
    "numpy_rank_promotion": "allow",
    "numpy_dtype_promotion": "standard",
    "default_matmul_precision": "float32",
    "default_prng_impl": "rbg",
    "legacy_prng_key": "warn",
    "enable_checks": True,
    "debug_key_reuse": False,
    "softmax_custom_jvp": True,
    "threefry_partitionable": True,
    "log_compiles": False,
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_contexts_are_those_of_jax(name):
    option = f"jax_{name}"
    for J in (THEIRS, OURS):
        before = getattr(J.config, option)
        with getattr(J, name)(CONTEXTS[name]):
            assert getattr(J.config, option) == CONTEXTS[name]
        assert getattr(J.config, option) == before


TRANSFERS = {
    "jit of an array": lambda J, x, f: f(x),
    "jit of an ndarray": lambda J, x, f: f(np.ones(3, np.float32)),
    "jit of a number": lambda J, x, f: f(2.0),
    "operands": lambda J, x, f: x * x + 1,
    "ndarray as an operand": lambda J, x, f: x + np.ones(3, np.float32),
    "function of an ndarray": lambda J, x, f: J.numpy.sin(np.ones(3, np.float32)),
    "mean": lambda J, x, f: J.numpy.mean(x),
    "new array": lambda J, x, f: J.numpy.ones(3),
    "conversion": lambda J, x, f: J.numpy.asarray([1.0, 2.0]),
    "device_put": lambda J, x, f: J.device_put(np.ones(3)),
    "device_put of an array": lambda J, x, f: J.device_put(x, J.local_devices()[0]),
    "to the host": lambda J, x, f: np.asarray(x) + float(x.sum()),
}


@pytest.mark.parametrize("level", ["allow", "log", "disallow", "log_explicit", "disallow_explicit"])
def test_transfers_that_guards_refuse(level):
    def refused(J):
        f = J.jit(lambda x: x + 1)
        x = J.numpy.arange(3.0)
        found = []
        for name, call in TRANSFERS.items():
            call(J, x, f)  # so that programs and numbers are cached
            try:
                with J.transfer_guard(level):
                    call(J, x, f)
            except J.errors.JaxRuntimeError as error:
                assert "host-to-device transfer" in str(error)
                found.append(name)
        return found

    ours = refused(OURS)
    assert ours == refused(THEIRS)
    assert len(ours) == {"disallow": 7, "disallow_explicit": 8}.get(level, 0)


def test_the_innermost_guard_counts():
    ones = lambda: OURS.jit(lambda x: x)(np.ones(1))
    with OURS.transfer_guard_host_to_device("disallow"):
        with OURS.transfer_guard("allow"):
            ones()
        with pytest.raises(OURS.errors.JaxRuntimeError, match="Make it explicit with jax.device_put"):
            ones()
    with OURS.transfer_guard("disallow"), OURS.transfer_guard_host_to_device("allow"):
        ones()
    OURS.config.update("jax_transfer_guard", "disallow")
    try:
        with pytest.raises(OURS.errors.JaxRuntimeError, match="is 'disallow'"):
            ones()
    finally:
        OURS.config.update("jax_transfer_guard", None)
    ones()


@pytest.mark.parametrize("inside", [False, True])
def test_large_constants_are_warned_of(inside):
    y = OURS.numpy.ones((128, 128))

    def maker():  # a new function is traced again
        use = lambda x: x @ y + y[0]
        return OURS.jit(lambda x: OURS.lax.cond(x[0] > 0, use, lambda x: x, x) if inside else use(x))

    x, limit = np.ones(128, np.float32), OURS.numpy.asarray(y).nbytes
    with captured_constants_warn_bytes(limit), pytest.warns(UserWarning, match="A large amount of constants") as seen:
        maker()(x)
    assert seen[0].filename == __file__ and "65,536 bytes total; the largest has type f32[128,128]" in str(seen[0].message)
    for quiet in (limit + 1, -1):
        with captured_constants_warn_bytes(quiet):
            maker()(x)  # warnings are errors


def test_promotion_contexts_refuse():
    ones = OURS.numpy.ones
    with OURS.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="could not be broadcast"):
        ones((2, 3)) + ones(3)
    with OURS.numpy_dtype_promotion("strict"), pytest.raises(Exception, match="[Pp]romotion"):
        ones(3) + ones(3, "int32")


@pytest.mark.parametrize(
    "source",
    rows("""
    n.median(x, axis=1, keepdims=True)
    n.nanquantile(x, 0.3, axis=0)
    n.nanpercentile(x, n.array([10.0, 60.0]), axis=1)
    n.quantile(x, 0.4, axis=0, method="inverted_cdf")
    n.polyfit(x[0], x[1], 1)
    n.polyfit(x[0], x.T, 1, w=abs(x[1]))
    n.polyfit(x[0], x[1], 1, cov=True)[1]
    n.polyfit(x[0], x[:2].T, 1, cov=True)[1]
    J.scipy.special.multigammaln(abs(x) + 3, 2)
    J.scipy.signal.stft(x.ravel(), nperseg=8)[2]
    J.scipy.stats.rankdata(x, axis=1)
    J.scipy.stats.rankdata(x, "min", axis=0)
    """),
)
@pytest.mark.one_in(3)
def test_functions_do_not_promote_of_themselves(source):
    def value():
        x = OURS.numpy.asarray(sample(3, 5))
        return eval(source, {"J": OURS, "n": OURS.numpy, "x": x})

    expected = value()
    with OURS.numpy_rank_promotion("raise"), OURS.numpy_dtype_promotion("strict"):
        np.testing.assert_array_equal(value(), expected)


# ---------------------------------------------------------------- spans of time


def test_spans_are_recorded_and_written(tmp_path):
    profiler = OURS.profiler

    @profiler.annotate_function
    def work(x):
        return x + 1

    with profiler.trace(tmp_path):
        with profiler.StepTraceAnnotation("train", step_num=3):
            work(X)
        with profiler.TraceAnnotation("other", shape=(2, 3)):
            pass
        with pytest.raises(RuntimeError, match="already been started"):
            profiler.start_trace(tmp_path)
    work(X)
    [file] = tmp_path.glob(f"rank{OURS.process_index()}.trace.json")
    spans = {e["name"]: e for e in json.loads(file.read_text())["traceEvents"] if e["ph"] == "X"}
    assert set(spans) == {work.__qualname__, "train", "other"}
    inner, outer = spans[work.__qualname__], spans["train"]
    assert outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    assert outer["args"]["step_num"] == 3 and spans["other"]["args"] == {"shape": "(2, 3)"}
    with pytest.raises(RuntimeError, match="No profile started"):
        profiler.stop_trace()


def kernels_of(session) -> list[tuple[str, str, float, float]]:
    """(name, line, begin, end) of the kernels of a profile."""
    found = [e for e in session.profile_data.trace_events if "line" in e["args"]]
    return [(e["name"], e["args"]["line"], e["ts"], e["ts"] + e["dur"]) for e in found]


def test_a_profile_has_the_kernels_of_programs():
    jnp, profiler = OURS.numpy, OURS.profiler

    def inner(x):
        return np.asarray(OURS.jit(jnp.cos)(x))

    @OURS.jit
    def f(x):
        y = jnp.sin(x) @ x
        return OURS.pure_callback(inner, OURS.ShapeDtypeStruct(x.shape, x.dtype), y)

    x = np.ones((100, 100), np.float32)
    with profiler.trace() as without:
        f(x)
    with profile_kernels(True):
        f(x)
        with profiler.trace() as session, profiler.TraceAnnotation("call"):
            f(x)
    assert kernels_of(without) == []
    [span] = [e for e in session.profile_data.trace_events if e["name"] == "call"]
    sin, gemm, callback, cos = sorted(kernels_of(session), key=lambda k: ["sin", "gemm 100x100x100", "pure_callback", "cos"].index(k[0]))
    lines = f.__wrapped__.__code__.co_firstlineno
    assert [k[1].rpartition(":")[2] for k in (sin, gemm, callback)] == [f"{lines + d} (f)" for d in (2, 2, 3)]
    assert sin[3] <= gemm[2] and gemm[3] <= callback[2] <= cos[2] <= cos[3] <= callback[3]
    assert span["ts"] <= sin[2] + 1 and callback[3] <= span["ts"] + span["dur"] + 1


def test_steps_that_raise_and_steps_that_are_forgotten():
    def fails(x):
        raise ValueError("stop")

    shape = OURS.ShapeDtypeStruct((), np.float32)
    raising = OURS.jit(lambda x: OURS.pure_callback(fails, shape, x))
    loop = OURS.jit(lambda x: OURS.lax.fori_loop(0, record.NOTES // 2, lambda i, y: y @ x, x))
    with profile_kernels(True), OURS.profiler.trace() as session:
        with pytest.raises(Exception, match="stop"):
            raising(np.float32(1))
        loop(np.zeros((64, 64), np.float32))
    found = kernels_of(session)
    assert record.NOTES // 2 - 2 <= len(found) <= record.NOTES // 2
    assert not any(name == "pure_callback" for name, *_ in found)
    assert all(begin <= end for *_, begin, end in found)


def test_profiler_has_jaxs_functions():
    theirs = {n for n in dir(THEIRS.profiler) if n[0].islower() or n.endswith("Annotation")}
    assert theirs - {"register_subprocess"} <= set(dir(OURS.profiler))
    with pytest.raises(NotImplementedError, match="profiler.trace"):
        OURS.profiler.start_server(9999)


def test_enable_checks_checks_what_transformations_build():
    jax = OURS

    def broken(x):
        y = jax.numpy.sin(x)
        y._trace.eqns[-1].outvars[0] = Var(y.aval.update(shape=(7,)))
        return x

    jax.make_jaxpr(broken)(1.0)
    with jax.enable_checks(True), pytest.raises(JaxprTypeError, match="its variables have types"):
        jax.make_jaxpr(broken)(1.0)
