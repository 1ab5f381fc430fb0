"""Policies of `checkpoint`: which values of a function its derivative may keep.

A policy is called with the primitive of an equation, the types of its operands and its parameters. It returns
whether the results may be kept: a bool, `Saveable`, `Recompute`, or `Offloadable`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mpijax.core.base.lazy_dataclass import dataclass


class RecomputeType:
    """The type of `Recompute`."""


class SaveableType:
    """The type of `Saveable`."""


Recompute = RecomputeType()
Saveable = SaveableType()


class Offloadable(NamedTuple):
    """Keep a value in another memory kind. All arrays are in host memory, so the value stays where it is.

    >>> mpijax.ad_checkpoint.Offloadable(src="device", dst="pinned_host").dst
    'pinned_host'
    """

    src: Any
    dst: Any


def keeps(policy: Callable, primitive, avals, params: dict[str, Any]) -> bool:
    """Whether the results of an equation may be kept. Raises TypeError for an invalid answer."""
    answer = policy(primitive, *avals, **params)
    if isinstance(answer, bool):
        return answer
    if isinstance(answer, (SaveableType, Offloadable)):
        return True
    if isinstance(answer, RecomputeType):
        return False
    hint = " Make an instance of it: Offloadable(src=..., dst=...)." if answer is Offloadable else ""
    raise TypeError(
        f"The policy of checkpoint returned {answer} of type {type(answer)} for {primitive}. It must return a bool, "
        f"ad_checkpoint.Recompute, ad_checkpoint.Saveable or ad_checkpoint.Offloadable(...).{hint}"
    )


def everything_saveable(*_, **__) -> bool:
    """Keep whatever the derivative needs, as without `checkpoint`.

    >>> mpijax.checkpoint_policies.everything_saveable(lax.sin_p)
    True
    """
    return True


def nothing_saveable(*_, **__) -> bool:
    """Keep only the arguments and recompute everything: the default of `checkpoint`.

    >>> mpijax.checkpoint_policies.nothing_saveable(lax.sin_p)
    False
    """
    return False


@dataclass(frozen=True)
class DotsSaveable:
    """Keep results of matrix products and convolutions, or only of matrix products without batch axes.

    >>> mpijax.checkpoint_policies.dots_saveable(lax.dot_general_p)
    True
    """

    only_if_no_batch_dims: bool

    def __call__(self, primitive, *_, **params) -> bool:
        if self.only_if_no_batch_dims:
            return _is_unbatched_product(primitive, params)
        return primitive.product is not None


def _is_unbatched_product(primitive, params: dict[str, Any]) -> bool:
    return primitive.product is not None and primitive.product(params)


def _value_name(primitive, params: dict[str, Any]) -> str | None:
    """The name that an operation gives its operand."""
    return None if primitive.value_name is None else primitive.value_name(params)


@dataclass(frozen=True)
class SaveOnlyTheseNames:
    """Keep values that `checkpoint_name` gave one of these names.

    >>> mpijax.checkpoint_policies.save_only_these_names("a").saveable_names
    frozenset({'a'})
    """

    saveable_names: frozenset[str]

    def __call__(self, primitive, *_, **params) -> bool:
        return _value_name(primitive, params) in self.saveable_names


@dataclass(frozen=True)
class SaveAnyNamesButThese:
    """Keep values that `checkpoint_name` gave any other name.

    >>> mpijax.checkpoint_policies.save_any_names_but_these("a").names
    frozenset({'a'})
    """

    names: frozenset[str]

    def __call__(self, primitive, *_, **params) -> bool:
        name = _value_name(primitive, params)
        return name is not None and name not in self.names


@dataclass(frozen=True)
class SaveAndOffloadOnlyTheseNames:
    """Keep values that `checkpoint_name` gave one of these names, some of them in another memory kind.

    >>> policies = mpijax.checkpoint_policies
    >>> policy = policies.SaveAndOffloadOnlyTheseNames(frozenset("a"), frozenset("b"), "device", "pinned_host")
    >>> policy(lax.sin_p) is mpijax.ad_checkpoint.Recompute
    True
    """

    names_which_can_be_saved: frozenset[str]
    names_which_can_be_offloaded: frozenset[str]
    offload_src: Any
    offload_dst: Any

    def __call__(self, primitive, *_, **params) -> Any:
        name = _value_name(primitive, params)
        if name in self.names_which_can_be_saved:
            return Saveable
        if name in self.names_which_can_be_offloaded:
            return Offloadable(src=self.offload_src, dst=self.offload_dst)
        return Recompute


def save_only_these_names(*names_which_can_be_saved: str) -> Callable:
    """Keep named values with these names, and nothing else.

    >>> mpijax.checkpoint_policies.save_only_these_names("a", "b")(lax.sin_p)
    False
    """
    return SaveOnlyTheseNames(frozenset(names_which_can_be_saved))


def save_any_names_but_these(*names_not_to_save: str) -> Callable:
    """Keep named values except those with these names, and nothing without a name.

    >>> mpijax.checkpoint_policies.save_any_names_but_these("a")(lax.sin_p)
    False
    """
    return SaveAnyNamesButThese(frozenset(names_not_to_save))


def save_anything_except_these_names(*names_not_to_save: str) -> Callable:
    """Keep everything. The operand of a named value has no name, so JAX's policy excludes nothing either.

    >>> mpijax.checkpoint_policies.save_anything_except_these_names("a")(lax.sin_p)
    True
    """
    return lambda *_, **__: True


def save_from_both_policies(policy_1: Callable, policy_2: Callable) -> Callable:
    """Keep what either policy keeps. Both must return bools, else the combined policy raises ValueError.

    >>> policies = mpijax.checkpoint_policies
    >>> policies.save_from_both_policies(policies.nothing_saveable, policies.everything_saveable)(lax.sin_p)
    True
    """

    def policy(primitive, *args, **params) -> bool:
        answers = [p(primitive, *args, **params) for p in (policy_1, policy_2)]
        if not all(isinstance(a, bool) for a in answers):
            raise ValueError(
                f"save_from_both_policies needs policies that return bools. For {primitive} these returned "
                f"{answers[0]} and {answers[1]}. Write one policy function that returns what to do."
            )
        return any(answers)

    return policy


def offload_dot_with_no_batch_dims(offload_src: Any, offload_dst: Any) -> Callable:
    """Like `dots_with_no_batch_dims_saveable`, but keeps the values in another memory kind.

    >>> policy = mpijax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    >>> policy(lax.sin_p) is mpijax.ad_checkpoint.Recompute
    True
    """

    def policy(primitive, *_, **params):
        kept = _is_unbatched_product(primitive, params)
        return Offloadable(src=offload_src, dst=offload_dst) if kept else Recompute

    return policy


def save_and_offload_only_these_names(
    *, names_which_can_be_saved, names_which_can_be_offloaded, offload_src: Any, offload_dst: Any
) -> Callable:
    """Keep named values with these names, some of them in another memory kind.

    >>> policy = mpijax.checkpoint_policies.save_and_offload_only_these_names(
    ...     names_which_can_be_saved=["a"], names_which_can_be_offloaded=[],
    ...     offload_src="device", offload_dst="pinned_host",
    ... )
    >>> policy(lax.sin_p) is mpijax.ad_checkpoint.Recompute
    True

    Raises:
      ValueError: if a name is in both collections.
    """
    saved, offloaded = frozenset(names_which_can_be_saved), frozenset(names_which_can_be_offloaded)
    if saved & offloaded:
        raise ValueError(
            f"names_which_can_be_saved={sorted(saved)} and names_which_can_be_offloaded={sorted(offloaded)} must have "
            f"no name in common, but both have {sorted(saved & offloaded)}."
        )

    decide = SaveAndOffloadOnlyTheseNames(saved, offloaded, offload_src, offload_dst)

    def policy(primitive, *args, **params):
        return decide(primitive, *args, **params)

    return policy


checkpoint_dots = dots_saveable = DotsSaveable(False)
dots_with_no_batch_dims_saveable = DotsSaveable(True)
