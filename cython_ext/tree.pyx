# cython: language_level=3, boundscheck=True, wraparound=False
"""Flattening and unflattening of pytrees: the part of it that every call uses.

A treedef is a tree of `PyTreeDef` nodes, made bottom-up. Nodes are cached by their contents, so flattening two trees of
the same structure usually gives the *same* object: only the list of leaves is allocated, and comparing or hashing the
structure costs nothing. The cache is lossy (a slot holds one node) and bounded: identity is an optimization, never
required.

There are three such caches: treedefs, orders of dict keys, and types known to be leaves.
"""

from cpython.dict cimport PyDict_GetItem, PyDict_Next, PyDict_Size
from cpython.list cimport PyList_New
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport Py_NE, PyObject, PyObject_RichCompareBool
from cpython.ref cimport Py_INCREF, Py_XDECREF, Py_XINCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM

from mpijax._ext import tree_proto
from mpijax.core.base import provided


cdef extern from "Python.h":
    PyObject* Py_TYPE_OF "(PyObject*)Py_TYPE" (object)
    void Py_SET_SIZE(object, Py_ssize_t)

cdef extern from *:
    """
    /* Since Python 3.12, Py_EnterRecursiveCall allows 10,000 levels, for which the stack has no room here. So as many
       levels are allowed as Python functions may have. */
    static _Thread_local int tree_depth = 0;

    static int tree_descend(const char *where) {
        if (tree_depth >= Py_GetRecursionLimit()) {
            PyErr_Format(PyExc_RecursionError, "maximum recursion depth exceeded%s", where);
            return -1;
        }
        if (Py_EnterRecursiveCall(where)) return -1;
        tree_depth++;
        return 0;
    }

    static void tree_ascend(void) {
        tree_depth--;
        Py_LeaveRecursiveCall();
    }
    """
    int descend "tree_descend"(const char* where) except -1
    void ascend "tree_ascend"()


cdef enum Kind:
    LEAF
    NONE
    TUPLE
    LIST
    DICT
    NAMEDTUPLE
    CUSTOM
    DATACLASS

cdef enum:
    INLINE = 32             # maximum children of a node on the stack
    TREEDEF_SLOTS = 2048
    ORDER_SLOTS = 512
    LEAF_TYPE_SLOTS = 256

cdef PyObject* treedef_table[TREEDEF_SLOTS]
cdef PyObject* order_table[ORDER_SLOTS]
cdef PyObject* leaf_types[LEAF_TYPE_SLOTS]
cdef dict registry = {}     # type -> NodeType
cdef object NoneType = type(None)
cdef frozenset BUILTIN_NODES = frozenset((tuple, list, dict, NoneType))


# ---- registry ----------------------------------------------------------------------------------------------

cdef class NodeType:
    """The functions that take one registered type apart and put it together."""

    def __init__(self, type, to_iterable, from_iterable, to_iterable_with_keys=None, data_fields=None,
                 meta_fields=None):
        self.type = type
        self.to_iterable = to_iterable
        self.from_iterable = from_iterable
        self.to_iterable_with_keys = to_iterable_with_keys
        self.data_fields = data_fields
        self.meta_fields = meta_fields


def register(NodeType node_type):
    """Registers a type; each type can be registered once."""
    cdef int slot
    cdef PyObject* old
    if node_type.type in BUILTIN_NODES or node_type.type in registry:
        raise ValueError(f"Duplicate custom PyTreeDef type registration for {node_type.type!r}.")
    registry[node_type.type] = node_type
    for slot in range(LEAF_TYPE_SLOTS):
        old = leaf_types[slot]
        leaf_types[slot] = NULL
        Py_XDECREF(old)         # last, as in `remember`: it may run Python code, and another thread


def lookup(cls):
    """The `NodeType` of a registered type, or None."""
    return registry.get(cls)


def registered_types():
    """The registered types, as a tuple."""
    return tuple(registry)


def is_node_type(cls):
    """Whether objects of this type are nodes: built in, registered, or a namedtuple.

    >>> mpijax.tree_util.is_tree_node(dict), mpijax.tree_util.is_tree_node(int)
    (True, False)
    """
    return cls in BUILTIN_NODES or cls in registry or is_namedtuple_type(cls)


cdef bint is_namedtuple_type(object cls):
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


cdef inline size_t mix(size_t h, const void* p) noexcept:
    return (h << 5 | h >> 59) ^ (<size_t>p >> 4)


cdef inline size_t slot_of(size_t h, size_t slots) noexcept:
    return (h * <size_t>0x9E3779B97F4A7C15 >> 32) % slots


