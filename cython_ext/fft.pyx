# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Fourier transforms as native code for the executor. The threads of this rank share the lines.

`fft_lines.h` transforms lines whose size has no prime factor above 13. NumPy's pocketfft transforms the others, through
pointers to the loops of its ufuncs.

words: the kind of transform (0 FFT, 1 IFFT, 2 RFFT, 3 IRFFT), whether the operand is real, bytes of a real number,
whether a line's bits must not depend on the other lines, the size of the stack, the number of transformed axes, their
sizes in the operand, and in the result. buffers: operand, result, status. If memory is missing, the status is 1.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

cimport numpy as cnp

from mpijax._ext.executor cimport on_threads, share_function

cnp.import_ufunc()

cdef extern from "fft_lines.h" nogil:
    enum: FFT_COMPLEX, FFT_TO_HALF, FFT_TO_WHOLE, FFT_FROM_HALF
    ctypedef struct fft_lines:
        int64_t n, behind, x_line, out_line
        double factor
        int inverse, kind, same
        const char* x
        char* out
    int fft_all_lines(fft_lines* lines, int wide, int64_t count, share_function share)
    void fft_complete_32(float* line, int64_t size, int inverse)
    void fft_complete_64(double* line, int64_t size, int inverse)

cdef enum:
    FFT, IFFT, RFFT, IRFFT, RFFT_ODD, LOOPS

ctypedef void (*LoopFunction)(char**, const cnp.npy_intp*, const cnp.npy_intp*, void*) noexcept nogil

cdef struct Loop:
    LoopFunction call
    void* data

cdef Loop loops[LOOPS][2]


def install(ufuncs):
    """Takes NumPy's ufuncs for the kinds, and last for RFFT of odd sizes; ValueError unless they are as expected.

    Each takes an array and a factor. Their loops for several precisions are in one table.
    """
    cdef cnp.ufunc f
    cdef int k, t, i
    for t, (real, whole) in enumerate(("fF", "dD")):
        from_reals, to_reals = f"{real}{real}->{whole}", f"{whole}{real}->{real}"
        for k, wanted in enumerate((f"{whole}{real}->{whole}",) * 2 + (from_reals, to_reals, from_reals)):
            given = ufuncs[k].types
            if wanted not in given:
                raise ValueError(f"{ufuncs[k]} has loops for types {given}, but not for {wanted}")
            f, i = ufuncs[k], given.index(wanted)
            loops[k][t].call = <LoopFunction><void*>f.functions[i]
            loops[k][t].data = f.data[i] if f.data != NULL else NULL


cdef struct Lines:
    # From x[before, n, behind] to out[before, count, behind], which may be the same: lines along n, `behind` per block.
    LoopFunction call
    void* data
    double factor
    float single            # the factor
    bint double_precision
    bint inverse            # of lines of reals: conjugate the result
    char* x
    char* out
    int64_t n, count, behind, size, out_size


cdef enum:
    LEAST_WORK = 4096       # minimum numbers per thread
    TOGETHER = 8            # neighbouring lines, which share lines of the cache


cdef void some_lines(void** unused, int64_t* params, int64_t begin, int64_t end) noexcept nogil:
    """Transforms lines of all blocks; lines are numbered block by block."""
    cdef Lines* s = <Lines*>params
    cdef int64_t block, first, last
    if s.behind == 1:
        transform(s, s.x + begin * s.n * s.size, s.out + begin * s.count * s.out_size, end - begin,
                  s.n * s.size, s.count * s.out_size)
        return
    while begin < end:
        block, first = begin // s.behind, begin % s.behind
        last = min(s.behind, first + end - begin)
        transform(s, s.x + (block * s.n * s.behind + first) * s.size,
                  s.out + (block * s.count * s.behind + first) * s.out_size, last - first, s.size, s.out_size)
        begin += last - first


cdef void transform(Lines* s, char* x, char* out, int64_t lines, int64_t line, int64_t out_line) noexcept nogil:
    """Transforms `lines` lines that begin `line` bytes apart."""
    cdef char* args[3]
    cdef cnp.npy_intp sizes[3]
    cdef cnp.npy_intp steps[5]
    args[0], args[2] = x, out
    args[1] = <char*>&s.factor if s.double_precision else <char*>&s.single
    sizes[0], sizes[1], sizes[2] = lines, s.n, s.count
    steps[0], steps[1], steps[2] = line, 0, out_line
    steps[3], steps[4] = s.behind * s.size, s.behind * s.out_size
    s.call(args, sizes, steps, s.data)


cdef void some_real_lines(void** unused, int64_t* params, int64_t begin, int64_t end) noexcept nogil:
    cdef Lines* s = <Lines*>params
    cdef int64_t k
    transform(s, s.x + begin * s.n * s.size, s.out + begin * s.n * s.out_size, end - begin, s.n * s.size,
              s.n * s.out_size)
    for k in range(begin, end):
        if s.double_precision:
            fft_complete_64(<double*>(s.out + k * s.n * s.out_size), s.n, s.inverse)
        else:
            fft_complete_32(<float*>(s.out + k * s.n * s.out_size), s.n, s.inverse)


cdef struct Call:
    bint wide, same, failed     # double precision; a line's bits must not depend on the others; there is no memory


