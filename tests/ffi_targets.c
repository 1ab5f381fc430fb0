/* Targets of tests/test_ffi.py. */
#include "mpijax/ffi.h"

/* y = factor x, for float32 of any shape. */
MPIJAX_FFI_EXPORT void scale(void **buffers, const int64_t *call) {
  const float *x = mpijax_arg(buffers, call, 0);
  float *y = mpijax_result(buffers, call, 0);
  double factor = mpijax_double(call, "factor", 1.0);
  if (factor < 0) {
    mpijax_fail(buffers, call, "factor must not be negative, got %g", factor);
    return;
  }
  for (int64_t i = 0; i < mpijax_size(call, 0); i++) y[i] = (float)factor * x[i];
}

/* Sums over the last axis, and the shape of the operand. */
MPIJAX_FFI_EXPORT void row_sums(void **buffers, const int64_t *call) {
  const float *x = mpijax_arg(buffers, call, 0);
  float *sums = mpijax_result(buffers, call, 0);
  int32_t *dims = mpijax_result(buffers, call, 1);
  int64_t ndim = mpijax_ndim(call, 0), length = mpijax_shape(call, 0)[ndim - 1];
  for (int64_t i = 0; i < mpijax_size(call, 1); i++) {
    sums[i] = 0;
    for (int64_t k = 0; k < length; k++) sums[i] += x[i * length + k];
  }
  for (int64_t k = 0; k < ndim; k++) dims[k] = (int32_t)mpijax_shape(call, 0)[k];
}

/* What a target sees of attributes and types, as float64. */
MPIJAX_FFI_EXPORT void describe(void **buffers, const int64_t *call) {
  double *y = mpijax_result(buffers, call, 0);
  int64_t count;
  const int16_t *table = mpijax_elements(call, "table", &count);
  const char *name = mpijax_string(call, "name", "");
  y[0] = (double)mpijax_int(call, "whole", -1);
  y[1] = mpijax_double(call, "real", -1);
  y[2] = (double)mpijax_int(call, "flag", -1);
  y[3] = (double)strlen(name) * 1000 + (double)name[0];
  y[4] = (double)count * 1000 + table[count - 1];
  y[5] = (double)mpijax_int(call, "absent", -7);
  y[6] = (double)mpijax_dtype(call, 0);
  y[7] = (double)mpijax_num_args(call) * 10 + (double)mpijax_num_results(call);
}

/* Attributes that are entries of dicts, beside one that is not. */
MPIJAX_FFI_EXPORT void describe_entries(void **buffers, const int64_t *call) {
  double *y = mpijax_result(buffers, call, 0);
  int64_t count;
  const double *tiles = mpijax_elements(call, "sizes.of.tiles", &count);
  y[0] = (double)mpijax_int(call, "sizes.rows", -1);
  y[1] = count == 2 ? tiles[1] : -1;
  y[2] = mpijax_double(call, "limit", -1);
}

/* The type of an array of small elements, how many they are, and the bits of the last one. */
MPIJAX_FFI_EXPORT void describe_small(void **buffers, const int64_t *call) {
  int32_t *y = mpijax_result(buffers, call, 0);
  int64_t count;
  const uint8_t *small = mpijax_elements(call, "small", &count);
  y[0] = (int32_t)mpijax_attribute(call, "small")[1];
  y[1] = (int32_t)count;
  y[2] = small[count - 1];
}

/* The axes of the first operand, then -1. */
MPIJAX_FFI_EXPORT void operand_shape(void **buffers, const int64_t *call) {
  int32_t *y = mpijax_result(buffers, call, 0);
  for (int64_t k = 0; k < mpijax_size(call, mpijax_num_args(call)); k++)
    y[k] = k < mpijax_ndim(call, 0) ? (int32_t)mpijax_shape(call, 0)[k] : -1;
}

/* x += 1 in place: the result lies where the operand is. */
MPIJAX_FFI_EXPORT void increment(void **buffers, const int64_t *call) {
  float *y = mpijax_result(buffers, call, 0);
  if (y != mpijax_arg(buffers, call, 0)) mpijax_fail(buffers, call, "operand and result are apart");
  for (int64_t i = 0; i < mpijax_size(call, 0); i++) y[i] += 1;
}

/* Notes each number it gets. */
static float noted[64];
static int64_t notes;
MPIJAX_FFI_EXPORT void note(void **buffers, const int64_t *call) {
  float *y = mpijax_result(buffers, call, 0);
  *y = *(float *)mpijax_arg(buffers, call, 0);
  if (notes < 64) noted[notes++] = *y;
}
MPIJAX_FFI_EXPORT int64_t read_notes(float *out) {
  int64_t count = notes;
  memcpy(out, noted, sizeof(float) * (size_t)count);
  notes = 0;
  return count;
}
