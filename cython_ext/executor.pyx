# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The executor: runs programs, which are lists of instructions over a table of buffers.

`Program` loads a `ProgramSpec` (mpijax/runtime/program.py says what the instructions mean) into C structures once. A run
fills a table of pointers - arguments, new memory for results, one block for all temporaries - and walks the instructions.
The table belongs to the run, so that programs can be run from several threads, and from within their own host calls.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

import importlib.machinery
import importlib.util
import os
import sys

import numpy as np

cimport numpy as cnp

from comm cimport (
    COMM_ALLGATHER, COMM_ALLREDUCE, COMM_ALLTOALL, COMM_BARRIER, COMM_BCAST, COMM_EXSCAN, COMM_GATHER,
    COMM_RECV, COMM_REDUCE, COMM_REDUCE_SCATTER, COMM_SCAN, COMM_SCATTER, COMM_SEND, COMM_SENDRECV,
    CommArgs, CommFunction,
)
from mpijax._ext.array cimport (
    DELETED, ArrayBase, allocate, block_class, delete_array, end_use, is_array, new_array, raise_deleted, release,
    take_memory,
)

from mpijax._ext.array import from_numpy, rewrap

cnp.import_array()

cdef extern from "threads.h" nogil:
    ctypedef void (*mt_kernel)(void** ptrs, int64_t* params, int64_t begin, int64_t end) noexcept nogil
    void mt_run(mt_kernel fn, void** ptrs, int64_t* params, int64_t extent, int64_t grain)
    int mt_threads, mt_started
    int MT_MAX_THREADS


cdef enum Opcode:
    KERNEL
    GEMM
    COPY
    FILL
    COMM
    HOST_CALL
    JUMP
    JUMP_UNLESS         # the byte at a place is 0
    JUMP_TABLE          # by the int32 at a place
    COUNT_START         # counter = count; jump if that is 0
    COUNT_NEXT          # counter -= 1; jump unless that is 0
    ADVANCE
    SWAP
    END

cdef enum:
    STACK_WORDS = 96    # tables up to this size live on the stack of `run_into`

cdef struct KernelData:
    mt_kernel fn
    int64_t extent
    int64_t grain
    int64_t* params
    Place* places
    int32_t num_places

cdef struct MoveData:       # COPY
    Place target
    Place origin
    size_t nbytes

cdef struct FillData:
    Place target
    size_t nbytes
    int32_t width
    char[16] pattern

cdef struct CommData:
    CommArgs args
    Place send
    Place recv
    CommFunction call

cdef struct HostData:
    PyObject* instruction   # the HostCall of the spec
    Place* places           # of the inputs, then of the outputs

cdef struct BranchData:     # JUMP_UNLESS, JUMP_TABLE
    Place place
    int32_t count
    int32_t* targets

cdef struct CountData:
    int32_t counter
    int64_t count

cdef struct PointerData:    # ADVANCE, SWAP
    int32_t first
    int32_t second
    int64_t nbytes

cdef struct GemmData:
    int32_t kind            # index into `gemm_pointers`
    char transa, transb     # of BLAS, which sees the transposed matrices: its A is our B
    int m, n, k, lda, ldb, ldc
    Place a, b, c
    int32_t ndim
    int64_t* batch          # sizes, then strides in bytes of a, b and c, each `ndim` long
    double[2] beta          # in the element type; read as float where that is single

cdef struct OutputEntry:
    int32_t buffer
    int32_t donor           # argument, or -1
    int64_t nbytes
    PyObject* aval
    PyObject* sharding

cdef struct InputEntry:
    int32_t buffer          # -1: not read
    int64_t nbytes          # of an ndarray given here; -1: not checked

cdef struct TempEntry:
    int32_t buffer
    int64_t offset

cdef struct AliasEntry:
    int32_t buffer
    Place place

cdef enum ResultKind:
    RESULT_OUTPUT
    RESULT_INPUT
    RESULT_CONST

cdef struct ResultEntry:
    int32_t kind
    int32_t index           # output number, or argument number
    bint same_type          # the object itself is the result; else another one over its memory
    PyObject* aval
    PyObject* sharding
    PyObject* const_array


# ---- threads ---------------------------------------------------------------------------------------------------------

def set_num_threads(int n):
    """Says how many threads kernels may use, the calling one included. Workers that run already are not ended."""
    global mt_threads
    if n < 1:
        raise ValueError(f"set_num_threads: at least 1, got {n}")
    mt_threads = min(n, MT_MAX_THREADS)


def num_threads():
    """How many threads kernels may use."""
    return mt_threads


def num_workers():
    """How many threads besides the callers' have been started."""
    return mt_started


# ---- BLAS ------------------------------------------------------------------------------------------------------------

ctypedef void (*GemmFunction)(char* transa, char* transb, int* m, int* n, int* k, void* alpha, void* a, int* lda,
                              void* b, int* ldb, void* beta, void* c, int* ldc) noexcept nogil

