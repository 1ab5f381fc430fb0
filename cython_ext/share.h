/* Divides the work of native code that programs call among the threads of the rank. */
#ifndef MPIJAX_SHARE_H
#define MPIJAX_SHARE_H

#include <stdint.h>

typedef void (*share_kernel)(void **ptrs, int64_t *params, int64_t begin, int64_t end);

/* Runs a kernel over [0, extent), in parts of at least `grain` that begin at multiples of it: `executor.on_threads`. */
typedef void (*share_function)(share_kernel kernel, void **ptrs, int64_t *params, int64_t extent, int64_t grain);

/* The minimum iterations per thread, of `work` elements each, so that a thread takes `least` elements. */
static inline int64_t share_grain(int64_t least, int64_t work) {
    return work >= least ? 1 : (least + work - 1) / (work > 0 ? work : 1);
}

#endif
