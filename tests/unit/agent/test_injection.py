"""Which workspace files a prompt has, and how much of each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent.prompt.injection import (
    ORDER,
    SessionKind,
    WorkspaceFile,
    file_names_for,
    inject,
    is_private,
    session_kind,
    texts_of,
    truncate_file,
    with_texts,
)

EVERYTHING = ["AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md", "HEARTBEAT.md",
              "BOOTSTRAP.md", "MEMORY.md", "memory.md"]  # fmt: skip


def file(name: str, text: str) -> WorkspaceFile:
    return WorkspaceFile(name, f"/w/{name}", text)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("agent:main:main", "main"),
        ("agent:main:telegram:direct:111", "main"),
        ("agent:main:direct:ann", "main"),
        ("agent:main:telegram:direct:heartbeat", "main"),
        ("agent:main:telegram:direct:boot", "main"),
        ("agent:main:openai-user:ann", "main"),
        ("agent:main:telegram:group:-100", "group"),
        ("agent:main:slack:channel:c1:thread:17.1", "group"),
        ("agent:main:subagent:6f9d", "subagent"),
        ("agent:main:cron:backup", "cron"),
        ("agent:main:cron:backup:run:1", "cron"),
        ("agent:main:hook:gmail", "hook"),
        ("hook:gmail", "hook"),
        ("agent:main:heartbeat", "heartbeat"),
        ("agent:main:main:heartbeat", "heartbeat"),
        ("agent:main:boot", "boot"),
        ("global", "group"),
        ("agent:ops:global", "group"),
        ("unknown", "group"),
        ("", "group"),
    ],
)
def test_session_kind_by_key(key: str, kind: SessionKind) -> None:
    assert session_kind(key) == kind


def test_file_names_by_session_kind() -> None:
    assert list(ORDER) == EVERYTHING
    assert list(file_names_for("main")) == EVERYTHING
    for kind in ("subagent", "cron", "hook"):
        assert file_names_for(kind) == ("AGENTS.md", "TOOLS.md")
    assert list(file_names_for("group")) == EVERYTHING[:5]
    assert "BOOTSTRAP.md" not in file_names_for("heartbeat") and "HEARTBEAT.md" in file_names_for(
        "heartbeat"
    )


@given(st.sampled_from(["main", "group", "subagent", "cron", "hook", "heartbeat", "boot"]))
def test_file_names_memory_only_for_private_kinds(kind: SessionKind) -> None:
    assert ("MEMORY.md" in file_names_for(kind)) == is_private(kind)
    assert ("memory.md" in file_names_for(kind)) == is_private(kind)


def test_inject_missing_file_is_named_and_blank_one_omitted() -> None:
    files = [
        file("AGENTS.md", "hi\n"),
        WorkspaceFile("SOUL.md", "/w/SOUL.md", missing=True),
        file("USER.md", " \n\t\n"),
        file("HEARTBEAT.md", "# HEARTBEAT.md\n\n- [ ]\n"),
    ]
    shown = inject(files, 20_000, 150_000)
    assert [(one.name, one.text) for one in shown] == [
        ("AGENTS.md", "hi"),
        ("SOUL.md", "[MISSING] Expected at: /w/SOUL.md"),
    ]
    assert shown[1].missing and shown[1].raw_chars == 0


def test_with_texts_changes_removes_and_adds_files() -> None:
    files = [
        file("AGENTS.md", "rules"),
        file("SOUL.md", "kind"),
        file("USER.md", "Ann"),
        WorkspaceFile("TOOLS.md", "/w/TOOLS.md", missing=True),
        WorkspaceFile("IDENTITY.md", "/w/IDENTITY.md", missing=True),
    ]
    told = texts_of(files)
    assert told == {"AGENTS.md": "rules", "SOUL.md": "kind", "USER.md": "Ann"}
    del told["USER.md"]
    left = with_texts(files, {**told, "SOUL.md": "a pirate", "TOOLS.md": "t", "EXTRA.md": "more"})
    shown = inject(left, 20_000, 150_000)
    assert [(one.name, one.text) for one in shown] == [
        ("AGENTS.md", "rules"),
        ("SOUL.md", "a pirate"),
        ("TOOLS.md", "t"),
        ("IDENTITY.md", "[MISSING] Expected at: /w/IDENTITY.md"),
        ("EXTRA.md", "more"),
    ]
    assert with_texts(files, texts_of(files)) == tuple(files)


def test_inject_long_file_keeps_head_and_tail() -> None:
    text = "".join(f"{n:05}" for n in range(10_000))
    (shown,) = inject([file("AGENTS.md", text)], 20_000, 150_000)
    head, marker, tail = shown.text.partition("\n[… 32000 characters of AGENTS.md left out")
    assert marker and head == text[:14_000] and tail.endswith(text[-4_000:])
    assert shown.truncated and shown.raw_chars == 50_000 and len(shown.text) <= 20_000


def test_inject_files_share_total_limit() -> None:
    files = [file("A.md", "y" * 90), file("B.md", "z" * 90), file("C.md", "q" * 90)]
    shown = inject(files, 100, 150)
    assert [one.text for one in shown] == ["y" * 90]  # fewer than 64 were left
    assert [one.name for one in inject(files, 100, 170)] == ["A.md", "B.md"]
    assert inject(files, 100, 0) == ()


@given(st.text(max_size=400), st.integers(0, 300), st.integers(0, 500))
def test_truncate_file_never_exceeds_max_chars(text: str, most: int, more: int) -> None:
    remaining = truncate_file(text, most, "A.md", full_chars=len(text) + more)
    assert len(remaining) <= most or remaining == text
    if len(text) + more <= most:
        assert remaining == text


@given(
    st.lists(st.text(max_size=300), max_size=9),
    st.integers(0, 300),
    st.integers(0, 900),
)
def test_inject_never_exceeds_total_chars(texts: list[str], most: int, total: int) -> None:
    files = [file(f"{n}.md", text) for n, text in enumerate(texts)]
    shown = inject(files, most, total)
    assert sum(len(one.text) for one in shown) <= total
    assert all(len(one.text) <= most for one in shown)
    assert [one.name for one in shown] == sorted(one.name for one in shown)
