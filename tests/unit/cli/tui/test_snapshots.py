"""What the screen shows in three sizes, compared with stored text.

HOMARUS_UPDATE_SCREENS=1 writes the files again; look at the difference before it is committed.
"""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from homarus.cli.tui.app import TuiApp
from tests.unit.cli.tui.harness import (
    MAIN,
    NOW_MS,
    FakeGateway,
    answer,
    called,
    drawn_screen,
    result,
    screen_text,
    shown,
    thought,
    type_text,
    until_shown,
    user,
)

STORED = Path(__file__).parents[3] / "data" / "tui"
SIZES = ((40, 15), (80, 24), (120, 40))
ANSWER = """There are **two**:

1. `AGENTS.md`, with the rules
2. `SOUL.md`, how I speak

| file | lines |
|------|------:|
| AGENTS.md | 31 |
| SOUL.md | 12 |

```python
for path in Path(".").glob("*.md"):
    print(path)  # both
```

日本語のテキストも、👩‍👩‍👧 も表示されます。
"""
PLAN = """folder: /home/me/workspace
time: at most 1800 s
asked because: no entry allows find
always: /usr/bin/find, with arguments that run nothing and stay in the workspace
command (19 characters):
    find . -name '*.md'"""
APPROVAL = {
    "id": "a1",
    "request": {
        "title": "Run this command?", "detail": PLAN, "always": "find", "agentId": "main",
        "sessionKey": MAIN, "toolCallId": "call_2",
    },
    "createdAtMs": NOW_MS,
    "expiresAtMs": NOW_MS + 20 * 60_000,
}  # fmt: skip
Press = Callable[[TuiApp, Pilot[None]], Awaitable[object]]


def conversation() -> FakeGateway:
    gateway = FakeGateway()
    gateway.messages[MAIN] = [
        user("Which Markdown files are here? [red]Not markup[/red] and \x1b[31mno colour.", 1),
        thought("The person wants a list. I look into the folder.", 2),
        called("exec", "call_1", 2, command="find . -name '*.md' | head"),
        result("call_1", "./AGENTS.md\n./SOUL.md", 3),
        called("read", "call_3", 4, path="missing.md"),
        result("call_3", "missing.md does not exist", 4, isError=True),
        answer(ANSWER, 5),
    ]
    return gateway


async def nothing(_app: TuiApp, _pilot: Pilot[None]) -> None: ...


async def open_cards(_app: TuiApp, pilot: Pilot[None]) -> None:
    await pilot.press("ctrl+o", "ctrl+home")


async def open_commands(app: TuiApp, pilot: Pilot[None]) -> None:
    await type_text(pilot, "/t")
    await until_shown(app, "/think")


async def open_sessions(app: TuiApp, pilot: Pilot[None]) -> None:
    await pilot.press("ctrl+p")
    await until_shown(app, "New session")


async def open_help(app: TuiApp, pilot: Pilot[None]) -> None:
    await pilot.press("f1")
    await until_shown(app, "Esc closes")


SCENES: dict[str, Press] = {
    "conversation": nothing,
    "cards": open_cards,
    "commands": open_commands,
    "sessions": open_sessions,
    "help": open_help,
}


def compare(name: str, found: str) -> None:
    """Compare a screen with the stored one."""
    file = STORED / f"{name}.txt"
    if os.environ.get("HOMARUS_UPDATE_SCREENS"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{found}\n", encoding="utf-8")
    assert f"{found}\n" == file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("columns", "rows"), SIZES)
@pytest.mark.parametrize("scene", SCENES)
async def test_screen_is_as_stored(tmp_path: Path, scene: str, columns: int, rows: int) -> None:
    async with shown(conversation(), tmp_path, columns=columns, rows=rows) as (app, pilot):
        await SCENES[scene](app, pilot)
        compare(f"{scene}-{columns}x{rows}", await drawn_screen(app, pilot))


@pytest.mark.parametrize(("columns", "rows"), SIZES)
async def test_approval_screen_is_as_stored(tmp_path: Path, columns: int, rows: int) -> None:
    gateway = conversation()
    gateway.messages[MAIN] += [user("And the others?", 6), called("exec", "call_2", 7, command="x")]
    gateway.approvals = [APPROVAL]
    async with shown(gateway, tmp_path, columns=columns, rows=rows) as (app, pilot):
        await until_shown(app, "n  deny", "expires")
        compare(f"approval-{columns}x{rows}", await drawn_screen(app, pilot))


async def test_empty_screen_is_as_stored(tmp_path: Path) -> None:
    async with shown(FakeGateway(), tmp_path) as (app, _pilot):
        compare("empty-80x24", screen_text(app))
