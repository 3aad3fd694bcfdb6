"""The hooks that a plugin can implement. This file is the manual.

    from homarus.plugins.hooks import hook
    from homarus.plugins.values import Refusal


    class Careful:
        @hook
        async def before_tool_call(self, call):
            if call.name == "exec" and "rm -rf" in call.args.get("command", ""):
                return Refusal("not while I am watching")

A hook is a function or a coroutine function, and takes those of the arguments below that it
needs, by name. The hooks of all plugins are called one after another in the order of their
registration, `@hook(tryfirst=True)` before the others and `@hook(trylast=True)` after them; where
a hook may change something, the next one gets the changed value. `None` changes nothing.

A hook that raises, returns a value of another type, or exceeds the deadline is skipped: the run
continues, the log has the details, and `/status` shows the number of failures to the owner. A
plain function must not block: it would block the event loop.

A program that opened an App registers the plugin: `app.hooks.register(Careful(), "careful")`.
Plugins are not discovered automatically yet.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import pluggy

from homarus.core.message import Inbound, Json, Message, Outbound, ToolCall, ToolResult
from homarus.plugins.values import HookContext, Refusal

PROJECT = "homarus"
spec = pluggy.HookspecMarker(PROJECT)
hook = pluggy.HookimplMarker(PROJECT)

T = TypeVar("T")
HookReturn: TypeAlias = Awaitable[T | None] | T | None  # the value or None, directly or awaitable
HookDone: TypeAlias = Awaitable[None] | None


class HookSpecs:
    """The specification of every hook."""

    @spec
    def before_agent_start(
        self, where: HookContext, prompt: str, messages: Sequence[Message]
    ) -> HookReturn[str]:
        """A run is about to call its model. `str`: text that is put before the prompt."""

    @spec
    def agent_end(
        self, where: HookContext, messages: Sequence[Message], error: str, duration_ms: int
    ) -> HookDone:
        """A run ended and its outcome was delivered; `error` is empty if it succeeded.

        The hook delays nothing: the session's next run may have started.
        """

    @spec
    def before_tool_call(
        self, where: HookContext, call: ToolCall
    ) -> HookReturn[Mapping[str, Json] | Refusal]:
        """A tool is about to run. A mapping: other arguments for it.

        `Refusal`: it does not run, and the model gets the reason.
        """

    @spec
    def after_tool_call(
        self, where: HookContext, call: ToolCall, result: ToolResult, duration_ms: int
    ) -> HookDone:
        """A tool has run."""

    @spec
    def before_compaction(self, where: HookContext, messages: int, tokens: int) -> HookDone:
        """A session with this number of messages and tokens is about to be compacted."""

    @spec
    def after_compaction(self, where: HookContext, messages: int, tokens: int) -> HookDone:
        """A session was compacted to this number of messages and tokens."""

    @spec
    def message_received(self, where: HookContext, inbound: Inbound) -> HookDone:
        """A message was accepted and will be answered."""

    @spec
    def message_sending(self, outbound: Outbound) -> HookReturn[str | Refusal]:
        """A message is about to be sent, or a block of one: in markdown, before it is split.

        `str`: another text for it. `Refusal`: it is not sent.
        """

    @spec
    def message_sent(self, outbound: Outbound, error: str) -> HookDone:
        """A part of a message was sent, or failed with `error`.

        Its text is in the markup of its service.
        """

    @spec
    def session_start(self, where: HookContext, session_id: str, resumed_from: str) -> HookDone:
        """A session starts; `resumed_from` is the previous session of the same key, if any."""

    @spec
    def session_end(self, where: HookContext, session_id: str, messages: int) -> HookDone:
        """A session with this number of messages ended: another one gets its key."""

    @spec
    def gateway_start(self, port: int) -> HookDone:
        """The gateway accepts connections."""

    @spec
    def gateway_stop(self, reason: str) -> HookDone:
        """The gateway is about to stop."""

    @spec
    def agent_bootstrap(
        self, where: HookContext, files: Mapping[str, str]
    ) -> HookReturn[Mapping[str, str]]:
        """The workspace's files were read for a prompt: name → text (`agent:bootstrap`).

        A mapping: the files to use instead.
        """

    @spec
    def command(self, where: HookContext, name: str, text: str) -> HookReturn[str]:
        """A person gave a command: `new`, `reset` or `stop` (`command:new` …).

        `text` is the rest of the message. `str`: a line for that person.
        """

    @spec
    def diagnostic_event(self, event: Mapping[str, Json]) -> HookDone:
        """A diagnostic event, with its `type`, `seq`, `ts` and fields (`diagnostics.enabled`)."""

    @spec
    def gateway_startup(self) -> HookDone:
        """The channels are running, and messages can be sent (`gateway:startup`)."""
