# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Arrays: the object that holds a value's type and memory, and the memory pool.

Every operation makes an array. So an array is one small object that owns its memory block itself; an ndarray over it is
made only on request, and objects and blocks are reused instead of freed. The Python class that users see is registered
once (`register_array_type`); it adds operators and methods, but no fields.
"""

cimport cython
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF, Py_XINCREF
from libc.string cimport memcpy

import math
import operator

import numpy as np

cimport numpy as cnp

from mpijax._ext import dlpack
from mpijax.core.base import provided

cnp.import_array()


cdef extern from "pool.h":
    int mp_class(size_t nbytes) nogil
    size_t mp_class_bytes(int c) nogil
    void* mp_alloc(int c) nogil
    void mp_release(void* memory, int c) nogil
    void mp_trim(size_t limit) nogil
    size_t mp_live, mp_peak, mp_kept, mp_allocations, mp_fresh

cdef extern from "checksum.h":
    unsigned long long mj_checksum(const unsigned char* data, size_t nbytes) nogil

cdef extern from "Python.h":
    PyObject* PyObject_Init(PyObject* op, PyTypeObject* type)
    void PyObject_ClearWeakRefs(PyObject* op)
    int PyObject_GetBuffer(object exporter, Py_buffer* view, int flags) except -1
    ctypedef void (*destructor)(PyObject*) noexcept

cdef extern from *:
    """
    /* Instances of Python classes have the garbage collector's header before them. Arrays are never tracked, since they
       are in no cycles, but the header must exist. */
    static PyObject *mj_new_object(PyTypeObject *type) {
        if (!PyType_IS_GC(type)) return (PyObject *)_PyObject_New(type);
        /* No collection here: it runs Python code, and another thread might then delete arrays that a program reads. */
        int collects = PyGC_Disable();
        PyObject *op = (PyObject *)_PyObject_GC_New(type);
        if (collects) PyGC_Enable();
        return op;
    }
    static void mj_free_object(PyTypeObject *type, PyObject *op) {
        if (PyType_IS_GC(type)) PyObject_GC_Del(op);
        else PyObject_Free(op);
    }
    /* Instances made by calling the class (which raises) are tracked; they must not be tracked when they are reused. */
    static void mj_untrack(PyObject *op) {
        if (PyType_IS_GC(Py_TYPE(op))) PyObject_GC_UnTrack(op);
    }
    /* Members that Cython's declaration of PyTypeObject omits. */
    static destructor mj_dealloc(PyTypeObject *type) { return type->tp_dealloc; }
    static void mj_set_dealloc(PyTypeObject *type, destructor f) { type->tp_dealloc = f; }
    static int mj_same_layout(PyTypeObject *type, PyTypeObject *base) {
        return type->tp_basicsize == base->tp_basicsize && type->tp_weaklistoffset == base->tp_weaklistoffset;
    }
    static int mj_has_weakrefs(PyObject *op) {
        return *(PyObject **)((char *)op + Py_TYPE(op)->tp_weaklistoffset) != NULL;
    }
    static void mj_clear_weaklist(PyObject *op) {
        *(PyObject **)((char *)op + Py_TYPE(op)->tp_weaklistoffset) = NULL;
    }
    """
    PyObject* mj_new_object(PyTypeObject* type) except NULL
    void mj_free_object(PyTypeObject* type, PyObject* op)
    void mj_untrack(PyObject* op)
    destructor mj_dealloc(PyTypeObject* type)
    void mj_set_dealloc(PyTypeObject* type, destructor f)
    int mj_same_layout(PyTypeObject* type, PyTypeObject* base)
    int mj_has_weakrefs(PyObject* op)
    void mj_clear_weaklist(PyObject* op)

cdef extern from *:
    """
    #include <numpy/arrayobject.h>
    /* NumPy's functions as called here; they steal the references `descr` and `base`. */
    static PyObject *mj_ndarray(PyObject *descr, int ndim, npy_intp *dims, void *data, int flags) {
        return PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)descr, ndim, dims, NULL, data, flags,
                                    NULL);
    }
    static int mj_set_base(PyObject *array, PyObject *base) {
        return PyArray_SetBaseObject((PyArrayObject *)array, base);
    }
    static int mj_copy_into(PyObject *target, PyObject *source) {
        return PyArray_CopyInto((PyArrayObject *)target, (PyArrayObject *)source);
    }
    """
    object mj_ndarray(PyObject* descr, int ndim, cnp.npy_intp* dims, void* data, int flags)
    int mj_set_base(PyObject* array, PyObject* base) except -1
    int mj_copy_into(PyObject* target, PyObject* source) except -1


# ---- memory ----

cdef int raise_out_of_memory(size_t nbytes, what) except -1:
    raise provided.JaxRuntimeError(f"RESOURCE_EXHAUSTED: Out of memory allocating {nbytes} bytes for {what}.")


cdef int block_class(size_t nbytes) noexcept:
    return mp_class(nbytes)


cdef void* allocate(int size_class) except NULL:
    cdef void* memory = mp_alloc(size_class)
    if memory == NULL:
        raise_out_of_memory(mp_class_bytes(size_class), "the temporary arrays of a program")
    return memory


cdef void release(void* memory, int size_class) noexcept:
    mp_release(memory, size_class)


@cython.final
@cython.no_gc
cdef class Buffer:
    """A pool block that ndarrays share with an array; it may outlive the array."""

    cdef void* ptr
    cdef int size_class

    def __dealloc__(self):
        if self.ptr != NULL:
            mp_release(self.ptr, self.size_class)

    @property
    def nbytes(self):
        return mp_class_bytes(self.size_class)


def memory_stats():
    """Memory of all arrays of this process.

    In bytes of whole blocks: `live_bytes`, their `peak_bytes`, and `kept_bytes` of freed blocks. Counts: `allocations`,
    and those that the system served (`fresh`).
    """
    return {"live_bytes": mp_live, "peak_bytes": mp_peak, "kept_bytes": mp_kept,
            "allocations": mp_allocations, "fresh": mp_fresh}


def reset_peak():
    """Sets the peak to the bytes that are live now."""
    global mp_peak
    mp_peak = mp_live


def trim(size_t keep=0):
    """Returns freed blocks to the system until at most `keep` bytes of them are kept."""
    mp_trim(keep)


# ---- making and freeing array objects ----

cdef enum:
    FREE_OBJECTS = 256

cdef PyObject* free_objects[FREE_OBJECTS]
cdef int num_free_objects = 0
cdef destructor base_dealloc = NULL


cdef inline PyObject* new_object(PyObject* aval, PyObject* sharding) except NULL:
    """An instance of the registered class, without memory."""
    global num_free_objects
    cdef PyObject* op
    if num_free_objects > 0:
        num_free_objects -= 1
        op = PyObject_Init(free_objects[num_free_objects], array_type)
    else:
        op = mj_new_object(array_type)
        mj_clear_weaklist(op)
    Py_INCREF(<object>aval)
    Py_XINCREF(sharding)
    (<ArrayBase>op).aval = aval
    (<ArrayBase>op).ptr = NULL
    (<ArrayBase>op).owner = NULL
    (<ArrayBase>op).view = NULL
    (<ArrayBase>op).sharding = sharding
    (<ArrayBase>op).size_class = NO_CLASS
    (<ArrayBase>op).flags = 0
    (<ArrayBase>op).uses = 0
    return op


cdef PyObject* new_array(PyObject* aval, size_t nbytes, PyObject* sharding) except NULL:
    cdef int size_class = mp_class(nbytes)
    cdef void* memory = mp_alloc(size_class)
    if memory == NULL:
        raise_out_of_memory(nbytes, <object>aval)
    cdef PyObject* op = new_object(aval, sharding)
    (<ArrayBase>op).ptr = memory
    (<ArrayBase>op).size_class = size_class
    return op


cdef PyObject* take_memory(PyObject* source, PyObject* aval, size_t nbytes, PyObject* sharding) except? NULL:
    cdef int size_class = (<ArrayBase>source).size_class
    if (size_class == NO_CLASS or (<ArrayBase>source).owner != NULL or (<ArrayBase>source).uses
            or mp_class_bytes(size_class) < nbytes):
        return NULL
    cdef PyObject* op = new_object(aval, sharding)
    (<ArrayBase>op).ptr = (<ArrayBase>source).ptr
    (<ArrayBase>op).size_class = size_class
    (<ArrayBase>source).ptr = NULL
    (<ArrayBase>source).size_class = NO_CLASS
    (<ArrayBase>source).flags |= DELETED
    return op


cdef PyObject* wrap_memory(PyObject* aval, void* ptr, object owner, PyObject* sharding) except NULL:
    cdef PyObject* op = new_object(aval, sharding)
    Py_INCREF(owner)
    (<ArrayBase>op).ptr = ptr
    (<ArrayBase>op).owner = <PyObject*>owner
    return op


cdef inline void drop_memory(PyObject* op) noexcept:
    cdef PyObject* owner = (<ArrayBase>op).owner
    cdef PyObject* view = (<ArrayBase>op).view
    if (<ArrayBase>op).size_class != NO_CLASS:
        mp_release((<ArrayBase>op).ptr, (<ArrayBase>op).size_class)
        (<ArrayBase>op).size_class = NO_CLASS
    (<ArrayBase>op).ptr = NULL
    (<ArrayBase>op).owner = NULL
    (<ArrayBase>op).view = NULL
    Py_XDECREF(view)
    Py_XDECREF(owner)


cdef void delete_array(PyObject* array) noexcept:
    (<ArrayBase>array).flags |= DELETED
    if (<ArrayBase>array).uses == 0:
        drop_memory(array)


cdef void end_use(PyObject* array) noexcept:
    (<ArrayBase>array).uses -= 1
    if (<ArrayBase>array).uses == 0 and (<ArrayBase>array).flags & DELETED:
        drop_memory(array)


cdef inline void drop_fields(PyObject* op) noexcept:
    drop_memory(op)
    Py_XDECREF((<ArrayBase>op).sharding)
    Py_XDECREF((<ArrayBase>op).aval)


cdef void dealloc_array(PyObject* op) noexcept:
    """The registered class's tp_dealloc. That of Python classes is slower and frees the object."""
    global num_free_objects
    if op.ob_type != array_type:
        base_dealloc(op)        # a subclass: its tp_dealloc calls this one
        return
    mj_untrack(op)
    if mj_has_weakrefs(op):
        PyObject_ClearWeakRefs(op)
        mj_clear_weaklist(op)
    drop_fields(op)
    if num_free_objects < FREE_OBJECTS:
        free_objects[num_free_objects] = op
        num_free_objects += 1
    else:
        mj_free_object(array_type, op)
    Py_DECREF(<object>array_type)


