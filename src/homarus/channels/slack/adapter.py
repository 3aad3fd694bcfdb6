"""The Slack channel: one bot in one workspace.

In socket mode an envelope is acknowledged after its message was stored, a press or a slash command
within three seconds. By HTTP, the response is the acknowledgement. After each connect, the messages
that were missed are read from the history. A message whose outcome is unknown is looked up by the
key in its metadata.
"""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from homarus.channels.base import (
    BeforeWrite,
    Capabilities,
    ChannelContext,
    InboundHandler,
    Receipt,
    WebhookRequest,
    WebhookResponse,
)
from homarus.channels.interactions import ACKNOWLEDGE_S, acknowledge_within
from homarus.channels.slack.api import SlackClient, SlackRefusedError
from homarus.channels.slack.directory import SlackDirectory
from homarus.channels.slack.emoji import emoji_name
from homarus.channels.slack.fields import as_object, get_int, get_object, get_objects, get_str
from homarus.channels.slack.inbound import SlackEventTranslator, SlackIdentity
from homarus.channels.slack.interactions import InteractionTranslator, parse_form
from homarus.channels.slack.missed_messages import SlackMissedMessages
from homarus.channels.slack.outbound import MAX_BUTTONS, edit_params
from homarus.channels.slack.reader import SlackEventReader
from homarus.channels.slack.sender import SlackMessageSender
from homarus.channels.slack.settings import SlackSettings, find_tokens, named_groups
from homarus.channels.slack.thread_history import ThreadHistory
from homarus.channels.slack.timestamps import require_ts
from homarus.channels.slack.traits import TRAITS
from homarus.core.chat_action import ChatAction
from homarus.core.errors import (
    ChannelAuthError,
    ChannelError,
    MediaTooLargeError,
    SendError,
    StoreError,
)
from homarus.core.message import Address, Json, Media, Outbound
from homarus.core.tasks import task_group
from homarus.core.text import one_line

if TYPE_CHECKING:  # slack-sdk is imported when an account connects
    from slack_sdk.socket_mode.request import SocketModeRequest

    from homarus.channels.slack.socket_mode import SocketConnection

log = logging.getLogger(__name__)

MIN_CONNECTION_S: Final = 5.0  # a shorter one counts as a failure: the next waits for a backoff
_NO_SOCKET: Final = "create an app token with connections:write, and switch on Socket Mode"
_MAX_REACTIONS: Final = 1_000


