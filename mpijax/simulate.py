"""``mpijax.simulate``: the program of one rank of many, planned without running on them.

A mesh over `devices(n, rank)` stands for a job of `n` ranks, seen from rank `rank`. `jit(f).lower(...).compile()` over
it plans what that rank does: memory, bytes sent, exchanges and kernels. Nothing runs, and no MPI is needed.
"""

from __future__ import annotations

from mpijax.runtime.arrays.devices import Device, simulated_devices

__all__ = ["devices"]


def devices(ranks: int, rank: int = 0) -> list[Device]:
    """The devices of a job of `ranks` ranks, one for each, as rank `rank` sees them.

    Give arguments to `lower` as `ShapeDtypeStruct(shape, dtype, sharding=...)`. Arrays cannot be put on the devices,
    and programs over them cannot be called: both raise RuntimeError. Raises ValueError for a rank that is not one of
    them.

    >>> mesh = mpijax.sharding.Mesh(mpijax.simulate.devices(1024, rank=5), ("ranks",))
    >>> rows = mpijax.sharding.NamedSharding(mesh, mpijax.P("ranks"))
    >>> u = mpijax.ShapeDtypeStruct((1024 * 64, 32), np.float32, sharding=rows)
    >>> compiled = mpijax.jit(lambda u: jnp.sum((u[1:] - u[:-1]) ** 2)).lower(u).compile()
    >>> compiled.memory_analysis().argument_size_in_bytes
    8192
    """
    if ranks < 1 or rank not in range(ranks):
        raise ValueError(f"expected ranks of at least 1 and a rank in [0, ranks), got ranks={ranks} and rank={rank}")
    return simulated_devices(ranks, rank)
