import json

import pytest

from benchmarks import environment


@pytest.fixture
def calls(monkeypatch):
    made = []

    def run(command, **options):
        made.append(command)

    monkeypatch.setattr(environment.subprocess, "run", run)
    return made


def test_an_environment_is_made_once(tmp_path, calls):
    folder = tmp_path / "peers"
    folder.mkdir()
    python = environment.peers_python(folder, ("peer==1",))
    assert python == str(folder / "bin" / "python")
    assert [command[-1] for command in calls] == [str(folder), "peer==1"]
    environment.peers_python(folder, ("peer==1",))
    assert len(calls) == 2


def test_other_versions_make_it_anew(tmp_path, calls):
    folder = tmp_path / "peers"
    folder.mkdir()
    (folder / "pins.json").write_text(json.dumps(["peer==1"]))
    environment.peers_python(folder, ("peer==2",))
    assert [command[-1] for command in calls] == [str(folder), "peer==2"]


def test_every_peer_is_pinned_to_one_version():
    assert all("==" in pin for pin in environment.PINS)
