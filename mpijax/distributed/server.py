"""The coordinator: a small process beside process 0 that collects a job's processes and serves them PMI-1.

It is a separate process, because starting MPI holds the GIL in process 0. Each process of the job makes two
connections: MPI's, and a lifeline that reports the death or abort of another rank, as mpirun would. The coordinator
ends when all connections are closed.

    python -m mpijax.distributed.server <fd of the listening socket> <number of processes> <seconds>  < secret
"""

import asyncio
import os
import resource
import secrets
import signal
import socket
import sys

from mpijax.distributed.handshake import GREETING, ROLES, proof, proves
from mpijax.distributed.pmi import PmiServer

_HANDSHAKE_SECONDS = 10.0
# Maximum connections that wait to be accepted, connections of strangers kept open, and connections accepted at once.
_BACKLOG, _STRANGERS, _AT_ONCE = 4096, 256, 16
# Files that Python itself has open, and connections between two iterations of its event loop.
_FILES = 16 + 4 * _AT_ONCE

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Coordinator:
    """Collects `size` processes that know `secret`, then serves them."""

    def __init__(self, size: int, secret: bytes):
        self.size = size
        self._secret = secret
        self._joined: dict[tuple[str, int], Streams] = {}
        self._complete = asyncio.Event()
        self._job = PmiServer(size, self._ended)
        # Connections without proof, oldest first; the job's own are at most two for each process.
        self._strangers: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _STRANGERS + len(ROLES) * size
        self._most_strangers = max(_AT_ONCE, min(most, files - len(ROLES) * size - _FILES))

    async def run(self, listener: socket.socket, seconds: float) -> None:
        """Serve until the end of the job. At the timeout every connected process gets an error."""
        server = await asyncio.start_server(self._meet, sock=listener, backlog=_AT_ONCE)
        listener.listen(_BACKLOG)  # asyncio also uses its backlog as the number of connections accepted at once
        try:
            await asyncio.wait_for(self._complete.wait(), seconds)
        except TimeoutError:
            await self._tell_all(f"missing {' '.join(map(str, self.missing()))}")
            return
        finally:
            server.close()
            await self._dismiss_strangers()
        await self._tell_all("go")
        await asyncio.gather(
            *(self._job.serve(rank, *streams) for (role, rank), streams in self._joined.items() if role == "pmi")
        )
        # The processes' ends close the lifelines; everything written to them has arrived by then.
        await asyncio.gather(*(_drained(*streams) for (role, _), streams in self._joined.items() if role == "life"))

    def missing(self) -> list[int]:
        return [rank for rank in range(self.size) if any((role, rank) not in self._joined for role in ROLES)]

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection's handshake. A stranger gets the reason for the refusal.

        If strangers keep too many connections open, the oldest are closed.
        """
        task = asyncio.current_task()
        assert task is not None
        self._strangers[writer] = task
        if len(self._strangers) > self._most_strangers:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.transport.abort()
        try:
            await self._shake_hands(reader, writer)
        finally:
            self._strangers.pop(writer, None)

    async def _dismiss_strangers(self) -> None:
        """Close all strangers' connections. Otherwise Python would report each task that it cancels at exit."""
        tasks = list(self._strangers.values())
        for writer in list(self._strangers):
            writer.transport.abort()
        if tasks:
            await asyncio.wait(tasks)

    async def _shake_hands(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonce = secrets.token_hex(16)
        writer.write(f"{GREETING} {nonce}\n".encode())
        try:
            line = await asyncio.wait_for(reader.readline(), _HANDSHAKE_SECONDS)
            refusal, claims = self._judge(line.decode(errors="replace").split(), nonce)
        except (TimeoutError, ConnectionError, ValueError):
            refusal, claims = "no handshake", ()
        if refusal:
            writer.write(f"refused {refusal}\n".encode())
            writer.close()
            return
        writer.write(f"welcome {proof(self._secret, 'coordinator', *claims)}\n".encode())
        self._joined[claims[2], int(claims[3])] = reader, writer
        if not self.missing():
            self._complete.set()

    def _judge(self, words: list[str], nonce: str) -> tuple[str, tuple[str, ...]]:
        """(the reason for a refusal, or ""; the process's claims: both nonces, role, id, count)."""
        if len(words) != 6 or words[0] != "join":
            return "no handshake", ()
        _, role, rank, count, theirs, given = words
        claims = (nonce, theirs, role, rank, count)
        if not proves(given, self._secret, "process", *claims):
            return "the secret differs from that of process 0", claims
        if int(count) != self.size:
            return f"process 0 expects {self.size} processes, this one {count}", claims
        if role not in ROLES or not 0 <= int(rank) < self.size:
            return f"process_id must be in [0, {self.size}), got {rank}", claims
        held = self._joined.get((role, int(rank)))
        if held and not held[0].at_eof():
            return f"another process has process_id={rank}", claims
        return "", claims

    async def _tell_all(self, line: str) -> None:
        for _, writer in self._joined.values():
            writer.write(f"{line}\n".encode())
        for _, writer in self._joined.values():
            try:
                await writer.drain()
            except ConnectionError:
                continue

    def _ended(self, rank: int, code: int) -> None:
        for (role, other), (_, writer) in self._joined.items():
            if role == "life" and other != rank:
                writer.write(f"ended {rank} {code}\n".encode())


async def _drained(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await writer.drain()
        await reader.read()
    except ConnectionError:
        pass
    writer.close()


def main() -> None:
    descriptor, size, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    secret = sys.stdin.buffer.read()
    if os.fork():  # detach: process 0 then has no child to wait for, and no zombie
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the ranks
    listener = socket.socket(fileno=descriptor)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def serve() -> None:
        await Coordinator(size, secret).run(listener, seconds)

    asyncio.run(serve())


if __name__ == "__main__":
    main()
