"""Compiling, loading, and keeping machine code."""

import ctypes
import os
import subprocess
import sys

import pytest

from mpijax.compiler.backend import elf, llvm

ADD = """
define i64 @add(i64 %a, i64 %b) {
  %c = add i64 %a, %b
  ret i64 %c
}
define double @tangent(double %x) {
  %y = call double @tan(double %x)
  %z = fadd double %y, 0.1
  ret double %z
}
declare double @tan(double)
"""
INT = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
DOUBLE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)


@pytest.mark.parametrize("load", [llvm.load_object, llvm._load_with_llvm])
def test_load(load):
    """Our loader and LLVM's agree: code, constants, functions of the C library."""
    addresses = load(llvm.compile_object(ADD))
    assert set(addresses) == {"add", "tangent"}
    assert INT(addresses["add"])(40, 2) == 42
    assert DOUBLE(addresses["tangent"])(0.0) == 0.1


def test_invalid_text_names_the_line():
    with pytest.raises(llvm.LLVMError, match="use of undefined value '%b'"):
        llvm.compile_object("define i64 @f(i64 %a) {\n  %c = add i64 %a, %b\n  ret i64 %c\n}")


def test_assembly_is_readable():
    assert "add:" in llvm.to_assembly(ADD)


def test_unloadable_objects_are_refused():
    with pytest.raises(elf.UnsupportedObject, match="ELF"):
        elf.load_elf(b"not an object")


def test_functions_that_are_nowhere_are_named():
    with pytest.raises(llvm.LLVMError, match="surely_not_there, but the C library"):
        llvm.load_object(
            llvm.compile_object(
                "declare void @surely_not_there()\n"
                "define void @f() {\n  call void @surely_not_there()\n  ret void\n}"
            )
        )


def test_memory_of_code_is_used_again():
    """Nothing is unmapped: UCX keeps a note of each unmapping."""
    data = llvm.compile_object(ADD)
    places = set()
    for _ in range(20):
        codes = [llvm.load_object(data), llvm.load_object(data)]
        assert [INT(code["add"])(40, 2) for code in codes] == [42, 42]
        places |= {code["add"] for code in codes}
    assert len(places) <= 4  # two are there while the next two are made


def test_writable_data_goes_to_the_real_linker():
    code = llvm.compile_object(
        "@count = global i64 41\n"
        "define i64 @next() {\n  %a = load i64, ptr @count\n  %b = add i64 %a, 1\n"
        "  store i64 %b, ptr @count\n  ret i64 %b\n}"
    )
    with pytest.raises(elf.UnsupportedObject):
        elf.load_elf(code)
    loaded = llvm._load_with_llvm(code)
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(loaded["next"])() == 42


def test_a_cached_object_needs_no_llvm(tmp_path):
    llvm.DiskCache(tmp_path / "c").put("key", llvm.compile_object(ADD))
    script = (
        "import ctypes\nfrom mpijax.compiler.backend.llvm import DiskCache, load_object\n"
        f"f = load_object(DiskCache({str(tmp_path / 'c')!r}).get('key'))\n"
        "signature = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)\n"
        "print(signature(f['add'])(40, 2), 'libllvmlite' in open('/proc/self/maps').read())"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["42", "False"]


class TestDiskCache:
    def test_round_trip(self, tmp_path):
        cache = llvm.DiskCache(tmp_path / "new" / "folder")
        assert cache.get("k") is None
        cache.put("k", b"machine code")
        assert cache.get("k") == b"machine code"
        assert cache.get("other") is None
        assert (tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o700

    def test_damaged_files_are_ignored(self, tmp_path):
        cache = llvm.DiskCache(tmp_path)
        tmp_path.chmod(0o700)
        cache.put("k", b"machine code")
        path = tmp_path / "k.o"
        whole = path.read_bytes()
        for damaged in (b"", whole[:-1], whole[:20], whole[:-1] + b"!", whole + b"x"):
            path.write_bytes(damaged)
            assert cache.get("k") is None
        path.write_bytes(whole)
        assert cache.get("k") == b"machine code"
        (tmp_path / "other.o").write_bytes(whole)
        assert cache.get("other") is None

    def test_files_others_may_write_are_ignored(self, tmp_path):
        tmp_path.chmod(0o700)
        cache = llvm.DiskCache(tmp_path)
        cache.put("k", b"machine code")
        (tmp_path / "k.o").chmod(0o622)
        assert cache.get("k") is None

    def test_folders_others_may_write_are_ignored(self, tmp_path):
        tmp_path.chmod(0o777)
        cache = llvm.DiskCache(tmp_path)
        cache.put("k", b"machine code")
        assert cache.get("k") is None
        assert not list(tmp_path.iterdir())

    def test_links_are_not_followed(self, tmp_path):
        (tmp_path / "real").mkdir(mode=0o700)
        (tmp_path / "link").symlink_to(tmp_path / "real")
        cache = llvm.DiskCache(tmp_path / "link")
        cache.put("k", b"machine code")
        assert cache.get("k") is None

    def test_unusable_folder_is_no_error(self, tmp_path):
        (tmp_path / "file").write_text("")
        cache = llvm.DiskCache(tmp_path / "file" / "below")
        cache.put("k", b"machine code")
        assert cache.get("k") is None

    def test_no_leftovers(self, tmp_path):
        tmp_path.chmod(0o700)
        cache = llvm.DiskCache(tmp_path)
        for _ in range(3):
            cache.put("k", b"machine code")
        assert [p.name for p in tmp_path.iterdir()] == ["k.o"]

    def test_environment(self, tmp_path, monkeypatch):
        monkeypatch.setenv("MPIJAX_CACHE_DIR", str(tmp_path))
        assert str(llvm.DiskCache.default().folder) == str(tmp_path)
        monkeypatch.setenv("MPIJAX_CACHE", "0")
        assert llvm.DiskCache.default() is None
        monkeypatch.delenv("MPIJAX_CACHE")
        monkeypatch.delenv("MPIJAX_CACHE_DIR")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert llvm.DiskCache.default().folder == tmp_path / "mpijax"


def test_cache_key_depends_on_the_text():
    assert llvm.cache_key("a") != llvm.cache_key("b")
    assert llvm.cache_key("a") == llvm.cache_key("a")
    assert os.sep not in llvm.cache_key("a")
