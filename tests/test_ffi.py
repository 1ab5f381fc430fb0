"""C functions in programs: their values, order and memory, JAX's Jaxprs and errors, and what is refused."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading

import numpy as np
import pytest
from ffi_library import library, notes
from oracle import OURS, THEIRS, jaxpr_text, run, sample

X, XS = sample(3), sample(2, 3)
F3 = OURS.ShapeDtypeStruct((3,), np.float32)
SCALAR = OURS.ShapeDtypeStruct((), np.float32)


@pytest.fixture(autouse=True)
def targets():
    library()


def scale(shape=(3,), J=OURS, **options):
    return J.ffi.ffi_call("scale", J.ShapeDtypeStruct(shape, np.float32), **options)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("transform", [lambda f: f, OURS.jit])
def test_values(transform):
    np.testing.assert_array_equal(transform(lambda x: scale()(x, factor=2.5) + 1)(X), X * np.float32(2.5) + 1)


@pytest.mark.parametrize("kind", [list, tuple])
def test_several_results(kind):
    types = kind([OURS.ShapeDtypeStruct((2,), np.float32), OURS.ShapeDtypeStruct((2,), np.int32)])
    out = OURS.jit(OURS.ffi.ffi_call("row_sums", types))(XS)
    assert type(out) is kind
    np.testing.assert_array_equal(out[0], XS.sum(1))
    np.testing.assert_array_equal(out[1], XS.shape)


@pytest.mark.parametrize("dtype, code", [("bool", 1), ("int32", 4), ("uint8", 6), ("bfloat16", 11), ("complex64", 14), ("int4", 18)])
def test_attributes_and_types_as_c_sees_them(dtype, code):
    with OURS.enable_x64(True):
        f = OURS.ffi.ffi_call("describe", OURS.ShapeDtypeStruct((8,), np.float64))
        x = OURS.numpy.ones((2, 2), dtype)
        real, flag, table = np.dtype("bfloat16").type(0.25), np.bool_(True), np.array([3, -5], np.int16)
        out = OURS.jit(lambda x: f(x, whole=2**40, real=real, flag=flag, name="ab", table=table))(x)
    np.testing.assert_array_equal(out, [2**40, 0.25, 1, 2000 + ord("a"), 2000 - 5, -7, code, 11])


@pytest.mark.parametrize("dtype, code, bits", [("int2", 17, 3), ("int4", 18, 15), ("uint2", 19, 3), ("uint4", 20, 15),
                                               ("float4_e2m1fn", 21, 10), ("float8_e5m2", 27, 188), ("float8_e8m0fnu", 29, 255)])
def test_arrays_of_small_elements_as_attributes(dtype, code, bits):
    f = OURS.ffi.ffi_call("describe_small", OURS.ShapeDtypeStruct((3,), np.int32))
    last = np.array([1, -1]).astype(dtype)
    np.testing.assert_array_equal(f(small=last), [code, 2, last.view(np.uint8)[1]])
    assert last.view(np.uint8)[1] == bits


def test_entries_of_dicts_have_dotted_names():
    f = OURS.ffi.ffi_call("describe_entries", OURS.ShapeDtypeStruct((3,), np.float64))
    with OURS.enable_x64(True):
        out = OURS.jit(lambda x: f(x, sizes={"rows": 3, "of": {"tiles": np.array([2.0, 5.0])}}, limit=0.5))(X)
    np.testing.assert_array_equal(out, [3, 5, 0.5])


def test_operands_may_be_views_and_results_of_kernels():
    f = OURS.jit(lambda x: scale((3, 2))((x * 2).T, factor=3.0)[::-1])
    np.testing.assert_array_equal(f(XS), (XS * 6).T[::-1])


def test_empty_operands():
    assert OURS.jit(lambda x: scale((0,))(x))(np.zeros(0, np.float32)).shape == (0,)


# ---------------------------------------------------------------- batches, loops, derivatives


@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"])
@pytest.mark.parametrize("transform", [lambda f: f, OURS.jit])
def test_vmap(method, transform):
    f = transform(OURS.vmap(lambda x: scale(vmap_method=method)(x, factor=2.0), in_axes=1))
    np.testing.assert_array_equal(f(XS.T), XS * 2)


@pytest.mark.parametrize(
    "method, seen",
    [("sequential", [3, -1]), ("expand_dims", [1, 3]), ("broadcast_all", [2, 3]), ("legacy_vectorized", [3, -1])],
)
def test_vmap_method_decides_what_c_sees_of_an_operand_without_examples(method, seen):
    f = OURS.ffi.ffi_call("operand_shape", OURS.ShapeDtypeStruct((2,), np.int32), vmap_method=method)
    assert OURS.vmap(f, in_axes=(None, 0))(X, XS)[0].tolist() == seen


@pytest.mark.parametrize(
    "f, expected",
    [
        (lambda x: OURS.lax.fori_loop(0, 5, lambda i, c: scale()(c, factor=2.0), x), X * 32),
        (lambda x: OURS.lax.scan(lambda c, v: (scale(())(c, factor=0.5) + v, c), np.float32(0), x)[0], X[0] / 4 + X[1] / 2 + X[2]),
        (lambda x: OURS.lax.cond(x[0] > 99, scale(), lambda v: scale()(v, factor=4.0), x), X * 4),
        (lambda x: OURS.lax.while_loop(lambda c: scale(())(c[1], factor=2.0) < 16, lambda c: (c[0] + x, c[1] * 2), (x, np.float32(1)))[0], X * 4),
        (lambda x: OURS.vmap(lambda v: OURS.lax.fori_loop(0, 2, lambda i, c: scale((), vmap_method="broadcast_all")(c, factor=2.0), v))(x), X * 4),
    ],
)
def test_in_loops_and_branches(f, expected):
    np.testing.assert_array_equal(OURS.jit(f)(X), expected)


def test_a_derivative_given_by_the_user():
    @OURS.custom_vjp
    def double(x):
        return scale()(x, factor=2.0)

    double.defvjp(lambda x: (double(x), None), lambda _, ct: (scale()(ct, factor=2.0),))
    np.testing.assert_array_equal(OURS.jit(OURS.grad(lambda x: (double(x) * X).sum()))(X), 2 * X)


def test_shards_of_a_mesh_of_one():
    mesh = OURS.make_mesh((1,), ("i",))
    f = OURS.shard_map(lambda x: OURS.lax.psum(scale()(x, factor=2.0), "i"), mesh=mesh, in_specs=OURS.P("i"), out_specs=OURS.P())
    np.testing.assert_array_equal(OURS.jit(f)(X), 2 * X)


def test_over_explicit_axes_results_are_whole():
    with OURS.set_mesh(OURS.make_mesh((1,), ("i",), axis_types=(OURS.sharding.AxisType.Explicit,))):
        x = OURS.device_put(X, OURS.P("i"))
        out = OURS.jit(lambda x: scale()(x, factor=2.0))(x)
        assert OURS.typeof(out).sharding.spec == OURS.P(None)
    np.testing.assert_array_equal(out, 2 * X)


# ---------------------------------------------------------------- effects, merging, memory


def noting(**options):
    return OURS.ffi.ffi_call("note", SCALAR, **options)


def test_side_effects_happen_once_in_program_order():
    def f(x):
        for i in range(4):
            noting(has_side_effect=True)(x + i)
        OURS.lax.fori_loop(0, 2, lambda i, c: noting(has_side_effect=True)(c) + 1, x + 10)
        noting(has_side_effect=True)(x)
        return x

    notes()
    OURS.jit(f)(np.float32(1))
    assert notes() == [1, 2, 3, 4, 11, 12, 1]


def test_calls_without_side_effects_are_merged_and_dropped():
    notes()
    OURS.jit(lambda x: noting()(x) + noting()(x))(np.float32(5))
    assert notes() == [5]
    OURS.jit(lambda x: (noting()(x), x)[1])(np.float32(5))
    assert notes() == []


@pytest.mark.parametrize("inner", [lambda x: x, lambda x: x * 2])
@pytest.mark.parametrize("transform", [lambda f: f, OURS.jit])
def test_aliased_results_begin_with_the_operand(inner, transform):
    f = OURS.ffi.ffi_call("increment", F3, input_output_aliases={0: 0})
    x = OURS.numpy.asarray(X)
    np.testing.assert_array_equal(transform(lambda x: f(inner(x)))(x), inner(X) + 1)
    np.testing.assert_array_equal(x, X)


def test_aliased_operands_that_are_read_again_are_kept():
    f = OURS.ffi.ffi_call("increment", F3, input_output_aliases={0: 0})
    y, z = OURS.jit(lambda x: (f(x * 2), x * 2))(X)
    np.testing.assert_array_equal(y, X * 2 + 1)
    np.testing.assert_array_equal(z, X * 2)


def test_an_operand_that_dies_gives_its_memory():
    f = OURS.ffi.ffi_call("increment", F3, input_output_aliases={0: 0})
    text = OURS.jit(lambda x: f(x * 2)).lower(X).compile().as_text()
    assert "native increment" in text and "copy" not in text
    donated = OURS.jit(f, donate_argnums=0).lower(X).compile().as_text()
    assert "copy" not in donated


def test_programs_run_from_several_threads():
    f = OURS.jit(lambda x: OURS.lax.fori_loop(0, 200, lambda i, c: scale((1000,))(c, factor=1.0) + 1, x))
    f(np.zeros(1000, np.float32))
    results: list = [None] * 4

    def work(k):
        results[k] = np.asarray(f(np.full(1000, k, np.float32)))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert [set(r) for r in results] == [{k + 200.0} for k in range(4)]


# ---------------------------------------------------------------- like JAX


@pytest.mark.parametrize(
    "make, args",
    [
        (lambda J: lambda x: scale(J=J, has_side_effect=True)(x, factor=np.float32(3), name="s", table=np.arange(3)), (X,)),
        (lambda J: scale(J=J, input_output_aliases={0: 0}), (X,)),
        (lambda J: J.vmap(lambda x: scale(J=J, vmap_method="sequential")(x, factor=2.0)), (XS,)),
        (lambda J: J.vmap(scale(J=J, vmap_method="broadcast_all"), in_axes=(0, None)), (XS, X)),
        (lambda J: J.vmap(scale(J=J, vmap_method="expand_dims"), in_axes=(0, None)), (XS, X)),
        (lambda J: J.vmap(scale(J=J, vmap_method="legacy_vectorized"), in_axes=(0, None)), (XS, X)),
    ],
)
def test_jaxprs_are_jaxs(make, args):
    assert jaxpr_text(OURS, make, args) == jaxpr_text(THEIRS, make, args)


@pytest.mark.parametrize(
    "call",
    [
        lambda J: J.jit(J.ffi.ffi_call("not_registered", J.ShapeDtypeStruct((3,), np.float32)))(X),
        lambda J: J.grad(lambda x: scale(J=J)(x).sum())(X),
        lambda J: J.vmap(scale(J=J))(XS),
        lambda J: J.ffi.ffi_call("scale", 3.0),
        lambda J: scale(J=J)(X, table=[1]),
        lambda J: scale(J=J, vmap_method="all"),
        lambda J: scale(J=J, input_output_aliases={0: 0})(XS),
        lambda J: scale(J=J, input_output_aliases={1: 0})(X),
        lambda J: scale(J=J, input_output_aliases={0: 1})(X),
    ],
)
def test_errors_are_of_jaxs_classes(call):
    theirs, ours = run(lambda: call(THEIRS)), run(lambda: call(OURS))
    assert theirs[0] == "error" and (theirs[0], theirs[1]) == (ours[0], ours[1])


@pytest.mark.parametrize(
    "call",
    [
        lambda J: J.ffi.ffi_call("scale", None),
        lambda J: J.ffi.ffi_call("scale", (J.ShapeDtypeStruct((), np.float32), ())),
        lambda J: scale(J=J, input_output_aliases={1: 0})(X),
        lambda J: scale(J=J, input_output_aliases={0: 1})(X),
        lambda J: scale((2, 3), J=J, input_output_aliases={0: 0})(X),
    ],
)
def test_errors_have_the_words_of_jaxs(call):
    """Those before the first value, which differ in form."""
    theirs, ours = (str(run(lambda J=J: call(J))[-1]) for J in (THEIRS, OURS))
    words = theirs.split(" in range")[0].split("attributes")[0].split(" float32[")[0].split(" outside")[0]
    assert words in ours


def test_results_of_64_bits_without_x64():
    f = OURS.ffi.ffi_call("describe", OURS.ShapeDtypeStruct((8,), np.float64))
    out = OURS.jit(lambda x: f(x, whole=2**40, real=0.1, flag=True, name="ab", table=np.array([3], np.int16)))(X)
    assert out.dtype == np.float64 and out[:2].tolist() == [2**40, 0.1]


# ---------------------------------------------------------------- what is wrong is said


@pytest.mark.parametrize("transform", [lambda f: f, OURS.jit])
def test_targets_report_errors(transform):
    with pytest.raises(OURS.errors.JaxRuntimeError, match="'scale' failed: factor must not be negative, got -1"):
        transform(lambda x: scale()(x, factor=-1))(X)


def test_an_error_in_a_loop_ends_the_program():
    notes()

    def turn(i, c):
        noting(has_side_effect=True)(c[0])
        return OURS.lax.cond(i == 2, lambda v: scale()(v, factor=-1.0), lambda v: scale()(v, factor=2.0), c)

    with pytest.raises(OURS.errors.JaxRuntimeError, match="negative"):
        OURS.jit(lambda x: OURS.lax.fori_loop(0, 5, turn, x))(X)
    assert len(notes()) == 3


def test_unknown_targets_are_named_with_the_known_ones():
    with pytest.raises(OURS.errors.JaxRuntimeError, match="'scael' is registered for the CPU .*scale.*register_ffi_target"):
        OURS.ffi.ffi_call("scael", F3)(X)


XLA_CAPSULE = ctypes.pythonapi.PyCapsule_New
XLA_CAPSULE.restype, XLA_CAPSULE.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda lib: XLA_CAPSULE(1, b"xla._CUSTOM_CALL_TARGET", None), TypeError, "handler of XLA's interface"),
        (lambda lib: THEIRS.ffi.pycapsule(lib.scale), TypeError, "such as those of jax.ffi.pycapsule"),
        (lambda lib: {"execute": lib.scale}, TypeError, r"by stage \['execute'\]"),
        (lambda lib: lambda: None, TypeError, "expected a capsule made by mpijax.ffi.pycapsule"),
        (lambda lib: 0, ValueError, "address of the function is 0"),
    ],
)
def test_what_is_no_target_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        OURS.ffi.register_ffi_target("new", make(library()))


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda lib: OURS.ffi.register_ffi_target("scale", lib.note), ValueError, "already registered"),
        (lambda lib: OURS.ffi.register_ffi_target("new", lib.note, "vax"), ValueError, "platform"),
        (lambda lib: OURS.ffi.register_ffi_target("new", lib.note, api_version=0), ValueError, "api_version=0"),
        (lambda lib: scale(custom_call_api_version=3), ValueError, "XLA's interface"),
        (lambda lib: scale((2, 3), input_layouts=[(1, 0)])(XS), NotImplementedError, "Transpose the array instead"),
        (lambda lib: scale()(X, limits={"a": 1j}), TypeError, "attribute limits.a"),
        (lambda lib: scale()(X, limits={1: 2}), TypeError, "keys of attribute limits must be strings, got 1"),
        (lambda lib: scale()(X, **{"limits": {"a": 1}, "limits.a": 2}), ValueError, "two values for attribute limits.a"),
        (lambda lib: OURS.ffi.ffi_lowering("scale"), NotImplementedError, "ffi.h"),
    ],
)
def test_what_cannot_be_done_says_what_can(call, error, message):
    with pytest.raises(error, match=message):
        call(library())


def test_row_major_layouts_and_other_platforms_are_accepted():
    lib = library()
    OURS.ffi.register_ffi_target("scale", lib.scale)
    OURS.ffi.register_ffi_target("scale", ctypes.cast(lib.scale, ctypes.c_void_p).value)
    OURS.ffi.register_ffi_target("scale", lib.note, platform="CUDA")
    f = scale((2, 3), input_layouts=[(0, 1)], output_layouts=(0, 1))
    np.testing.assert_array_equal(f(XS), XS)


# ---------------------------------------------------------------- in another process


def test_exported_programs_call_the_targets_of_the_process_that_loads_them(tmp_path):
    exported = OURS.export.export(OURS.jit(lambda x: scale()(x, factor=3.0)))(F3)
    path = tmp_path / "program"
    path.write_bytes(exported.serialize())
    code = f"""
import sys; sys.path.insert(0, "tests")
import numpy as np, mpijax, ffi_library
program = mpijax.export.deserialize(bytearray(open({str(path)!r}, "rb").read()))
x = np.arange(3, dtype=np.float32)
try:
    program.call(x)
except mpijax.errors.JaxRuntimeError as error:
    print("no FFI target 'scale'" in str(error))
ffi_library.library()
print(program.call(x))"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n[0. 3. 6.]\n"
