/* Reductions that MPI lacks or does not define as JAX does.

   - float16 and bfloat16: each combination of two ranks' values is computed in float and rounded to the type
     (through shared memory, `mpi_slots.h`, sums and products are rounded once).
   - Sums of 8- and 16-bit integers wrap around; Open MPI's vectorized sums saturate.
   - max and min of floating-point numbers propagate NaN; MPI leaves that undefined.

   MPI passes a user operation the datatype, from which it gets the element type: hence MJ_F16 and MJ_BF16. */

#ifndef MPIJAX_MPI_OPS_H
#define MPIJAX_MPI_OPS_H

#include "mpi_calls.h"
#include <math.h>

static inline float mj_same_f(float x) { return x; }
static inline double mj_same_d(double x) { return x; }

#define MJ_ADD(a, b) ((a) + (b))
#define MJ_MUL(a, b) ((a) * (b))
/* NaN if either operand is NaN; +0 is greater than -0, so that the order of ranks does not matter. */
#define MJ_MAXIMUM(a, b) \
    ((a) > (b) || (a) != (a) ? (a) : (b) > (a) || (b) != (b) ? (b) : signbit(a) ? (b) : (a))
#define MJ_MINIMUM(a, b) \
    ((a) < (b) || (a) != (a) ? (a) : (b) < (a) || (b) != (b) ? (b) : signbit(a) ? (a) : (b))

#define MJ_LOOP(store, wide, load, round, combine)                \
    do {                                                          \
        const store *x = in;                                      \
        store *y = inout;                                         \
        for (int64_t i = 0; i < n; i++) {                         \
            wide a = load(x[i]), b = load(y[i]);                  \
            y[i] = round(combine(a, b));                          \
        }                                                         \
    } while (0)

#define MJ_HALVES(combine)                                        \
    if (*type == MJ_BF16) MJ_LOOP(uint16_t, float, mj_from_bf16, mj_to_bf16, combine); \
    else if (*type == MJ_F16) MJ_LOOP(uint16_t, float, mj_from_f16, mj_to_f16, combine)

#define MJ_FLOATS(combine)                                        \
    else if (*type == MPI_FLOAT) MJ_LOOP(float, float, mj_same_f, mj_same_f, combine); \
    else MJ_LOOP(double, double, mj_same_d, mj_same_d, combine)

/* Unsigned arithmetic wraps, and gives the bits of the signed result. */
#define MJ_SMALL_INTEGERS(combine)                                \
    else if (*type == MPI_INT8_T || *type == MPI_UINT8_T)         \
        MJ_LOOP(uint8_t, unsigned, (unsigned), (uint8_t), combine); \
    else MJ_LOOP(uint16_t, unsigned, (unsigned), (uint16_t), combine)

#define MJ_OPERATION(name, body)                                  \
    static void name(void *in, void *inout, mj_count *count, MPI_Datatype *type) { \
        int64_t n = (int64_t)*count;                              \
        body;                                                     \
    }

MJ_OPERATION(mj_sum, MJ_HALVES(MJ_ADD); MJ_SMALL_INTEGERS(MJ_ADD))
MJ_OPERATION(mj_prod, MJ_HALVES(MJ_MUL))
MJ_OPERATION(mj_max, MJ_HALVES(MJ_MAXIMUM); MJ_FLOATS(MJ_MAXIMUM))
MJ_OPERATION(mj_min, MJ_HALVES(MJ_MINIMUM); MJ_FLOATS(MJ_MINIMUM))

/* Makes the datatypes and operations; called once, after MPI has started. */
static int mj_make_operations(void) {
    MPI_Datatype *types[2] = {&MJ_F16, &MJ_BF16};
    for (int i = 0; i < 2; i++) {
        int rc = MPI_Type_contiguous(2, MPI_BYTE, types[i]);
        if (rc == MPI_SUCCESS) rc = MPI_Type_commit(types[i]);
        if (rc != MPI_SUCCESS) return rc;
    }
    int rc = MJ(MPI_Op_create)(mj_sum, 1, &MJ_SUM);
    if (rc == MPI_SUCCESS) rc = MJ(MPI_Op_create)(mj_prod, 1, &MJ_PROD);
    if (rc == MPI_SUCCESS) rc = MJ(MPI_Op_create)(mj_max, 1, &MJ_MAX);
    if (rc == MPI_SUCCESS) rc = MJ(MPI_Op_create)(mj_min, 1, &MJ_MIN);
    return rc;
}

#endif