cdef inline int classify(object x, PyObject** node_type) except -1:
    """The kind of `x`; for registered types also their NodeType."""
    cdef PyObject* t = Py_TYPE_OF(x)
    cdef size_t slot = ((<size_t>t >> 4) ^ (<size_t>t >> 12)) % LEAF_TYPE_SLOTS
    if leaf_types[slot] == t:
        return LEAF
    if t == <PyObject*>tuple:
        return TUPLE
    if t == <PyObject*>dict:
        return DICT
    if t == <PyObject*>list:
        return LIST
    if x is None:
        return NONE
    node_type[0] = PyDict_GetItem(registry, <object>t)
    if node_type[0] != NULL:
        return CUSTOM if (<NodeType>node_type[0]).data_fields is None else DATACLASS
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return NAMEDTUPLE
    # The cache holds a reference to the type, so its address cannot be reused.
    remember(leaf_types, slot, <object>t)
    return LEAF


# ---- treedefs ----------------------------------------------------------------------------------------------

cdef class PyTreeDef:
    """The structure of a pytree: node types, auxiliary data, positions of the leaves. Immutable, hashable.

    >>> structure = mpijax.tree_util.tree_structure({"a": 1, "b": [2, 3]})
    >>> structure, structure.num_leaves
    (PyTreeDef({'a': *, 'b': [*, *]}), 3)
    """

    def __init__(self):
        raise TypeError("PyTreeDef: no constructor defined! Use tree_structure(tree).")

    def unflatten(self, leaves):
        """The pytree with this structure and these leaves (an iterable of `num_leaves` objects)."""
        return self.unflatten_list(leaves if type(leaves) is list else list(leaves))

    cdef object unflatten_list(self, list leaves):
        cdef Py_ssize_t n = len(leaves), position = 0
        if n < self.num_leaves:
            raise ValueError(f"Too few leaves for PyTreeDef; expected {self.num_leaves}, got {n}")
        if n > self.num_leaves:
            raise ValueError(f"Too many leaves for PyTreeDef; expected {self.num_leaves}.")
        return unflatten_node(self, leaves, &position)

    def flatten_up_to(self, tree):
        """The list of subtrees of `tree` at the leaves of this treedef, which must be a prefix of it."""
        cdef list out = [None] * self.num_leaves
        flatten_up_to_node(self, tree, out, 0)
        return out

    def compose(self, PyTreeDef inner not None):
        """This treedef with `inner` instead of every leaf."""
        return compose_node(self, inner)

    def children(self):
        """The treedefs of the immediate children."""
        return list(self.kids)

    def node_data(self):
        """None for a leaf, else the pair (type, data of the root node)."""
        if self.kind == LEAF:
            return None
        if self.kind == DICT:
            return dict, list(self.data)
        if self.kind == NAMEDTUPLE:
            return self.data, None
        return self.root_type(), self.data

    def root_type(self):
        """The Python type of the root node; None for a leaf."""
        if self.kind == NAMEDTUPLE:
            return self.data
        if self.node_type is not None:
            return self.node_type.type
        return (None, NoneType, tuple, list, dict)[self.kind]

    @property
    def is_leaf(self):
        """Whether this is the structure of a single leaf."""
        return self.kind == LEAF

    def walk(self, on_node, on_leaf, leaves):
        """Rebuilds bottom-up: ``on_leaf(leaf)`` at leaves, ``on_node(children, node_data)`` at nodes."""
        return walk_node(self, on_node, on_leaf, iter(leaves))

    def from_iterable_tree(self, xs):
        """The pytree of this structure, from nested iterables with the same structure."""
        if self.kind == LEAF:
            return xs
        parts = list(xs)
        if len(parts) != len(self.kids):
            raise ValueError("Arity mismatch between trees")
        return assemble(self, [(<PyTreeDef>kid).from_iterable_tree(x) for kid, x in zip(self.kids, parts)])

    @staticmethod
    def from_node_data_and_children(registry, node_data, children):
        """The treedef with this `node_data()` and these `children()`."""
        return treedef_of(node_data, tuple(children))

    def serialize_using_proto(self):
        """This treedef as a protocol buffer. Nodes are lists, tuples, None, and dicts whose keys are strings."""
        return tree_proto.encode([proto_node(d) for d in postorder(self)])

    @staticmethod
    def deserialize_using_proto(registry, bytes data not None):
        """The treedef that `serialize_using_proto` wrote."""
        try:
            nodes = tree_proto.decode(data)
        except ValueError as error:
            raise provided.JaxRuntimeError(f"Could not deserialize PyTreeDefProto: {error}.") from error
        return from_proto_nodes(nodes)

    def __hash__(self):
        cdef PyTreeDef d, kid
        if not self.hashed:
            stack = [self]
            while stack:
                d = <PyTreeDef>stack[len(stack) - 1]
                missing = [kid for kid in d.kids if not (<PyTreeDef>kid).hashed]
                if missing:
                    stack += missing
                    continue
                d.hash_value = hash((d.kind, d.node_type, hashable(d.data), d.kids))
                d.hashed = True
                stack.pop()
        return self.hash_value

    def __eq__(self, other):
        if self is other:
            return True
        if not isinstance(other, PyTreeDef):
            return NotImplemented
        return same_structure(self, <PyTreeDef>other)

    def __repr__(self):
        return f"PyTreeDef({text(self)})"

    def __reduce__(self):
        return treedef_of, (self.node_data(), self.kids)


