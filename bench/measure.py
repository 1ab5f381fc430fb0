"""Timing inside the process that runs a case."""

import statistics
import time

BATCH = 0.02  # seconds between two readings of the clock
SYNC = 2e-4  # calls longer than this are waited for one by one, so that results do not pile up in memory


def steady(call, wait, budget: float, comm=None) -> float:
    """Seconds a call takes once everything is compiled: the median over batches of calls.

    `wait(result)` returns when the result is there. With a communicator, all ranks make the same calls.
    """
    clock = time.perf_counter
    for _ in range(3):
        wait(call())
    start = clock()
    wait(call())
    once = clock() - start
    if comm is not None:
        once = comm.bcast(once)    # so that all ranks make the same calls
    if once < SYNC:
        start = clock()
        for _ in range(50):
            result = call()
        wait(result)
        once = (clock() - start) / 50
    count = max(1, round(BATCH / once))
    batches = min(max(5, round(budget / (count * once))), 200)
    each = once > SYNC
    if comm is not None:
        count, batches, each = comm.bcast((count, batches, each))
    times = []
    for _ in range(batches):
        if comm is not None:
            comm.Barrier()
        start = clock()
        for _ in range(count):
            result = call()
            if each:
                wait(result)
        wait(result)
        times.append((clock() - start) / count)
    return statistics.median(times)


def first(calls, wait) -> float:
    """Seconds the first call of each function takes: the median over the functions."""
    times = []
    for call in calls:
        start = time.perf_counter()
        wait(call())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def planned_bytes(jitted, *arguments) -> int:
    """Bytes of all buffers of a compiled function: arguments, results and what lies between."""
    sizes = jitted.lower(*arguments).compile().memory_analysis()
    held = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    return held - sizes.alias_size_in_bytes


def peak_bytes() -> int:
    """The most memory this process has held (ru_maxrss would also count the process that started it)."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    raise OSError("/proc/self/status has no VmHWM line: peak memory is only known on Linux")
