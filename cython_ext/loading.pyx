# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Loads a `ProgramSpec` (mpijax/runtime/machine/executable.py) into the C structures that the executor walks.

Control flow becomes jumps. Loading checks everything that could make a run read or write out of bounds.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

import numpy as np

cimport numpy as cnp

from mpijax._ext.array cimport DELETED, ArrayBase, block_class, raise_deleted
from mpijax._ext.comm cimport CommFunction, CommHalves
from mpijax._ext.executor cimport Program, set_gemm_library, strided_address
from mpijax._ext.instructions cimport (
    GOING, OP_ADVANCE, OP_COMM, OP_COMM_FINISH, OP_COMM_START, OP_COPY, OP_COUNT_NEXT, OP_COUNT_START, OP_END, OP_FILL,
    OP_FOREIGN, OP_GEMM, OP_HOST_CALL, OP_JUMP, OP_JUMP_TABLE, OP_JUMP_UNLESS, OP_KERNEL, OP_POINT, OP_RESUMABLE,
    OP_SWAP, OP_TIME_TILES, RESULT_CONST, RESULT_INPUT, RESULT_OUTPUT,
    BranchData, CommData, CopyData, CountData, FillData, GemmData, GemmFunction, HostData,
    InputEntry, Instruction, KernelData, KernelFunction, OutputEntry, Place, PointData, PointerData, ResultEntry,
    RowsData, TempEntry, TilesData, tt_call,
)

from mpijax._ext.array import from_numpy, rewrap
from mpijax.core.base import provided

cnp.import_array()

cdef extern from "denormals.h":
    uint64_t DN_FLUSH

cdef extern from *:
    """
    /* Other threads may be running the program. */
    #define mj_set_code(kernel, code) __atomic_store_n(&(kernel)->call, (code), __ATOMIC_RELEASE)
    """
    void set_code "mj_set_code"(KernelData* kernel, KernelFunction code) nogil

FLOAT0 = np.dtype([("float0", np.void, 0)])


# ---- libraries ----

BLAS_NAMES = {"float32": "sgemm", "float64": "dgemm", "complex64": "cgemm", "complex128": "zgemm"}
cdef object blas_addresses, blas_thread_functions
cdef dict blas_table = None
cdef CommFunction* comm_table = NULL
cdef CommHalves* comm_halves = NULL
cdef object comm_codes = None
cdef object note_site = None


cdef enum:                  # of matrix products
    GEMM_LEAST_WORK = 524288    # minimum multiplications per thread: about 10 µs
    GEMM_PART = 32          # rows or columns of the result in one part: a multiple of BLAS's blocks in registers
    GEMM_STACK = 16         # in a stack of so many matrices, each is one part


cdef GemmFunction blas_function(name) except NULL:
    global blas_table
    if blas_table is None:
        blas_table = blas_addresses()
        get, set_ = blas_thread_functions()
        set_gemm_library(get, set_)
    return <GemmFunction><size_t>blas_table[BLAS_NAMES[name]]


cdef int need_comm() except -1:
    """Starts MPI, and loads the communication functions."""
    global comm_table, comm_halves, comm_codes, note_site
    if comm_table == NULL:
        shims = provided.start().ext
        comm_codes, note_site = shims.CODES, provided.note_site
        comm_halves = <CommHalves*>PyCapsule_GetPointer(shims.comm_halves, "mpijax.comm_halves")
        comm_table = <CommFunction*>PyCapsule_GetPointer(shims.comm_table, "mpijax.comm_table")
    return 0


# ---- memory of a program ----

cdef void* block(Program p, size_t size) except NULL:
    """Zeroed memory that lives as long as the program."""
    cdef bytes memory = PyBytes_FromStringAndSize(NULL, max(size, <size_t>1))
    p.keep.append(memory)
    memset(PyBytes_AS_STRING(memory), 0, size)
    return <void*>PyBytes_AS_STRING(memory)


cdef PyObject* hold(Program p, object x) except? NULL:
    """A pointer to an object that lives as long as the program; NULL for None."""
    if x is None:
        return NULL
    p.keep.append(x)
    return <PyObject*>x