cdef enum GemmKind:
    GEMM_F32
    GEMM_F64
    GEMM_C64
    GEMM_C128

cdef GemmFunction[4] gemm_pointers
cdef float[2] ONE_SINGLE = [1, 0]
cdef double[2] ONE_DOUBLE = [1, 0]
GEMM_KINDS = {"float32": GEMM_F32, "float64": GEMM_F64, "complex64": GEMM_C64, "complex128": GEMM_C128}


def load_blas():
    """The module `scipy.linalg.cython_blas`, loaded without the rest of `scipy.linalg`: 20 ms instead of 180."""
    name = "scipy.linalg.cython_blas"
    if name in sys.modules:
        return sys.modules[name]
    package = importlib.machinery.PathFinder.find_spec("scipy")
    if package is None:
        raise ImportError("matrix products need SciPy, whose BLAS they call: pip install scipy")
    folder = os.path.join(package.submodule_search_locations[0], "linalg")
    spec = importlib.machinery.PathFinder.find_spec(name, [folder])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cdef int need_blas() except -1:
    if gemm_pointers[0] != NULL:
        return 0
    table = load_blas().__pyx_capi__
    for name, kind in (("zgemm", GEMM_C128), ("cgemm", GEMM_C64), ("dgemm", GEMM_F64), ("sgemm", GEMM_F32)):
        capsule = table[name]
        gemm_pointers[<int>kind] = <GemmFunction>PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))
    return 0


cdef void run_gemm(GemmData* g, void** table) noexcept nogil:
    """Row-major C = A B is column-major C' = B' A', so BLAS gets the operands in the other order."""
    cdef char* a = <char*>table[g.a.buffer] + g.a.offset
    cdef char* b = <char*>table[g.b.buffer] + g.b.offset
    cdef char* c = <char*>table[g.c.buffer] + g.c.offset
    if g.m == 0 or g.n == 0:
        return
    gemm_batch(g, 0, a, b, c)


cdef void gemm_batch(GemmData* g, int axis, char* a, char* b, char* c) noexcept nogil:
    cdef int64_t i, d = g.ndim
    cdef bint single = g.kind == GEMM_F32 or g.kind == GEMM_C64
    if axis == d:
        gemm_pointers[g.kind](&g.transb, &g.transa, &g.n, &g.m, &g.k,
                              <void*>ONE_SINGLE if single else <void*>ONE_DOUBLE,
                              b, &g.ldb, a, &g.lda, g.beta, c, &g.ldc)
        return
    for i in range(g.batch[axis]):
        gemm_batch(g, axis + 1, a + i * g.batch[d + axis], b + i * g.batch[2 * d + axis],
                   c + i * g.batch[3 * d + axis])


# ---- communication ---------------------------------------------------------------------------------------------------

cdef CommFunction* comm_table = NULL
COMM_NAMES = {
    "allreduce": COMM_ALLREDUCE, "reduce": COMM_REDUCE, "bcast": COMM_BCAST, "allgather": COMM_ALLGATHER,
    "gather": COMM_GATHER, "scatter": COMM_SCATTER, "alltoall": COMM_ALLTOALL,
    "reduce_scatter": COMM_REDUCE_SCATTER, "scan": COMM_SCAN, "exscan": COMM_EXSCAN, "send": COMM_SEND,
    "recv": COMM_RECV, "sendrecv": COMM_SENDRECV, "barrier": COMM_BARRIER,
}


def set_comm_table(capsule):
    """Takes the communication functions from a capsule named "mpijax.comm_table"."""
    global comm_table
    comm_table = <CommFunction*>PyCapsule_GetPointer(capsule, "mpijax.comm_table")


cdef int need_comm() except -1:
    if comm_table == NULL:
        from mpijax.runtime import mpi_start
        set_comm_table(mpi_start.start().ext.comm_table)
    return 0


cdef int raise_comm(Program program, CommData* data, int code) except -1:
    name = list(COMM_NAMES)[list(COMM_NAMES.values()).index(data.args.op)]
    where = program.comm_lines[data.args.line]
    shims = sys.modules.get("mpijax._ext.mpi")
    text = f"error code {code}" if shims is None else shims.error_message(code)
    raise RuntimeError(f"MPI reports from {name} ({data.args.sendcount} elements to send, "
                       f"{data.args.recvcount} to receive): {text}" + (f"\nat {where}" if where else ""))


# ---- running ---------------------------------------------------------------------------------------------------------

cdef inline char* at(void** table, Place p) noexcept nogil:
    return <char*>table[p.buffer] + p.offset


