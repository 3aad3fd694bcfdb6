"""A config that OpenClaw accepts is accepted; a mistyped key is refused with the right one."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from homarus.channels.irc.settings import IrcSettings
from homarus.channels.telegram.settings import TelegramSettings
from homarus.config import known_keys
from homarus.config.channels import ChannelSettings, read_account
from homarus.config.check import check_config
from homarus.config.known_keys import KnownKey, openclaw_root
from homarus.config.legacy_keys import KEYS_VERSION, newer_version
from homarus.config.load import examine_config, load_config
from homarus.config.paths import Paths

# Keys without which a section is not valid in OpenClaw either.
REQUIRED: dict[str, dict[str, Any]] = {
    "agents.list[]": {"id": "x"},
    "approvals.exec.targets[]": {"channel": "telegram", "to": "1"},
    "auth.profiles.<key>": {"provider": "x", "mode": "token"},
    "bindings[]": {"agentId": "x", "match": {"channel": "telegram"}},
    "bindings[].match": {"channel": "telegram"},
    "bindings[].match.peer": {"kind": "direct"},
    "channels.irc": {"host": "irc.example", "nick": "bot"},
    "channels.irc.accounts.<key>": {"host": "irc.example", "nick": "bot"},
    "channels.telegram.customCommands[]": {"command": "x", "description": "x"},
    "channels.telegram.accounts.<key>.customCommands[]": {"command": "x", "description": "x"},
    "hooks.internal.handlers[]": {"event": "command", "module": "x.py"},
    "hooks.mappings[].transform": {"module": "x.py"},
    "models.providers.<key>.models[]": {"id": "m"},
    "session.sendPolicy.rules[]": {"action": "deny"},
    **{f"tools.media.{kind}.scope.rules[]": {"action": "deny"} for kind in ("image", "audio")},
    "memory.qmd.paths[]": {"path": "~/notes"},
    "memory.qmd.scope.rules[]": {"action": "deny"},
}
# Values of text that has a form of its own.
TEXTS = {
    "agents.defaults.contextPruning.ttl": "5m",
    **{
        f"agents.{each}.sandbox.docker.{key}": text
        for each in ("defaults", "list[]")
        for key, text in {
            "workdir": "/work",
            "memory": "1g",
            "memorySwap": "2g",
            "ulimits.<key>": "1024:2048",
            "seccompProfile": "/etc/profile.json",
            "binds": "/srv/data:/data",
        }.items()
    },
    **{
        f"agents.{each}.heartbeat.{key}": text
        for each in ("defaults", "list[]")
        for key, text in {
            "every": "30m",
            "activeHours.start": "08:00",
            "activeHours.end": "24:00",
            "activeHours.timezone": "user",
        }.items()
    },
    "cron.sessionRetention": "24h",
    "hooks.presets": "gmail",
    "session.maintenance.pruneAfter": "30d",
    "session.maintenance.rotateBytes": "10mb",
    "memory.qmd.update.interval": "5m",
    "memory.qmd.update.embedInterval": "5m",
    "channels.telegram.proxy": "http://proxy.example:8080",
    "channels.telegram.accounts.<key>.proxy": "http://proxy.example:8080",
    "channels.irc.channels": "#room",
    "channels.irc.accounts.<key>.channels": "#room",
    "channels.irc.nickserv.registerEmail": "a@example.org",
}
ADAPTERS: dict[str, type[ChannelSettings]] = {"telegram": TelegramSettings, "irc": IrcSettings}


def keys(node: KnownKey) -> Iterator[KnownKey]:
    for below in node.children.values():
        yield below
        yield from keys(below)


def samples(key: KnownKey) -> Iterator[Any]:
    """Yield a valid value for each type that OpenClaw allows for a key."""
    text = TEXTS.get(key.path, "x")
    for kind in key.types:
        limits = {name: float(value) for name, value in re.findall(r" (min|max|gt)=(\S+)", kind)}
        number = limits.get("max", max(limits.get("min", 0.0), limits.get("gt", 0.0)) + 1.5)
        bare = re.sub(r" (default=\S+|strict|pattern|min=\S+|max=\S+|gt=\S+)", "", kind)
        for one in re.findall(r'"[^"]*"|\[[^\]]*\]|[^|\s]+', bare):
            if one[0] == '"':
                yield one[1:-1]
            elif one[0] == "[":
                yield [text] if "string" in one else [1]
                yield []
            elif one in {"true", "false"} or one.isdigit():
                yield json.loads(one)
            else:
                values: dict[str, Any] = {"string": text, "boolean": True, "array": []}
                values |= {"object": {}, "map": {}, "any": {"x": [1]}}
                yield {**values, "number": number, "integer": int(number)}[one]


def tree_of(path: str, value: Any) -> Any:
    """Make the smallest config with a value at a key; entries of maps are called `x`."""
    names = path.replace("[]", ".[]").split(".")
    tree = value
    for length in range(len(names), 0, -1):
        name = names[length - 1]
        own = ".".join(names[:length]).replace(".[]", "[]")
        if isinstance(tree, dict):
            tree = {**REQUIRED.get(own, {}), **tree}
        tree = [tree] if name == "[]" else {"x" if name == "<key>" else name: tree}
    return tree


SECTIONS = sorted(openclaw_root().children)


@pytest.fixture
def _parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the parsed list of keys between the checks, which are many."""
    monkeypatch.setattr(known_keys, "root_key", Mock(return_value=known_keys.root_key()))


