"""`auth-profiles.json`: any content is read, updates are atomic and lose nothing."""

import json
import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import ConflictError, StoreError
from homarus.providers.profile_file import FILE, ProfileFile
from homarus.providers.profiles import (
    Raw,
    forget_usage,
    parse,
    put_last_good,
    put_order,
    put_profile,
    put_usage,
)
from homarus.providers.rotation import CredentialUsage

ORIGINAL: Raw = {
    "version": 1,
    "profiles": {
        "openai:default": {
            "type": "api_key",
            "provider": "openai",
            "key": "sk-1",
            "metadata": {"region": "eu"},
        },
        "anthropic:manual": {
            "type": "token",
            "provider": "anthropic",
            "token": "tok-1",
            "expires": 1_900_000_000_000,
        },
        "openai-codex:me@example.com": {
            "type": "oauth",
            "provider": "openai-codex",
            "access": "acc-1",
            "refresh": "ref-1",
            "expires": 1_800_000_000_000,
            "clientId": "app",
            "accountId": "a-1",
            "email": "me@example.com",
        },
    },
    "order": {"openai": ["openai:default"], "Z.AI": ["zai:default"]},
    "lastGood": {"openai": "openai:default"},
    "usageStats": {
        "openai:default": {
            "lastUsed": 5,
            "cooldownUntil": 6,
            "disabledUntil": 7,
            "disabledReason": "billing",
            "errorCount": 8,
            "failureCounts": {"billing": 9, "format": 1},
            "lastFailureAt": 10,
            "later": True,
        }
    },
    "newer": [1, 2],
}


@pytest.fixture
def file(tmp_path: Path) -> ProfileFile:
    return ProfileFile(tmp_path / "agents" / "main" / "agent" / FILE)


def put(file: ProfileFile, content: Any) -> None:
    file.path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    file.path.write_text(text)
    file.path.chmod(0o600)


def add(id_: str, **fields: Any) -> Any:
    entry = {"type": "api_key", "provider": "openai", "key": "sk-new", **fields}
    return lambda raw: put_profile(raw, id_, entry)


def stored(file: ProfileFile) -> Any:
    return json.loads(file.path.read_bytes())


def test_profile_file_reads_every_openclaw_field() -> None:
    read = parse(ORIGINAL)
    assert read.warnings == ()
    key, token, login = read.profiles.values()
    assert (key.kind, key.provider, key.secret) == ("api_key", "openai", "sk-1")
    assert (token.kind, token.secret, token.expires_ms) == ("token", "tok-1", 1_900_000_000_000)
    assert (login.secret, login.refresh, login.client_id) == ("acc-1", "ref-1", "app")
    assert login.email == "me@example.com"
    assert read.order == {"openai": ("openai:default",), "zai": ("zai:default",)}
    assert read.last_good == {"openai": "openai:default"}
    counts = {"billing": 9, "format": 1}
    assert read.usage == {
        ("openai:default", ""): CredentialUsage(5, 6, 7, "billing", 8, counts, 10)
    }


def test_profile_repr_contains_no_secret() -> None:
    shown = repr(parse(ORIGINAL))
    for secret in ("sk-1", "tok-1", "acc-1", "ref-1"):
        assert secret not in shown


def test_profile_update_keeps_unknown_fields(file: ProfileFile) -> None:
    put(file, ORIGINAL)
    usage = CredentialUsage(last_used_ms=50)

    def change(raw: Raw) -> None:
        put_usage(raw, ("openai:default", ""), usage)
        put_last_good(raw, "anthropic", "anthropic:manual")

    file.update(change)
    now = stored(file)
    stats = now["usageStats"]["openai:default"]
    assert stats == {"lastUsed": 50, "errorCount": 0, "later": True}
    assert now["lastGood"] == {"openai": "openai:default", "anthropic": "anthropic:manual"}
    for key in ("profiles", "order", "newer"):
        assert now[key] == ORIGINAL[key]


