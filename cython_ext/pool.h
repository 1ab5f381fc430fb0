/* Memory of arrays: 64-byte aligned blocks from free lists by size class.

   Fresh memory costs page faults, so freed blocks are kept for the next array of about the same size. Kept blocks never
   make the process larger than its arrays once were, except for MP_SLACK.

   All functions run with the GIL held, which protects this state. */

#ifndef MPIJAX_POOL_H
#define MPIJAX_POOL_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MP_ALIGN 64
#define MP_FINE 8                   /* classes of 64, 128, ... 512 bytes; above, four to each doubling */
#define MP_CLASSES (MP_FINE + 4 * 54) /* of all sizes below 2^63 */
#define MP_HUGE ((size_t)4 << 20)   /* larger blocks are separate mappings, in huge pages if possible */
#define MP_PAGE ((size_t)2 << 20)
#define MP_STAGGER ((size_t)64 << 10) /* larger blocks begin at varying offsets in a page */
#define MP_SMALL_PAGE ((size_t)4096)
#define MP_SLACK ((size_t)64 << 20)

typedef struct mp_block {
    struct mp_block *next;
} mp_block;

static mp_block *mp_free_lists[MP_CLASSES];
static size_t mp_live, mp_peak, mp_kept, mp_allocations, mp_fresh;

static inline int mp_class(size_t nbytes) {
    size_t units = nbytes ? (nbytes - 1) / MP_ALIGN : 0; /* the block has units + 1 units of 64 bytes */
    if (units < MP_FINE) return (int)units;
    int log2 = 63 - __builtin_clzll((unsigned long long)units);
    return MP_FINE + 4 * (log2 - 3) + (int)((units >> (log2 - 2)) & 3);
}

/* Bytes of a block of class `c`; the smallest class that holds n bytes is mp_class(n). */
static inline size_t mp_class_bytes(int c) {
    if (c < MP_FINE) return (size_t)(c + 1) * MP_ALIGN;
    int log2 = 3 + (c - MP_FINE) / 4, quarter = (c - MP_FINE) % 4;
    return ((size_t)(4 + quarter + 1) << (log2 - 2)) * MP_ALIGN;
}

/* A mapping aligned to a huge page. It does not set MAP_NORESERVE, so that the system immediately refuses memory that
   it cannot provide. */
static void *mp_map(size_t nbytes) {
    size_t padded = nbytes + MP_PAGE;
    char *start = mmap(NULL, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    char *block = (char *)(((uintptr_t)start + MP_PAGE - 1) & ~(uintptr_t)(MP_PAGE - 1));
    if (block > start) munmap(start, (size_t)(block - start));
    if (block + nbytes < start + padded) munmap(block + nbytes, (size_t)(start + padded - block - nbytes));
    madvise(block, nbytes, MADV_HUGEPAGE);
    return block;
}

/* The offset in its page at which the next large block begins. A processor compares only the low 12 bits of addresses
   to check whether a load depends on an earlier store. If a kernel reads neighbours in one array and writes another one
   with the same offset in a page, its loads wait for unrelated stores, and it is up to four times slower. Multiples of
   the golden ratio keep any few consecutive offsets far apart among the 64 lines of a page. */
static inline size_t mp_next_stagger(void) {
    static size_t line;
    line = (line + 25) % (MP_SMALL_PAGE / MP_ALIGN);
    return line * MP_ALIGN;
}

static void *mp_fresh_block(size_t nbytes) {
    void *block = NULL;
    if (nbytes < MP_STAGGER) return posix_memalign(&block, MP_ALIGN, nbytes) == 0 ? block : NULL;
    if (nbytes >= MP_HUGE) block = mp_map(nbytes + MP_SMALL_PAGE);
    else if (posix_memalign(&block, MP_SMALL_PAGE, nbytes + MP_SMALL_PAGE) != 0) return NULL;
    return block == NULL ? NULL : (char *)block + mp_next_stagger();
}

static void mp_return_block(void *block, size_t nbytes) {
    if (nbytes < MP_STAGGER) {
        free(block);
        return;
    }
    void *start = (void *)((uintptr_t)block & ~(uintptr_t)(MP_SMALL_PAGE - 1));
    if (nbytes >= MP_HUGE) munmap(start, nbytes + MP_SMALL_PAGE);
    else free(start);
}

/* Returns kept blocks to the system, the largest first, until at most `limit` bytes are kept. */
static void mp_trim(size_t limit) {
    for (int c = MP_CLASSES - 1; c >= 0 && mp_kept > limit; c--) {
        size_t bytes = mp_class_bytes(c);
        while (mp_free_lists[c] != NULL && mp_kept > limit) {
            mp_block *block = mp_free_lists[c];
            mp_free_lists[c] = block->next;
            mp_kept -= bytes;
            mp_return_block(block, bytes);
        }
    }
}

static inline size_t mp_keep_limit(void) { return mp_peak - mp_live + MP_SLACK; }

/* The slow path of mp_alloc: the class has no free block. NULL if there is no memory. */
static void *mp_alloc_fresh(int c) {
    size_t bytes = mp_class_bytes(c);
    void *block = mp_fresh_block(bytes);
    if (block == NULL) { /* freeing kept blocks may make room */
        mp_trim(0);
        block = mp_fresh_block(bytes);
        if (block == NULL) return NULL;
    }
    mp_fresh++;
    return block;
}

/* An uninitialised block of class `c`. */
static inline void *mp_alloc(int c) {
    mp_block *block = mp_free_lists[c];
    size_t bytes = mp_class_bytes(c);
    if (block != NULL) {
        mp_free_lists[c] = block->next;
        mp_kept -= bytes;
    } else {
        block = (mp_block *)mp_alloc_fresh(c);
        if (block == NULL) return NULL;
    }
    mp_allocations++;
    mp_live += bytes;
    if (mp_live > mp_peak) mp_peak = mp_live;
    if (mp_kept > mp_keep_limit()) mp_trim(mp_keep_limit());
    return block;
}

static inline void mp_release(void *memory, int c) {
    mp_block *block = (mp_block *)memory;
    size_t bytes = mp_class_bytes(c);
    mp_live -= bytes;
    if (mp_kept + bytes > mp_keep_limit()) {
        mp_return_block(block, bytes);
        return;
    }
    block->next = mp_free_lists[c];
    mp_free_lists[c] = block;
    mp_kept += bytes;
}

#endif
