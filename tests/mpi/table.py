"""Operations of mpijax.mpi beside the program in which one process holds the values of all ranks.

A row has `run(x)`, what a rank does with its value, and `model(values)`, the results of all ranks from the
values of all, in operations of mpijax.numpy, so that it has derivatives too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI
from spmd.ranks import SIZE

import mpijax as jax
from mpijax import mpi
from mpijax import numpy as jnp

RANK = jax.process_index()
ROOT = SIZE - 1
COUNTS = tuple((r + 1) % 3 for r in range(SIZE))  # 1, 2, 0, 1
SENDS = [[(a + 2 * b) % 3 for b in range(SIZE)] for a in range(SIZE)]
STARTS = np.cumsum([0, *COUNTS])
REDUCTIONS = {"SUM": jnp.sum, "PROD": jnp.prod, "MAX": jnp.max, "MIN": jnp.min}


@dataclass(frozen=True)
class Row:
    run: Callable
    model: Callable
    shape: Callable = lambda rank: (2, 3)
    shared: bool = False  # the result is one value, which all ranks share


def each(fun):
    return lambda values: [fun(values, r) for r in range(SIZE)]


def at_root(fun):
    return each(lambda values, r: fun(values) if r == ROOT else values[r])


def over(name, values):
    return REDUCTIONS[name](jnp.stack(values), axis=0).astype(values[0].dtype)


def block(x, r):
    return x[STARTS[r] : STARTS[r + 1]]


def gathered(values):
    return jnp.stack(values)


def joined(values):
    return jnp.concatenate(values)


def chain(x):
    if RANK + 1 < SIZE:
        mpi.send(x, RANK + 1, tag=7)
    return mpi.recv(x, RANK - 1, tag=7) if RANK else x


def halves(x):
    """Even ranks send before they receive; several messages with tags, some of them not used."""
    other = RANK ^ 1
    if other >= SIZE:
        return x
    if RANK % 2 == 0:
        mpi.send(x, other)
        mpi.send(x * 3, other, tag=2)
        return mpi.recv(x, other)
    a = mpi.recv(x, other)
    b = mpi.recv(x, other, tag=2)
    mpi.send(a * x, other)
    return b


def halves_model(values):
    out = list(values)
    for r in range(0, SIZE - 1, 2):
        out[r], out[r + 1] = values[r] * values[r + 1], values[r] * 3
    return out


def ring(x):
    return mpi.sendrecv(x, x, (RANK - 1) % SIZE, (RANK + 1) % SIZE)


def line(x):
    """As `ring`, with nobody before the first and behind the last one, and explicit tags."""
    below = RANK - 1 if RANK else MPI.PROC_NULL
    above = RANK + 1 if RANK + 1 < SIZE else MPI.PROC_NULL
    return mpi.sendrecv(x * 2, x, below, above, sendtag=RANK, recvtag=RANK - 1 if RANK else None)


def rows_for(values, r):
    """What rank r gets in an alltoallv."""
    starts = [np.cumsum([0, *SENDS[a]]) for a in range(SIZE)]
    return jnp.concatenate([values[a][starts[a][r] : starts[a][r + 1]] for a in range(SIZE)])


def reductions():
    for name in REDUCTIONS:
        op = getattr(MPI, name)
        yield f"allreduce-{name}", Row(
            lambda x, op=op: mpi.allreduce(x, op),
            each(lambda values, r, name=name: over(name, values)), shared=True,
        )
        if name == "MIN":  # the others treat it as MAX
            continue
        yield f"reduce-{name}", Row(
            lambda x, op=op: mpi.reduce(x, op, ROOT), at_root(lambda values, name=name: over(name, values))
        )
        yield f"scan-{name}", Row(
            lambda x, op=op: mpi.scan(x, op), each(lambda values, r, name=name: over(name, values[: r + 1]))
        )
        yield f"exscan-{name}", Row(
            lambda x, op=op: mpi.exscan(x, op),
            each(lambda values, r, name=name: over(name, values[:r]) if r else jnp.zeros_like(values[0])),
        )
        yield f"reduce_scatter-{name}", Row(
            lambda x, op=op: mpi.reduce_scatter(x, op),
            each(lambda values, r, name=name: over(name, values)[r]), lambda rank: (SIZE, 2),
        )
    yield "reduce_scatter-SUM-counts", Row(
        lambda x: mpi.reduce_scatter(x, MPI.SUM, counts=COUNTS),
        each(lambda values, r: block(over("SUM", values), r)), lambda rank: (sum(COUNTS), 2),
    )  # fmt: skip


TABLE = {
    **dict(reductions()),
    "bcast": Row(lambda x: mpi.bcast(x, ROOT), each(lambda values, r: values[ROOT])),
    "allgather": Row(mpi.allgather, each(lambda values, r: gathered(values))),
    "gather": Row(lambda x: mpi.gather(x, ROOT), at_root(gathered)),
    "scatter": Row(
        lambda x: mpi.scatter(x, ROOT),
        each(lambda values, r: values[ROOT][r]),
        lambda rank: (SIZE, 2) if rank == ROOT else (2,),
    ),
    "alltoall": Row(
        mpi.alltoall, each(lambda values, r: jnp.stack([v[r] for v in values])), lambda rank: (SIZE, 2)
    ),
    "allgatherv": Row(
        lambda x: mpi.allgatherv(x, COUNTS),
        each(lambda values, r: joined(values)), lambda rank: (COUNTS[rank], 2),
    ),
    "gatherv": Row(
        lambda x: mpi.gatherv(x, COUNTS, ROOT), at_root(joined), lambda rank: (COUNTS[rank], 2)
    ),
    "scatterv": Row(
        lambda x: mpi.scatterv(x, COUNTS, ROOT),
        each(lambda values, r: block(values[ROOT], r)),
        lambda rank: (sum(COUNTS) if rank == ROOT else COUNTS[rank], 2),
    ),
    "alltoallv": Row(
        lambda x: mpi.alltoallv(x, SENDS[RANK], [SENDS[a][RANK] for a in range(SIZE)]),
        each(rows_for), lambda rank: (sum(SENDS[rank]), 2),
    ),
    "send-recv": Row(chain, each(lambda values, r: values[max(r - 1, 0)])),
    "exchange": Row(halves, halves_model),
    "sendrecv": Row(ring, each(lambda values, r: values[(r - 1) % SIZE])),
    "sendrecv-line": Row(line, each(lambda values, r: values[r - 1] * 2 if r else values[0])),
    "sendrecv_replace": Row(
        lambda x: mpi.sendrecv_replace(x, (RANK + 1) % SIZE, (RANK - 1) % SIZE, sendtag=3, recvtag=3),
        each(lambda values, r: values[(r + 1) % SIZE]),
    ),
}  # fmt: skip