def hashable(data):
    """`data`, or None if it is not hashable: auxiliary data need only be comparable."""
    try:
        hash(data)
    except TypeError:
        return None
    return data


cdef bint same_structure(PyTreeDef a, PyTreeDef b) except -1:
    cdef list stack
    if a is b:
        return True
    if not same_root(a, b):
        return False
    stack = list(zip(a.kids, b.kids))
    while stack:
        a, b = stack.pop()
        if a is b:
            continue
        if not same_root(a, b):
            return False
        stack.extend(zip(a.kids, b.kids))
    return True


cdef bint same_root(PyTreeDef a, PyTreeDef b) except -1:
    if (a.kind != b.kind or a.num_leaves != b.num_leaves or a.num_nodes != b.num_nodes
            or a.node_type is not b.node_type or len(a.kids) != len(b.kids)):
        return False
    try:
        # Identical objects count as equal, even if they compare elementwise.
        return not PyObject_RichCompareBool(a.data, b.data, Py_NE)
    except Exception as error:
        raise ValueError(
            "Exception raised while checking equality of metadata fields of pytree. Make sure that metadata fields are "
            "hashable and have simple equality semantics. (Note: arrays cannot be passed as metadata fields!)"
        ) from error


cdef PyTreeDef make_treedef(int kind, object data, NodeType node_type, tuple kids, bint shareable):
    cdef PyTreeDef d = PyTreeDef.__new__(PyTreeDef), kid
    cdef Py_ssize_t i
    d.kind = kind
    d.data = data
    d.node_type = node_type
    d.kids = kids
    d.num_leaves = 1 if kind == LEAF else 0
    d.num_nodes = 1
    for i in range(PyTuple_GET_SIZE(kids)):
        kid = <PyTreeDef>PyTuple_GET_ITEM(kids, i)
        d.num_leaves += kid.num_leaves
        d.num_nodes += kid.num_nodes
        shareable = shareable and kid.shareable
    d.shareable = shareable
    return d


cdef PyTreeDef LEAF_DEF = make_treedef(LEAF, None, None, (), True)
cdef PyTreeDef NONE_DEF = make_treedef(NONE, None, None, (), True)


cdef bint is_plain(object data):
    """Whether `data` consists of immutable built-in values, which may safely be kept alive."""
    if data is None or type(data) in (str, int, bool, float, complex, bytes):
        return True
    return type(data) is tuple and all([is_plain(item) for item in <tuple>data])


cdef bint interchangeable(object a, object b):
    """Whether the two are the same object, or tuples of the same objects. Equality is too weak: 1 == True."""
    cdef Py_ssize_t i, n
    if a is b:
        return True
    if type(a) is not tuple or type(b) is not tuple:
        return False
    n = PyTuple_GET_SIZE(a)
    if n != PyTuple_GET_SIZE(b):
        return False
    for i in range(n):
        if not interchangeable(<object>PyTuple_GET_ITEM(a, i), <object>PyTuple_GET_ITEM(b, i)):
            return False
    return True


