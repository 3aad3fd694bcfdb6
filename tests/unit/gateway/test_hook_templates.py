"""Placeholders of mappings: what they reach, and what they never do."""

import pytest

from homarus.core.errors import InvalidRequestError
from homarus.gateway.hooks.templates import (
    MAX_RENDERED_CHARS,
    HookValues,
    RenderedText,
    has_placeholder,
    render_message,
    render_template,
)

VALUES = HookValues(
    payload={
        "a": {"b": [{"c": "deep"}, 2]},
        "n": 3,
        "f": 1.5,
        "yes": True,
        "none": None,
        "text": "{{n}}",
        "query": "of the body",
    },
    headers={"X-Event": "push"},
    query={"q": "1"},
    path="build",
    at_ms=0,
)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{a.b[0].c}}", "deep"),
        ("{{ a.b[0].c }}!", "deep!"),
        ("{{payload.a.b[1]}}", "2"),
        ("{{n}} {{f}} {{yes}}", "3 1.5 true"),
        ("{{a}}", '{"b": [{"c": "deep"}, 2]}'),
        ("{{headers.x-event}} {{headers.X-Event}}", "push push"),
        ("{{query.q}} {{path}}", "1 build"),
        ("{{payload.query}}", "of the body"),
        ("{{now}}", "1970-01-01T00:00:00+00:00"),
        ("{{text}}", "{{n}}"),
        ("no {placeholder} {{}} {{ }}", "no {placeholder} {{}} {{ }}"),
    ],
)
def test_placeholder_is_filled_with_its_value(template: str, text: str) -> None:
    assert render_template(template, VALUES) == text


@pytest.mark.parametrize(
    "name",
    [
        "missing", "none", "a.b[9]", "a.b[0].c.d", "n.real", "text.upper", "a.__class__",
        "__class__.__mro__", "payload.__init__.__globals__", "a.b.0", "a.b[-1]", "a..b", "a.b[x]",
        "headers.authorization", "[0]", ".".join(["a"] * 40),
    ],
)  # fmt: skip
def test_placeholder_without_a_value_is_empty(name: str) -> None:
    assert render_template(f"<{{{{{name}}}}}>", VALUES) == "<>"


def test_template_that_grows_beyond_the_limit_is_refused() -> None:
    values = HookValues({"big": "x" * 60_000}, {}, {}, "", 0)
    assert len(render_template("{{big}}", values)) == 60_000
    with pytest.raises(InvalidRequestError, match=str(MAX_RENDERED_CHARS)):
        render_template("{{big}}{{big}}", values)
    with pytest.raises(InvalidRequestError, match=str(MAX_RENDERED_CHARS)):
        render_template("{{big}}" + "y" * 60_000, values)


def test_value_that_is_nested_too_deep_is_refused() -> None:
    nested: object = 1
    for _ in range(200):
        nested = [nested]
    values = HookValues({"deep": nested}, {}, {}, "", 0)
    with pytest.raises(InvalidRequestError, match="nested"):
        render_template("{{deep}}", values)


def test_text_before_the_first_placeholder_is_the_owners() -> None:
    found = render_message("Triage: {{a.b[0].c}} of {{path}}", VALUES)
    assert found == RenderedText("Triage: ", "deep of build")
    assert render_message("Just this", VALUES) == RenderedText("Just this", "")
    assert render_message("{{missing}}", VALUES).is_blank
    assert has_placeholder("x {{a}}") and not has_placeholder("x {a}")
