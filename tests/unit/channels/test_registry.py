"""Channels by name: ours, found without importing them, and those of packages; their traits."""

import importlib.metadata
import subprocess
import sys
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from homarus.channels import registry
from homarus.channels.registry import (
    CHANNELS,
    available_channels,
    channel_label,
    find_traits,
    load_channel,
)
from homarus.config.channels import ChannelSettings
from homarus.core.channel_traits import UNKNOWN_CHANNEL, ChannelTraits
from homarus.core.errors import UnknownNameError, UserError
from homarus.plugins.backends import BackendKind


def entries(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    made = tuple(EntryPoint(name, value, CHANNELS.group) for name, value in values.items())
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: made)
    registry.find_traits.cache_clear()


def test_available_channels_are_modules_with_settings_and_create() -> None:
    known = available_channels()
    assert {"telegram", "matrix", "irc"} <= set(known) and list(known) == sorted(known)
    assert not {"base", "http", "roster", "courier", "markup", "--init--"} & set(known)


def test_load_channel_each_name_has_settings_and_label() -> None:
    for name in available_channels():
        kind = load_channel(name)
        assert callable(kind.create)
        assert kind.Settings.model_config["extra"] == "forbid", f"{name} takes any key"
        assert channel_label(name).lower().replace(" ", "-") == name


def test_available_channels_imports_no_channel() -> None:
    code = (
        "import sys; from homarus.channels.registry import available_channels as k; names = k();"
        "sys.exit(any(f'homarus.channels.{n}' in sys.modules for n in names))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["base", "http", "telegarm", "", "Telegram", "../telegram", "a.b"])
def test_load_channel_unknown_name_suggests_nearest(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_channel(name)
    assert "telegram" in caught.value.fix
    if name == "telegarm":
        assert caught.value.fix.startswith("did you mean telegram?")


def test_load_channel_entry_point_adds_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(Settings=ChannelSettings, create=lambda place, settings: None)
    monkeypatch.setitem(sys.modules, "carrier_pigeon", module)
    entries(monkeypatch, pigeon="carrier_pigeon", telegram="carrier_pigeon")
    assert "pigeon" in available_channels()
    assert load_channel("pigeon") is module
    assert load_channel("telegram") is not module  # ours cannot be replaced
    assert channel_label("pigeon") == "Pigeon"


def test_load_channel_broken_package_raises_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    entries(monkeypatch, pigeon="no_such_module", owl="json")
    with pytest.raises(UserError, match="pigeon cannot be loaded from no_such_module"):
        load_channel("pigeon")
    with pytest.raises(UserError, match="json is not a channel: it needs Settings and create"):
        load_channel("owl")
    assert channel_label("pigeon") == "pigeon"


def test_channel_label_unknown_name_lists_no_channels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BackendKind, "names", lambda _kind: pytest.fail("all channels were listed"))
    assert channel_label("pigeon") == "pigeon" and channel_label("../x") == "../x"


def test_find_traits_imports_no_adapter_and_no_other_channel() -> None:
    script = (
        "import sys; from homarus.channels.registry import find_traits;"
        "assert find_traits('zalo').title == 'Zalo';"
        "assert not [m for m in sys.modules if m.startswith('homarus.channels.')"
        " and m != 'homarus.channels.registry'];"
        "assert find_traits('Telegram').has_topics;"
        "loaded = [m for m in sys.modules if m.startswith('homarus.channels.')];"
        "assert not [m for m in loaded if m.endswith(('.adapter', '.matrix', '.irc'))], loaded"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_find_traits_own_channel_has_title_and_dialect() -> None:
    for name in ("telegram", "matrix", "irc"):
        traits = find_traits(name)
        assert (traits.title, traits.dialect) == (channel_label(name), name)


def test_find_traits_alias_finds_service() -> None:
    assert find_traits("tg") is find_traits("telegram")
    assert find_traits("gchat") is find_traits("googlechat")
    assert find_traits("user") is find_traits("no such") is UNKNOWN_CHANNEL


def test_find_traits_package_without_traits_has_title(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = SimpleNamespace(Settings=ChannelSettings, create=print)
    monkeypatch.setitem(sys.modules, "pigeon_post", module)
    entries(monkeypatch, pigeon="pigeon_post", owl="no_such_module")
    assert find_traits("pigeon") == ChannelTraits("Pigeon")
    assert find_traits("owl") is UNKNOWN_CHANNEL
    registry.find_traits.cache_clear()
