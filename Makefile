# make demo    the digits example on 2 ranks          make lint    ruff, cython-lint, mypy, structure, prose
# make test    the tests: alone, on 2 and on 4 ranks  make ext     rebuild the extensions that changed
# make bench   the benchmark table                    make clean   remove .venv and what was built
# make docs    the documentation site, in build/site
# make test-slow       the tests marked slow, which `make test` leaves out
# make sanitize        tests of the C code with the address, the undefined-behaviour and the thread sanitizer
# make test-libraries  programs that use libraries of JAX, on JAX and on mpijax
# make test-many       communication on 16 and on 64 ranks, which may share cores
#
# Each target makes its own .venv (tools/environment.sh lists what it needs). Variables: PYTHON, the Python that makes .venv
# (default: python3); MPICC, a system MPI instead of the mpich wheel; MPIRUN, another launcher; PY, a Python to use as it is.

VENV   := .venv
PYTEST_ARGS ?=

ifdef PY
ready-%: ; $(COMPILE)
else
PY := $(VENV)/bin/python
ready-%: $(VENV)/.ready-% ; $(COMPILE)
endif
COMPILE = @$(PY) setup.py --quiet build_ext --inplace
export PATH := $(abspath $(dir $(PY))):$(PATH)

# The launcher must belong to the MPI library. If MPICC is a path, the launcher is next to it.
MPIRUN ?= $(or $(if $(filter /%,$(MPICC)),$(wildcard $(dir $(MPICC))mpirun)),mpirun)
# There may be more ranks than cores, so ranks are not pinned.
OPEN_MPI = $(findstring Open MPI,$(shell PATH="$(PATH)" $(MPIRUN) --version 2>&1))
MPIRUN_FREE = $(MPIRUN) $(if $(OPEN_MPI),--oversubscribe --allow-run-as-root) --bind-to none
PYTEST = $(PY) -m pytest $(PYTEST_ARGS)
MPI_TESTS = $(MPIRUN_FREE) -n $(1) $(PYTEST) --with-mpi --timeout-method=thread -m "mpi"

.PHONY: demo test test-alone test-mpi test-many test-slow sanitize test-libraries bench docs lint ext clean
.SECONDARY:

demo: ready-examples
	$(MPIRUN_FREE) -n 2 $(PY) examples/digits.py

test: test-alone test-mpi

# Tests of one process run on all cores. worksteal keeps the tests of a file together, so most fixtures are made once.
test-alone: ready-test
	$(PYTEST) --with-mpi -n auto --dist worksteal

test-mpi: ready-test
	$(call MPI_TESTS,2)
	$(call MPI_TESTS,4)

# On 16 ranks: all tests, and the whole matrix of operations and transformations. On 64 ranks: the collectives, and the
# float32 part of the matrix. The time grows with the number of ranks per core.
test-many: ready-test
	$(call MPI_TESTS,16) --timeout=3000 --every-case
	$(call MPI_TESTS,16) --timeout=3000 --slow tests/mpi/test_matrix.py
	$(call MPI_TESTS,64) --timeout=3000 --every-case tests/runtime/mpi/test_mpi.py
	$(call MPI_TESTS,64) --timeout=3000 --slow tests/mpi/test_matrix.py -k "test_matrix and float32"

# On all cores, too. A test that starts ranks shares the cores with other tests. tests/mpi/test_matrix.py starts its own ranks.
test-slow: ready-test
	$(PYTEST) --slow -m slow -n auto --dist worksteal
	$(call MPI_TESTS,2) --slow --ignore=tests/mpi/test_matrix.py -k "not test_many_over_ranks"
	$(call MPI_TESTS,4) --slow --ignore=tests/mpi/test_matrix.py -k "not test_many_over_ranks"

# Builds in build/sanitize-memory and build/sanitize-thread. The extensions in the source tree do not change.
sanitize: ready-test
	PY=$(PY) MPIRUN="$(MPIRUN)" sh tools/sanitize.sh
	PY=$(PY) sh tools/sanitize.sh thread

# Libraries that import jax, in separate environments. docs/libraries.md has the results.
test-libraries: ready-test .venv-libraries/.ready
	MPIJAX_LIBRARIES=$(CURDIR)/.venv-libraries/bin/python MPIJAX_LIBRARIES_JAX=$(CURDIR)/.venv-libraries-jax/bin/python \
		$(PYTEST) --slow -m slow -s tests/libraries

.venv-libraries/.ready: tests/libraries/requirements.txt tools/libraries.sh
	sh tools/libraries.sh
	@touch $@

bench: ready-bench
	$(PY) -m bench

# Warnings are errors.
docs: ready-docs
	$(PY) docs/site/build.py

lint: ready-lint
	$(PY) -m ruff check .
	$(PY) -m ruff check --preview --select RUF027 mpijax
	cython-lint cython_ext
	$(PY) -m mypy
	$(PY) -m pytest -q --noconftest tests/structure
	$(PY) tools/prose.py

$(VENV)/.ready-%: pyproject.toml setup.py tools/environment.sh
	sh tools/environment.sh $*
	@touch $@

ext: $(if $(wildcard $(PY)),,$(VENV)/.ready-test)
	$(COMPILE)

clean:
	rm -rf $(VENV) .venv-libraries .venv-libraries-jax build mpijax/_ext/*.so mpijax.egg-info
