"""Damaged input for everything that reads bytes which somebody else may have written: an error of one kind, no crash.

    PYTHONPATH=tests python -m fuzz.readers FIRST COUNT [READER ...]     the seeds FIRST to FIRST + COUNT - 1, for each reader

prints what was wrong, a line each, and how many inputs were tried. Each batch runs in a process that may crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import random
import re
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import exported_mutations as exported
import numpy as np

import mpijax as jax
from mpijax import export
from mpijax.checkpoint import CheckpointError, save
from mpijax.checkpointing import metadata
from mpijax.cli import trace
from mpijax.cli.scratch import scratch
from mpijax.core.records.serialize import pack, unpack
from mpijax.distributed import handshake
from mpijax.distributed.pmi import PmiServer
from mpijax.distributed.server import Coordinator
from mpijax.runtime.mpi import coordination
from mpijax.runtime.mpi.key_value import KeyValueStore
from mpijax.runtime.program import plan_cache

# Inputs in a batch; seconds for one; bytes that a batch may map beyond what it has.
BATCH, LIMIT, MEMORY = 2000, 20, 2 << 30
# What a reader says of an input.
READ, REFUSED = "read", "refused"


# ---------------------------------------------------------------- changes


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """One to four bytes changed, a piece taken out, put in twice, or moved; or the end cut off."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(found) + 1)
        piece = found[at : at + rng.choice((1, 1, 4, 40))]
        kind = rng.randrange(5)
        if kind == 0 and at < len(found):
            found[at] = rng.randrange(256)
        elif kind == 1:
            del found[at : at + len(piece)]
        elif kind == 2:
            found[at:at] = piece * rng.choice((1, 1, 3))
        elif kind == 3:
            to = rng.randrange(len(found) + 1)
            found[to : to + len(piece)] = piece
        elif rng.random() < 0.3:
            del found[at:]
        else:
            found[at:at] = rng.choice((b"\0", b"\xff", b"[", b"]", b"{", b"\n", b" ", b"-1", b"1e999", b"9" * 40, b'"'))
    return bytes(found)


def changed_json(tree, rng: random.Random):
    """A copy of plain data with one to three changes."""
    box = [json.loads(json.dumps(tree))]
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = exported._places(box, [])
        node, key = rng.choice(places)
        node[key] = exported._changed(node[key], rng, places)
    return box[0]


# ---------------------------------------------------------------- readers: each makes an input of a seed and reads it


def whole_files() -> dict[str, bytes]:
    return {name: exported.exported(name) for name in exported.PROGRAMS}


def exported_programs() -> Callable[[random.Random], str]:
    files = whole_files()
    names = sorted(files)

    def attempt(rng: random.Random) -> str:
        data = files[rng.choice(names)]
        data = exported.mutated(data, rng) if rng.random() < 0.8 else changed_bytes(data, rng)
        try:
            export.deserialize(data)
        except ValueError:
            return REFUSED
        return READ

    return attempt


class _Disk:
    """A cache that has one file, with a sum that holds."""

    def __init__(self, data: bytes):
        self.data = data

    def get(self, key: str) -> bytes:
        return self.data


def plans() -> Callable[[random.Random], str]:
    kept: list[tuple[bytes, list]] = []

    class Keeps:
        def __init__(self, *_):
            pass

        def get(self, key):
            return None

        def put(self, key, data):
            kept[-1] = data, kept[-1][1]

    with tempfile.TemporaryDirectory() as folder:
        os.environ["MPIJAX_CACHE_DIR"] = folder
        plan_cache.WORTH, usual = 0.0, plan_cache._disk
        plan_cache._disk = lambda: Keeps()
        for name in ("elementwise", "scan", "gather", "linear algebra", "sort", "branches", "while", "constants"):
            fun, *args = exported.PROGRAMS[name]
            kept.append((b"", [np.ones(3, np.float32)] * 8))
            jax.jit(fun)(*args)
        plan_cache._disk = usual
    files = [(data, constants) for data, constants in kept if data]
    assert len(files) > 4

    def attempt(rng: random.Random) -> str:
        data, constants = rng.choice(files)
        content, tables, blobs = unpack(plan_cache._MAGIC, data, "a plan")
        part = rng.randrange(3)
        if part == 0:
            content = changed_json(content, rng)
        elif part == 1:
            tables = changed_json(tables, rng)
        else:
            blobs = [changed_bytes(bytes(b), rng) for b in blobs]

        class Written:
            pass

        written = Written()
        written.blobs, written.tables = blobs, lambda: tables
        entry = plan_cache.CachedPlan.__new__(plan_cache.CachedPlan)
        entry.disk, entry.key, entry.constants = _Disk(pack(plan_cache._MAGIC, content, written)), "", constants
        return REFUSED if entry.load() is None else READ

    return attempt


