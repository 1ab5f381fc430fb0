#!/bin/sh
# Makes or completes the virtual environment .venv for one purpose: examples, test, docs, lint or bench (the extras of
# pyproject.toml), with mpijax installed in editable form. Says in plain words what the machine lacks.
#   PYTHON  the Python to start from (default python3)
#   MPICC   a system MPI's compiler wrapper; without it the mpich wheel from PyPI is the MPI
set -u
extra=$1
venv=.venv
python=${PYTHON:-python3}
log=build/environment-$extra.log
mkdir -p build

stop() {
    printf '\n*** %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '    %s\n' "$line" >&2; done
    exit 1
}

if ! command -v "$python" >/dev/null; then
    stop "There is no $python." "Install Python 3.11 or newer (Debian: apt install python3 python3-venv python3-dev)."
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    stop "$python is $("$python" --version 2>&1), and mpijax needs 3.11 or newer." \
        "Name a newer one: make PYTHON=python3.12 ..."
fi
if ! command -v "${CC:-gcc}" >/dev/null; then
    stop "There is no C compiler (${CC:-gcc})." "mpijax compiles its extensions: apt install gcc libc6-dev," \
        "or name another one: make CC=clang ..."
fi
if ! echo '#include <stdlib.h>' | "${CC:-gcc}" -E - >/dev/null 2>&1; then
    stop "The C compiler has no C library headers (stdlib.h)." "Install them: apt install libc6-dev"
fi
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
if [ ! -f "$include/Python.h" ]; then
    stop "The headers of $python are missing ($include/Python.h)." \
        "Install them: apt install python3-dev (dnf: python3-devel)."
fi
if [ -n "${MPICC:-}" ] && ! command -v "${MPICC%% *}" >/dev/null; then
    stop "MPICC is set to $MPICC, which does not exist." \
        "Load the MPI module first, or unset MPICC to use the mpich wheel from PyPI."
fi

if [ ! -x $venv/bin/pip ]; then
    rm -rf $venv # a half-made environment of an interrupted run
    echo "creating $venv with $("$python" --version)"
    if ! "$python" -m venv $venv >"$log" 2>&1; then
        cat "$log" >&2
        rm -rf $venv
        stop "$python cannot make virtual environments." "On Debian: apt install python3-venv"
    fi
fi

install() {
    : >"$log"
    progress &
    shown=$!
    PATH=$PWD/$venv/bin:$PATH $venv/bin/pip install -v --no-compile --disable-pip-version-check "$@" >>"$log" 2>&1
    status=$?
    kill $shown 2>/dev/null
    wait $shown 2>/dev/null
    [ ! -t 1 ] || printf '\r\033[K'
    return $status
}

# While this script lives: pip's latest step, on one line of a terminal, elsewhere a line every 20 s.
progress() {
    seconds=0
    while kill -0 $$ 2>/dev/null; do
        sleep 1
        seconds=$((seconds + 1))
        step=$(grep -aoE "^ *(compiled mpijax[^)]*\)|(Collecting|Downloading|Building|Installing) [^ ]* ?[^ ]*)" "$log" | tail -n 1)
        if [ -t 1 ]; then
            printf '\r\033[K  %d s  %.70s' "$seconds" "$step"
        elif [ $((seconds % 20)) -eq 0 ]; then
            echo "  $seconds s $step"
        fi
    done
}

failed() {
    tail -n 25 "$log" >&2
    # An index that does not answer looks to pip like one that has no version of anything.
    no_answer="Failed to establish|Name or service|Temporary failure|unreachable|timed out|ProxyError|versions: none"
    if grep -qiE "$no_answer" "$log"; then
        stop "pip cannot reach a package index." "Check the network or the proxy (https_proxy), or point pip at a mirror:" \
            "PIP_INDEX_URL=https://...  or a folder of wheels: PIP_FIND_LINKS=/path" "The whole log: $log"
    elif grep -qiE "No matching distribution|Could not find a version" "$log"; then
        stop "pip found no suitable package for this machine: $(grep -iE 'No matching|Could not find a version' "$log" | head -n 1)" \
            "This Python is $("$python" --version) on $(uname -m). The whole log: $log"
    elif grep -qi "No space left" "$log"; then
        stop "The disk is full." "An environment takes about 1.5 GB. The whole log: $log"
    fi
    stop "$1" "The whole log: $log"
}

echo "installing mpijax[$extra] into $venv (the first time takes 2 to 4 minutes)"
requirements=$($venv/bin/python - <<'EOF'
import os, tomllib
names = tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"]
print(" ".join(n for n in names if not (n.startswith("mpich") and os.environ.get("MPICC"))))
EOF
)
# shellcheck disable=SC2086  # one word a requirement
install $requirements || failed "pip could not install the build tools."
# The extensions are compiled while pip downloads. pip's own build then waits for them, and tells what failed.
PATH=$PWD/$venv/bin:$PATH $venv/bin/python setup.py --quiet build_ext --inplace >>"$log" 2>&1 &
install --no-build-isolation -e ".[$extra]" || failed "mpijax[$extra] could not be installed."
# Python's modules are compiled on all cores, where pip would compile one after the other; a file that cannot be is
# compiled by nobody.
$venv/bin/python -m compileall -qq -j 0 -x '/tests/' $venv/lib >>"$log" 2>&1 || true
