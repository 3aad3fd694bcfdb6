"""The hooks: what a plugin can be told of, and where it may have a say. This file is the manual.

    from homarus.plugins.hooks import hook
    from homarus.plugins.values import Refusal


    class Careful:
        @hook
        async def before_tool_call(self, call):
            if call.name == "exec" and "rm -rf" in call.args.get("command", ""):
                return Refusal("not while I am watching")

A hook is a function or a coroutine function, and takes those of the arguments below that it
needs, by name. All plugins are asked, one after another in the order in which they came,
`@hook(tryfirst=True)` before the others and `@hook(trylast=True)` after them; where a hook may
change something, the next one sees what the one before made of it.
`None` changes nothing. A hook that raises, gives an answer of another kind, or takes longer than
the deadline counts as not there: the run goes on, the log has the details, and `/status` counts
the failures for the owner. A plain function must not wait for anything: nothing else runs
meanwhile.

A program that opened an App gives it the plugin: `app.hooks.register(Careful(), "careful")`.
Nothing looks for plugins by itself yet.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import pluggy

from homarus.core.message import Inbound, Json, Message, Outbound, ToolCall, ToolReturn
from homarus.plugins.values import Refusal, Where

PROJECT = "homarus"
spec = pluggy.HookspecMarker(PROJECT)
hook = pluggy.HookimplMarker(PROJECT)

T = TypeVar("T")
Maybe: TypeAlias = Awaitable[T | None] | T | None  # an answer, or none; now, or awaited
Done: TypeAlias = Awaitable[None] | None


class Specs:
    """Every hook there is."""

    @spec
    def before_agent_start(
        self, where: Where, prompt: str, messages: Sequence[Message]
    ) -> Maybe[str]:
        """A run is about to ask its model. `str`: text that is put before the prompt."""

    @spec
    def agent_end(
        self, where: Where, messages: Sequence[Message], error: str, duration_ms: int
    ) -> Done:
        """A run is over and its reply is on its way; `error` is empty when it went well."""

    @spec
    def before_tool_call(self, where: Where, call: ToolCall) -> Maybe[Mapping[str, Json] | Refusal]:
        """A tool is about to run. A mapping: other arguments for it.

        `Refusal`: it does not run, and the model is told why.
        """

    @spec
    def after_tool_call(
        self, where: Where, call: ToolCall, result: ToolReturn, duration_ms: int
    ) -> Done:
        """A tool has run."""

    @spec
    def before_compaction(self, where: Where, messages: int, tokens: int) -> Done:
        """A conversation of so many messages and tokens is about to be summarised."""

    @spec
    def after_compaction(self, where: Where, messages: int, tokens: int) -> Done:
        """It was; so many messages and tokens are left."""

    @spec
    def message_received(self, where: Where, inbound: Inbound) -> Done:
        """A message was accepted; it will be answered."""

    @spec
    def message_sending(self, outbound: Outbound) -> Maybe[str | Refusal]:
        """A message is about to be sent: whole, in markdown, before it is cut into parts.

        `str`: other words for it. `Refusal`: it is not sent.
        """

    @spec
    def message_sent(self, outbound: Outbound, error: str) -> Done:
        """A part of a message was sent, or could not be: then `error` says why.

        Its text is in the markup of its service.
        """

    @spec
    def session_start(self, where: Where, session_id: str, resumed_from: str) -> Done:
        """A conversation begins; `resumed_from` is the one under the same key before it, if any."""

    @spec
    def session_end(self, where: Where, session_id: str, messages: int) -> Done:
        """A conversation of so many messages is over: another takes its key."""

    @spec
    def gateway_start(self, port: int) -> Done:
        """The gateway listens."""

    @spec
    def gateway_stop(self, reason: str) -> Done:
        """The gateway is about to end."""

    @spec
    def agent_bootstrap(self, where: Where, files: Mapping[str, str]) -> Maybe[Mapping[str, str]]:
        """The workspace's files were read for a prompt: name → text (`agent:bootstrap`).

        A mapping: the files to use instead.
        """

    @spec
    def command(self, where: Where, name: str, text: str) -> Maybe[str]:
        """A person gave a command: `new`, `reset` or `stop` (`command:new` …).

        `text` is what stood after it. `str`: a line for that person.
        """

    @spec
    def gateway_startup(self) -> Done:
        """The channels are up, and messages can be sent (`gateway:startup`)."""
