"""Plays: the facts of one run, step by step, and what a chat sees of each.

A play is a JSON file in `golden/`: its `manner`, and `run`, a list of steps. Each step is one fact
in short form, and `gives` is what comes out of it. `python -m tests.unit.agent.plays` writes
`gives` anew, for a person to read in the diff.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from homarus.agent.reply.blocks import Block, Chunking, Coalescing
from homarus.agent.reply.manner import Manner
from homarus.agent.reply.shaping import Ending, Shape, Step
from homarus.core.event import (
    AttemptFailed,
    CompactionEnded,
    CompactionStarted,
    ErrorNoted,
    Fact,
    MessageSaved,
    RunEnded,
    RunStarted,
    TextAdded,
    ThinkingAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.message import (
    Address,
    Message,
    Origin,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
    Usage,
)

FOLDER = Path(__file__).parent / "golden"
HERE = Address("telegram", "42")


class Stage:
    """One run on one chat."""

    def __init__(self, manner: dict[str, Any]) -> None:
        values = dict(manner)
        if "chunking" in values:
            values["chunking"] = Chunking(**values["chunking"])
        if "coalescing" in values:
            values["coalescing"] = Coalescing(**values["coalescing"])
        self._shape = Shape(Manner(here=HERE, **values))
        self._text = self._thinking = ""
        self._calls: list[ToolCall] = []
        self._typing = False

    def play(self, step: dict[str, Any]) -> list[str]:
        """One step; what the chat sees."""
        at_s = float(step.get("at", 0))
        (name, value), *_ = [item for item in step.items() if item[0] not in {"at", "gives"}]
        match name:
            case "tick":
                return self._seen(self._shape.tick(at_s))
            case "visible":
                return [f"visible: {self._shape.visible}"]
            case "finish":
                return self._ended(self._shape.finish(self._message(value)))
            case "fail":
                return [_told("final", block) for block in self._shape.fail(value)]
            case _:
                return self._seen(self._shape.feed(self._fact(name, value), at_s))

    def _fact(self, name: str, value: Any) -> Fact:
        match name:
            case "text":
                self._text += value
                return TextAdded(value)
            case "thinking":
                self._thinking += value
                return ThinkingAdded(value)
            case "failed":
                self._text = self._thinking = ""
                return AttemptFailed("p", "m", "provider.overloaded", "busy", value)
            case "tool":
                call = ToolCall(value.get("id", "c1"), value["name"], value.get("args", {}))
                return ToolStarted(call)
            case "result":
                text = (Text(value.get("text", "ok")),)
                return ToolEnded(
                    ToolReturn(
                        value.get("id", "c1"), value["name"], text, value.get("error", False)
                    )
                )
            case "saved":
                return MessageSaved(self._message(value))
            case _:
                return _SIMPLE[name](value)

    def _message(self, value: dict[str, Any]) -> Message:
        """The message that the deltas were of, unless the step says otherwise."""
        parts: list[Part] = []
        if thinking := value.get("thinking", self._thinking):
            parts.append(Thinking(thinking))
        if text := value.get("text", self._text):
            parts.append(Text(text))
        usage = Usage(**value.get("usage", {}))
        origin = Origin("scripted", "p", "m", value.get("stop", "stop"), usage)
        self._text = self._thinking = ""
        return Message("assistant", tuple(parts), 0, origin)

    def _seen(self, step: Step) -> list[str]:
        seen = [_told("send", block) for block in step.send]
        if step.typing is not None and step.typing != self._typing:
            self._typing = step.typing
            seen.append("typing on" if step.typing else "typing off")
        return seen

    @staticmethod
    def _ended(ending: Ending) -> list[str]:
        return [*(_told("final", block) for block in ending.blocks), f"outcome: {ending.outcome}"]


def _started(value: str) -> Fact:
    provider, _, model = value.partition("/")
    return RunStarted(provider, model)


_SIMPLE: dict[str, Callable[[Any], Fact]] = {
    "started": _started,
    "compacting": lambda _value: CompactionStarted(),
    "compacted": lambda _value: CompactionEnded(),
    "noted": ErrorNoted,
    "ended": lambda value: RunEnded(**value),
}


def _told(how: str, block: Block) -> str:
    kind = "" if block.kind == "text" else f" {block.kind}"
    marks = []
    if block.reply_to or block.reply_to_current:
        marks.append(f"reply to {block.reply_to or 'the current message'}")
    marks += [f"media {item}" for item in block.media]
    marks += ["as voice"] if block.as_voice else []
    about = f" ({', '.join(marks)})" if marks else ""
    return f"{how}{kind}{about}: {block.text}"


def play(case: dict[str, Any]) -> dict[str, Any]:
    """A play with `gives` as it comes out now."""
    stage = Stage(case["manner"])
    run = []
    for step in case["run"]:
        asked = {name: value for name, value in step.items() if name != "gives"}
        gives = stage.play(asked)
        run.append({**asked, "gives": gives} if gives else asked)
    return {**case, "run": run}


def plays() -> list[Path]:
    return sorted(FOLDER.glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return case


def write(case: dict[str, Any]) -> str:
    """One step on one line, as far as it goes."""
    lines = [json.dumps(step, ensure_ascii=False) for step in case["run"]]
    head = json.dumps(
        {"about": case["about"], "manner": case["manner"]}, ensure_ascii=False, indent=1
    )
    steps = ",\n  ".join(lines)
    return f'{head[:-2]},\n "run": [\n  {steps}\n ]\n}}\n'


if __name__ == "__main__":
    for file in plays():
        file.write_text(write(play(read(file))), encoding="utf-8")