cdef int execute(Program program, void** table) except -1 nogil:
    """Walks the instructions. `table`: the run's words, as `Program` lays them out."""
    cdef Instruction* start = program.instructions
    cdef Instruction* i = start
    cdef int64_t* counters = <int64_t*>(table + program.num_buffers + program.num_outputs)
    cdef void** ptrs = <void**>(counters + program.num_counters)
    cdef KernelData* kernel
    cdef MoveData* move
    cdef BranchData* branch
    cdef CountData* count
    cdef PointerData* pointer
    cdef CommData* comm
    cdef CommArgs args
    cdef int32_t j, number
    cdef int rc
    cdef void* word
    while True:
        if i.op == KERNEL:
            kernel = <KernelData*>i.data
            for j in range(kernel.num_places):
                ptrs[j] = at(table, kernel.places[j])
            if kernel.extent < 2 * kernel.grain:
                kernel.fn(ptrs, kernel.params, 0, kernel.extent)
            else:
                mt_run(kernel.fn, ptrs, kernel.params, kernel.extent, kernel.grain)
        elif i.op == END:
            return 0
        elif i.op == GEMM:
            run_gemm(<GemmData*>i.data, table)
        elif i.op == COPY:
            move = <MoveData*>i.data
            memmove(at(table, move.target), at(table, move.origin), move.nbytes)
        elif i.op == FILL:
            run_fill(<FillData*>i.data, table)
        elif i.op == COMM:
            comm = <CommData*>i.data
            args = comm.args
            args.sendbuf = at(table, comm.send) if comm.send.buffer >= 0 else NULL
            args.recvbuf = at(table, comm.recv) if comm.recv.buffer >= 0 else NULL
            rc = comm.call(&args)
            if rc != 0:
                with gil:
                    raise_comm(program, comm, rc)
        elif i.op == HOST_CALL:
            with gil:
                call_host(<HostData*>i.data, table)
        elif i.op == JUMP:
            i = start + i.jump
            continue
        elif i.op == JUMP_UNLESS:
            branch = <BranchData*>i.data
            if at(table, branch.place)[0] == 0:
                i = start + i.jump
                continue
        elif i.op == JUMP_TABLE:
            branch = <BranchData*>i.data
            number = (<int32_t*>at(table, branch.place))[0]
            number = 0 if number < 0 else branch.count - 1 if number >= branch.count else number
            i = start + branch.targets[number]
            continue
        elif i.op == COUNT_START:
            count = <CountData*>i.data
            counters[count.counter] = count.count
            if count.count <= 0:
                i = start + i.jump
                continue
        elif i.op == COUNT_NEXT:
            count = <CountData*>i.data
            counters[count.counter] -= 1
            if counters[count.counter] > 0:
                i = start + i.jump
                continue
        elif i.op == ADVANCE:
            pointer = <PointerData*>i.data
            table[pointer.first] = <char*>table[pointer.first] + pointer.nbytes
        elif i.op == SWAP:
            pointer = <PointerData*>i.data
            word = table[pointer.first]
            table[pointer.first] = table[pointer.second]
            table[pointer.second] = word
        i += 1


cdef void run_fill(FillData* f, void** table) noexcept nogil:
    cdef char* target = at(table, f.target)
    cdef size_t done
    if f.width == 1:
        memset(target, f.pattern[0], f.nbytes)
        return
    done = f.width if f.width < f.nbytes else f.nbytes
    memcpy(target, f.pattern, done)
    while done < f.nbytes:      # double what is there
        memcpy(target + done, target, done if 2 * done <= f.nbytes else f.nbytes - done)
        done = 2 * done


cdef extern from *:
    """
    #include <numpy/arrayobject.h>
    static PyObject *mj_view(PyObject *dtype, PyObject *shape, void *data, int writeable) {
        npy_intp dims[NPY_MAXDIMS];
        int n = (int)PyTuple_GET_SIZE(shape);
        if (n > NPY_MAXDIMS) return PyErr_Format(PyExc_ValueError, "NumPy arrays have at most %d axes", NPY_MAXDIMS);
        for (int i = 0; i < n; i++) dims[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, i));
        Py_INCREF(dtype);
        return PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)dtype, n, dims, NULL, data,
                                    NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | (writeable ? NPY_ARRAY_WRITEABLE : 0),
                                    NULL);
    }
    """
    object mj_view(object dtype, tuple shape, void* data, bint writeable)


cdef int call_host(HostData* data, void** table) except -1:
    """Calls the function of a HostCall on ndarrays over the buffers and stores what it returns."""
    call = <object>data.instruction
    cdef int i = 0
    cdef list arguments = [], targets = []
    for view in call.inputs:
        array = mj_view(view.dtype, view.shape, at(table, data.places[i]), False)
        arguments.append(array.copy() if call.keeps else array)
        i += 1
    for view in call.outputs:
        targets.append(mj_view(view.dtype, view.shape, at(table, data.places[i]), True))
        i += 1
    if call.in_place:
        call.fun(*arguments, *targets)
        return 0
    returned = call.fun(*arguments)
    if not isinstance(returned, (list, tuple)):
        returned = [returned]
    if len(returned) != len(targets):
        raise ValueError(f"{call.fun} returned {len(returned)} arrays, expected {len(targets)}")
    for target, value in zip(targets, returned):
        value = np.asarray(value)
        if value.shape != target.shape or value.dtype != target.dtype:
            raise ValueError(f"{call.fun} returned {value.dtype}{list(value.shape)}, "
                             f"expected {target.dtype}{list(target.shape)}")
        target[...] = value
    return 0