def register_array_type(cls):
    """Makes `cls`, a subclass of `ArrayBase` without additional fields, the class of all arrays."""
    global array_type, base_dealloc
    if not (isinstance(cls, type) and issubclass(cls, ArrayBase)):
        raise TypeError(f"register_array_type: expected a subclass of ArrayBase, got {cls!r}")
    if array_type != NULL:
        raise RuntimeError(f"register_array_type: {<object>array_type!r} is already registered")
    if not mj_same_layout(<PyTypeObject*>cls, <PyTypeObject*>ArrayBase):
        raise TypeError(f"register_array_type: {cls!r} must have __slots__ = () and no other fields")
    Py_INCREF(cls)
    array_type = <PyTypeObject*>cls
    base_dealloc = mj_dealloc(<PyTypeObject*>ArrayBase)
    mj_set_dealloc(array_type, dealloc_array)


# ---- types and views ----

cdef object deleted_error(PyObject* array):
    aval = <object>(<ArrayBase>array).aval
    return RuntimeError(f"Array has been deleted with shape={aval.str_short(short_dtypes=False)}.")


cdef int raise_deleted(PyObject* array) except -1:
    raise deleted_error(array)


cdef inline int check_alive(ArrayBase a) except -1:
    if a.flags & DELETED:
        raise deleted_error(<PyObject*>a)
    return 0


