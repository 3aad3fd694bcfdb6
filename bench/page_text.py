"""What the page is given to show: a long session, and answers with all that Markdown has."""

import json
from pathlib import Path

KEY = "agent:main:long"
_SESSION = "5f0c2a9b-e1d4-4c07-8a11-000000005000"
_AT = "2026-01-01T00:00:00Z"
_ROWS = "".join(f"| row {n} | {n} | `x{n}` and **b** |\n" for n in range(12))
_CODE = "".join(f"def f{n}(x):\n    return x + {n}\n\n" for n in range(14))
_SECTION = (
    "## Part {part}\n\nSome **words** with `code`, a [link](https://example.com) and *more* of it,"
    " so that a paragraph takes a few lines when it is shown.\n\n| name | value | note |\n"
    f"| --- | --: | --- |\n{_ROWS}\n```python\n{_CODE}```\n\n- one\n- two\n  - nested\n- three\n\n"
)
# Characters of answers: most are short, some long, and a few very long.
_SHORT, _LONG, _VERY_LONG = 600, 4_000, 24_000


def markdown(chars: int) -> str:
    """Return paragraphs, tables, code and lists of this length."""
    parts = chars // len(_SECTION) + 1
    return "".join(_SECTION.replace("{part}", str(part)) for part in range(parts))[:chars]


def write_long_session(state: Path, messages: int) -> None:
    """Write a session of OpenClaw's format; the last message contains `Message N.`."""
    folder = state / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    lines: list[object] = [{"type": "session", "version": 3, "id": _SESSION, "timestamp": _AT}]
    parent = None
    for at in range(messages):
        id_ = f"{at:08x}"
        message = {
            "role": "assistant" if at % 2 else "user",
            "content": [{"type": "text", "text": f"Message {at}.\n\n{_text(at)}"}],
            "timestamp": at + 1,
        }
        entry = {"type": "message", "id": id_, "parentId": parent, "timestamp": _AT}
        lines.append({**entry, "message": message})
        parent = id_
    file = folder / f"{_SESSION}.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    record = {"sessionId": _SESSION, "updatedAt": 1_790_000_000_000, "sessionFile": str(file)}
    (folder / "sessions.json").write_text(json.dumps({KEY: record}), encoding="utf-8")


def _text(at: int) -> str:
    if at % 2 == 0:
        return "What is new? " * 5
    answer = at // 2
    if answer % 20 == 7:
        return markdown(_VERY_LONG)
    return markdown(_LONG if answer % 4 == 1 else _SHORT)