@pytest.mark.usefixtures("_parsed_once")
@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_of_openclaw_is_valid(section: str) -> None:
    top = openclaw_root().children[section]
    refused = []
    for key in (top, *keys(top)):
        for value in samples(key):
            tree = tree_of(key.path, value)
            if key.path.endswith(("dmPolicy", "dm.policy")) and value == "open":
                continue  # valid together with allowFrom, as in OpenClaw
            if found := check_config(tree).problems:
                refused.append((key.path, value, found[0].message))
    assert refused == []


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_key_of_openclaw_is_valid_for_the_adapter(name: str) -> None:
    for key in keys(openclaw_root().children["channels"].children[name]):
        for value in samples(key):
            tree = tree_of(key.path, value)["channels"]
            account = "x" if ".accounts.<key>" in key.path else "default"
            read_account(tree, name, account, ADAPTERS[name])


@pytest.mark.parametrize(
    "section",
    [
        {"whatsapp": {"ackReaction": {"emoji": "👀", "direct": True, "group": "mentions"}}},
        {"whatsapp": {"keyOfALaterVersion": {"x": 1}, "enabled": "yes"}},
        {"googlechat": {"streamMode": "replace", "dmPolicy": "open"}},
        {"zalouser": {"whatever": [1]}},
        {"my-own-plugin": {"x": 1}},
    ],
)
def test_channel_without_adapter_is_never_refused(section: dict[str, Any]) -> None:
    checked = check_config({"channels": section})
    assert checked.problems == ()
    assert checked.unbuilt == tuple(f"channels.{name}" for name in section)


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("telegramm", "telegram"), ("Telegram", "telegram"), ("telgram", "telegram"),
        ("discrod", "discord"),
        ("slak", "slack"), ("whatsap", "whatsapp"), ("msteam", "msteams"), ("matrx", "matrix"),
        ("wechat", ""), ("webchat", ""), ("line", ""),
    ],
)  # fmt: skip
def test_mistyped_channel_is_refused_with_the_right_name(name: str, right: str) -> None:
    problems = check_config({"channels": {name: {}}}).problems
    assert [problem.fix for problem in problems] == ([f"did you mean {right}?"] if right else [])
    plugins = {"entries": {name: {"enabled": True}}}
    assert check_config({"channels": {name: {}}, "plugins": plugins}).problems == ()