cdef tuple physical_type(object aval):
    """The numpy.dtype and the shape of the array in memory."""
    dtype = aval.dtype
    if isinstance(dtype, np.dtype):
        return dtype, aval.shape
    return dtype.physical_dtype, aval.shape + dtype.physical_shape


cdef tuple local_type(object aval, object sharding):
    """The numpy.dtype and the shape of this process's part of an array: one shard if it is split."""
    if sharding is None:
        return physical_type(aval)
    dtype = aval.dtype
    shape = sharding.process_shape(aval.shape)
    if isinstance(dtype, np.dtype):
        return dtype, shape
    return dtype.physical_dtype, shape + dtype.physical_shape


cdef size_t local_bytes(object aval, object sharding) except? 0:
    dtype, shape = local_type(aval, sharding)
    return math.prod(shape) * dtype.itemsize


cdef object ndarray_over(object dtype, tuple shape, void* ptr, object owner, bint writeable):
    """An ndarray over `ptr`. owner: keeps the memory alive; None: the caller does."""
    cdef cnp.npy_intp dims[64]
    cdef int i, ndim = <int>len(shape), flags = cnp.NPY_ARRAY_C_CONTIGUOUS | cnp.NPY_ARRAY_ALIGNED
    if ndim > 64:
        raise ValueError(f"NumPy arrays have at most 64 axes, got {ndim}")
    for i in range(ndim):
        dims[i] = shape[i]
    if writeable:
        flags |= cnp.NPY_ARRAY_WRITEABLE
    Py_INCREF(dtype)   # the call steals this reference
    result = mj_ndarray(<PyObject*>dtype, ndim, dims, ptr, flags)
    if owner is not None:
        Py_INCREF(owner)
        mj_set_base(<PyObject*>result, <PyObject*>owner)
    return result


