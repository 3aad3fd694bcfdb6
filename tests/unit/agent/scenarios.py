"""Golden scenarios of the reply builder: the events of one run, and what the chat gets.

A scenario is a JSON file in `golden/`: its settings (`manner`), and `run`, a list of steps. Each
step is one event in short form, and `gives` is the result. `python -m tests.unit.agent.scenarios`
rewrites `gives`, for review in the diff.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from homarus.agent.reply.blocks import Block
from homarus.agent.reply.builder import ReplyBuilder, ReplyEnd
from homarus.agent.reply.reply_cleaner import ReplyCleaner
from homarus.agent.reply.settings import ReplySettings
from homarus.core.event import (
    AttemptFailed,
    CompactionEnded,
    CompactionStarted,
    ErrorNoted,
    EventData,
    MessageSaved,
    RunEnded,
    RunStarted,
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
    ToolResult,
    Usage,
)
from tests.unit.agent.builders import cleaned_events

FOLDER = Path(__file__).parent / "golden"
ADDRESS = Address("telegram", "42")


class ScenarioRun:
    """One run in one chat."""

    def __init__(self, fields: dict[str, Any]) -> None:
        settings = ReplySettings(address=ADDRESS, **fields)
        self._builder = ReplyBuilder(settings, sends_on_save=settings.streams)
        self._start_message()
        self._calls: list[ToolCall] = []
        self._typing = False

    def _start_message(self) -> None:
        self._text = self._thinking = ""
        self._cleaner = ReplyCleaner()

    def run_step(self, step: dict[str, Any]) -> list[str]:
        """Run one step; return what the chat gets."""
        (name, value), *_ = [item for item in step.items() if item[0] != "gives"]
        match name:
            case "visible":
                return [f"visible: {self._builder.visible}"]
            case "finish":
                return self._ended(self._builder.finish(self._message(value)))
            case "fail":
                return [_describe_block("final", block) for block in self._builder.fail(value)]
            case "saved":
                message = self._message(value)
                sent = [_describe_block("send", block) for block in self._builder.save(message)]
                return [*sent, *self._feed(MessageSaved(message))]
            case "text":
                self._text += value
                events = cleaned_events(self._cleaner.feed(value))
                return [line for data in events for line in self._feed(data)]
            case _:
                return self._feed(self._event_data(name, value))

    def _event_data(self, name: str, value: Any) -> EventData:
        match name:
            case "thinking":
                self._thinking += value
                return ThinkingAdded(value)
            case "failed":
                self._start_message()
                return AttemptFailed("p", "m", "provider.overloaded", "busy", value)
            case "tool":
                call = ToolCall(value.get("id", "c1"), value["name"], value.get("args", {}))
                return ToolStarted(call)
            case "result":
                text = (Text(value.get("text", "ok")),)
                return ToolEnded(
                    ToolResult(
                        value.get("id", "c1"), value["name"], text, value.get("error", False)
                    )
                )
            case _:
                return _SIMPLE[name](value)

    def _message(self, value: dict[str, Any]) -> Message:
        """Return the message of the deltas so far, unless the step has its own."""
        parts: list[Part] = []
        if thinking := value.get("thinking", self._thinking):
            parts.append(Thinking(thinking))
        if text := value.get("text", self._text):
            parts.append(Text(text))
        usage = Usage(**value.get("usage", {}))
        origin = Origin("scripted", "p", "m", value.get("stop", "stop"), usage)
        self._start_message()
        return Message("assistant", tuple(parts), 0, origin)

    def _feed(self, data: EventData) -> list[str]:
        typing = self._builder.feed(data)
        if typing is None or typing == self._typing:
            return []
        self._typing = typing
        return ["typing on" if typing else "typing off"]

    @staticmethod
    def _ended(end: ReplyEnd) -> list[str]:
        return [
            *(_describe_block("final", block) for block in end.blocks),
            f"outcome: {end.status}",
        ]


def _started(value: str) -> EventData:
    provider, _, model = value.partition("/")
    return RunStarted(provider, model)


_SIMPLE: dict[str, Callable[[Any], EventData]] = {
    "started": _started,
    "compacting": lambda _value: CompactionStarted(),
    "compacted": lambda _value: CompactionEnded(),
    "noted": ErrorNoted,
    "ended": lambda value: RunEnded(**value),
}


def _describe_block(action: str, block: Block) -> str:
    kind = "" if block.kind == "text" else f" {block.kind}"
    marks = []
    if block.reply_to or block.reply_to_current:
        marks.append(f"reply to {block.reply_to or 'the current message'}")
    marks += [f"media {item}" for item in block.media]
    marks += ["as voice"] if block.as_voice else []
    suffix = f" ({', '.join(marks)})" if marks else ""
    return f"{action}{kind}{suffix}: {block.text}"


def run_scenario(case: dict[str, Any]) -> dict[str, Any]:
    """Run a scenario; return it with the actual `gives`."""
    scenario = ScenarioRun(case["manner"])
    run = []
    for step in case["run"]:
        inputs = {name: value for name, value in step.items() if name != "gives"}
        gives = scenario.run_step(inputs)
        run.append({**inputs, "gives": gives} if gives else inputs)
    return {**case, "run": run}


def scenario_paths() -> list[Path]:
    return sorted(FOLDER.glob("*.json"))


def load_scenario(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return case


def format_scenario(case: dict[str, Any]) -> str:
    """Format a scenario with one step per line."""
    lines = [json.dumps(step, ensure_ascii=False) for step in case["run"]]
    head = json.dumps(
        {"about": case["about"], "manner": case["manner"]}, ensure_ascii=False, indent=1
    )
    steps = ",\n  ".join(lines)
    return f'{head[:-2]},\n "run": [\n  {steps}\n ]\n}}\n'


if __name__ == "__main__":
    for file in scenario_paths():
        file.write_text(format_scenario(run_scenario(load_scenario(file))), encoding="utf-8")
