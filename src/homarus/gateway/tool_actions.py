"""What the `gateway` tool does: by the rules for the owner's chats, and after its run's answer."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Final, Literal

from homarus import __version__
from homarus.agent.commands.config import target_accounts
from homarus.agent.restart_note import save_restart_note
from homarus.config import json5_document
from homarus.config.change_log import changes_by
from homarus.config.group_migration import check_config_writes
from homarus.config.tree_edit import apply_merge_patch, differing_paths, get_path, parse_path
from homarus.core.errors import (
    ConfigError,
    ConflictError,
    ToolDeniedError,
    ToolError,
    UserError,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.installation import find_installation
from homarus.core.message import Address, Json, Text
from homarus.core.text import clip_middle, one_line
from homarus.gateway.chat_changes import ChatConfigEdits
from homarus.gateway.config_view import describe_config, describe_section_schema
from homarus.gateway.config_watch import reload_rule
from homarus.gateway.services import GatewayServices
from homarus.policy.audience import session_readers
from homarus.tools.tool import ToolContext, ToolOutput

MAX_SHOWN_CHARS: Final = 20_000
MAX_SCHEMA_CHARS: Final = 12_000
DEFAULT_DELAY_MS: Final = 2_000
_DELIVERY_TIMEOUT_S: Final = 30.0  # how long a restart waits for the answer's delivery
_POLL_S: Final = 0.1
_ACTIVE: Final = ("pending", "sending")


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """The parsed arguments of one call; `note` is for the person, after a restart."""

    action: str
    path: str = ""
    raw: str = ""
    base_hash: str | None = None
    session_key: str = ""
    note: str = ""
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GatewayActions:
    """The actions of the tool on one program; `get_restart` returns None without a gateway."""

    services: GatewayServices
    edits: ChatConfigEdits
    get_restart: Callable[[], Callable[[], None] | None]
    start_task: Callable[[Coroutine[None, None, None]], None]

    async def run(self, ctx: ToolContext, request: GatewayRequest) -> ToolOutput:
        """Perform one action. Raises ToolError and ToolDeniedError."""
        try:
            match request.action:
                case "config.get":
                    return self._show_config(ctx, request)
                case "config.schema":
                    return await asyncio.to_thread(self._show_schema, request)
                case "config.patch":
                    return await self._change(ctx, request, "config-patch")
                case "config.apply":
                    return await self._change(ctx, request, "config-apply")
                case "restart":
                    return await self._restart(ctx, request)
                case _:
                    return _update_status()
        except ConflictError:
            raise ToolError(
                "the config was changed since it was read", fix="call config.get and repeat"
            ) from None
        except ConfigError as exc:
            raise ToolError(f"the config was not changed: {exc}") from None
        except UserError as exc:
            raise ToolDeniedError(exc.message, fix=exc.fix) from None

    def _show_config(self, ctx: ToolContext, request: GatewayRequest) -> ToolOutput:
        if session_readers(ctx.session_key) == "others":
            raise ToolDeniedError("the config is shown only where no other people read")
        view = describe_config(self.services)
        shown: Json = view["parsed"]
        if request.path:
            try:
                shown = get_path(shown, parse_path(request.path))
            except LookupError:
                raise ToolError(
                    f"{one_line(request.path, 120)} is not set", fix="config.schema lists settings"
                ) from None
        facts = {name: view.get(name) for name in ("path", "hash", "valid", "issues")}
        return _output({**facts, "config": shown}, MAX_SHOWN_CHARS)

    def _show_schema(self, request: GatewayRequest) -> ToolOutput:
        schema = describe_section_schema(request.path, MAX_SCHEMA_CHARS)
        return _output({"schema": schema}, MAX_SHOWN_CHARS)

    async def _change(
        self,
        ctx: ToolContext,
        request: GatewayRequest,
        kind: Literal["config-patch", "config-apply"],
    ) -> ToolOutput:
        """Write the files by the rule for chats; the config is in use a moment later."""
        given = _parse(request.raw)
        if kind == "config-apply" and not request.base_hash:
            raise ToolError("config.apply replaces everything", fix="give baseHash of config.get")
        config, chat = self.services.loaded.config, ctx.here or Address("", "")

        def change(own: dict[str, Json]) -> Json:
            new = given
            if kind == "config-patch":
                new = apply_merge_patch(own, given, merge_object_arrays_by_id=True)
            for path in differing_paths(own, new):
                for channel, account in target_accounts(path):
                    check_config_writes(config, channel, account)
            return new

        with changes_by(_describe_author(ctx)):
            written = await self.edits.write(chat, change, base_hash=request.base_hash)
        restarts = any(reload_rule(path) == "restart" for path in written.changed)
        mode = config.gateway.reload.mode
        is_restarted = restarts and mode in {"hybrid", "restart"} and bool(self.get_restart())
        if is_restarted:
            await self._save_note(ctx, request, "The gateway was restarted with the new config.")
        if written.changed:
            self.edits.apply()
        return _output(
            {
                "ok": True,
                "kind": kind,
                "hash": written.hash,
                "changed": list(written.changed),
                "withoutEffect": list(written.unbuilt),
                "restart": is_restarted,
            },
            MAX_SHOWN_CHARS,
        )

    async def _restart(self, ctx: ToolContext, request: GatewayRequest) -> ToolOutput:
        restart = self.get_restart()
        if not self.services.loaded.config.commands.restart:
            raise ToolDeniedError("restarts are switched off", fix="set commands.restart to true")
        if restart is None:
            raise ToolError("there is no gateway to restart here")
        await self._save_note(ctx, request, "The gateway was restarted.")
        delay_ms = DEFAULT_DELAY_MS if request.delay_ms is None else request.delay_ms
        self.start_task(self._restart_after_answer(ctx.run_id, delay_ms / 1000, restart))
        text = "The gateway restarts once your answer is delivered. Do not call this again."
        return ToolOutput((Text(text),), {"ok": True, "delayMs": delay_ms})

    async def _restart_after_answer(
        self, run_id: str, delay_s: float, restart: Callable[[], None]
    ) -> None:
        """Restart after the run has ended and its answer was sent, or could not be for a while."""
        clock, control = self.services.clock, self.services.control
        while run_id in control.active_runs():
            await clock.sleep(_POLL_S)
        deadline_s = clock.monotonic() + _DELIVERY_TIMEOUT_S
        while clock.monotonic() < deadline_s:
            waiting = await self.services.store.journal.outbox_records(*_ACTIVE)
            if not any(record.run == run_id for record in waiting):
                break
            await clock.sleep(_POLL_S)
        await clock.sleep(delay_s)
        restart()

    async def _save_note(self, ctx: ToolContext, request: GatewayRequest, text: str) -> None:
        """Save what the person is told after the restart, in the chat that asked for it."""
        key, chat = ctx.session_key, ctx.here
        if request.session_key and request.session_key != key:
            from homarus.sessions.last_route import last_chat

            key = self.services.control.resolve_key(request.session_key, ctx.agent)
            record = await self.services.store.session(key)
            if record is None or record.agent != ctx.agent:
                raise ToolError(f"there is no session {one_line(key, 120)}", fix="leave it out")
            chat = last_chat(record.data)
        note = f"{text} {request.note}" if request.note else text
        now_ms = self.services.clock.now_ms()
        await save_restart_note(self.services.store, key, chat, note, now_ms)


def _describe_author(ctx: ToolContext) -> str:
    sender = f"{ctx.caller.channel}:{ctx.caller.sender}"
    return f"agent {ctx.agent} for {sender}"


def _parse(raw: str) -> dict[str, Json]:
    if not raw.strip():
        raise ToolError("there is no config in the call", fix="give raw, as JSON5")
    try:
        tree = json5_document.to_plain(json5_document.parse_json5(raw, "raw"))
    except ConfigError as exc:
        raise ToolError(f"raw cannot be read: {exc.reason}", fix="give a JSON5 object") from None
    if not isinstance(tree, dict):
        raise ToolError(
            "raw is not an object", fix='for example {"messages": {"ackReaction": "👀"}}'
        )
    return tree


def _update_status() -> ToolOutput:
    installed = find_installation()
    return _output(
        {
            "status": "not run",
            "version": __version__,
            "installedBy": installed.tool,
            "command": installed.update,
            "note": "Updates are run by the person, who then restarts the gateway.",
        },
        MAX_SHOWN_CHARS,
    )


def _output(shown: dict[str, Json], max_chars: int) -> ToolOutput:
    text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    return ToolOutput((Text(clip_middle(text, max_chars)),))