cdef int fill_place(Program p, Place* place, object ref) except -1:
    if not 0 <= ref.buffer < p.num_buffers:
        raise IndexError(f"{ref}: the program has {p.num_buffers} buffers")
    place.buffer = ref.buffer
    place.offset = ref.offset
    return 0


# ---- buffers and results ----

cdef int load_buffers(Program p, buffers, dict returned) except -1:
    """returned: for each buffer that is a result, that result."""
    cdef int number
    cdef Py_ssize_t i
    cdef OutputEntry* output
    cdef TempEntry* temp
    kinds = [type(entry) for entry in buffers]
    unread = len(buffers)                   # one more word, for the pointers of unread arguments
    p.num_buffers = unread + 1
    p.template = <void**>block(p, p.num_buffers * sizeof(void*))
    p.inputs = <InputEntry*>block(p, p.num_inputs * sizeof(InputEntry))
    p.outputs = <OutputEntry*>block(p, kinds.count(Output) * sizeof(OutputEntry))
    p.temps = <TempEntry*>block(p, kinds.count(Temp) * sizeof(TempEntry))
    for i in range(p.num_inputs):
        p.inputs[i].buffer = unread
        p.inputs[i].nbytes = -1
    for number, (kind, entry) in enumerate(zip(kinds, buffers)):
        if kind is Input:
            if not 0 <= entry.index < p.num_inputs:
                raise IndexError(f"{entry}: the program has {p.num_inputs} arguments")
            i = entry.index
            p.inputs[i].buffer = number
            p.inputs[i].nbytes = entry.nbytes
        elif kind is Output:
            output = &p.outputs[p.num_outputs]
            output.buffer = number
            output.donor = entry.donor
            output.nbytes = entry.nbytes
            if number not in returned:
                raise ValueError(f"{entry}: no result is in this buffer")
            output.aval = hold(p, returned[number].aval)
            output.sharding = hold(p, returned[number].sharding)
            if not -1 <= entry.donor < p.num_inputs:
                raise IndexError(f"{entry}: the program has {p.num_inputs} arguments")
            p.donates |= entry.donor >= 0
            p.num_outputs += 1
        elif kind is Temp:
            temp = &p.temps[p.num_temps]
            temp.buffer = number
            temp.offset = entry.offset
            p.num_temps += 1
        elif kind is Const:
            p.template[number] = const_pointer(p, entry)
        elif kind is not Pointer:
            raise TypeError(f"expected an entry of the buffer table, got {entry!r}")
    return 0


cdef object constant_of(entry):
    """The constant: an array unchanged, or an ndarray in its layout in memory."""
    if isinstance(entry.array, ArrayBase):
        return entry.array
    return np.asarray(entry.array, None if entry.value is None else entry.value.element, order="C")


cdef void* const_pointer(Program p, entry) except? NULL:
    value = constant_of(entry)
    hold(p, value)
    if isinstance(value, ArrayBase):
        if (<ArrayBase>value).flags & DELETED:
            raise_deleted(<PyObject*>value)
        (<ArrayBase>value).uses += 1         # keeps the memory even if the user deletes the array
        return (<ArrayBase>value).ptr
    return cnp.PyArray_DATA(value)


cdef int load_results(Program p, results, dict returned) except -1:
    cdef ResultEntry* entry
    cdef Py_ssize_t k
    p.results = <ResultEntry*>block(p, p.num_results * sizeof(ResultEntry))
    output_numbers = [i for i, b in enumerate(p.spec.buffers) if type(b) is Output]
    for k, result in enumerate(results):
        entry = &p.results[k]
        entry.aval = hold(p, result.aval)
        entry.sharding = hold(p, result.sharding)
        if result.aval.dtype == FLOAT0:        # has no elements: an ndarray, as everywhere
            entry.kind = RESULT_CONST
            entry.const_array = hold(p, np.zeros(result.aval.shape, FLOAT0))
        elif result.kind is ResultKind.BUFFER:
            entry.kind = RESULT_OUTPUT
            entry.index = output_numbers.index(result.index)
            output = returned[result.index]
            entry.same_type = output.aval is result.aval and output.sharding is result.sharding
        elif result.kind is ResultKind.INPUT:
            if not 0 <= result.index < p.num_inputs:
                raise IndexError(f"{result}: the program has {p.num_inputs} arguments")
            entry.kind = RESULT_INPUT
            entry.index = result.index
        elif result.kind is ResultKind.CONST:
            entry.kind = RESULT_CONST
            value = constant_of(p.spec.buffers[result.index])
            if isinstance(value, ArrayBase):
                value = rewrap(value, result.aval, result.sharding)
            else:
                value = from_numpy(value, result.aval, True, result.sharding)
            entry.const_array = hold(p, value)
        else:
            raise ValueError(f"unknown kind of result: {result}")
    return 0


