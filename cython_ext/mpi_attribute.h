/* Python objects attached to communicators until these are freed.

   mpi4py has attributes too. Its callback for a freed communicator asks MPI for the topology, which MPICH 5.0 stores
   as an attribute. These are being freed at that time, and a second attribute caused a use after free. */

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

/* The object (borrowed reference); NULL if there is none. */
static int mj_attribute(MPI_Comm comm, int key, void **value) {
    int found = 0;
    int code = MPI_Comm_get_attr(comm, key, value, &found);
    if (!found) *value = NULL;
    return code;
}

#endif
