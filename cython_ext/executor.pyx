# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The executor: runs programs, which are lists of instructions over a table of buffers.

`Program` loads a `ProgramSpec` (mpijax/compiler/steps/instructions.py defines the instructions) into C structures once.
A run fills a table of pointers: arguments, new memory for results, one block for all temporaries. Then it walks the
instructions. The table belongs to the run, so several threads can run a program at the same time, and a program's host
calls can run it recursively.
"""

cimport cython
from cpython.list cimport PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

import sys

import numpy as np

cimport numpy as cnp

from mpijax._ext.array cimport (
    DELETED, ArrayBase, allocate, delete_array, end_use, is_array, new_array, raise_deleted, release,
    take_memory,
)
from mpijax._ext.comm cimport COMM_RECV, COMM_SEND, COMM_SENDRECV, SHARED_READY, CommArgs, CommFlight
from mpijax._ext.instructions cimport (
    GOING, OP_ADVANCE, OP_COMM, OP_COMM_FINISH, OP_COMM_START, OP_COPY, OP_COUNT_NEXT, OP_COUNT_START, OP_END,
    OP_FILL, OP_FOREIGN, OP_GEMM, OP_HOST_CALL, OP_RESUMABLE,
    OP_JUMP, OP_JUMP_TABLE, OP_JUMP_UNLESS, OP_KERNEL, OP_POINT, OP_SWAP, OP_TIME_TILES, RESULT_CONST, RESULT_OUTPUT,
    BranchData, CommData, CopyData, CountData, FillData, GemmData, HostData, Instruction, KernelData, KernelFunction,
    OutputEntry, Place, PointData, PointerData, ResultEntry, RowsData, TilesData, tt_call, tt_tiles,
)

from mpijax._ext.record cimport (
    Entry, Peers, Region, begin_operation, differs, end_operation, leave_operation, logs_place, peers_of, region_place,
    return_to_operation,
)

from mpijax._ext.array import from_numpy, rewrap
from mpijax.core.base import provided

cnp.import_array()

cdef extern from "threads.h" nogil:
    void mt_run(KernelFunction fn, void** ptrs, int64_t* params, int64_t extent, int64_t grain)
    ctypedef struct mt_library:
        pass
    void mt_run_alone(KernelFunction fn, void** ptrs, int64_t* params, int64_t extent, int64_t grain,
                      const mt_library* library)
    int mt_threads, mt_started
    int MT_MAX_THREADS

cdef extern from "time_tiles.h" nogil:
    void tt_run(const tt_tiles* tiles, const tt_call* calls, void** ptrs, int64_t places, int64_t iterations)

cdef extern from "denormals.h" nogil:
    uint64_t DN_FLUSH
    uint64_t dn_switch(uint64_t mode)

cdef extern from * nogil:
    """
    /* Another thread may give the kernel better code at the same time. */
    #define mj_code_of(kernel) __atomic_load_n(&(kernel)->call, __ATOMIC_RELAXED)
    """
    KernelFunction code_of "mj_code_of"(KernelData* kernel)

cdef extern from * nogil:
    """
    #include <time.h>
    static inline int64_t mj_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    """
    int64_t now "mj_now"()

cdef extern from * nogil:
    """
    static int mj_has_wide_registers(void) {
    #if defined(__x86_64__)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    #else
        return 0;
    #endif
    }
    """
    bint mj_has_wide_registers()

cdef enum:
    STACK_WORDS = 96    # tables of at most this size are on the stack of `run_into`
    FEWEST = 2          # iterations of a loop before the first look at the clock; at least 2 (`steps/frame.py`)
    MOST_ITERATIONS = 1 << 20
    LOOK_EVERY = 100000         # nanoseconds between two looks, about


cdef struct Watch:      # on the loops of a run, while they may be on baseline code
    int64_t iterations  # between two looks
    int64_t left        # until the next one
    int64_t since       # the time of the last one, or 0


def has_wide_registers():
    """Whether the processor has vector registers of 64 bytes, with instructions for all types: AVX-512."""
    return mj_has_wide_registers()


# ---- threads ----

def set_num_threads(int n):
    """Sets the number of threads for kernels, including the calling one. Running workers are not ended."""
    global mt_threads
    if n < 1:
        raise ValueError(f"set_num_threads: expected at least 1, got {n}")
    mt_threads = min(n, MT_MAX_THREADS)


def num_threads():
    """The number of threads for kernels."""
    return mt_threads


def num_workers():
    """The number of worker threads started."""
    return mt_started


cdef void on_threads(KernelFunction call, void** ptrs, int64_t* params, int64_t extent, int64_t grain) noexcept nogil:
    mt_run(call, ptrs, params, extent, grain)


cdef void on_threads_alone(KernelFunction call, void** ptrs, int64_t* params, int64_t extent, int64_t grain,
                           const Library* library) noexcept nogil:
    mt_run_alone(call, ptrs, params, extent, grain, <const mt_library*>library)


cdef Library gemm_library           # the BLAS of the matrix products


cdef void set_gemm_library(size_t get, size_t set_) noexcept:
    gemm_library.get = <int (*)() noexcept nogil>get
    gemm_library.set = <void (*)(int) noexcept nogil>set_


cdef extern from "strided.h" nogil:
    void st_run(void** ptrs, int64_t* params, int64_t begin, int64_t end)


cdef size_t strided_address() noexcept:
    """The address of the function that moves elements between strided arrays."""
    return <size_t>&st_run


# ---- instructions ----

cdef inline char* at(void** table, Place p) noexcept nogil:
    return <char*>table[p.buffer] + p.offset


cdef int execute(Program program, void** table, Exchanges* going) except -1 nogil:
    """Walks the instructions. table: the run's words, as `Program` lays them out. going: exchanges in progress."""
    going.outside = dn_switch(program.denormals)
    walk(program, table, going)
    dn_switch(going.outside)
    return 0


