#!/bin/sh
# Builds the extensions with a sanitizer into build/sanitize-*, and runs the tests of what is written in C with them: alone,
# and on 2 ranks. Whatever a sanitizer finds ends the run.
#
#     tools/sanitize.sh [memory] [TEST ...]    addresses and undefined behaviour; these tests in place of the usual ones
#     tools/sanitize.sh thread [TEST ...]      races between threads
set -eu
python=${PY:-python3}
mpirun=${MPIRUN:-mpirun}
compiler=${CC:-gcc}
kind=memory
case ${1:-} in memory | thread) kind=$1 && shift ;; esac
folder=$PWD/build/sanitize-$kind
lib=$folder/lib
if [ "$kind" = thread ]; then
    libraries="libtsan.so libstdc++.so"
    # -Wno-tsan: fences between processes, which it does not look at, nothing between threads rests on.
    flags="-fsanitize=thread -fno-omit-frame-pointer -Wno-tsan"
else
    libraries="libasan.so libubsan.so libstdc++.so"
    flags="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
fi

# A compiler uses the last of several levels of optimisation. The -O3 of setup.py takes more than twice as long to compile.
mkdir -p "$folder"
printf '#!/bin/sh\nexec %s "$@" %s -O1\n' "$compiler" "$flags" > "$folder/compiler"
chmod +x "$folder/compiler"
CC=$folder/compiler "$python" setup.py --quiet build_ext --build-lib "$lib" --build-temp "$folder/objects"
# The rest of the package as it is here.
for file in "$PWD"/mpijax/* "$PWD"/mpijax/_ext/*.py; do
    name=${file#"$PWD"/}
    [ "$name" = mpijax/_ext ] || ln -sfn "$file" "$lib/$name"
done

preload=
for name in $libraries; do
    preload="$preload $($compiler -print-file-name="$name")"
done
# Races inside of libraries that are built without the sanitizer are not ours: it does not see how their threads agree.
printf 'race:%s\n' openblas libmpi libfabric libucs libuct libucp tensorstore > "$folder/suppressions"
# pytest keeps what a test writes, and would lose the report of a sanitizer, which ends the process.
rm -f "$folder"/report.*
trap 'cat "$folder"/report.* 2> /dev/null || :' EXIT
# Python and its libraries keep memory to the end: leaks are not looked for. Addresses are not random (setarch): the
# sanitizers need them where they expect them. The thread sanitizer does not survive UCX's hooks in memory calls
# (UCX_MEM_EVENTS). UCX asks whether it may read another rank's memory (cma) with a call that overwrites its own
# argument if both ranks have the same addresses. The address sanitizer then checks the overwritten argument.
run() {
    env PYTHONPATH="$lib" MPIJAX_CACHE_DIR="$folder/cache" LD_PRELOAD="${preload# }" UCX_MEM_EVENTS=no UCX_TLS=^cma \
        ASAN_OPTIONS="detect_leaks=0 allocator_may_return_null=1 log_path=$folder/report" \
        UBSAN_OPTIONS="print_stacktrace=1 log_path=$folder/report" \
        TSAN_OPTIONS="suppressions=$folder/suppressions halt_on_error=1 report_signal_unsafe=0 log_path=$folder/report" \
        setarch -R "$@"
}
if [ $# -gt 0 ]; then
    run "$python" -P -m pytest --with-mpi -q -p no:cacheprovider "$@"
elif [ "$kind" = thread ]; then
    run "$python" -P -m pytest --with-mpi --every-case -q -p no:cacheprovider \
        tests/runtime/program/test_threads.py tests/runtime/machine/test_shared_work.py tests/runtime/program/test_tiers.py \
        tests/compiler/steps/test_time_tiles.py
else
    run "$python" -P -m pytest --with-mpi --every-case -q -p no:cacheprovider \
        tests/core/test_tree.py tests/core/test_deep_trees.py tests/core/test_damaged_programs.py tests/test_ffi.py \
        tests/runtime/arrays/test_array.py tests/runtime/program/test_program.py tests/runtime/program/test_threads.py \
        tests/runtime/machine/test_shared_work.py \
        tests/compiler/steps/test_time_tiles.py tests/compiler/loops/test_strided.py tests/runtime/program/test_tiers.py
    run "$mpirun" --bind-to none -n 2 "$python" -P -m pytest --with-mpi --every-case --timeout-method=thread -m mpi -q \
        -p no:cacheprovider tests/runtime/mpi/test_mpi.py tests/mpi/test_lanes.py tests/mpi/test_counted.py
fi
