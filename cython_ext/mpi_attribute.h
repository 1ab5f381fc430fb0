/* Python objects that communicators keep until they are freed.

   mpi4py has attributes too. Its function for a freed communicator asks MPI for the topology, which MPICH 5.0 keeps among
   the attributes: those are being freed, and a second attribute ended in memory that was gone. */

#ifndef MPIJAX_MPI_ATTRIBUTE_H
#define MPIJAX_MPI_ATTRIBUTE_H

#include <Python.h>
#include <mpi.h>

/* Calls `then` with the object. */
static int mj_attribute_freed(MPI_Comm comm, int key, void *value, void *then) {
    PyGILState_STATE state;
    PyObject *type, *error, *traceback, *result;
    (void)comm, (void)key;
    if (!Py_IsInitialized()) return MPI_SUCCESS;
    state = PyGILState_Ensure();
    PyErr_Fetch(&type, &error, &traceback);
    result = PyObject_CallOneArg((PyObject *)then, (PyObject *)value);
    if (result == NULL) PyErr_WriteUnraisable((PyObject *)then);
    Py_XDECREF(result);
    Py_DECREF((PyObject *)value);
    PyErr_Restore(type, error, traceback);
    PyGILState_Release(state);
    return MPI_SUCCESS;
}

static int mj_attribute_key(void *then, int *key) {
    return MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, mj_attribute_freed, key, then);
}

/* The object, borrowed; NULL if there is none. */
static int mj_attribute(MPI_Comm comm, int key, void **value) {
    int found = 0;
    int code = MPI_Comm_get_attr(comm, key, value, &found);
    if (!found) *value = NULL;
    return code;
}

#endif