def trace_records() -> Callable[[random.Random], str]:
    site = {"label": "psum", "line": "a.py:3 (f)", "sequence": 0, "group": "world", "ranks": [0, 1], "peers": None}
    message = {**site, "label": "send </script><script>alert(1)</script>", "peers": [1], "sequence": 2**63 + 4}
    begin = 10**17
    whole = {
        "job": "j", "rank": 0, "size": 2, "host": "h", "pid": 1, "written": 10**18,
        "sites": {"0": site, "1": message},
        "operations": [[n, n % 2, n, 8, begin + 10 * n, begin + 10 * n + 5] for n in range(1, 6)]
        + [[6, 0, 6, 8, begin + 100, None]],
        "kernels": [["sin </script>", "a.py:4 (f)", begin + 2, begin + 6], ["slice", "", begin + 16, begin + 18]],
    }  # fmt: skip
    folder = Path(tempfile.mkdtemp())
    file, out = folder / "record.json", folder / "trace"

    def attempt(rng: random.Random) -> str:
        if rng.random() < 0.7:
            file.write_text(json.dumps(changed_json(whole, rng)))
        else:
            file.write_bytes(changed_bytes(json.dumps(whole).encode(), rng))
        said, printed = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
            status = trace.main([str(file), "-o", str(out)])
        text = said.getvalue()
        if status:
            assert status == 1 and text.startswith("mpijax trace: ") and text.count("\n") == 1, text
            return REFUSED
        page = (folder / "trace.html").read_text()
        assert len(re.findall("<script", page)) == 1 == len(re.findall("</script", page)), "a script of the record"
        return READ

    return attempt


def checkpoints() -> Callable[[random.Random], str]:
    contents = metadata.Contents

    folder = Path(tempfile.mkdtemp())
    save(folder / "c", {"v": np.ones(3), "w": [np.arange(300, dtype=np.float32), 3, "text"], "k": jax.random.key(0)})
    whole = json.loads((folder / "c" / metadata.FILE).read_bytes())

    def attempt(rng: random.Random) -> str:
        if rng.random() < 0.8:
            group = changed_json(whole, rng)
            with contextlib.suppress(Exception):  # what is changed need not have a sum
                about, arrays = group["attributes"]["mpijax"], group["consolidated_metadata"]["metadata"]
                about["sha256"] = metadata._sum(about, arrays)
            data = json.dumps(group).encode()
        else:
            data = changed_bytes(metadata.as_json(whole), rng)
        try:
            found = metadata.load(data, folder)
        except CheckpointError:
            return REFUSED
        assert isinstance(found, contents) and found.nbytes >= 0
        return READ

    return attempt


