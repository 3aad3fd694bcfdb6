"""All recorded attacks fail, and the report counts them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import archives
from tests.attacks.__main__ import main
from tests.attacks.cases import read_cases, try_all
from tests.attacks.live import Caller, gateway
from tests.attacks.table import WORLDS
from tests.contract.sandboxes import bubblewrap_problem

DATA = Path(__file__).parent.parent / "data" / "attacks"
CATEGORIES = (
    "approvals",
    "ws_origin_host_auth",
    "frames_json",
    "session_key",
    "redaction_log",
    "identity_policy",
    "webhook_signature",
    "prompt_injection",
    "client_settings",
    "exec_environment",
    "exec_question",
    "group_chats",
    "gateway_takeover",
    "restrictive_settings",
    "ssrf",
    "regex_dos",
    "zip_slip",
)


@pytest.mark.parametrize("name", CATEGORIES)
def test_attack_case_has_expected_outcome(name: str) -> None:
    tried = try_all(read_cases(DATA / f"{name}.json")[name], WORLDS[name])
    assert len(tried) > 15
    assert [one for one in tried if one.problem or one.not_run] == []


def test_attack_sandbox_case_has_expected_outcome() -> None:
    tried = try_all(read_cases(DATA / "sandbox.json")["sandbox"], WORLDS["sandbox"])
    assert [one for one in tried if one.problem] == []
    # Escapes need a sandbox to be tried in; the other cases run on every machine.
    assert {one.not_run for one in tried} <= {"", bubblewrap_problem()}
    assert sum(not one.not_run for one in tried) > 40


def test_attack_archives_are_rejected_by_the_reader_itself() -> None:
    # ZS-053 is a valid archive: the check of its text refuses it.
    for case in sorted(archives.REJECTED - {"ZS-053"}):
        assert [archives.is_rejected(data) for data in archives.STRUCTURES[case]()] != [], case
        assert all(archives.is_rejected(data) for data in archives.STRUCTURES[case]()), case


@pytest.mark.slow
def test_attack_commands_of_recorded_cases_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec_allowlist"]) == 0
    assert "exec_allowlist 235/235" in capsys.readouterr().out


def test_attack_note_name_has_expected_outcome() -> None:
    cases = read_cases(DATA / "memory_get.json")["path_traversal"]
    tried = try_all(cases, WORLDS["path_traversal"])
    assert [one.id for one in tried] == ["PT-067", "PT-068", "PT-069", "PT-071", "PT-072"]
    assert [one for one in tried if one.problem or one.not_run] == []


def write(path: Path, **cases: object) -> str:
    path.write_text(json.dumps({"cases": cases}), encoding="utf-8")
    return str(path)


def test_attack_report_counts_and_lists_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prose = {"id": "R1", "text": "the token bucket", "expected": "unchanged"}
    wrong = {"id": "R2", "text": "password=hunter2", "expected": "unchanged"}
    race = {"id": "P1", "op": "rmtree", "path": "x", "expected": "deny"}
    broken = {"id": "S1", "a": None, "b": None, "relation": "must_differ"}
    file = write(
        tmp_path / "cases.json",
        redaction_log=[prose, wrong],
        path_traversal=[race],
        session_key=[broken],
        from_tomorrow=[{}],
    )
    assert main([file]) == 1
    printed = capsys.readouterr().out
    assert "redaction_log 1/2\n" in printed
    assert "path_traversal 0/0\n  P1 not run: no tool does rmtree" in printed
    assert "without an entry point yet: from_tomorrow (1)" in printed
    assert "FAILED R2: became" in printed
    assert "FAILED S1: crashed" in printed
    assert main([file, "path_traversal"]) == 0


def test_attack_missing_file_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no/such/file"]) == 2
    assert "usage" in capsys.readouterr().err


def test_close_reason_with_client_text_fits_its_frame() -> None:
    with gateway() as live:
        for key in ("😀" * 100, "é" * 200, "\r\nINFO forged" * 20):
            with Caller(live) as caller:
                odd: dict[str, Any] = {key: 1}
                assert str(caller.connect(**odd)["error"]["message"]).isprintable()
                assert caller.json()["close"] == 1008