# ---- the program -----------------------------------------------------------------------------------------------------

@cython.final
@cython.no_gc_clear
cdef class Program:
    """A loaded `ProgramSpec`; `run(args)` gives the list of results."""

    def __init__(self, spec):
        if self.spec is not None:
            raise RuntimeError("a Program is loaded once")
        self.spec = spec
        self.keep = []
        self.comm_lines = []
        self.num_inputs = spec.num_inputs
        self.num_results = len(spec.results)
        self.release_gil = spec.release_gil
        self.pins = spec.release_gil
        self.arena_class = block_class(spec.arena) if spec.arena > 0 else -1
        self.load_buffers(spec.buffers)
        self.load_results(spec.results)
        self.load_instructions(spec.instructions)
        self.table_words = self.num_buffers + self.num_outputs + self.num_counters + self.max_places

    def run(self, list args not None):
        """Runs on arrays (or C-contiguous ndarrays of exactly the argument types); gives the list of result arrays."""
        cdef PyObject* few[STACK_WORDS]
        cdef PyObject** results = few
        cdef Py_ssize_t k
        cdef list returned
        if PyList_GET_SIZE(args) != self.num_inputs:
            raise TypeError(f"{self.spec.name} takes {self.num_inputs} arguments, got {len(args)}")
        if self.num_results > STACK_WORDS:
            results = <PyObject**>malloc(self.num_results * sizeof(PyObject*))
            if results == NULL:
                raise MemoryError
        try:
            self.run_into((<PyListObject*>args).ob_item, results)
            returned = PyList_New(self.num_results)
            for k in range(self.num_results):
                hand_over(returned, k, results[k])
        finally:
            if results != few:
                free(results)
        return returned

    cdef int run_into(self, PyObject** args, PyObject** results) except -1:
        cdef void* few[STACK_WORDS]
        cdef void** table = few
        cdef PyObject** made
        cdef InputEntry* inputs = <InputEntry*>self.inputs
        cdef TempEntry* temps = <TempEntry*>self.temps
        cdef AliasEntry* aliases = <AliasEntry*>self.aliases
        cdef char* arena = NULL
        cdef int num_made = 0, j
        cdef Py_ssize_t i
        cdef bint pinned = False
        if self.table_words > STACK_WORDS:
            table = <void**>malloc(self.table_words * sizeof(void*))
            if table == NULL:
                raise MemoryError
        made = <PyObject**>(table + self.num_buffers)
        memcpy(table, self.template, self.num_buffers * sizeof(void*))
        try:
            for i in range(self.num_inputs):
                if not is_array(args[i]) or (<ArrayBase>args[i]).flags & DELETED:
                    table[inputs[i].buffer] = unusual_input(self, i, args[i])
                else:
                    table[inputs[i].buffer] = (<ArrayBase>args[i]).ptr
            if self.donates:
                check_donations(self, args)
            for j in range(self.num_outputs):
                made[j] = make_output(&(<OutputEntry*>self.outputs)[j], args, table)
                num_made = j + 1
                table[(<OutputEntry*>self.outputs)[j].buffer] = (<ArrayBase>made[j]).ptr
            if self.arena_class >= 0:
                arena = <char*>allocate(self.arena_class)
                for j in range(self.num_temps):
                    table[temps[j].buffer] = arena + temps[j].offset
            for j in range(self.num_aliases):
                table[aliases[j].buffer] = at(table, aliases[j].place)
            if self.pins:
                pin(args, self.num_inputs)
                pinned = True
            if self.release_gil:
                with nogil:
                    execute(self, table)
            else:
                execute(self, table)
            give_results(self, args, made, results)
        finally:
            if pinned:
                unpin(args, self.num_inputs)
            if arena != NULL:
                release(arena, self.arena_class)
            if self.donates:
                finish_donations(self, args, num_made)
            for j in range(num_made):
                Py_DECREF(<object>made[j])
            if table != few:
                free(table)
        return 0

    # ---- loading ----

    cdef void* block(self, size_t size) except NULL:
        """Zeroed memory that lives as long as the program."""
        cdef bytes memory = PyBytes_FromStringAndSize(NULL, max(size, 1))
        self.keep.append(memory)
        memset(PyBytes_AS_STRING(memory), 0, size)
        return <void*>PyBytes_AS_STRING(memory)

    cdef PyObject* hold(self, object x) except? NULL:
        """A pointer to an object that lives as long as the program; NULL for None."""
        if x is None:
            return NULL
        self.keep.append(x)
        return <PyObject*>x

    cdef int fill_place(self, Place* place, object ref) except -1:
        if not 0 <= ref.buffer < self.num_buffers:
            raise IndexError(f"{ref}: the program has {self.num_buffers} buffers")
        place.buffer = ref.buffer
        place.offset = ref.offset
        return 0

    cdef int load_buffers(self, buffers) except -1:
        cdef int number
        cdef Py_ssize_t i
        cdef InputEntry* inputs
        cdef OutputEntry* output
        cdef TempEntry* temp
        cdef AliasEntry* alias
        kinds = [type(entry).__name__ for entry in buffers]
        unread = len(buffers)                   # one word more: where the pointers of unread arguments go
        self.num_buffers = unread + 1
        self.template = <void**>self.block(self.num_buffers * sizeof(void*))
        self.inputs = inputs = <InputEntry*>self.block(self.num_inputs * sizeof(InputEntry))
        self.outputs = self.block(kinds.count("Output") * sizeof(OutputEntry))
        self.temps = self.block(kinds.count("Temp") * sizeof(TempEntry))
        self.aliases = self.block(kinds.count("Alias") * sizeof(AliasEntry))
        for i in range(self.num_inputs):
            inputs[i].buffer = unread
            inputs[i].nbytes = -1
        for number, (kind, entry) in enumerate(zip(kinds, buffers)):
            if kind == "Input":
                if not 0 <= entry.index < self.num_inputs:
                    raise IndexError(f"{entry}: the program has {self.num_inputs} arguments")
                i = entry.index
                inputs[i].buffer = number
                inputs[i].nbytes = entry.nbytes
            elif kind == "Output":
                output = &(<OutputEntry*>self.outputs)[self.num_outputs]
                output.buffer = number
                output.donor = entry.donor
                output.nbytes = entry.nbytes
                output.aval = self.hold(entry.aval)
                output.sharding = self.hold(entry.sharding)
                if not -1 <= entry.donor < self.num_inputs:
                    raise IndexError(f"{entry}: the program has {self.num_inputs} arguments")
                self.donates |= entry.donor >= 0
                self.num_outputs += 1
            elif kind == "Temp":
                temp = &(<TempEntry*>self.temps)[self.num_temps]
                temp.buffer = number
                temp.offset = entry.offset
                self.num_temps += 1
            elif kind == "Alias":
                alias = &(<AliasEntry*>self.aliases)[self.num_aliases]
                alias.buffer = number
                self.fill_place(&alias.place, entry.ref)
                self.num_aliases += 1
            elif kind == "Const":
                self.template[number] = self.const_pointer(entry.value)
            else:
                raise TypeError(f"not an entry of the buffer table: {entry!r}")
        return 0

    cdef void* const_pointer(self, value) except? NULL:
        self.hold(value)
        if isinstance(value, ArrayBase):
            if (<ArrayBase>value).flags & DELETED:
                raise_deleted(<PyObject*>value)
            (<ArrayBase>value).uses += 1         # stays although the user deletes the array
            return (<ArrayBase>value).ptr
        value = np.asarray(value, order="C")
        self.hold(value)
        return cnp.PyArray_DATA(value)

    cdef int load_results(self, results) except -1:
        cdef ResultEntry* entry
        cdef Py_ssize_t k
        self.results = self.block(self.num_results * sizeof(ResultEntry))
        output_numbers = [i for i, b in enumerate(self.spec.buffers) if type(b).__name__ == "Output"]
        for k, result in enumerate(results):
            entry = &(<ResultEntry*>self.results)[k]
            entry.aval = self.hold(result.aval)
            entry.sharding = self.hold(result.sharding)
            if result.kind == "buffer":
                entry.kind = RESULT_OUTPUT
                entry.index = output_numbers.index(result.index)
                output = self.spec.buffers[result.index]
                entry.same_type = output.aval is result.aval and output.sharding is result.sharding
            elif result.kind == "input":
                entry.kind = RESULT_INPUT
                entry.index = result.index
            elif result.kind == "const":
                entry.kind = RESULT_CONST
                value = self.spec.buffers[result.index].value
                if isinstance(value, ArrayBase):
                    value = rewrap(value, result.aval, result.sharding)
                else:
                    value = from_numpy(np.asarray(value), result.aval, True, result.sharding)
                entry.const_array = self.hold(value)
            else:
                raise ValueError(f"not a kind of result: {result}")
        return 0

    cdef int load_instructions(self, instructions) except -1:
        cdef list code = []
        cdef Py_ssize_t i
        self.flatten(instructions, code)
        code.append([<int>END, 0, 0])
        self.instructions = <Instruction*>self.block(len(code) * sizeof(Instruction))
        for i, (op, data, jump) in enumerate(code):
            self.instructions[i].op = op
            self.instructions[i].data = <void*><size_t>data
            self.instructions[i].jump = jump
        return 0

    cdef int flatten(self, instructions, list code) except -1:
        """Appends [opcode, address of its data, target] for each instruction; control flow becomes jumps."""
        for x in instructions:
            kind = type(x).__name__
            if kind == "Loop":
                self.flatten_loop(x, code)
            elif kind == "While":
                self.flatten_while(x, code)
            elif kind == "Switch":
                self.flatten_switch(x, code)
            else:
                code.append(self.straight(kind, x))
        return 0

    cdef int flatten_loop(self, x, list code) except -1:
        cdef CountData* data = <CountData*>self.block(sizeof(CountData))
        data.counter = self.num_counters
        data.count = x.count
        self.num_counters += 1
        begin = [<int>COUNT_START, <size_t>data, 0]
        code.append(begin)
        first = len(code)
        self.flatten(x.body, code)
        code.append([<int>COUNT_NEXT, <size_t>data, first])
        begin[2] = len(code)
        return 0

    cdef int flatten_while(self, x, list code) except -1:
        cdef BranchData* data = <BranchData*>self.block(sizeof(BranchData))
        self.fill_place(&data.place, x.flag)
        first = len(code)
        self.flatten(x.cond, code)
        leave = [<int>JUMP_UNLESS, <size_t>data, 0]
        code.append(leave)
        self.flatten(x.body, code)
        code.append([<int>JUMP, 0, first])
        leave[2] = len(code)
        return 0

    cdef int flatten_switch(self, x, list code) except -1:
        cdef BranchData* data = <BranchData*>self.block(sizeof(BranchData))
        cdef int j
        self.fill_place(&data.place, x.index)
        data.count = len(x.branches)
        data.targets = <int32_t*>self.block(data.count * sizeof(int32_t))
        if data.count == 0:
            raise ValueError("Switch: no branches")
        code.append([<int>JUMP_TABLE, <size_t>data, 0])
        leaves = []
        for j, branch in enumerate(x.branches):
            data.targets[j] = len(code)
            self.flatten(branch, code)
            leave = [<int>JUMP, 0, 0]
            leaves.append(leave)
            code.append(leave)
        for leave in leaves:
            leave[2] = len(code)
        return 0

    cdef list straight(self, kind, x):
        if kind == "Kernel":
            return [<int>KERNEL, self.kernel_data(x), 0]
        if kind == "Gemm":
            return [<int>GEMM, self.gemm_data(x), 0]
        if kind == "Copy":
            return [<int>COPY, self.copy_data(x), 0]
        if kind == "Fill":
            return [<int>FILL, self.fill_data(x), 0]
        if kind == "Comm":
            return [<int>COMM, self.comm_data(x), 0]
        if kind == "HostCall":
            self.pins = True
            return [<int>HOST_CALL, self.host_data(x), 0]
        if kind == "Advance":
            return [<int>ADVANCE, self.pointer_data(x.buffer, x.buffer, x.nbytes), 0]
        if kind == "Swap":
            return [<int>SWAP, self.pointer_data(x.first, x.second, 0), 0]
        raise TypeError(f"not an instruction: {x!r}")

    cdef size_t kernel_data(self, x) except 0:
        cdef KernelData* data = <KernelData*>self.block(sizeof(KernelData))
        cdef Py_ssize_t j, n = len(x.ptrs)
        if x.address == 0:
            raise ValueError(f"kernel without an address: {x}")
        data.fn = <mt_kernel><size_t>x.address
        data.extent = x.extent
        data.grain = max(x.grain, 1)
        data.params = <int64_t*>self.block(len(x.params) * sizeof(int64_t))
        for j in range(len(x.params)):
            data.params[j] = x.params[j]
        data.num_places = n
        data.places = <Place*>self.block(n * sizeof(Place))
        for j in range(n):
            self.fill_place(&data.places[j], x.ptrs[j])
        self.max_places = max(self.max_places, n)
        return <size_t>data

    cdef size_t gemm_data(self, x) except 0:
        cdef GemmData* data = <GemmData*>self.block(sizeof(GemmData))
        cdef int d = len(x.batch), axis
        dtype = np.dtype(x.dtype)
        if dtype.name not in GEMM_KINDS:
            raise TypeError(f"Gemm: BLAS has float32, float64, complex64 and complex128, not {dtype}")
        if x.trans_a not in ("N", "T", "C") or x.trans_b not in ("N", "T", "C"):
            raise ValueError(f"Gemm: trans is 'N', 'T' or 'C', got {x.trans_a!r} and {x.trans_b!r}")
        if not d == len(x.a_strides) == len(x.b_strides) == len(x.c_strides):
            raise ValueError(f"Gemm: a stride is needed for each of {d} batch axes: {x}")
        if max(x.m, x.n, x.k, x.lda, x.ldb, x.ldc) > 0x7fffffff:
            raise ValueError(f"Gemm: BLAS counts in 32 bits, too small for {x.m} x {x.n} x {x.k}")
        need_blas()
        data.kind = GEMM_KINDS[dtype.name]
        data.transa, data.transb = <char>ord(x.trans_a), <char>ord(x.trans_b)
        data.m, data.n, data.k = x.m, x.n, x.k
        data.lda, data.ldb, data.ldc = max(x.lda, 1), max(x.ldb, 1), max(x.ldc, 1)
        self.fill_place(&data.a, x.a)
        self.fill_place(&data.b, x.b)
        self.fill_place(&data.c, x.c)
        data.ndim = d
        data.batch = <int64_t*>self.block(4 * d * sizeof(int64_t))
        for axis in range(d):
            data.batch[axis] = x.batch[axis]
            data.batch[d + axis] = x.a_strides[axis] * dtype.itemsize
            data.batch[2 * d + axis] = x.b_strides[axis] * dtype.itemsize
            data.batch[3 * d + axis] = x.c_strides[axis] * dtype.itemsize
        beta = np.array(x.beta, dtype)
        memcpy(data.beta, cnp.PyArray_DATA(beta), dtype.itemsize)
        return <size_t>data

    cdef size_t copy_data(self, x) except 0:
        cdef MoveData* data = <MoveData*>self.block(sizeof(MoveData))
        self.fill_place(&data.target, x.target)
        self.fill_place(&data.origin, x.origin)
        data.nbytes = x.nbytes
        return <size_t>data

    cdef size_t fill_data(self, x) except 0:
        cdef FillData* data = <FillData*>self.block(sizeof(FillData))
        cdef bytes pattern = bytes(x.pattern)
        cdef int width = len(pattern)
        if not 1 <= width <= 16 or x.nbytes % width:
            raise ValueError(f"Fill: a pattern of {width} bytes for {x.nbytes} bytes")
        if pattern == pattern[:1] * width:
            width = 1
        self.fill_place(&data.target, x.target)
        data.nbytes = x.nbytes
        data.width = width
        memcpy(data.pattern, PyBytes_AS_STRING(pattern), width)
        return <size_t>data

    cdef size_t comm_data(self, x) except 0:
        cdef CommData* data = <CommData*>self.block(sizeof(CommData))
        if x.op not in COMM_NAMES:
            raise ValueError(f"Comm: no operation {x.op!r}; there are {', '.join(COMM_NAMES)}")
        need_comm()
        data.args.op = COMM_NAMES[x.op]
        data.call = comm_table[data.args.op]
        data.args.comm, data.args.mpi_op = x.comm, x.mpi_op
        data.args.sendcount, data.args.recvcount = x.sendcount, x.recvcount
        data.args.sendtype, data.args.recvtype = x.sendtype, x.recvtype
        data.args.root, data.args.source, data.args.dest = x.root, x.source, x.dest
        data.args.sendtag, data.args.recvtag = x.sendtag, x.recvtag
        data.args.line = len(self.comm_lines)
        self.comm_lines.append(x.source_line)
        data.send.buffer = data.recv.buffer = -1
        if x.send is not None:
            self.fill_place(&data.send, x.send)
        if x.recv is not None:
            self.fill_place(&data.recv, x.recv)
        return <size_t>data

    cdef size_t host_data(self, x) except 0:
        cdef HostData* data = <HostData*>self.block(sizeof(HostData))
        cdef Py_ssize_t j
        views = (*x.inputs, *x.outputs)
        data.instruction = self.hold(x)
        data.places = <Place*>self.block(len(views) * sizeof(Place))
        for j in range(len(views)):
            self.fill_place(&data.places[j], views[j].ref)
        return <size_t>data

    cdef size_t pointer_data(self, first, second, nbytes) except 0:
        cdef PointerData* data = <PointerData*>self.block(sizeof(PointerData))
        for number in (first, second):
            if not 0 <= number < self.num_buffers:
                raise IndexError(f"buffer {number}: the program has {self.num_buffers} buffers")
        data.first, data.second, data.nbytes = first, second, nbytes
        return <size_t>data


