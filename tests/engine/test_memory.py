import os
import subprocess
import sys

from headrace.engine.memory import RELIEVED_SHARE, MemoryWatch, memory_of_tree, own_peak_bytes


class Meter:
    """Memory in use, and time, as a test says."""

    used = 0
    now = 0.0

    def __call__(self, workers: list[int]) -> int:
        return self.used


def watched(meter: Meter) -> tuple[MemoryWatch, list[bool]]:
    told: list[bool] = []
    watch = MemoryWatch(1000, used=meter, clock=lambda: meter.now)
    watch._listeners = [told.append]
    return watch, told


def test_everybody_is_told_once_when_memory_is_short_and_once_when_it_is_not() -> None:
    meter = Meter()
    watch, told = watched(meter)
    for used in (500, 790, 810, 990, 750, 690, 500):
        meter.used = used
        watch.look()
    assert told == [True, False]
    assert watch.peak_bytes >= 990


def test_pages_of_mapped_files_do_not_count() -> None:
    meter, of_files = Meter(), [100]
    told: list[bool] = []
    watch = MemoryWatch(1000, used=meter, of_files=lambda: of_files[0])
    watch._listeners, watch._mapped_bytes = [told.append], 400
    for used, files in ((700, 100), (1000, 400), (1200, 500), (1250, 900), (950, 300), (600, 100)):
        meter.used, of_files[0] = used, files
        watch.look()
    assert told == [True, False]  # at 1250, of which 400 may be mapped, and at 600
    assert watch.peak_bytes == 850


def test_the_time_under_pressure_is_counted_while_it_lasts() -> None:
    meter = Meter()
    watch, _ = watched(meter)
    meter.used, meter.now = 900, 10.0
    watch.look()
    meter.now = 13.0
    assert watch.pressed_secs == 3.0
    meter.used = int(1000 * RELIEVED_SHARE) - 1
    watch.look()
    meter.now = 20.0
    assert watch.pressed_secs == 3.0


def test_the_end_of_a_run_lets_everybody_go() -> None:
    meter = Meter()
    watch, told = watched(meter)
    meter.used = 900
    watch.look()
    watch.stop()
    assert told == [True, False]


def test_workers_count() -> None:
    code = "data = bytearray(64 * 2**20); print('ready', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        alone, together = memory_of_tree([]), memory_of_tree([child.pid])
        assert together - alone > 60 * 2**20
    finally:
        child.communicate(b"\n")
    assert memory_of_tree([child.pid]) < together  # it has ended
    assert memory_of_tree([os.getpid()]) > alone


def test_the_peak_is_not_that_of_whoever_started_the_process() -> None:
    held = bytes(range(256)) * (400 * 2**12)
    program = "from headrace.engine.memory import own_peak_bytes; print(own_peak_bytes())"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 2**20 < int(shown.stdout) < len(held)
    assert own_peak_bytes() > len(held)


def test_threads_share_a_few_arenas() -> None:
    script = """
import ctypes, threading
from headrace.engine.memory import share_arenas

share_arenas(2)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
start = threading.Barrier(8)

def get():
    start.wait()
    heaps.add(libc.malloc(1000) >> 26)  # each further arena has a heap of its own, 64 MB apart
    start.wait()

heaps = set()
threads = [threading.Thread(target=get) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(heaps))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 2  # one heap may lie across such a bound


def test_freed_memory_is_used_again() -> None:
    script = """
import resource
import numpy as np
from headrace.engine.memory import keep_freed_memory

def faults_of(calls):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(calls):
        np.ones(2**17)  # a megabyte
        [np.ones(2**15) for _ in range(20)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults_of(10)
without = faults_of(20)
keep_freed_memory()
faults_of(1)
print(without, faults_of(20))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    without, kept = map(int, done.stdout.split())
    assert without > 10_000
    assert kept < without / 10