@pytest.mark.parametrize(
    ("tree", "key", "right"),
    [
        ({"agents": {"defaults": {"workspce": "x"}}}, "agents.defaults.workspce", "workspace"),
        ({"channels": {"telegram": {"botTokn": "x"}}}, "channels.telegram.botTokn", "botToken"),
        ({"gatway": {}}, "gatway", "gateway"),
    ],
)
def test_mistyped_key_is_refused_with_the_right_one(tree: Any, key: str, right: str) -> None:
    (problem,) = check_config(tree).problems
    assert (".".join(map(str, problem.path)), problem.fix) == (key, f"did you mean {right}?")


def test_known_key_without_effect_warns() -> None:
    checked = check_config({"talk": {"voiceId": "x"}})
    assert (checked.problems, checked.unbuilt) == ((), ("talk",))


@pytest.mark.parametrize(
    ("tree", "fix"),
    [
        ({"gateway": {"token": "t"}}, "gateway.auth.token"),
        ({"bindings": [{"agentId": "a", "match": {"provider": "x"}}]}, "bindings[].match.channel"),
        ({"routing": {"bindings": []}}, "bindings"),
        ({"routing": {"allowFrom": ["1"]}}, "channels.whatsapp.allowFrom"),
        ({"routing": {"queue": {}}}, "messages.queue"),
        ({"routing": {"other": 1}}, "bindings, agents.list and messages"),
        ({"whatsapp": {}}, "channels.whatsapp"),
        ({"identity": {"name": "x"}}, "agents.list[].identity"),
        ({"tools": {"bash": {}}}, "tools.exec"),
        ({"agent": {"modelFallbacks": []}}, "agents.defaults.model.fallbacks"),
    ],
)
def test_legacy_key_is_refused_with_its_new_place(tree: Any, fix: str) -> None:
    assert check_config(tree).problems[0].fix == f"it is a legacy key: use {fix}"


def test_legacy_section_names_each_key_in_it() -> None:
    found = check_config({"routing": {"queue": {}, "allowFrom": []}}).problems
    assert [problem.path for problem in found] == [("routing", "queue"), ("routing", "allowFrom")]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / ".openclaw").mkdir()
    return Paths.find({}, tmp_path)


@pytest.mark.parametrize("version", ["2026.5.2", "2026.10.1"])
def test_config_of_a_newer_openclaw_is_named(paths: Paths, version: str) -> None:
    paths.config.write_text(json.dumps({"meta": {"lastTouchedVersion": version}}))
    (warning,) = load_config(paths, {}).warnings
    assert f"OpenClaw {version}" in warning
    assert KEYS_VERSION in warning
    paths.config.write_text(json.dumps({"meta": {"lastTouchedVersion": "2026.9.6"}}))
    assert not load_config(paths, {}).warnings, "its settings are converted"


def test_unknown_keys_of_a_newer_openclaw_name_its_version(paths: Paths) -> None:
    meta = {"lastTouchedVersion": "2026.5.2"}
    text = json.dumps({"meta": meta, "brandNew": 1, "gateway": {"prot": 1}})
    first, second = examine_config(paths, {}, text).errors
    assert (first.key, first.reason) == ("brandNew", "unknown key")
    assert "this config was last written by OpenClaw 2026.5.2" in first.fix
    assert second.fix.startswith("did you mean port or remote? if it is a setting of a later")


@pytest.mark.parametrize(
    ("version", "newer"),
    [
        ("2026.2.17", ""), ("2026.2.9", ""), ("2025.12.31", ""), ("0.1.0", ""), ("x", ""), (5, ""),
        ("2026.2.18", "2026.2.18"), ("2026.10.1-beta.2", "2026.10.1"), ("2027.1.1", "2027.1.1"),
    ],
)  # fmt: skip
def test_newer_version_compares_by_number(version: Any, newer: str) -> None:
    assert newer_version({"meta": {"lastTouchedVersion": version}}) == newer
