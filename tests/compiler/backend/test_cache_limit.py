"""The cache on disk stays below its limit: what was used least recently leaves, whoever reads or writes meanwhile."""

import hashlib
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import mpijax as jax
import mpijax.numpy as jnp
from mpijax.compiler.backend import disk_cache
from mpijax.compiler.backend.disk_cache import DiskCache
from mpijax.core.base import config

BLOCK = 4096
DAY = 86400


def key(i):
    return hashlib.sha256(str(i).encode()).hexdigest()


def age(cache, i, seconds):
    then = time.time() - seconds
    os.utime(cache.folder / f"{key(i)}.o", (then, then))


def kept(cache, numbers):
    return [i for i in numbers if cache.get(key(i)) is not None]


def blocks(folder):
    return sum(-(-p.stat().st_size // BLOCK) for p in folder.iterdir())


@pytest.fixture
def cache(tmp_path):
    """One with room for 16 small files."""
    with config.compilation_cache_max_size(16 * BLOCK):
        yield DiskCache(tmp_path / "cache")


def test_what_was_used_least_recently_leaves(cache):
    for i in range(16):
        cache.put(key(i), b"content")
        age(cache, i, (20 - i) * DAY)
    assert cache.get(key(0)) == cache.get(key(3)) == b"content"  # a use, so that they stay
    cache.put(key(16), b"content")
    assert kept(cache, range(17)) == [0, 3, *range(5, 17)]


def test_a_large_file_takes_the_place_of_many(cache):
    for i in range(16):
        cache.put(key(i), b"content")
        age(cache, i, 100 - i)
    cache.put(key("large"), bytes(8 * BLOCK))
    assert cache.get(key("large")) is not None and blocks(cache.folder) <= 16
    assert kept(cache, range(16)) == list(range(10, 16))


def test_a_file_larger_than_the_limit_is_not_kept(cache):
    cache.put(key(0), b"content")
    cache.put(key("large"), bytes(16 * BLOCK))
    assert cache.get(key("large")) is None and cache.get(key(0)) == b"content"


@pytest.mark.parametrize("limit, there", [(-1, 40), (1 << 30, 40), (0, 0)])
def test_no_limit_the_usual_one_and_none(limit, there, cache):
    with config.compilation_cache_max_size(limit):
        for i in range(40):
            cache.put(key(i), b"content")
        assert len(kept(cache, range(40))) == there
        assert (DiskCache.default() is None) == (limit == 0)


def test_a_use_is_noted_at_most_once_a_day(cache):
    path = cache.folder / f"{key(0)}.o"
    cache.put(key(0), b"content")
    for seconds, noted in ((DAY / 2, False), (2 * DAY, True)):
        age(cache, 0, seconds)
        before = path.stat().st_mtime
        assert cache.get(key(0)) == b"content"
        assert (path.stat().st_mtime > before) == noted


def test_files_of_others_stay(cache):
    cache.put(key("first"), b"content")
    others = [cache.folder / name for name in ("secret", "main.o", f"{key(1)}.txt", f"{key(2)}.orig", "jit_f-cache")]
    for path in others:
        path.write_bytes(bytes(16 * BLOCK))
        os.utime(path, (0, 0))
    (cache.folder / f"{key(3)}.o").mkdir()
    for i in range(10, 50):
        cache.put(key(i), b"content")
    assert all(path.exists() for path in others) and (cache.folder / f"{key(3)}.o").exists()
    assert len(kept(cache, range(10, 50))) in range(12, 17)


@pytest.mark.parametrize("name", ["utime", "scandir", "unlink"])
def test_a_disk_that_refuses_is_no_error(name, cache, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("read-only")

    for i in range(16):
        cache.put(key(i), b"content")
        age(cache, i, 2 * DAY)
    monkeypatch.setattr(disk_cache.os, name, refuse)
    cache.put(key(16), b"content")
    assert cache.get(key(16)) == cache.get(key(15)) == b"content"


def test_a_file_that_was_written_anew_meanwhile_stays(cache, monkeypatch):
    for i in range(16):
        cache.put(key(i), b"content")
        age(cache, i, (20 - i) * DAY)
    listed = cache._files

    def then_another_process_writes():
        found = listed()
        age(cache, 0, 0)
        return found

    monkeypatch.setattr(cache, "_files", then_another_process_writes)
    cache.put(key(16), b"content")
    assert kept(cache, range(4)) == [0]


def test_the_folder_is_looked_at_seldom(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(DiskCache, "_make_room", lambda self, limit: looks.append(limit))
    cache = DiskCache(tmp_path / "cache")
    with config.compilation_cache_max_size(16 * 50 * BLOCK):  # a look in 50 puts
        for i in range(400):
            cache.put(key(i % 4), b"content")
    assert 1 <= len(looks) <= 40


WRITER = """
import hashlib, random, sys
from mpijax.compiler.backend.disk_cache import DiskCache
cache, choose = DiskCache(sys.argv[1]), random.Random(sys.argv[2])
for _ in range(400):
    i = choose.randrange(60)
    key, content = hashlib.sha256(str(i).encode()).hexdigest(), bytes([i]) * (100 * i)
    assert cache.get(key) in (None, content)
    cache.put(key, content)
"""


def test_processes_that_read_write_and_remove_at_once(tmp_path):
    folder = tmp_path / "cache"
    env = os.environ | {"MPIJAX_CACHE_MAX_SIZE": str(16 * BLOCK)}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, folder, str(i)], env=env) for i in range(4)]
    assert [w.wait() for w in writers] == [0] * 4
    assert 1 <= blocks(folder) <= 16 + 4 * 2  # each process may look before the others have written what they look for
    assert not list(folder.glob(".new-*"))


@pytest.mark.slow  # by default the next one removes programs too
def test_a_hundred_programs_in_a_small_cache(tmp_path):
    x = np.ones(3, np.float32)
    with config.compilation_cache_dir(str(tmp_path / "cache")), config.compilation_cache_max_size(16 * BLOCK):  # each write looks
        for i in range(100):
            np.testing.assert_allclose(jax.jit(lambda x, c=i: jnp.tanh(x * c) + 0.37 * c)(x), np.tanh(x * i) + 0.37 * i, 1e-5)
        assert 1 <= blocks(tmp_path / "cache") <= 16