cdef int walk(Program program, void** table, Exchanges* going) except -1 nogil:
    cdef Instruction* start = program.instructions
    cdef Instruction* i = start
    cdef int64_t* counters = <int64_t*>(table + program.num_buffers + program.num_outputs)
    cdef void** ptrs = <void**>(counters + program.num_counters)
    cdef KernelData* kernel
    cdef CopyData* copy
    cdef BranchData* branch
    cdef CountData* count
    cdef PointData* point
    cdef Watch watch
    cdef int32_t j, number
    watch.iterations = watch.left = FEWEST
    watch.since = 0
    while True:
        if i.op == OP_KERNEL:
            kernel = <KernelData*>i.data
            for j in range(kernel.num_places):
                ptrs[j] = at(table, kernel.places[j])
            if going.count:
                run_kernel_meanwhile(kernel, ptrs, going)
            elif kernel.extent < 2 * kernel.grain:
                code_of(kernel)(ptrs, kernel.params, 0, kernel.extent)
            else:
                mt_run(code_of(kernel), ptrs, kernel.params, kernel.extent, kernel.grain)
        elif i.op == OP_END:
            return 0
        elif i.op == OP_GEMM:
            run_gemm(<GemmData*>i.data, table)
        elif i.op == OP_COPY:
            copy = <CopyData*>i.data
            memmove(at(table, copy.target), at(table, copy.origin), copy.nbytes)
        elif i.op == OP_FILL:
            run_fill(<FillData*>i.data, table)
        elif i.op == OP_COMM:
            run_comm(program, <CommData*>i.data, table)
        elif i.op == OP_COMM_START:
            start_comm(program, <CommData*>i.data, table, going)
        elif i.op == OP_COMM_FINISH:
            finish_comm(program, going)
        elif i.op == OP_HOST_CALL:
            if program.lanes != NULL:
                program.lanes.stop()
            dn_switch(going.outside)
            with gil:
                call_host(<HostData*>i.data, table)
            dn_switch(program.denormals)
        elif i.op == OP_RESUMABLE:
            kernel = <KernelData*>i.data
            for j in range(kernel.num_places):
                ptrs[j] = at(table, kernel.places[j])
            ptrs[kernel.num_places] = NULL      # the frame, which starts with the loop to resume
            if program.patience > 0:
                watch.since = now()
            code_of(kernel)(ptrs, kernel.params, 0, watch.iterations)
            while ptrs[kernel.num_places] != NULL:
                look(program, &watch, going)
                code_of(kernel)(ptrs, kernel.params, 0, watch.iterations)
            if program.patience > 0:
                look(program, &watch, going)
        elif i.op == OP_FOREIGN:
            kernel = <KernelData*>i.data
            for j in range(kernel.num_places):
                ptrs[j] = at(table, kernel.places[j])
            dn_switch(going.outside)
            kernel.call(ptrs, kernel.params, 0, kernel.extent)
            dn_switch(program.denormals)
        elif i.op == OP_JUMP:
            if start + i.jump < i:      # a loop
                count_iteration(program, &watch, going)
            i = start + i.jump
            continue
        elif i.op == OP_JUMP_UNLESS:
            branch = <BranchData*>i.data
            if at(table, branch.place)[0] == 0:
                i = start + i.jump
                continue
        elif i.op == OP_JUMP_TABLE:
            branch = <BranchData*>i.data
            number = (<int32_t*>at(table, branch.place))[0]
            number = 0 if number < 0 else branch.count - 1 if number >= branch.count else number
            i = start + branch.targets[number]
            continue
        elif i.op == OP_COUNT_START:
            count = <CountData*>i.data
            counters[count.counter] = count.count
            if count.count <= 0:
                i = start + i.jump
                continue
        elif i.op == OP_COUNT_NEXT:
            count = <CountData*>i.data
            counters[count.counter] -= 1
            if counters[count.counter] > 0:
                count_iteration(program, &watch, going)
                i = start + i.jump
                continue
        elif i.op == OP_TIME_TILES:
            run_tiles(<TilesData*>i.data, table, ptrs)
        elif i.op == OP_POINT:
            point = <PointData*>i.data
            table[point.buffer] = at(table, point.place)
        elif i.op == OP_ADVANCE:
            advance(table, <PointerData*>i.data)
        elif i.op == OP_SWAP:
            swap(table, <PointerData*>i.data)
        i += 1