# ---- steps of a run --------------------------------------------------------------------------------------------------

cdef extern from "Python.h":
    ctypedef struct PyListObject:
        PyObject** ob_item


cdef inline int hand_over(list target, Py_ssize_t k, PyObject* op) except -1:
    """Puts an object into a new list, which takes the caller's reference."""
    PyList_SET_ITEM(target, k, <object>op)
    return 0


cdef void* unusual_input(Program program, Py_ssize_t i, PyObject* arg) except? NULL:
    """The memory of an argument that is not a living array of the registered class: an ndarray, or an error."""
    cdef InputEntry* entry = &(<InputEntry*>program.inputs)[i]
    x = <object>arg
    if isinstance(x, ArrayBase):
        if (<ArrayBase>x).flags & DELETED:
            raise_deleted(arg)
        return (<ArrayBase>x).ptr
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{program.spec.name}: argument {i} must be an array, got {type(x).__name__}")
    if not cnp.PyArray_IS_C_CONTIGUOUS(x) or not cnp.PyArray_ISALIGNED(x):
        raise ValueError(f"{program.spec.name}: argument {i} must be C-contiguous and aligned")
    if 0 <= entry.nbytes != cnp.PyArray_NBYTES(x):
        raise ValueError(f"{program.spec.name}: argument {i} must have {entry.nbytes} bytes, "
                         f"got {x.dtype}{list(x.shape)}")
    return cnp.PyArray_DATA(x)


