"""The container of arrays: types, memory, conversions, printing, errors; JAX is the oracle."""

import copy
import gc
import pickle
import weakref

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import mpijax
from mpijax._ext import array as ext
from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.dtypes.extended import PRNGKeyDtype
from mpijax.core.types.array_api import Array
from mpijax.core.types.avals import ShapedArray
from mpijax.runtime.arrays.array import ArrayImpl, from_numpy, rewrap

DTYPES = [
    np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64,
    np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64, np.complex128,
    ml_dtypes.float8_e4m3fn,
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def wide():
    """All dtypes, not only those of 32 bits."""
    with config.enable_x64(True):
        yield


def array_of(value, weak_type=False, copy=True):
    return from_numpy(value, ShapedArray(value.shape, value.dtype, weak_type), copy)


class Threefry:
    tag = "fry"
    key_shape = (2,)


KEY = PRNGKeyDtype(Threefry)


def keys(shape=()):
    data = np.arange(2 * int(np.prod(shape)), dtype=np.uint32).reshape(*shape, 2)
    return data, from_numpy(data, ShapedArray(shape, KEY))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (2, 0, 3), (1, 1, 1, 4)])
@pytest.mark.one_in(4)
def test_round_trip(dtype, shape):
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    x = array_of(value)
    assert type(x) is ArrayImpl and isinstance(x, Array)
    assert x.shape == shape and x.dtype == value.dtype and x.ndim == len(shape) and x.size == value.size
    assert x.nbytes == value.nbytes and x.itemsize == value.itemsize and not x.weak_type
    assert x.aval is ShapedArray(shape, value.dtype)
    for back in (np.asarray(x), x._value, x.__array__()):
        assert back.dtype == value.dtype and back.shape == shape and not back.flags.writeable
        np.testing.assert_array_equal(back, value)
    assert x.tolist() == value.tolist()
    assert x.unsafe_buffer_pointer() % 64 == 0


def test_memory_is_shared_only_when_asked():
    value = np.arange(4.0)
    shared, copied = array_of(value, copy=False), array_of(value)
    value[0] = 7
    assert shared._value[0] == 7 and copied._value[0] == 0


@pytest.mark.parametrize(
    "value", [np.arange(12).reshape(3, 4).T, np.arange(10)[::-2], np.arange(4, dtype=">i4"), np.float32(3)]
)
def test_from_numpy_copies_any_layout(value):
    aval = ShapedArray(value.shape, value.dtype.newbyteorder("="))
    np.testing.assert_array_equal(from_numpy(value.astype(aval.dtype), aval), value)
    if isinstance(value, np.ndarray) and value.dtype.isnative:
        np.testing.assert_array_equal(from_numpy(value, aval), value)
        with pytest.raises(ValueError, match="C-contiguous"):
            from_numpy(value, aval, copy=False)


def test_from_numpy_checks_the_type():
    with pytest.raises(TypeError, match=r"must be float32\[3\], got float64\[3\]"):
        from_numpy(np.zeros(3), ShapedArray((3,), np.float32))
    with pytest.raises(TypeError, match="must be"):
        from_numpy(np.zeros(4), ShapedArray((3,), np.float64))


def test_weak_type_and_rewrap():
    x = array_of(np.float32(2), weak_type=True)
    assert x.weak_type and x.aval is ShapedArray((), np.float32, True)
    strong = rewrap(x, ShapedArray((), np.float32))
    assert not strong.weak_type and strong.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    pointer = strong.unsafe_buffer_pointer()
    del x
    assert float(strong) == 2 and strong.unsafe_buffer_pointer() == pointer
    with pytest.raises(ValueError, match="number of bytes"):
        rewrap(strong, ShapedArray((2,), np.float32))


def test_keys():
    data, k = keys((3,))
    assert k.shape == (3,) and k.dtype == KEY and k.nbytes == 24 and k.ndim == 1 and len(k) == 3
    np.testing.assert_array_equal(k._physical, data)
    for convert in (np.asarray, lambda k: k.__array__(), lambda k: k._value):
        with pytest.raises(TypeError, match="PRNGKey dtype cannot be converted to a NumPy array"):
            convert(k)
    with pytest.raises(BufferError):
        memoryview(k)
    assert repr(k) == f"Array((3,), dtype=key<fry>) overlaying:\n{data}"


