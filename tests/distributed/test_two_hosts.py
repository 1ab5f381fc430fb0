"""Two hosts made of network namespaces, with their own names and addresses: the bootstrap and MPI go over TCP."""

import os
import shutil
import subprocess
import sys

import pytest

from mpijax.distributed import launchers

HOSTS = {f"mj{os.getpid()}a": "10.77.0.1", f"mj{os.getpid()}b": "10.77.0.2"}
PROGRAM = """
import socket, sys
import mpijax
rank = int(sys.argv[1])
mpijax.distributed.initialize("10.77.0.1:23456", 2, rank, initialization_timeout=20)
from mpijax import mpi, numpy as jnp
total = mpi.allreduce(jnp.arange(1e5) + rank, "SUM")
print(socket.gethostname(), mpijax.process_index(), float(total[-1]))
"""


def ip(words):
    return subprocess.run(["ip", *words.split()], capture_output=True, text=True, timeout=10)


@pytest.fixture
def hosts():
    if launchers.under_launcher() or not (shutil.which("ip") and shutil.which("unshare")):
        pytest.skip("makes hosts of network namespaces itself, with ip and unshare")
    first, second = HOSTS
    try:
        for host in HOSTS:
            if ip(f"netns add {host}").returncode:
                pytest.skip("network namespaces need root's rights")
        steps = [f"link add {first} netns {first} type veth peer name {second} netns {second}"]
        for host, address in HOSTS.items():
            steps += [f"-n {host} addr add {address}/24 dev {host}", f"-n {host} link set {host} up"]
            steps += [f"-n {host} link set lo up"]
        for step in steps:
            done = ip(step)
            if done.returncode:
                pytest.skip(f"ip {step}: {done.stderr.strip()}")
        yield list(HOSTS)
    finally:
        for host in HOSTS:
            ip(f"netns del {host}")


def test_processes_of_two_hosts_become_ranks(hosts):
    running = [
        subprocess.Popen(
            ["ip", "netns", "exec", host, "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', host]
            + [sys.executable, "-c", PROGRAM, str(rank)],
            env=launchers.outside(os.environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank, host in enumerate(hosts)
    ]  # fmt: skip
    try:
        outputs = [process.communicate(timeout=40)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert outputs == [f"{host} {rank} 199999.0\n" for rank, host in enumerate(hosts)]
