"""Every mapped vector is a test, and every implemented function is mapped."""

from pathlib import Path

import pytest

from tests.vectors.__main__ import main
from tests.vectors.cases import Case, get, judge, read_cases, same
from tests.vectors.table import NOT_APPLICABLE, TABLE

FOLDER = Path(__file__).parent.parent / "data" / "vectors"
CASES = [case for _, found in read_cases(FOLDER) for case in found or []]
MAPPED = [case for case in CASES if case.fn in TABLE and case.question not in NOT_APPLICABLE]

WHOLE_FILES = {
    "session_keys",
    "routing",
    "levels",
    "inline_directives",
    "frontmatter_and_fences",
    "text_chunking",
    "markdown_formatting",
    "block_chunker",
    "heartbeat_and_silent_tokens",
    "reply_text",
    "gateway",
    "sessions",
    "prompt_context",
    "misc",
    "memory",
    "exec_approvals",
    "tool_policy",
    "cron",
}


@pytest.mark.parametrize("case", MAPPED, ids=lambda case: case.name)
def test_vector_function_returns_expected_value(case: Case) -> None:
    assert not judge(case, TABLE[case.fn]), case.question


def test_vector_functions_are_all_mapped() -> None:
    wanted = {case.fn for case in CASES if case.file in WHOLE_FILES}
    assert not wanted - TABLE.keys()


def test_vector_table_has_no_unused_function() -> None:
    assert not TABLE.keys() - {case.fn for case in CASES}


def test_vector_exceptions_are_few_and_used() -> None:
    assert len(NOT_APPLICABLE) <= 15
    assert not NOT_APPLICABLE.keys() - {case.question for case in CASES}
    assert all(exempt.reason and exempt.row for exempt in NOT_APPLICABLE.values())


def test_vector_comparison_missing_is_null_true_is_not_one() -> None:
    assert same({"a": None, "b": (1,)}, {"b": [1]})
    assert not same({"a": 1}, {})
    assert not same(data := {"a": True}, {"a": 1}), data
    assert not same(0, False)
    assert not same([1], [1, 2])


def test_vector_optional_value_absent_or_null_is_the_default() -> None:
    assert get(None, "a", 1) == get({}, "a", 1) == get({"a": None}, "a", 1) == 1
    assert get({"a": 0}, "a", 1) == 0
    assert get({"a": ""}, "a", "x") == ""


def test_vector_report_counts_and_lists_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text(
        '{"cases": [{"fn": "normalize_agent_id", "input": ["X"], "expected": "x"},'
        ' {"fn": "normalize_agent_id", "input": ["X"], "expected": "y"},'
        ' {"fn": "hash_text", "input": [7], "expected": "7"},'
        ' {"fn": "parse_byte_size", "input": ["x"], "expected": {"$throws": "why"}},'
        ' {"fn": "from_tomorrow", "input": [], "expected": null}]}',
        encoding="utf-8",
    )
    (tmp_path / "b.json").write_text('{"shapes": {}}', encoding="utf-8")
    assert main([str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "normalize_agent_id 1/2\n" in printed
    assert "hash_text 0/1\nparse_byte_size 1/1\n" in printed
    assert "a: from_tomorrow (1)" in printed
    assert "without cases: b" in printed
    assert printed.count("FAILED") == 2


def test_vector_copies_in_the_repository_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(FOLDER)]) == 0
    assert "FAILED" not in capsys.readouterr().out


def test_vector_missing_folder_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no/such/folder"]) == 2
    assert "usage" in capsys.readouterr().err