def test_profile_keeps_other_fields_until_type_changes() -> None:
    raw = json.loads(json.dumps(ORIGINAL))
    put_profile(raw, "openai:default", {"key": "sk-2"})
    assert raw["profiles"]["openai:default"]["metadata"] == {"region": "eu"}
    put_profile(raw, "openai:default", {"type": "token", "provider": "openai", "token": "t"})
    entry = {"type": "token", "provider": "openai", "token": "t"}
    assert raw["profiles"]["openai:default"] == entry


def test_model_usage_stored_under_credential_and_removed_when_empty() -> None:
    raw = json.loads(json.dumps(ORIGINAL))
    put_usage(raw, ("openai:default", "gpt"), CredentialUsage(error_count=1, cooldown_until_ms=99))
    read = parse(raw).usage
    assert read["openai:default", "gpt"].cooldown_until_ms == 99
    assert read["openai:default", ""].error_count == 8
    put_usage(raw, ("openai:default", "gpt"), CredentialUsage())
    assert ("openai:default", "gpt") not in parse(raw).usage


def test_usage_of_removed_profile_is_not_written() -> None:
    raw: Raw = {"version": 1, "profiles": {}}
    put_usage(raw, ("gone", ""), CredentialUsage(error_count=1))
    put_last_good(raw, "openai", "gone")
    assert raw == {"version": 1, "profiles": {}}


def test_order_set_and_cleared_under_every_spelling() -> None:
    raw = json.loads(json.dumps(ORIGINAL))
    put_order(raw, "zai", ["b", "a"])
    assert raw["order"] == {"openai": ["openai:default"], "zai": ["b", "a"]}
    put_order(raw, "zai", None)
    put_order(raw, "openai", None)
    assert "order" not in raw


def test_new_secret_resets_usage() -> None:
    raw = json.loads(json.dumps(ORIGINAL))
    forget_usage(raw, "openai:default")
    forget_usage(raw, "never there")
    assert raw["usageStats"] == {}


WRONG: list[tuple[Any, str]] = [
    ("text", "not an object"),
    ({"type": "api_key"}, "no provider"),
    ({"type": "api_key", "provider": 5}, "no provider"),
    ({"type": "magic", "provider": "x"}, "type"),
    ({"provider": "x"}, "type"),
    ({"type": ["api_key"], "provider": "x"}, "type"),
]


@pytest.mark.parametrize(("entry", "told"), WRONG)
def test_malformed_profile_is_reported_and_kept(file: ProfileFile, entry: Any, told: str) -> None:
    put(file, {"version": 1, "profiles": {"bad": entry, "good": {**add_fields()}}})
    read = file.read()
    assert list(read.profiles) == ["good"]
    assert len(read.warnings) == 1
    assert "'bad'" in read.warnings[0] and told in read.warnings[0]
    file.update(add("third"))
    assert stored(file)["profiles"]["bad"] == entry


