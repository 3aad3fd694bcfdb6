"""One rule for the config tree says what a client may set; every method and every key obeys it."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import homarus.gateway
from homarus.config.known_keys import KnownKey, root_key
from homarus.config.paths import Paths
from homarus.config.protected_keys import (
    ClientRules,
    KeyAccess,
    check_client_workspace,
    check_protected_keys,
    classify_key,
)
from homarus.config.redaction import REDACTED, is_secret
from homarus.core.errors import HomarusError, InvalidRequestError, UserError
from tests.unit.gateway.app_harness import Harness, run

DATA = Path(__file__).parent.parent / "data" / "config_key_access.json"
PATHS = Paths.find({}, Path("/home/user"))
RULES = ClientRules(PATHS)
NO_KEYS = ClientRules(PATHS, has_stored_key=lambda _provider: False)


def leaves(node: KnownKey, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key that has a value: all keys without keys below them."""
    if not node.children:
        yield names
    for name, below in node.children.items():
        yield from leaves(below, (*names, name))


def every_key() -> list[tuple[str, ...]]:
    return list(leaves(root_key()))


def shown(names: tuple[str, ...]) -> str:
    return ".".join(names).replace(".[]", "[]")


def classes() -> dict[str, Any]:
    """Return the class of each key: by its name if that is enough, else by its path."""
    by_name: dict[str, set[KeyAccess]] = {}
    for names in every_key():
        by_name.setdefault(_name(names), set()).add(classify_key(names))
    result: dict[str, Any] = {}
    for name, found in by_name.items():
        if len(found) == 1:
            result.setdefault(next(iter(found)), []).append(name)
    result = {access: sorted(found) for access, found in sorted(result.items())}
    result["paths"] = {
        shown(names): classify_key(names)
        for names in sorted(every_key())
        if len(by_name[_name(names)]) > 1
    }
    return result


def _name(names: tuple[str, ...]) -> str:
    return next(name for name in reversed(names) if name not in {"<key>", "[]"})


def tree_of(names: tuple[str, ...], value: Any) -> Any:
    """Make a config tree with a value at a key; entries of maps and lists are called `x`."""
    if not names:
        return value
    inner = tree_of(names[1:], value)
    if names[0] == "[]":
        return [{"id": "x", **inner} if isinstance(inner, dict) else inner]
    return {"x" if names[0] == "<key>" else names[0]: inner}


def refuses(old: Any, new: Any, rules: ClientRules = RULES) -> bool:
    try:
        check_protected_keys(old, new, rules)
    except UserError:
        return True
    return False


def test_every_key_has_a_class() -> None:
    """A new key fails here until its class is decided: see config/protected_keys.py."""
    assert classes() == json.loads(DATA.read_text("utf-8"))


@pytest.mark.parametrize("access", ["machine", "guard", "endpoint", "workspace", "free"])
def test_every_key_obeys_its_class(access: KeyAccess) -> None:
    keys = [names for names in every_key() if classify_key(names) == access]
    assert keys
    for names in keys:
        literal, other = tree_of(names, "one"), tree_of(names, "two")
        assert refuses({}, literal) == (access != "free"), names
        assert refuses(literal, other) == (access != "free"), names
        assert not refuses(literal, literal), names


def test_no_key_accepts_a_variable_from_a_client() -> None:
    for names in every_key():
        reference, escaped = tree_of(names, "a${HOME}"), tree_of(names, "a$${HOME}")
        assert refuses({}, reference), names
        assert refuses(tree_of(names, "x"), reference), names
        assert not refuses(reference, reference), names
        if classify_key(names) == "free":
            assert not refuses({}, escaped), names


def test_no_restriction_can_be_removed_by_a_client() -> None:
    for names in every_key():
        in_an_entry = "channels" in names or "[]" in names  # which may be removed as one
        if classify_key(names) == "guard" and not in_an_entry:
            assert refuses(tree_of(names, "on"), {}), names


def test_restriction_of_an_agent_goes_with_the_agent() -> None:
    entry = {"id": "ops", "sandbox": {"mode": "all"}}
    old = {"agents": {"list": [{"id": "main"}, entry]}}
    assert not refuses(old, {"agents": {"list": [{"id": "main"}]}})
    assert refuses(old, {"agents": {"list": [{"id": "main"}, {"id": "ops"}]}})
    assert refuses({"tools": {"exec": {"security": "deny"}}}, {"tools": {}})
    assert refuses({"tools": {"exec": {"security": "deny"}}}, {})


