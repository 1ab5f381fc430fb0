# cython: language_level=3, boundscheck=False, wraparound=False
"""Call dispatch: from Python arguments to a program, and from its results back.

A call of a jitted function whose argument types are cached runs no Python code: the types form the key, the key finds
the program, the program runs, and its results are put into the output's structure.
"""

import numpy as np

from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM

from mpijax._ext.array cimport ArrayBase, is_array
from mpijax._ext.executor cimport Program
from mpijax._ext.tree cimport PyTreeDef, flatten_into

cdef enum:
    MAX_FAST = 256          # maximum leaves of the arguments and of the results on the fast path

cdef object state = None    # core.base.state.state: holds the thread's current trace
cdef object eval_trace = None
cdef object options = None  # core.base.option.values: its `trace_key` identifies the current options


def connect(trace_state, evaluation_trace, option_values):
    """Set the objects that hold the current trace and the options."""
    global state, eval_trace, options
    state, eval_trace, options = trace_state, evaluation_trace, option_values


cdef class Entry:
    """A program with the structure of its results."""

    cdef Program program
    cdef PyTreeDef out_tree
    cdef bint single        # whether the result is one array
    cdef object make_array  # (leaf, type) -> the executor's input, for leaves that are not arrays
    cdef list avals

    def __cinit__(self, Program program, PyTreeDef out_tree, list avals, make_array):
        self.program = program
        self.out_tree = out_tree
        self.avals = avals
        self.make_array = make_array
        self.single = out_tree.num_leaves == 1 and out_tree.num_nodes == 1

    cdef object run(self, list leaves):
        """Run on flat arguments."""
        cdef PyObject* args[MAX_FAST]
        cdef PyObject* outs[MAX_FAST]
        cdef Py_ssize_t n = PyList_GET_SIZE(leaves), m = self.program.num_results, i
        cdef list converted = None
        cdef list results
        if n > MAX_FAST or m > MAX_FAST:
            made = [self.make_array(x, a) for x, a in zip(leaves, self.avals)]
            return self.out_tree.unflatten_list(self.program.run(made))
        for i in range(n):
            args[i] = PyList_GET_ITEM(leaves, i)
            if not is_array(args[i]):
                if converted is None:
                    converted = []
                value = self.make_array(<object>args[i], self.avals[i])
                converted.append(value)
                args[i] = <PyObject*>value
        self.program.run_into(args, outs)
        if self.single:
            return take(outs[0])
        results = [take(outs[i]) for i in range(m)]
        return self.out_tree.unflatten_list(results)


cdef extern from *:
    """
    /* Converts an owned reference to an object. */
    static PyObject *mj_take(PyObject *x) { return x; }
    """
    object take "mj_take"(PyObject* x)


cdef object leaf_type(object leaf, object typeof):
    """The key of a leaf for finding a program: its type, which user-defined objects may create anew each time.

    For an array over devices, also its sharding and the options: they determine this rank's part of it.
    """
    if not is_array(<PyObject*>leaf):
        return typeof(leaf)
    aval = <object>(<ArrayBase>leaf).aval
    if (<ArrayBase>leaf).sharding == NULL:
        return aval
    sharding = <object>(<ArrayBase>leaf).sharding
    return (aval, sharding, options.trace_key) if sharding.is_followed else aval


