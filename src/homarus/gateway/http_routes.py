"""The plain HTTP routes: the control UI, `/health` and, when enabled, the endpoints for programs.

The UI's files are a fixed list, served with the strictest content security policy; an installation
without a built UI serves the plain chat page. Files are read for each request and not kept in
memory; a browser that has the current version gets a 304. Imported with the first request that is
not for a WebSocket.
"""

import asyncio
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from homarus.gateway.http_api.api_routes import find_api_route
from homarus.gateway.origin_policy import RequestBlockedError, RequestInfo
from homarus.gateway.server import Gateway
from homarus.gateway.ui_files import UiFiles

if TYPE_CHECKING:
    from homarus.gateway.http_api.application import HttpApi

_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_PAGE_PATHS: Final = ("/", "/chat")  # the addresses of the page in OpenClaw's links
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src 'self' data: blob:; media-src 'self' blob:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class HttpRoutes:
    """The ASGI application behind the origin policy."""

    def __init__(self, gateway: Gateway, *, page: bool, metrics: bool, mcp: bool) -> None:
        self._gateway = gateway
        routes = [Route("/health", self._health), Route("/healthz", self._health)]
        if metrics:
            routes.append(Route("/metrics", self._metrics))
        if mcp:
            from homarus.gateway.mcp_server.http_endpoint import McpEndpoint

            routes.append(Route("/mcp", McpEndpoint(gateway)))
        if page:
            ui = UiFiles.find()
            routes += self._ui_routes(ui) if ui else self._chat_page_routes()
            routes.append(Route("/avatar/{agent}", self._avatar))
        self._router = Router(routes, default=self._not_found, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if found := find_api_route(scope["path"]):
            await self._api.handle(*found, scope, receive, send)
        else:
            await self._router(scope, receive, send)

    @cached_property
    def _api(self) -> "HttpApi":
        # Imported with the first request to one of its paths.
        from homarus.gateway.http_api.application import HttpApi

        return HttpApi(self._gateway)

    def _ui_routes(self, ui: UiFiles) -> list[Route]:
        async def respond_with_page(request: Request) -> Response:
            return ui.respond_with_index(request, _HEADERS)

        async def respond_with_asset(request: Request) -> Response:
            name = str(request.path_params["name"])
            if found := ui.respond_with_asset(name, request, _HEADERS):
                return found
            self._gateway.authenticator.check_bearer(RequestInfo.from_scope(request.scope))
            return PlainTextResponse("Not Found", 404, _HEADERS)

        pages = [Route(path, respond_with_page) for path in ui.pages()]
        return [*pages, Route("/assets/{name}", respond_with_asset)]

    def _chat_page_routes(self) -> list[Route]:
        paths = [*(f"/{name}" for name in page_files()), *_PAGE_PATHS]
        return [Route(path, self._page) for path in paths]

    async def redirect_to_https(
        self, request: RequestInfo, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a plain request to a port with TLS; nothing else is served without encryption."""
        policy = self._gateway.authenticator.origin_policy
        policy.check_shape(request)
        is_page = scope["type"] == "http" and scope["method"] in {"GET", "HEAD"}
        if not is_page or not policy.is_own_host(request):
            raise RequestBlockedError(
                426, "this gateway speaks TLS alone", fix="use https:// or wss:// on this port"
            )
        path: bytes = scope.get("raw_path") or b"/"
        location = f"https://{request.host}{quote(path.decode('latin-1'), safe='/%')}"
        # The fragment with the token is not sent to any server: the browser keeps it.
        response = Response(status_code=307, headers={**_HEADERS, "Location": location})
        await response(scope, receive, send)

    async def send_error(
        self, barred: RequestBlockedError, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send an error to a plain request or to a WebSocket upgrade."""
        headers = {**_HEADERS, **({"Retry-After": str(barred.after_s)} if barred.after_s else {})}
        kind = "unauthorized" if barred.status == 401 else "forbidden"
        body = {"error": {"message": str(barred), "type": kind}}
        if barred.status == 405:
            headers |= {"Allow": "POST"}
        if barred.status == 426:
            headers |= {"Upgrade": "TLS/1.3", "Connection": "close"}
        response = JSONResponse(body, barred.status, headers)
        if scope["type"] == "http":
            if barred.status == 400:  # the rest of its input cannot be trusted
                response.headers["Connection"] = "close"
            await response(scope, receive, send)
            return
        await receive()
        start = {"status": barred.status, "headers": response.raw_headers}
        await send({"type": "websocket.http.response.start", **start})
        await send({"type": "websocket.http.response.body", "body": response.body})

    async def _health(self, _request: Request) -> Response:
        gateway, state = self._gateway, "live"
        if not gateway.ready.is_set():
            state = "starting"
        elif await gateway.disk.check(gateway.services.store):
            state = "disk"  # why is for those who may read `health`
        elif gateway.monitor.is_stalled:
            state = "blocked"
        ok = state == "live"
        return JSONResponse({"ok": ok, "status": state}, 200 if ok else 503, _HEADERS)

    async def _metrics(self, request: Request) -> Response:
        from homarus.gateway.metrics import metrics_text

        self._gateway.authenticator.check_bearer(RequestInfo.from_scope(request.scope))
        kind = "text/plain; version=0.0.4"
        text = await metrics_text(self._gateway)
        return PlainTextResponse(text, headers=_HEADERS, media_type=kind)

    async def _page(self, request: Request) -> Response:
        path = request.url.path
        name = "index.html" if path in _PAGE_PATHS else path.lstrip("/")
        data = (_STATIC / name).read_bytes()
        # `no-cache`: a browser asks each time, so that an update of the gateway is seen at once.
        tag = f'"{sha256(data).hexdigest()[:16]}"'
        headers = {**_HEADERS, "Cache-Control": "no-cache", "ETag": tag, "Vary": "Accept-Encoding"}
        seen = request.headers.get("if-none-match", "")
        if tag in (each.strip().removeprefix("W/") for each in seen.split(",")):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            from gzip import compress

            data = compress(data, mtime=0)
            headers |= {"Content-Encoding": "gzip", "ETag": f"W/{tag}"}
        return Response(data, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])

    async def _avatar(self, request: Request) -> Response:
        from homarus.gateway.avatars import find_avatar

        name = str(request.path_params["agent"])
        picture = None
        if self._gateway.ready.is_set():
            picture = await asyncio.to_thread(find_avatar, self._gateway.services, name)
        if picture is None:
            self._gateway.authenticator.check_bearer(RequestInfo.from_scope(request.scope))
            return PlainTextResponse("Not Found", 404, _HEADERS)
        return Response(picture.data, headers=_HEADERS, media_type=picture.mime)

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer any other path: protected, whatever its spelling, and then 404."""
        self._gateway.authenticator.check_bearer(RequestInfo.from_scope(scope))
        await PlainTextResponse("Not Found", 404, _HEADERS)(scope, receive, send)


def page_files() -> list[str]:
    """Return the files of the plain chat page that may be requested."""
    folder = _STATIC
    if not folder.is_dir():
        return []
    return sorted(f.name for f in folder.iterdir() if f.name.rpartition(".")[2] in _TYPES)
