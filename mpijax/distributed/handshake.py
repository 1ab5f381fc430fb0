"""The handshake for joining a job: both sides prove that they know the job's secret, which is never transmitted.

The first lines of a connection::

    coordinator  mpijax 1 <nonce>
    process      join <role> <id> <count> <nonce> <proof>
    coordinator  welcome <proof>                        or: refused <why>
    coordinator  go          (once all have come)       or: missing <id> <id> ...

A proof is the HMAC-SHA256, with the secret, of both nonces and the claims, so a recorded conversation cannot be
replayed. Afterwards the connection is as open as mpirun's own: MPI encrypts nothing.
"""

import hashlib
import hmac
import os
import secrets
import socket
import time
from pathlib import Path

from mpijax.core.base.own_files import make_private_folder, read_private

GREETING = "mpijax 1"
ROLES = ("pmi", "life")
_LONGEST_LINE = 4096


class Refused(RuntimeError):
    """The coordinator rejects this process, or is not this job's."""


def job_secret() -> bytes:
    """``MPIJAX_SECRET``, or the content of ``MPIJAX_SECRET_FILE``, or of ``~/.cache/mpijax/secret``.

    The last file is made at first use, readable only by its owner; hosts that share a home directory share it.

    Raises:
      ValueError: the secret is empty, or others can access its file (see `core.base.own_files`).
    """
    if "MPIJAX_SECRET" in os.environ:
        secret, source = os.environ["MPIJAX_SECRET"].strip().encode(), "MPIJAX_SECRET"
    elif "MPIJAX_SECRET_FILE" in os.environ:
        source = os.environ["MPIJAX_SECRET_FILE"]
        secret = read_private(source).strip()
    else:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpijax" / "secret"
        secret, source = _own_secret(path), str(path)
    if not secret:
        raise ValueError(f"the secret of the job is empty ({source})")
    return secret


def _own_secret(path: Path) -> bytes:
    if not path.exists():
        make_private_folder(path.parent)
        mine = path.with_name(f"secret.{secrets.token_hex(8)}")
        mine.touch(mode=0o600)
        mine.write_text(secrets.token_hex(32))
        try:
            os.link(mine, path)  # atomic, because several processes do this at once
        except FileExistsError:
            pass
        mine.unlink()
    return read_private(path).strip()


def proof(secret: bytes, side: str, *claims: object) -> str:
    text = "|".join([side, *map(str, claims)])
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def proves(given: str, secret: bytes, side: str, *claims: object) -> bool:
    return hmac.compare_digest(given.encode(), proof(secret, side, *claims).encode())


def join(connection: socket.socket, secret: bytes, role: str, process_id: int, count: int, deadline: float) -> None:
    """The process's side of the handshake, up to ``welcome``.

    Raises:
      Refused: the coordinator rejected this process, or does not know the secret itself.
      TimeoutError, ConnectionError: no answer.
    """
    greeting = read_line(connection, deadline)
    if not greeting.startswith(GREETING + " "):
        raise Refused(f"another service uses the port: it sent {greeting[:60]!r}")
    theirs, mine = greeting.split()[-1], secrets.token_hex(16)
    claims = (theirs, mine, role, process_id, count)
    line = f"join {role} {process_id} {count} {mine} {proof(secret, 'process', *claims)}\n"
    connection.sendall(line.encode())
    word, _, rest = read_line(connection, deadline).partition(" ")
    if word == "refused":
        raise Refused(rest)
    if word != "welcome" or not proves(rest, secret, "coordinator", *claims):
        raise Refused("the process that listens there does not have the secret of this job")


def read_line(connection: socket.socket, deadline: float) -> str:
    """One line, and not a byte more: MPI reads the rest."""
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        byte = connection.recv(1)
        if not byte:
            raise ConnectionResetError("the coordinator closed the connection")
        line += byte
        if len(line) > _LONGEST_LINE:
            raise Refused("another service uses the port: it does not send lines")
    return line.decode(errors="replace").rstrip("\n")