# ---- instructions ----

cdef int load_instructions(Program p, instructions) except -1:
    cdef list code = []
    cdef Py_ssize_t i
    if p.spec.lanes:
        need_comm()
        p.lanes = comm_halves
    flatten(p, instructions, code)
    code.append([<int>OP_END, 0, 0])
    p.instructions = <Instruction*>block(p, len(code) * sizeof(Instruction))
    for i, (op, data, jump) in enumerate(code):
        p.instructions[i].op = op
        p.instructions[i].data = <void*><size_t>data
        p.instructions[i].jump = jump
    return 0


cdef enum Kind:
    IS_LOOP = 1
    IS_WHILE
    IS_SWITCH
    IS_POINT
    IS_ADVANCE
    IS_SWAP
    IS_KERNEL
    IS_GEMM
    IS_COPY
    IS_FILL
    COMPUTES            # those above neither raise nor communicate: they may run during exchanges
    IS_CALL
    IS_FINISH
    IS_PYTHON_CALL
    IS_NATIVE_CALL

cdef dict kind_of = {}      # the Kind of each class of instructions
cdef object Input, Output, Temp, Const, Pointer, ResultKind, SEND, STRIDED


def read_programs_of(dict classes, result_kind, send, str strided, addresses, thread_functions):
    """Sets the classes of instructions and of entries of the table of buffers, by name.

    result_kind: the enum. send: of the routines of MPI, the one that only sends. strided: the name of the kernel that
    moves elements. addresses, thread_functions: give those of BLAS.
    """
    global Input, Output, Temp, Const, Pointer, ResultKind, SEND, STRIDED, blas_addresses, blas_thread_functions
    Input, Output, Temp, Const, Pointer = map(classes.get, ("Input", "Output", "Temp", "Const", "Pointer"))
    ResultKind, SEND = result_kind, send
    STRIDED, blas_addresses, blas_thread_functions = strided, addresses, thread_functions
    for name, kind in (
        ("Loop", IS_LOOP), ("While", IS_WHILE), ("Switch", IS_SWITCH), ("Point", IS_POINT), ("Advance", IS_ADVANCE),
        ("Swap", IS_SWAP), ("KernelCall", IS_KERNEL), ("GemmCall", IS_GEMM), ("Copy", IS_COPY), ("Fill", IS_FILL),
        ("Call", IS_CALL), ("Finish", IS_FINISH), ("PythonCall", IS_PYTHON_CALL), ("NativeCall", IS_NATIVE_CALL),
    ):
        kind_of[classes[name]] = kind


cdef int flatten(Program p, instructions, list code, bint inside=False) except -1:
    """Appends [opcode, address of its data, target] for each instruction; control flow becomes jumps.

    inside: whether an exchange is in progress around all of them.
    """
    cdef int going = 0, kind
    cdef bint starts
    for x in instructions:
        kind = kind_of.get(type(x), 0)
        if kind == 0:
            raise TypeError(f"expected an instruction, got {x!r}")
        starts = kind == IS_CALL and x.carrier.goes_on
        if (going or inside) and kind > COMPUTES and (inside or not (starts or kind == IS_FINISH)):
            raise ValueError(f"{x} must wait until the previous exchange is finished")
        if kind == IS_FINISH and not going:
            raise ValueError("Finish: no exchange is in flight")
        going += starts - (kind == IS_FINISH)
        if going > GOING:
            raise ValueError(f"{x}: at most {GOING} exchanges can be in flight")
        if kind == IS_LOOP and x.tiles is not None and not (inside or going):
            code.append([<int>OP_TIME_TILES, tiles_data(p, x), 0])
        elif kind == IS_LOOP:
            flatten_loop(p, x, code, inside or going)
        elif kind == IS_WHILE:
            flatten_while(p, x, code, inside or going)
        elif kind == IS_SWITCH:
            flatten_switch(p, x, code, inside or going)
        elif kind == IS_NATIVE_CALL:
            flatten(p, x.parts(), code)
        else:
            code.append(straight(p, kind, x))
    if going:
        raise ValueError("an exchange in flight must be finished in the same list of instructions")
    return 0