cdef int check_donations(Program program, PyObject** args) except -1:
    """A donated array may be given once only: its memory is about to hold something else."""
    cdef OutputEntry* outputs = <OutputEntry*>program.outputs
    cdef Py_ssize_t i
    cdef int j
    for j in range(program.num_outputs):
        if outputs[j].donor < 0:
            continue
        for i in range(program.num_inputs):
            if i != outputs[j].donor and args[i] == args[outputs[j].donor] and is_array(args[i]):
                from mpijax.core.errors import JaxRuntimeError
                raise JaxRuntimeError(
                    f"INVALID_ARGUMENT: Attempt to use a buffer that was donated in the same call: arguments {i} and "
                    f"{outputs[j].donor} of {program.spec.name} are the same array, and one of them is donated, as in "
                    "`f(donate(a), a)`. Pass a copy of it."
                )
    return 0


cdef inline PyObject* make_output(OutputEntry* entry, PyObject** args, void** table) except NULL:
    cdef PyObject* op
    cdef PyObject* donor
    if entry.donor < 0:
        return new_array(entry.aval, entry.nbytes, entry.sharding)
    donor = args[entry.donor]
    if is_array(donor):
        op = take_memory(donor, entry.aval, entry.nbytes, entry.sharding)
        if op != NULL:
            return op
    return copy_of_donor(entry, donor)


