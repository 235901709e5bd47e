"""Kills for want of memory, as kernels and containers of all kinds tell of them."""

import pytest

from headrace.engine.processes.memory_killer import oom_kills

EVENTS = "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, 0),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": EVENTS}, 2),
        ({"proc/self/cgroup": "0::/user/job\n", "sys/fs/cgroup/user/job/memory.events": EVENTS}, 2),
        ({"proc/self/cgroup": "0::/docker/abc\n", "sys/fs/cgroup/memory.events": EVENTS}, 2),
        ({"proc/self/cgroup": "5:cpu:/a\n4:memory:/a\n0::/\n", "sys/fs/cgroup/memory/a/memory.oom_control": CONTROL}, 5),
        ({"proc/self/cgroup": "4:cpu,memory:/a\n", "sys/fs/cgroup/memory/memory.oom_control": CONTROL}, 5),
        ({"proc/vmstat": "pgpgin 1\noom_kill 3\n"}, 3),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.events": "garbage"}, 0),
    ],
)  # fmt: skip
def test_what_the_system_tells_is_found(files, kills, tmp_path) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert oom_kills(tmp_path) == kills


def test_this_system_can_be_asked() -> None:
    assert oom_kills() >= 0
