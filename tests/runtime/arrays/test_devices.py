"""Devices as JAX shows them, one per rank; alone and under mpirun."""

import pickle
from unittest import mock

import pytest

from mpijax.runtime.arrays import devices
from mpijax.runtime.mpi import mpi_start

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # what is asked does not depend on their number


def test_one_device_per_rank():
    size, rank = mpi_start.size(), mpi_start.rank()
    everything = devices.devices()
    assert [d.id for d in everything] == [d.process_index for d in everything] == list(range(size))
    assert devices.local_devices() == [everything[rank]]
    assert devices.local_devices(process_index=size - 1) == [everything[-1]]
    assert devices.process_index() == devices.host_id() == rank
    assert devices.process_count() == devices.host_count() == devices.device_count() == size
    assert devices.process_indices() == list(range(size))
    assert devices.local_device_count() == 1
    assert devices.default_backend() == "cpu"


def test_a_device_describes_itself_as_in_jax():
    device = devices.devices("cpu")[0]
    assert (repr(device), str(device)) == ("CpuDevice(id=0)", "cpu:0")
    assert (device.platform, device.device_kind, device.local_hardware_id) == ("cpu", "cpu", 0)
    assert device.client.platform == "cpu" and device.memory_stats() is None
    assert devices.devices()[0] is device and pickle.loads(pickle.dumps(device)) is device
    assert {device: 1}[devices.devices()[0]] == 1


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: devices.devices("gpu"), RuntimeError, "'gpu' requested, but no platforms.*present are: cpu"),
        (
            lambda: devices.device_count("tpu"),
            RuntimeError,
            r"Unknown backend tpu. Available backends are \['cpu'\]",
        ),
        (lambda: devices.local_devices(process_index=1000), ValueError, "Unknown process_index 1000"),
    ],
)
def test_unknown_platforms_and_processes(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_mocks_specified_by_the_class_have_its_attributes():
    """Orbax's tests make such devices."""
    device = mock.create_autospec(devices.Device, instance=True, spec_set=True)
    device.id, device.process_index = 3, 1
    assert (device.id, device.process_index) == (3, 1) and "local_hardware_id" in dir(device)
