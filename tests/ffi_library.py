"""`ffi_targets.c` compiled and loaded, its targets registered under the names of the functions."""

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

import mpijax

NAMES = "scale row_sums describe describe_entries describe_small increment note operand_shape".split()


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library."""
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "targets.so"
        source = Path(__file__).with_name("ffi_targets.c")
        command = ["gcc", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-I", mpijax.ffi.include_dir()]
        subprocess.run([*command, source, "-o", binary], check=True)
        lib = ctypes.CDLL(str(binary))
    for name in NAMES:
        mpijax.ffi.register_ffi_target(name, mpijax.ffi.pycapsule(getattr(lib, name)))
    return lib


def notes() -> list[float]:
    """What the target `note` has got since this was last asked."""
    out = (ctypes.c_float * 64)()
    lib = library()
    lib.read_notes.restype = ctypes.c_int64
    count = lib.read_notes(out)
    return list(out)[:count]
