/* C functions called from programs of mpijax.

   A target is a function

       void target(void **buffers, const int64_t *call);

   buffers: the operands, then the results, each C-contiguous, then memory for an error message. Operands must not be
   written (but those that input_output_aliases names); results are not initialised.
   call:    types of operands and results, and the attributes; the functions below read it.

   It is called without Python's lock, once for each time the program reaches it, possibly from several threads at
   once, and must not throw, longjmp, or keep the pointers. Register it from Python:

       lib = ctypes.CDLL("./libtargets.so")
       mpijax.ffi.register_ffi_target("scale", mpijax.ffi.pycapsule(lib.scale))
*/
#ifndef MPIJAX_FFI_H
#define MPIJAX_FFI_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
#define MPIJAX_FFI_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define MPIJAX_FFI_EXPORT __attribute__((visibility("default")))
#endif

/* Types of elements. float16 and bfloat16 are two bytes, complex64 and complex128 two floats and two doubles. Integers of
   2 and 4 bits and floats of 4 bits are in the low bits of a byte each. */
enum mpijax_dtype {
  MPIJAX_OTHER = 0, MPIJAX_BOOL, MPIJAX_INT8, MPIJAX_INT16, MPIJAX_INT32, MPIJAX_INT64, MPIJAX_UINT8, MPIJAX_UINT16,
  MPIJAX_UINT32, MPIJAX_UINT64, MPIJAX_FLOAT16, MPIJAX_BFLOAT16, MPIJAX_FLOAT32, MPIJAX_FLOAT64, MPIJAX_COMPLEX64,
  MPIJAX_COMPLEX128, MPIJAX_STRING, MPIJAX_INT2, MPIJAX_INT4, MPIJAX_UINT2, MPIJAX_UINT4, MPIJAX_FLOAT4_E2M1FN,
  MPIJAX_FLOAT8_E3M4, MPIJAX_FLOAT8_E4M3, MPIJAX_FLOAT8_E4M3B11FNUZ, MPIJAX_FLOAT8_E4M3FN, MPIJAX_FLOAT8_E4M3FNUZ,
  MPIJAX_FLOAT8_E5M2, MPIJAX_FLOAT8_E5M2FNUZ, MPIJAX_FLOAT8_E8M0FNU
};

/* Words of `call`: version, numbers of operands, results and attributes, then where each array's words are (type,
   axes, elements, dimensions), then four words an attribute (name, type, elements, value): all places in words. */
enum { MPIJAX_HEAD = 4, MPIJAX_STATUS_BYTES = 256 };

static inline int64_t mpijax_num_args(const int64_t *call) { return call[1]; }
static inline int64_t mpijax_num_results(const int64_t *call) { return call[2]; }

/* Pointers to the elements of operand i and of result i. */
static inline void *mpijax_arg(void **buffers, const int64_t *call, int64_t i) { (void)call; return buffers[i]; }
static inline void *mpijax_result(void **buffers, const int64_t *call, int64_t i) { return buffers[call[1] + i]; }

/* Types of operand i; result i is number mpijax_num_args(call) + i here. */
static inline const int64_t *mpijax_array(const int64_t *call, int64_t i) { return call + call[MPIJAX_HEAD + i]; }
static inline int64_t mpijax_dtype(const int64_t *call, int64_t i) { return mpijax_array(call, i)[0]; }
static inline int64_t mpijax_ndim(const int64_t *call, int64_t i) { return mpijax_array(call, i)[1]; }
static inline int64_t mpijax_size(const int64_t *call, int64_t i) { return mpijax_array(call, i)[2]; }
static inline const int64_t *mpijax_shape(const int64_t *call, int64_t i) { return mpijax_array(call, i) + 3; }

/* The words of an attribute, or NULL if the call has none of that name. Entry "b" of a dict `a` has the name "a.b". */
static inline const int64_t *mpijax_attribute(const int64_t *call, const char *name) {
  const int64_t *entry = call + MPIJAX_HEAD + call[1] + call[2];
  for (int64_t k = 0; k < call[3]; k++, entry += 4)
    if (strcmp((const char *)(call + entry[0]), name) == 0) return entry;
  return NULL;
}

/* Attributes given as Python (or NumPy) numbers and strings; `otherwise` where there is none. */
static inline int64_t mpijax_int(const int64_t *call, const char *name, int64_t otherwise) {
  const int64_t *entry = mpijax_attribute(call, name);
  if (!entry) return otherwise;
  return entry[1] == MPIJAX_FLOAT64 ? (int64_t)*(const double *)(call + entry[3]) : call[entry[3]];
}
static inline double mpijax_double(const int64_t *call, const char *name, double otherwise) {
  const int64_t *entry = mpijax_attribute(call, name);
  if (!entry) return otherwise;
  return entry[1] == MPIJAX_FLOAT64 ? *(const double *)(call + entry[3]) : (double)call[entry[3]];
}
static inline const char *mpijax_string(const int64_t *call, const char *name, const char *otherwise) {
  const int64_t *entry = mpijax_attribute(call, name);
  return entry && entry[1] == MPIJAX_STRING ? (const char *)(call + entry[3]) : otherwise;
}
/* Attributes given as NumPy arrays: their elements as they are, and how many. */
static inline const void *mpijax_elements(const int64_t *call, const char *name, int64_t *count) {
  const int64_t *entry = mpijax_attribute(call, name);
  if (count) *count = entry ? entry[2] : 0;
  return entry ? (const void *)(call + entry[3]) : NULL;
}

/* Make the program raise JaxRuntimeError with a message of at most 251 bytes, formatted as by printf. Then return. */
static inline void mpijax_fail(void **buffers, const int64_t *call, const char *format, ...) {
  char *status = (char *)buffers[call[1] + call[2]];
  va_list values;
  va_start(values, format);
  vsnprintf(status + 4, MPIJAX_STATUS_BYTES - 4, format, values);
  va_end(values);
  *(int32_t *)status = 1;
}

#endif
