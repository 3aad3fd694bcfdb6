"""IDENTITY.md: parsed in two forms, written without losing lines; avatars from the workspace."""

import base64
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent.prompt.identity_file import (
    MAX_AVATAR_BYTES,
    AgentIdentity,
    is_avatar_file,
    parse_identity,
    read_identity,
    read_picture,
    write_identity,
)
from homarus.agent.workspace import seed_workspace
from homarus.core.errors import UserError

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FRONT = """---
name: Logic
emoji: 🤖
creature: AI assistant
vibe: sharp, precise
theme: dark
avatar: ./avatar.png
---
# More
"""


def test_parse_identity_frontmatter_is_read() -> None:
    assert parse_identity(FRONT) == AgentIdentity(
        name="Logic",
        emoji="🤖",
        avatar="./avatar.png",
        creature="AI assistant",
        vibe="sharp, precise",
        theme="dark",
    )


def test_parse_identity_list_lines_are_read() -> None:
    text = "# IDENTITY.md\n- **Name:** Ada\n- Emoji: 🦞\n  * vibe: calm\nAvatar: https://x.example/a.png"
    assert parse_identity(text) == AgentIdentity(
        "Ada", "🦞", "https://x.example/a.png", vibe="calm"
    )


def test_parse_identity_unedited_template_is_empty(tmp_path: Path) -> None:
    seed_workspace(tmp_path)
    assert read_identity(tmp_path) == AgentIdentity()
    assert (
        parse_identity("- Name: (pick one)\n- Emoji: [your sign]\n- Avatar: <path>")
        == AgentIdentity()
    )
    assert read_identity(tmp_path / "nowhere") == AgentIdentity()


@given(st.text(max_size=500))
def test_parse_identity_any_text_is_accepted(text: str) -> None:
    found = parse_identity(text)
    assert len(found.name) <= 100 and len(found.emoji) <= 16


@pytest.mark.parametrize("text", ["- Name:\n- Other: kept\n", FRONT, "", "just words"])
def test_write_identity_keeps_other_lines(text: str, tmp_path: Path) -> None:
    (tmp_path / "IDENTITY.md").write_text(text)
    write_identity(tmp_path, name="Nyx\n- Emoji: x", emoji="🌙", avatar=None)
    written = (tmp_path / "IDENTITY.md").read_text()
    found = parse_identity(written)
    assert (found.name, found.emoji) == ("Nyx - Emoji: x", "🌙")
    kept = [line for line in text.splitlines() if "ame:" not in line and "moji:" not in line]
    assert [line for line in written.splitlines() if line in kept] == kept


@pytest.mark.parametrize("data", [b"caf\xe9\n", "Ada".encode("utf-16"), b"x" * 4_000_001])
def test_write_identity_undecodable_file_raises_user_error(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "IDENTITY.md").write_bytes(data)
    with pytest.raises(UserError, match=r"IDENTITY\.md"):
        write_identity(tmp_path, name="Nyx")
    assert (tmp_path / "IDENTITY.md").read_bytes() == data


@pytest.mark.parametrize(
    ("avatar", "inside"),
    [
        ("avatar.png", True),
        ("./pictures/me.jpeg", True),
        ("../secret.png", False),
        ("a/../../b.png", False),
        ("/etc/passwd.png", False),
        ("~/x.png", False),
        (".ssh/id.png", False),
        ("avatar.svg", False),
        ("https://x.example/a.png", False),
        ("🦞", False),
        ("a\nb.png", False),
    ],
)
def test_avatar_file_must_be_in_workspace(avatar: str, inside: bool) -> None:
    assert is_avatar_file(avatar) is inside


def test_avatar_type_is_sniffed_from_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(PNG)
    (tmp_path / "b.png").write_text("<svg onload=alert(1)>")
    (tmp_path / "c.png").write_bytes(PNG + b"x" * MAX_AVATAR_BYTES)
    (tmp_path / "d.webp").write_bytes(b"RIFF\0\0\0\0WEBPVP8 ")
    (tmp_path / "e.gif").symlink_to("/etc/passwd")
    os.link(tmp_path / "a.jpg", tmp_path / "f.png")
    (tmp_path / "f.png").unlink()
    kinds = {p: read_picture(tmp_path, p) for p in ("a.jpg", "b.png", "c.png", "d.webp", "e.gif")}
    assert {name: found.mime for name, found in kinds.items() if found} == {
        "a.jpg": "image/png",
        "d.webp": "image/webp",
    }
    assert read_picture(tmp_path, "missing.png") is None
