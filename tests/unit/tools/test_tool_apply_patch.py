"""`apply_patch`: the format, matching, all or nothing, and hostile patches."""

import difflib
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.schema import Config
from homarus.core.errors import ToolError
from homarus.policy.decision import is_tool_offered
from homarus.policy.tool_call import CallerFacts
from homarus.policy.tool_policy import make_policy_rules
from homarus.policy.workspace_access import session_access
from homarus.tools.builtin import apply_patch as module
from homarus.tools.builtin.apply_patch import make_apply_patch
from homarus.tools.patch_apply import apply_hunks
from homarus.tools.patch_format import parse_patch
from homarus.tools.rooted_fs import RootedFs
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import ToolContext, ToolOutput

PATCH = make_apply_patch(workspace_only=True)


def patch(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


async def use(root: Path, *lines: str, key: str = "agent:main:main") -> ToolOutput:
    ctx = ToolContext(key, "main", root, run_access=session_access(key))
    result = await PATCH(ctx, {"input": patch(*lines)})
    assert isinstance(result, ToolOutput)
    return result


def tree(root: Path) -> dict[str, bytes]:
    """Return every file with its content; a link with its target."""
    return {
        str(path.relative_to(root)): (
            os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        )
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def hunk_patch(before: str, after: str, context: int) -> str:
    """Return the patch that turns one text into another, as a model would write it."""
    diff = difflib.unified_diff(before.split("\n"), after.split("\n"), n=context, lineterm="")
    lines = ["@@" if line.startswith("@@") else line for line in list(diff)[2:]]
    return patch("*** Update File: a", *lines)


async def test_patch_adds_updates_moves_and_deletes(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\none\ntwo\nthree\n")
    (tmp_path / "b.md").write_text("b\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\necho 1\n")
    (tmp_path / "run.sh").chmod(0o755)
    result = await use(
        tmp_path,
        "*** Update File: a.md",
        "@@ # A",
        " one",
        "-two",
        "+TWO",
        "+and more",
        "*** Add File: deep/er/new.txt",
        "+first",
        "+",
        "*** Delete File: b.md",
        "*** Update File: run.sh",
        "*** Move to: bin/run.sh",
        "@@",
        "-echo 1",
        "+echo 2",
    )
    assert (tmp_path / "a.md").read_text() == "# A\none\nTWO\nand more\nthree\n"
    assert (tmp_path / "deep/er/new.txt").read_text() == "first\n\n"
    assert (tmp_path / "bin/run.sh").read_text() == "#!/bin/sh\necho 2\n"
    assert stat.S_IMODE((tmp_path / "bin/run.sh").stat().st_mode) == 0o755
    assert not (tmp_path / "run.sh").exists() and not (tmp_path / "b.md").exists()
    [kept] = (tmp_path / ".trash").glob("*/b.md")
    assert kept.read_text() == "b\n"
    assert result.details == {
        "summary": {
            "added": ["deep/er/new.txt", "bin/run.sh"],
            "modified": ["a.md"],
            "deleted": ["b.md", "run.sh"],
        }
    }


async def test_patch_keeps_line_endings_and_the_last_newline(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree")
    lines = ("-one", "+ONE", " two", "-three", "+THREE", "+four")
    await use(tmp_path, "*** Update File: a", *lines)
    assert (tmp_path / "a").read_bytes() == b"\xef\xbb\xbfONE\r\ntwo\r\nTHREE\r\nfour"


async def test_patch_finds_lines_with_other_blanks_and_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("def f():  \n\treturn 1\n")
    await use(tmp_path, "*** Update File: a", " def f():", "-return 1", "+\treturn 2")
    assert (tmp_path / "a").read_text() == "def f():  \n\treturn 2\n"


async def test_patch_at_the_end_of_the_file_takes_the_last_place(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\nx\n")
    await use(tmp_path, "*** Update File: a", "@@", "-x", "+z", "*** End of File")
    assert (tmp_path / "a").read_text() == "x\ny\nz\n"
    await use(tmp_path, "*** Update File: a", "@@", "+last")
    assert (tmp_path / "a").read_text() == "x\ny\nz\nlast\n"
    with pytest.raises(ToolError, match="not in the file at the end of the file"):
        await use(tmp_path, "*** Update File: a", "-y", "+q", "*** End of File")


async def test_patch_anchors_lead_to_the_right_place(tmp_path: Path) -> None:
    text = "class A:\n    def f():\n        pass\nclass B:\n    def f():\n        pass\n"
    (tmp_path / "a").write_text(text)
    lines = ("@@ class B:", "@@ -5,2 +5,2 @@     def f():", "-        pass", "+        return 1")
    await use(tmp_path, "*** Update File: a", *lines)
    assert (tmp_path / "a").read_text() == text[: text.rindex("pass")] + "return 1\n"


async def test_patch_that_fits_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\nx\n")
    with pytest.raises(ToolError, match=r"several places \(lines 1, 3\)"):
        await use(tmp_path, "*** Update File: a", "-x", "+z")


async def test_failed_hunk_names_file_hunk_and_closest_lines(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os\n\nvalue = compute(1)\n")
    with pytest.raises(ToolError) as caught:
        await use(
            tmp_path,
            "*** Update File: a.py",
            "-import os",
            "+import sys",
            "@@",
            "-value = comput(1)",
        )
    message = caught.value.message
    assert "a.py, hunk 2 of 2 (line 5 of the patch)" in message
    assert "3: value = compute(1)" in message
    assert (tmp_path / "a.py").read_text().startswith("import os")


async def test_failed_file_leaves_all_others_unchanged(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "b").write_text("b\n")
    before = tree(tmp_path)
    for last in (("*** Update File: b", "-x", "+y"), ("*** Delete File: c",)):
        with pytest.raises(ToolError):
            await use(
                tmp_path,
                "*** Add File: deep/new",
                "+x",
                "*** Delete File: a",
                *last,
            )
        assert tree(tmp_path) == before and not (tmp_path / "deep").exists()


async def test_failed_write_undoes_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcd":
        (tmp_path / name).write_text(f"{name}\n")
    (tmp_path / "a").chmod(0o640)
    before = tree(tmp_path)

    def fail(self: RootedFs, path: str, batch: str) -> str:
        raise ToolError("the disk is full")

    monkeypatch.setattr(RootedFs, "move_to_trash", fail)
    with pytest.raises(ToolError, match="the disk is full"):
        await use(
            tmp_path,
            "*** Update File: a", "-a", "+A",
            "*** Add File: new", "+n",
            "*** Update File: b", "*** Move to: moved",
            "*** Delete File: c",
        )  # fmt: skip
    assert tree(tmp_path) == before
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


HOSTILE = {
    "parent folder": ("*** Add File: ../out", "+x"),
    "parent in the middle": ("*** Add File: a/../../out", "+x"),
    "absolute": ("*** Add File: /etc/passwd.new", "+x"),
    "home": ("*** Add File: ~/out", "+x"),
    "zero byte": ("*** Add File: a\0b", "+x"),
    "link to a folder outside": ("*** Add File: outside/x", "+x"),
    "link to a file outside": ("*** Update File: secret", "-s", "+x"),
    "delete through a link": ("*** Delete File: outside/secret",),
    "move through a link": ("*** Update File: plain", "*** Move to: outside/x"),
    "move to the parent": ("*** Update File: plain", "*** Move to: ../x"),
    "move onto another file": ("*** Update File: plain", "*** Move to: other"),
    "move onto itself": ("*** Update File: plain", "*** Move to: plain"),
    "add over a file": ("*** Add File: plain", "+x"),
    "the same file twice": ("*** Update File: plain", "-p", "+q", "*** Delete File: plain"),
    "twice by another path": ("*** Add File: n", "+x", "*** Add File: ./sub/../n", "+y"),
    "twice by another case": ("*** Add File: new", "+x", "*** Add File: NEW", "+y"),
    "the gateway's state": ("*** Add File: .openclaw/openclaw.json", "+x"),
    "git": ("*** Add File: .git/hooks/pre-commit", "+x"),
    "a folder": ("*** Delete File: sub",),
    "half a character": ("*** Add File: n", "+\ud800"),
    "a file in a file": ("*** Add File: plain/x", "+x"),
    "hard link": ("*** Update File: hard", "-s", "+x"),
    "nothing": (),
    "no sign": ("*** Update File: plain", "x"),
    "no plus": ("*** Add File: n", "x"),
    "no hunks": ("*** Update File: plain",),
    "no path": ("*** Add File: ", "+x"),
    "unknown part": ("*** Rename File: plain", "+x"),
    "huge": ("*** Add File: n", "+" + "x" * 1_100_000),
    "many files": tuple(f"*** Delete File: f{n}" for n in range(101)),
    "binary": ("*** Update File: binary", "-x", "+y"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_patch_changes_nothing(name: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "workspace", tmp_path / "outside"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text("s\n")
    (outside / "hard").write_text("s\n")
    (root / "plain").write_text("p\n")
    (root / "other").write_text("o\n")
    (root / "binary").write_bytes(b"x\n\xff\0")
    (root / "outside").symlink_to("../outside")
    (root / "secret").symlink_to(outside / "secret")
    (root / "hard").hardlink_to(outside / "hard")
    before = tree(tmp_path)
    with pytest.raises(ToolError):
        await use(root, *HOSTILE[name])
    assert tree(tmp_path) == before


async def test_patch_of_a_group_may_not_write_prompt_files(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("rules\n")
    group = "agent:main:telegram:group:-1"
    for lines in (
        ("*** Update File: AGENTS.md", "-rules", "+none"),
        ("*** Delete File: AGENTS.md",),
        ("*** Add File: skills/x/SKILL.md", "+x"),
        ("*** Add File: x", "+x", "*** Add File: memory/x.md", "+x"),
    ):
        with pytest.raises(ToolError, match=r"not written from this conversation|no such file"):
            await use(tmp_path, *lines, key=group)
    assert tree(tmp_path) == {"AGENTS.md": b"rules\n"}


@pytest.mark.parametrize(
    ("lines", "effects"),
    [
        (("*** Add File: x", "+x"), set()),
        (("*** Add File: x", "+x", "*** Update File: SOUL.md", "-a", "+b"), {"identity"}),
        (("*** Update File: x", "*** Move to: AGENTS.md"), {"identity"}),
        (("*** Delete File: skills/a/SKILL.md",), {"identity"}),
        (("*** Add File: ../x", "+x"), {"config"}),
        (("no patch",), set()),
    ],
)
async def test_patch_effects_are_those_of_its_files(
    lines: tuple[str, ...], effects: set[str], tmp_path: Path
) -> None:
    assert PATCH.find_effects is not None
    ctx = ToolContext("agent:main:main", "main", tmp_path)
    assert await PATCH.find_effects(ctx, input=patch(*lines)) == effects


def offered(provider: str, model: str, **settings: Any) -> bool:
    given = {"tools": {"exec": {"applyPatch": settings}, "allow": ["exec"]}}
    config = Config.model_validate(given)
    tools = module.tools(ToolSourceContext("main", config, lambda _key: config.tools))
    caller = CallerFacts("main", "agent:main:main", provider=provider, model=model)
    rules = make_policy_rules(config.tools)
    return any(is_tool_offered(tool.declaration, caller, rules) for tool in tools)


def test_patch_tool_is_off_by_default_and_for_openai_models() -> None:
    assert not offered("openai", "gpt-5")
    assert not offered("openai", "gpt-5", enabled=False)
    assert offered("openai", "gpt-5", enabled=True)
    assert offered("openrouter", "openai/gpt-5", enabled=True)
    assert not offered("anthropic", "claude", enabled=True)
    assert not offered("anthropic", "claude", enabled=True, allowModels=["claude"])


def test_patch_tool_allow_models_names_models_or_providers() -> None:
    for entry, expected in (("gpt-5", True), ("OpenAI/GPT-5", True), ("gpt-4", False)):
        assert offered("openai", "gpt-5", enabled=True, allowModels=[entry]) is expected


async def test_patch_leaves_the_workspace_only_where_the_config_says(tmp_path: Path) -> None:
    from homarus.policy.workspace_access import FULL_ACCESS, FileScope

    root, outside = tmp_path / "workspace", tmp_path / "other"
    root.mkdir()
    outside.mkdir()
    scope = FileScope(protected=())
    ctx = ToolContext("agent:main:main", "main", root, run_access=FULL_ACCESS, scope=scope)
    call = {"input": patch(f"*** Add File: {outside}/a", "+x")}
    with pytest.raises(ToolError, match="outside the workspace"):
        await PATCH(ctx, call)
    await make_apply_patch(workspace_only=False)(ctx, call)
    assert (outside / "a").read_text() == "x\n"


lines = st.lists(
    st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=6), max_size=8
)


@given(lines, lines, st.booleans())
def test_patch_of_two_texts_gives_the_second(
    before: list[str], after: list[str], has_newline: bool
) -> None:
    first = "\n".join(before) + ("\n" if has_newline else "")
    old = first.removesuffix("\n").split("\n")
    if old == after or not first:
        return
    signs = [f"-{line}" for line in old] + [f"+{line}" for line in after]
    [change] = parse_patch(patch("*** Update File: a", "@@", *signs))
    second = "".join(f"{line}\n" for line in after)
    expected = second if first.endswith("\n") else second.removesuffix("\n")
    assert apply_hunks(first, change.hunks, name="a") == expected


words = st.lists(st.sampled_from(["a", "b", "c", "", " d", "@@", "*** x", "+", "-e"]), max_size=12)


@given(words, words, st.integers(1, 3))
def test_patch_of_hunks_gives_the_second_text_or_says_why(
    before: list[str], after: list[str], context: int
) -> None:
    first, second = "\n".join([*before, "end"]), "\n".join([*after, "end"])
    if first == second:
        return
    [change] = parse_patch(hunk_patch(first, second, context))
    result = problem = ""
    try:
        result = apply_hunks(first, change.hunks, name="a")
    except ToolError as exc:
        problem = exc.message
    assert result == second or "several places" in problem