cdef PyObject* copy_of_donor(OutputEntry* entry, PyObject* donor) except NULL:
    """For memory that cannot be taken over: the same bytes in new memory."""
    cdef PyObject* op = new_array(entry.aval, entry.nbytes, entry.sharding)
    cdef void* origin
    cdef size_t nbytes = <object>(<object>donor).nbytes
    if isinstance(<object>donor, ArrayBase):
        origin = (<ArrayBase>donor).ptr
    else:
        origin = cnp.PyArray_DATA(<object>donor)
    memcpy((<ArrayBase>op).ptr, origin, min(nbytes, <size_t>entry.nbytes))
    return op


cdef int finish_donations(Program program, PyObject** args, int num_made) except -1:
    """Donated arrays whose memory was not taken over are deleted like the others."""
    cdef OutputEntry* outputs = <OutputEntry*>program.outputs
    cdef int j
    for j in range(num_made):
        if outputs[j].donor >= 0 and is_array(args[outputs[j].donor]):
            delete_array(args[outputs[j].donor])
    return 0


cdef void pin(PyObject** args, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    for i in range(n):
        if is_array(args[i]):
            Py_INCREF(<object>args[i])
            (<ArrayBase>args[i]).uses += 1


cdef void unpin(PyObject** args, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    for i in range(n):
        if is_array(args[i]):
            end_use(args[i])
            Py_DECREF(<object>args[i])


cdef inline int give_results(Program program, PyObject** args, PyObject** made, PyObject** results) except -1:
    cdef ResultEntry* entry = <ResultEntry*>program.results
    cdef Py_ssize_t k, done
    for k in range(program.num_results):
        if entry[k].kind == RESULT_OUTPUT and entry[k].same_type:
            results[k] = made[entry[k].index]
            Py_INCREF(<object>results[k])
            continue
        try:
            results[k] = other_result(&entry[k], args, made)
        except BaseException:
            for done in range(k):
                Py_DECREF(<object>results[done])
            raise
    return 0


cdef PyObject* other_result(ResultEntry* entry, PyObject** args, PyObject** made) except NULL:
    """A new reference to a result that is an argument, a constant, or a buffer as another type."""
    aval = <object>entry.aval
    sharding = None if entry.sharding == NULL else <object>entry.sharding
    if entry.kind == RESULT_CONST:
        x = <object>entry.const_array
        if (<ArrayBase>x).flags & DELETED:
            raise_deleted(entry.const_array)
    else:
        x = <object>(made[entry.index] if entry.kind == RESULT_OUTPUT else args[entry.index])
        if not isinstance(x, ArrayBase):
            x = from_numpy(x, aval, True, sharding)
        elif (<ArrayBase>x).aval != entry.aval or (<ArrayBase>x).sharding != entry.sharding:
            x = rewrap(x, aval, sharding)
    Py_INCREF(x)
    return <PyObject*>x
