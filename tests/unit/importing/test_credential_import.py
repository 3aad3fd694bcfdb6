"""Credentials that are here already: never replaced, and never printed."""

import json
from pathlib import Path

import pytest

from homarus.config.variables import read_env_file
from tests.unit.importing.source_homes import PROFILE, notes, outcomes, run_import, write

PROFILES = "agents/main/agent/auth-profiles.json"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "old/agents").mkdir(parents=True)
    return tmp_path / "old"


def state(home: Path) -> Path:
    return home / ".openclaw"


def test_profiles_are_added_and_none_is_replaced(home: Path, source: Path) -> None:
    theirs = {
        "openai:default": PROFILE,
        "openai:same": {**PROFILE, "key": "sk-same"},
        "groq:default": {**PROFILE, "provider": "groq"},
        "broken": {"type": "magic"},
    }
    order = {"openai": ["openai:default"], "groq": ["groq:default"]}
    stats = {"groq:default": {"errorCount": 3}}
    write(source / PROFILES, {"profiles": theirs, "order": order, "usageStats": stats})
    ours = {
        "openai:default": {**PROFILE, "key": "sk-ours"},
        "openai:same": {**PROFILE, "key": "sk-same"},
    }
    write(state(home) / PROFILES, {"version": 1, "profiles": ours})
    report = run_import(home, source)
    assert outcomes(report, "credentials") == {
        "source": 4, "before": 2, "imported": 1, "present": 1, "conflicts": 1, "skipped": 1,
        "after": 3,
    }  # fmt: skip
    stored = json.loads((state(home) / PROFILES).read_text())
    assert stored["profiles"] == {**ours, "groq:default": theirs["groq:default"]}
    assert stored["order"] == {"groq": ["groq:default"]}
    assert "usageStats" not in stored
    assert "profile openai:default of agent main: not imported" in notes(report)
    assert "sk-" not in json.dumps(report.as_json())


def test_legacy_credential_files_become_profiles(home: Path, source: Path) -> None:
    login = {"type": "oauth", "access": "a", "refresh": "r", "expires": 1}
    write(source / "credentials/oauth.json", {"anthropic": login})
    run_import(home, source)
    stored = json.loads((state(home) / PROFILES).read_text())
    assert stored["profiles"]["anthropic:default"]["refresh"] == "r"


def test_variables_are_added_to_the_end(home: Path, source: Path) -> None:
    value = "two \"words\" \\ and 'more'\tx"
    write(source / ".env", f"OURS=other\nSAME=1\nno line\nNEW='{value.replace(chr(39), '')}'\n")
    write(state(home) / ".env", "# ours\nOURS=mine\nSAME=1")
    report = run_import(home, source)
    text = (state(home) / ".env").read_text()
    assert text.startswith("# ours\nOURS=mine\nSAME=1\nNEW=")
    assert read_env_file(text)[0]["NEW"] == value.replace("'", "")
    counts = outcomes(report, "credentials")
    assert counts == {
        "source": 4, "before": 2, "imported": 1, "present": 1, "conflicts": 1, "skipped": 1,
        "after": 3,
    }  # fmt: skip
    assert ".env: OURS: not imported" in notes(report) and "mine" not in notes(report)
    assert (state(home) / ".env").stat().st_mode & 0o777 == 0o600


def test_approved_senders_are_united_without_everyone(home: Path, source: Path) -> None:
    name = "credentials/telegram-allowFrom.json"
    write(source / name, {"version": 1, "allowFrom": ["7", 8, "*"]})
    write(state(home) / name, {"version": 1, "allowFrom": ["7", "9"]})
    report = run_import(home, source)
    assert json.loads((state(home) / name).read_text())["allowFrom"] == ["7", "9", "8"]
    assert outcomes(report, "approvedSenders") == {
        "source": 3, "before": 2, "imported": 1, "present": 1, "skipped": 1, "after": 3,
    }  # fmt: skip


def test_login_of_another_account_is_not_mixed(home: Path, source: Path) -> None:
    folder = "credentials/whatsapp/default"
    write(source / folder / "creds.json", {"me": "theirs"})
    write(source / folder / "key-1.json", {"key": 1})
    write(source / "credentials/whatsapp/second/creds.json", {"me": "work"})
    write(state(home) / folder / "creds.json", {"me": "ours"})
    report = run_import(home, source)
    assert not (state(home) / folder / "key-1.json").exists()
    assert (state(home) / "credentials/whatsapp/second/creds.json").is_file()
    assert outcomes(report, "credentials") == {
        "source": 2, "before": 1, "imported": 1, "conflicts": 1, "after": 2,
    }  # fmt: skip
    assert "credentials/whatsapp/default: not imported: this login is different" in notes(report)


def test_login_that_was_copied_in_part_is_completed(home: Path, source: Path) -> None:
    folder = "credentials/whatsapp/default"
    for name in ("creds.json", "key-1.json"):
        write(source / folder / name, {"name": name})
    write(state(home) / folder / "creds.json", {"name": "creds.json"})
    run_import(home, source)
    assert (state(home) / folder / "key-1.json").is_file()


def test_credential_that_is_a_link_out_is_skipped(home: Path, source: Path, tmp_path: Path) -> None:
    (source / "credentials").mkdir()
    (source / "credentials/key").symlink_to(write(tmp_path / "id_rsa", "PRIVATE"))
    report = run_import(home, source)
    assert outcomes(report, "credentials") == {"source": 1, "skipped": 1}
    assert not (state(home) / "credentials/key").exists()


def test_variables_that_change_programs_are_skipped(home: Path, source: Path) -> None:
    text = "LD_PRELOAD=/x.so\nOPENCLAW_GATEWAY_TOKEN=t\nPATH=/x\nGITHUB_TOKEN=g\n"
    write(source / ".env", text)
    report = run_import(home, source)
    assert (state(home) / ".env").read_text() == 'GITHUB_TOKEN="g"\n'
    assert outcomes(report, "credentials")["skipped"] == 3