cdef int flatten_loop(Program p, x, list code, bint goes_on) except -1:
    cdef CountData* data = <CountData*>block(p, sizeof(CountData))
    data.counter = p.num_counters
    data.count = x.count
    p.num_counters += 1
    begin = [<int>OP_COUNT_START, <size_t>data, 0]
    code.append(begin)
    first = len(code)
    flatten(p, x.body, code, goes_on)
    code.append([<int>OP_COUNT_NEXT, <size_t>data, first])
    begin[2] = len(code)
    return 0


cdef int flatten_while(Program p, x, list code, bint goes_on) except -1:
    cdef BranchData* data = <BranchData*>block(p, sizeof(BranchData))
    fill_place(p, &data.place, x.flag)
    first = len(code)
    flatten(p, x.cond, code, goes_on)
    leave = [<int>OP_JUMP_UNLESS, <size_t>data, 0]
    code.append(leave)
    flatten(p, x.body, code, goes_on)
    code.append([<int>OP_JUMP, 0, first])
    leave[2] = len(code)
    return 0


cdef int flatten_switch(Program p, x, list code, bint goes_on) except -1:
    cdef BranchData* data = <BranchData*>block(p, sizeof(BranchData))
    cdef int j
    fill_place(p, &data.place, x.index)
    data.count = len(x.branches)
    data.targets = <int32_t*>block(p, data.count * sizeof(int32_t))
    if data.count == 0:
        raise ValueError("Switch: no branches")
    code.append([<int>OP_JUMP_TABLE, <size_t>data, 0])
    leaves = []
    for j, branch in enumerate(x.branches):
        data.targets[j] = len(code)
        flatten(p, branch, code, goes_on)
        leave = [<int>OP_JUMP, 0, 0]
        leaves.append(leave)
        code.append(leave)
    for leave in leaves:
        leave[2] = len(code)
    return 0


cdef list straight(Program p, int kind, x):
    if kind == IS_KERNEL:
        return [<int>(OP_FOREIGN if x.foreign else OP_RESUMABLE if x.frame else OP_KERNEL), kernel_data(p, x), 0]
    if kind == IS_GEMM:
        return [<int>OP_GEMM, gemm_data(p, x), 0]
    if kind == IS_COPY:
        return [<int>OP_COPY, copy_data(p, x), 0]
    if kind == IS_FILL:
        return [<int>OP_FILL, fill_data(p, x), 0]
    if kind == IS_CALL:
        return [<int>(OP_COMM_START if x.carrier.goes_on else OP_COMM), comm_data(p, x), 0]
    if kind == IS_FINISH:
        return [<int>OP_COMM_FINISH, 0, 0]
    if kind == IS_PYTHON_CALL:
        p.pins = True
        return [<int>OP_HOST_CALL, host_data(p, x), 0]
    if kind == IS_POINT:
        return [<int>OP_POINT, point_data(p, x), 0]
    if kind == IS_ADVANCE:
        return [<int>OP_ADVANCE, pointer_data(p, x.pointer, x.pointer, x.nbytes), 0]
    return [<int>OP_SWAP, pointer_data(p, x.first, x.second, 0), 0]


# ---- the data of each kind of instruction: its address as an integer ----

