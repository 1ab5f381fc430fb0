"""Starts a job without a launcher: every process connects to the coordinator, then starts MPI.

MPICH accepts an open connection to its process manager as ``PMI_FD``. So the process connects and proves that it knows
the secret, waits until all have arrived, and passes the connection to MPI. MPI therefore never waits for a missing
process, and no port is open to strangers.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

from mpijax.distributed import handshake, launchers

_RETRY_SECONDS = 0.1
_GRACE_SECONDS = 10.0  # a running coordinator reports its own timeout: it may have started later than this process
BOOTSTRAPPED = "MPIJAX_BOOTSTRAP"


def connect(address: str, bind: str | None, size: int, rank: int, seconds: float) -> None:
    """Joins the job, and sets the variables with which MPI starts as rank `rank` of `size`.

    Raises:
      ValueError: an address that is not ``host:port``.
      RuntimeError: a timeout, with the missing processes; a port in use; a secret or number of processes that differs
        from process 0's.
    """
    host, port = split_address(address)
    secret = handshake.job_secret()
    deadline = time.monotonic() + seconds
    if rank == 0:
        host = _serve(host, port, bind, size, secret, seconds)
    connections = {role: _join(host, port, role, secret, rank, size, deadline) for role in handshake.ROLES}
    try:
        for connection in connections.values():
            _wait_for_all(connection, address, size, deadline + _GRACE_SECONDS, seconds)
    except BaseException:
        for connection in connections.values():
            connection.close()
        raise
    _watch(connections["life"])
    connections["pmi"].settimeout(None)
    os.environ |= {
        "PMI_FD": str(connections["pmi"].detach()),
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
        BOOTSTRAPPED: address,
    }


def forget() -> None:
    """Removes the variables: they are for this process only, not for its children."""
    for name in ("PMI_FD", "PMI_RANK", "PMI_SIZE", BOOTSTRAPPED):
        os.environ.pop(name, None)


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"coordinator_address must be host:port, such as 'node1:12345', got {address!r}")
    return host.strip("[]"), int(port)


def _serve(host: str, port: int, bind: str | None, size: int, secret: bytes, seconds: float) -> str:
    """Starts the coordinator; returns the host through which process 0 itself reaches it."""
    local = host == "localhost" or host.startswith("127.") or host == "::1"
    if bind:
        where, port = split_address(bind)
    else:
        where = host if local else ""
    try:
        listener = _listen(where, port)
    except OSError as error:
        raise RuntimeError(
            f"process 0 cannot serve the coordinator address {host}:{port}: {error.strerror or error}. Choose a free "
            "port. Process 0 must run on the host that the address names."
        ) from error
    with listener:
        listener.set_inheritable(True)
        command = [sys.executable, "-m", "mpijax.distributed.server", str(listener.fileno()), str(size), str(seconds)]
        subprocess.run(
            command, input=secret, pass_fds=[listener.fileno()], env=launchers.outside(os.environ), check=True
        )
    return where if where not in ("", "0.0.0.0", "::") else "localhost"


def _listen(where: str, port: int) -> socket.socket:
    if where in ("", "::") and socket.has_dualstack_ipv6():
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    found = socket.getaddrinfo(where or "0.0.0.0", port, type=socket.SOCK_STREAM)
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)  # localhost: 127.0.0.1 first
    return socket.create_server(found[0][4][:2], family=found[0][0], backlog=1024)


def _join(
    host: str, port: int, role: str, secret: bytes, rank: int, size: int, deadline: float
) -> socket.socket:
    last: Exception | None = None
    while (left := deadline - time.monotonic()) > 0:
        try:
            connection = socket.create_connection((host, port), timeout=left)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handshake.join(connection, secret, role, rank, size, deadline + _GRACE_SECONDS)
            return connection
        except handshake.Refused as error:
            connection.close()
            raise RuntimeError(
                f"Process {rank} could not join the job at {host}:{port}: {error}. All processes must pass the same "
                "num_processes, each its own process_id, and have the same secret (MPIJAX_SECRET, "
                "MPIJAX_SECRET_FILE, or a home directory that the hosts share)."
            ) from None
        except OSError as error:  # process 0 is not listening yet
            last = error
            time.sleep(min(_RETRY_SECONDS, max(left, 0.0)))
    attempt = "" if last is None else f"The last attempt failed with: {last}. "
    raise RuntimeError(
        f"Process {rank} of {size} could not reach process 0 at {host}:{port} within initialization_timeout. {attempt}"
        "Check that process 0 runs on that host and that the port is open."
    )


def _wait_for_all(connection: socket.socket, address: str, size: int, deadline: float, seconds: float) -> None:
    try:
        line = handshake.read_line(connection, deadline)
    except OSError as error:
        raise RuntimeError(f"The coordinator at {address} ended before all processes had joined: {error}") from error
    if line != "go":
        names = line.partition(" ")[2].split()
        one = len(names) == 1
        raise RuntimeError(
            f"process{'' if one else 'es'} {', '.join(names)} of {size} did not join at {address} within {seconds:g} "
            f"s. Start {'it' if one else 'them'}, or allow more time: initialization_timeout=..."
        )


def _watch(lifeline: socket.socket) -> None:
    """Ends this process when another rank has died or aborted, or the coordinator has ended, as mpirun would."""
    lifeline.settimeout(None)

    def listen() -> None:
        words = []
        with lifeline, suppress(OSError):
            words = lifeline.recv(256).decode().split()
        why, status = (
            (f"rank {words[1]} ended the job (status {words[2]})", int(words[2]))
            if words[:1] == ["ended"]
            else ("the coordinator (a process that process 0 started) was killed, so the job ends", 1)
        )
        print(f"mpijax: {why}", file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)

    threading.Thread(target=listen, name="mpijax lifeline", daemon=True).start()
