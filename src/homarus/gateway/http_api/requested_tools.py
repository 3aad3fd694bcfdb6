"""The functions that a request offers to the model, and its choice among them.

They are offered besides the agent's own tools, which `tool_choice` does not concern. What it
demands is asked of the model, and checked: an answer without the call is an error.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from homarus.core.errors import InvalidRequestError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import ClientTool, Json
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.endpoint import ApiRequest
from homarus.gateway.http_api.run_answer import RunAnswer

MAX_TOOLS: Final = 128
_NO_PARAMETERS: Final[dict[str, Json]] = {"type": "object", "properties": {}}
_DEMAND: Final = (
    "This request must be answered with a call of {which}. Use other tools first where they help,"
    " then make that call; do not answer in text alone."
)

ToolName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
ChoiceWord: TypeAlias = Literal["none", "auto", "required"]


class FunctionDeclaration(ApiRequest):
    """A function of the client; `parameters` is a JSON schema of an object."""

    name: ToolName
    description: Annotated[str, Field(max_length=16_384)] | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class RequestedTools:
    """The functions that a run offers; with `demanded` it must end with a call of one of those."""

    tools: tuple[ClientTool, ...] = ()
    demanded: tuple[str, ...] = ()

    @property
    def prompt(self) -> str:
        """The instruction to the model that follows from `tool_choice`; "" for none."""
        if not self.demanded:
            return ""
        names = " or ".join(f"`{name}`" for name in self.demanded)
        which = f"the function {names}" if len(self.demanded) == 1 else f"one of {names}"
        return _DEMAND.format(which=which)

    def check(self, answer: RunAnswer) -> None:
        """Raise ApiError (422) for an answer without the call that was demanded."""
        if self.demanded and not answer.calls:
            raise ApiError(
                422, "the model answered without the call that tool_choice demands",
                reason="tool_choice_not_met",
            )  # fmt: skip


def choose_tools(
    declared: Sequence[FunctionDeclaration], choice: ChoiceWord, named: str = ""
) -> RequestedTools:
    """Return the functions of a request; raises ApiError (400) if they and the choice conflict."""
    if len(declared) > MAX_TOOLS:
        raise ApiError(400, f"at most {MAX_TOOLS} tools can be offered", param="tools")
    names = [each.name for each in declared]
    if len(set(names)) != len(names):
        raise ApiError(400, "two tools have the same name", param="tools")
    tools = tuple(_as_tool(each) for each in declared)
    if named:
        tools = tuple(tool for tool in tools if tool.name == named)
        if not tools:
            raise ApiError(400, f"no tool is named {named!r}", param="tool_choice")
        return RequestedTools(tools, (named,))
    if choice == "none":
        return RequestedTools()
    if choice == "required" and not tools:
        raise ApiError(400, "it needs tools to choose from", param="tool_choice")
    return RequestedTools(tools, tuple(names) if choice == "required" else ())


def _as_tool(declared: FunctionDeclaration) -> ClientTool:
    schema = declared.parameters or _NO_PARAMETERS
    if schema.get("type", "object") != "object":
        raise InvalidRequestError(f"tools: the parameters of {declared.name} must be an object")
    return ClientTool(declared.name, declared.description or "", {"type": "object", **schema})