def test_every_secret_of_the_list_is_redacted() -> None:
    words = ("token", "password", "secret", "apikey", "appPassword")
    for names in every_key():
        key = names[-1].lower()
        if key.endswith(words) and not key.startswith(("max", "reserve")):
            assert is_secret(names, "value"), names


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("wss://chrome.example?token=abc", True),
        ("https://user:pass@host/", True),
        ("https://host/v1?api_key=abc&x=1", True),
        ("https://host/v1?key=", False),
        ("https://host/keys?page=1", False),
    ],
)
def test_url_with_a_secret_is_redacted(url: str, *, secret: bool) -> None:
    assert is_secret(("browser", "cdpUrl"), url) is secret


PROVIDER = {"baseUrl": "https://api.example/v1", "apiKey": "sk-stored"}


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        ({**PROVIDER, "baseUrl": "https://evil.example"}, True),
        ({"baseUrl": "https://evil.example", "apiKey": "sk-other"}, False),
        ({**PROVIDER, "apiKey": "sk-other"}, False),
        ({"baseUrl": "https://evil.example"}, False),
        ({**PROVIDER, "models": []}, False),
    ],
)
def test_base_url_moves_only_with_its_key(entry: dict[str, Any], *, refused: bool) -> None:
    old, new = ({"models": {"providers": {"x": each}}} for each in (PROVIDER, entry))
    assert refuses(old, new, NO_KEYS) is refused
    is_moved = entry["baseUrl"] != PROVIDER["baseUrl"]
    assert refuses(old, new) is is_moved  # with a profile or a variable besides


@pytest.mark.parametrize(
    "stored",
    [
        {"headers": {"x-auth": "sk-1"}},
        {"apiKey": "${KEY}"},
        {"apiKeyFrom": {"source": "env", "name": "KEY"}},
        {"models": [{"id": "m", "headers": {"authorization": "sk-1"}}]},
    ],
)
def test_base_url_stays_while_any_stored_key_does(stored: dict[str, Any]) -> None:
    entries = ({"baseUrl": url, **stored} for url in ("https://a.example", "https://b.example"))
    old, new = ({"models": {"providers": {"x": each}}} for each in entries)
    assert refuses(old, new, NO_KEYS)


def test_channel_server_moves_only_with_its_token() -> None:
    old = {"channels": {"telegram": {"botToken": "1:a", "accounts": {"x": {}}}}}
    inherited = {"botToken": "1:a", "accounts": {"x": {"apiRoot": "https://evil.example"}}}
    assert refuses(old, {"channels": {"telegram": inherited}})
    own = {"botToken": "2:b", "apiRoot": "https://bots.example"}
    assert not refuses(old, {"channels": {"telegram": own}})
    assert refuses({}, {"channels": {"telegram": {"apiRoot": "https://evil.example"}}})
    matrix = {"homeserver": "https://m.example", "accessToken": "t"}
    assert not refuses({}, {"channels": {"matrix": matrix}})


IRC = {"host": "irc.example", "nick": "lobster"}
NO_LOGIN = ClientRules(PATHS, has_stored_login=lambda _channel: False)


def test_server_without_a_credential_is_added_where_none_is_stored() -> None:
    new = {"channels": {"irc": IRC}}
    assert refuses({}, new)  # a variable or a saved login would be sent there
    assert not refuses({}, new, NO_LOGIN)
    moved = {"channels": {"irc": {**IRC, "host": "other.example"}}}
    assert not refuses(new, moved, NO_LOGIN)
    stored = {"channels": {"irc": {**IRC, "password": "p"}}}
    moved = {"channels": {"irc": {**IRC, "password": "p", "host": "evil.example"}}}
    assert refuses(stored, moved, NO_LOGIN)


@pytest.mark.parametrize(
    ("accounts", "refused"),
    [
        ({"second": {"host": "b.example"}}, True),  # it would be sent the password of the section
        ({"second": {"host": "b.example", "password": "own"}}, False),
        ({"second": {"host": "b.example", "nickserv": {"password": "own"}}}, True),
        ({"second": {"host": "b.example", "password": "p"}}, True),
        ({"second": {"nick": "other"}}, False),
    ],
)
def test_second_account_is_added_with_its_own_credential(
    accounts: dict[str, Any], *, refused: bool
) -> None:
    old = {"channels": {"irc": {**IRC, "password": "p"}}}
    new = {"channels": {"irc": {**IRC, "password": "p", "accounts": accounts}}}
    assert refuses(old, new, NO_LOGIN) is refused