class SlackChannel:
    """One bot. See channels/base for what each method guarantees."""

    def __init__(self, context: ChannelContext, settings: SlackSettings) -> None:
        self.name, self.account = context.channel, context.account
        self.capabilities = Capabilities(
            text_limit=settings.text_limit,
            unit="utf16",
            dialect=TRAITS.dialect,
            caption_limit=settings.text_limit,
            media_max_bytes=settings.media_max_bytes,
            max_buttons=MAX_BUTTONS,
            has_file_buttons=False,
            retry=settings.retries,
        )
        self._on_chat_moved = context.on_chat_moved
        self._settings, self._clock = settings, context.clock
        self._tokens = find_tokens(settings, context.account, context.env)
        self._commands = frozenset(command.name.lower() for command in context.commands)
        self._skill_commands = context.skill_commands
        self._api = SlackClient(settings.api_root, self._tokens.bot)
        self._directory = SlackDirectory(self._api, context.clock)
        self._sender = SlackMessageSender(
            self._api, self._directory, context.clock, max_bytes=settings.media_max_bytes
        )
        self._me: SlackIdentity | None = None
        self._webhook: tuple[SlackEventReader, asyncio.TaskGroup] | None = (
            None  # while it is served
        )
        self._reactions: OrderedDict[tuple[str, str], set[str]] = OrderedDict()  # ours

    # Receiving

    async def run(self, receive: InboundHandler) -> None:
        async with self._api.in_use():
            me = await self._load_identity()
            await self._replace_names()
            reader = self._make_reader(receive, me)
            await reader.start()
            if self.path:
                await self._serve_webhook(reader, receive)
            else:
                await self._serve_socket(reader, receive)

    async def _load_identity(self) -> SlackIdentity:
        found = await self._api.call("auth.test")
        me = SlackIdentity(
            get_str(found, "user_id"),
            get_str(found, "bot_id"),
            get_str(found, "user"),
            get_str(found, "team_id"),
            get_str(found, "team"),
        )
        if not me.user:
            raise ChannelError("Slack did not say who we are")
        self._me = me
        return me

    async def _replace_names(self) -> None:
        """Have the config's names of channels replaced by their ids.

        Raises ChannelError when there are any: names can change, and the rules of a channel would
        be lost by that. The account starts with the changed config.
        """
        found = dict[str, str]()
        for name in named_groups(self._settings):
            try:
                found[name] = await self._directory.resolve_chat(f"#{name.removeprefix('#')}")
            except SendError as exc:
                if exc.retryable:
                    raise
                raise ChannelError(
                    f"channels.slack.channels: there is no channel {one_line(name, 80)!r}",
                    fix="write its id (C…): Slack shows it at the bottom of the channel's details",
                ) from exc
        for name, chat in found.items():
            self._on_chat_moved(name, chat)
        if found:
            ids = ", ".join(f"{one_line(name, 80)!r} is {chat}" for name, chat in found.items())
            raise ChannelError(
                f"channels.slack.channels has names, which can change: {ids}",
                fix="its ids replace them; where configWrites is false, write them yourself",
            )

    def _make_reader(self, receive: InboundHandler, me: SlackIdentity) -> SlackEventReader:
        events = SlackEventTranslator(self.name, self.account, me, self._directory, self._settings)
        limit = self._settings.thread.initial_history_limit
        return SlackEventReader(
            receive,
            self._clock,
            me,
            events=events,
            interactions=InteractionTranslator(events, self._commands, self._skill_commands),
            missed=SlackMissedMessages(self._api, self._directory, self._clock),
            threads=ThreadHistory(self._api, self._directory, me, limit),
        )

    async def _serve_socket(self, reader: SlackEventReader, receive: InboundHandler) -> None:
        from homarus.channels.slack.socket_mode import open_socket

        needs_all = True
        while True:
            url, opened_s = await self._socket_url(), self._clock.monotonic()
            async with open_socket(url, self._tokens.app) as socket:
                receive.mark_connected()
                has_read = await self._read_socket(socket, reader, needs_all=needs_all)
                reason = socket.reason
                # Without a reason, the network failed or the machine was asleep, for any time.
                needs_all = not reason or (needs_all and not has_read)
            if reason == "link_disabled":
                raise ChannelError("Socket Mode is switched off for this app", fix=_NO_SOCKET)
            if self._clock.monotonic() - opened_s < MIN_CONNECTION_S:
                raise ChannelError(f"Slack ended the connection: {reason or 'without a reason'}")

    async def _socket_url(self) -> str:
        try:
            opened = await self._api.call("apps.connections.open", token=self._tokens.app)
        except ChannelAuthError as exc:
            raise ChannelAuthError(f"the app token: {exc}", fix=_NO_SOCKET) from exc
        except SlackRefusedError as exc:
            raise ChannelError(str(exc), fix=_NO_SOCKET) from exc
        url = get_str(opened, "url")
        if not self._api.is_trusted(url, "wss"):
            raise ChannelError("Slack named a socket address that is not its own")
        return url

    async def _read_socket(
        self, socket: "SocketConnection", reader: SlackEventReader, *, needs_all: bool
    ) -> bool:
        """Handle events in order, and interactions beside them, as a person waits for those.

        Return whether what was missed was read to its end. Events wait until then. Those that still
        wait when the connection is lost were not acknowledged, and come again.
        """
        events: asyncio.Queue[SocketModeRequest] = asyncio.Queue()
        has_read = False

        async def handle_events() -> None:
            nonlocal has_read
            await reader.read_missed(needs_all=needs_all)
            has_read = True
            while True:
                request = await events.get()
                await reader.handle_callback(as_object(request.payload))
                await socket.acknowledge(request)

        async with task_group() as group:
            handling = group.create_task(handle_events(), name="Slack events")
            async for request in socket.requests():
                if request.type == "events_api":
                    events.put_nowait(request)
                else:
                    group.create_task(_interact(socket, reader, request), name="Slack interaction")
            handling.cancel()
        return has_read

    # Webhooks

    @property
    def path(self) -> str:
        return self._settings.path

    async def _serve_webhook(self, reader: SlackEventReader, receive: InboundHandler) -> None:
        async with task_group() as group:
            receive.mark_connected()
            await reader.read_missed(needs_all=True)
            self._webhook = reader, group
            try:
                await asyncio.Event().wait()
            finally:
                self._webhook = None

    def verify_request(self, request: WebhookRequest) -> bool:
        from homarus.channels.signatures import is_recent_slack

        is_post = bool(self.path) and request.method == "POST"
        return is_post and is_recent_slack(request.headers, self._clock.now_ms() / 1000)

    async def handle_webhook(self, request: WebhookRequest) -> WebhookResponse:
        from homarus.channels.signatures import verify_slack

        secret, now_s = self._tokens.signing, self._clock.now_ms() / 1000
        is_signed = verify_slack(request.headers, request.body, secret, now_s)
        if not (self.verify_request(request) and is_signed):
            return WebhookResponse(401)
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return await self._handle_form(parse_form(request.body))
        try:
            payload = as_object(json.loads(request.body))
        except (ValueError, RecursionError):
            return WebhookResponse(400)
        match payload.get("type"):
            case "url_verification":
                challenge = get_str(payload, "challenge").encode()
                return WebhookResponse(200, challenge, "text/plain; charset=utf-8")
            case "event_callback" if self._webhook:
                return await self._handle_callback(payload, self._webhook[0])
            case "event_callback":
                return WebhookResponse(503)
        return WebhookResponse() if payload else WebhookResponse(400)

    async def _handle_callback(
        self, payload: Mapping[str, Json], reader: SlackEventReader
    ) -> WebhookResponse:
        try:
            await reader.handle_callback(payload)
        except StoreError as exc:
            log.warning("an event could not be stored, Slack will send it again: %s", exc)
            return WebhookResponse(503)
        return WebhookResponse()

    async def _handle_form(self, payload: Mapping[str, Json] | None) -> WebhookResponse:
        """Handle an interaction; the response does not wait longer than Slack does."""
        if payload is None:
            return WebhookResponse(400)
        if self._webhook is None:
            return WebhookResponse(503)
        reader, group = self._webhook
        handled = group.create_task(_handle_interaction(reader, payload))
        await asyncio.wait({handled}, timeout=ACKNOWLEDGE_S)
        is_lost = handled.done() and not handled.cancelled() and not handled.result()
        return WebhookResponse(503 if is_lost else 200)

    # Sending

    async def send(self, message: Outbound) -> Receipt:
        return await self.send_marked(message)

    async def send_marked(
        self, message: Outbound, before_write: BeforeWrite | None = None
    ) -> Receipt:
        async with self._api.in_use():
            return await self._sender.send(message, before_write)

    async def look_up(self, message: Outbound) -> Receipt | None:
        async with self._api.in_use():
            return await self._sender.look_up(message)

    async def edit(self, to: Address, message_id: str, text: str) -> None:
        chat = await self._directory.resolve_chat(to.chat)
        await self._api.call("chat.update", edit_params(to, chat, message_id, Outbound(to, text)))

    async def delete(self, to: Address, message_id: str) -> None:
        chat = await self._directory.resolve_chat(to.chat)
        await self._api.call("chat.delete", {"channel": chat, "ts": require_ts(message_id, to)})

    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        chat, ts = await self._directory.resolve_chat(to.chat), require_ts(message_id, to)
        if not emoji:
            await self._remove_reactions(chat, ts)
            return
        if not (name := emoji_name(emoji)):
            raise SendError(
                f"{emoji!r} is no reaction of Slack", retryable=False, fix="use its name: :eyes:"
            )
        try:
            await self._api.call("reactions.add", _reaction(chat, ts, name))
        except SlackRefusedError as exc:
            if exc.error != "already_reacted":
                raise
        self._reactions.setdefault((chat, ts), set()).add(name)
        while len(self._reactions) > _MAX_REACTIONS:
            self._reactions.popitem(last=False)

    async def _remove_reactions(self, chat: str, ts: str) -> None:
        """Remove our reactions; those of an earlier process are those that Slack lists."""
        names = self._reactions.pop((chat, ts), None)
        if names is None:
            me = self._me or await self._load_identity()
            found = await self._api.call(
                "reactions.get", {"channel": chat, "timestamp": ts, "full": True}
            )
            listed = get_objects(get_object(found, "message"), "reactions")
            names = {get_str(one, "name") for one in listed if me.user in (one.get("users") or ())}
        for name in sorted(names):
            try:
                await self._api.call("reactions.remove", _reaction(chat, ts, name))
            except SlackRefusedError as exc:
                if exc.error not in {"no_reaction", "message_not_found"}:
                    raise

    async def run_chat_action(self, to: Address, action: ChatAction) -> dict[str, Json]:
        from homarus.channels.slack.chat_actions import ActionServices, run_chat_action

        async with self._api.in_use():
            services = ActionServices(
                self._api,
                self._directory,
                self._sender,
                self._me or await self._load_identity(),
                self._tokens.user,
            )
            return await run_chat_action(services, to, action)

    # Files and health

    async def fetch(self, media: Media, max_bytes: int) -> bytes:
        if media.size > max_bytes:
            raise _too_large(media.size, max_bytes)
        file = get_object(await self._api.call("files.info", {"file": media.ref}), "file")
        if (size := get_int(file, "size")) > max_bytes:
            raise _too_large(size, max_bytes)
        url = get_str(file, "url_private_download") or get_str(file, "url_private")
        if not url:
            raise ChannelError("Slack does not give the file: it has no address")
        return await self._api.download(url, max_bytes)

    async def probe(self) -> str:
        me = await self._load_identity()
        return f"@{me.name} in {me.team_name}" if me.team_name else f"@{me.name}"


async def _interact(
    socket: "SocketConnection", reader: SlackEventReader, request: "SocketModeRequest"
) -> None:
    """Handle a press or a slash command; it is acknowledged in time, for every sender."""
    work = reader.handle_interaction(as_object(request.payload))
    await acknowledge_within(work, lambda: socket.acknowledge(request))


async def _handle_interaction(reader: SlackEventReader, payload: Mapping[str, Json]) -> bool:
    """Return whether an interaction was handled; False when it could not be stored."""
    try:
        await reader.handle_interaction(payload)
    except StoreError as exc:
        log.warning("an interaction of Slack could not be stored: %s", exc)
        return False
    return True


def _too_large(size: int, max_bytes: int) -> MediaTooLargeError:
    return MediaTooLargeError(f"the file has {size} bytes, and {max_bytes} is the most")


def _reaction(chat: str, ts: str, name: str) -> dict[str, Json]:
    return {"channel": chat, "timestamp": ts, "name": name}
