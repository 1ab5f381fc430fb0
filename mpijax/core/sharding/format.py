"""Describes the layout of arrays in memory, which is always row-major."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar

from mpijax.core.base.lazy_dataclass import dataclass


class AutoLayout:
    """Lets mpijax choose the order of axes in memory."""

    def __repr__(self) -> str:
        return "AUTO"


@dataclass(frozen=True)
class Layout:
    """The order of an array's axes in memory, slowest-varying axis first.

    Raises:
      NotImplementedError: for tiles or any order but row-major.

    >>> mpijax.experimental.layout.Layout(major_to_minor=(0, 1)).major_to_minor
    (0, 1)
    """

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None
    sub_byte_element_size_in_bits: int = 0
    AUTO: ClassVar[AutoLayout] = AutoLayout()

    def __post_init__(self):
        object.__setattr__(self, "major_to_minor", tuple(self.major_to_minor))
        if self.major_to_minor != tuple(range(len(self.major_to_minor))) or self.tiling:
            raise NotImplementedError(
                "mpijax stores arrays in row-major order, without tiles. Got "
                f"major_to_minor={self.major_to_minor}, tiling={self.tiling}. Transpose the array instead."
            )


def row_by_row(ndim: int) -> Layout:
    """The row-major layout of an array with `ndim` axes."""
    return Layout(tuple(range(ndim)), ())


@dataclass(frozen=True)
class Format:
    """A layout in memory and a sharding; accepted wherever a sharding is.

    >>> order = mpijax.experimental.layout.Layout(major_to_minor=(0, 1))
    >>> place = mpijax.sharding.SingleDeviceSharding(mpijax.local_devices()[0])
    >>> mpijax.device_put(jnp.ones((2, 2)), mpijax.experimental.layout.Format(order, place)).shape
    (2, 2)
    """

    layout: Layout | AutoLayout | None = None
    sharding: Any = field(default=None)

    def __post_init__(self):
        if not isinstance(self.layout, (Layout, AutoLayout, type(None))):
            raise TypeError(
                "Invalid value received for the layout argument: expected None, `Layout.AUTO` or a `Layout`, got "
                f"{self.layout} of type {type(self.layout)}"
            )
        if isinstance(self.layout, Layout) and self.sharding is None:
            raise ValueError("Sharding has to be concrete when the layout is a Layout; pass a NamedSharding.")

    def refuse_auto(self, where: str) -> None:
        """Raise TypeError for `Layout.AUTO`, which only a compiler can replace by a layout."""
        if isinstance(self.layout, AutoLayout):
            raise TypeError(f"`Layout.AUTO` cannot be used in place of a device-local layout {where}. Got {self}")

    def sharding_of(self, aval: Any) -> Any:
        """The sharding of an array of this type that is put here. Raises ValueError if the layout does not fit it."""
        if isinstance(self.layout, AutoLayout):
            raise ValueError(
                f"sharding and layout in `Layout` instance should be concrete. Got layout: {self} for input "
                f"{aval.str_short(True)}"
            )
        self.check_rank(aval)
        return self.sharding

    def check_rank(self, aval: Any) -> None:
        """Raise ValueError if the layout is for arrays with another number of axes."""
        if isinstance(self.layout, Layout) and len(self.layout.major_to_minor) != aval.ndim:
            raise ValueError(
                "Length of major_to_minor and the rank of the value should match. Got "
                f"major_to_minor={self.layout.major_to_minor} and shape={aval.shape}"
            )