cdef PyTreeDef node(int kind, object data, NodeType node_type, PyObject** kids, Py_ssize_t n):
    """The treedef with these children, from the cache if it is there."""
    cdef size_t h = mix(<size_t>kind, <PyObject*>node_type)
    cdef Py_ssize_t i
    cdef PyTreeDef found
    cdef tuple kids_tuple
    if kind == DICT or kind == NAMEDTUPLE:
        h = mix(h, <PyObject*>data)
    for i in range(n):
        h = mix(h, kids[i])
    cdef size_t slot = slot_of(h, TREEDEF_SLOTS)
    if treedef_table[slot] != NULL:
        found = <PyTreeDef>treedef_table[slot]
        if found.kind == kind and found.node_type is node_type and PyTuple_GET_SIZE(found.kids) == n:
            for i in range(n):
                if <PyObject*>PyTuple_GET_ITEM(found.kids, i) != kids[i]:
                    break
            else:
                if interchangeable(found.data, data):
                    return found
    kids_tuple = PyTuple_New(n)
    for i in range(n):
        Py_INCREF(<object>kids[i])
        PyTuple_SET_ITEM(kids_tuple, i, <object>kids[i])
    found = make_treedef(kind, data, node_type, kids_tuple, kind == NAMEDTUPLE or is_plain(data))
    if found.shareable:
        remember(treedef_table, slot, found)
    return found


cdef void remember(PyObject** table, size_t slot, object x) noexcept:
    cdef PyObject* old = table[slot]
    Py_INCREF(x)
    table[slot] = <PyObject*>x
    Py_XDECREF(old)


def treedef_of(node_data, tuple children):
    """The treedef with this (type, data) at its root; a leaf for None."""
    cdef NodeType node_type
    cdef int kind
    for child in children:
        if not isinstance(child, PyTreeDef):
            raise TypeError(f"expected a PyTreeDef as child, got {child!r}")
    if node_data is None:
        return LEAF_DEF
    cls, data = node_data
    if cls is NoneType:
        return NONE_DEF
    if cls is dict:
        return make_treedef(DICT, tuple(data), None, children, False)
    node_type = registry.get(cls)
    if cls is tuple or cls is list:
        kind = TUPLE if cls is tuple else LIST
    elif node_type is not None:
        kind = CUSTOM if node_type.data_fields is None else DATACLASS
    elif is_namedtuple_type(cls):
        kind, data = NAMEDTUPLE, cls
    else:
        raise ValueError(f"not a type of pytree nodes: {cls!r}")
    return make_treedef(kind, data, node_type, children, False)


cdef list postorder(PyTreeDef treedef):
    """All nodes, the children of a node before it."""
    cdef list stack = [treedef], out = []
    while stack:
        d = <PyTreeDef>stack.pop()
        out.append(d)
        stack += d.kids
    out.reverse()
    return out


cdef tuple proto_node(PyTreeDef d):
    """The triple of `tree_proto.encode` for the root of `d`."""
    if d.kind not in (LEAF, NONE, TUPLE, LIST, DICT):
        raise ValueError(
            "User-defined nodes are not supported when serializing pytrees as protocol buffers. You should either "
            "convert the user-defined nodes to another type or use pickle instead."
        )
    return "leaf" if d.kind == LEAF else d.root_type(), len(d.kids), d.data if d.kind == DICT else ()


cdef PyTreeDef from_proto_nodes(list nodes):
    """The treedef whose nodes, in postorder, are the given triples."""
    cdef list done = []
    for kind, arity, keys in nodes:
        if arity > len(done) or (kind is dict and len(keys) != arity):
            raise ValueError(f"a node of a PyTreeDefProto has {arity} children and {len(keys)} keys; "
                             f"{len(done)} nodes precede it")
        children = tuple(done[len(done) - arity :])
        del done[len(done) - arity :]
        done.append(LEAF_DEF if kind == "leaf" else treedef_of((kind, keys if kind is dict else None), children))
    if len(done) != 1:
        raise RuntimeError("PyTreeDef traversal did not yield a singleton.")
    return done[0]


def treedef_tuple(treedefs):
    """The treedef of a tuple of the given structures.

    >>> leaf = mpijax.tree_util.tree_structure(0)
    >>> mpijax.tree_util.treedef_tuple([leaf, leaf])
    PyTreeDef((*, *))
    """
    return treedef_of((tuple, None), tuple(treedefs))


cdef PyTreeDef compose_node(PyTreeDef outer, PyTreeDef inner):
    descend(" while composing pytrees")
    try:
        return composed(outer, inner)
    finally:
        ascend()


cdef PyTreeDef composed(PyTreeDef outer, PyTreeDef inner):
    if outer.kind == LEAF:
        return inner
    if outer.num_leaves == 0:
        return outer
    cdef tuple kids = tuple([compose_node(kid, inner) for kid in outer.kids])
    return make_treedef(outer.kind, outer.data, outer.node_type, kids, False)


cdef str text(PyTreeDef d):
    descend(" while printing a pytree")
    try:
        return node_text(d)
    finally:
        ascend()


