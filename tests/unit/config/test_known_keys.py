"""The list of all keys, and the light check by it."""

import pytest

from homarus.config.json5_document import Value
from homarus.config.known_keys import check_value, lookup, root_key, unknown_key


def complaints(path: tuple[str | int, ...], value: Value) -> list[str]:
    known = lookup(path)
    assert known
    return [problem.message for problem in check_value(value, known, path)]


def test_key_list_is_complete() -> None:
    count, level = 0, [root_key()]
    while level:
        node = level.pop()
        count += len(node.types)
        level += node.children.values()
    assert count == 2664 + 34 + 1  # the original's, ours, the root


@pytest.mark.parametrize(
    ("path", "known"),
    [
        (("agents", "list", 3, "identity", "name"), "agents.list[].identity.name"),
        (("models", "providers", "x.y", "apiKey"), "models.providers.<key>.apiKey"),
        (("env", "FOO"), "env.<key>"),
        (("env", "shellEnv"), "env.shellEnv"),
        (("tools", "allow", 4), "tools.allow"),
        (("agents", "defaults", "heartbeat", "enabled"), "agents.defaults.heartbeat.enabled"),
    ],
)
def test_lookup_known_path_returns_its_key(path: tuple[str | int, ...], known: str) -> None:
    found = lookup(path)
    assert found
    assert found.path == known


@pytest.mark.parametrize(
    "path",
    [("nothing",), ("agents", "list", 0, "x"), ("agents", "list", "x"), ("tools", "exec", "x")],
)
def test_lookup_unknown_path_returns_none(path: tuple[str | int, ...]) -> None:
    assert lookup(path) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("channels", "matrix"), {"whatever": [1, {"a": None}]}),
        (("plugins", "entries", "p", "config"), {"deep": {"er": True}}),
        (("skills", "entries", "s", "config"), {"x": 1}),
        (("hooks", "internal", "entries", "h"), {"enabled": True, "other": 1}),
        (("channels", "telegram", "allowFrom"), ["tg:1", 2]),
        (("channels", "telegram", "capabilities"), ["inline"]),
        (("channels", "telegram", "capabilities"), {"inlineButtons": "dm"}),
        (("cron", "sessionRetention"), False),
        (("cron", "sessionRetention"), "24h"),
        (("session", "maintenance", "pruneAfter"), 30),
        (("agents", "defaults", "subagents", "model"), "a/b"),
        (("agents", "defaults", "subagents", "model"), {"primary": "a/b"}),
        (("commands",), {"native": True, "text": False}),
    ],
)
def test_check_value_accepts_what_openclaw_accepts(
    path: tuple[str | int, ...], value: Value
) -> None:
    assert complaints(path, value) == []


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("browser", "enabled"), "yes", "expected true or false, found text"),
        (("browser", "enabled"), 1, "expected true or false, found 1"),
        (("gateway", "port"), "18789", "expected a whole number above 0, found text"),
        (("gateway", "port"), True, "expected a whole number above 0, found true"),
        (("gateway", "port"), 0, "expected a whole number above 0, found 0"),
        (("gateway", "port"), 1.5, "expected a whole number above 0, found 1.5"),
        (("browser", "remoteCdpTimeoutMs"), -1, "expected a whole number at least 0, found -1"),
        (("diagnostics", "otel", "sampleRate"), 1.1, "expected a number at least 0 and at most 1"),
        (("diagnostics", "flags"), ["a", 1], "expected a list of text, found a list"),
        (("diagnostics", "flags"), "a", "expected a list of text, found text"),
        (("update", "channel"), "nightly", 'expected "stable" or "beta" or "dev", found text'),
        (("cron", "sessionRetention"), True, "expected text or false, found true"),
        (("session", "agentToAgent", "maxPingPongTurns"), 6, "at least 0 and at most 5, found 6"),
        (("browser",), [], "expected an object, found a list"),
        (("bindings",), {}, "expected a list, found an object"),
        (("bindings",), [{"agentId": 5}], "expected text, found 5"),
        (("ui", "seamColor"), None, "expected text, found null"),
    ],
)
def test_check_value_wrong_type_or_bound_is_a_problem(
    path: tuple[str | int, ...], value: Value, says: str
) -> None:
    told = complaints(path, value)
    assert len(told) == 1
    assert says in told[0]


def test_check_value_unknown_key_offers_closest() -> None:
    known = lookup(("channels", "telegram"))
    assert known
    problems = list(check_value({"botTokn": "x"}, known, ("channels", "telegram")))
    assert [(p.path, p.fix) for p in problems] == [
        (("channels", "telegram", "botTokn"), "did you mean botToken?")
    ]


def test_unknown_key_of_other_section_names_its_path() -> None:
    assert "agents.defaults.workspace" in unknown_key(("workspace",)).fix
    assert unknown_key(("qqqqqqqq",)).fix == ""


def test_lookup_key_with_dots_is_not_a_path() -> None:
    section = lookup(("channels",))
    assert section is not None
    for key in ("telegram.botToken", "telegram", "telegram: object", "", "teleg"):
        found = list(check_value({"telegram": {key: 1}}, section, ("channels",)))
        assert [one.message for one in found] == ["unknown key"], key


def test_check_value_problem_does_not_contain_the_value() -> None:
    told = complaints(("gateway", "auth"), "hunter2") + complaints(("gateway", "port"), "hunter2")
    assert told
    assert "hunter2" not in " ".join(told)
