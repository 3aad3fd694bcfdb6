"""Parsing a reply: tags, media, the silent word, reasoning."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent.reply.reply_cleaner import clean_reply
from homarus.agent.reply.reply_parser import ParsedReply, split_media

TEXTS = st.text(st.sampled_from("[]reply_to:current <>/think`~\n MEDIA.x"), max_size=80)
PROSE = st.text(st.sampled_from("abc .\n*_`<>[]"), max_size=40).filter(
    lambda text: "```" not in text and "[[" not in text
)


def test_clean_reply_tag_is_removed_alone() -> None:
    code = "\n\n```py\nif x:\n    y  =  1\n```"
    assert clean_reply(f"[[reply_to_current]] Here:{code}") == ParsedReply(
        f"Here:{code}", reply_to_current=True
    )


def test_clean_reply_tags_in_code_stay_text() -> None:
    text = "`[[reply_to_current]]` and [[a wiki link]] and [[reply_to:]] and [[tts:hi]]\n\n"
    text += "```\n[[audio_as_voice]]\nMEDIA:./a.png\nNO_REPLY\n```"
    assert clean_reply(text) == ParsedReply(text)


def test_clean_reply_last_reply_to_wins() -> None:
    assert clean_reply("a [[reply_to:1]] b [[REPLY_TO: 2 ]] c") == ParsedReply(
        "a b c", reply_to="2"
    )


def test_clean_reply_media_tag_is_media() -> None:
    found = clean_reply("look [[media:./a.png]] [[media:nothing here]]\nMEDIA:b.ogg")
    assert found == ParsedReply("look [[media:nothing here]]", media=("b.ogg", "./a.png"))


@pytest.mark.parametrize(
    ("line", "media"),
    [
        ("MEDIA:./a.png ./b.png", ("./a.png", "./b.png")),
        ("  MEDIA: out/chart.png  ", ("out/chart.png",)),
        ("MEDIA:chart.png", ("chart.png",)),
        ("MEDIA:./my chart.png", ("./my chart.png",)),
        (r"MEDIA:C:\a\b.png", (r"C:\a\b.png",)),
        ('MEDIA:"file:///tmp/a b.png"', ("/tmp/a b.png",)),
        ("MEDIA:HTTPS://example.org/a", ("HTTPS://example.org/a",)),
    ],
)
def test_split_media_removes_media_lines(line: str, media: tuple[str, ...]) -> None:
    assert split_media(f"before\n\n{line}\n\nafter")[:2] == ("before\n\nafter", media)


@pytest.mark.parametrize(
    "line",
    [
        "MEDIA:",
        "MEDIA: nothing to see",
        "MEDIA:javascript:alert(1)",
        "MEDIA:data:image/png;base64,AAAA",
        "MEDIA:https://",
        "MEDIA:./a\x00.png",
        "MEDIA:./" + "a" * 5_000,
        "media:./a.png",
        '"MEDIA:./a.png"',
    ],
)
def test_split_media_other_lines_stay_text(line: str) -> None:
    assert split_media(f"a\n{line}\nb")[:2] == (f"a\n{line}\nb", ())


@pytest.mark.parametrize(
    ("line", "media", "caption"),
    [
        ("MEDIA:https://e.io/a.png look at this", ("https://e.io/a.png",), "look at this"),
        ("MEDIA:(./a.png), ./b.png", ("./a.png", "./b.png"), ""),
        ("MEDIA:./a.png and ./b.png", ("./a.png", "./b.png"), "and"),
        ("MEDIA:./a.png seen today", ("./a.png seen today",), ""),  # a path with spaces
        ("MEDIA: see ./a.png", ("see ./a.png",), ""),
        ('MEDIA:"https://e.io/a b.png"', ("https://e.io/a b.png",), ""),
    ],
)
def test_split_media_caption_stays_text(line: str, media: tuple[str, ...], caption: str) -> None:
    assert split_media(line) == (caption, media, False)
    assert clean_reply(line) == ParsedReply(caption, media=media)


def test_split_media_voice_tag_is_removed_outside_code() -> None:
    found = split_media("a [[ Audio_As_Voice ]]b\n[[audio_as_voice]]\nMEDIA:./v.ogg")
    assert found == ("a b", ("./v.ogg",), True)
    code = "```\n[[audio_as_voice]]\n```"
    assert split_media(code) == (code, (), False)
    assert split_media("[[audio_as_voice]] x" * 20_000).as_voice


@pytest.mark.parametrize(
    "text", ["NO_REPLY", " NO_REPLY\n", "**NO_REPLY**", "`NO_REPLY`.", "NO_REPLY!"]
)
def test_clean_reply_silent_word_alone_is_silent(text: str) -> None:
    assert clean_reply(text) == ParsedReply("", silent=True)


def test_clean_reply_silent_word_with_answer_keeps_answer() -> None:
    assert clean_reply("It is done.\n\nNO_REPLY") == ParsedReply("It is done.")
    assert clean_reply("Say NO_REPLY to be silent") == ParsedReply("Say NO_REPLY to be silent")
    assert clean_reply("MEDIA:./a.png\nNO_REPLY") == ParsedReply("", media=("./a.png",))
    assert clean_reply("NO_REPLY_LATER") == ParsedReply("NO_REPLY_LATER")


def test_clean_reply_empty_text_is_not_silent() -> None:
    assert clean_reply("") == ParsedReply("")
    assert clean_reply("[[reply_to_current]]") == ParsedReply("", reply_to_current=True)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n<think>x\ny\n</think>\nb", "a\n\nb"),
        ("<think>x", ""),
        ("a <thinking foo='1'>x</ THINKING > b", "a  b"),
        ("<think>x <think> y</think> z", "z"),
        ("<think>\n```\ncode\n</think>\nanswer\n```\n<think>\n```", "answer\n```\n<think>\n```"),
        ("<think>`</think>` a", "` a"),
        ("<think>x</think>```\n<think>\n```", "```\n<think>\n```"),
        ("<think>never closed <final>the answer</final>", "the answer"),
        ("<thinking>x</thinking>y", "y"),
        ("``a ` <think>`` b<think>c</think>", "``a ` <think>`` b"),
        ("` open <think>c</think> d", "` open  d"),
        ("a < think b, <thinker>, <b>bold</b>", "a < think b, <thinker>, <b>bold</b>"),
        ("~~~\n<think>\n~~~\n<think>x</think>y", "~~~\n<think>\n~~~\ny"),
    ],
)
def test_strip_reasoning_keeps_answer(text: str, shown: str) -> None:
    assert clean_reply(text).text == shown


@given(PROSE, st.text(st.sampled_from("xyz`~\n ([<"), max_size=40), PROSE)
def test_strip_reasoning_removes_all_reasoning(before: str, secret: str, after: str) -> None:
    lead = before.replace("`", "").replace("<", "")
    shown = clean_reply(f"{lead}<think>{secret}</think>{after.replace('<', '')}").text
    assert not set("xyz") & set(shown)
    assert "".join(shown.split()) == "".join((lead + after.replace("<", "")).split())


@given(PROSE)
def test_clean_reply_plain_text_is_unchanged(text: str) -> None:
    assert clean_reply(text) == ParsedReply(text.strip())


@given(TEXTS)
def test_clean_reply_any_text_adds_nothing(text: str) -> None:
    reply = clean_reply(text)
    rest = iter(text)
    assert all(ch in rest for ch in reply.text if not ch.isspace())


HOSTILE = [
    "[[" * 500_000,
    "[[reply_to:" + " " * 10**6,
    "[[reply_to_current]]" * 50_000,
    "[[media:a.b]]" * 70_000,
    "MEDIA:" + " " * 10**6,
    "MEDIA:./a.png\n" * 70_000,
    "MEDIA:" + "./a " * 250_000,
    "<think>" * 150_000,
    "<" * 10**6 + "<think>",
    "<" + " " * 10**6 + "<think>",
    "</think>x<think>\n" * 60_000,
    "<think" * 160_000 + "<final>",
    "".join("`" * n + " " for n in range(1_000)) + "<think>",
    "`" * 10**6 + "<think>",
    "\n" * 10**6 + "<think>",
    "NO_REPLY\n" * 100_000,
]


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:12]))
def test_clean_reply_megabyte_is_linear(text: str) -> None:
    started = time.process_time()
    clean_reply(text)
    assert time.process_time() - started < 10