cdef inline int count_iteration(Program program, Watch* watch, Exchanges* going) except -1 nogil:
    if program.patience > 0:
        watch.left -= 1
        if watch.left == 0:
            look(program, watch, going)
            watch.left = watch.iterations
    return 0


cdef int look(Program program, Watch* watch, Exchanges* going) except -1 nogil:
    """Looks at the time that loops take on baseline code. Asks for better code when the program's patience ends."""
    cdef int64_t time = now(), taken = time - watch.since
    if watch.since > 0 and program.patience > 0:
        program.patience -= taken
        if program.patience <= 0:
            dn_switch(going.outside)
            with gil:
                ask_for_better_code(program, 0)
            dn_switch(program.denormals)
    if watch.since > 0 and taken < LOOK_EVERY and watch.iterations < MOST_ITERATIONS:
        watch.iterations *= 2
    watch.since = time
    return 0


cdef int ask_for_better_code(Program program, int64_t run_time) except -1:
    program.runs_left, program.patience = -1, 0
    program.spec.when_warm(program, run_time)
    return 0


cdef inline void swap(void** table, PointerData* pointer) noexcept nogil:
    cdef void* word = table[pointer.first]
    table[pointer.first] = table[pointer.second]
    table[pointer.second] = word


cdef inline void advance(void** table, PointerData* pointer) noexcept nogil:
    table[pointer.first] = <char*>table[pointer.first] + pointer.nbytes


cdef void run_tiles(TilesData* data, void** table, void** words) noexcept nogil:
    """words: space for the calls, for the pointers of a group, and for `starts` (see `loading.tiles_data`)."""
    cdef tt_call* calls = <tt_call*>words
    cdef void** ptrs = words + data.tiles.calls * sizeof(tt_call) // sizeof(void*)
    cdef void** kept = ptrs + data.tiles.depth * data.num_places
    cdef int64_t first = 0, k, iterations
    cdef int32_t j
    while first < data.count:
        iterations = min(data.tiles.depth, data.count - first)
        for j in range(data.num_starts if first == 0 else 0):
            kept[j] = table[data.starts[j].buffer]
            table[data.starts[j].buffer] = at(table, data.starts[j].place)
        for k in range(iterations):
            point_calls(data, table, calls, ptrs + k * data.num_places)
            for j in range(data.num_starts if first + k == 0 else 0):
                table[data.starts[j].buffer] = kept[j]
            for j in range(data.num_moves):
                if data.moves[j] == OP_SWAP:
                    swap(table, data.moved[j])
                else:
                    advance(table, data.moved[j])
        tt_run(&data.tiles, calls, ptrs, data.num_places, iterations)
        first += iterations


