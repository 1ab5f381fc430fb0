#!/bin/sh
# Makes the two environments of `make test-libraries`: .venv-libraries with mpijax and libraries made for JAX, but no
# JAX, and .venv-libraries-jax with JAX beside the same libraries.
set -eu
libraries=.venv-libraries
with_jax=.venv-libraries-jax
python=${PYTHON:-python3}
log=build/environment-libraries.log
mkdir -p build

echo "installing libraries into $libraries (the first time takes several minutes); log: $log"
[ -x $libraries/bin/pip ] || "$python" -m venv $libraries
[ -x $with_jax/bin/pip ] || "$python" -m venv $with_jax
{
    $libraries/bin/pip install -U pip
    # With JAX, so that pip finds versions that go together; it is taken out again.
    $libraries/bin/pip install -r tests/libraries/requirements.txt
    $libraries/bin/pip freeze | grep -E '^(jax|jaxlib)==' >build/libraries-jax.txt
    $libraries/bin/pip uninstall -y jax jaxlib
    PATH=$PWD/$libraries/bin:$PATH $libraries/bin/pip install -e .
    $with_jax/bin/pip install --no-deps -r build/libraries-jax.txt
} >"$log" 2>&1 || {
    tail -n 25 "$log" >&2
    exit 1
}
site=$($libraries/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$site" >"$($with_jax/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/libraries.pth"
