"""Answer a message with one tool call that its command names, without asking the model.

The provider stands where the model's would, so that the call is decided, approved, journaled,
suspended, resumed and audited as one of the model. Everything else that the run has to answer goes
to the model.
"""

import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import Final

from homarus.core.errors import ToolError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Message, Origin, Text, ToolCall, ToolResult
from homarus.core.untrusted import unwrap_untrusted
from homarus.providers.base import Delta, ModelRequest, Provider, ToolSpec
from homarus.tools.registry import ToolRegistry

API: Final = "skill-command"  # of the messages that no model wrote
_INPUT: Final = "command"  # the parameter that OpenClaw passes the typed text in
_NO_OUTPUT: Final = "Done."


@dataclass(frozen=True, slots=True)
class SkillCall:
    """The call of a skill's command: the tool, and what was typed after the command."""

    skill: str
    tool: str
    text: str


class DirectCallProvider:
    """A provider that makes the call of a command, and answers with its result.

    `run_id` is that of the run, so that a run that is resumed makes the same call.
    """

    def __init__(
        self, provider: Provider, call: SkillCall, tools: ToolRegistry, *, run_id: str, ref: str
    ) -> None:
        self.name, self.api = provider.name, provider.api
        self._provider, self._call, self._tools = provider, call, tools
        digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()
        self._call_id = f"skill_{digest[:24]}"
        self._ref = ref

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        """Yield the call, then its result; what follows is the model's."""
        provider, _, model = self._ref.partition("/")
        last = request.messages[-1] if request.messages else None
        is_called = any(
            call.id == self._call_id for each in request.messages for call in each.calls
        )
        if not is_called:
            tool = self._find_tool()
            call = ToolCall(self._call_id, tool.name, make_arguments(tool, self._call))
            yield Message("assistant", (call,), origin=Origin(API, provider, model, "toolUse"))
        elif last and (result := _find_result(last, self._call_id)):
            text = unwrap_untrusted(result.text).strip() or _NO_OUTPUT
            yield Message("assistant", (Text(text),), origin=Origin(API, provider, model))
        else:
            async for piece in self._provider.stream(request):
                yield piece

    def _find_tool(self) -> ToolSpec:
        call = self._call
        try:
            return self._tools.find_called(call.tool).spec
        except ToolError as exc:
            raise UserError(
                f"the skill {call.skill} calls the tool {call.tool}, which this "
                "conversation does not have",
                fix="homarus policy explain says which setting decides",
            ) from exc

    async def close(self) -> None:
        await self._provider.close()


def make_arguments(tool: ToolSpec, call: SkillCall) -> dict[str, Json]:
    """Return the arguments of the call: the typed text, as `command` where the tool has that.

    OpenClaw also passes `commandName` and `skillName`. A tool without `command` gets the text as
    its only required text. Raises UserError for a tool that takes no such text.
    """
    listed = tool.parameters.get("properties")
    properties: Mapping[str, Json] = listed if isinstance(listed, Mapping) else {}
    given: dict[str, Json] = {
        _INPUT: call.text, "commandName": call.skill, "skillName": call.skill,
    }  # fmt: skip
    args = {name: value for name, value in given.items() if name in properties}
    if _INPUT in args:
        return args
    required = tool.parameters.get("required")
    names = [str(name) for name in required] if isinstance(required, list) else []
    texts = [name for name in names if name not in args and _is_text(properties.get(name))]
    if len(texts) != 1:
        raise UserError(
            f"the skill {call.skill} calls the tool {tool.name}, which takes no single text",
            fix=f"ask the agent to use the skill {call.skill} instead",
        )
    return {**args, texts[0]: call.text}


def _is_text(schema: Json) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "string"


def _find_result(message: Message, call_id: str) -> ToolResult | None:
    found = (part for part in message.parts if isinstance(part, ToolResult))
    return next((part for part in found if part.call_id == call_id), None)
