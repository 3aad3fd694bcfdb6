"""Path strings: taken literally, or refused with a reason."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import ToolDeniedError, ToolError
from homarus.tools.pathname import MAX_DEPTH, check_name, split_path

ROOT, HOME = Path("/home/me/ws"), Path("/home/me")


def parts(path: str, home: Path = HOME) -> tuple[str, ...]:
    return split_path(path, (ROOT,), home)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".", ()),
        ("a", ("a",)),
        ("a//b/./c", ("a", "b", "c")),
        ("a/", ("a", "")),
        ("../a", ("..", "a")),
        ("/home/me/ws", ()),
        ("/home/me/ws/a", ("a",)),
        ("/home/me/ws/../x", ("..", "x")),
        ("~/ws/a", ("a",)),
        ("./~root/a", ("~root", "a")),
        ("$HOME/a", ("$HOME", "a")),
        ("..%2fa", ("..%2fa",)),
        ("एक\u200dशब्द", ("एक\u200dशब्द",)),
        ("👩\u200d🚀.txt", ("👩\u200d🚀.txt",)),
    ],
)
def test_split_path_returns_components(path: str, expected: tuple[str, ...]) -> None:
    assert parts(path) == expected


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "empty"),
        ("a\0b", "U+0000"),
        ("a\nb", "U+000A"),
        ("\u202eexe.txt", "U+202E"),
        ("a\u200bb", "U+200B"),
        ("\ud800", "U+D800"),
        ("..\\x", "use / in paths"),
        ("\\\\host\\share", "use / in paths"),
        ("C:/x", "use / in paths"),
        ("file:///etc/passwd", "a URL"),
        ("x" * 256, "longer than 255"),
        ("ä" * 128, "longer than 255"),
        ("x/" * 2500, "longer than 4000"),
        ("x/" * (MAX_DEPTH + 1), "folders deep"),
    ],
)
def test_split_path_invalid_text_is_refused(path: str, said: str) -> None:
    with pytest.raises(ToolError) as wrong:
        parts(path)
    assert said in str(wrong.value)
    assert len(str(wrong.value)) < 300
    str(wrong.value).encode()


@pytest.mark.parametrize("path", ["/", "/home/me/ws-evil/x", "/etc/passwd", "~", "~/x", "~root/x"])
def test_split_path_outside_root_is_denied(path: str) -> None:
    with pytest.raises(ToolDeniedError, match="outside the workspace"):
        parts(path)


@pytest.mark.parametrize(
    "name",
    [
        *(".git", ".GIT", ".Git", ".git.", ".git ", ".g\u200cit", ".\uff47it"),
        *("CON", "con.txt", "lpt1", "a:b", "trailing.", "trailing "),
    ],
)
def test_check_name_unwritable_names_are_refused(name: str) -> None:
    with pytest.raises(ToolError):
        check_name(name, writing=True)


@pytest.mark.parametrize("name", [".openclaw", ".OpenClaw", ".clawdbot", ".moltbot"])
def test_check_name_unreadable_names_are_refused(name: str) -> None:
    with pytest.raises(ToolDeniedError):
        check_name(name, writing=False)


@pytest.mark.parametrize("name", ["a:b", "aux.c", ".git", "..hidden", "-rf", "with space"])
def test_check_name_readable_names_are_accepted(name: str) -> None:
    check_name(name, writing=False)


@pytest.mark.parametrize("name", [".gitignore", ".github", "..hidden", "-rf", "con2", "console"])
def test_check_name_writable_names_are_accepted(name: str) -> None:
    check_name(name, writing=True)


@given(st.text())
def test_split_path_components_have_no_slash_or_dot(path: str) -> None:
    try:
        found = parts(path)
    except ToolError as exc:
        str(exc).encode()
        return
    assert all("/" not in part and part != "." and "\0" not in part for part in found)
    assert all(found[:-1])
