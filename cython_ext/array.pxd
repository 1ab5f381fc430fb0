# The array object, for the other extensions: `from mpijax._ext.array cimport ArrayBase, is_array`.

from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int32_t


cdef enum:
    NO_CLASS = -1                   # `size_class` of memory with another owner

cdef enum ArrayFlags:
    DELETED = 1


cdef class ArrayBase:
    cdef PyObject* aval             # the ShapedArray; interned, so types are equal if pointers are
    cdef void* ptr                  # C-contiguous elements; NULL once deleted
    cdef PyObject* owner            # keeps `ptr` alive: a Buffer or ndarray; NULL while the array itself does
    cdef PyObject* view             # the read-only ndarray over `ptr`, made at first use
    cdef PyObject* sharding         # NULL: on the single device of this process
    cdef int32_t size_class         # of the pool block at `ptr`, or NO_CLASS
    cdef short flags
    cdef unsigned short uses        # number of programs that are reading the memory, perhaps in other threads
    cdef object __weakref__


# The registered class (`mpijax.runtime.arrays.array.ArrayImpl`); the functions below make its instances.
cdef PyTypeObject* array_type

cdef inline bint is_array(PyObject* x) noexcept:
    return x.ob_type == array_type

# A new array with uninitialised memory for `nbytes` bytes.
cdef PyObject* new_array(PyObject* aval, size_t nbytes, PyObject* sharding) except NULL

# A new array that takes over the memory of `source`, which is then deleted; NULL without an exception if that is
# impossible: the memory belongs to another owner, is in use, has an ndarray view, or is smaller than `nbytes`.
cdef PyObject* take_memory(PyObject* source, PyObject* aval, size_t nbytes, PyObject* sharding) except? NULL

# An array over memory that `owner` keeps alive.
cdef PyObject* wrap_memory(PyObject* aval, void* ptr, object owner, PyObject* sharding) except NULL

# Frees the memory of an array now, or when the last program that uses it ends.
cdef void delete_array(PyObject* array) noexcept
cdef void end_use(PyObject* array) noexcept

# Raises the error for a use of a deleted array.
cdef int raise_deleted(PyObject* array) except -1

# Pool blocks for temporary memory: the class for a size, then memory of that class.
cdef int block_class(size_t nbytes) noexcept
cdef void* allocate(int size_class) except NULL
cdef void release(void* memory, int size_class) noexcept
