"""Convolutions: values against NumPy sums of products and JAX, types, Jaxprs, derivatives, vmap, errors."""

import itertools

import numpy as np
import pytest
from oracle import OURS, THEIRS, check, jaxpr_text, same_text, sample
from quickly import one_in

import mpijax
from mpijax import lax
from mpijax._ext import convolution
from mpijax.ops.convolutions.general import conv_general_dilated_p
from mpijax.test_util import check_grads

DTYPES = "float32 float64 complex64 complex128 int32 uint8 int16 int64 bool bfloat16".split()


def laid_out(sizes, spec):
    """Sizes in the order of axes."""
    out = [0] * len(spec)
    for size, axis in zip(sizes, spec, strict=True):
        out[axis] = int(size)
    return tuple(out)


def random_case(seed: int):
    """Operands, and parameters of the primitive: any rank, layout, strides, padding, gaps and groups."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(0, 4))
    groups = int(rng.choice([1, 1, 2, 3]))
    batches = int(rng.choice([1, 2])) if groups == 1 else 1
    specs = [tuple(map(int, rng.permutation(rank + 2))) for _ in range(3)] if seed % 3 else [tuple(range(rank + 2))] * 3
    features = int(rng.integers(1, 5))
    lhs = laid_out([rng.integers(1, 4) * batches, features * groups, *rng.integers(1, 14, rank)], specs[0])
    rhs = laid_out([rng.integers(1, 7) * groups * batches, features, *rng.integers(1, 5, rank)], specs[1])
    dtype = OURS.numpy.dtype(DTYPES[seed % len(DTYPES)])
    x, w = (rng.integers(-3, 4, shape) for shape in (lhs, rhs))
    if dtype.kind == "c":
        x, w = x + 1j * x[::-1], w - 2j * w

    def each(low, high):
        return tuple(map(int, rng.integers(low, high, rank)))

    params = {
        "window_strides": each(1, 4) if seed % 2 else (1,) * rank, "padding": tuple(zip(each(-1, 4), each(-1, 4), strict=True)),
        "lhs_dilation": each(1, 4), "rhs_dilation": each(1, 4), "dimension_numbers": lax.ConvDimensionNumbers(*specs),
        "feature_group_count": groups, "batch_group_count": batches,
        "precision": None, "preferred_element_type": None, "out_sharding": None,
    }  # fmt: skip
    return x.astype(dtype), w.astype(dtype), params


@pytest.mark.parametrize("part", one_in(4, range(4)))
def test_any_convolution_is_its_sum_of_products(part):
    """Small integers: every sum is exact. Kernels larger than the array raise the same as the reference."""
    compared = 0
    with mpijax.enable_x64(True):
        for seed in range(part * 60, part * 60 + 60):
            x, w, params = random_case(seed)
            try:
                want = conv_general_dilated_p.reference(x, w, **params)
            except ValueError:
                with pytest.raises(ValueError, match="Negative padding"):
                    conv_general_dilated_p.bind(x, w, **params)
                continue
            got = np.asarray(conv_general_dilated_p.bind(x, w, **params))
            assert got.dtype == want.dtype and got.shape == want.shape
            np.testing.assert_array_equal(got, want, err_msg=f"{seed}: {params}")
            compared += got.size > 0
    assert compared > 30


@pytest.fixture(params=[0, 32, 64])
def vector(request):
    """Bytes of the vectors in which convolutions are computed."""
    own = convolution.vector()
    if request.param > own:
        pytest.skip(f"this processor has vectors of {own} bytes")
    convolution.set_vector(request.param)
    mpijax.config.update("jax_enable_compilation_cache", False)  # plans on disk are for the processor's own vectors
    yield request.param
    mpijax.config.update("jax_enable_compilation_cache", True)
    convolution.set_vector(own)


@pytest.mark.one_in(3)
def test_tiles(vector):
    """With each kind of vectors, and features that fill, or do not fill, one or several."""
    compared = 0
    for seed in range(48):
        rng = np.random.default_rng(seed)
        dtype = (np.float32, np.float64)[seed % 2]
        n, c, o, rows, columns = (int(k) for k in rng.integers([1, 1, 1, 3, 3], [4, 9, 70, 12, 40]))
        o = (o, 16, 32, 64)[seed % 4]
        last = seed % 3  # the axis of features: last in all, last in the kernel, first
        layout = (("NHWC", "HWIO", "NHWC"), ("NCHW", "HWIO", "NCHW"), ("NCHW", "OIHW", "NCHW"))[last]
        groups = 2 if seed % 5 == 0 else 1
        shapes = {"N": n, "C": c * groups, "H": rows, "W": columns}, {"O": o * groups, "I": c, "H": 3, "W": 2}
        x, w = (rng.integers(-4, 5, [sizes[axis] for axis in spec]) for sizes, spec in zip(shapes, layout, strict=False))
        numbers = lax.conv_dimension_numbers(x.shape, w.shape, layout)
        params = {
            "window_strides": (1, 1 + seed % 2), "padding": ((1, 1), (0, 2)), "lhs_dilation": (1, 1), "rhs_dilation": (1, 2),
            "dimension_numbers": numbers, "feature_group_count": groups, "batch_group_count": 1, "precision": None,
            "preferred_element_type": None, "out_sharding": None,
        }  # fmt: skip
        with mpijax.enable_x64(True):
            x, w = x.astype(dtype), w.astype(dtype)
            f = mpijax.jit(lambda x, w, params=params: conv_general_dilated_p.bind(x, w, **params))
            want = conv_general_dilated_p.reference(x, w, **params)
            np.testing.assert_array_equal(f(x, w), want, err_msg=f"{seed}")
            # The gradient by the kernel has many steps along the depth: it is linear in x.
            tangent = rng.integers(-2, 3, w.shape).astype(dtype)
            by_kernel = mpijax.jit(mpijax.grad(lambda w, x, f=f, want=want: (f(x, w) * want).sum()))(w, x)
            assert (by_kernel * tangent).sum() == (conv_general_dilated_p.reference(x, tangent, **params) * want).sum()
            compared += want.size
    assert compared > 10_000


@pytest.mark.sweep
@pytest.mark.parametrize("depth", [255, 256, 257, 700])
def test_tiles_of_any_depth(vector, depth):
    rng = np.random.default_rng(depth)
    x, w = rng.integers(-4, 5, (2, 7, 9, depth)), rng.integers(-4, 5, (1, 1, depth, 24))
    f = mpijax.jit(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    np.testing.assert_array_equal(f(x.astype(np.float32), w.astype(np.float32)), x @ w[0, 0])


IMAGES, KERNEL = sample(2, 4, 9, 8), sample(6, 4, 3, 2, seed=1)
HALF = KERNEL[:, :2]
CASES = {
    "plain": lambda J: lambda x, w: J.lax.conv(x, w, (1, 2), "SAME"),
    "lower": lambda J: lambda x, w: J.lax.conv_general_dilated(x, w, (2, 3), "SAME_LOWER"),
    "general": lambda J: lambda x, w: J.lax.conv_with_general_padding(x, w, (1, 1), [(2, -1), (0, 3)], (2, 1), (1, 2)),
    "layout": lambda J: lambda x, w: J.lax.conv_general_dilated(
        x, w, (1, 1), "VALID", dimension_numbers=("NCWH", "OIHW", "WHNC")),
    "feature groups": lambda J: lambda x, w: J.lax.conv_general_dilated(
        x, w[:, :2], (1, 1), "SAME", feature_group_count=2),
    "own features": lambda J: lambda x, w: J.lax.conv_general_dilated(
        x, w.reshape(24, 1, 3, 2), (1, 1), "SAME", feature_group_count=4, rhs_dilation=(2, 1)),
    "batch groups": lambda J: lambda x, w: J.lax.conv_general_dilated(x, w, (1, 1), "SAME", batch_group_count=2),
    "transposed": lambda J: lambda x, w: J.lax.conv_transpose(x, w[:4], (2, 3), "SAME",
                                                              dimension_numbers=("NCHW", "OIHW", "NCHW")),
    "transposed kernel": lambda J: lambda x, w: J.lax.conv_transpose(
        x, w, (2, 1), "VALID", dimension_numbers=("NCHW", "IOHW", "NCHW"), transpose_kernel=True),
    "consistent": lambda J: lambda x, w: J.lax.conv_transpose(
        x, w, (2, 1), [(1, 1), (0, 1)], dimension_numbers=("NCHW", "OIHW", "NCHW"), use_consistent_padding=True),
    "patches": lambda J: lambda x, w: J.lax.conv_general_dilated_patches(x, (3, 2), (2, 2), "SAME"),
    "patches, layout": lambda J: lambda x, w: J.lax.conv_general_dilated_patches(
        x, (3, 2), (2, 2), "VALID", dimension_numbers=("NCHW", "WIHO", "HWNC")),
    "local": lambda J: lambda x, w: J.lax.conv_general_dilated_local(
        x, J.numpy.ones((3, 24, 7, 7)), (1, 1), "VALID", (3, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(3, CASES))
def test_values_and_jaxprs_are_jaxs(name):
    check(CASES[name], IMAGES, KERNEL, eager=False, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype, wide", [("int8", "int32"), ("bfloat16", "float32"), ("float32", "float64"),
                                         ("int32", "float32"), ("complex64", None)])  # fmt: skip
def test_preferred_types(dtype, wide):
    dtype = OURS.numpy.dtype(getattr(OURS.numpy, dtype))
    x, w = sample(1, 2, 5, dtype=np.float32).astype(dtype), sample(3, 2, 2, dtype=np.float32).astype(dtype)
    with OURS.enable_x64(True), THEIRS.enable_x64(True):
        check(lambda J: lambda x, w: J.lax.conv_general_dilated(x, w, (1,), "SAME", preferred_element_type=wide), x, w,
              jitted=False, rtol=1e-6)


GRADIENTS = {
    "strides": {"window_strides": (2, 1), "padding": [(1, 2), (-1, 1)]},
    "gaps": {"window_strides": (1, 2), "padding": [(1, 0), (2, 1)], "lhs_dilation": (2, 1), "rhs_dilation": (1, 2)},
    "feature groups": {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 2},
    "batch groups": {"window_strides": (2, 2), "padding": "VALID", "batch_group_count": 2},
    "layout": {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": ("NCWH", "OIHW", "NHWC")},
}


@pytest.mark.parametrize("name", one_in(2, GRADIENTS))
def test_gradients(name):
    how = GRADIENTS[name]
    kernel = HALF if "feature_group_count" in how else KERNEL
    x, w = IMAGES[:, :, :5, :5].astype(np.float64), kernel[:4].astype(np.float64)
    with mpijax.enable_x64(True):
        check_grads(lambda x, w: lax.conv_general_dilated(x, w, **how), (x, w), order=2, eps=1e-4)

    def gradient(J):
        return lambda x, w: J.grad(lambda x, w: J.lax.conv_general_dilated(x, w, **how).sum(), (0, 1))(x, w)

    theirs, ours = (jaxpr_text(J, gradient, (np.float32(x), np.float32(w))) for J in (THEIRS, OURS))
    assert theirs[0] == ours[0] == "value" and same_text(theirs[1], ours[1]), f"{theirs[1]}\n{ours[1]}"


BATCHED = list(itertools.product(("plain", "feature groups", "batch groups"), ((0, None), (None, 1), (2, 0), (4, 4))))


@pytest.mark.parametrize("name, axes", BATCHED)
@pytest.mark.one_in(3)
def test_vmap_is_the_stacked_loop(name, axes):
    fun = CASES[name](OURS)
    many = [np.stack([x + 0.125 * i for i in range(3)]) for x in (IMAGES, KERNEL)]
    args = [x if a is None else np.moveaxis(m, 0, a)
            for x, m, a in zip((IMAGES, KERNEL), many, axes, strict=True)]  # fmt: skip
    got = OURS.vmap(fun, axes)(*args)
    want = [fun(*(x if a is None else m[i] for x, m, a in zip((IMAGES, KERNEL), many, axes, strict=True)))
            for i in range(3)]  # fmt: skip
    np.testing.assert_allclose(got, np.stack(want), rtol=1e-5, atol=1e-5)
    theirs, ours = (
        jaxpr_text(J, lambda J: J.vmap(CASES[name](J), axes), args) for J in (THEIRS, OURS)
    )
    assert same_text(theirs[1], ours[1]), f"{theirs[1]}\n{ours[1]}"


def test_no_examples():
    fun = OURS.vmap(CASES["plain"](OURS), (0, None))
    assert fun(np.zeros((0, *IMAGES.shape), np.float32), KERNEL).shape == (0, 2, 6, 9, 4)


ERRORS = {
    "ranks": lambda J: J.lax.conv(IMAGES, KERNEL[0], (1, 1), "SAME"),
    "ranks of numbers": lambda J: J.lax.conv_general_dilated(
        np.ones((1, 1, 1)), np.ones((1, 1, 1, 1)), (1,), [(0, 0)],
        dimension_numbers=J.lax.ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))),
    "dtypes": lambda J: J.lax.conv(IMAGES, KERNEL.astype(np.int32), (1, 1), "SAME"),
    "features": lambda J: J.lax.conv(IMAGES, KERNEL[:, :3], (1, 1), "SAME"),
    "groups": lambda J: J.lax.conv_general_dilated(IMAGES, KERNEL, (1, 1), "SAME", feature_group_count=3),
    "no groups": lambda J: J.lax.conv_general_dilated(IMAGES, KERNEL, (1, 1), "SAME", feature_group_count=0),
    "batches": lambda J: J.lax.conv_general_dilated(IMAGES, KERNEL, (1, 1), "SAME", batch_group_count=4),
    "both": lambda J: J.lax.conv_general_dilated(
        IMAGES, KERNEL[:, :2], (1, 1), "SAME", feature_group_count=2, batch_group_count=2),
    "strides": lambda J: J.lax.conv_general_dilated(IMAGES, KERNEL, (1,), [(0, 0), (0, 0)]),
    "padding": lambda J: J.lax.conv_general_dilated(IMAGES, KERNEL, (1, 1), 3),
    "name": lambda J: J.lax.conv_general_dilated(IMAGES, KERNEL, (1, 1), "FULL"),
    "negative": lambda J: J.lax.conv_general_dilated(IMAGES, KERNEL, (1, 1), [(-9, -9), (0, 0)]),
    "pads": lambda J: J.lax.conv_general_dilated(IMAGES, KERNEL, (1, 1), [(0, 0)]),
    "letters": lambda J: J.lax.conv_dimension_numbers((1,) * 4, (1,) * 4, ("NCHW", "OIHZ", "NCHW")),
    "twice": lambda J: J.lax.conv_dimension_numbers((1,) * 4, (1,) * 4, ("NCHH", "OIHW", "NCHW")),
    "two": lambda J: J.lax.conv_dimension_numbers((1,) * 4, (1,) * 4, ("NCHW", "OIHW")),
    "narrow": lambda J: J.lax.conv(IMAGES, KERNEL, (1, 1), "SAME", preferred_element_type=np.float16),
    "gaps": lambda J: J.lax.conv_general_dilated(IMAGES, KERNEL, (1, 1), "SAME", lhs_dilation=(2, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_jaxs(name):
    check(lambda J: lambda: ERRORS[name](J), jaxpr=False, jitted=False)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        ERRORS[name](OURS)


def test_different_ranks_are_named_before_other_mistakes():
    with pytest.raises(ValueError, match="lhs and rhs must have the same number of dimensions"):
        ERRORS["ranks of numbers"](OURS)


def test_shapes_without_arrays():
    layouts = ("NHWC", "HWIO", "NCHW")
    for J in (THEIRS, OURS):
        assert J.lax.conv_general_shape_tuple((2, 9, 8, 3), (3, 2, 3, 5), (2, 1), "SAME", layouts) == (2, 5, 5, 8)
        assert J.lax.conv_transpose_shape_tuple((2, 9, 8, 3), (3, 2, 5, 3), (2, 1), "SAME", layouts)[0] == 2
