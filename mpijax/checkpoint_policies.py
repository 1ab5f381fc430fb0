"""``mpijax.checkpoint_policies``: which values `checkpoint` keeps, and classes of policies that name values."""

from mpijax.transforms.policies import (
    SaveAndOffloadOnlyTheseNames,
    SaveAnyNamesButThese,
    SaveOnlyTheseNames,
    checkpoint_dots,
    dots_saveable,
    dots_with_no_batch_dims_saveable,
    everything_saveable,
    nothing_saveable,
    offload_dot_with_no_batch_dims,
    save_and_offload_only_these_names,
    save_any_names_but_these,
    save_anything_except_these_names,
    save_from_both_policies,
    save_only_these_names,
)

checkpoint_dots_with_no_batch_dims = dots_with_no_batch_dims_saveable

__all__ = [
    "SaveAndOffloadOnlyTheseNames", "SaveAnyNamesButThese", "SaveOnlyTheseNames", "checkpoint_dots",
    "checkpoint_dots_with_no_batch_dims", "dots_saveable", "dots_with_no_batch_dims_saveable", "everything_saveable",
    "nothing_saveable", "offload_dot_with_no_batch_dims", "save_and_offload_only_these_names",
    "save_any_names_but_these", "save_anything_except_these_names", "save_from_both_policies", "save_only_these_names",
]  # fmt: skip