cdef void point_calls(TilesData* data, void** table, tt_call* calls, void** ptrs) noexcept nogil:
    """Fills in the calls and the pointers that they take in the next iteration."""
    cdef KernelData* kernel
    cdef int64_t k, first = 0
    cdef int32_t j
    for k in range(data.tiles.calls):
        kernel = data.kernels[k]
        calls[k].function = code_of(kernel)
        calls[k].params = kernel.params
        calls[k].rows = kernel.extent // data.tiles.units[k]
        calls[k].first = first
        for j in range(kernel.num_places):
            ptrs[first + j] = at(table, kernel.places[j])
        first += kernel.num_places


cdef void run_gemm(GemmData* g, void** table) noexcept nogil:
    cdef void* ptrs[3]
    cdef int64_t parts = g.matrices * g.parts
    if parts == 0 or g.m == 0 or g.n == 0:
        return
    ptrs[0], ptrs[1], ptrs[2] = at(table, g.a), at(table, g.b), at(table, g.c)
    if parts < 2 * g.grain or mt_threads == 1 or gemm_library.set == NULL:
        gemm_parts(ptrs, <int64_t*>g, 0, parts)
    else:
        # Each call packs the operand that the parts share, so there are few parts: two for each thread.
        on_threads_alone(gemm_parts, ptrs, <int64_t*>g, parts, max(g.grain, parts // (2 * mt_threads)), &gemm_library)


cdef void gemm_parts(void** ptrs, int64_t* params, int64_t begin, int64_t end) noexcept nogil:
    """Computes parts of the matrices, those of one matrix at once."""
    cdef GemmData* g = <GemmData*>params
    cdef int64_t first, last
    while begin < end:
        first = begin % g.parts
        last = min(g.parts, first + end - begin)
        gemm_rows(g, begin // g.parts, first * g.width, last * g.width, <char**>ptrs)
        begin += last - first


cdef void gemm_rows(GemmData* g, int64_t matrix, int64_t first, int64_t last, char** ptrs) noexcept nogil:
    """Rows (or columns) first to last of one result. Row-major C = A B is column-major C' = B' A', so BLAS gets the
    operands in reverse order."""
    cdef char* a = ptrs[0]
    cdef char* b = ptrs[1]
    cdef char* c = ptrs[2]
    cdef int64_t m = g.m, n = g.n, i, axis, d = g.ndim
    for axis in range(d - 1, -1, -1):
        i = matrix % g.batch[axis]
        matrix //= g.batch[axis]
        a += i * g.batch[d + axis]
        b += i * g.batch[2 * d + axis]
        c += i * g.batch[3 * d + axis]
    if g.by_columns:
        n = min(last, n) - first
        b += first * g.itemsize * (g.ldb if g.transb == b'T' else 1)
        c += first * g.itemsize
    else:
        m = min(last, m) - first
        a += first * g.itemsize * (1 if g.transa == b'T' else g.lda)
        c += first * g.itemsize * g.ldc
    g.call(&g.transb, &g.transa, &n, &m, &g.k, g.alpha, b, &g.ldb, a, &g.lda, g.beta, c, &g.ldc)


cdef void run_fill(FillData* f, void** table) noexcept nogil:
    cdef char* target = at(table, f.target)
    cdef size_t done, width = <size_t>f.width
    if f.nbytes == 0:
        return
    if width == 1:
        memset(target, f.pattern[0], f.nbytes)
        return
    done = min(width, f.nbytes)
    memcpy(target, f.pattern, done)
    while done < f.nbytes:      # double the filled part
        memcpy(target + done, target, done if 2 * done <= f.nbytes else f.nbytes - done)
        done = 2 * done


cdef struct Exchange:       # one exchange of a run, while in progress
    CommData* comm
    Entry* entry
    CommArgs args
    CommFlight flight


cdef struct Exchanges:      # the exchanges of a run; finished in the order in which they started
    uint32_t started
    uint32_t count          # number in progress
    uint64_t outside        # this thread's denormal mode outside of the run
    Exchange[GOING] recent


cdef void log_begin(uint32_t site) noexcept nogil:
    cdef uint64_t mode = dn_switch(0)   # Python code expects denormals
    with gil:
        provided.recorder.log.begins(site)
    dn_switch(mode)


cdef void log_end(int code) noexcept nogil:
    cdef uint64_t mode = dn_switch(0)
    with gil:
        provided.recorder.log.ends(code)
    dn_switch(mode)


cdef inline Exchange* oldest(Exchanges* going) noexcept nogil:
    return &going.recent[(going.started - going.count) % GOING]


cdef inline Entry* begin_comm(Program program, CommData* comm, void** table, CommArgs* args) except? NULL nogil:
    cdef Peers* peers
    cdef Entry* entry = begin_operation(record[0], comm.site, comm.sequence, comm.nbytes, comm.args.what)
    args[0] = comm.args
    if entry == NULL:
        with gil:
            raise_refused(comm.site)
    if (program.lanes != NULL and program.lanes.lanes_taken[0]
            and args.op not in (COMM_SEND, COMM_RECV, COMM_SENDRECV)):
        program.lanes.settle()
    args.sendbuf = at(table, comm.send) if comm.send.buffer >= 0 else NULL
    args.recvbuf = at(table, comm.recv) if comm.recv.buffer >= 0 else NULL
    # Operations through slots compare themselves; MPI would match different operations with each other.
    if args.what != 0 and comm.sequence != 0 and (args.shared == NULL or (<int*>args.shared)[0] != SHARED_READY):
        peers = peers_of(comm.sequence)
        if peers != NULL and differs(record[0], comm.sequence, peers):
            end_operation(record[0], entry)
            with gil:
                raise_different(comm.site)
    if logs[0]:
        log_begin(comm.site)
    return entry


cdef int run_comm(Program program, CommData* comm, void** table) except -1 nogil:
    cdef CommArgs args
    cdef CommFlight flight
    cdef Entry* entry = begin_comm(program, comm, table, &args)
    cdef RowsData* misfit = NULL
    cdef int code = 0
    if comm.sendrows != NULL and not count_rows(comm.sendrows, table, &args.recvcount):
        misfit = comm.sendrows
    elif comm.recvrows != NULL and not count_rows(comm.recvrows, table, &args.sendcount):
        misfit = comm.recvrows
    elif comm.halves == NULL:
        code = comm.call(&args)
    else:
        code = comm.halves.start(&args, &flight)
        if code == 0:
            code = comm.halves.finish(&flight)
    end_operation(record[0], entry)
    if logs[0]:
        log_end(code)
    if misfit != NULL:
        with gil:
            raise_rows(comm.site, &args, misfit, <int32_t*>at(table, misfit.counts))
    if code != 0:
        with gil:
            raise_comm(comm.site, &args, code)
    return 0


cdef int start_comm(Program program, CommData* comm, void** table, Exchanges* going) except -1 nogil:
    """Starts an exchange. Until `finish_comm`, only kernels, products, copies and other starts run; none raises."""
    cdef Exchange* x = &going.recent[going.started % GOING]
    cdef int code
    x.entry = begin_comm(program, comm, table, &x.args)
    code = comm.halves.start(&x.args, &x.flight)
    if code != 0:
        end_operation(record[0], x.entry)
        if logs[0]:
            log_end(code)
        with gil:
            raise_comm(comm.site, &x.args, code)
    leave_operation(record[0])
    x.comm = comm
    going.started += 1
    going.count += 1
    return 0


cdef int finish_oldest(Exchanges* going) noexcept nogil:
    cdef Exchange* x = oldest(going)
    cdef int code
    return_to_operation(record[0], x.entry)
    code = x.comm.halves.finish(&x.flight)
    end_operation(record[0], x.entry)
    if logs[0]:
        log_end(code)
    going.count -= 1
    return code


cdef int finish_comm(Program program, Exchanges* going) except -1 nogil:
    cdef Exchange* x = oldest(going)
    cdef int code = finish_oldest(going)
    if code != 0:
        with gil:
            raise_comm(x.comm.site, &x.args, code)
    return 0


cdef void end_exchanges(Exchanges* going) noexcept nogil:
    while going.count:
        finish_oldest(going)


cdef void run_kernel_meanwhile(KernelData* kernel, void** ptrs, Exchanges* going) noexcept nogil:
    """Runs a kernel in parts, and advances messages between them; with several threads, in one."""
    cdef Exchange* x = oldest(going)
    cdef int64_t begin, end
    if mt_threads > 1 and kernel.extent >= 2 * kernel.grain:
        mt_run(code_of(kernel), ptrs, kernel.params, kernel.extent, kernel.grain)
        x.comm.halves.advance(&x.flight)
        return
    begin = 0
    while True:
        end = min(begin + kernel.grain, kernel.extent)
        code_of(kernel)(ptrs, kernel.params, begin, end)
        x.comm.halves.advance(&x.flight)
        begin = end
        if begin >= kernel.extent:
            return


cdef bint count_rows(RowsData* rows, void** table, int64_t* own) noexcept nogil:
    """Converts rows to elements for each rank's block and this rank's own; False if there is not enough room."""
    cdef int32_t* counts = <int32_t*>at(table, rows.counts)
    cdef int64_t total = 0
    cdef int32_t r
    for r in range(rows.ranks):
        if counts[r] < 0:
            return False
        total += counts[r]
        rows.elements[r] = counts[r] * rows.row
    own[0] = rows.elements[rows.rank]
    return total <= rows.limit and (rows.block < 0 or counts[rows.rank] <= rows.block)


cdef Region** record = region_place()
cdef bint* logs = logs_place()


cdef str line_of(uint32_t site):
    return provided.recorder.now(site).line


# Errors are created in Python code, which expects denormals; `run_into` restores the outer mode afterwards.

cdef int raise_refused(uint32_t site) except -1:
    dn_switch(0)
    raise provided.recorder.refusal(str(provided.recorder.now(site)))


cdef int raise_different(uint32_t site) except -1:
    dn_switch(0)
    raise provided.different_collectives(str(provided.recorder.now(site)))


cdef int raise_rows(uint32_t site, CommArgs* args, RowsData* rows, int32_t* given) except -1:
    dn_switch(0)
    counts = [given[r] for r in range(rows.ranks)]
    where = line_of(site)
    if min(counts) < 0:
        reason = "must not be negative"
    elif rows.block >= 0 and given[rows.rank] > rows.block:
        reason = f"give rank {rows.rank} {given[rows.rank]} rows, but its block has {rows.block} rows"
    else:
        reason = f"make {sum(counts)} rows, more than the capacity of {rows.limit}: pass a larger capacity"
    raise RuntimeError(f"{operation_name(args)} on rank {rows.rank}: counts {counts} {reason}"
                       + (f"\nat {where}" if where else ""))


cdef str operation_name(CommArgs* args):
    return next(name for name, number in sys.modules["mpijax._ext.mpi"].CODES.items() if number == args.op)


cdef int raise_comm(uint32_t site, CommArgs* args, int code) except -1:
    dn_switch(0)
    shims = sys.modules["mpijax._ext.mpi"]
    where = line_of(site)
    text = (
        f"MPI error in {operation_name(args)} on rank {provided.rank()} "
        f"({args.sendcount} elements to send, {args.recvcount} to receive): "
        f"{shims.error_message(code)}" + (f"\nat {where}" if where else "")
    )
    raise provided.failed_communication(text) if args.what != 0 else RuntimeError(text)


cdef extern from *:
    """
    #include <numpy/arrayobject.h>
    static PyObject *mj_view(PyObject *dtype, PyObject *shape, void *data, int writeable) {
        npy_intp dims[NPY_MAXDIMS];
        int n = (int)PyTuple_GET_SIZE(shape);
        if (n > NPY_MAXDIMS) return PyErr_Format(PyExc_ValueError, "NumPy has at most %d axes", NPY_MAXDIMS);
        for (int i = 0; i < n; i++) dims[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, i));
        Py_INCREF(dtype);
        return PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)dtype, n, dims, NULL, data,
                                    NPY_ARRAY_CARRAY_RO | (writeable ? NPY_ARRAY_WRITEABLE : 0), NULL);
    }
    """
    object mj_view(object dtype, tuple shape, void* data, bint writeable)


cdef int call_host(HostData* data, void** table) except -1:
    """Calls the function of a PythonCall on ndarrays over the buffers and stores its results."""
    call = <object>data.instruction
    cdef int i = 0
    cdef list arguments = [], targets = []
    for view in call.inputs:
        arguments.append(mj_view(view.dtype, view.shape, at(table, data.places[i]), False))
        i += 1
    for view in call.outputs:
        targets.append(mj_view(view.dtype, view.shape, at(table, data.places[i]), True))
        i += 1
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


# ---- the program ----

@cython.final
@cython.no_gc_clear
cdef class Program:
    """A loaded `ProgramSpec`; `run(args)` returns the list of results."""

    def __init__(self, spec):
        if self.spec is not None:
            raise RuntimeError("this Program is already loaded")
        from mpijax._ext.loading import load_into  # it cimports this module

        load_into(self, spec)

    def run(self, list args not None):
        """Runs on arrays, or C-contiguous ndarrays, of exactly the argument types; returns the list of results."""
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
        cdef char* arena = NULL
        cdef int num_made = 0, j
        cdef Py_ssize_t i
        cdef bint pinned = False, inside = False
        cdef int64_t began = 0
        cdef Exchanges going
        going.started = going.count = 0
        after = None
        if self.runs_left != 0:
            if self.runs_left > 1:
                self.runs_left -= 1
            else:
                ask_for_better_code(self, self.run_time)
            began = now()
        if self.first is not None:
            after = self.first([<object>args[i] for i in range(self.num_inputs)])
            self.first = None
        if self.table_words > STACK_WORDS:
            table = <void**>malloc(self.table_words * sizeof(void*))
            if table == NULL:
                raise MemoryError
        made = <PyObject**>(table + self.num_buffers)
        memcpy(table, self.template, self.num_buffers * sizeof(void*))
        try:
            for i in range(self.num_inputs):
                if not is_array(args[i]) or (<ArrayBase>args[i]).flags & DELETED:
                    table[self.inputs[i].buffer] = unusual_input(self, i, args[i])
                else:
                    table[self.inputs[i].buffer] = (<ArrayBase>args[i]).ptr
            if self.donates:
                check_donations(self, args)
            for j in range(self.num_outputs):
                made[j] = make_output(&self.outputs[j], args, table)
                num_made = j + 1
                table[self.outputs[j].buffer] = (<ArrayBase>made[j]).ptr
            if self.arena_class >= 0:
                arena = <char*>allocate(self.arena_class)
                for j in range(self.num_temps):
                    table[self.temps[j].buffer] = arena + self.temps[j].offset
            if self.pins:
                pin(args, self.num_inputs)
                pinned = True
            inside = True
            if self.release_gil:
                with nogil:
                    execute(self, table, &going)
            else:
                execute(self, table, &going)
            inside = False
            if began > 0:
                self.run_time = now() - began
            if after is not None:
                after()
            give_results(self, args, made, results)
        finally:
            if inside:          # an error occurred
                dn_switch(going.outside)
            if going.count:     # an error occurred: pending receives write to memory of this run
                with nogil:
                    end_exchanges(&going)
            if self.lanes != NULL:
                self.lanes.stop()
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


# ---- steps of a run ----

cdef extern from "Python.h":
    ctypedef struct PyListObject:
        PyObject** ob_item


cdef inline int hand_over(list target, Py_ssize_t k, PyObject* op) except -1:
    """Stores an object in a new list, which steals the caller's reference."""
    PyList_SET_ITEM(target, k, <object>op)
    return 0


cdef void* unusual_input(Program program, Py_ssize_t i, PyObject* arg) except? NULL:
    """The memory of an argument that is not a plain array: of an ndarray, or an error."""
    cdef int64_t nbytes = program.inputs[i].nbytes
    x = <object>arg
    if isinstance(x, ArrayBase):
        if (<ArrayBase>x).flags & DELETED:
            raise_deleted(arg)
        return (<ArrayBase>x).ptr
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{program.spec.name}: argument {i} must be an array, got {type(x).__name__}")
    if not cnp.PyArray_IS_C_CONTIGUOUS(x) or not cnp.PyArray_ISALIGNED(x):
        raise ValueError(f"{program.spec.name}: argument {i} must be C-contiguous and aligned")
    if 0 <= nbytes != cnp.PyArray_NBYTES(x):
        raise ValueError(f"{program.spec.name}: argument {i} must have {nbytes} bytes, "
                         f"got {x.dtype}{list(x.shape)}")
    return cnp.PyArray_DATA(x)


cdef int check_donations(Program program, PyObject** args) except -1:
    """Checks that each donated array is passed once only, because its memory will be overwritten."""
    cdef OutputEntry* outputs = program.outputs
    cdef Py_ssize_t i
    cdef int j
    for j in range(program.num_outputs):
        if outputs[j].donor < 0:
            continue
        for i in range(program.num_inputs):
            if i != outputs[j].donor and args[i] == args[outputs[j].donor] and is_array(args[i]):
                raise provided.JaxRuntimeError(twice_donated(program, i, outputs[j].donor))
    return 0


cdef str twice_donated(Program program, Py_ssize_t i, Py_ssize_t donor):
    """The message for a donated array that is passed twice, in the words of JAX."""
    cdef int j
    what = "use a buffer that was previously donated in the same call" if i > donor else (
        "donate a buffer which is also used by the same call")
    example = "f(donate(a), a)" if i > donor else "f(a, donate(a))"
    for j in range(program.num_outputs):
        if program.outputs[j].donor == i:
            what, example = "donate the same buffer twice", "f(donate(a), donate(a))"
    return (f"INVALID_ARGUMENT: Attempt to {what}: arguments {min(i, donor)} and {max(i, donor)} of "
            f"{program.spec.name} are the same array, as in `{example}`. Pass a copy.")


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
    """Copies a donor whose memory cannot be taken over into new memory."""
    cdef PyObject* op = new_array(entry.aval, entry.nbytes, entry.sharding)
    cdef void* origin
    cdef size_t nbytes = <object>(<object>donor).nbytes
    if isinstance(<object>donor, ArrayBase):
        if (<ArrayBase>donor).flags & DELETED:      # by another thread
            raise_deleted(donor)
        origin = (<ArrayBase>donor).ptr
    else:
        origin = cnp.PyArray_DATA(<object>donor)
    memcpy((<ArrayBase>op).ptr, origin, min(nbytes, <size_t>entry.nbytes))
    return op


cdef int finish_donations(Program program, PyObject** args, int num_made) except -1:
    """Deletes donated arrays whose memory was not taken over."""
    cdef OutputEntry* outputs = program.outputs
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
    cdef ResultEntry* entry = program.results
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
    """A new reference to a result that is an argument, a constant, or a buffer with another type."""
    aval = <object>entry.aval
    sharding = None if entry.sharding == NULL else <object>entry.sharding
    if entry.kind == RESULT_CONST:
        x = <object>entry.const_array
        if isinstance(x, ArrayBase) and (<ArrayBase>x).flags & DELETED:
            raise_deleted(entry.const_array)
    else:
        x = <object>(made[entry.index] if entry.kind == RESULT_OUTPUT else args[entry.index])
        if not isinstance(x, ArrayBase):
            x = from_numpy(x, aval, True, sharding)
        elif (<ArrayBase>x).aval != entry.aval or (<ArrayBase>x).sharding != entry.sharding:
            x = rewrap(x, aval, sharding)
    Py_INCREF(x)
    return <PyObject*>x
