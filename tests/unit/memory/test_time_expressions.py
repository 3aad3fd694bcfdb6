from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from homarus.memory.time_expressions import day_in, parse_time_expressions


def score(question: str, day: str, now: str | None = None) -> float:
    today = date.fromisoformat(now) if now else None
    return parse_time_expressions(question, [2022, 2023], today).score(date.fromisoformat(day))


def test_parse_time_date_in_any_order() -> None:
    for said in ("on 3 May 2023", "May 3rd, 2023", "the 3rd of May", "2023-05-03"):
        assert score(f"What happened {said}?", "2023-05-03") == 1.0


def test_date_score_decreases_after_day_and_is_zero_far_away() -> None:
    question = "Where was she on 3 May 2023?"
    assert 0 < score(question, "2023-05-08") < 1
    assert score(question, "2023-07-01") == 0


def test_parse_time_month_covers_all_its_days() -> None:
    assert score("What did he paint in October?", "2022-10-31") == 1.0
    assert score("What did he paint in October 2023?", "2022-10-31") == 0


def test_parse_time_may_is_month_only_in_date_context() -> None:
    assert not parse_time_expressions("What may she do next?", [2023]).spans
    assert parse_time_expressions("What did she do in May?", [2023]).spans


def test_parse_time_last_week_needs_today() -> None:
    assert score("What did I do last week?", "2023-05-01", now="2023-05-10") == 1.0
    assert not parse_time_expressions("What did I do last week?", [2023]).spans


def test_parse_time_invalid_date_is_ignored() -> None:
    assert parse_time_expressions("on 31 February 2023", [2023]).spans == ()
    assert day_in("memory/2023-02-31.md") is None
    assert day_in("memory/2023-02-28-travel.md") == "2023-02-28"


def test_parse_time_removes_expression_from_query() -> None:
    assert parse_time_expressions("What injury in August 2023?", []).rest.split() == [
        "What",
        "injury",
        "in",
        "?",
    ]


@given(st.text(max_size=80))
def test_parse_time_any_text_is_accepted(text: str) -> None:
    found = parse_time_expressions(text, [1, 2023, 9999], date(2023, 5, 1))
    assert len(found.rest) == len(text)
