"""Quaternions (x, y, z, w) along the last axis of arrays, and other representations of rotations."""

from __future__ import annotations

from typing import Any

import numpy as np

import mpijax.numpy as jnp

_EPSILON = 1e-7
_SMALL_ANGLE = 1e-3


def parts(quat: Any) -> tuple[Any, ...]:
    """The components along the last axis."""
    return tuple(quat[..., i] for i in range(quat.shape[-1]))


def length(vector: Any) -> Any:
    return jnp.sqrt(jnp.sum(vector * vector, axis=-1))


def normalized(quat: Any) -> Any:
    return quat / length(quat)[..., None]


def product(p: Any, q: Any) -> Any:
    """Hamilton's product: the rotation q, then the rotation p."""
    (a, b, c, w), (x, y, z, v) = parts(p), parts(q)
    return jnp.stack(
        [
            w * x + v * a + b * z - c * y,
            w * y + v * b + c * x - a * z,
            w * z + v * c + a * y - b * x,
            w * v - a * x - b * y - c * z,
        ],
        axis=-1,
    )


def inverse(quat: Any) -> Any:
    """The inverse of unit quaternions: their conjugates."""
    return jnp.concatenate([-quat[..., :3], quat[..., 3:]], axis=-1)


def canonical(quat: Any) -> Any:
    """The canonical one of the two quaternions of a rotation: its first component that is not 0, in the order w x y z,
    is positive."""
    x, y, z, w = parts(quat)
    negative = (w < 0) | ((w == 0) & ((x < 0) | ((x == 0) & ((y < 0) | ((y == 0) & (z < 0))))))
    return jnp.where(negative[..., None], -quat, quat)


def to_matrix(quat: Any) -> Any:
    """(..., 3, 3)."""
    x, y, z, w = parts(quat)
    rows = [
        [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w],
    ]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def from_matrix(matrix: Any) -> Any:
    """The quaternion of matrices of shape (..., 3, 3). It uses the largest of the four squared components, which loses
    no digits."""
    m = [[matrix[..., i, j] for j in range(3)] for i in range(3)]
    trace = m[0][0] + m[1][1] + m[2][2]
    by_axis = []
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        found = {i: 1 - trace + 2 * m[i][i], j: m[j][i] + m[i][j], k: m[k][i] + m[i][k], 3: m[k][j] - m[j][k]}
        by_axis.append(jnp.stack([found[n] for n in range(4)], axis=-1))
    by_trace = jnp.stack([m[2][1] - m[1][2], m[0][2] - m[2][0], m[1][0] - m[0][1], 1 + trace], axis=-1)
    choice = jnp.argmax(jnp.stack([m[0][0], m[1][1], m[2][2], trace], axis=-1), axis=-1)[..., None]
    quat = by_trace
    for i in range(3):
        quat = jnp.where(choice == i, by_axis[i], quat)
    return normalized(quat)


def to_rotvec(quat: Any) -> Any:
    """(..., 3): the axis, times the angle in [0, pi]."""
    quat = jnp.where(quat[..., 3:] < 0, -quat, quat)
    angle = 2 * jnp.arctan2(_safe_length(quat[..., :3]), quat[..., 3])
    small = angle <= _SMALL_ANGLE
    ordinary = jnp.where(small, 1.0, angle)
    square = angle * angle
    series = 2 + square / 12 + 7 * square * square / 2880
    return jnp.where(small, series, ordinary / jnp.sin(ordinary / 2))[..., None] * quat[..., :3]


def from_rotvec(rotvec: Any) -> Any:
    angle = _safe_length(rotvec)
    small = angle <= _SMALL_ANGLE
    ordinary = jnp.where(small, 1.0, angle)
    square = jnp.sum(rotvec * rotvec, axis=-1)
    series = 0.5 - square / 48 + square * square / 3840
    scale = jnp.where(small, series, jnp.sin(ordinary / 2) / ordinary)
    return jnp.concatenate([scale[..., None] * rotvec, jnp.cos(angle / 2)[..., None]], axis=-1)


def _safe_length(vector: Any) -> Any:
    """The length, with the derivative 0 (not NaN) at the zero vector."""
    square = jnp.sum(vector * vector, axis=-1)
    nothing = square == 0
    return jnp.where(nothing, 0.0, jnp.sqrt(jnp.where(nothing, 1.0, square)))


def to_mrp(quat: Any) -> Any:
    """(..., 3): modified Rodrigues parameters, the axis times tan(angle / 4)."""
    sign = jnp.where(quat[..., 3:] < 0, -1.0, 1.0).astype(quat.dtype)
    return sign * quat[..., :3] / (1 + sign * quat[..., 3:])


def from_mrp(mrp: Any) -> Any:
    square = jnp.sum(mrp * mrp, axis=-1, keepdims=True)
    return jnp.concatenate([2 * mrp, 1 - square], axis=-1) / (1 + square)


def about(axis: int, angle: Any) -> Any:
    """Rotations about a coordinate axis."""
    half = angle / 2
    nothing = jnp.zeros_like(half)
    found = [nothing, nothing, nothing, jnp.cos(half)]
    found[axis] = jnp.sin(half)
    return jnp.stack(found, axis=-1)


def to_euler(quat: Any, axes: tuple[int, int, int], extrinsic: bool) -> Any:
    """(..., 3): angles about three axes; after Bernardes and Viollet, "Quaternion to Euler angles conversion" (2022).

    In gimbal lock, only the sum of two angles is defined; one of them is then 0.
    """
    i, j, k = axes if extrinsic else axes[::-1]
    symmetric = i == k
    if symmetric:
        k = 3 - i - j
    sign = (i - j) * (j - k) * (k - i) // 2
    q = parts(quat)
    if symmetric:
        a, b, c, d = q[3], q[i], q[j], q[k] * sign
    else:
        a, b, c, d = q[3] - q[j], q[i] + q[k] * sign, q[j] + q[3], q[k] * sign - q[i]
    middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
    half_sum, half_difference = jnp.arctan2(b, a), jnp.arctan2(d, c)
    low, high = jnp.abs(middle) <= _EPSILON, jnp.abs(middle - np.pi) <= _EPSILON
    locked = low | high
    alone = jnp.where(low, 2 * half_sum, 2 * half_difference * (-1 if extrinsic else 1))
    first, third = half_sum - half_difference, half_sum + half_difference
    # The angle that gimbal lock leaves is the first one of the result, the other one is 0.
    if extrinsic:
        first, third = jnp.where(locked, alone, first), jnp.where(locked, 0.0, third)
    else:
        first, third = jnp.where(locked, 0.0, first), jnp.where(locked, alone, third)
    if not symmetric:
        third, middle = third * sign, middle - np.pi / 2
    angles = [first, middle, third] if extrinsic else [third, middle, first]
    return (jnp.stack(angles, axis=-1) + np.pi) % (2 * np.pi) - np.pi
