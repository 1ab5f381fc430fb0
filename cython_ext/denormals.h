/* The processor's treatment of denormals: programs flush them to zero, as XLA does; code outside is unaffected.

   Flush-to-zero (results) and denormals-are-zero (operands) are bits of a register that each thread has: MXCSR on x86,
   FPCR on aarch64. Other processors are left unchanged. float16 and bfloat16 are computed in float32, whose normal
   numbers include the denormals of float16. */

#ifndef MPIJAX_DENORMALS_H
#define MPIJAX_DENORMALS_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#define DN_FLUSH UINT64_C(0x8040)       /* FTZ and DAZ */
static inline uint64_t dn_register(void) { return _mm_getcsr(); }
static inline void dn_write(uint64_t word) { _mm_setcsr((unsigned)word); }
#elif defined(__aarch64__)
#define DN_FLUSH (UINT64_C(1) << 24)    /* FZ: operands and results */
static inline uint64_t dn_register(void) {
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word) : : "memory");
    return word;
}
static inline void dn_write(uint64_t word) { __asm__ volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
#else
#define DN_FLUSH UINT64_C(0)
static inline uint64_t dn_register(void) { return 0; }
static inline void dn_write(uint64_t word) { (void)word; }
#endif

/* The mode of this thread: DN_FLUSH, 0, or one of the two bits. */
static inline uint64_t dn_mode(void) { return dn_register() & DN_FLUSH; }

/* Switches this thread to a mode if it has another one; returns the previous mode. Flags and rounding are unchanged. */
static inline uint64_t dn_switch(uint64_t mode) {
    uint64_t word = dn_register();
    if ((word & DN_FLUSH) != mode) dn_write((word & ~DN_FLUSH) | mode);
    return word & DN_FLUSH;
}

#endif
