from __future__ import annotations

from pathlib import Path

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
