"""Call the hooks of plugins one after another, each with a deadline and its errors contained.

    hooks = Hooks()
    hooks.register(Careful(), "careful")
    result = await hooks.before_tool_call(where, call)     # the call, or a Refusal

Without plugins a call costs one `if`: pluggy is imported when the first one is registered.
"""

import asyncio
import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from homarus.core.errors import UnknownNameError, UserError
from homarus.core.message import Inbound, Json, Message, Outbound, ToolCall, ToolResult
from homarus.core.tasks import run_contained
from homarus.core.text import closest_names, one_line
from homarus.plugins.values import HookContext, HookFailure, Refusal

if TYPE_CHECKING:
    from pluggy import HookImpl, PluginManager

log = logging.getLogger(__name__)

T = TypeVar("T")

DEADLINE_S = 10.0
_MAX_ERROR_CHARS = 200


class Hooks:
    """The hooks of all plugins; without plugins, each call returns its input."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._plugins: PluginManager | None = None
        self._failures: dict[tuple[str, str], HookFailure] = {}

    @property
    def is_empty(self) -> bool:
        """Return whether no plugin was ever registered."""
        return self._plugins is None

    @property
    def failures(self) -> tuple[HookFailure, ...]:
        """Return the hooks that failed, for `/status`."""
        return tuple(self._failures.values())

    def has(self, hook: str) -> bool:
        """Return whether any plugin implements a hook."""
        return bool(self._impls(hook))

    def register(self, plugin: object, name: str) -> tuple[str, ...]:
        """Register a plugin; return the names of its hooks. Raises UserError for an unknown one."""
        plugins = self._load()
        from pluggy import PluginValidationError

        try:
            plugins.register(plugin, name)
        except (PluginValidationError, ValueError) as exc:
            reason = one_line(str(exc), _MAX_ERROR_CHARS)
            raise UserError(f"plugin {name}: {reason}", fix="docs/reference/hooks.md") from exc
        callers = plugins.get_hookcallers(plugin) or []
        try:
            for caller in callers:
                self._check(name, caller.name, caller.get_hookimpls(), known=caller.has_spec())
        except UserError:
            plugins.unregister(plugin)
            raise
        return tuple(caller.name for caller in callers)

    def unregister(self, name: str) -> None:
        """Remove a plugin, if it is registered."""
        if self._plugins:
            self._plugins.unregister(name=name)

    async def before_agent_start(
        self, where: HookContext, prompt: str, messages: Sequence[Message]
    ) -> str:
        """Return the text that hooks put before the prompt."""
        args = {"where": where, "prompt": prompt, "messages": tuple(messages)}
        results = await self._collect("before_agent_start", args, str)
        return "\n\n".join(text for text in results if text.strip())

    async def agent_end(
        self, where: HookContext, messages: Sequence[Message], error: str, duration_ms: int
    ) -> None:
        args = {"where": where, "messages": tuple(messages), "error": error}
        await self._notify("agent_end", {**args, "duration_ms": duration_ms})

    async def before_tool_call(self, where: HookContext, call: ToolCall) -> ToolCall | Refusal:
        """Return the call as changed by the hooks, or the first Refusal."""
        args: dict[str, object] = {"where": where, "call": call}
        for impl in self._impls("before_tool_call"):
            result = await self._call("before_tool_call", impl, args, Mapping, Refusal)
            if isinstance(result, Refusal):
                return result
            if isinstance(result, Mapping):
                args["call"] = call = replace(call, args=dict(result))
        return call

    async def after_tool_call(
        self, where: HookContext, call: ToolCall, result: ToolResult, duration_ms: int
    ) -> None:
        args = {"where": where, "call": call, "result": result, "duration_ms": duration_ms}
        await self._notify("after_tool_call", args)

    async def before_compaction(self, where: HookContext, messages: int, tokens: int) -> None:
        args = {"where": where, "messages": messages, "tokens": tokens}
        await self._notify("before_compaction", args)

    async def after_compaction(self, where: HookContext, messages: int, tokens: int) -> None:
        args = {"where": where, "messages": messages, "tokens": tokens}
        await self._notify("after_compaction", args)

    async def message_received(self, where: HookContext, inbound: Inbound) -> None:
        await self._notify("message_received", {"where": where, "inbound": inbound})

    async def message_sending(self, outbound: Outbound) -> Outbound | Refusal:
        """Return the message with the text as changed by the hooks, or the first Refusal."""
        args: dict[str, object] = {"outbound": outbound}
        for impl in self._impls("message_sending"):
            result = await self._call("message_sending", impl, args, str, Refusal)
            if isinstance(result, Refusal):
                return result
            if isinstance(result, str):
                args["outbound"] = outbound = replace(outbound, text=result)
        return outbound

    async def message_sent(self, outbound: Outbound, error: str = "") -> None:
        await self._notify("message_sent", {"outbound": outbound, "error": error})

    async def session_start(
        self, where: HookContext, session_id: str, resumed_from: str = ""
    ) -> None:
        args = {"where": where, "session_id": session_id, "resumed_from": resumed_from}
        await self._notify("session_start", args)

    async def session_end(self, where: HookContext, session_id: str, messages: int) -> None:
        args = {"where": where, "session_id": session_id, "messages": messages}
        await self._notify("session_end", args)

    async def gateway_start(self, port: int) -> None:
        await self._notify("gateway_start", {"port": port})

    async def gateway_stop(self, reason: str) -> None:
        await self._notify("gateway_stop", {"reason": reason})

    async def agent_bootstrap(
        self, where: HookContext, files: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the files as changed by the hooks."""
        args: dict[str, object] = {"where": where, "files": files}
        for impl in self._impls("agent_bootstrap"):
            result = await self._call("agent_bootstrap", impl, args, Mapping)
            if isinstance(result, Mapping):
                args["files"] = files = {str(name): str(text) for name, text in result.items()}
        return files

    async def command(self, where: HookContext, name: str, text: str = "") -> tuple[str, ...]:
        """Return the lines that hooks add to the reply of a command."""
        args = {"where": where, "name": name, "text": text}
        return tuple(line for line in await self._collect("command", args, str) if line.strip())

    async def diagnostic_event(self, event: Mapping[str, Json]) -> None:
        await self._notify("diagnostic_event", {"event": event})

    async def gateway_startup(self) -> None:
        await self._notify("gateway_startup", {})

    def _load(self) -> "PluginManager":
        if self._plugins is None:
            from pluggy import PluginManager

            from homarus.plugins.hooks import PROJECT, HookSpecs

            self._plugins = PluginManager(PROJECT)
            self._plugins.add_hookspecs(HookSpecs)
        return self._plugins

    def _check(self, plugin: str, hook: str, impls: Sequence["HookImpl"], *, known: bool) -> None:
        if not known:
            names = [name for name in vars(self._load().hook) if self._is_spec(name)]
            raise UnknownNameError(f"hook in plugin {plugin}", hook, closest_names(hook, names))
        if any(impl.wrapper or impl.hookwrapper for impl in impls):
            raise UserError(
                f"plugin {plugin}: {hook} is a wrapper, which is not called here",
                fix="write a plain hook, before or after",
            )

    def _is_spec(self, name: str) -> bool:
        return not name.startswith("_") and getattr(self._load().hook, name).has_spec()

    async def _notify(self, hook: str, args: Mapping[str, object]) -> None:
        for impl in self._impls(hook):
            await self._call(hook, impl, args, object)

    async def _collect(self, hook: str, args: Mapping[str, object], kind: type[T]) -> list[T]:
        """Call every implementation of a hook; return the results of this type."""
        results = [await self._call(hook, impl, args, kind) for impl in self._impls(hook)]
        return [result for result in results if isinstance(result, kind)]

    def _impls(self, hook: str) -> Sequence["HookImpl"]:
        """Return the implementations of a hook in the order in which they are called."""
        if self._plugins is None:
            return ()
        impls: list[HookImpl] = getattr(self._plugins.hook, hook).get_hookimpls()
        return sorted(impls, key=lambda impl: impl.trylast - impl.tryfirst)

    async def _call(
        self, hook: str, impl: "HookImpl", args: Mapping[str, object], *kinds: type
    ) -> object:
        """Return the result of one hook; None if it failed or returned another type."""
        result: object = None

        async def run() -> None:
            nonlocal result
            async with asyncio.timeout(self._deadline_s):
                returned = impl.function(*[args[name] for name in impl.argnames])
                result = await returned if inspect.isawaitable(returned) else returned

        def failed(exc: Exception) -> None:
            late = f"it took longer than {self._deadline_s:g} s"
            error = late if isinstance(exc, TimeoutError) else repr(exc)
            self._record_failure(impl.plugin_name, hook, error)

        await run_contained(f"hook {hook} of plugin {impl.plugin_name}", run, failed)
        if result is None or isinstance(result, kinds):
            return result
        error = f"it gave {type(result).__name__}, not {' or '.join(k.__name__ for k in kinds)}"
        log.warning("hook %s of plugin %s: %s", hook, impl.plugin_name, error)
        self._record_failure(impl.plugin_name, hook, error)
        return None

    def _record_failure(self, plugin: str, hook: str, error: str) -> None:
        before = self._failures.get((plugin, hook))
        count = before.count + 1 if before else 1
        last = one_line(error, _MAX_ERROR_CHARS)
        self._failures[plugin, hook] = HookFailure(plugin, hook, count, last)
