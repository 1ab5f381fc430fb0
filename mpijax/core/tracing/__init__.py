"""Traces, tracers and references; what makes Jaxprs and checks them."""
