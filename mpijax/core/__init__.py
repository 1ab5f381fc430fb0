"""What everything else is built on: types, Jaxprs, traces, pytrees, options. Not public."""