cdef size_t kernel_data(Program p, x) except 0:
    cdef KernelData* data = <KernelData*>block(p, sizeof(KernelData))
    cdef Py_ssize_t j, n = len(x.ptrs)
    own = x.code == STRIDED
    address = strided_address() if own else p.spec.addresses[x.code] if isinstance(x.code, str) else x.code
    if address == 0:
        raise ValueError(f"the kernel has no address: {x}")
    data.call = <KernelFunction><size_t>address
    if p.kernels is not None and isinstance(x.code, str) and not own:
        p.kernels.append((<size_t>data, x.code))
    data.extent = x.extent
    data.grain = max(x.grain, 1)
    data.params = <int64_t*>block(p, len(x.params) * sizeof(int64_t))
    for j in range(len(x.params)):
        data.params[j] = x.params[j]
    data.num_places = n
    data.places = <Place*>block(p, n * sizeof(Place))
    for j in range(n):
        fill_place(p, &data.places[j], x.ptrs[j])
    p.max_places = max(p.max_places, n + x.frame)
    return <size_t>data


cdef size_t tiles_data(Program p, x) except 0:
    """A loop in time tiles: kernels, then swaps and advances."""
    cdef TilesData* data = <TilesData*>block(p, sizeof(TilesData))
    cdef Py_ssize_t k, words
    kernels = [y for y in x.body if kind_of[type(y)] == IS_KERNEL]
    moves = [y for y in x.body if kind_of[type(y)] in (IS_SWAP, IS_ADVANCE)]
    tiles = x.tiles
    if kernels + moves != list(x.body) or not len(tiles.units) == len(kernels) > 0:
        raise ValueError(f"a tiled loop must contain kernels, then swaps and advances: {x}")
    if not len(tiles.above) == len(tiles.below) == tiles.depth * len(kernels):
        raise ValueError(f"a tiled loop needs distances for each kernel of {tiles.depth} iterations: {x}")
    if min(tiles.depth, tiles.height, *tiles.units) < 1:
        raise ValueError(f"tiles must have at least one iteration and one row: {x}")
    data.count = x.count
    data.kernels = <KernelData**>block(p, len(kernels) * sizeof(KernelData*))
    for k, y in enumerate(kernels):
        data.kernels[k] = <KernelData*>kernel_data(p, y)
        data.num_places += len(y.ptrs)
    data.num_moves = len(moves)
    data.moves = <int32_t*>block(p, len(moves) * sizeof(int32_t))
    data.moved = <PointerData**>block(p, len(moves) * sizeof(PointerData*))
    for k, y in enumerate(moves):
        op, moved, _ = straight(p, kind_of[type(y)], y)
        data.moves[k] = op
        data.moved[k] = <PointerData*><size_t>moved
    data.num_starts = len(tiles.starts)
    data.starts = <PointData**>block(p, len(tiles.starts) * sizeof(PointData*))
    for k, y in enumerate(tiles.starts):
        data.starts[k] = <PointData*>point_data(p, y)
    data.tiles.rows, data.tiles.depth, data.tiles.height = tiles.rows, tiles.depth, tiles.height
    data.tiles.calls, data.tiles.wraps = len(kernels), tiles.wraps
    data.tiles.units = integers(p, tiles.units)
    data.tiles.above, data.tiles.below = integers(p, tiles.above), integers(p, tiles.below)
    words = len(kernels) * sizeof(tt_call) // sizeof(void*) + tiles.depth * data.num_places + data.num_starts
    p.max_places = max(p.max_places, words)
    return <size_t>data


cdef int64_t* integers(Program p, values) except NULL:
    cdef int64_t* found = <int64_t*>block(p, len(values) * sizeof(int64_t))
    cdef Py_ssize_t k
    for k, n in enumerate(values):
        found[k] = n
    return found


