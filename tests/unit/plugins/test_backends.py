"""The backend loader: listing without importing, loading by name, entry points, errors."""

import importlib.metadata
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from homarus.core.errors import MissingExtraError, UnknownNameError, UserError
from homarus.plugins.backends import BackendKind

GROUP: Final = "toy.stores"
MODULES: Final = {
    "sqlite.py": "class Settings: ...\ndef create(): return 'sqlite'\n",
    "in_memory.py": "from toy.sqlite import Settings\nasync def create(): ...\n",
    "constants.py": "Settings = dict\ncreate: object = None\n",
    "remote/__init__.py": "from toy.sqlite import Settings as Settings, create as create\n",
    "needs_extra.py": (
        "from homarus.core.errors import MissingExtraError\n"
        "class Settings: ...\ndef create(): raise MissingExtraError('needs-extra', 'pg')\n"
    ),
    "__init__.py": "def Settings(): ...\ndef create(): ...\n",
    "declared.py": "Settings: type\ndef create(): ...\n",
    "half.py": "def create(): ...\n",
    "nested.py": "if True:\n    class Settings: ...\ndef build():\n    def create(): ...\n",
    "folder/notes.txt": "no module\n",
    "_private.py": "class Settings: ...\ndef create(): ...\n",
}
STORES: Final[BackendKind[Any]] = BackendKind(
    name="store",
    package="toy",
    group=GROUP,
    required=("Settings", "create"),
    config_key="stores.{name}",
)
OWN: Final = ("constants", "in-memory", "needs-extra", "remote", "sqlite")


@pytest.fixture(autouse=True)
def toy_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in MODULES.items():
        file = tmp_path / "toy" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "toy"]:
        monkeypatch.delitem(sys.modules, name)


def install(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    entries = tuple(EntryPoint(name, value, GROUP) for name, value in values.items())
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda *, group: tuple(entry for entry in entries if entry.group == group),
    )


def test_names_are_modules_with_required_attributes() -> None:
    assert STORES.names() == OWN


def test_names_and_has_import_no_backend() -> None:
    assert STORES.names() and STORES.has("sqlite") and STORES.has("remote")
    assert not [name for name in sys.modules if name.startswith("toy.")]


@pytest.mark.parametrize("name", OWN)
def test_own_backend_is_found_and_loaded(name: str) -> None:
    assert STORES.has(name)
    assert STORES.load(name) is STORES.find(name) is sys.modules[f"toy.{name.replace('-', '_')}"]


@pytest.mark.parametrize(
    "name",
    ["half", "folder", "sqlit", "", "Sqlite", "../sqlite", "toy.sqlite", "in_memory", "__init__"],
)
def test_unknown_name_is_refused_with_closest_names(name: str) -> None:
    assert not STORES.has(name) and STORES.find(name) is None
    with pytest.raises(UnknownNameError, match=f"unknown store {name!r}") as caught:
        STORES.load(name)
    assert caught.value.fix.endswith(f"there are {', '.join(OWN)}")
    if name == "sqlit":
        assert caught.value.nearest == ("sqlite",)
        assert caught.value.fix.startswith("did you mean sqlite? ")


def test_name_pattern_of_a_kind_replaces_the_default() -> None:
    any_case: BackendKind[Any] = BackendKind(
        "store", "toy", GROUP, ("create",), "store", name_pattern=r"[a-z]+"
    )
    assert set(any_case.names()) == {"constants", "declared", "half", "remote", "sqlite"}


def test_entry_point_adds_a_backend_but_never_replaces_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = SimpleNamespace(Settings=dict, create=lambda: "cloud")
    monkeypatch.setitem(sys.modules, "cloud_store", module)
    install(monkeypatch, cloud="cloud_store", sqlite="cloud_store", half="cloud_store", Bad="json")
    assert STORES.names() == tuple(sorted((*OWN, "cloud", "half")))
    assert STORES.has("cloud") and STORES.load("cloud") is module
    assert STORES.load("half") is module  # our module of that name is not a backend
    assert STORES.load("sqlite") is not module
    assert not STORES.has("Bad")


def test_broken_entry_point_raises_an_error_with_its_config_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, cloud="no_such_module", typo="json:nothing", parser="json")
    with pytest.raises(UserError, match="the store cloud cannot be loaded from no_such_module"):
        STORES.load("cloud")
    with pytest.raises(UserError, match="the store typo cannot be loaded from json:nothing"):
        STORES.find("typo")
    with pytest.raises(UserError, match="json is not a store: it needs Settings and create") as got:
        STORES.load("parser")
    assert "stores.parser" in got.value.fix


def test_missing_extra_is_raised_by_the_backend_itself() -> None:
    module = STORES.load("needs-extra")
    with pytest.raises(MissingExtraError, match="needs-extra needs a package"):
        module.create()


def test_loader_imports_nothing_slow() -> None:
    code = (
        "import sys; import homarus.plugins.backends; "
        "slow = {'importlib.metadata', 'importlib.resources', 'pluggy', 'difflib'}; "
        "assert not slow & set(sys.modules), slow & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
