"""Values and files from outside that are not what they should be: arrays, addresses, sizes, records, caches, secrets."""

import html.parser
import json
import os
import pathlib
import stat
import time

import jax as theirs
import numpy as np
import pytest

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import ffi, lax
from mpijax.cli import trace
from mpijax.compiler.backend.disk_cache import DiskCache
from mpijax.core.base import config
from mpijax.distributed import handshake


@pytest.mark.parametrize("dtype", ["float64", "int64", "complex128", "uint64", "float32", "bool"])
def test_from_dlpack_has_the_dtype_that_arrays_have(dtype):
    x = np.arange(3).astype(dtype)
    found, wanted = jnp.from_dlpack(x), theirs.numpy.from_dlpack(x)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def test_from_dlpack_without_a_copy_cannot_convert():
    with pytest.raises(ValueError, match="float64 becomes float32"):
        jnp.from_dlpack(np.arange(3.0), copy=False)


@pytest.mark.parametrize("address", [2**70, 2**64, -1, 0])
def test_an_address_fits_a_pointer(address):
    with pytest.raises(ValueError, match="address of the function"):
        ffi.register_ffi_target("somewhere", address)


def test_loops_of_more_turns_than_memory_has_room_for():
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        lax.scan(lambda c, _: (c, c), 0, None, length=2**40)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        lax.scan(lambda c, _: (c, c), 0, None, length=2**62)
    with pytest.raises(ValueError, match="length"):
        lax.scan(lambda c, _: (c, None), 0, None, length=2**63)


# ---------------------------------------------------------------- records


def record(**changes):
    site = {"label": "psum", "line": "a.py:3 (f)", "sequence": 0, "group": "world", "ranks": [0, 1], "peers": None}
    whole = {
        "job": "j", "rank": 0, "size": 2, "host": "h", "pid": 1, "written": 10**18, "sites": {"0": site},
        "operations": [[1, 0, 1, 8, 10**17, 10**17 + 5]],
    }  # fmt: skip
    for name, value in changes.items():
        (site if name in site else whole)[name] = value
    return whole


DAMAGE = [
    {"rank": 7}, {"rank": -1}, {"rank": "0"}, {"size": 10**12}, {"size": None}, {"label": 3}, {"ranks": [10**12]},
    {"ranks": None}, {"peers": "x"}, {"sites": []}, {"sites": {"0": 3}}, {"operations": [[1, 2]]}, {"job": ["j"]},
    {"operations": [[1, 0, 1, 8, 10**400, 0]]}, {"operations": [[1, 0, 1, "8", 0, 0]]}, {"written": 1e400},
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
def test_a_damaged_record_is_told_in_a_line(damage, tmp_path, capsys):
    file = tmp_path / "record.json"
    file.write_text(json.dumps(record(**damage)))
    assert trace.main([str(file), "-o", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.startswith("mpijax trace: ")


@pytest.mark.parametrize("text", ["[1, 2]", "3", "[" * 100_000, "{", ""])
def test_what_is_no_record_is_told_in_a_line(text, tmp_path, capsys):
    file = tmp_path / "record.json"
    file.write_text(text)
    assert trace.main([str(file), "-o", str(tmp_path / "out")]) == 1
    assert "not a record of mpijax" in capsys.readouterr().err


def test_records_of_many_ranks_have_no_table_of_pairs(tmp_path):
    file = tmp_path / "record.json"
    file.write_text(json.dumps(record(size=10**6)))
    assert trace.main([str(file), "-o", str(tmp_path / "out")]) == 0


class _Scripts(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.scripts, self.policy = 0, ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.scripts += tag in ("script", "img")
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"]


@pytest.mark.parametrize("label", ["</script><script>alert(1)</script>", "<!--<script>", "<img src=x onerror=alert(1)>"])
def test_a_page_runs_no_script_of_a_record(label, tmp_path):
    file = tmp_path / "record.json"
    file.write_text(json.dumps(record(label=label, line=label, group=label)))
    assert trace.main([str(file), "-o", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out.html").read_text()
    found = _Scripts(text)
    assert found.scripts == 1
    assert "default-src 'none'" in found.policy and "script-src 'sha256-" in found.policy
    data = text[text.index("const rows =") : text.index("const end =")]
    assert "<" not in data


# ---------------------------------------------------------------- caches


@pytest.fixture
def cache(tmp_path):
    found = DiskCache(tmp_path / "cache")
    found.put("known", b"content")
    assert found.get("known") == b"content"
    return found


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda p: os.symlink("/dev/zero", p)])
def test_what_is_no_file_is_not_read(make, cache):
    path = cache.folder / "other.o"
    make(path)
    began = time.monotonic()
    assert cache.get("other") is None
    cache.put("other", b"more")  # a directory stays in its place: that is no error
    assert time.monotonic() - began < 5
    assert cache.get("other") in (None, b"more")


def test_files_of_killed_writers_go(cache):
    left, fresh = cache.folder / ".new-0123456789abcdef", cache.folder / ".new-fedcba9876543210"
    left.write_bytes(b"half")
    fresh.write_bytes(b"half")
    os.utime(left, (0, 0))
    with config.compilation_cache_max_size(1 << 14):  # small, so that each write looks at the folder
        DiskCache(cache.folder).put("another", b"content")
    assert not left.exists() and fresh.exists()


# ---------------------------------------------------------------- the job's secret


@pytest.fixture
def secret_file(tmp_path, monkeypatch):
    path = tmp_path / "own" / "secret"
    path.parent.mkdir(mode=0o700)
    path.write_text("abc")
    path.chmod(0o600)
    monkeypatch.delenv("MPIJAX_SECRET", raising=False)
    monkeypatch.setenv("MPIJAX_SECRET_FILE", str(path))
    return path


def test_a_secret_of_ones_own_is_read(secret_file):
    assert handshake.job_secret() == b"abc"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o602])
def test_a_secret_that_others_can_read_or_write_is_refused(mode, secret_file):
    secret_file.chmod(mode)
    with pytest.raises(ValueError, match="chmod 600"):
        handshake.job_secret()


def test_a_secret_in_a_folder_that_others_can_write_is_refused(secret_file):
    secret_file.parent.chmod(0o777)
    with pytest.raises(ValueError, match="Other users may write"):
        handshake.job_secret()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_secret_of_another_user_is_refused(secret_file):
    os.chown(secret_file, 12345, 12345)
    with pytest.raises(ValueError, match="another user"):
        handshake.job_secret()


def test_a_secret_that_is_no_file_is_refused(secret_file):
    secret_file.unlink()
    os.mkfifo(secret_file, 0o600)
    with pytest.raises(ValueError, match="not a regular file"):
        handshake.job_secret()


def test_the_secret_that_is_made_is_of_its_owner_alone(tmp_path, monkeypatch):
    for name in ("MPIJAX_SECRET", "MPIJAX_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    old = os.umask(0)
    try:
        first = handshake.job_secret()
    finally:
        os.umask(old)
    assert first == handshake.job_secret() and len(first) == 64
    made = pathlib.Path(tmp_path / "cache" / "mpijax" / "secret")
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o700
