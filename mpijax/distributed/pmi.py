"""The PMI-1 wire protocol, on the side of the process manager: how MPICH's ranks find each other.

A message is a line, ``cmd=put kvsname=job key=P0-businesscard value=...``; the answer is one line. MPI puts each rank's
address into the store, all ranks enter a barrier, and then each gets the others' addresses.
"""

import asyncio
import secrets
from collections.abc import Callable

_MAXES = "kvsname_max=256 keylen_max=256 vallen_max=1024"


class PmiServer:
    """The store and the barrier that the ranks of a job share.

    `ended(rank, code)` is called once, when a rank aborts, or ends without finalizing MPI.
    """

    def __init__(self, size: int, ended: Callable[[int, int], None]):
        self.size = size
        self._name = f"mpijax_{secrets.token_hex(8)}"  # MPICH names shared memory after it, so it must be unique
        self._ended = ended
        self._store: dict[str, str] = {}
        self._waiting: list[asyncio.StreamWriter] = []
        self._over = False

    async def serve(self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one rank until it disconnects."""
        in_mpi = False
        try:
            while line := await reader.readline():
                message = _fields(line.decode())
                command = message.get("cmd", "")
                if command == "abort":
                    self._end(rank, int(message.get("exitcode", 1)) or 1)
                    continue
                in_mpi = (in_mpi or command == "init") and command != "finalize"
                if command == "barrier_in":
                    self._enter_barrier(writer)
                else:
                    writer.write(f"{self._answer(command, message)}\n".encode())
                    await writer.drain()
        except ConnectionError:
            pass
        except ValueError:  # not a PMI line
            in_mpi = True
        finally:
            writer.close()
        if in_mpi:
            self._end(rank, 1)

    def _end(self, rank: int, code: int) -> None:
        if not self._over:
            self._over = True
            self._ended(rank, code)

    def _enter_barrier(self, writer: asyncio.StreamWriter) -> None:
        self._waiting.append(writer)
        if len(self._waiting) == self.size or self._over:  # an aborting rank passes the barrier on its way out
            for each in self._waiting:
                each.write(b"cmd=barrier_out rc=0\n")
            self._waiting.clear()

    def _answer(self, command: str, message: dict[str, str]) -> str:
        match command:
            case "init":
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_maxes":
                return f"cmd=maxes {_MAXES} rc=0"
            case "get_appnum":
                return "cmd=appnum appnum=0 rc=0"
            case "get_my_kvsname":
                return f"cmd=my_kvsname kvsname={self._name} rc=0"
            case "get_universe_size":
                return f"cmd=universe_size size={self.size} rc=0"
            case "put":
                self._store[message.get("key", "")] = message.get("value", "")
                return "cmd=put_result rc=0 msg=success"
            case "get":
                value = self._store.get(message.get("key", ""))
                if value is None:
                    return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
                return f"cmd=get_result rc=0 msg=success value={value}"
            case "finalize":
                return "cmd=finalize_ack rc=0"
        return f"cmd={command}_result rc=-1 msg=unknown_command"


def _fields(line: str) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in line.split() if "=" in word)  # type: ignore[misc]
