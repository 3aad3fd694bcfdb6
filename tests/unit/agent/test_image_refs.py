"""Images named by path: found in the text, read from the workspace only."""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.agent.context.image_refs import (
    MAX_PATHS,
    MAX_RESTORED,
    attach_named_images,
    image_paths,
    load_named_images,
    name_of,
    workspace_reader,
)
from homarus.core.message import Image, Message, Text, user_message
from homarus.policy.workspace_access import FULL_ACCESS
from tests.unit.agent.builders import summary

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("look at shot.png please", ("shot.png",)),
        ("in ./a/b.JPG, and ~/c.jpeg!", ("./a/b.JPG", "~/c.jpeg")),
        ("'my shot.png' \"x y/z.webp\" `q.gif`", ("my shot.png", "x y/z.webp", "q.gif")),
        ("[media attached: /w/in.jpg (image/jpeg)]", ("/w/in.jpg",)),
        ("file:///w/a%20b.png", ("/w/a b.png",)),
        ("path=foo/bar.png;", ("foo/bar.png",)),
        ("a.png a.png", ("a.png",)),
        ("https://example.org/a.png", ()),
        ("a.png.exe x.png/y report.pdf", ()),
        ("", ()),
    ],
)
def test_image_paths_are_found_in_text(text: str, paths: tuple[str, ...]) -> None:
    assert image_paths(text) == paths


@given(st.text(alphabet="a.png'\"` /\n", max_size=300))
def test_image_paths_any_text_is_accepted(text: str) -> None:
    assert len(image_paths(text)) <= MAX_PATHS


def test_attach_named_images_adds_images_of_workspace(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    asked = attach_named_images(
        user_message("what is in a.png, b.png and a.png?"), workspace_reader(tmp_path, FULL_ACCESS)
    )
    assert asked.parts[1:] == (Image(base64.b64encode(PNG).decode(), "image/png"),)


def test_attach_named_images_ignores_other_files(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "secret.png").write_bytes(PNG)
    (home / "text.png").write_text("not a picture")
    (home / "link.png").symlink_to(tmp_path / "secret.png")
    (home / "huge.png").write_bytes(PNG + b"\0" * 5_000_000)
    (home / "folder.png").mkdir()
    read = workspace_reader(home, FULL_ACCESS)
    named = f"text.png link.png huge.png folder.png ../secret.png {tmp_path}/secret.png"
    question = user_message(named)
    assert attach_named_images(question, read) is question


def test_attach_named_images_keeps_message_with_images(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    question = user_message("like a.png", Image("aGk=", "image/png"))
    assert attach_named_images(question, workspace_reader(tmp_path, FULL_ACCESS)) is question


def test_load_named_images_prefers_newest_messages() -> None:
    history = [user_message(f"see {n}.png", at_ms=n) for n in range(MAX_RESTORED + 4)]
    history.append(Message("assistant", (Text("see 1.png"),)))
    named = load_named_images(history, lambda path: Image(path, "image/png"))
    assert len(named) == MAX_RESTORED
    assert name_of(history[0]) not in named and name_of(history[5]) in named


def test_load_named_images_ignores_summary() -> None:
    message = summary("it was in a.png")
    assert not load_named_images([message], lambda path: Image(path, "image/png"))