def test_account_under_another_spelling_is_the_same_account() -> None:
    own = {"accounts": {"work": {**IRC, "password": "p"}}}
    evil = {"accounts": {**own["accounts"], "WORK": {"host": "evil.example"}}}
    assert refuses({"channels": {"irc": own}}, {"channels": {"irc": evil}}, NO_LOGIN)


async def test_client_adds_a_public_server_until_a_login_is_stored(tmp_path: Path) -> None:
    raw = json.dumps({"channels": {"irc": {**IRC, "enabled": False}}})
    async with run(tmp_path) as it:
        folder = it.app.paths.state / "credentials" / "irc"
        folder.mkdir(parents=True)
        (folder / "default.json").write_text("{}")
        with pytest.raises(InvalidRequestError, match="stored credential"):
            await it.ask("config.patch", raw=raw, baseHash=await base(it))
        (folder / "default.json").unlink()
        await it.ask("config.patch", raw=raw, baseHash=await base(it))
        assert json.loads(it.app.paths.config.read_text())["channels"]["irc"]["host"]


@pytest.mark.parametrize(
    "folder",
    ["/", "~", "~/.ssh", "~/.openclaw", "~/.openclaw/agents", "~/.openclaw/workspace/../agents",
     "/etc", "relative", "", "~/bin", "~/.openclaw/x/workspace", "/x\0y", "~other/w"],
)  # fmt: skip
def test_client_workspace_outside_the_state_is_refused(folder: str) -> None:
    with pytest.raises(UserError, match="workspace"):
        check_client_workspace(folder, PATHS)
    assert refuses({}, {"agents": {"list": [{"id": "x", "workspace": folder}]}})
    assert refuses({}, {"agents": {"defaults": {"workspace": folder}}})
    assert refuses({}, {"agent": {"workspace": folder}})


def test_client_workspace_in_the_state_is_allowed(tmp_path: Path) -> None:
    paths = Paths.find({}, tmp_path)
    paths.state.mkdir()
    (tmp_path / ".ssh").mkdir()
    (paths.state / "workspace-link").symlink_to(tmp_path / ".ssh")
    check_client_workspace("~/.openclaw/workspace-new/inner", paths)
    check_client_workspace(str(paths.state / "workspace"), paths)
    with pytest.raises(UserError):
        check_client_workspace("~/.openclaw/workspace-link", paths)


def test_no_method_writes_the_config_past_the_rule() -> None:
    """A method changes the config by client_changes.py only."""
    folder = Path(homarus.gateway.__file__).parent / "methods"
    writers = {"write_config", "move_own_settings", "undo_write"}
    found = {
        file.name
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and {each.name for each in node.names} & writers
    }
    assert found == set()


async def base(it: Harness) -> str:
    return str((await it.ask("config.get"))["hash"])


ATTACKS: list[dict[str, Any]] = [
    {"agents": {"list": [{"id": "main", "workspace": "~/.ssh"}]}},
    {"agents": {"defaults": {"workspace": "/"}}},
    {"agents": {"defaults": {"memorySearch": {"extraPaths": ["~/.ssh"]}}}},
    {"agents": {"list": [{"id": "main", "name": "${SECRET_NAME}"}]}},
    {"ui": {"assistant": {"name": "${SECRET_NAME}"}}},
    {"models": {"providers": {"mock": {"baseUrl": "http://evil.example/v1"}}}},
    {"models": {"providers": {"x": {"baseUrl": "http://e", "apiKey": "${SECRET_NAME}"}}}},
    {"gateway": {"auth": {"mode": "none"}}},
    {"gateway": {"bind": "lan"}},
    {"auth": {"clients": {"x": {"tokenUrl": "http://evil.example"}}}},
    {"env": {"vars": {"HTTPS_PROXY": "http://evil.example"}}},
]