cdef object shared_owner(PyObject* op):
    """The object that keeps the memory alive, for others to hold too; the array then no longer owns it exclusively."""
    cdef Buffer buffer
    if (<ArrayBase>op).owner == NULL:
        buffer = Buffer.__new__(Buffer)
        buffer.ptr = (<ArrayBase>op).ptr
        buffer.size_class = (<ArrayBase>op).size_class
        (<ArrayBase>op).size_class = NO_CLASS
        Py_INCREF(buffer)
        (<ArrayBase>op).owner = <PyObject*>buffer
    return <object>(<ArrayBase>op).owner


cdef object view_of(ArrayBase a):
    """The read-only ndarray over the memory (of the local shard); of the physical type if the dtype is not NumPy's."""
    cdef tuple shape
    if a.view == NULL:
        dtype, shape = local_type(<object>a.aval, a._sharding)
        if a.view != NULL:      # another thread has made it in the meantime
            return <object>a.view
        check_alive(a)
        view = ndarray_over(dtype, shape, a.ptr, shared_owner(<PyObject*>a), False)
        Py_INCREF(view)
        a.view = <PyObject*>view
    return <object>a.view


cdef object scalar_error(ArrayBase a):
    ndim = (<object>a.aval).ndim
    return TypeError(f"Only scalar arrays can be converted to Python scalars; got arr.ndim={ndim}")


cdef object scalar_of(ArrayBase a):
    """The only element of an array without axes, as a Python (or extension type's) scalar."""
    if (<object>a.aval).shape:
        raise scalar_error(a)
    return numpy_value(a).item()


cdef int raise_spans(PyObject* array) except -1:
    """Raises the error for reading a value of which this process has only a part, or only summands."""
    aval = <object>(<ArrayBase>array).aval
    if aval.pending:
        raise NotImplementedError(
            f"An unreduced array, the sum of its shards, has no value yet. Got {aval}. Reduce it first, with "
            "jax.sharding.reshard, or read its addressable_shards."
        )
    raise RuntimeError(
        "Fetching value for `jax.Array` that spans non-addressable (non process local) devices is not possible: "
        f"this rank has one shard of {aval}. "
        "You can use `jax.experimental.multihost_utils.process_allgather` to print the global array or use "
        "`.addressable_shards` method of jax.Array to inspect the addressable (process local) shards."
    )


