"""``jax.scipy.spatial.transform``: rotations in three dimensions, and interpolation between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import mpijax.numpy as jnp
from mpijax import random
from mpijax.scipy.spatial import quaternions as qn

__all__ = ["Rotation", "Slerp"]


class Rotation(NamedTuple):
    """One rotation, or a vector of rotations. It is a pytree.

    Attributes:
      quat: unit quaternions (x, y, z, w), of shape (4,) or (n, 4).

    >>> turn = mpijax.scipy.spatial.transform.Rotation.from_rotvec(jnp.array([0.0, 0.0, np.pi / 2]))
    >>> turn.apply(jnp.array([1.0, 0.0, 2.0])).round(4)
    Array([-0.,  1.,  2.], dtype=float32)
    """

    quat: Any

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Vectors of rotations, joined."""
        return cls(jnp.concatenate([rotation.quat for rotation in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """A rotation from angles about one to three axes.

        Args:
          seq: the axes: "xyz" for axes fixed in space, "XYZ" for axes fixed to the body.
          angles: array of shape (..., len(seq)), or a scalar for one axis.

        Raises:
          ValueError: `seq` is not such a string, or the angles do not match it.
        """
        axes, extrinsic = _axes_of(seq, (1, 2, 3))
        angles = jnp.atleast_1d(_floats(angles))
        if angles.shape[-1] != len(axes):
            raise ValueError(f"Expected angles of shape (..., {len(axes)}) for the axes {seq!r}, got {angles.shape}.")
        if degrees:
            angles = jnp.deg2rad(angles)
        quat = qn.about(axes[0], angles[..., 0])
        for i, axis in enumerate(axes[1:], 1):
            turn = qn.about(axis, angles[..., i])
            quat = qn.product(turn, quat) if extrinsic else qn.product(quat, turn)
        return cls(quat)

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """A rotation from orthogonal matrices with determinant 1, of shape (..., 3, 3)."""
        return cls(qn.from_matrix(_floats(matrix)))

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """A rotation from modified Rodrigues parameters, of shape (..., 3): the axis times tan(angle / 4)."""
        return cls(qn.from_mrp(_floats(mrp)))

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """A rotation from quaternions (x, y, z, w) of any length except 0."""
        return cls(qn.normalized(_floats(quat)))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """A rotation from vectors along the axis, whose length is the angle, of shape (..., 3)."""
        rotvec = _floats(rotvec)
        return cls(qn.from_rotvec(jnp.deg2rad(rotvec) if degrees else rotvec))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """The identity rotation, or a vector of `num` identity rotations."""
        quat = jnp.array([0.0, 0.0, 0.0, 1.0], dtype=dtype)
        return cls(quat if num is None else jnp.tile(quat, (num, 1)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Uniformly distributed rotations: normalised normal quaternions, drawn with a key of `jax.random`."""
        return cls.from_quat(random.normal(random_key, (4,) if num is None else (num, 4)))

    def __getitem__(self, indexer: Any) -> Any:
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return int(self.quat.shape[0])

    def __mul__(self, other: Any) -> Any:
        """The rotation `other`, then this one."""
        return Rotation.from_quat(qn.product(self.quat, other.quat))

    def apply(self, vectors: Any, inverse: bool = False) -> Any:
        """The rotated vectors, of shape (..., 3). Rotations and vectors broadcast."""
        matrix = self.as_matrix()
        if inverse:
            matrix = jnp.swapaxes(matrix, -1, -2)
        return jnp.matmul(matrix, jnp.asarray(vectors)[..., None])[..., 0]

    def as_euler(self, seq: str, degrees: bool = False) -> Any:
        """(..., 3): angles about three axes, in [-pi, pi]. In gimbal lock one of them is 0.

        Raises:
          ValueError: `seq` does not name three axes as in `from_euler`.
        """
        if len(seq) != 3:
            raise ValueError(f"Expected 3 axes, got {seq}.")
        axes, extrinsic = _axes_of(seq, (3,))
        angles = qn.to_euler(self.quat, (axes[0], axes[1], axes[2]), extrinsic)
        return jnp.rad2deg(angles) if degrees else angles

    def as_matrix(self) -> Any:
        """(..., 3, 3)."""
        return qn.to_matrix(self.quat)

    def as_mrp(self) -> Any:
        """(..., 3): modified Rodrigues parameters."""
        return qn.to_mrp(self.quat)

    def as_rotvec(self, degrees: bool = False) -> Any:
        """(..., 3): the axis times the angle, which is at most pi."""
        rotvec = qn.to_rotvec(self.quat)
        return jnp.rad2deg(rotvec) if degrees else rotvec

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Any:
        """The quaternions, of shape (..., 4). `canonical`: return the one of q and -q with w >= 0. `scalar_first`: as
        (w, x, y, z)."""
        quat = qn.canonical(self.quat) if canonical else self.quat
        return jnp.roll(quat, 1, axis=-1) if scalar_first else quat

    def inv(self) -> Rotation:
        """The inverse rotation."""
        return Rotation(qn.inverse(self.quat))

    def magnitude(self) -> Any:
        """The angles, in [0, pi]."""
        return 2 * jnp.arctan2(qn.length(self.quat[..., :3]), jnp.abs(self.quat[..., 3]))

    def mean(self, weights: Any = None) -> Rotation:
        """The mean rotation: it has the smallest weighted sum of squared distances to these rotations, as matrices.

        Raises:
          ValueError: `weights` is not a vector with an element for each rotation.
        """
        count = len(self)
        weights = jnp.ones(count, self.quat.dtype) if weights is None else jnp.asarray(weights, self.quat.dtype)
        if weights.shape != (count,):
            raise ValueError(f"Expected weights of shape ({count},), one for each rotation, got {weights.shape}.")
        _, vectors = jnp.linalg.eigh((weights[None] * self.quat.T) @ self.quat)
        return Rotation(vectors[:, -1])

    @property
    def single(self) -> bool:
        """Whether this is one rotation and not a vector."""
        return self.quat.ndim == 1


def _floats(x: Any) -> Any:
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, np.floating) else x.astype(float)


def _axes_of(seq: str, lengths: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """(axes as numbers, whether they are fixed in space)."""
    extrinsic = re.fullmatch("[xyz]+", seq) is not None
    if len(seq) not in lengths or not (extrinsic or re.fullmatch("[XYZ]+", seq)):
        raise ValueError(
            f"Expected axis specification of {' or '.join(map(str, lengths))} axes from `xyz` or from `XYZ`, got {seq}."
        )
    if any(a == b for a, b in zip(seq, seq[1:])):
        raise ValueError(f"Expected consecutive axes to be different, got {seq}.")
    return tuple("xyz".index(axis) for axis in seq.lower()), extrinsic


class Slerp(NamedTuple):
    """Interpolation with constant angular speed between rotations at given times. `Slerp.init` makes one. It is a
    pytree.

    Attributes:
      times: increasing times, of shape (n,).
      timedelta: the differences of the times, of shape (n - 1,).
      rotations: the rotations at the beginnings of the intervals.
      rotvecs: the rotation vectors from the beginning to the end of the intervals, of shape (n - 1, 3).

    >>> turns = mpijax.scipy.spatial.transform.Rotation.from_euler("z", jnp.array([[0.0], [90.0]]), degrees=True)
    >>> between = mpijax.scipy.spatial.transform.Slerp.init(jnp.array([0.0, 1.0]), turns)
    >>> between(jnp.array([0.5])).as_euler("xyz", degrees=True).round(2)
    Array([[ 0.,  0., 45.]], dtype=float32)
    """

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """The interpolation between a vector of at least two rotations, at increasing times.

        Raises:
          TypeError: `rotations` is not a `Rotation`. ValueError: fewer than two rotations, or another number of times.
        """
        if not isinstance(rotations, Rotation):
            raise TypeError(f"`rotations` must be a `Rotation` instance, got {type(rotations).__name__}.")
        if rotations.single or len(rotations) == 1:
            raise ValueError("`rotations` must be a sequence of at least 2 rotations.")
        times = jnp.asarray(times, dtype=rotations.quat.dtype)
        if times.shape != (len(rotations),):
            raise ValueError(f"Expected {len(rotations)} times, one for each rotation, got shape {times.shape}.")
        start, end = Rotation(rotations.quat[:-1]), Rotation(rotations.quat[1:])
        return cls(times, jnp.diff(times), start, (start.inv() * end).as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        """The rotations at the times, a scalar or a vector. Raises ValueError for more axes."""
        at = jnp.asarray(times, dtype=self.times.dtype)
        if at.ndim > 1:
            raise ValueError(f"`times` must be at most 1-dimensional, got shape {at.shape}.")
        interval = jnp.clip(jnp.searchsorted(self.times, at) - 1, 0, self.timedelta.shape[0] - 1)
        share = (at - self.times[interval]) / self.timedelta[interval]
        return Rotation(self.rotations.quat[interval]) * Rotation.from_rotvec(self.rotvecs[interval] * share[..., None])
