"""Calling the hooks: typed, one by one, each under a deadline, and no failure gets out.

    hooks = Hooks()
    hooks.register(Careful(), "careful")
    asked = await hooks.before_tool_call(where, call)     # the call, or a Refusal

Whoever has no plugin pays for an `if`: pluggy is loaded with the first that is registered.
"""

import asyncio
import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from homarus.core.errors import UnknownName, UserError
from homarus.core.message import Inbound, Message, Outbound, ToolCall, ToolReturn
from homarus.core.tasks import contain
from homarus.core.text import nearest, one_line
from homarus.plugins.values import Failure, Refusal, Where

if TYPE_CHECKING:
    from pluggy import HookImpl, PluginManager

log = logging.getLogger(__name__)

T = TypeVar("T")

DEADLINE_S = 10.0
_MAX_TOLD_CHARS = 200


class Hooks:
    """Every plugin's hooks. One for the whole program; without plugins each call is nothing."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._plugins: PluginManager | None = None
        self._failures: dict[tuple[str, str], Failure] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nobody ever registered."""
        return self._plugins is None

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What went wrong, for `/status`."""
        return tuple(self._failures.values())

    def has(self, hook: str) -> bool:
        """Whether anybody is asked there."""
        return bool(self._impls(hook))

    def register(self, plugin: object, name: str) -> tuple[str, ...]:
        """Take in a plugin's hooks; their names. A hook nobody calls is an error."""
        plugins = self._load()
        from pluggy import PluginValidationError

        try:
            plugins.register(plugin, name)
        except (PluginValidationError, ValueError) as exc:
            why = one_line(str(exc), _MAX_TOLD_CHARS)
            raise UserError(f"plugin {name}: {why}", fix="docs/reference/hooks.md") from exc
        callers = plugins.get_hookcallers(plugin) or []
        try:
            for caller in callers:
                self._check(name, caller.name, caller.get_hookimpls(), known=caller.has_spec())
        except UserError:
            plugins.unregister(plugin)
            raise
        return tuple(caller.name for caller in callers)

    def unregister(self, name: str) -> None:
        """Forget a plugin."""
        if self._plugins:
            self._plugins.unregister(name=name)

    async def before_agent_start(
        self, where: Where, prompt: str, messages: Sequence[Message]
    ) -> str:
        """What hooks put before the prompt."""
        told = {"where": where, "prompt": prompt, "messages": tuple(messages)}
        answers = await self._ask_all("before_agent_start", told, str)
        return "\n\n".join(text for text in answers if text.strip())

    async def agent_end(
        self, where: Where, messages: Sequence[Message], error: str, duration_ms: int
    ) -> None:
        told = {"where": where, "messages": tuple(messages), "error": error}
        await self._tell("agent_end", {**told, "duration_ms": duration_ms})

    async def before_tool_call(self, where: Where, call: ToolCall) -> ToolCall | Refusal:
        """The call as hooks leave it, or the first no."""
        told: dict[str, object] = {"where": where, "call": call}
        for impl in self._impls("before_tool_call"):
            answer = await self._ask("before_tool_call", impl, told, Mapping, Refusal)
            if isinstance(answer, Refusal):
                return answer
            if isinstance(answer, Mapping):
                told["call"] = call = replace(call, args=dict(answer))
        return call

    async def after_tool_call(
        self, where: Where, call: ToolCall, result: ToolReturn, duration_ms: int
    ) -> None:
        told = {"where": where, "call": call, "result": result, "duration_ms": duration_ms}
        await self._tell("after_tool_call", told)

    async def before_compaction(self, where: Where, messages: int, tokens: int) -> None:
        told = {"where": where, "messages": messages, "tokens": tokens}
        await self._tell("before_compaction", told)

    async def after_compaction(self, where: Where, messages: int, tokens: int) -> None:
        told = {"where": where, "messages": messages, "tokens": tokens}
        await self._tell("after_compaction", told)

    async def message_received(self, where: Where, inbound: Inbound) -> None:
        await self._tell("message_received", {"where": where, "inbound": inbound})

    async def message_sending(self, outbound: Outbound) -> Outbound | Refusal:
        """The message as hooks leave it, or the first no. Where it goes is not theirs to change."""
        told: dict[str, object] = {"outbound": outbound}
        for impl in self._impls("message_sending"):
            answer = await self._ask("message_sending", impl, told, str, Refusal)
            if isinstance(answer, Refusal):
                return answer
            if isinstance(answer, str):
                told["outbound"] = outbound = replace(outbound, text=answer)
        return outbound

    async def message_sent(self, outbound: Outbound, error: str = "") -> None:
        await self._tell("message_sent", {"outbound": outbound, "error": error})

    async def session_start(self, where: Where, session_id: str, resumed_from: str = "") -> None:
        told = {"where": where, "session_id": session_id, "resumed_from": resumed_from}
        await self._tell("session_start", told)

    async def session_end(self, where: Where, session_id: str, messages: int) -> None:
        told = {"where": where, "session_id": session_id, "messages": messages}
        await self._tell("session_end", told)

    async def gateway_start(self, port: int) -> None:
        await self._tell("gateway_start", {"port": port})

    async def gateway_stop(self, reason: str) -> None:
        await self._tell("gateway_stop", {"reason": reason})

    async def agent_bootstrap(self, where: Where, files: Mapping[str, str]) -> Mapping[str, str]:
        """The files as hooks leave them."""
        told: dict[str, object] = {"where": where, "files": files}
        for impl in self._impls("agent_bootstrap"):
            answer = await self._ask("agent_bootstrap", impl, told, Mapping)
            if isinstance(answer, Mapping):
                told["files"] = files = {str(name): str(text) for name, text in answer.items()}
        return files

    async def command(self, where: Where, name: str, text: str = "") -> tuple[str, ...]:
        """Lines for whoever gave the command."""
        told = {"where": where, "name": name, "text": text}
        return tuple(line for line in await self._ask_all("command", told, str) if line.strip())

    async def gateway_startup(self) -> None:
        await self._tell("gateway_startup", {})

    def _load(self) -> "PluginManager":
        if self._plugins is None:
            from pluggy import PluginManager

            from homarus.plugins.hooks import PROJECT, Specs

            self._plugins = PluginManager(PROJECT)
            self._plugins.add_hookspecs(Specs)
        return self._plugins

    def _check(self, plugin: str, hook: str, impls: Sequence["HookImpl"], *, known: bool) -> None:
        if not known:
            names = [name for name in vars(self._load().hook) if self._is_spec(name)]
            raise UnknownName(f"hook in plugin {plugin}", hook, nearest(hook, names))
        if any(impl.wrapper or impl.hookwrapper for impl in impls):
            raise UserError(
                f"plugin {plugin}: {hook} is a wrapper, which is not called here",
                fix="write a plain hook, before or after",
            )

    def _is_spec(self, name: str) -> bool:
        return not name.startswith("_") and getattr(self._load().hook, name).has_spec()

    async def _tell(self, hook: str, told: Mapping[str, object]) -> None:
        for impl in self._impls(hook):
            await self._ask(hook, impl, told, object)

    async def _ask_all(self, hook: str, told: Mapping[str, object], kind: type[T]) -> list[T]:
        """Every answer of this kind."""
        answers = [await self._ask(hook, impl, told, kind) for impl in self._impls(hook)]
        return [answer for answer in answers if isinstance(answer, kind)]

    def _impls(self, hook: str) -> Sequence["HookImpl"]:
        """Who is asked, in order."""
        if self._plugins is None:
            return ()
        impls: list[HookImpl] = getattr(self._plugins.hook, hook).get_hookimpls()
        return sorted(impls, key=lambda impl: impl.trylast - impl.tryfirst)

    async def _ask(
        self, hook: str, impl: "HookImpl", told: Mapping[str, object], *kinds: type
    ) -> object:
        """One hook's answer; None when it failed, or gave something of another kind."""
        answer: object = None

        async def run() -> None:
            nonlocal answer
            async with asyncio.timeout(self._deadline_s):
                given = impl.function(*[told[name] for name in impl.argnames])
                answer = await given if inspect.isawaitable(given) else given

        def failed(exc: Exception) -> None:
            late = f"it took longer than {self._deadline_s:g} s"
            why = late if isinstance(exc, TimeoutError) else repr(exc)
            self._note(impl.plugin_name, hook, why)

        await contain(f"hook {hook} of plugin {impl.plugin_name}", run, failed)
        if answer is None or isinstance(answer, kinds):
            return answer
        wrong = f"it gave {type(answer).__name__}, not {' or '.join(k.__name__ for k in kinds)}"
        log.warning("hook %s of plugin %s: %s", hook, impl.plugin_name, wrong)
        self._note(impl.plugin_name, hook, wrong)
        return None

    def _note(self, plugin: str, hook: str, why: str) -> None:
        before = self._failures.get((plugin, hook))
        count = before.count + 1 if before else 1
        self._failures[plugin, hook] = Failure(plugin, hook, count, one_line(why, _MAX_TOLD_CHARS))