cdef object numpy_value(ArrayBase a):
    if a.sharding != NULL and not a._is_whole:
        raise_spans(<PyObject*>a)
    if not isinstance((<object>a.aval).dtype, np.dtype):
        raise TypeError(
            "JAX array with PRNGKey dtype cannot be converted to a NumPy array. Use jax.random.key_data(arr) "
            "if you wish to extract the underlying integer array."
        )
    return view_of(a)


@cython.no_gc
cdef class ArrayBase:
    """An immutable array in C order: a type (`aval`) and memory. Made by `from_numpy` and by programs."""

    def __init__(self, *args, **kwargs):
        raise TypeError(f"{type(self).__name__} has no constructor; use jax.numpy.array or jax.device_put")

    def __cinit__(self):
        self.size_class = NO_CLASS

    def __dealloc__(self):
        drop_fields(<PyObject*>self)

    # ---- type ----

    @property
    def aval(self):
        """The type: shape, dtype, weak type."""
        return <object>self.aval

    @property
    def shape(self):
        return (<object>self.aval).shape

    @property
    def dtype(self):
        return (<object>self.aval).dtype

    @property
    def weak_type(self):
        return (<object>self.aval).weak_type

    @property
    def ndim(self):
        return (<object>self.aval).ndim

    @property
    def size(self):
        return (<object>self.aval).size

    @property
    def itemsize(self):
        return (<object>self.aval).dtype.itemsize

    @property
    def nbytes(self):
        return (<object>self.aval).size * (<object>self.aval).dtype.itemsize

    def __len__(self):
        cdef tuple shape = (<object>self.aval).shape
        if not shape:
            raise TypeError("len() of unsized object")
        return shape[0]

    # ---- NumPy's view ----

    @property
    def _is_whole(self):
        """Whether this process has all elements; False for a shard of an array over several processes."""
        sharding = self._sharding
        return sharding is None or sharding.has_value_here

    @property
    def _value(self):
        """The elements as a read-only ndarray over the same memory."""
        return numpy_value(self)

    @property
    def _physical(self):
        """This process's memory as a read-only ndarray: `_value`, the local shard, or the words of PRNG keys."""
        return view_of(self)

    def __array__(self, dtype=None, copy=None):
        value = numpy_value(self)
        if dtype is not None and dtype != value.dtype:
            if copy is False:
                raise ValueError(f"Unable to avoid copy while making an array of {dtype} from {value.dtype}")
            return value.astype(dtype)
        return value.copy() if copy else value

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        dtype = (<object>self.aval).dtype
        if not isinstance(dtype, np.dtype) or dtype.kind == "V":
            raise BufferError(f"Buffers of type {dtype} are not supported by the Python buffer protocol.")
        PyObject_GetBuffer(numpy_value(self), buffer, flags)

    def __dlpack_device__(self):
        return np.ndarray.__dlpack_device__(numpy_value(self))

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule over the same memory, to which the consumer must not write."""
        value = numpy_value(self)
        if max_version is None or max_version[0] < 1:   # an older consumer accepts only writeable memory
            value = ndarray_over(value.dtype, value.shape, cnp.PyArray_DATA(value), value, True)
        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return dlpack.export(value, {name: option for name, option in options.items() if option is not None})

    def unsafe_buffer_pointer(self):
        """The address of the first element."""
        check_alive(self)
        return <size_t>self.ptr

    # ---- as a Python value ----

    def item(self, *args):
        """One element as a Python scalar: the only one, or the one at the given index."""
        return numpy_value(self).item(*args)

    def tolist(self):
        """The elements as nested lists of Python scalars."""
        return numpy_value(self).tolist()

    def __bool__(self):
        cdef object size = (<object>self.aval).size
        if size == 0:
            raise ValueError(
                "The truth value of an empty array is ambiguous. Use `array.size > 0` to check that an array "
                "is not empty."
            )
        if size > 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        return bool(numpy_value(self))

    def __int__(self):
        return int(scalar_of(self))

    def __float__(self):
        return float(scalar_of(self))

    def __complex__(self):
        return complex(scalar_of(self))

    def __index__(self):
        aval = <object>self.aval
        if aval.shape or getattr(aval.dtype, "kind", None) not in ("i", "u"):
            raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
        return operator.index(numpy_value(self)[()])

    def __hash__(self):
        raise TypeError(f"unhashable type: {type(self).__name__!r}")

    def __format__(self, spec):
        if not (<object>self.aval).shape and isinstance((<object>self.aval).dtype, np.dtype):
            return format(numpy_value(self)[()], spec)
        if spec:
            raise TypeError(f"unsupported format string passed to {type(self).__name__}.__format__")
        return str(self)

    # ---- lifetime ----

    def is_deleted(self):
        """Whether the memory was freed by `delete`, or by donating the array to a compiled function."""
        return (self.flags & DELETED) != 0

    def delete(self):
        """Frees the memory now. Later uses raise RuntimeError."""
        delete_array(<PyObject*>self)

    def block_until_ready(self):
        """The array itself, because results are complete when they are returned."""
        check_alive(self)
        return self

    def copy_to_host_async(self):
        """Does nothing: the memory is already the host's."""
        check_alive(self)

    def on_device_size_in_bytes(self):
        """Bytes of the elements."""
        check_alive(self)
        return self.nbytes

    @property
    def _sharding(self):
        """The array's sharding over devices; None for the single device of this process."""
        return None if self.sharding == NULL else <object>self.sharding


