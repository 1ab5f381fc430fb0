#!/bin/sh
# Builds the extensions with the address and the undefined-behaviour sanitizer into build/sanitize, and runs the tests of
# what is written in C with them: alone, and on 2 ranks. Whatever a sanitizer finds ends the run.
#
#     tools/sanitize.sh [TEST ...]     these tests in place of the usual ones
set -eu
python=${PY:-python3}
mpirun=${MPIRUN:-mpirun}
compiler=${CC:-gcc}
lib=$PWD/build/sanitize/lib
flags="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"

CFLAGS="${CFLAGS:-} $flags" LDFLAGS="${LDFLAGS:-} $flags" \
    "$python" setup.py --quiet build_ext --build-lib "$lib" --build-temp build/sanitize/objects
# The rest of the package as it is here.
for file in "$PWD"/mpijax/* "$PWD"/mpijax/_ext/*.py; do
    name=${file#"$PWD"/}
    [ "$name" = mpijax/_ext ] || ln -sfn "$file" "$lib/$name"
done

preload=
for name in libasan.so libubsan.so libstdc++.so; do
    preload="$preload $($compiler -print-file-name=$name)"
done
# Python and its libraries keep memory to the end: leaks are not looked for.
run() {
    env PYTHONPATH="$lib" MPIJAX_CACHE_DIR="$PWD/build/sanitize/cache" LD_PRELOAD="${preload# }" \
        ASAN_OPTIONS=detect_leaks=0,allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 "$@"
}
if [ $# -gt 0 ]; then
    run "$python" -P -m pytest --with-mpi -q -p no:cacheprovider "$@"
    exit
fi
run "$python" -P -m pytest --with-mpi -q -p no:cacheprovider \
    tests/core/test_tree.py tests/core/test_deep_trees.py tests/runtime/test_array.py tests/runtime/test_program.py \
    tests/runtime/test_threads.py tests/runtime/test_shared_work.py tests/core/test_damaged_programs.py tests/test_ffi.py
run "$mpirun" --bind-to none -n 2 "$python" -P -m pytest --with-mpi --timeout-method=thread -m mpi -q \
    -p no:cacheprovider tests/runtime/test_mpi.py tests/mpi/test_lanes.py tests/mpi/test_counted.py