cdef size_t gemm_data(Program p, x) except 0:
    cdef GemmData* data = <GemmData*>block(p, sizeof(GemmData))
    cdef int d = len(x.batch), axis
    cdef int64_t longer, work
    dtype = np.dtype(x.dtype)
    if dtype.name not in BLAS_NAMES:
        raise TypeError(f"Gemm: BLAS supports float32, float64, complex64 and complex128, got {dtype}")
    if x.trans_a not in ("N", "T") or x.trans_b not in ("N", "T"):
        raise ValueError(f"Gemm: trans must be 'N' or 'T', got {x.trans_a!r} and {x.trans_b!r}")
    if not d == len(x.a_strides) == len(x.b_strides) == len(x.c_strides):
        raise ValueError(f"Gemm: expected one stride for each of {d} batch axes: {x}")
    if max(x.m, x.n, x.k, x.lda, x.ldb, x.ldc) > 0x7fffffff:
        raise ValueError(f"Gemm: {x.m} x {x.n} x {x.k} is too large for the 32-bit integers of BLAS")
    data.call = blas_function(dtype.name)
    data.transa, data.transb = <char>ord(x.trans_a), <char>ord(x.trans_b)
    data.m, data.n, data.k = x.m, x.n, x.k
    data.lda, data.ldb, data.ldc = max(x.lda, 1), max(x.ldb, 1), max(x.ldc, 1)
    fill_place(p, &data.a, x.a)
    fill_place(p, &data.b, x.b)
    fill_place(p, &data.c, x.c)
    data.ndim = d
    data.batch = <int64_t*>block(p, 4 * d * sizeof(int64_t))
    for axis in range(d):
        data.batch[axis] = x.batch[axis]
        data.batch[d + axis] = x.a_strides[axis] * dtype.itemsize
        data.batch[2 * d + axis] = x.b_strides[axis] * dtype.itemsize
        data.batch[3 * d + axis] = x.c_strides[axis] * dtype.itemsize
    memcpy(data.alpha, cnp.PyArray_DATA(np.ones(1, dtype)), dtype.itemsize)      # beta stays 0
    data.itemsize = dtype.itemsize
    data.matrices = 1
    for axis in range(d):
        data.matrices *= data.batch[axis]
    data.by_columns = data.n > data.m
    longer = max(data.m, data.n)
    data.width = GEMM_PART if data.matrices < GEMM_STACK else longer
    data.parts = -(-longer // data.width) if longer > 0 else 0
    work = min(data.width, longer) * min(data.m, data.n) * data.k
    data.grain = -(-GEMM_LEAST_WORK // max(work, 1))
    return <size_t>data


cdef size_t copy_data(Program p, x) except 0:
    cdef CopyData* data = <CopyData*>block(p, sizeof(CopyData))
    fill_place(p, &data.target, x.target)
    fill_place(p, &data.origin, x.origin)
    data.nbytes = x.nbytes
    return <size_t>data


cdef size_t fill_data(Program p, x) except 0:
    cdef FillData* data = <FillData*>block(p, sizeof(FillData))
    cdef bytes pattern = bytes(x.pattern)
    cdef int width = len(pattern)
    if not 1 <= width <= 16 or x.nbytes % width:
        raise ValueError(f"Fill: a pattern of {width} bytes does not divide {x.nbytes} bytes")
    if pattern == pattern[:1] * width:
        width = 1
    fill_place(p, &data.target, x.target)
    data.nbytes = x.nbytes
    data.width = width
    memcpy(data.pattern, PyBytes_AS_STRING(pattern), width)
    return <size_t>data


cdef size_t comm_data(Program p, x) except 0:
    cdef CommData* data = <CommData*>block(p, sizeof(CommData))
    need_comm()
    send, recv, peers, carrier, report = x.send, x.recv, x.peers, x.carrier, x.report
    if x.op not in comm_codes:
        raise ValueError(f"Call: unknown operation {x.op!r}. The operations are {', '.join(comm_codes)}")
    data.args.op = comm_codes[x.op]
    data.call = comm_table[data.args.op]
    data.args.comm, data.args.mpi_op, data.args.root = x.comm, x.mpi_op, x.root
    data.args.sendcount, data.args.recvcount = send.count, recv.count
    data.args.sendtype, data.args.recvtype = send.datatype, recv.datatype
    data.args.source, data.args.dest = peers.source, peers.dest
    data.args.sendtag, data.args.recvtag = peers.sendtag, peers.recvtag
    data.args.sendcounts = counts_data(p, send.counts)
    data.args.recvcounts = counts_data(p, recv.counts)
    if send.rows is not None:
        data.sendrows = rows_data(p, send.rows)
        data.args.sendcounts = data.sendrows.elements
    if recv.rows is not None:
        data.recvrows = rows_data(p, recv.rows)
        data.args.recvcounts = data.recvrows.elements
    data.args.mpi_status = <void*><size_t>peers.status
    data.args.early = carrier.early
    data.args.to_itself = peers.to_itself
    data.args.paired = carrier.paired
    data.args.what = report.what
    if p.lanes != NULL:
        data.args.lanes, data.args.lane_to, data.args.lane_from = carrier.lanes, carrier.lane_to, carrier.lane_from
    if carrier.matched or carrier.paired:
        data.args.shared = comm_halves.shared_for(&data.args)
    if (carrier.early and x.op is not SEND) or carrier.goes_on or data.args.shared != NULL:
        data.halves = comm_halves
    data.site, data.sequence = note_site(x)
    data.nbytes = report.nbytes
    data.send.buffer = data.recv.buffer = -1
    if send.place is not None:
        fill_place(p, &data.send, send.place)
    if recv.place is not None:
        fill_place(p, &data.recv, recv.place)
    return <size_t>data


cdef int64_t* counts_data(Program p, counts) except? NULL:
    cdef int64_t* data = NULL
    cdef Py_ssize_t j
    if counts:
        data = <int64_t*>block(p, len(counts) * sizeof(int64_t))
        for j in range(len(counts)):
            data[j] = counts[j]
    return data


cdef RowsData* rows_data(Program p, x) except NULL:
    cdef RowsData* data = <RowsData*>block(p, sizeof(RowsData))
    fill_place(p, &data.counts, x.counts)
    data.ranks, data.rank = x.ranks, x.rank
    data.limit, data.block, data.row = x.limit, x.block, x.row
    data.elements = <int64_t*>block(p, x.ranks * sizeof(int64_t))
    return data


cdef size_t host_data(Program p, x) except 0:
    cdef HostData* data = <HostData*>block(p, sizeof(HostData))
    cdef Py_ssize_t j
    views = (*x.inputs, *x.outputs)
    data.instruction = hold(p, x)
    data.places = <Place*>block(p, len(views) * sizeof(Place))
    for j in range(len(views)):
        fill_place(p, &data.places[j], views[j].place)
    return <size_t>data


cdef size_t point_data(Program p, x) except 0:
    cdef PointData* data = <PointData*>block(p, sizeof(PointData))
    if not 0 <= x.pointer < p.num_buffers:
        raise IndexError(f"buffer {x.pointer}: the program has {p.num_buffers} buffers")
    data.buffer = x.pointer
    fill_place(p, &data.place, x.place)
    return <size_t>data


cdef size_t pointer_data(Program p, first, second, nbytes) except 0:
    cdef PointerData* data = <PointerData*>block(p, sizeof(PointerData))
    for number in (first, second):
        if not 0 <= number < p.num_buffers:
            raise IndexError(f"buffer {number}: the program has {p.num_buffers} buffers")
    data.first, data.second, data.nbytes = first, second, nbytes
    return <size_t>data


# ---- whole programs ----

def load_into(Program p not None, spec):
    """Loads a spec into a new program. Loads BLAS, and starts MPI, if instructions need them."""
    p.spec = spec
    p.keep = []
    p.num_inputs = spec.num_inputs
    p.num_results = len(spec.results)
    p.release_gil = spec.release_gil
    p.denormals = 0 if spec.keep_denormals else DN_FLUSH
    p.pins = spec.release_gil
    p.runs_left = spec.baseline_runs + 1 if spec.when_warm is not None else 0
    p.run_time = 0
    p.patience = spec.patience if spec.when_warm is not None else 0
    p.kernels = [] if spec.when_warm is not None else None
    p.arena_class = block_class(spec.arena) if spec.arena > 0 else -1
    returned = {result.index: result for result in reversed(spec.results) if result.kind is ResultKind.BUFFER}
    load_buffers(p, spec.buffers, returned)
    load_results(p, spec.results, returned)
    load_instructions(p, spec.instructions)
    p.table_words = p.num_buffers + p.num_outputs + p.num_counters + p.max_places


def rebind(Program p not None, addresses):
    """Gives the kernels of a program new code, at `addresses`; None: they keep theirs, and the program asks no more.

    Threads that run it meanwhile use either code.
    """
    p.runs_left = 0
    if addresses is None:
        return
    p.keep.append(addresses)
    for data, name in p.kernels:
        set_code(<KernelData*><size_t>data, <KernelFunction><size_t>addresses[name])