def from_numpy(array not None, aval not None, bint copy=True, sharding=None):
    """An array of type `aval` with the elements of an ndarray, which has the physical dtype and shape (with a sharding,
    the shape of one shard).

    Without `copy` the memory is shared: the caller must ensure that nobody writes to it any more, and `array` must be
    C-contiguous and aligned.
    """
    cdef cnp.ndarray source = np.asarray(array)      # converts a NumPy scalar to an array without axes
    cdef PyObject* shard = NULL if sharding is None else <PyObject*>sharding
    cdef PyObject* op
    dtype, shape = local_type(aval, sharding)
    if source.dtype != dtype or (<object>source).shape != shape:
        raise TypeError(f"from_numpy: an array for {aval} must be {dtype}{list(shape)}, "
                        f"got {source.dtype}{list((<object>source).shape)}")
    if not copy:
        if not (cnp.PyArray_IS_C_CONTIGUOUS(source) and cnp.PyArray_ISALIGNED(source)
                and cnp.PyArray_ISNOTSWAPPED(source)):
            raise ValueError("from_numpy: only a C-contiguous and aligned array can be shared")
        op = wrap_memory(<PyObject*>aval, cnp.PyArray_DATA(source), source, shard)
        return take_reference(op)
    op = new_array(<PyObject*>aval, cnp.PyArray_NBYTES(source), shard)
    result = take_reference(op)
    if cnp.PyArray_IS_C_CONTIGUOUS(source) and cnp.PyArray_ISNOTSWAPPED(source):
        memcpy((<ArrayBase>op).ptr, cnp.PyArray_DATA(source), cnp.PyArray_NBYTES(source))
    else:
        target = ndarray_over(dtype, shape, (<ArrayBase>op).ptr, None, True)
        mj_copy_into(<PyObject*>target, <PyObject*>source)
    return result


def checksum(array not None):
    """A 64-bit checksum of an ndarray's elements; equal if their bytes are equal."""
    cdef cnp.ndarray source = np.ascontiguousarray(array)
    cdef const unsigned char* data = <const unsigned char*>cnp.PyArray_DATA(source)
    cdef size_t nbytes = cnp.PyArray_NBYTES(source)
    cdef unsigned long long found
    with nogil:
        found = mj_checksum(data, nbytes)
    return found


def rewrap(ArrayBase array not None, aval not None, sharding=None):
    """The same memory as an array of another type or sharding; both types must have the same number of bytes."""
    cdef PyObject* shard = NULL if sharding is None else <PyObject*>sharding
    old = <object>array.aval
    if local_bytes(old, array._sharding) != local_bytes(aval, sharding):
        raise ValueError(f"rewrap: {aval} and {old} must have the same number of bytes")
    check_alive(array)
    return take_reference(wrap_memory(<PyObject*>aval, array.ptr, shared_owner(<PyObject*>array), shard))


cdef inline object take_reference(PyObject* op):
    """Converts the caller's owned reference to an object."""
    result = <object>op
    Py_DECREF(result)
    return result