PRINTED = {
    "vector": jnp.arange(3.0),
    "empty": jnp.zeros((0,)),
    "empty matrix": jnp.zeros((2, 0)),
    "scalar": jnp.float32(2.5),
    "weak": jnp.asarray(2.0),
    "matrix": jnp.ones((2, 3), jnp.bfloat16),
    "long": jnp.arange(2000),
    "bool": jnp.asarray(True),
    "complex": jnp.array([1 + 2j]),
    "nan": jnp.full((2,), jnp.nan),
    "line full": jnp.linspace(0, 1, 7),
    "lines": jnp.linspace(0, 1, 50),
    "line nearly full": jnp.arange(14) * 12 + 100,
    "weak lines": jnp.zeros(11) * 1 + jnp.asarray(2.0),
    "3d": jnp.arange(24).reshape(2, 3, 4),
}


@pytest.mark.parametrize("theirs", PRINTED.values(), ids=PRINTED)
def test_printing_is_jax(theirs):
    mine = array_of(np.asarray(theirs), theirs.weak_type)
    assert repr(mine) == repr(theirs)
    assert str(mine) == str(theirs)
    assert f"{mine}" == f"{theirs}"


CONVERSIONS = {
    "bool": bool, "int": int, "float": float, "complex": complex, "len": len,
    "index": lambda v: v.__index__(), "format": lambda v: format(v, ".2f"), "item": lambda v: v.item(),
    "tolist": lambda v: v.tolist(), "hash": hash,
}  # fmt: skip
VALUES = {
    "vector": np.arange(3, dtype=np.float32), "empty": np.zeros((0,), np.float32), "f32": np.float32(2.5),
    "i32": np.int32(3), "one": np.ones((1, 1), np.float32), "true": np.bool_(True),
    "c64": np.complex64(1 + 2j),
    "bf16": np.asarray(2.5, ml_dtypes.bfloat16), "u8": np.uint8(200),
}  # fmt: skip


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.one_in(4)
def test_conversions_are_jax(convert, value):
    mine, theirs = array_of(value), jnp.asarray(value)
    try:
        expected = convert(theirs)
    except Exception as error:
        with pytest.raises(type(error)) as caught:
            convert(mine)
        mine, theirs = (str(e).split(":")[0].split(" passed")[0] for e in (caught.value, error))
        assert mine == theirs
    else:
        got = convert(mine)
        assert got == expected and type(got) is type(expected)


def test_array_protocol_arguments():
    x = array_of(np.arange(3, dtype=np.float32))
    assert x.__array__(np.float64).dtype == np.float64
    assert np.array(x, copy=True).flags.writeable
    assert x.__array__(copy=True).flags.writeable
    assert np.shares_memory(np.array(x, copy=False), x._value)
    with pytest.raises(ValueError):
        x.__array__(np.float64, copy=False)
    assert memoryview(x).tolist() == [0, 1, 2] and memoryview(x).readonly


def test_dlpack():
    x = array_of(np.arange(6, dtype=np.float32).reshape(2, 3))
    back = np.from_dlpack(x)
    assert np.shares_memory(back, x._value)
    assert x.__dlpack_device__() == np.zeros(1).__dlpack_device__()
    capsule = x.__dlpack__()
    assert "dltensor" in repr(capsule)


def test_views_outlive_their_array():
    x = array_of(np.arange(1000.0))
    view = np.asarray(x)
    del x
    gc.collect()
    for _ in range(5):
        array_of(np.zeros(1000))
    np.testing.assert_array_equal(view, np.arange(1000.0))


def test_delete():
    x = array_of(np.arange(3, dtype=np.float32))
    view = np.asarray(x)
    assert not x.is_deleted()
    x.delete()
    x.delete()
    assert x.is_deleted() and x.shape == (3,) and x.nbytes == 12
    uses = (
        repr, np.asarray, float, lambda x: x.item(), lambda x: x._value, lambda x: x.unsafe_buffer_pointer(),
        copy.copy, lambda x: x.block_until_ready(), lambda x: rewrap(x, x.aval), lambda x: x.__dlpack__(),
    )  # fmt: skip
    for use in uses:
        if use is float:
            continue
        with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[3\]"):
            use(x)
    assert view.tolist() == [0, 1, 2]


def test_copies_and_pickles():
    for x in (array_of(np.arange(3.0)), array_of(np.float32(1), weak_type=True)):
        for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            assert type(other) is ArrayImpl and other is not x and other.aval is x.aval
            assert other.tolist() == x.tolist()
            assert other.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()