def add_fields() -> dict[str, str]:
    return {"type": "api_key", "provider": "openai", "key": "sk-2"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
keys = st.sampled_from(["version", "profiles", "order", "lastGood", "usageStats"])
inner_keys = st.sampled_from(["type", "provider", "key", "expires", "models", "errorCount", "a"])
hostile = st.dictionaries(
    keys,
    json_values
    | st.dictionaries(st.text(max_size=3), json_values | st.dictionaries(inner_keys, json_values)),
)


@given(hostile)
def test_any_file_content_never_fails_reading_or_recording(raw: Raw) -> None:
    parse(raw)
    put_usage(raw, ("a", ""), CredentialUsage(error_count=1))
    put_usage(raw, ("a", "m"), CredentialUsage(error_count=1))
    put_last_good(raw, "x", "a")
    put_order(raw, "x", ["a"])
    put_order(raw, "x", None)
    put_profile(raw, "a", {"type": "api_key", "provider": "x", "key": "k"})
    assert parse(raw).profiles["a"].secret == "k"


BROKEN = ["", "{", '{"a":1}}', "[]", "null", '"x"', "\x00", "[" * 100_000, '{"a": ' + "9" * 5000]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_damaged_file_is_reported_and_archived_only_on_write(file: ProfileFile, text: str) -> None:
    put(file, text)
    assert file.read().profiles == {}
    assert "is not a JSON object" in file.read().warnings[0]
    file.update(lambda raw: put_usage(raw, ("x", ""), CredentialUsage(error_count=1)))
    assert file.path.read_text() == text, "a mark writes nothing in its place"
    file.update(add("openai:default"))
    assert list(file.read().profiles) == ["openai:default"]
    aside = file.path.with_name(f"{FILE}.corrupt")
    assert aside.read_text() == text
    put(file, text)
    file.update(add("openai:default"))
    assert file.path.with_name(f"{FILE}.corrupt.2").read_text() == text


def test_profiles_that_are_no_object_count_as_damage(file: ProfileFile) -> None:
    put(file, {"version": 1, "profiles": ["x"], "kept": 1})
    assert "profiles is not an object" in file.read().warnings[0]
    file.update(add("a"))
    assert stored(file)["kept"] == 1
    assert json.loads(file.path.with_name(f"{FILE}.corrupt").read_text())["profiles"] == ["x"]


def test_undecodable_bytes_count_as_damage(file: ProfileFile) -> None:
    put(file, "")
    file.path.write_bytes(b'{"a": "\xff"}')
    assert "is not a JSON object" in file.read().warnings[0]


def test_lone_surrogates_round_trip(file: ProfileFile) -> None:
    put(file, '{"version": 1, "profiles": {}, "odd": "\\ud800"}')
    file.update(add("a"))
    assert b"\\ud800" in file.path.read_bytes()


def test_too_deep_nesting_leaves_file_unchanged(
    file: ProfileFile,
) -> None:
    def nest(raw: Raw) -> None:
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        raw["deep"] = deep

    put(file, ORIGINAL)
    with pytest.raises(StoreError, match="nested too deeply"):
        file.update(nest)
    assert stored(file) == ORIGINAL


def test_newer_version_file_is_read_and_not_written(file: ProfileFile) -> None:
    put(file, {**ORIGINAL, "version": 2})
    assert len(file.read().profiles) == 3
    assert "version" in file.read().warnings[0]
    with pytest.raises(StoreError, match="version 2"):
        file.update(add("a"))


def test_file_without_version_gets_one(file: ProfileFile) -> None:
    put(file, {"profiles": {}})
    assert file.read().warnings == ()
    file.update(add("a"))
    assert stored(file)["version"] == 1


def test_written_file_is_private(file: ProfileFile) -> None:
    old = os.umask(0)
    try:
        file.update(add("a"))
        for folder in (file.path.parent, file.path.parent.parent):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for each in file.path.parent.iterdir():
            assert stat.S_IMODE(each.stat().st_mode) == 0o600
    finally:
        os.umask(old)


def test_readable_by_others_is_reported_until_rewritten(file: ProfileFile) -> None:
    put(file, ORIGINAL)
    file.path.chmod(0o644)
    assert "chmod 600" in file.read().warnings[0]
    assert len(file.read().profiles) == 3
    file.update(add("a"))
    assert file.read().warnings == ()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_linked_file_is_read_and_stays_linked(file: ProfileFile, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "keys.json"
    target.parent.mkdir()
    target.write_text(json.dumps(ORIGINAL))
    target.chmod(0o600)
    file.path.parent.mkdir(parents=True)
    file.path.symlink_to(target)
    assert len(file.read().profiles) == 3
    file.update(add("a"))
    assert file.path.is_symlink()
    assert "a" in json.loads(target.read_text())["profiles"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize("what", ["pipe", "device", "folder", "loop"])
def test_special_file_is_neither_read_nor_replaced(file: ProfileFile, what: str) -> None:
    file.path.parent.mkdir(parents=True)
    match what:
        case "pipe":
            os.mkfifo(file.path)
        case "device":
            file.path.symlink_to("/dev/zero")
        case "folder":
            file.path.mkdir()
        case _:
            file.path.symlink_to(file.path)
    assert file.read().profiles == {}
    assert "is not read" in file.read().warnings[0]
    with pytest.raises(StoreError, match="was not changed"):
        file.update(add("a"))


def test_file_of_other_user_is_ignored(file: ProfileFile, monkeypatch: pytest.MonkeyPatch) -> None:
    put(file, ORIGINAL)
    if os.geteuid() == 0:
        os.chown(file.path, 4243, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert file.read().profiles == {}
    assert "another user" in file.read().warnings[0]


def test_oversized_file_is_not_read(file: ProfileFile) -> None:
    put(file, "")
    with file.path.open("r+b") as opened:
        opened.truncate(5 << 20)
    assert "too large" in file.read().warnings[0]


def test_file_is_parsed_again_only_after_change(file: ProfileFile) -> None:
    assert file.read() is file.read()
    put(file, ORIGINAL)
    first = file.read()
    assert len(first.profiles) == 3
    assert file.read() is first
    file.update(lambda raw: None)
    assert file.read() is first, "nothing altered, nothing written"
    file.update(add("a"))
    assert len(file.read().profiles) == 4


def test_legacy_files_read_until_new_file_exists(tmp_path: Path) -> None:
    folder, shared = tmp_path / "agent", tmp_path / "credentials"
    folder.mkdir()
    shared.mkdir()
    old = {"openai": {"type": "api_key", "key": "sk-1"}, "z.ai": {"key": "sk-z"}, "junk": 5}
    (folder / "auth.json").write_text(json.dumps(old))
    login = {"access": "a", "refresh": "r", "expires": 9, "accountId": "x"}
    (shared / "oauth.json").write_text(json.dumps({"anthropic": login, "openai": login}))
    for each in (folder / "auth.json", shared / "oauth.json"):
        each.chmod(0o600)
    file = ProfileFile(folder / FILE, [folder / "auth.json", shared / "oauth.json"])
    assert {id_: p.kind for id_, p in file.read().profiles.items()} == {
        "openai:default": "api_key",
        "zai:default": "api_key",
        "anthropic:default": "oauth",
    }
    file.update(lambda raw: put_usage(raw, ("openai:default", ""), CredentialUsage(last_used_ms=3)))
    assert stored(file)["profiles"]["anthropic:default"] == {
        **login,
        "type": "oauth",
        "provider": "anthropic",
    }
    (folder / "auth.json").unlink()
    assert len(file.read().profiles) == 3
    file.update(lambda raw: raw["profiles"].pop("anthropic:default"))
    assert len(file.read().profiles) == 2, "what is taken away does not come back"


def test_failed_write_leaves_old_file(file: ProfileFile, monkeypatch: pytest.MonkeyPatch) -> None:
    put(file, ORIGINAL)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        file.update(add("a"))
    assert stored(file) == ORIGINAL
    assert sorted(p.name for p in file.path.parent.iterdir()) == [".auth-profiles.lock", FILE]


def test_leftover_temporary_file_is_no_obstacle(file: ProfileFile) -> None:
    put(file, ORIGINAL)
    (file.path.parent / f".{FILE}.tmp").write_text("half")
    file.update(add("a"))
    assert not (file.path.parent / f".{FILE}.tmp").exists()


def test_lock_timeout_is_reported(file: ProfileFile) -> None:
    with (
        file.locked(),
        pytest.raises(ConflictError, match="locked"),
        ProfileFile(file.path).locked(wait_s=0.01),
    ):
        pass
    with file.locked(), file.locked("something else", wait_s=0.01):
        pass


def _add_many(path: Path, name: str) -> None:
    file = ProfileFile(path)
    for at in range(25):
        file.update(add(f"{name}:{at}"))


def test_concurrent_processes_lose_no_profile(file: ProfileFile) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_add_many, args=(file.path, n)) for n in ("a", "b", "c")]
    for each in processes:
        each.start()
    for each in processes:
        each.join(60)
    assert [each.exitcode for each in processes] == [0, 0, 0]
    assert len(file.read().profiles) == 75
