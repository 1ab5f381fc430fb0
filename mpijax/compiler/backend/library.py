"""Declares LLVM's C functions in the shared library that llvmlite ships.

Importing llvmlite's own modules takes 30 ms, because they also load its IR builder. This package only parses text, runs
passes and writes object files, with the functions below. Their signatures are the same in llvmlite 0.46 and 0.50.
They release the GIL. Each text has its own LLVM context, so threads do not wait for each other.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_void_p
from functools import cache, partial
from pathlib import Path

from mpijax.core.base import locks

_FUNCTIONS = {
    "LLVMPY_InitializeNativeTarget": (None,),
    "LLVMPY_InitializeNativeAsmPrinter": (None,),
    "LLVMPY_DisposeString": (None, c_char_p),
    "LLVMPY_GetDefaultTargetTriple": (None, POINTER(c_char_p)),
    "LLVMPY_GetHostCPUName": (None, POINTER(c_char_p)),
    "LLVMPY_GetHostCPUFeatures": (c_int, POINTER(c_char_p)),
    "LLVMPY_GetTargetFromTriple": (c_void_p, c_char_p, POINTER(c_char_p)),
    "LLVMPY_CreateTargetMachine": (
        c_void_p, c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_char_p, c_char_p, c_int, c_int, c_char_p,
    ),
    "LLVMPY_ContextCreate": (c_void_p,),
    "LLVMPY_ContextDispose": (None, c_void_p),
    "LLVMPY_ParseAssembly": (c_void_p, c_void_p, c_char_p, POINTER(c_char_p)),
    "LLVMPY_DisposeModule": (None, c_void_p),
    "LLVMPY_CreatePipelineTuningOptions": (c_void_p,),
    "LLVMPY_DisposePipelineTuningOptions": (None, c_void_p),
    "LLVMPY_PTOSetLoopInterleaving": (None, c_void_p, c_bool),
    "LLVMPY_PTOSetLoopUnrolling": (None, c_void_p, c_bool),
    "LLVMPY_PTOSetLoopVectorization": (None, c_void_p, c_bool),
    "LLVMPY_CreatePassBuilder": (c_void_p, c_void_p, c_void_p),
    "LLVMPY_DisposePassBuilder": (None, c_void_p),
    "LLVMPY_CreateNewModulePassManager": (c_void_p,),
    # In 0.46 with a size level after the speed level; 0.50 ignores the extra argument.
    "LLVMPY_buildPerModuleDefaultPipeline": (c_void_p, c_void_p, c_int, c_int),
    "LLVMPY_module_AddAlwaysInlinerPass": (None, c_void_p),
    "LLVMPY_module_AddSCCPPass": (None, c_void_p),
    "LLVMPY_RunNewModulePassManager": (None, c_void_p, c_void_p, c_void_p),
    "LLVMPY_DisposeNewModulePassManger": (None, c_void_p),
    "LLVMPY_TargetMachineEmitToMemory": (c_void_p, c_void_p, c_void_p, c_int, POINTER(c_char_p)),
    "LLVMPY_GetBufferStart": (c_void_p, c_void_p),
    "LLVMPY_GetBufferSize": (c_size_t, c_void_p),
    "LLVMPY_DisposeMemoryBuffer": (None, c_void_p),
}  # fmt: skip
_NAME = {"darwin": "libllvmlite.dylib", "win32": "llvmlite.dll"}.get(sys.platform, "libllvmlite.so")


_loading = locks.lock()


class LLVMError(RuntimeError):
    """LLVM rejected a module; the message has LLVM's own text, with the lines in question."""


def library() -> ctypes.CDLL:
    """LLVM's functions; one thread loads the library while others wait."""
    with _loading:
        return _loaded()


@cache
def _loaded() -> ctypes.CDLL:
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        raise LLVMError("llvmlite is not installed, but mpijax needs it to compile. Run: pip install 'llvmlite>=0.46'")
    path = Path(spec.origin).parent / "binding" / _NAME
    library = ctypes.CDLL(str(path))
    for name, (result, *arguments) in _FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise LLVMError(
                f"{path} does not have the function {name}: mpijax does not support this version of llvmlite. "
                "Run: pip install 'llvmlite>=0.46,<=0.50'"
            ) from None
        function.restype, function.argtypes = result, arguments
    library.LLVMPY_InitializeNativeTarget()
    library.LLVMPY_InitializeNativeAsmPrinter()
    return library