cdef bint is_done(Call* call, int kind, bint inverse, double factor, char* x, char* out, int64_t before, int64_t n,
                  int64_t behind, int64_t x_line, int64_t out_line) noexcept nogil:
    """Transforms lines in `fft_lines.h`; 0: their size has a large prime factor. n: of complex numbers."""
    cdef fft_lines s
    s.n, s.behind, s.x_line, s.out_line = n, behind, x_line, out_line
    s.factor, s.inverse, s.kind, s.same, s.x, s.out = factor, inverse, kind, call.same, x, out
    cdef int status = fft_all_lines(&s, call.wide, before * behind, on_threads)
    call.failed = call.failed or status > 0
    return status >= 0


cdef void along_reals(Call* call, bint inverse, double factor, char* x, char* out, int64_t before, int64_t n,
                      int64_t size) noexcept nogil:
    """The FFT or IFFT of reals x[before, n], in half the time of that of complex numbers, to out[before, n]."""
    cdef Lines s
    cdef Loop loop = loops[RFFT_ODD if n & 1 else RFFT][call.wide]
    if n % 2 == 0 and is_done(call, FFT_TO_WHOLE, inverse, factor, x, out, before, n // 2, 1, n // 2, n):
        return
    s.call, s.data = loop.call, loop.data
    s.factor, s.single, s.double_precision, s.inverse = factor, <float>factor, call.wide, inverse
    s.x, s.out, s.n, s.count, s.behind, s.size, s.out_size = x, out, n, n // 2 + 1, 1, size, 2 * size
    on_threads(some_real_lines, NULL, <int64_t*>&s, before, max(1, LEAST_WORK // max(n, 1)))


cdef void along(Call* call, int kind, double factor, char* x, char* out, int64_t before, int64_t n, int64_t count,
                int64_t behind, int64_t size, int64_t out_size) noexcept nogil:
    """Transforms x[before, n, behind] to out[before, count, behind]; they may be the same."""
    cdef Lines s
    cdef Loop loop = loops[RFFT_ODD if kind == RFFT and n & 1 else kind][call.wide]
    cdef int64_t grain = max(1, LEAST_WORK // max(n, count, 1))
    if kind == RFFT:
        if n % 2 == 0 and is_done(call, FFT_TO_HALF, False, factor, x, out, before, n // 2, 1, n // 2, count):
            return
    elif kind == IRFFT:
        if count % 2 == 0 and n == count // 2 + 1 and is_done(call, FFT_FROM_HALF, True, factor, x, out, before, n - 1,
                                                              1, n, n - 1):
            return
    elif is_done(call, FFT_COMPLEX, kind == IFFT, factor, x, out, before, n, behind, n, n):
        return
    if behind > 1:
        grain = (grain + TOGETHER - 1) // TOGETHER * TOGETHER
    s.call, s.data = loop.call, loop.data
    s.factor, s.single, s.double_precision = factor, <float>factor, call.wide
    s.x, s.out, s.n, s.count, s.behind, s.size, s.out_size = x, out, n, count, behind, size, out_size
    on_threads(some_lines, NULL, <int64_t*>&s, before * behind, grain)


cdef void along_all(Call* call, int kind, double factor, char* x, char* out, int64_t stack, const int64_t* shape,
                    int64_t axes, int64_t behind, int64_t size) noexcept nogil:
    """Transforms complex numbers x[stack, *shape, behind] along all axes of `shape`, to `out`."""
    cdef int64_t d, before = stack
    for d in range(axes):
        behind *= shape[d]
    for d in range(axes):
        behind //= shape[d]
        along(call, kind, factor, x, out, before, shape[d], shape[d], behind, size, size)
        before *= shape[d]
        x, factor = out, 1


cdef void run(void** buffers, const int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t kind = words[0], real = words[2], stack = words[4], axes = words[5], d, rest = stack
    cdef const int64_t* shape = words + 6
    cdef const int64_t* out_shape = shape + axes
    cdef int64_t last = shape[axes - 1], out_last = out_shape[axes - 1]
    cdef double factor = 1
    cdef char* x = <char*>buffers[0]
    cdef char* out = <char*>buffers[1]
    cdef char* copy = NULL
    cdef Call call
    call.wide, call.same, call.failed = real == 8, words[3], False
    for d in range(axes - 1):
        rest *= shape[d]
    if kind == IFFT or kind == IRFFT:
        for d in range(axes):
            factor *= <double>out_shape[d]
        factor = 1 / factor
    if kind == RFFT:
        along(&call, RFFT, 1, x, out, rest, last, out_last, 1, real, 2 * real)
        along_all(&call, FFT, 1, out, out, stack, out_shape, axes - 1, out_last, 2 * real)
    elif kind == IRFFT:
        if axes > 1:
            copy = <char*>malloc(rest * last * 2 * real)
            if copy == NULL:
                (<int32_t*>buffers[2])[0] = 1
                return
            along_all(&call, IFFT, factor, x, copy, stack, shape, axes - 1, last, 2 * real)
            x, factor = copy, 1
        along(&call, IRFFT, factor, x, out, rest, last, out_last, 1, 2 * real, real)
        free(copy)
    elif words[1]:
        along_reals(&call, kind == IFFT, factor, x, out, rest, last, real)
        along_all(&call, kind, 1, out, out, stack, shape, axes - 1, last, 2 * real)
    else:
        along_all(&call, kind, factor, x, out, stack, shape, axes, 1, 2 * real)
    if call.failed:
        (<int32_t*>buffers[2])[0] = 1


def address():
    """The address of the function for the executor."""
    return <size_t>&run
