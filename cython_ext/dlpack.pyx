# cython: language_level=3, embedsignature=True
"""DLPack capsules of floating-point formats that NumPy exchanges only as integers of the same width."""

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport strcmp

import ml_dtypes
import numpy as np

cdef struct DLDataType:
    uint8_t code
    uint8_t bits
    uint16_t lanes

cdef struct DLTensor:
    void* data
    int32_t device_type
    int32_t device_id
    int32_t ndim
    DLDataType dtype
    int64_t* shape
    int64_t* strides
    uint64_t byte_offset

cdef struct DLManagedTensor:
    DLTensor dl_tensor
    void* manager_ctx
    void* deleter

cdef struct DLManagedTensorVersioned:
    uint32_t major
    uint32_t minor
    void* manager_ctx
    void* deleter
    uint64_t flags
    DLTensor dl_tensor

cdef enum:
    UNSIGNED_INTEGER = 1

# DLDataTypeCode of DLPack 1.1.
CODES = {
    np.dtype(ml_dtypes.bfloat16): 4,
    np.dtype(ml_dtypes.float8_e3m4): 7,
    np.dtype(ml_dtypes.float8_e4m3): 8,
    np.dtype(ml_dtypes.float8_e4m3b11fnuz): 9,
    np.dtype(ml_dtypes.float8_e4m3fn): 10,
    np.dtype(ml_dtypes.float8_e4m3fnuz): 11,
    np.dtype(ml_dtypes.float8_e5m2): 12,
    np.dtype(ml_dtypes.float8_e5m2fnuz): 13,
    np.dtype(ml_dtypes.float8_e8m0fnu): 14,
}
DTYPES = {(code, 8 * dtype.itemsize): dtype for dtype, code in CODES.items()}


cdef DLDataType* type_in(capsule) except NULL:
    """The type of the tensor in a capsule that no consumer has taken yet."""
    cdef const char* name = PyCapsule_GetName(capsule)
    if name != NULL and strcmp(name, b"dltensor_versioned") == 0:
        return &(<DLManagedTensorVersioned*>PyCapsule_GetPointer(capsule, name)).dl_tensor.dtype
    return &(<DLManagedTensor*>PyCapsule_GetPointer(capsule, b"dltensor")).dl_tensor.dtype


def export(value, options):
    """A capsule over the memory of an ndarray.

    Raises:
      BufferError: for a dtype that has no DLPack code, or that DLPack packs more densely than NumPy.
    """
    code = CODES.get(value.dtype)
    if code is not None:
        capsule = value.view(f"u{value.dtype.itemsize}").__dlpack__(**options)
        type_in(capsule).code = code
        return capsule
    if value.dtype.type.__module__ == "ml_dtypes":
        raise BufferError(
            f"Arrays of {value.dtype} cannot be exported by DLPack, which has no such dtype of whole bytes."
        )
    return value.__dlpack__(**options)


def as_integers(capsule):
    """The dtype of the tensor in a capsule if it is one of `CODES`, else None. The capsule is then one of unsigned
    integers of the same width, which NumPy accepts."""
    cdef DLDataType* type = type_in(capsule)
    dtype = DTYPES.get((type.code, type.bits)) if type.lanes == 1 else None
    if dtype is not None:
        type.code = UNSIGNED_INTEGER
    return dtype
