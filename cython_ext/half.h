/* float16 and bfloat16, which MPI lacks: datatypes and conversions; also handles of the reductions of `mpi_ops.h`. */

#ifndef MPIJAX_HALF_H
#define MPIJAX_HALF_H

#include <mpi.h>
#include <stdint.h>
#include <string.h>

static MPI_Datatype MJ_F16, MJ_BF16; /* two bytes each, told apart by their handles */
static MPI_Op MJ_SUM, MJ_PROD, MJ_MAX, MJ_MIN;

static inline float mj_as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static inline uint32_t mj_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static inline float mj_from_bf16(uint16_t h) { return mj_as_float((uint32_t)h << 16); }

/* Round to nearest, ties to even; a NaN stays NaN although its low bits are cut off. */
static inline uint16_t mj_to_bf16(float x) {
    uint32_t bits = mj_bits(x);
    if (x != x) return (uint16_t)(bits >> 16) | 0x40;
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* Moves exponent and fraction to their places in a float; the multiplication corrects the exponent's bias and
   normalizes subnormals. Infinity and NaN (exponent all ones) get float's exponent. */
static inline float mj_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    float x = mj_as_float(rest) * mj_as_float((254 - 15) << 23);
    if ((h & 0x7c00) == 0x7c00) x = mj_as_float(rest | 0x7f800000);
    return mj_as_float(mj_bits(x) | sign);
}

/* Round to nearest, ties to even. Below 2^-14, adding 0.5 shifts the fraction so that the float adder itself rounds at
   float16's last subnormal bit; the bits of 0.5 are then subtracted. */
static inline uint16_t mj_to_f16(float x) {
    uint32_t bits = mj_bits(x), sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x47800000) return (uint16_t)(sign | 0x7c00); /* 65536 and above */
    if (rest < 0x38800000) return (uint16_t)(sign | (mj_bits(mj_as_float(rest) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | ((rest - (112u << 23) + 0xfff + ((rest >> 13) & 1)) >> 13));
}

#endif