@pytest.mark.parametrize("method", ["config.set", "config.patch", "config.apply"])
async def test_no_config_method_bypasses_the_rule(method: str, tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        before = it.app.paths.config.read_bytes()
        tree = json.loads(before)
        for attack in ATTACKS:
            change = attack if method == "config.patch" else _merge(tree, attack)
            with pytest.raises(InvalidRequestError):
                await it.ask(method, raw=json.dumps(change), baseHash=await base(it))
            assert it.app.paths.config.read_bytes() == before
        assert not it.app.paths.own_config.exists()


def _merge(tree: Any, over: Any) -> Any:
    if not isinstance(tree, dict) or not isinstance(over, dict):
        return over
    return {**tree, **{key: _merge(tree.get(key), value) for key, value in over.items()}}


@pytest.mark.parametrize(
    "params",
    [
        {"name": "Ops", "workspace": "~/.ssh"},
        {"name": "Ops", "workspace": "/"},
        {"name": "Ops", "workspace": "~/state"},
        {"name": "Ops", "workspace": "~/bin"},
        {"name": "Ops", "workspace": "~/state/workspace-${SECRET_NAME}"},
        {"name": "${SECRET_NAME}", "workspace": "~/state/workspace-ops"},
    ],
)
async def test_agents_create_obeys_the_rule(params: dict[str, str], tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        before = it.app.paths.config.read_bytes()
        with pytest.raises(InvalidRequestError):
            await it.ask("agents.create", params)
        assert it.app.paths.config.read_bytes() == before
        files = (".ssh", "bin", "state/workspace-ops", "AGENTS.md")
        assert [name for name in files if (tmp_path / name).exists()] == []


@pytest.mark.parametrize(
    "params", [{"workspace": "~/.ssh"}, {"workspace": "/"}, {"name": "${SECRET_NAME}"}]
)
async def test_agents_update_obeys_the_rule(params: dict[str, str], tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        before = it.app.paths.config.read_bytes()
        with pytest.raises(HomarusError):
            await it.ask("agents.update", agentId="main", **params)
        assert it.app.paths.config.read_bytes() == before
        assert not (tmp_path / ".ssh").exists()
        assert "s3cret-value" not in json.dumps(await it.ask("agents.list", None, "read"))


async def test_config_saved_as_shown_is_accepted(tmp_path: Path) -> None:
    """The Control UI sends back all it was shown, defaults and placeholders included."""
    config = {
        "agents": {
            "defaults": {"model": "mock/mock-1", "workspace": "~/${SECRET_NAME}"},
            "list": [{"id": "main", "workspace": "~/mine", "sandbox": {"mode": "off"}}],
        },
        "gateway": {"auth": {"mode": "token", "token": "t0ken"}},
        "channels": {"telegram": {"enabled": False, "tokenFile": "~/t", "apiRoot": "http://x"}},
        "tools": {"exec": {"host": "gateway"}},
    }
    async with run(tmp_path, config=config) as it:
        for view in ("config", "parsed", "resolved"):
            seen = await it.ask("config.get")
            tree = seen[view]
            assert tree["gateway"]["auth"]["token"] == REDACTED
            tree["logging"] = {**tree.get("logging", {}), "level": "debug"}
            done = await it.ask("config.set", raw=json.dumps(tree), baseHash=seen["hash"])
            assert done["ok"] is True
        written = json.loads(it.app.paths.config.read_text("utf-8"))
        assert written["gateway"]["auth"]["token"] == "t0ken"
        assert written["agents"]["defaults"]["workspace"] == "~/${SECRET_NAME}"
        assert (
            not it.app.paths.own_config.exists()
            or "spend" not in it.app.paths.own_config.read_text()
        )


async def test_new_provider_with_its_key_is_accepted(tmp_path: Path) -> None:
    entry = {"baseUrl": "https://llm.example/v1", "apiKey": "sk-new", "api": "openai-completions"}
    async with run(tmp_path) as it:
        raw = json.dumps({"models": {"providers": {"mine": entry}}})
        done = await it.ask("config.patch", raw=raw, baseHash=await base(it))
        assert done["config"]["models"]["providers"]["mine"]["apiKey"] == REDACTED


async def test_provider_with_a_stored_profile_keeps_its_url(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        folder = it.app.paths.agent_dir("main")
        folder.mkdir(parents=True, exist_ok=True)
        profile = {"type": "api_key", "provider": "mine", "key": "sk-profile"}
        store = {"version": 1, "profiles": {"mine:default": profile}}
        (folder / "auth-profiles.json").write_text(json.dumps(store))
        entry = {"baseUrl": "https://evil.example/v1", "apiKey": "sk-new"}
        raw = json.dumps({"models": {"providers": {"mine": entry}}})
        with pytest.raises(InvalidRequestError, match="stored credential"):
            await it.ask("config.patch", raw=raw, baseHash=await base(it))