def rendezvous() -> Callable[[random.Random], str]:
    """What comes to the coordinator's port, what comes from it, and what ranks of the job ask."""
    secret = b"secret"

    async def shake_hands(line: bytes) -> str:
        coordinator = Coordinator(2, secret)
        here, there = socket.socketpair()
        with there:
            reader, writer = await asyncio.open_connection(sock=here)
            there.sendall(line)
            there.shutdown(socket.SHUT_WR)
            await coordinator._meet(reader, writer)
            writer.close()
            await asyncio.sleep(0)
            answer = there.recv(4096).decode()
        return READ if "welcome" in answer else REFUSED

    async def serve_pmi(lines: bytes) -> str:
        ended: list[int] = []
        job = PmiServer(1, lambda rank, code: ended.append(code))
        here, there = socket.socketpair()
        with there:
            reader, writer = await asyncio.open_connection(sock=here)
            there.sendall(lines)
            there.shutdown(socket.SHUT_WR)
            await asyncio.wait_for(job.serve(0, reader, writer), 5)
        return REFUSED if ended else READ

    async def ask(request: bytes) -> str:
        try:
            return REFUSED if "error" in await asyncio.wait_for(coordination._answer(KeyValueStore(2), request), 0.05) else READ
        except TimeoutError:  # it asks to wait so long
            return READ

    claims = ("0" * 32, "1" * 32, "pmi", 0, 2)
    join = f"join pmi 0 2 {claims[1]} {handshake.proof(secret, 'process', *claims)}\n".encode()
    pmi = (
        b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=get_my_kvsname\ncmd=put kvsname=j key=k value=v\n"
        b"cmd=barrier_in\ncmd=get kvsname=j key=k\ncmd=finalize\n"
    )
    requests = [
        {"do": "put", "key": "a/b", "value": "x", "overwrite": True},
        {"do": "get", "key": "a/b", "seconds": 0.001},
        {"do": "increment", "key": "n", "by": 2},
        {"do": "below", "key": "a"},
        {"do": "delete", "key": "a"},
        {"do": "barrier", "name": "b", "rank": 0, "ranks": [0], "seconds": 0.001},
    ]
    greeting = f"{handshake.GREETING} {'2' * 32}\nwelcome {'3' * 64}\ngo\n".encode()

    def joins(data: bytes) -> str:
        here, there = socket.socketpair()
        with here, there:
            there.sendall(data)
            there.shutdown(socket.SHUT_WR)
            try:
                handshake.join(here, secret, "pmi", 0, 2, time.monotonic() + 5)
            except (handshake.Refused, TimeoutError, ConnectionError):
                return REFUSED
        return READ

    def attempt(rng: random.Random) -> str:
        kind = rng.randrange(4)
        if kind == 0:
            return asyncio.run(shake_hands(changed_bytes(join, rng)))
        if kind == 1:
            return asyncio.run(serve_pmi(changed_bytes(pmi, rng)))
        if kind == 2:
            request = rng.choice(requests)
            if rng.random() < 0.7:
                return asyncio.run(ask(json.dumps(changed_json(request, rng)).encode()))
            return asyncio.run(ask(changed_bytes(json.dumps(request).encode(), rng)))
        return joins(changed_bytes(greeting, rng))

    return attempt


READERS = {reader.__name__: reader for reader in (exported_programs, plans, trace_records, checkpoints, rendezvous)}


# ---------------------------------------------------------------- many inputs


def _batch(attempt: Callable[[random.Random], str], seeds: range, write: int) -> None:
    base = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (base + MEMORY, base + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with os.fdopen(write, "w") as said:
        for seed in seeds:
            said.write(f"{seed} begin\n")
            if seed % 50 == 0:
                said.flush()
            signal.setitimer(signal.ITIMER_REAL, LIMIT)
            try:
                what = attempt(random.Random(seed))
            except MemoryError:
                what = REFUSED
            except BaseException as error:
                line = " < ".join(
                    f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[:-4:-1]
                )
                what = f"{type(error).__name__}: {error} at {line}".replace("\n", " ")[:400]
            said.write(f"{seed} {what}\n")
            if what not in (READ, REFUSED):
                said.flush()
    os._exit(0)


def run(reader: str, first: int, count: int) -> tuple[Counter, list[str]]:
    """(how many inputs were read, refused, wrong; what was wrong)"""
    with scratch("fuzz") as folder:
        tempfile.tempdir = str(folder)  # of all readers
        try:
            return _run(reader, first, count)
        finally:
            tempfile.tempdir = None


def _run(reader: str, first: int, count: int) -> tuple[Counter, list[str]]:
    attempt, counts, wrong = READERS[reader](), Counter(), []
    for begin in range(first, first + count, BATCH):
        seeds = range(begin, min(begin + BATCH, first + count))
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.close(read)
                _batch(attempt, seeds, write)
            finally:
                os._exit(1)
        os.close(write)
        with os.fdopen(read) as said:
            for line in said:
                seed, _, what = line.rstrip("\n").partition(" ")
                if what in (READ, REFUSED):
                    counts[what] += 1
                elif what != "begin":
                    counts["wrong"] += 1
                    wrong.append(f"{reader} {seed}: {what}")
        _, status = os.waitpid(pid, 0)
        if status:
            counts["wrong"] += 1
            wrong.append(f"{reader}: a process died with {os.waitstatus_to_exitcode(status)}, of seeds {seeds}")
    return counts, wrong


def main(first: str, count: str, *names: str) -> int:
    failed = False
    for name in names or READERS:
        counts, wrong = run(name, int(first), int(count))
        print(*wrong, sep="\n", end="\n" if wrong else "")
        print(f"{name}: {dict(counts)}", flush=True)
        failed |= bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
