"""Kernels by name, each a function of the libraries to run it with, that returns arrays."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from types import SimpleNamespace

import numpy as np


def library(module):
    """A library, as the kernels of the table use it."""
    pallas, pltpu, plgpu = (
        import_module(f"{module.__name__}.experimental.pallas{part}") for part in ("", ".tpu", ".triton")
    )  # fmt: skip

    def shape(*sizes, dtype="float32"):
        return module.ShapeDtypeStruct(sizes, module.numpy.dtype(dtype))

    return SimpleNamespace(
        jax=module, jnp=module.numpy, lax=module.lax, pl=pallas, pltpu=pltpu, plgpu=plgpu,
        call=partial(pallas.pallas_call, interpret=True), shape=shape,
    )  # fmt: skip


def data(*shape, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "b":
        return rng.random(shape) > 0.5
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 50, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


CASES = {}


def case(fun):
    CASES[fun.__name__] = fun
    return fun


# ---------------------------------------------------------------- blocks


@case
def no_grid(L):
    def kernel(x, y, o):
        o[...] = x[...] + y[...]

    return L.call(kernel, L.shape(3, 5))(data(3, 5), data(3, 5, seed=1))


@case
def scalars(L):
    def kernel(x, o):
        o[...] = x[...] * 2

    return L.call(kernel, L.shape())(2.5)


def _dtype(dtype):
    def run(L):
        def kernel(x, y, o):
            o[...] = L.jnp.maximum(x[...], y[...])

        spec = L.pl.BlockSpec((4,), lambda i: (i,))
        x = L.jnp.asarray(data(12), dtype) if dtype == "bfloat16" else data(12, dtype=dtype)
        return L.call(kernel, L.shape(12, dtype=dtype), grid=(3,), in_specs=[spec, spec], out_specs=spec)(x, x[::-1])

    return run


for _name in ("float32", "float16", "bfloat16", "int8", "int32", "uint8", "uint32", "bool"):
    CASES[f"dtype_{_name}"] = _dtype(_name)


@case
def rows(L):
    def kernel(x, o):
        a = x[...]
        e = L.jnp.exp(a - L.jnp.max(a, axis=-1, keepdims=True))
        o[...] = e / L.jnp.sum(e, axis=-1, keepdims=True)

    spec = L.pl.BlockSpec((2, 7), lambda i: (i, 0))
    return L.call(kernel, L.shape(8, 7), grid=(4,), in_specs=[spec], out_specs=spec)(data(8, 7))


@case
def blocks_of_two_axes(L):
    def kernel(x, row, column, o):
        o[...] = x[...] * row[...] + column[...]

    BS = L.pl.BlockSpec
    spec = BS((4, 3), lambda i, j: (i, j))
    specs = [spec, BS((1, 3), lambda i, j: (0, j)), BS((4, 1), lambda i, j: (i, 0))]
    f = L.call(kernel, L.shape(8, 9), grid=(2, 3), in_specs=specs, out_specs=spec)
    return f(data(8, 9), data(1, 9, seed=1), data(8, 1, seed=2))


@case
def permuted_blocks(L):
    def kernel(x, o):
        o[...] = x[...].T + L.pl.program_id(0) * 10 + L.pl.program_id(1)

    BS = L.pl.BlockSpec
    f = L.call(
        kernel, L.shape(9, 8), grid=(3, 2), in_specs=[BS((4, 3), lambda i, j: (j, i))],
        out_specs=BS((3, 4), lambda i, j: (i, j)),
    )  # fmt: skip
    return f(data(8, 9))


@case
def reversed_blocks(L):
    def kernel(x, o):
        o[...] = x[...]

    BS = L.pl.BlockSpec
    f = L.call(kernel, L.shape(12), grid=(4,), in_specs=[BS((3,), lambda i: (3 - i,))], out_specs=BS((3,), lambda i: i))
    return f(data(12))


@case
def diagonal_blocks(L):
    def kernel(x, o):
        o[...] = L.jnp.sum(x[...], axis=0)

    BS = L.pl.BlockSpec
    f = L.call(
        kernel, L.shape(6), grid=(3,), in_specs=[BS((2, 2), lambda i: (i, i))], out_specs=BS((2,), lambda i: (i,))
    )  # fmt: skip
    return f(data(6, 6))


@case
def three_axes(L):
    def kernel(x, o):
        o[...] = L.jnp.sin(x[...])

    spec = L.pl.BlockSpec((1, 2, 4), lambda i, j, k: (i, j, k))
    return L.call(kernel, L.shape(3, 4, 8), grid=(3, 2, 2), in_specs=[spec], out_specs=spec)(data(3, 4, 8))


@case
def squeezed_axes(L):
    def kernel(x, y, o):
        assert x.shape == (4,) and y.shape == (6,) and o.shape == (4, 6)
        o[...] = x[...][:, None] * y[...]

    BS, squeezed = L.pl.BlockSpec, L.pl.squeezed
    f = L.call(
        kernel, L.shape(3, 4, 6), grid=(3,),
        in_specs=[BS((None, 4), lambda b: (b, 0)), BS((6, squeezed), lambda b: (0, b))],
        out_specs=BS((L.pl.Squeezed(), 4, 6), lambda b: (b, 0, 0)),
    )  # fmt: skip
    return f(data(3, 4), data(6, 3, seed=1))


@case
def whole_operand_and_blocks(L):
    def kernel(x, table, o):
        o[...] = x[...] + table[L.pl.program_id(0)]

    BS = L.pl.BlockSpec
    spec = BS((2, 3), lambda i: (i, 0))
    f = L.call(kernel, L.shape(8, 3), grid=(4,), in_specs=[spec, BS(memory_space=L.pl.ANY)], out_specs=spec)
    return f(data(8, 3), data(4, seed=1))


@case
def no_block_spec(L):
    def kernel(x, y, o):
        o[...] = x[...] + y[...]

    spec = L.pl.BlockSpec((2,), lambda i: (i,))
    return L.call(kernel, L.shape(4), grid=(2,), in_specs=[spec, L.pl.no_block_spec], out_specs=spec)(data(4), data(2))


@case
def overhanging_blocks(L):
    def kernel(x, o):
        o[...] = x[...] * 2

    spec = L.pl.BlockSpec((4, 4), lambda i, j: (i, j))
    return L.call(kernel, L.shape(10, 7), grid=(3, 2), in_specs=[spec], out_specs=spec)(data(10, 7))


@case
def overhanging_blocks_hold_undefined_values(L):
    def kernel(x, o):
        o[...] = L.jnp.sum(L.jnp.isnan(x[...]), axis=1).astype(L.jnp.float32)

    BS = L.pl.BlockSpec
    f = L.call(kernel, L.shape(3), grid=(3,), in_specs=[BS((1, 4), lambda i: (0, i))], out_specs=BS((1,), lambda i: i))
    return f(data(1, 10))


@case
def masked_sum_over_an_overhanging_axis(L):
    def kernel(x, o):
        i = L.pl.program_id(0)
        place = i * 4 + L.lax.broadcasted_iota(L.jnp.int32, (4, 3), 0)

        @L.pl.when(i == 0)
        def _():
            o[...] = L.jnp.zeros_like(o)

        o[...] += L.jnp.sum(L.jnp.where(place < 10, x[...], 0), axis=0)

    BS = L.pl.BlockSpec
    f = L.call(
        kernel, L.shape(3), grid=(3,), in_specs=[BS((4, 3), lambda i: (i, 0))], out_specs=BS((3,), lambda i: (0,))
    )
    return f(data(10, 3))


@case
def element_blocks(L):
    def kernel(x, o):
        o[...] = x[:4] + x[1:5] + x[2:6]

    BS = L.pl.BlockSpec
    f = L.call(
        kernel, L.shape(16), grid=(4,), in_specs=[BS((L.pl.Element(6),), lambda i: (i * 4,))],
        out_specs=BS((4,), lambda i: (i,)),
    )  # fmt: skip
    return f(data(18))


@case
def element_blocks_with_padding(L):
    def kernel(x, o):
        o[...] = x[:4] + x[1:5] + x[2:6]

    BS = L.pl.BlockSpec
    f = L.call(
        kernel, L.shape(16), grid=(4,), in_specs=[BS((L.pl.Element(6, (1, 1)),), lambda i: (i * 4,))],
        out_specs=BS((4,), lambda i: (i,)),
    )  # fmt: skip
    return f(data(16))


@case
def blocked(L):
    def kernel(x, o):
        o[...] = -x[...]

    spec = L.pl.BlockSpec((L.pl.Blocked(3),), lambda i: i, pipeline_mode=L.pl.Buffered(2))
    return L.call(kernel, L.shape(6), grid=2, in_specs=[spec], out_specs=spec)(data(6))


@case
def a_result_that_is_not_written_everywhere(L):
    def kernel(o, p):
        o[...] = L.jnp.ones(2)
        p[0] = 5

    BS = L.pl.BlockSpec
    f = L.call(
        kernel, (L.shape(6), L.shape(4, dtype="int32")), grid=(2,),
        out_specs=(BS((2,), lambda i: (2 * i,)), BS((2,), lambda i: (i,))),
    )  # fmt: skip
    return f()


@case
def empty_grid(L):
    def kernel(x, o):
        o[...] = x[...]

    spec = L.pl.BlockSpec((2,), lambda i: (i,))
    return L.call(kernel, L.shape(4), grid=(0,), in_specs=[spec], out_specs=spec)(data(4))


@case
def position_in_an_index_map(L):
    def kernel(x, o):
        o[...] = x[...]

    backward = L.pl.BlockSpec((2, 2), lambda i, j: (L.pl.num_programs(0) - 1 - i, L.pl.program_id(1)))
    return L.call(kernel, L.shape(8, 4), grid=(4, 2), in_specs=[backward], out_specs=L.pl.BlockSpec((2, 2), lambda *at: at))(
        data(8, 4)
    )


@case
def computed_grid(L):
    def kernel(x, o):
        o[...] = x[...] + L.pl.num_programs(0) + 10 * L.pl.program_id(1)

    spec = L.pl.BlockSpec((2, 2), lambda i, j: (i, j))

    def f(x, n):
        return L.call(kernel, L.shape(8, 4), grid=(n, 2), in_specs=[spec], out_specs=spec)(x)

    return L.jax.jit(f)(data(8, 4), np.int32(3))


# ---------------------------------------------------------------- structure


@case
def trees(L):
    def kernel(x, y, o):
        o["a"][...] = x["p"][...] + y[0][...]
        o["b"][...] = x["q"][...] - y[1][...]

    spec = L.pl.BlockSpec((2,), lambda i: (i,))
    f = L.call(
        kernel, {"a": L.shape(4), "b": L.shape(4)}, grid=(2,), in_specs=[{"p": spec, "q": spec}, (spec, spec)],
        out_specs={"a": spec, "b": spec},
    )  # fmt: skip
    return f({"p": data(4), "q": data(4, seed=1)}, (data(4, seed=2), data(4, seed=3)))


@case
def several_results_in_a_list(L):
    def kernel(x, a, b):
        a[...] = x[...] + 1
        b[...] = x[...] > 0

    return L.call(kernel, [L.shape(5), L.shape(5, dtype="bool")])(data(5))


@case
def no_results(L):
    return L.call(lambda x: None, ())(data(5))


@case
def an_operand_that_is_none(L):
    def kernel(x, nothing, o):
        assert nothing is None
        o[...] = x[...]

    return L.call(kernel, L.shape(5))(data(5), None)


@case
def grid_spec(L):
    def kernel(x, o, total):
        total[...] = L.jnp.where(L.pl.program_id(0) == 0, 0, total[...]) + x[...]
        o[...] = total[...]

    spec = L.pl.BlockSpec((2,), lambda i: (i,))
    grid_spec = L.pl.GridSpec(
        grid=(3,), in_specs=[spec], out_specs=spec, scratch_shapes=[L.pltpu.VMEM((2,), L.jnp.float32)]
    )
    return L.call(kernel, L.shape(6), grid_spec=grid_spec, name="running_total")(data(6))


@case
def a_name_and_parameters(L):
    def kernel(x, o):
        o[...] = x[...]

    params = L.pltpu.CompilerParams(dimension_semantics=("parallel",), vmem_limit_bytes=1000)
    cost = L.pl.CostEstimate(flops=1, transcendentals=0, bytes_accessed=8)
    spec = L.pl.BlockSpec((2,), lambda i: (i,), memory_space=L.pltpu.VMEM)
    f = L.call(
        kernel, L.shape(4), grid=(2,), in_specs=[spec], out_specs=spec, compiler_params=params, cost_estimate=cost,
        name="copies", metadata={"a": "b"},
    )  # fmt: skip
    return f(data(4))


# ---------------------------------------------------------------- accumulation, scratch, aliases


@case
def blocked_matmul(L):
    def kernel(a, b, o):
        @L.pl.when(L.pl.program_id(2) == 0)
        def _():
            o[...] = L.jnp.zeros_like(o)

        o[...] += a[...] @ b[...]

    BS = L.pl.BlockSpec
    f = L.call(
        kernel, L.shape(8, 12), grid=(2, 3, 2),
        in_specs=[BS((4, 5), lambda i, j, k: (i, k)), BS((5, 4), lambda i, j, k: (k, j))],
        out_specs=BS((4, 4), lambda i, j, k: (i, j)),
    )  # fmt: skip
    return f(data(8, 10), data(10, 12, seed=1))


@case
def matmul_with_an_accumulator(L):
    def kernel(a, b, o, acc):
        @L.pl.when(L.pl.program_id(2) == 0)
        def _():
            acc[...] = L.jnp.zeros_like(acc)

        acc[...] += L.jnp.dot(a[...], b[...], preferred_element_type=L.jnp.float32)

        @L.pl.when(L.pl.program_id(2) == L.pl.num_programs(2) - 1)
        def _():
            o[...] = acc[...].astype(o.dtype)

    BS = L.pl.BlockSpec
    f = L.call(
        kernel, L.shape(8, 8, dtype="float16"), grid=(2, 2, 3),
        in_specs=[BS((4, 4), lambda i, j, k: (i, k)), BS((4, 4), lambda i, j, k: (k, j))],
        out_specs=BS((4, 4), lambda i, j, k: (i, j)), scratch_shapes=[L.pltpu.VMEM((4, 4), L.jnp.float32)],
    )  # fmt: skip
    return f(data(8, 12, dtype=np.float16), data(12, 8, dtype=np.float16, seed=1))


@case
def scratch_by_name(L):
    def kernel(x, o, *, tmp, count):
        tmp[...] = x[...] * 2
        count[0] = L.pl.program_id(0)
        o[...] = tmp[...] + count[0]

    spec = L.pl.BlockSpec((2,), lambda i: (i,))
    scratch = {"tmp": L.pltpu.VMEM((2,), L.jnp.float32), "count": L.pltpu.SMEM((1,), L.jnp.int32)}
    return L.call(kernel, L.shape(6), grid=(3,), in_specs=[spec], out_specs=spec, scratch_shapes=scratch)(data(6))


@case
def aliases(L):
    def kernel(x, y, o):
        o[...] = o[...] + x[...]

    BS = L.pl.BlockSpec
    f = L.call(
        kernel, L.shape(8), grid=(2,), in_specs=[BS((2,), lambda i: (i,)), BS((2,), lambda i: (i,))],
        out_specs=BS((2,), lambda i: (2 * i,)), input_output_aliases={1: 0},
    )  # fmt: skip
    return f(data(4), data(8, seed=1))


@case
def an_operand_that_is_written(L):
    def kernel(x, o):
        x[...] = x[...] + 1
        o[...] = x[...] * 10

    BS = L.pl.BlockSpec
    f = L.call(
        kernel, L.shape(3, 4), grid=(3,), in_specs=[BS((4,), lambda i: (0,))], out_specs=BS((None, 4), lambda i: (i, 0))
    )
    return f(data(4))


@case
def histogram(L):
    def kernel(x, o):
        @L.pl.when(L.pl.program_id(0) == 0)
        def _():
            o[...] = L.jnp.zeros_like(o)

        def add(i, _):
            o[x[i]] += 1

        L.lax.fori_loop(0, 4, add, None)

    f = L.call(kernel, L.shape(50, dtype="int32"), grid=(3,), in_specs=[L.pl.BlockSpec((4,), lambda i: (i,))])
    return f(data(12, dtype=np.int32))


# ---------------------------------------------------------------- inside of kernels


@case
def loops(L):
    def kernel(x, o):
        @L.pl.loop(0, 3)
        def _(i):
            o[L.pl.ds(i * 2, 2), :] = x[L.pl.ds(i * 2, 2), :] * i

    return L.call(kernel, L.shape(6, 3))(data(6, 3))


@case
def a_loop_with_a_carry(L):
    def kernel(x, o):
        @L.pl.loop(1, 8, step=3, init_carry=L.jnp.float32(0))
        def total(i, carry):
            return carry + x[i]

        o[0] = total

    return L.call(kernel, L.shape(1))(data(8))


@case
def while_loops_and_scans(L):
    def kernel(x, o):
        def body(state):
            i, total = state
            return i + 1, total + x[i]

        _, total = L.lax.while_loop(lambda s: s[1] < 1.5, body, (0, L.jnp.float32(0)))
        o[0] = total
        _, sums = L.lax.scan(lambda c, i: (c + x[i], c * x[i]), L.jnp.float32(1), L.jnp.arange(3))
        o[1:4] = sums

    return L.call(kernel, L.shape(4))(np.abs(data(20)))


@case
def branches(L):
    def kernel(x, o):
        o[...] = L.lax.switch(
            L.pl.program_id(0), [lambda a: a, lambda a: -a, lambda a: a * a], x[...]
        )  # fmt: skip

    spec = L.pl.BlockSpec((2,), lambda i: (i,))
    return L.call(kernel, L.shape(6), grid=(3,), in_specs=[spec], out_specs=spec)(data(6))


@case
def parts_at_computed_places(L):
    def kernel(x, i, o):
        row = i[0]
        o[row, L.pl.ds(i[1], 2)] = x[L.pl.ds(row, 1), L.pl.ds(i[1], 2)][0]
        o[0, :] = x[row]
        o[L.pl.ds(1, 2), L.pl.ds(0, 2, 3)] = x[L.pl.ds(i[0] - 1, 2), L.pl.ds(1, 2, 2)]

    return L.call(kernel, L.shape(4, 5))(data(4, 5), np.array([2, 3], np.int32))


@case
def masked_loads_and_stores(L):
    def kernel(x, o):
        start = L.pl.program_id(0) * 4
        mask = start + L.jnp.arange(4) < 10
        v = L.plgpu.load(x.at[L.pl.ds(start, 4)], mask=mask, other=-1.0)
        L.plgpu.store(o.at[L.pl.ds(start, 4)], v * 2, mask=mask)

    return L.call(kernel, L.shape(10), grid=(3,))(data(10))


@case
def masked_loads_of_matrices(L):
    def kernel(x, o):
        i, j = L.pl.program_id(0) * 4, L.pl.program_id(1) * 4
        mask = ((i + L.jnp.arange(4)) < 6)[:, None] & ((j + L.jnp.arange(4)) < 7)[None, :]
        v = L.plgpu.load(x.at[L.pl.ds(i, 4), L.pl.ds(j, 4)], mask=mask, other=0)
        L.plgpu.store(o.at[L.pl.ds(i, 4), L.pl.ds(j, 4)], v + 1, mask=mask)

    return L.call(kernel, L.shape(6, 7, dtype="int32"), grid=(2, 2))(data(6, 7, dtype=np.int32))


@case
def atomics(L):
    def kernel(x, o):
        @L.pl.when(L.pl.program_id(0) == 0)
        def _():
            o[...] = L.jnp.zeros_like(o)

        L.plgpu.atomic_add(o, (L.pl.ds(0, 2),), x[...])
        L.plgpu.atomic_max(o, (L.jnp.int32(2),), L.jnp.max(x[...]))
        L.plgpu.atomic_min(o, (L.jnp.int32(3),), L.jnp.min(x[...]))

    f = L.call(kernel, L.shape(4, dtype="int32"), grid=(3,), in_specs=[L.pl.BlockSpec((2,), lambda i: (i,))])
    return f(data(6, dtype=np.int32))


@case
def compare_and_swap(L):
    def kernel(o, p):
        o[...] = L.jnp.int32(3)
        p[0] = L.plgpu.atomic_cas(o, 3, 5)
        p[1] = L.plgpu.atomic_cas(o, 3, 9)

    return L.call(kernel, (L.shape(dtype="int32"), L.shape(2, dtype="int32")))()


@case
def products_of_gpus(L):
    def kernel(a, b, o):
        o[...] = L.plgpu.dot(a[...], b[...], trans_a=True)

    return L.call(kernel, L.shape(3, 5))(data(4, 3, dtype=np.float16), data(4, 5, dtype=np.float16))


@case
def scoped_buffers(L):
    def kernel(x, o):
        def body(tmp, acc):
            tmp[...] = x[...] * 2
            acc[0] = L.jnp.sum(tmp[...]).astype(L.jnp.int32)
            o[...] = tmp[...] + acc[0]
            return None

        L.pl.run_scoped(body, L.pltpu.VMEM((2,), L.jnp.float32), acc=L.pltpu.SMEM((1,), L.jnp.int32))

    spec = L.pl.BlockSpec((2,), lambda i: (i,))
    return L.call(kernel, L.shape(6), grid=(3,), in_specs=[spec], out_specs=spec)(data(6))


@case
def prefetched_scalars(L):
    def kernel(order, x, o):
        o[...] = x[...] + order[L.pl.program_id(0)]

    BS = L.pl.BlockSpec
    spec = L.pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(4,), in_specs=[BS((2, 3), lambda i, order: (order[i], 0))],
        out_specs=BS((2, 3), lambda i, order: (i, 0)),
    )  # fmt: skip
    return L.call(kernel, L.shape(8, 3), grid_spec=spec)(np.array([3, 1, 0, 1], np.int32), data(8, 3))


@case
def copies_and_semaphores(L):
    def kernel(x, o, tmp, sem):
        copy = L.pltpu.make_async_copy(x.at[L.pl.ds(2, 4)], tmp, sem)
        copy.start()
        copy.wait()
        L.pltpu.async_copy(tmp.at[L.pl.ds(1, 2)], o.at[L.pl.ds(0, 2)], sem).wait()
        L.pltpu.sync_copy(tmp.at[L.pl.ds(0, 2)], o.at[L.pl.ds(2, 2)])

    f = L.call(kernel, L.shape(4), scratch_shapes=[L.pltpu.VMEM((4,), L.jnp.float32), L.pltpu.SemaphoreType.DMA])
    return f(data(8))


@case
def counting_semaphores(L):
    def kernel(o, sem):
        L.pl.semaphore_signal(sem, 3)
        L.pl.semaphore_wait(sem, 1)
        o[0] = L.pl.semaphore_read(sem)

    return L.call(kernel, L.shape(1, dtype="int32"), scratch_shapes=[L.pltpu.SemaphoreType.REGULAR])()


@case
def attention(L):
    def kernel(q, k, v, o):
        def turn(j, carry):
            acc, high, norm = carry
            here = L.pl.ds(j * 4, 4)
            s = q[...] @ k[here, :].T
            top = L.jnp.maximum(high, s.max(axis=-1))
            p = L.jnp.exp(s - top[:, None])
            old = L.jnp.exp(high - top)
            return acc * old[:, None] + p @ v[here, :], top, norm * old + p.sum(axis=-1)

        n, d = q.shape
        first = L.jnp.zeros((n, d)), L.jnp.full((n,), -L.jnp.inf), L.jnp.zeros((n,))
        acc, _, norm = L.lax.fori_loop(0, k.shape[0] // 4, turn, first)
        o[...] = acc / norm[:, None]

    BS = L.pl.BlockSpec
    whole = BS((None, 8, 5), lambda h, i: (h, 0, 0))
    part = BS((None, 2, 5), lambda h, i: (h, i, 0))
    f = L.call(kernel, L.shape(2, 8, 5), grid=(2, 4), in_specs=[part, whole, whole], out_specs=part)
    return f(data(2, 8, 5), data(2, 8, 5, seed=1), data(2, 8, 5, seed=2))


@case
def random_numbers_of_keys(L):
    def kernel(key, o):
        o[...] = L.jax.random.uniform(L.jax.random.wrap_key_data(key[...]), (4,))

    return L.call(kernel, L.shape(4))(np.array([0, 7], np.uint32))


@case
def dynamic_index_arrays(L):
    def kernel(x, i, o):
        o[...] = x[i[...]]

    return L.call(kernel, L.shape(3, 4))(data(5, 4), np.array([4, 0, 2], np.int32))


# ---------------------------------------------------------------- transformations


def scaled(L):
    """A function of a matrix and a row whose kernel is elementwise."""

    def kernel(x, y, o):
        o[...] = L.jnp.sin(x[...]) * y[...] + L.pl.program_id(0)

    BS = L.pl.BlockSpec
    spec = BS((2, 3), lambda i: (i, 0))
    return L.call(kernel, L.shape(4, 3), grid=(2,), in_specs=[spec, BS((1, 3), lambda i: (0, 0))], out_specs=spec)


def matmul(L):
    """A function of two matrices whose kernel accumulates."""

    def kernel(a, b, o):
        @L.pl.when(L.pl.program_id(0) == 0)
        def _():
            o[...] = L.jnp.zeros_like(o)

        o[...] += a[...] @ b[...]

    BS = L.pl.BlockSpec
    return L.call(
        kernel, L.shape(3, 4), grid=(2,), in_specs=[BS((3, 2), lambda k: (0, k)), BS((2, 4), lambda k: (k, 0))]
    )


@case
def vmap(L):
    return L.jax.vmap(scaled(L))(data(5, 4, 3), data(5, 1, 3, seed=1))


@case
def vmap_of_one_operand(L):
    return L.jax.vmap(scaled(L), (None, 1), 1)(data(4, 3), data(1, 5, 3, seed=1))


@case
def vmap_of_an_accumulation(L):
    return L.jax.vmap(matmul(L), (0, None))(data(5, 3, 4), data(4, 4, seed=1))


@case
def vmap_of_vmap(L):
    f = L.jax.vmap(L.jax.vmap(matmul(L), (None, 0)), (0, None))
    return f(data(2, 3, 4), data(3, 4, 4, seed=1))


@case
def vmap_of_prefetched_scalars(L):
    def kernel(order, x, o):
        o[...] = x[...]

    BS = L.pl.BlockSpec
    spec = L.pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(3,), in_specs=[BS((1,), lambda i, order: (order[i],))],
        out_specs=BS((1,), lambda i, order: (i,)),
    )  # fmt: skip
    f = L.call(kernel, L.shape(3), grid_spec=spec)
    return L.jax.vmap(f)(np.array([[2, 0, 1], [1, 1, 0]], np.int32), data(2, 3))


def _pointwise(L):
    """A function of a matrix and a row whose kernel does not ask where it is: JAX cannot differentiate one that does."""

    def kernel(x, y, o):
        o[...] = L.jnp.sin(x[...]) * y[...]

    BS = L.pl.BlockSpec
    spec = BS((2, 3), lambda i: (i, 0))
    return L.call(kernel, L.shape(4, 3), grid=(2,), in_specs=[spec, BS((1, 3), lambda i: (0, 0))], out_specs=spec)


@case
def jvp(L):
    x, y = data(4, 3), data(1, 3, seed=1)
    return L.jax.jvp(_pointwise(L), (x, y), (data(4, 3, seed=2), data(1, 3, seed=3)))


@case
def jvp_of_a_loop(L):
    def kernel(x, o):
        @L.pl.loop(0, 4)
        def _(i):
            o[i] = L.jnp.exp(x[i]) * x[0]

    f = L.call(kernel, L.shape(4))
    return L.jax.jvp(f, (data(4),), (data(4, seed=2),))


@case
def grad_by_a_rule(L):
    forward = matmul(L)

    @L.jax.custom_vjp
    def product(a, b):
        return forward(a, b)

    def fwd(a, b):
        return product(a, b), (a, b)

    def bwd(saved, ct):
        a, b = saved
        return ct @ b.T, a.T @ ct

    product.defvjp(fwd, bwd)
    return L.jax.grad(lambda a, b: (product(a, b) ** 2).sum(), (0, 1))(data(3, 4), data(4, 4, seed=1))


@case
def in_scan(L):
    f = matmul(L)
    return L.jax.jit(lambda a, b: L.lax.scan(lambda c, x: (f(c, x), c.sum()), a, b))(data(3, 4), data(5, 4, 4))


@case
def in_cond(L):
    f = scaled(L)
    return L.jax.jit(lambda p, x, y: L.lax.cond(p, f, lambda x, y: x, x, y))(True, data(4, 3), data(1, 3))


@case
def loops_that_carry_references(L):
    def scanned(carry, i):
        ref, total = carry
        ref[i] = ref[i] * 2
        return (ref, total + ref[i]), None

    def called(ref, i):
        ref[i] = ref[i] + 1
        return ref

    def kernel(x, o):
        o[...] = x[...]
        (ref, total), _ = L.lax.scan(scanned, (o, 0.0), L.jnp.arange(6))
        ref[0] = total
        L.lax.fori_loop(0, 5, lambda i, ref: called(ref, i), o)
        L.lax.while_loop(lambda c: c[0] < o[1], lambda c: (c[0] + 1, called(c[1], 2)), (0.0, o))

    return L.call(kernel, L.shape(8))(abs(data(8)))


@case
def run_state(L):
    def double(refs):
        refs[1][...] = refs[0][...] * 2

    return L.pl.run_state(double)((L.jnp.asarray(data(4)), L.jnp.zeros(4)))


@case
def grid_with_names(L):
    def kernel(x, o):
        o[...] = x[...] * L.lax.axis_size("rows") + L.pl.program_id(0) * L.lax.axis_size("columns")

    spec = L.pl.BlockSpec((2, 3), lambda i, j: (i, j))
    grid = (("rows", 2), ("columns", 3))
    return L.call(kernel, L.shape(4, 9), grid=grid, in_specs=[spec], out_specs=spec)(data(4, 9))