cdef class JitBase:
    """Base of jitted functions: calls with cached types go straight to their programs.

    Subclasses set `_plain` (no static arguments) and define `_slow_call(args, kwargs)` for everything else.
    """

    cdef dict entries
    cdef public bint _plain
    cdef object typeof

    def __cinit__(self, *args, **kwargs):
        self.entries = {}
        self._plain = False

    def _set_typeof(self, typeof):
        self.typeof = typeof

    def _set_entries(self, dict entries):
        """Set the table of programs by the keys of calls."""
        self.entries = entries

    def _remember(self, key, Program program, PyTreeDef out_tree, list avals, make_array):
        """Cache a program for calls with this key."""
        self.entries[key] = Entry(program, out_tree, avals, make_array)

    def _forget(self):
        self.entries.clear()

    def _num_programs(self):
        return len(self.entries)

    def _key(self, args, kwargs):
        """The key of a call."""
        return self.make_key(args, kwargs, [])

    cdef tuple make_key(self, tuple args, dict kwargs, list leaves):
        cdef object structure
        cdef Py_ssize_t n, i
        cdef tuple key
        cdef object aval
        structure = flatten_into((args, kwargs) if kwargs else args, leaves)
        n = PyList_GET_SIZE(leaves)
        key = PyTuple_New(n + 2)
        Py_INCREF(structure)
        PyTuple_SET_ITEM(key, 0, structure)
        number = options.trace_key
        Py_INCREF(number)
        PyTuple_SET_ITEM(key, 1, number)
        for i in range(n):
            aval = leaf_type(<object>PyList_GET_ITEM(leaves, i), self.typeof)
            Py_INCREF(aval)
            PyTuple_SET_ITEM(key, i + 2, aval)
        return key

    def __call__(self, *args, **kwargs):
        cdef list leaves
        cdef PyObject* found
        cdef Entry entry
        if self._plain and state.trace is eval_trace:
            leaves = []
            try:
                key = self.make_key(args, kwargs, leaves)
            except (TypeError, OverflowError):
                return self._slow_call(args, kwargs)
            found = PyDict_GetItemWithError(self.entries, key)
            if found != NULL:
                entry = <Entry>found    # hold a reference: another thread may replace it while the program runs
                return entry.run(leaves)
        return self._slow_call(args, kwargs)


cdef enum:
    KEPT_SCALARS = 1024

cdef dict scalars = {}      # cached numbers, as (type, executor input)
cdef frozenset number_types = frozenset({float, int, np.float32, np.float64, np.int32, np.int64})


cdef tuple known_scalar(object x, object typeof, object make_array):
    """The type and memory of a number. Zeros (of either sign) and NaN cannot be cached by value."""
    cdef tuple found
    if x != x or x == 0:
        aval = typeof(x)
        return aval, make_array(x, aval)
    key = (type(x), x, options.trace_key)
    found = scalars.get(key)
    if found is None:
        if len(scalars) >= KEPT_SCALARS:
            scalars.clear()
        aval = typeof(x)
        found = scalars[key] = (aval, make_array(x, aval))
    return found


cdef class Eager:
    """Runs operations outside of any trace; caches programs by primitive, types and parameters."""

    cdef dict programs
    cdef object typeof, miss, make_array

    def __init__(self, typeof, miss, make_array):
        self.programs = {}
        self.typeof = typeof
        self.miss = miss
        self.make_array = make_array

    def __call__(self, primitive, args, dict params):
        """Run `primitive` on `args`."""
        cdef PyObject* given[16]
        cdef PyObject* outs[16]
        cdef tuple arguments = args if type(args) is tuple else tuple(args)
        cdef Py_ssize_t n = PyTuple_GET_SIZE(arguments), i
        cdef object aval
        cdef PyObject* found = NULL
        cdef Program program
        cdef list converted = None
        cdef tuple key, number
        if n > 14:
            return self.miss(self.programs, None, primitive, arguments, params)
        key = PyTuple_New(n + 2)
        Py_INCREF(primitive)
        PyTuple_SET_ITEM(key, 0, primitive)
        values = tuple(params.items()) if params else None
        Py_INCREF(values)
        PyTuple_SET_ITEM(key, 1, values)
        for i in range(n):
            given[i] = <PyObject*>PyTuple_GET_ITEM(arguments, i)
            if type(<object>given[i]) in number_types:
                number = known_scalar(<object>given[i], self.typeof, self.make_array)
                Py_INCREF(number[0])
                PyTuple_SET_ITEM(key, i + 2, number[0])
                if converted is None:
                    converted = []
                converted.append(number)
                given[i] = <PyObject*>number[1]
                continue
            aval = leaf_type(<object>given[i], self.typeof)
            Py_INCREF(aval)
            PyTuple_SET_ITEM(key, i + 2, aval)
            if not is_array(given[i]):
                if converted is None:
                    converted = []
                value = self.make_array(<object>given[i], aval)
                converted.append(value)
                given[i] = <PyObject*>value
        try:
            found = PyDict_GetItemWithError(self.programs, key)
        except TypeError:
            key = None
        if found == NULL:
            return self.miss(self.programs, key, primitive, arguments, params)
        program = <Program>found
        if program.num_results > 16:
            return self.miss(self.programs, key, primitive, arguments, params)
        program.run_into(given, outs)
        if not primitive.multiple_results:
            return take(outs[0])
        results = []
        for i in range(program.num_results):
            results.append(take(outs[i]))
        return results