cdef str node_text(PyTreeDef d):
    if d.kind == LEAF:
        return "*"
    if d.kind == NONE:
        return "None"
    cdef list parts = [text(kid) for kid in d.kids]
    if d.kind == DICT:
        return "{" + ", ".join([f"{key!r}: {part}" for key, part in zip(d.data, parts)]) + "}"
    inside = ", ".join(parts)
    if d.kind == TUPLE:
        return f"({inside},)" if len(parts) == 1 else f"({inside})"
    if d.kind == LIST:
        return f"[{inside}]"
    if d.kind == NAMEDTUPLE:
        return f"CustomNode(namedtuple[{d.data.__name__}], [{inside}])"
    return f"CustomNode({d.node_type.type.__name__}[{d.data}], [{inside}])"


# ---- flattening --------------------------------------------------------------------------------------------

cdef class KeyOrder:
    # The keys of a dict in insertion order and sorted, and the insertion position of each sorted key.
    cdef tuple inserted
    cdef tuple keys
    cdef Py_ssize_t* where

    def __dealloc__(self):
        PyMem_Free(self.where)


cdef tuple sorted_keys(tuple keys):
    cdef list ordered = list(keys)
    try:
        ordered.sort()
    except Exception as error:
        raise ValueError("Comparator raised exception while sorting pytree dictionary keys.") from error
    return tuple(ordered)


cdef KeyOrder key_order(PyObject** keys, Py_ssize_t n):
    """The order of these keys, cached by identity. Only plain keys are cached, because they are immutable."""
    cdef size_t h = <size_t>n
    cdef Py_ssize_t i
    cdef KeyOrder order
    for i in range(n):
        h = mix(h, keys[i])
    cdef size_t slot = slot_of(h, ORDER_SLOTS)
    if order_table[slot] != NULL:
        order = <KeyOrder>order_table[slot]
        if PyTuple_GET_SIZE(order.inserted) == n:
            for i in range(n):
                if <PyObject*>PyTuple_GET_ITEM(order.inserted, i) != keys[i]:
                    break
            else:
                return order
    order = KeyOrder.__new__(KeyOrder)
    order.inserted = tuple([<object>keys[i] for i in range(n)])
    order.keys = sorted_keys(order.inserted)
    order.where = <Py_ssize_t*>PyMem_Malloc(max(n, 1) * sizeof(Py_ssize_t))
    if order.where == NULL:
        raise MemoryError
    position = {key: i for i, key in enumerate(order.inserted)}
    for i in range(n):
        order.where[i] = position[order.keys[i]]
    if is_plain(order.inserted):
        remember(order_table, slot, order)
    return order


cdef inline PyObject* visit(object x, list leaves, object is_leaf, bint none_is_leaf) except NULL:
    """Appends the leaves of `x`; returns its treedef as an owned reference, which is cheaper in loops."""
    cdef PyObject* node_type = NULL
    cdef int kind
    cdef object treedef
    if is_leaf is not None and asks_for_leaf(is_leaf, x):
        kind = LEAF
    else:
        kind = classify(x, &node_type)
    if kind == LEAF or (none_is_leaf and kind == NONE):
        leaves.append(x)
        treedef = LEAF_DEF
    elif kind == NONE:
        treedef = NONE_DEF
    else:
        treedef = visit_node(kind, node_type, x, leaves, is_leaf, none_is_leaf)
    Py_INCREF(treedef)
    return <PyObject*>treedef


cdef bint asks_for_leaf(object is_leaf, object x) except -1:
    answer = is_leaf(x)
    if answer is True or answer is False or answer is None:
        return answer is True
    raise ValueError(f"is_leaf predicate returned a non-boolean value {answer!r}; expected a boolean")


cdef PyTreeDef visit_node(int kind, PyObject* node_type, object x, list leaves, object is_leaf,
                          bint none_is_leaf):
    descend(" while flattening a pytree")
    try:
        if kind == TUPLE:
            return visit_tuple(TUPLE, None, None, <tuple>x, leaves, is_leaf, none_is_leaf)
        if kind == LIST:
            return visit_list(<list>x, leaves, is_leaf, none_is_leaf)
        if kind == DICT:
            return visit_dict(<dict>x, leaves, is_leaf, none_is_leaf)
        if kind == NAMEDTUPLE:
            return visit_tuple(NAMEDTUPLE, type(x), None, <tuple>x, leaves, is_leaf, none_is_leaf)
        children, data = take_apart(<NodeType>node_type, x)
        return visit_tuple(kind, data, <NodeType>node_type, children, leaves, is_leaf, none_is_leaf)
    finally:
        ascend()


