from pathlib import Path

from headrace.engine.container import available_memory, cgroup_limits, physical_memory


def write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_version_2_the_lowest_limit_on_the_way_up_holds(tmp_path) -> None:
    write(tmp_path / "pods" / "one", "memory.max", "max\n")
    write(tmp_path / "pods", "memory.max", "4000000\n")
    write(tmp_path / "pods", "memory.high", "3000000\n")
    write(tmp_path / "elsewhere", "memory.max", "1\n")
    assert min(cgroup_limits("0::/pods/one\n", tmp_path)) == 3_000_000


def test_version_1(tmp_path) -> None:
    write(tmp_path / "memory" / "docker" / "abc", "memory.limit_in_bytes", "2000000\n")
    write(tmp_path / "memory", "memory.limit_in_bytes", "9223372036854771712\n")
    membership = "5:cpuset:/x\n4:cpu,memory:/docker/abc\n1:name=systemd:/\n0::/\n"
    assert cgroup_limits(membership, tmp_path) == [2_000_000, 9223372036854771712]


def test_inside_a_container_the_path_may_be_the_host_s(tmp_path) -> None:
    write(tmp_path / "memory", "memory.limit_in_bytes", "2000000\n")
    assert cgroup_limits("4:memory:/docker/abc\n", tmp_path) == [2_000_000]


def test_no_groups_no_limits(tmp_path) -> None:
    assert cgroup_limits("", tmp_path) == []
    assert cgroup_limits("0::/pods\n", tmp_path) == []


def test_what_is_available_is_no_more_than_the_machine_has() -> None:
    assert 0 < available_memory() <= physical_memory()
