import importlib.metadata
import sys
import types

import pytest

from headrace.plan.origins import file_of, origin_of, version_of


@pytest.mark.parametrize(
    ("module", "origin"),
    [
        (None, "user"),
        ("__main__", "user"),
        ("no_such_module", "user"),
        ("json", "standard"),
        ("os.path", "standard"),
        ("builtins", "standard"),
        ("numpy.linalg", "installed"),
        ("headrace.plan.origins", "installed"),
        (__name__, "user"),
    ],
)
def test_where_code_comes_from(module, origin):
    assert origin_of(module) == origin


def test_a_version_is_that_of_the_distribution():
    assert version_of("pyarrow.lib") == importlib.metadata.version("pyarrow")


def test_a_distribution_may_have_another_name_than_its_module():
    expected = importlib.metadata.version("hypothesis")
    assert version_of("_hypothesis_pytestplugin") == expected


def test_the_name_of_a_build_is_no_part_of_the_version(monkeypatch):
    module = types.ModuleType("built_here")
    module.__version__ = "1.2.3+cpu"
    monkeypatch.setitem(sys.modules, "built_here", module)
    assert version_of("built_here") == "1.2.3"


def test_a_module_without_any_version_has_none():
    assert version_of("no_such_module") == ""


@pytest.mark.parametrize("module", ["no_such_module", "json.no_such_module", "json.decoder.deeper", ".relative"])
def test_what_is_not_there_has_no_file(module):
    assert file_of(module) is None


def test_files_are_found_without_importing():
    assert "xmlrpc.server" not in sys.modules
    assert file_of("xmlrpc.server").endswith("server.py")
    assert "xmlrpc" not in sys.modules


def test_what_pip_put_into_another_folder_is_installed_and_what_lies_beside_it_is_not(tmp_path, monkeypatch):
    info = tmp_path / "depot_tools-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: depot-tools\nVersion: 1.5\n")
    (info / "RECORD").write_text("depot_tools/__init__.py,,\ndepot_single.py,,\n")
    (tmp_path / "depot_tools").mkdir()
    for name in ("depot_tools/__init__.py", "depot_tools/part.py", "depot_single.py", "depot_own.py"):
        (tmp_path / name).touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("depot_tools", "depot_tools.part", "depot_single", "depot_own")
    assert [origin_of(name) for name in names] == ["installed", "installed", "installed", "user"]
    assert version_of("depot_tools.part") == "1.5"


def test_a_project_under_development_is_the_users(tmp_path, monkeypatch):
    info = tmp_path / "depot_dev.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: depot-dev\nVersion: 1.0\n")
    (info / "SOURCES.txt").write_text("depot_dev.py\n")
    (info / "top_level.txt").write_text("depot_dev\n")
    (tmp_path / "depot_dev.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert origin_of("depot_dev") == "user"
