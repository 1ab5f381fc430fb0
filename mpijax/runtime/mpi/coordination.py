"""Keys, values and barriers of a job outside of MPI: JAX's distributed client, which libraries use in threads.

Only one thread may use MPI at a time, so rank 0 serves a socket instead. It listens on the loopback interface if all
ranks run on one machine. A client proves with an HMAC of a nonce that it knows the secret, which the ranks exchange
over MPI. Nothing runs unless `start` is called.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import Sequence
from typing import Any

from mpijax.core.base.errors import JaxRuntimeError
from mpijax.runtime.mpi import mpi_start, objects
from mpijax.runtime.mpi.key_value import Failure, KeyValueStore

# Bytes of a nonce, of a proof, and of a message's length prefix.
_NONCE, _PROOF, _LENGTH = 32, 32, 8
# Maximum bytes of a request or answer.
_LIMIT = 1 << 28
# Seconds after which rank 0 drops a client without proof, and a rank gives up on rank 0.
_PATIENCE = 10.0
# Seconds that an answer may take beyond the timeout in the request.
_GRACE = 30.0

THREAD = "mpijax coordination"


class DistributedClient:
    """JAX's distributed client. Each call opens its own connection, so any thread may call it.

    Raises JaxRuntimeError for missing keys (NOT_FOUND), existing keys (ALREADY_EXISTS), and after the caller's timeout
    (DEADLINE_EXCEEDED).
    """

    def __init__(self, host: str, port: int, secret: bytes, rank: int):
        self._place, self._secret, self._rank = (host, port), secret, rank

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        self._ask(do="put", key=key, value=value, overwrite=allow_overwrite)

    def key_value_set_bytes(self, key: str, value: bytes, allow_overwrite: bool = False) -> None:
        self.key_value_set(key, _text(value), allow_overwrite)

    def key_value_increment(self, key: str, increment: int) -> int:
        return self._ask(do="increment", key=key, by=increment)

    def key_value_try_get(self, key: str) -> str:
        return self._ask(do="get", key=key, seconds=0.0)

    def key_value_try_get_bytes(self, key: str) -> bytes:
        return _bytes(self.key_value_try_get(key))

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Waits until another rank has set the key."""
        seconds = max(timeout_in_ms, 1) / 1000
        return self._ask(seconds, do="get", key=key, seconds=seconds)

    def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes:
        return _bytes(self.blocking_key_value_get(key, timeout_in_ms))

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """The keys below `key`, with their values."""
        return [(name, value) for name, value in self._ask(do="below", key=key)]

    def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        return [(name, _bytes(value)) for name, value in self.key_value_dir_get(key)]

    def key_value_delete(self, key: str) -> None:
        """Delete a key and the keys below it; a missing key is not an error."""
        self._ask(do="delete", key=key)

    def wait_at_barrier(
        self, barrier_id: str, timeout_in_ms: int, process_ids: Sequence[int] | None = None
    ) -> None:
        """Wait until all ranks, or those in process_ids, have reached this barrier."""
        seconds, ranks = max(timeout_in_ms, 1) / 1000, sorted(process_ids or ())
        self._ask(seconds, do="barrier", name=barrier_id, rank=self._rank, ranks=ranks, seconds=seconds)

    def _ask(self, waits: float = 0.0, **request: Any) -> Any:
        try:
            with socket.create_connection(self._place, timeout=_PATIENCE) as connection:
                connection.settimeout(waits + _GRACE)
                nonce = _received(connection, _NONCE)
                connection.sendall(_proof(self._secret, nonce) + _message(request))
                length = int.from_bytes(_received(connection, _LENGTH), "big")
                answer = json.loads(_received(connection, length))
        except OSError as error:
            host, port = self._place
            raise JaxRuntimeError(
                f"UNAVAILABLE: rank {self._rank} cannot reach rank 0 at {host}:{port}: {error}"
            ) from error
        if "error" in answer:
            raise JaxRuntimeError(answer["error"])
        return answer["value"]


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _bytes(value: str) -> bytes:
    return base64.b64decode(value)


def _proof(secret: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret, nonce, hashlib.sha256)


def _message(value: Any) -> bytes:
    data = json.dumps(value).encode()
    return len(data).to_bytes(_LENGTH, "big") + data


def _received(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionResetError("it closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


async def _serve(listener: socket.socket, size: int, secret: bytes) -> None:
    store = KeyValueStore(size)

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonce = secrets.token_bytes(_NONCE)
        try:
            writer.write(nonce)
            async with asyncio.timeout(_PATIENCE):
                proof = await reader.readexactly(_PROOF)
            if not hmac.compare_digest(proof, _proof(secret, nonce)):
                return
            length = int.from_bytes(await reader.readexactly(_LENGTH), "big")
            if length <= _LIMIT:
                writer.write(_message(await _answer(store, await reader.readexactly(length))))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # a rank that ended, or an unauthorized client
        finally:
            writer.close()

    server = await asyncio.start_server(meet, sock=listener)
    await server.serve_forever()


async def _answer(store: KeyValueStore, request: bytes) -> dict[str, Any]:
    try:
        return {"value": await store.answer(json.loads(request))}
    except Failure as error:
        return {"error": str(error)}
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        return {"error": f"INVALID_ARGUMENT: {error}"}


_client: DistributedClient | None = None


def client() -> DistributedClient | None:
    """This rank's client; None before `start`."""
    return _client


def start(alone: bool = False) -> None:
    """Start the service on rank 0 and a client on each rank, unless they exist. Collective.

    alone: whether to start them in a job of one rank too.
    """
    global _client
    size, rank = mpi_start.size(), mpi_start.rank()
    if _client is not None or (size == 1 and not alone):
        return
    what = "distributed.initialize"
    names = objects.allgather(socket.gethostname(), what)
    host = "127.0.0.1" if len(set(names)) == 1 else names[0]
    told: tuple[int, bytes, str] = (0, b"", "")
    if rank == 0:
        try:
            secret = secrets.token_bytes(_PROOF)
            listener = socket.create_server((host if host == "127.0.0.1" else "", 0), backlog=1024)
            told = listener.getsockname()[1], secret, ""
            service = _serve(listener, size, secret)
            threading.Thread(target=asyncio.run, args=(service,), name=THREAD, daemon=True).start()
        except OSError as error:
            told = 0, b"", str(error)
    port, secret, problem = objects.bcast(told, 0, what)
    if problem:
        raise JaxRuntimeError(f"UNAVAILABLE: rank 0 cannot listen on {host}: {problem}")
    _client = DistributedClient(host, port, secret, rank)
