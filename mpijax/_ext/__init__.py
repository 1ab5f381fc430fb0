"""The compiled modules, built from ``cython_ext/*.pyx`` (``make ext``)."""
