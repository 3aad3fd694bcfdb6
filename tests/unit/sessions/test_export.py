"""Export a session as HTML and Markdown."""

import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from homarus.core.message import Image, Message, Text, Thinking, ToolCall, ToolResult, user_message
from homarus.sessions.export import ExportHeader, render_export

texts = st.text(alphabet=st.sampled_from("ab<>&\"'`\n$[]()!# "), max_size=40)
HEAD = ExportHeader("A <title>", "agent:main:main", "id-1", 1_800_000_000_000)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags, self.text = set[str](), ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name == "href"]

    def handle_data(self, data: str) -> None:
        self.text += data


def talk(said: str, made: str) -> list[Message]:
    return [
        user_message(
            said, Image("QUJD", "image/png"), Image('"><script>', "image/svg+xml"), at_ms=1
        ),
        Message("assistant", (Thinking(made), Text(made), ToolCall("1", made, {"a": said})), 2),
        Message("tool", (ToolResult("1", made, (Text(said),), is_error=True),), 10**30),
    ]


@given(texts, texts)
def test_html_export_escapes_text(said: str, made: str) -> None:
    page = Tags()
    page.feed(render_export(HEAD, talk(said, made), "html"))
    page.close()
    assert page.tags <= {
        "html", "head", "meta", "title", "style", "body", "h1", "p", "article", "header", "b",
        "time", "pre", "details", "summary", "img",
    }  # fmt: skip
    assert said in page.text and made in page.text


def test_html_export_loads_nothing_and_shows_known_images() -> None:
    page = render_export(HEAD, talk("hi", "hello"), "html")
    assert "default-src 'none'" in page and 'src="data:image/png;base64,QUJD"' in page
    assert "svg" in page and "<script" not in page and "A &lt;title&gt;" in page


@given(texts, texts)
def test_markdown_export_fences_tool_output(said: str, made: str) -> None:
    page = render_export(
        HEAD, [Message("tool", (ToolResult("1", "t", (Text(made + said),)),), 1)], "md"
    )
    marks = re.findall(r"^(`{3,})$", page, re.MULTILINE)
    assert marks and marks[0] == marks[-1] and marks[0] not in made + said


def test_markdown_export_shows_sender_and_time() -> None:
    page = render_export(HEAD, talk("[Fri 2027-01-15 08:00 UTC] hi", "hello"), "md")
    assert "## You · 1970-01-01 00:00 UTC\n\nhi\n" in page
    assert "## Tool · at no time" in page and "[a picture: image/png]" in page