cdef tuple parts_of(NodeType node_type, object x):
    """(iterable of the children, auxiliary data) of a registered node. It is what the user's function returned."""
    if node_type.data_fields is not None:
        return ([getattr(x, name) for name in node_type.data_fields],
                tuple([getattr(x, name) for name in node_type.meta_fields]))
    parts = node_type.to_iterable(x)
    expected = "The to_iterable function for a custom PyTree node should return a (children, aux_data) tuple"
    if not isinstance(parts, tuple) or len(parts) != 2:
        raise ValueError(f"{expected}, got {parts!r}")
    if type(parts[0]) is not tuple:
        try:
            iter(parts[0])
        except TypeError:
            raise ValueError(f"{expected} where 'children' is iterable, got {parts!r}") from None
    return parts


cdef tuple take_apart(NodeType node_type, object x):
    """(children as a tuple, auxiliary data) of a registered node."""
    children, data = parts_of(node_type, x)
    return children if type(children) is tuple else tuple(children), data


cdef void release(PyObject** owned, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    for i in range(n):
        Py_XDECREF(owned[i])


cdef PyObject** space(PyObject** on_stack, Py_ssize_t n) except NULL:
    if n <= INLINE:
        return on_stack
    cdef PyObject** items = <PyObject**>PyMem_Malloc(n * sizeof(PyObject*))
    if items == NULL:
        raise MemoryError
    return items


cdef PyTreeDef visit_tuple(int kind, object data, NodeType node_type, tuple x, list leaves, object is_leaf,
                           bint none_is_leaf):
    cdef PyObject* on_stack[INLINE]
    cdef Py_ssize_t n = PyTuple_GET_SIZE(x), done = 0
    cdef PyObject** kids = space(on_stack, n)
    try:
        while done < n:
            kids[done] = visit(<object>PyTuple_GET_ITEM(x, done), leaves, is_leaf, none_is_leaf)
            done += 1
        return node(kind, data, node_type, kids, n)
    finally:
        release(kids, done)
        if kids != on_stack:
            PyMem_Free(kids)


cdef PyTreeDef visit_list(list x, list leaves, object is_leaf, bint none_is_leaf):
    cdef PyObject* on_stack[INLINE]
    cdef Py_ssize_t n = len(x), done = 0
    cdef PyObject** kids = space(on_stack, n)
    try:
        while done < n:
            # The bounds are checked: a user's flatten function may have shortened the list.
            kids[done] = visit(x[done], leaves, is_leaf, none_is_leaf)
            done += 1
        return node(LIST, None, None, kids, n)
    finally:
        release(kids, done)
        if kids != on_stack:
            PyMem_Free(kids)


cdef PyTreeDef visit_dict(dict x, list leaves, object is_leaf, bint none_is_leaf):
    cdef PyObject* on_stack[INLINE]
    cdef PyObject* keys_on_stack[INLINE]
    cdef PyObject* values_on_stack[INLINE]
    cdef Py_ssize_t n = PyDict_Size(x), done = 0, held = 0, position = 0
    cdef PyObject** kids = on_stack
    cdef PyObject** keys = keys_on_stack
    cdef PyObject** values = values_on_stack
    cdef KeyOrder order
    if n > INLINE:
        kids = space(NULL, 3 * n)
        keys, values = kids + n, kids + 2 * n
    try:
        # Keys and values are held: a user's flatten function, or another thread, may change the dict.
        while held < n and PyDict_Next(x, &position, &keys[held], &values[held]):
            Py_XINCREF(keys[held])
            Py_XINCREF(values[held])
            held += 1
        order = key_order(keys, n)
        while done < n:
            kids[done] = visit(<object>values[order.where[done]], leaves, is_leaf, none_is_leaf)
            done += 1
        return node(DICT, order.keys, None, kids, n)
    finally:
        release(kids, done)
        release(keys, held)
        release(values, held)
        if kids != on_stack:
            PyMem_Free(kids)


cdef PyTreeDef flatten(object tree, list leaves, object is_leaf, bint none_is_leaf):
    cdef PyObject* treedef = visit(tree, leaves, is_leaf, none_is_leaf)
    result = <PyTreeDef>treedef
    Py_XDECREF(treedef)
    return result


cdef list room_for(object tree):
    """An empty list with capacity for the root's children: most trees are flat."""
    cdef Py_ssize_t n = 1
    if type(tree) is dict:
        n = len(<dict>tree)
    elif type(tree) is tuple:
        n = len(<tuple>tree)
    elif type(tree) is list:
        n = len(<list>tree)
    cdef list leaves = PyList_New(n)
    Py_SET_SIZE(leaves, 0)
    return leaves


cdef object flatten_into(object tree, list leaves):
    return flatten(tree, leaves, None, False)


def tree_flatten(tree, is_leaf=None):
    """The list of leaves of `tree` and its structure.

    `is_leaf` is called with each subtree and returns whether to treat it as a leaf.

    >>> mpijax.tree_util.tree_flatten({"a": 1, "b": [2, 3]})
    ([1, 2, 3], PyTreeDef({'a': *, 'b': [*, *]}))
    """
    cdef list leaves = room_for(tree)
    treedef = flatten(tree, leaves, is_leaf, False)
    return leaves, treedef


def tree_leaves(tree, is_leaf=None):
    """The list of leaves of `tree`.

    >>> mpijax.tree_util.tree_leaves({"b": 1, "a": [2, 3]})
    [2, 3, 1]
    """
    cdef list leaves = room_for(tree)
    flatten(tree, leaves, is_leaf, False)
    return leaves


def tree_structure(tree, is_leaf=None):
    """The structure of `tree`.

    >>> mpijax.tree_util.tree_structure({"b": 1, "a": [2, 3]})
    PyTreeDef({'a': [*, *], 'b': *})
    """
    return flatten(tree, [], is_leaf, False)


def tree_flatten_none_is_leaf(tree, is_leaf=None):
    """`tree_flatten` with None as a leaf."""
    cdef list leaves = room_for(tree)
    treedef = flatten(tree, leaves, is_leaf, True)
    return leaves, treedef


def all_leaves(iterable):
    """Whether no element of `iterable` is a pytree node."""
    cdef PyObject* node_type = NULL
    for x in iterable:
        if classify(x, &node_type) != LEAF:
            return False
    return True


def flatten_one_level(tree):
    """(children, data) of a node; None for a leaf."""
    cdef PyObject* node_type = NULL
    cdef int kind = classify(tree, &node_type)
    if kind == LEAF:
        return None
    if kind == NONE:
        return (), None
    if kind == TUPLE or kind == LIST:
        return tree, None
    if kind == DICT:
        keys = sorted_keys(tuple(tree))
        return tuple([tree[key] for key in keys]), keys
    if kind == NAMEDTUPLE:
        return list(tree), type(tree)
    return parts_of(<NodeType>node_type, tree)


# ---- unflattening ------------------------------------------------------------------------------------------

def tree_unflatten(PyTreeDef treedef not None, leaves):
    """The pytree with the structure `treedef` and these leaves.

    >>> leaves, structure = mpijax.tree_util.tree_flatten({"a": 1, "b": [2, 3]})
    >>> mpijax.tree_util.tree_unflatten(structure, [10 * leaf for leaf in leaves])
    {'a': 10, 'b': [20, 30]}
    """
    return treedef.unflatten_list(leaves if type(leaves) is list else list(leaves))


cdef object unflatten_node(PyTreeDef d, list leaves, Py_ssize_t* position):
    cdef Py_ssize_t i
    if d.kind == LEAF:
        i = position[0]
        position[0] = i + 1
        return leaves[i]
    if d.kind == NONE:
        return None
    descend(" while unflattening a pytree")
    try:
        return unflattened(d, leaves, position)
    finally:
        ascend()


cdef object unflattened(PyTreeDef d, list leaves, Py_ssize_t* position):
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(d.kids)
    cdef object x
    if d.kind == DICT:
        result = {}
        for i in range(n):
            result[<object>PyTuple_GET_ITEM(d.data, i)] = unflatten_node(
                <PyTreeDef>PyTuple_GET_ITEM(d.kids, i), leaves, position)
        return result
    if d.kind == LIST:
        return [unflatten_node(<PyTreeDef>PyTuple_GET_ITEM(d.kids, i), leaves, position) for i in range(n)]
    cdef tuple parts = PyTuple_New(n)
    for i in range(n):
        x = unflatten_node(<PyTreeDef>PyTuple_GET_ITEM(d.kids, i), leaves, position)
        Py_INCREF(x)
        PyTuple_SET_ITEM(parts, i, x)
    return parts if d.kind == TUPLE else assemble(d, parts)


cdef object assemble(PyTreeDef d, object parts):
    """The node with the root of `d` and these children."""
    if d.kind == NONE:
        return None
    if d.kind == TUPLE:
        return tuple(parts)
    if d.kind == LIST:
        return list(parts)
    if d.kind == DICT:
        return dict(zip(d.data, parts))
    if d.kind == NAMEDTUPLE:
        return d.data(*parts)
    if d.kind == CUSTOM:
        return d.node_type.from_iterable(d.data, tuple(parts))
    fields = dict(zip(d.node_type.meta_fields, d.data))
    fields.update(zip(d.node_type.data_fields, parts))
    return d.node_type.type(**fields)


cdef object walk_node(PyTreeDef d, object on_node, object on_leaf, object leaves):
    descend(" while walking through a pytree")
    try:
        return walked(d, on_node, on_leaf, leaves)
    finally:
        ascend()


cdef object walked(PyTreeDef d, object on_node, object on_leaf, object leaves):
    if d.kind == LEAF:
        try:
            leaf = next(leaves)
        except StopIteration:
            raise ValueError("Too few leaves for PyTreeDef") from None
        return leaf if on_leaf is None else on_leaf(leaf)
    parts = tuple([walk_node(kid, on_node, on_leaf, leaves) for kid in d.kids])
    return on_node(parts, d.node_data()[1])


# ---- comparing a tree with a treedef -----------------------------------------------------------------------

cdef int flatten_up_to_node(PyTreeDef d, object x, list out, Py_ssize_t start) except -1:
    descend(" while flattening a pytree")
    try:
        return flattened_up_to(d, x, out, start)
    finally:
        ascend()


cdef int flattened_up_to(PyTreeDef d, object x, list out, Py_ssize_t start) except -1:
    """Fills out[start : start + d.num_leaves] with the subtrees of `x` at the leaves of `d`."""
    cdef Py_ssize_t i
    cdef PyTreeDef kid
    if d.kind == LEAF:
        out[start] = x
        return 0
    parts = matching_children(d, x)
    for i in range(PyTuple_GET_SIZE(d.kids)):
        kid = <PyTreeDef>PyTuple_GET_ITEM(d.kids, i)
        flatten_up_to_node(kid, parts[i], out, start)
        start += kid.num_leaves
    return 0


cdef object matching_children(PyTreeDef d, object x):
    """The children of `x`, as a sequence; raises if its root differs from that of `d`."""
    cdef Py_ssize_t n = len(d.kids)
    if d.kind == NONE:
        if x is not None:
            raise ValueError(
                f"Expected None, got {x!r}.\n\n"
                "None is an empty pytree, not a prefix of other values. To map over it as over a leaf:\n"
                "  tree.map(lambda x, y: None if x is None else f(x, y), a, b, is_leaf=lambda x: x is None)"
            )
        return ()
    if d.kind == TUPLE or d.kind == LIST:
        expected = tuple if d.kind == TUPLE else list
        name = expected.__name__
        if type(x) is not expected:
            raise ValueError(f"Expected {name}, got {x!r}.")
        if len(x) != n:
            raise ValueError(f"{name.title()} arity mismatch: {len(x)} != {n}; {name}: {x!r}.")
        return x
    if d.kind == DICT:
        if type(x) is not dict:
            raise ValueError(f"Expected dict, got {x!r}.")
        if len(x) != n or any([key not in x for key in d.data]):
            present = list(sorted_keys(tuple(x)))
            raise ValueError(f"Dict key mismatch; expected keys: {list(d.data)}; present keys: {present}.")
        return [x[key] for key in d.data]
    if d.kind == NAMEDTUPLE:
        if not isinstance(x, tuple) or not hasattr(x, "_fields"):
            raise ValueError(f"Expected named tuple, got {x!r}.")
        if type(x) is not d.data:
            raise ValueError(f"Named tuple type mismatch: expected type: {d.data!r}, tuple: {x!r}.")
        if len(x) != n:
            raise ValueError(f"Named tuple arity mismatch: {len(x)} != {n}; tuple: {x!r}.")
        return x
    name = "custom dataclass node" if d.kind == DATACLASS else "custom node"
    if type(x) is not d.node_type.type:
        raise ValueError(
            f"{name.capitalize()} type mismatch: expected type: {d.node_type.type!r}, value: {x!r}."
        )
    parts, data = take_apart(d.node_type, x)
    if PyObject_RichCompareBool(d.data, data, Py_NE):
        raise ValueError(f"Mismatch {name} data: {d.data!r} != {data!r}; value: {x!r}.")
    if len(parts) != n:
        raise ValueError(f"Custom type arity mismatch: {len(parts)} != {n}; value: {x!r}.")
    return parts