def test_pickles_of_64_bits_are_read_without():
    with config.enable_x64(True):
        written = pickle.dumps(mpijax.numpy.array([4.5, 2.0]))
    with config.enable_x64(False):
        again = pickle.loads(written)
    assert again.dtype == again.aval.dtype == np.float32 and again.tolist() == [4.5, 2.0]


def test_attributes_are_fixed():
    x = array_of(np.arange(3))
    for name in ("shape", "dtype", "aval", "anything"):
        with pytest.raises(AttributeError):
            setattr(x, name, 1)
    with pytest.raises(TypeError, match="use jax.numpy.array"):
        ArrayImpl(np.zeros(3))
    assert x.block_until_ready() is x and x.copy_to_host_async() is None
    assert x.sharding.device_set == x.devices() and x.is_fully_addressable and x.is_fully_replicated


def test_weak_references():
    x = array_of(np.arange(3))
    seen = []
    r = weakref.ref(x, lambda _: seen.append(1))
    assert r() is x
    del x
    assert r() is None and seen == [1]
    y = array_of(np.arange(3))  # the object is used again: nothing may remain of the reference
    assert weakref.getweakrefcount(y) == 0


def test_objects_survive_the_collector():
    arrays = [array_of(np.full(3, i)) for i in range(1000)]
    box = {"arrays": arrays}
    box["self"] = box
    gc.collect()
    assert [int(a._value[0]) for a in arrays] == list(range(1000))
    del box, arrays
    gc.collect()


def test_memory_is_used_again():
    ext.trim()
    before = ext.memory_stats()
    for _ in range(100):
        array_of(np.zeros(12345))
    after = ext.memory_stats()
    assert after["live_bytes"] == before["live_bytes"]
    assert after["fresh"] - before["fresh"] <= 1
    assert after["allocations"] - before["allocations"] == 100
    ext.trim()
    assert ext.memory_stats()["kept_bytes"] == 0


def test_kept_memory_is_bounded_by_the_peak():
    ext.trim()
    ext.reset_peak()
    base = ext.memory_stats()["live_bytes"]
    megabyte = 1 << 20
    big = [array_of(np.zeros(24 * megabyte, np.uint8)) for _ in range(4)]
    del big
    held = ext.memory_stats()
    assert held["peak_bytes"] - base >= 96 * megabyte
    assert held["kept_bytes"] <= 96 * megabyte + 64 * megabyte + 16 * megabyte
    others = [array_of(np.zeros(10 * megabyte, np.uint8)) for _ in range(9)]
    held = ext.memory_stats()
    assert held["kept_bytes"] + held["live_bytes"] <= held["peak_bytes"] + 64 * megabyte
    del others
    ext.trim()


def test_out_of_memory():
    aval = ShapedArray((1 << 45,), np.float64)
    value = np.broadcast_to(np.float64(0), aval.shape)
    with pytest.raises(JaxRuntimeError, match=r"RESOURCE_EXHAUSTED.*float64\[35184372088832\]"):
        from_numpy(value, aval)


def test_float0():
    value = np.zeros((2, 3), dtypes.float0)
    x = from_numpy(value, ShapedArray((2, 3), dtypes.float0))
    assert x.nbytes == 0 and x._value.shape == (2, 3)


def test_registration_is_checked():
    with pytest.raises(TypeError):
        ext.register_array_type(int)
    with pytest.raises(RuntimeError, match="already registered"):
        ext.register_array_type(ArrayImpl)


def test_subclasses_are_freed_properly():
    class Special(ArrayImpl):
        pass

    before = ext.memory_stats()["live_bytes"]
    x = Special.__new__(Special)
    assert not isinstance(x, int)
    del x
    gc.collect()
    assert ext.memory_stats()["live_bytes"] == before


def test_jax_takes_our_arrays():
    x = array_of(np.arange(3, dtype=np.float32))
    np.testing.assert_array_equal(jax.numpy.asarray(np.asarray(x)) + 1, [1, 2, 3])


def test_unaligned_ndarrays_are_arguments():
    x = np.zeros(33, np.uint8)[1:].view(np.float32)
    x[:] = range(8)
    assert not x.flags.aligned
    double = mpijax.jit(lambda x: x * 2)
    for _ in range(2):
        np.testing.assert_array_equal(double(x), x * 2)
        np.testing.assert_array_equal(mpijax.numpy.add(x, 1), x + 1)
        np.testing.assert_array_equal(mpijax.device_put(x), x)
