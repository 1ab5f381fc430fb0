"""Programs made of parts: `(function of the array module and an array, the same in NumPy, shape)` by name.

Sizes are multiples of 16 elements in all, so that an array that ends with a page is aligned as arrays are to be.
"""

from __future__ import annotations

import numpy as np


def near(u, axes):
    """The sum of both neighbours along all axes, of the interior."""
    total = 0
    for a in axes:
        for shift in (0, 2):
            index = tuple(
                slice(shift, u.shape[k] - 2 + shift) if k == a else slice(1, -1) for k in range(u.ndim)
            )
            total = total + u[index]
    return total


def interior(u):
    return (slice(1, -1),) * u.ndim


def heat(xp, u):
    inside = interior(u)
    new = 0.1 * (near(u, range(u.ndim)) - 2 * u.ndim * u[inside])
    if xp is not np:
        return u.at[inside].add(new)
    out = u.copy()
    out[inside] += new
    return out


def by_roll(xp, u):
    total = sum(xp.roll(u, s, a) for a in range(u.ndim) for s in (1, -1))
    return u + 0.1 * (total - 2 * u.ndim * u)


def by_pad(mode):
    def step(xp, u):
        return u + 0.1 * (near(xp.pad(u, 1, mode=mode), range(u.ndim)) - 2 * u.ndim * u)

    return step


def borders(xp, u):
    """Boundary values set one side after the other."""
    if xp is not np:
        u = u.at[0].set(1.0).at[-1].multiply(2.0)
        return u.at[:, 0].set(u[:, 1])
    u = u.copy()
    u[0], u[-1] = 1.0, u[-1] * 2
    u[:, 0] = u[:, 1]
    return u


def both(fun, shape):
    return lambda xp, u: fun(xp, u), lambda u: fun(np, u), shape


PROGRAMS = {
    "heat 1": both(heat, (80,)),
    "heat 2": both(heat, (33, 80)),
    "heat 3": both(heat, (9, 8, 40)),
    "heat 4": both(heat, (5, 4, 6, 32)),
    "heat, threads": both(heat, (700, 416)),
    "roll 1": both(by_roll, (80,)),
    "roll 2": both(by_roll, (33, 80)),
    "roll 3": both(by_roll, (9, 8, 40)),
    "roll, threads": both(by_roll, (700, 416)),
    **{f"pad {mode}": both(by_pad(mode), (33, 80)) for mode in ("constant", "edge", "reflect", "wrap")},
    "pad 3": both(by_pad("constant"), (9, 8, 40)),
    "pad, threads": both(by_pad("constant"), (416, 700)),
    "borders": both(borders, (33, 80)),
    "rows": both(lambda xp, u: xp.concatenate([u, xp.sin(u[:3]), u[::-1]]), (16, 33)),
    "columns": both(lambda xp, u: xp.concatenate([u[:, 30:], u * 2, u[:, ::-3]], axis=1), (16, 33)),
    "reversed": both(lambda xp, u: xp.pad(u, ((2, 1), (0, 3)))[::-1, ::2] * 2, (16, 33)),
    "stacked": both(lambda xp, u: xp.stack([u, u * 2, u + 1], axis=-1), (16, 33)),
    "one column": both(lambda xp, u: xp.pad(u, 1) + 1, (32, 1)),
    "sums": both(lambda xp, u: xp.pad(u, 1).sum(0), (320, 33)),
    "sums of rows": both(lambda xp, u: xp.concatenate([u, u[:, :5] * u[:, 5:10]], axis=1).sum(1), (32, 33)),
    "total": both(lambda xp, u: xp.abs(u - xp.roll(u, 1, 0)).sum(), (32, 33)),
}
