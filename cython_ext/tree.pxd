# Declarations for other extensions: `from mpijax._ext.tree cimport PyTreeDef, flatten_into`.


cdef class NodeType:
    # The functions that take one registered type apart and put it together.
    cdef readonly object type
    cdef readonly object to_iterable
    cdef readonly object from_iterable
    cdef readonly object to_iterable_with_keys
    cdef readonly tuple data_fields     # dataclasses only, else None
    cdef readonly tuple meta_fields


cdef class PyTreeDef:
    cdef readonly Py_ssize_t num_leaves
    cdef readonly Py_ssize_t num_nodes
    cdef int kind
    cdef bint shareable                 # whether it may be cached: it keeps no object of the user alive
    cdef bint hashed
    cdef Py_hash_t hash_value
    cdef tuple kids                     # the PyTreeDef of each child
    cdef object data                    # dict: sorted keys; namedtuple: its type; custom: auxiliary data
    cdef NodeType node_type             # custom and dataclass nodes only, else None
    cdef object __weakref__
    cdef object unflatten_list(self, list leaves)


# Appends the leaves of `tree` to `leaves`; returns the PyTreeDef.
cdef object flatten_into(object tree, list leaves)
