"""One row for each primitive, to be put through all transformations: from the tables of the operations, and here
those that belong to no table of theirs. What cannot be sampled has its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from ops import table_elementwise, table_linalg, table_structural

import mpijax
from mpijax import lax
from mpijax.ad_checkpoint import checkpoint_name
from mpijax.experimental.shard_alike import shard_alike


@dataclass(frozen=True)
class Row:
    """`fun(*args)` applies the primitives.

    Attributes:
      order: how often it can be differentiated by its floats: 0, 1 or 2.
      forward, reverse: which modes there are.
      batched: whether vmap takes it.
      thorough: whether derivatives go through loops and branches, too; of elementwise operations only with --slow.
    """

    name: str
    primitives: tuple[str, ...]
    fun: Callable
    args: tuple
    order: int = 2
    forward: bool = True
    reverse: bool = True
    batched: bool = True
    thorough: bool = True

    @property
    def smooth(self) -> tuple[int, ...]:
        """Positions of the floats."""
        return tuple(i for i, x in enumerate(self.args) if np.asarray(x).dtype.kind in "fc")


def widened(x: Any) -> Any:
    """Floats in double precision, for finite differences."""
    x = np.asarray(x)
    if x.dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        return x.astype(np.float64)
    if x.dtype == np.int32 and x.ndim == 0:  # an index, next to Python's
        return x.astype(np.int64)
    return x.astype(np.complex128) if x.dtype == np.complex64 else x


def _number(names: Sequence[str]) -> list[str]:
    return [f"{n}-{names[:i].count(n)}" if names.count(n) > 1 else n for i, n in enumerate(names)]


def _elementwise() -> list[Row]:
    rows = table_elementwise.ROWS
    found = []
    for row, name in zip(rows, _number([r.name for r in rows]), strict=True):
        dtype = next((d for d in ("float32", "complex64") if d in row.dtypes), row.dtypes[0])
        args = row.operands(dtype)
        smooth = row.order and row.name not in ("reduce", "convert_element_type")  # those rows name narrow types
        args = tuple(map(widened, args) if smooth else args)
        found.append(Row(name, (row.name,), row.make(lax), args, row.order if smooth else 0, thorough=False))
    return found


NAME_A_TYPE = ("iota", "pad negative", "dot_general precise")  # float32
LIKE_CUMSUM = ("cumprod", "cummax", "cummin")  # their rules are made by the same function


def _structural() -> list[Row]:
    return [
        Row(r.name, tuple(r.primitives.split()), lambda *xs, f=r.fun: f(lax, *xs), tuple(map(widened, r.args)),
            2 if r.derivatives else 0, batched=r.batched, thorough=r.primitives not in LIKE_CUMSUM)
        for r in table_structural.ROWS if not any(word in r.name for word in NAME_A_TYPE)
    ]  # fmt: skip


V = np.linspace(-1.1, 1.3, 6)
M = np.cos(np.arange(12.0)).reshape(3, 4)
POSITIVE = np.linspace(0.4, 2.9, 6)
KEY = np.array([1, 2], np.uint32)

SPECIAL = [
    Row("igamma by x", ("igamma",), lambda x: lax.igamma(POSITIVE, x), (POSITIVE[::-1].copy(),)),
    Row("igammac by x", ("igammac",), lambda x: lax.igammac(POSITIVE, x), (POSITIVE[::-1].copy(),)),
    Row("igamma by a", ("igamma", "igamma_grad_a"), lambda a: lax.igamma(a, POSITIVE), (POSITIVE[::-1].copy(),), 1),
    Row("polygamma by x", ("polygamma",), lambda x: lax.polygamma(np.ones(6), x), (POSITIVE,)),
    Row("betainc by x", ("regularized_incomplete_beta",), lambda x: lax.betainc(POSITIVE, POSITIVE[::-1].copy(), x),
        (np.linspace(0.1, 0.9, 6),)),
    Row("wide product", ("wide_product",), lambda x: lax.mul(x, x, out_dtype="float64"), (POSITIVE,)),
    Row("conversion", ("convert_element_type",), lambda x: lax.convert_element_type(x, "complex128") * 1j, (POSITIVE,)),
    Row("product of all", ("reduce",), lambda x: lax.reduce(x, 1.0, lambda a, b: (a * b) * 1.0, (0,)), (POSITIVE,), 0),
    Row("iota", ("iota",), lambda x: x * lax.iota(x.dtype, 6), (POSITIVE,)),
    Row("largest, roughly", ("approx_top_k",), lambda x: lax.approx_max_k(x, 2)[0], (POSITIVE,)),
]  # fmt: skip


def _keyed(fun: Callable) -> Callable:
    return lambda data: fun(mpijax.random.wrap_key_data(data))


def _data(key: Any) -> Any:
    return mpijax.random.key_data(key)


RANDOM = [
    Row("seed", ("random_seed",), lambda s: _data(mpijax.random.key(s)), (np.uint32(7),), 0),
    Row("split", ("random_split", "random_wrap", "random_unwrap"), _keyed(lambda k: _data(mpijax.random.split(k, 3))),
        (KEY,), 0),
    Row("fold in", ("random_fold_in",),
        lambda d, i: _data(mpijax.random.fold_in(mpijax.random.wrap_key_data(d), i)), (KEY, np.uint32(3)), 0),
    Row("bits", ("random_bits",), _keyed(lambda k: mpijax.random.bits(k, (2, 3))), (KEY,), 0),
    Row("clone", ("random_clone",), _keyed(lambda k: _data(mpijax.random.clone(k))), (KEY,), 0),
    # Its derivative is that of the quantile, not of the draw, which jumps.
    Row("gamma", ("random_gamma",), _keyed(lambda k: mpijax.random.gamma(k, 2.5, (3,))), (KEY,), 0),
    Row("threefry", ("threefry2x32",), lambda d: mpijax.random.bits(d, (5,)), (KEY,), 0),
]  # fmt: skip


def _windows(op: Callable, init: float) -> Callable:
    return lambda x: lax.reduce_window(x, init, op, (2, 3), (1, 2), "SAME")


def _apart(a: Any, b: Any) -> Any:
    """A sum that is not recognized as one."""
    return (a + b) * 1.0


WINDOWS = [
    Row("window sum", ("reduce_window_sum",), _windows(lax.add, 0.0), (M,)),
    Row("window max", ("reduce_window_max", "select_and_scatter_add", "select_and_gather_add"),
        _windows(lax.max, -np.inf), (M,)),
    Row("window min", ("reduce_window_min",), _windows(lax.min, np.inf), (M,)),
    Row("window of a function", ("reduce_window",), _windows(_apart, 0.0), (M,), 0),
]  # fmt: skip


# -- calls: functions as parameters --------------------------------------------------------------------------


@mpijax.custom_jvp
def _own_jvp(x):
    return lax.sin(x)


_own_jvp.defjvp(lambda primals, tangents: (_own_jvp(*primals), lax.cos(primals[0]) * tangents[0]))


@mpijax.custom_vjp
def _own_vjp(x):
    return lax.sin(x)


_own_vjp.defvjp(lambda x: (_own_vjp(x), x), lambda x, ct: (ct * lax.cos(x),))


def _scan(c, xs):
    def body(c, x):
        c = lax.sin(c) * x + c
        return c, c * x

    return lax.scan(body, c, xs)


def _branches(i, x):
    return lax.switch(i, [lax.sin, lambda x: x * x, lambda x: lax.exp(x) * x.sum()], x)


def _loop(n, x):
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, lax.sin(s[1]) + x), (np.int32(0), x))[1]


def _solve(a, b):
    a = a @ a.T + 4 * np.eye(3)
    return lax.custom_linear_solve(
        lambda v: a @ v, b, lambda matvec, b: mpijax.numpy.stack(_cramer(a, b)), lambda vecmat, b: _cramer_t(a, b)
    )


def _cramer(a, b):
    def det(m):
        return sum(m[0, i] * (m[1, (i + 1) % 3] * m[2, (i + 2) % 3] - m[1, (i + 2) % 3] * m[2, (i + 1) % 3])
                   for i in range(3))  # fmt: skip

    a = mpijax.numpy.asarray(a)
    return [det(a.at[:, i].set(b)) / det(a) for i in range(3)]


def _cramer_t(a, b):
    return mpijax.numpy.stack(_cramer(a.T, b))


def _python(x):
    return mpijax.pure_callback(np.sin, mpijax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="expand_dims")


CALLS = [
    Row("jit", ("jit",), lambda x, y: mpijax.jit(lambda x: lax.sin(x) * y)(x), (V, POSITIVE)),
    Row("checkpoint", ("remat2", "name"),
        mpijax.checkpoint(lambda x: lax.sin(checkpoint_name(lax.exp(x), "e")),
                          policy=mpijax.checkpoint_policies.save_only_these_names("e")), (V,)),
    Row("custom_jvp", ("custom_jvp_call",), lambda x: _own_jvp(x) * x, (V,)),
    Row("custom_vjp", ("custom_vjp_call",), lambda x: _own_vjp(x) * x, (V,), forward=False),
    Row("scan", ("scan",), _scan, (M[0], M)),
    Row("switch", ("cond",), _branches, (np.int32(2), V)),
    Row("cond of a bool", ("cond",), lambda x: lax.cond(x[0] > 0, lax.sin, lambda x: x * x, x), (V,)),
    Row("while", ("while",), _loop, (np.int32(4), V), reverse=False),
    Row("fori_loop", ("scan",), lambda x: lax.fori_loop(0, 3, lambda i, y: lax.sin(y) * x + i, x), (V,)),
    Row("linear solve", ("custom_linear_solve",), _solve, (np.sin(np.arange(9.0)).reshape(3, 3), V[:3])),
    Row("barrier", ("optimization_barrier",), lambda x, y: lax.sin(lax.optimization_barrier((x, y))[0]) * y, (V, POSITIVE)),
    Row("alike", ("shard_alike",), lambda x, y: lax.sin(shard_alike(x, y)[0]) * shard_alike(x, y)[1], (V, POSITIVE)),
    Row("callback", ("pure_callback",), _python, (V,), 0),
]  # fmt: skip

LINALG = [Row(*row[:1], tuple(row[1].split()), *row[2:], thorough=False) for row in table_linalg.ROWS]

IMAGES, KERNELS = np.sin(np.arange(96.0)).reshape(4, 4, 3, 2), np.cos(np.arange(32.0)).reshape(4, 2, 2, 2)


def _conv(x, w, **how):
    return lax.conv_general_dilated(x, w, (2, 1), ((1, 1), (0, 1)), dimension_numbers=("NCHW", "OIHW", "NHWC"), **how)


TRANSFORMS = [
    Row("conv", ("conv_general_dilated",), lambda x, w: _conv(x[:, :2], w), (IMAGES[:2], KERNELS), thorough=False),
    Row("conv groups", ("conv_general_dilated",), lambda x, w: _conv(x, w, feature_group_count=2),
        (IMAGES[:2], KERNELS), thorough=False),
    Row("conv batch groups", ("conv_general_dilated",), lambda x, w: _conv(x[:, :2], w, batch_group_count=2),
        (IMAGES, KERNELS), thorough=False),
    Row("fft", ("fft",), lambda x: lax.fft(x, "FFT", (4, 2)), (IMAGES[0, :, 0] + 1j * IMAGES[1, :, 0],)),
    Row("rfft", ("fft",), lambda x: lax.fft(x, "RFFT", (3, 2)), (IMAGES[0],)),
    Row("irfft", ("fft",), lambda x: lax.fft(x, lax.FftType.IRFFT, (5,)),
        (IMAGES[0, :, :, 0] + 1j * IMAGES[1, :, :, 0],)),
]  # fmt: skip

ROWS = [*TRANSFORMS, *_elementwise(), *_structural(), *SPECIAL, *RANDOM, *WINDOWS, *CALLS, *LINALG]

_COLLECTIVE = "communicates between ranks or along a named axis: tests/spmd, test_vmap_axes.py"
_EFFECT = "is there for its effect: tests/test_debug.py, tests/test_callbacks.py"
_INNER = "appears in what a transformation or the compiler makes, not in functions"
EXCLUDED = {
    **dict.fromkeys(
        "all_gather all_gather_invariant all_gather_reduced all_to_all axis_index counted_all_to_all pbroadcast pmax pmin ppermute "
        "preduced psum psum_invariant pvary reduce_scatter reduced_vary_cast_p shard_map unreduced_psum unreduced_reduce_scatter "
        "vary_unreduced_cast_p".split(), _COLLECTIVE),
    **dict.fromkeys(
        "global_array_to_host_local_array host_local_array_to_global_array move reshard sharding_constraint".split(),
        "says how arrays are sharded over ranks: tests/spmd"),
    **dict.fromkeys(
        "mpi_allgather mpi_allgatherv mpi_allreduce mpi_alltoall mpi_alltoallv mpi_barrier mpi_bcast mpi_exscan "
        "mpi_gather mpi_gatherv mpi_recv mpi_reduce mpi_reduce_scatter mpi_reduce_scatterv mpi_scan mpi_scatter "
        "mpi_scatterv mpi_send mpi_sendrecv zero_tangent".split(),
        "communicates between ranks, or is part of the derivative of what does: tests/mpi"),
    **dict.fromkeys("debug_callback debug_print inspect_sharding io_callback loop_mark loop_part nan_check".split(), _EFFECT),
    **dict.fromkeys("bitcast_same_width convolution custom_lin empty2 fold_in_equal_shapes".split(), _INNER),
    **dict.fromkeys(
        (f"random_{what}_{kind}" for what in ("seed", "split", "fold_in", "bits")
         for kind in ("composed", "of_one_counter")), "draws by another generator: tests/random/test_generators.py"),
    "batched_while": "is a `while` under vmap: tests/ops/test_while.py",
    "reshape_permuted": "is a transposition and a reshape: tests/ops/test_structural.py",
    "sort_rows": "is what a program makes of sort: tests/ops/test_sort.py",
    **dict.fromkeys("fft_native fft_hosted".split(), "is what a program makes of fft: tests/ops/test_fft_lowering.py"),
    "scatter_apply": "has no derivative: tests/ops/test_structural.py, tests/numpy/test_at.py",
    "cholesky_update": "takes one matrix, not stacks, and has no derivative: tests/numpy/test_linalg.py",
    "dim_as_value": "is a size of an exported program, without operands: tests/export/test_symbolic_shapes.py",
    "check": "is taken away by checkify: tests/checkify/test_checkify.py",
    "custom_vmap_call": "its batching is the user's: test_implicit.py",
    **dict.fromkeys("ffi_call numba_call".split(), "calls machine code of the user: test_ffi.py, test_numba_call.py"),
    "buffer_callback": "writes into memory: tests/experimental/test_buffer_callback.py",
    **dict.fromkeys("rng_bit_generator rng_uniform".split(), "draws bits: tests/lax/test_bits_and_composites.py"),
    **dict.fromkeys("after_all create_token dce_sink stage".split(), "orders or keeps, and computes nothing: test_tokens.py"),
    **dict.fromkeys("precv psend".split(), "the halves of a ppermute: tests/spmd/test_one_sided.py"),
    "device_put": "says where a value lies: tests/spmd",
    "searchsorted": "counts, so it has no derivative: tests/numpy/test_sorting.py",
    "select_and_scatter": "has no derivative: tests/ops/test_select_and_scatter.py",
    **dict.fromkeys("to_edtype from_edtype".split(), "takes a library's dtype: tests/ops/test_extended_conversion.py"),
    "remat_opt": "runs a user's forward rule under checkpoint: test_remat_opt.py",
    "linear_call": "its transpose is the user's: test_implicit.py",
    "platform_index": "chooses among platforms, of which there is one",
}  # fmt: skip