# Code generation levels: without optimization, in a third of the time; and LLVM's default.
BASELINE, OPTIMIZING = 0, 2
# Idle target machines of each level; one compiles one text at a time.
_idle: dict[int, list[int]] = {BASELINE: [], OPTIMIZING: []}


class _LlvmString:
    """A string allocated by LLVM."""

    def __init__(self) -> None:
        self.pointer = c_char_p()

    def take(self) -> str:
        """The string, freed in LLVM; "" if LLVM has not set it."""
        found = self.pointer.value
        if found is None:
            return ""
        library().LLVMPY_DisposeString(self.pointer)
        return found.decode(errors="replace")


def _told(name: str) -> str:
    text = _LlvmString()
    getattr(library(), name)(byref(text.pointer))
    return text.take()


def _target_machine(level: int) -> int:
    """A code generator for this CPU: position-independent code in the small model, which `load_elf` can load."""
    triple, error = _told("LLVMPY_GetDefaultTargetTriple"), _LlvmString()
    target = library().LLVMPY_GetTargetFromTriple(triple.encode(), byref(error.pointer))
    if not target:
        raise LLVMError(error.take())
    cpu, features = _told("LLVMPY_GetHostCPUName"), _told("LLVMPY_GetHostCPUFeatures")
    return library().LLVMPY_CreateTargetMachine(
        target, triple.encode(), cpu.encode(), features.encode(), level, b"pic", b"small", 0, 0, b""
    )


def _run_passes(module: int, machine: int, optimize: bool) -> None:
    """Run LLVM's default passes; without `optimize`, only inline `alwaysinline` functions and fold constants.

    Optimizing code generation folds constants too, with denormals; folding here gives baseline code the same bits.

    Kernels arrive with vectorized loops. Vectorizing the remainder loops again made the code of 20 steps of MuJoCo MJX
    3 times as long and LLVM's time 5 times, and 21 small loops ran no faster.
    """
    llvm = library()
    options = llvm.LLVMPY_CreatePipelineTuningOptions()
    for transformation in ("Interleaving", "Unrolling", "Vectorization"):
        getattr(llvm, f"LLVMPY_PTOSetLoop{transformation}")(options, False)
    builder = llvm.LLVMPY_CreatePassBuilder(machine, options)
    if optimize:
        passes = llvm.LLVMPY_buildPerModuleDefaultPipeline(builder, 2, 0)
    else:
        passes = llvm.LLVMPY_CreateNewModulePassManager()
        llvm.LLVMPY_module_AddAlwaysInlinerPass(passes)
        llvm.LLVMPY_module_AddSCCPPass(passes)
    llvm.LLVMPY_RunNewModulePassManager(passes, module, builder)
    llvm.LLVMPY_DisposeNewModulePassManger(passes)
    llvm.LLVMPY_DisposePassBuilder(builder)
    llvm.LLVMPY_DisposePipelineTuningOptions(options)


def compiled(ir_text: str, optimize: bool, assembly: bool = False, level: int = OPTIMIZING) -> bytes:
    """Compile an LLVM module (its text) to an object file, or to assembly."""
    llvm = library()
    try:
        machine = _idle[level].pop()
    except IndexError:
        machine = _target_machine(level)
    context = llvm.LLVMPY_ContextCreate()
    try:
        if optimize or level == BASELINE or "alwaysinline" in ir_text:
            passes = partial(_run_passes, machine=machine, optimize=optimize)
        else:
            passes = None
        return _compiled(ir_text, context, machine, passes, assembly)
    finally:
        llvm.LLVMPY_ContextDispose(context)
        _idle[level].append(machine)


def _compiled(
    ir_text: str, context: int, machine: int, passes: Callable[[int], None] | None, assembly: bool
) -> bytes:
    llvm, error = library(), _LlvmString()
    module = llvm.LLVMPY_ParseAssembly(context, ir_text.encode(), byref(error.pointer))
    if not module:
        raise LLVMError(f"invalid LLVM IR: {error.take()}")
    try:
        if passes is not None:
            passes(module)
        buffer = llvm.LLVMPY_TargetMachineEmitToMemory(machine, module, not assembly, byref(error.pointer))
        if not buffer:
            raise LLVMError(error.take())
        code = ctypes.string_at(llvm.LLVMPY_GetBufferStart(buffer), llvm.LLVMPY_GetBufferSize(buffer))
        llvm.LLVMPY_DisposeMemoryBuffer(buffer)
        return code
    finally:
        llvm.LLVMPY_DisposeModule(module)
