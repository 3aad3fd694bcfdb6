"""The HTTP endpoint of webhooks: who may call it, with what, and what is answered.

The secret is checked before a byte of the body is read. A webhook of GitHub is signed instead, so
its body is read first: at most `hooks.maxBodyBytes`, within seconds, and of a few requests at once.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from homarus.channels.signatures import verify_github
from homarus.config.gateway_schema import RateLimitConfig
from homarus.config.hooks_schema import HooksConfig
from homarus.config.paths import Paths
from homarus.core.errors import InvalidRequestError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.tasks import run_contained
from homarus.gateway.auth import same_secret
from homarus.gateway.auth_rate_limiter import AuthRateLimiter, ClientSource
from homarus.gateway.hooks.actions import agent_action, mapped_action, wake_action
from homarus.gateway.hooks.dispatcher import HookResponse, HookServices, WebhookDispatcher
from homarus.gateway.hooks.github_events import PING
from homarus.gateway.hooks.gmail_messages import PATH as GMAIL_PATH
from homarus.gateway.hooks.gmail_messages import delivery_id, limit_mails
from homarus.gateway.hooks.payload import (
    FORM_KIND,
    JSON_KIND,
    DeliveryId,
    decode_payload,
    delivery_from_headers,
    delivery_key,
    parse_query,
    public_headers,
)
from homarus.gateway.hooks.refusal import HookCounters, HookRefusedError, RefusalReason
from homarus.gateway.hooks.settings import (
    OWN_PATHS,
    HookMapping,
    HookSettings,
    resolve_hook_settings,
)
from homarus.gateway.hooks.templates import HookValues
from homarus.gateway.hooks.transforms import TransformRunner
from homarus.gateway.origin_policy import OriginPolicy, RequestBlockedError, RequestInfo
from homarus.gateway.request_body import check_body_headers, joined_headers, read_body

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)

# Failed secrets of one address, and for how long it is then refused; this machine has no exception,
# because a proxy on it makes every client local.
AUTH_LIMITS: Final = RateLimitConfig.model_construct(
    max_attempts=20, window_ms=60_000, lockout_ms=60_000, exempt_loopback=False
)
BODY_TIMEOUT_S: Final = 8.0
HANDLE_TIMEOUT_S: Final = 30.0
MAX_LIVE: Final = 64  # requests whose body is being read or handled
MAX_LIVE_UNVERIFIED: Final = 16  # of them, those whose signature is checked after the body
_LOG_INTERVAL_S: Final = 60.0
_SIGNATURE: Final = re.compile(r"sha256=[0-9a-f]{64}", re.ASCII)
_GITHUB_PATH: Final = "github"
_REASONS: Final[Mapping[int, RefusalReason]] = {
    400: "shape", 408: "body", 413: "too-large", 414: "shape", 415: "media-type", 503: "busy",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _ReceivedHook:
    """An authentic request; `path` is the one below `hooks.path`."""

    path: str
    headers: Mapping[str, str]
    query: bytes
    body: bytes
    is_signed: bool


class HookEndpoint:
    """Answers requests below `hooks.path`."""

    def __init__(
        self,
        services: HookServices,
        policy: OriginPolicy,
        paths: Paths,
        *,
        body_timeout_s: float = BODY_TIMEOUT_S,
        handle_timeout_s: float = HANDLE_TIMEOUT_S,
    ) -> None:
        self._services, self._policy, self._paths = services, policy, paths
        self._body_timeout_s, self._handle_timeout_s = body_timeout_s, handle_timeout_s
        self.counters = HookCounters()
        self._dispatcher, self._transforms = WebhookDispatcher(services), TransformRunner()
        self._limiter = AuthRateLimiter(services.clock, AUTH_LIMITS)
        self._live = self._unverified = 0
        self._logged_s = -_LOG_INTERVAL_S
        self._resolved: tuple[HooksConfig, HookSettings] | None = None

    @property
    def settings(self) -> HookSettings:
        """The settings of the config in use."""
        hooks = self._services.get_config().hooks
        if self._resolved is None or self._resolved[0] is not hooks:
            self._resolved = hooks, resolve_hook_settings(hooks, self._paths)
        return self._resolved[1]

    async def handle(
        self, request: RequestInfo, scope: "Scope", receive: "Receive", send: "Send"
    ) -> tuple[str, ...]:
        """Answer one request; a refusal is an answer too. Returns why it was refused."""
        try:
            response = await self._answer(request, scope, receive)
        except RequestBlockedError as exc:
            await self._refuse(exc, send)
            return (str(exc),)
        if response is None:  # the client is gone
            return ()
        if response.is_duplicate:
            self.counters.duplicates += 1
        elif response.status == 202 or "mode" in (response.body or {}):
            self.counters.accepted += 1
        else:
            self.counters.ignored += 1
        await _send_json(send, response.status, response.body)
        return ()

    async def _refuse(self, exc: RequestBlockedError, send: "Send") -> None:
        reason = exc.reason if isinstance(exc, HookRefusedError) else _REASONS.get(exc.status)
        self.counters.refused[reason or "shape"] += 1
        self._log_refusal(exc)
        headers = {"Retry-After": str(exc.after_s)} if exc.after_s else {}
        if exc.status == 405:
            headers["Allow"] = "POST"
        if exc.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if exc.status == 400:  # the rest of its input cannot be trusted
            headers["Connection"] = "close"
        await _send_json(send, exc.status, {"ok": False, "error": str(exc)}, headers)

    def _log_refusal(self, exc: RequestBlockedError) -> None:
        """Log a refusal, one in a minute: a flood of them must not fill the disk."""
        now_s = self._services.clock.monotonic()
        if now_s - self._logged_s >= _LOG_INTERVAL_S:
            self._logged_s = now_s
            log.warning("a webhook was refused with status %d: %s", exc.status, exc.message)

    async def _answer(
        self, request: RequestInfo, scope: "Scope", receive: "Receive"
    ) -> HookResponse | None:
        self._policy.check_shape(request)
        if scope["method"] != "POST":
            raise HookRefusedError(405, "method", "hooks are called with POST")
        if request.is_browser:
            raise HookRefusedError(403, "browser", "a page may not call this")
        settings = self.settings
        path = _subpath(scope, settings.path)
        is_signed = (
            path == _GITHUB_PATH
            and bool(settings.github_secret)
            and ("x-hub-signature-256" in request.headers)
        )
        source = ClientSource.from_request(request, self._policy, "hook-token")
        self._check_secret(settings, request, source, is_signed=is_signed)
        if path not in OWN_PATHS and not settings.find_mappings(path):
            raise HookRefusedError(404, "path", "there is no such hook")
        headers = joined_headers(scope)
        kinds = {JSON_KIND, FORM_KIND} if path == _GITHUB_PATH else {JSON_KIND}
        check_body_headers(headers, kinds, settings.max_body_bytes)
        body = await self._read(receive, settings, is_signed=is_signed)
        if body is None:
            return None
        if is_signed:
            self._check_signature(settings, headers, body, source)
        query = scope.get("query_string", b"")
        received = _ReceivedHook(path, headers, query, body, is_signed)
        return await self._contain(lambda: self._handle(received))

    def _check_secret(
        self,
        settings: HookSettings,
        request: RequestInfo,
        source: ClientSource,
        *,
        is_signed: bool,
    ) -> None:
        """Check the token, or the form of a signature; raises HookRefusedError (401, 429)."""
        wait_ms = self._limiter.retry_after_ms(source)
        if wait_ms:
            message = "too many requests with a wrong secret"
            raise HookRefusedError(429, "rate-limit", message, after_s=-(-wait_ms // 1000))
        if is_signed:
            if _SIGNATURE.fullmatch(request.header("x-hub-signature-256")):
                return
        elif same_secret(_find_token(request), settings.token):
            self._limiter.reset(source)
            return
        raise self._unauthorized(source)

    def _check_signature(
        self, settings: HookSettings, headers: Mapping[str, str], body: bytes, source: ClientSource
    ) -> None:
        if verify_github(headers, body, settings.github_secret) is None:
            raise self._unauthorized(source)
        self._limiter.reset(source)

    def _unauthorized(self, source: ClientSource) -> HookRefusedError:
        self._limiter.record_failure(source)
        return HookRefusedError(401, "auth", "unauthorized")

    async def _read(
        self, receive: "Receive", settings: HookSettings, *, is_signed: bool
    ) -> bytes | None:
        is_full = is_signed and self._unverified >= MAX_LIVE_UNVERIFIED
        if self._live >= MAX_LIVE or is_full:
            raise HookRefusedError(503, "busy", "too many requests at once", after_s=1)
        self._live += 1
        self._unverified += is_signed
        try:
            return await read_body(receive, settings.max_body_bytes, self._body_timeout_s)
        finally:
            self._live -= 1
            self._unverified -= is_signed

    async def _contain(self, handle: Callable[[], Awaitable[HookResponse]]) -> HookResponse:
        """Return the response to a request; a bug of ours is logged, and answered with 500."""
        found: HookResponse | RequestBlockedError = HookResponse(500, {"ok": False})

        async def run() -> None:
            nonlocal found
            try:
                async with asyncio.timeout(self._handle_timeout_s):
                    found = await handle()
            except RequestBlockedError as exc:
                found = exc
            except InvalidRequestError as exc:
                found = HookRefusedError(400, "body", exc.message, fix=exc.fix)
            except TimeoutError:
                message = f"it could not be stored within {self._handle_timeout_s:g} s"
                found = HookRefusedError(503, "store", message, after_s=5)

        self._live += 1
        try:
            await run_contained("webhook", run, lambda _exc: None)
        finally:
            self._live -= 1
        if isinstance(found, RequestBlockedError):
            raise found
        return found

    async def _handle(self, received: _ReceivedHook) -> HookResponse:
        settings, path, headers = self.settings, received.path, received.headers
        payload = decode_payload(headers, received.body)
        delivery = delivery_from_headers(path, headers, received.body, is_signed=received.is_signed)
        if path == "wake":
            return await self._dispatcher.dispatch(wake_action(payload), settings, delivery)
        if path == "agent":
            return await self._dispatcher.dispatch(agent_action(payload), settings, delivery)
        if path == GMAIL_PATH:
            payload = limit_mails(payload, settings.gmail)
            if found := delivery_id(payload):
                delivery = DeliveryId((delivery_key(path, "gmail", found),))
        values = HookValues(
            payload, public_headers(headers), parse_query(received.query), path,
            self._services.clock.now_ms(),
        )  # fmt: skip
        mapping = _find_mapping(settings, path, payload)
        return await self._map(mapping, values, delivery)

    async def _map(
        self, mapping: HookMapping, values: HookValues, delivery: DeliveryId
    ) -> HookResponse:
        """Do what a mapping says; a transform that returns nothing is answered with 204."""
        if mapping.preset == "github" and values.headers.get("x-github-event") == PING:
            return HookResponse(200, {"ok": True, "event": PING})
        settings, changes = self.settings, dict[str, Json]()
        if transform := mapping.config.transform:
            found = await self._transforms.run(
                settings.transforms, transform.module, transform.export or "", values
            )
            if found is None:
                return HookResponse(204)
            changes = found
        try:
            action = mapped_action(mapping, values, settings, changes)
        except InvalidRequestError as exc:
            raise HookRefusedError(400, "template", exc.message, fix=exc.fix) from None
        return await self._dispatcher.dispatch(action, settings, delivery)


def _subpath(scope: "Scope", base: str) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").removeprefix(base).strip("/")


def _find_token(request: RequestInfo) -> str:
    scheme, _, given = request.authorization.partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    return request.header("x-openclaw-token")


def _find_mapping(settings: HookSettings, path: str, payload: Mapping[str, Json]) -> HookMapping:
    for mapping in settings.find_mappings(path):
        wanted = mapping.config.match.source
        if not wanted or payload.get("source") == wanted:
            return mapping
    raise HookRefusedError(404, "path", "there is no such hook")


async def _send_json(
    send: "Send",
    status: int,
    body: Mapping[str, Json] | None,
    headers: Mapping[str, str] | None = None,
) -> None:
    data = b"" if body is None else json.dumps(dict(body)).encode("ascii")
    given = {"Cache-Control": "no-store", **(headers or {})}
    if body is not None:
        given["Content-Type"] = JSON_KIND
    if status != 204:
        given["Content-Length"] = str(len(data))
    raw = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": data})
