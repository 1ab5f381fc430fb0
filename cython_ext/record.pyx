# cython: language_level=3, boundscheck=False, wraparound=False
"""This rank's record of communication (``record.h``): its memory, notes from Python, and signals that request it.

Also the progress of compiled loops, for progress bars.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBUF_WRITE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc
from libc.string cimport memset

cdef extern from "record.h" nogil:
    ctypedef struct sem_t:
        pass
    uint64_t mj_ticks()
    int mj_signal_counts[65]
    sem_t mj_wake
    int sem_init(sem_t*, int, unsigned int)
    int mj_watch_signal(int)
    int mj_await_post(sem_t*, double)
    void mj_expect_children(int, int, double, const char*)
    int mj_start_reminding(double, const char*)
    void mj_stop_reminding()
    int MJ_RING, MJ_SITES, MJ_COUNTS, MJ_DIGESTS, MJ_MEMBERS
    int MJ_PEERS

cdef extern from "step_notes.h" nogil:
    ctypedef struct Note "mj_note":
        pass
    ctypedef struct Step "mj_step":
        uint64_t ticks, calls
    int MJ_NOTES, MJ_STEPS
    Note* mj_notes
    Step* mj_steps
    uint64_t mj_noted
    void mj_note_step(void**, int64_t*, int64_t, int64_t)

cdef extern from "Python.h":
    int Py_AtExit(void (*)() noexcept nogil)

cdef Region alone                   # for a process that shares its record with nobody
cdef Region* region = &alone
cdef Py_buffer memory               # keeps the shared memory mapped
cdef bint watched = False
cdef Entry* noted = NULL
cdef Peers** peers = <Peers**>calloc(MJ_COUNTS, sizeof(Peers*))     # by sequence

cdef enum: LOOPS = 64
cdef volatile int32_t[LOOPS] parts_begun

RING, SITES, COUNTS, DIGESTS, MEMBERS = MJ_RING, MJ_SITES, MJ_COUNTS, MJ_DIGESTS, MJ_MEMBERS
NOTES, STEPS = MJ_NOTES, MJ_STEPS
REGION_BYTES = sizeof(Region)
if peers == NULL:
    raise MemoryError
sem_init(&mj_wake, 0, 0)


cdef Region** region_place() noexcept nogil:
    return &region


cdef bint logged = False


cdef bint* logs_place() noexcept nogil:
    return &logged


def log_operations(bint on):
    """Log each operation of programs from now on, or no longer."""
    global logged
    logged = on


cdef Peers* peers_of(uint32_t sequence) noexcept nogil:
    return peers[sequence]


def set_peers(uint32_t sequence, uint64_t id, buffer, places):
    """Compare a sequence of this rank with those of other ranks, before each operation is passed to MPI.

    buffer: the regions of this node's ranks, at a fixed address. places: the indices of the ranks to compare.
    """
    cdef Py_buffer regions
    cdef Peers* found = peers[sequence]
    cdef int i, place
    if found == NULL:
        found = peers[sequence] = <Peers*>calloc(1, sizeof(Peers))
        if found == NULL:
            raise MemoryError
    memset(found, 0, sizeof(Peers))
    PyObject_GetBuffer(buffer, &regions, PyBUF_WRITABLE)
    found.id = id
    for i, place in enumerate(places[:MJ_PEERS]):
        found.regions[i] = <Region*>regions.buf + place
        found.count += 1
    PyBuffer_Release(&regions)


cdef void _ended() noexcept nogil:
    region.state = 2


def own_region():
    """The bytes of this process's region, writable."""
    return PyMemoryView_FromMemory(<char*>region, sizeof(Region), PyBUF_WRITE)


def move(buffer):
    """Keep the record in `buffer` from now on, which must stay alive; nothing may have been recorded before."""
    global region, watched
    PyObject_GetBuffer(buffer, &memory, PyBUF_WRITABLE)
    if memory.len < <Py_ssize_t>sizeof(Region):
        PyBuffer_Release(&memory)
        raise ValueError(f"a record needs {sizeof(Region)} bytes, got {memory.len}")
    region = <Region*>memory.buf
    region.state = 1
    if not watched and Py_AtExit(_ended) == 0:
        watched = True


def ticks():
    """The counter with which times are recorded."""
    return mj_ticks()


def step_notes_address():
    """The address of the kernel that notes the begin and end of steps."""
    global mj_notes, mj_steps
    if mj_notes == NULL:
        mj_steps = <Step*>calloc(MJ_STEPS, sizeof(Step))
        mj_notes = <Note*>calloc(MJ_NOTES, sizeof(Note))
        if mj_notes == NULL or mj_steps == NULL:
            raise MemoryError
    return <uintptr_t>&mj_note_step


def step_notes():
    """(number of notes so far, the last of them as bytes: ticks, thread and note, 8 bytes each; note n is at index
    n % `NOTES`)"""
    if mj_notes == NULL:
        return 0, b""
    return mj_noted, (<char*>mj_notes)[:MJ_NOTES * sizeof(Note)]


def step_sums(int count):
    """(ticks, calls) of each of the first `count` steps, at most `STEPS`."""
    if mj_steps == NULL:
        return []
    return [(mj_steps[i].ticks, mj_steps[i].calls) for i in range(min(count, MJ_STEPS))]


def begin(uint32_t site, uint32_t sequence, int64_t nbytes):
    """Note that Python begins an operation. False if another thread is inside one."""
    global noted
    noted = begin_operation(region, site, sequence, nbytes, 0)
    return noted != NULL


def end():
    """Note that the operation of the last `begin` has ended."""
    if noted != NULL:
        end_operation(region, noted)


def watch_signal(int number):
    """Count a signal from now on, instead of its default action or before its handler."""
    cdef int code = mj_watch_signal(number)
    if code != 0:
        raise OSError(code, f"cannot watch signal {number}")


def signals(int number):
    """The number of times that a watched signal has arrived."""
    return mj_signal_counts[number]


def wait(double seconds):
    """Sleep, without the GIL, until a watched signal or the timeout."""
    with nogil:
        mj_await_post(&mj_wake, seconds)


def expect_children(int parent, int expected, double grace, str text):
    """End the process while it is reminded, if process `parent` has fewer than `expected` children for `grace` seconds.

    text: has two placeholders, for the number of processes that have ended and for `expected`.
    """
    mj_expect_children(parent, expected, grace, text.encode())


def start_reminding(double seconds, str text):
    """Write `text % seconds` to stderr after `seconds`, again after twice that time, and so on."""
    cdef int code = mj_start_reminding(seconds, text.encode())
    if code != 0:
        raise OSError(code, "cannot start a thread")


def stop_reminding():
    """Stop the reminder, because the call has returned."""
    mj_stop_reminding()


cdef void _note_part(void** buffers, const int64_t* words) noexcept nogil:
    """Native code of a program (`core.rules.lowering.NativeCode`): notes that a loop begins the part in its operand."""
    parts_begun[words[0] % LOOPS] = (<int32_t*>buffers[0])[0]


def note_part_address():
    """The address of the function."""
    return <uintptr_t>&_note_part


def part_begun(int loop):
    """The part that the loop with this number (modulo 64) has begun last."""
    return parts_begun[loop % LOOPS]
