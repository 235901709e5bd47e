from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import fsspec
import pytest

from headrace.errors import ModelLoadError
from headrace.handlers.hub import check_model, is_hub_id, model_folder, model_name

COMMIT = "0123456789" * 4


def check(model: str, **options: object) -> None:
    check_model(model, handler_name="Handler", **options)


def test_a_folder_is_a_model_if_it_holds_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    check(str(tmp_path))
    check(f"file://{tmp_path}")
    check(str(tmp_path), holds=("modules.json", "config.json"))
    assert model_folder(tmp_path, handler_name="Handler") == tmp_path
    assert model_name(str(tmp_path) + "/") == tmp_path.name


def test_folders_without_a_model_say_what_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "config.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=r"holds no model, for it has no config.json; did you mean .*/inner\?"):
        check(str(tmp_path))
    with pytest.raises(ModelLoadError, match=r"no modules.json or x.json In it: config.json"):
        check(str(tmp_path / "inner"), holds=("modules.json", "x.json"))


def test_paths_that_are_no_folder_are_told(tmp_path: Path) -> None:
    (tmp_path / "minilm").mkdir()
    with pytest.raises(ModelLoadError, match="there is no model folder .*minlm; did you mean 'minilm'"):
        check(str(tmp_path / "minlm"))
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(ModelLoadError, match=r"model.bin is a file; name the folder that it is in"):
        check(str(tmp_path / "model.bin"))


def test_a_folder_here_comes_before_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_hub_id("org/model")
    (tmp_path / "org" / "model").mkdir(parents=True)
    assert not is_hub_id("org/model")
    assert model_name("org/model", "v1") == "model"


def test_folders_behind_urls_are_copied(tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pipe({"/models/tiny/config.json": b"{}", "/models/tiny/1_Pooling/config.json": b"[]"})
    check("memory://models/tiny")  # seen only when it is loaded
    folder = model_folder("memory://models/tiny", handler_name="Handler", cache_dir=tmp_path)
    assert folder.name == "tiny"
    assert (folder / "1_Pooling" / "config.json").read_bytes() == b"[]"
    with pytest.raises(ModelLoadError, match="there is no model folder memory://models/none"):
        model_folder("memory://models/none", handler_name="Handler", cache_dir=tmp_path)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub, and no Hub."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


FILES = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"weights, pickled",
    "tf_model.h5": b"weights for another framework",
    "onnx/model.onnx": b"weights for another",
}


class Hub(BaseHTTPRequestHandler):
    """The part of the Hub's interface by which a model is downloaded, over the files above."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path in ("/api/models/org/tiny", "/api/models/org/tiny/revision/main"):
            self._tell({"id": "org/tiny", "sha": COMMIT, "siblings": [{"rfilename": name} for name in FILES]})
        elif path == f"/api/models/org/tiny/tree/{COMMIT}":
            sizes = {name: len(data) for name, data in FILES.items()}
            self._tell([{"type": "file", "path": name, "size": size, "oid": name} for name, size in sizes.items()])
        elif path.startswith(f"/org/tiny/resolve/{COMMIT}/"):
            self._send(FILES[path.partition(f"{COMMIT}/")[2]])
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def _tell(self, value: object) -> None:
        self._send(json.dumps(value).encode())

    def _send(self, data: bytes) -> None:
        self.send_response(200)
        for name, value in {
            "Content-Length": str(len(data)),
            "ETag": f'"{len(data)}"',
            "X-Repo-Commit": COMMIT,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def in_a_process(code: str, home: Path, endpoint: str) -> subprocess.CompletedProcess[str]:
    """Run code with a cache and a Hub of its own, which the Hub's client reads when it is imported."""
    environment = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.heavy
def test_an_id_is_downloaded_once_and_only_what_is_needed(hub: str, tmp_path: Path) -> None:
    code = "from headrace.handlers.hub import *; check_model('org/tiny', handler_name='H')\n"
    code += "print(model_folder('org/tiny', handler_name='H'))"
    ended = in_a_process(code, tmp_path, hub)
    assert ended.stderr == ""
    folder = Path(ended.stdout.strip())
    assert {path.name for path in folder.rglob("*")} == {"config.json", "model.safetensors"}
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    again = in_a_process(code, tmp_path, "http://127.0.0.1:9")
    assert (again.stdout, again.stderr) == (ended.stdout, "")


@pytest.mark.heavy
def test_an_id_that_the_hub_does_not_know(hub: str, tmp_path: Path) -> None:
    code = "from headrace.handlers.hub import *; check_model('org/none', handler_name='H')"
    told = in_a_process(code, tmp_path, hub).stderr.splitlines()[-1]
    assert told.endswith("from the Hub: there is none of that name, or it is private; check the name, or set HF_TOKEN")


@pytest.mark.heavy
def test_an_id_that_cannot_be_had_is_one_error(cache: Path) -> None:
    words = r"Handler: 'org/none' is no folder here, .*cache of the Hugging Face Hub \(.*\), .*HF_HUB_OFFLINE is set"
    with pytest.raises(ModelLoadError, match=words):
        check("org/none")
    with pytest.raises(ModelLoadError, match=r"'org/none' \(revision 'v9'\) is no folder here"):
        model_folder("org/none", revision="v9", handler_name="Handler")


@pytest.mark.heavy
def test_a_hub_that_does_not_answer_is_told_at_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelLoadError, match="it cannot be reached .*check the network"):
        check("org/none")


@pytest.mark.heavy
def test_an_id_in_the_cache_needs_no_hub(cache: Path) -> None:
    stored = cache / "models--org--tiny"
    snapshot = stored / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text(COMMIT)
    check("org/tiny")
    assert model_folder("org/tiny", handler_name="Cached") == snapshot
    assert model_name("org/tiny", "main") == "org/tiny@main"
