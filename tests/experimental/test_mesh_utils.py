"""Grids of devices of `mesh_utils`."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from oracle import OURS, THEIRS


def slices(count: int, each: int) -> list:
    """Devices with what JAX reads of those of TPU slices; the later slice comes first."""
    return [
        SimpleNamespace(id=s * each + i, slice_index=s, process_index=0, platform="cpu", device_kind="cpu")
        for s in reversed(range(count))
        for i in range(each)
    ]


@pytest.mark.parametrize("by_key", [True, False])
def test_hybrid_meshes_of_slices(by_key):
    meshes = []
    for J in (THEIRS, OURS):
        make = importlib.import_module(f"{J.name}.experimental.mesh_utils").create_hybrid_device_mesh
        mesh = make((1, 4), (2, 1), slices(2, 4), should_sort_granules_by_key=by_key)
        meshes.append(np.vectorize(lambda d: d.id)(mesh))
    np.testing.assert_array_equal(*meshes)


def test_hybrid_meshes_of_devices_without_slices():
    with pytest.raises(ValueError, match="does not have attribute slice_index"):
        OURS.experimental.mesh_utils.create_hybrid_device_mesh((1,), (1,), [SimpleNamespace(process_index=0)])
    with pytest.raises(ValueError, match="Number of slices 2 must equal the product of dcn_mesh_shape"):
        OURS.experimental.mesh_utils.create_hybrid_device_mesh((4,), (3,), slices(2, 4))
