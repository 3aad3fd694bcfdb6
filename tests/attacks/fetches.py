"""`ssrf`: URLs that a model is given, fetched with stubs of the resolver and of the servers.

Each is also fetched by calls of `web_fetch` and `image` and by an action of a skill, and requested
of two proxies: that of sandboxes, by a command whose settings allow its host, and that of the
browser's connections.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import h11

from homarus.config.schema import Config
from homarus.core.clock import SystemClock
from homarus.core.errors import BlockedUrlError, ToolError
from homarus.core.message import ToolResult
from homarus.net.allow_proxy import AllowProxy, OpenStream
from homarus.net.guard import CheckedTarget, NetworkPolicy, Resolve
from homarus.net.guard_proxy import GuardProxy
from homarus.net.guarded_fetch import FetchLimits, guarded_fetch
from homarus.net.guarded_stream import Stream
from homarus.net.host_allowlist import AllowedHost, HostAllowlist
from homarus.net.http_client import HttpResponse
from homarus.net.proxy_request import ProxyRefusalError, parse_proxy_target
from homarus.net.special_addresses import find_special_range
from homarus.skills.actions import http_request
from homarus.skills.actions.action_files import load_actions
from homarus.tools import web_file
from homarus.tools.builtin import image
from homarus.tools.builtin.web import make_fetch_tool
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import ToolContext
from homarus.tools.web.web_fetch import PageNetwork
from homarus.tools.web.web_state import make_web_state
from tests.attacks.cases import Case, Judge
from tests.unit.skills.action_builders import ActionCaller, write_skill
from tests.unit.tools.web_builders import call_tool

PUBLIC = "93.184.216.34"
SECRETS = {"Authorization": "Bearer TOPSECRET", "Cookie": "id=TOPSECRET"}


@contextmanager
def world() -> Iterator[Judge]:
    """Yield a judge that fetches with the default policy."""
    yield lambda case: asyncio.run(_judge(case))


@dataclass(slots=True)
class StubInternet:
    """A resolver with recorded answers, and servers that redirect along a chain."""

    chain: Sequence[str]
    answers: list[list[str]]
    connected: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    async def resolve(self, _host: str, _port: int) -> Sequence[str]:
        if not self.answers:
            return (PUBLIC,)  # also where only the name shows that it is a local one
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def open_client(self, target: Any, _limits: FetchLimits) -> Any:
        self.connected += target.addresses
        return SimpleNamespace(request=self._request, close=self._close)

    @asynccontextmanager
    async def _request(
        self, _method: str, _path: str, headers: Mapping[str, str], _body: bytes
    ) -> AsyncIterator[HttpResponse]:
        self.headers.append(headers)
        done = len(self.headers)
        following = {"location": self.chain[done]} if done < len(self.chain) else {}
        connection = cast("Any", SimpleNamespace(body=_body_of_ok))
        yield HttpResponse(302 if following else 200, following, connection)

    async def _close(self) -> None:
        pass


async def _body_of_ok() -> AsyncGenerator[bytes, None]:
    yield b"ok"


async def _judge(case: Case) -> str:
    result, stub = await _fetch(case, NetworkPolicy())
    if private := [one for one in stub.connected if find_special_range(ip_address(one))]:
        return f"it connected to {private}"
    if case["expected"] == "block_by_default":
        if "allowRfc2544BenchmarkRange" not in result:
            return f"the refusal does not name the opt-in: {result!r}"
        allowed, _ = await _fetch(case, NetworkPolicy(allows_benchmark=True))
        by_tool = await _call_web_fetch(case, {"allowRfc2544BenchmarkRange": True})
        if (await _call_web_fetch(case)).is_error and allowed == "" and not by_tool.is_error:
            return ""
        return f"the opt-in does not allow it: {allowed}, {by_tool.text}"
    expected = {"allow_strip_auth": "allow"}.get(case["expected"], case["expected"])
    by_tool = await _call_web_fetch(case)
    if by_tool.is_error != bool(result):
        return f"web_fetch: {by_tool.text}, and the guard: {result!r}"
    outcome = "block" if result else "allow"
    if outcome not in case.get("acceptable", [expected]):
        return f"{outcome}: {result}"
    if seen := await _look(case, is_blocked=outcome == "block"):
        return seen
    if seen := await _call_action(case, is_blocked=outcome == "block"):
        return seen
    for name, make_proxy in (("sandboxes", _sandbox_proxy), ("the browser", _browser_proxy)):
        if outcome == "block" and (connected := await _connect_by_proxy(case, make_proxy)):
            return f"the proxy of {name} connected to {connected}"
    if case["expected"] == "allow_strip_auth" and (
        len(stub.headers) != 2 or SECRETS.keys() & stub.headers[1].keys()
    ):
        return "the headers of the first origin were sent to the second"
    return ""


async def _fetch(case: Case, policy: NetworkPolicy) -> tuple[str, StubInternet]:
    """Return why the fetch was refused, empty if it was not, and what it met."""
    chain = case.get("redirect_chain", [case["url"]])
    stub = StubInternet(chain, [list(each) for each in case.get("dns_answers", ())])
    try:
        response = await guarded_fetch(
            case["url"],
            policy=policy,
            headers=SECRETS,
            resolve=stub.resolve,
            open_client=stub.open_client,
        )
    except BlockedUrlError as exc:
        return str(exc), stub
    return "" if response.body == b"ok" else f"answered {response!r}", stub


async def _call_web_fetch(case: Case, ssrf_policy: Mapping[str, bool] | None = None) -> ToolResult:
    """Return the result of a call of `web_fetch`, which must connect to public addresses only."""
    stub = StubInternet(
        case.get("redirect_chain", [case["url"]]),
        [list(each) for each in case.get("dns_answers", ())],
    )
    policy = {"ssrfPolicy": dict(ssrf_policy or {})}
    config = Config.model_validate({"tools": {"web": {"fetch": policy}}})
    tool = make_fetch_tool(
        ToolSourceContext("main", config, lambda _key: config.tools),
        PageNetwork(stub.resolve, stub.open_client),
        make_web_state(SystemClock()),
    )
    context = ToolContext("agent:main:main", "main", Path())
    result = await call_tool(context, tool, "web_fetch", {"url": case["url"]})
    private = [one for one in stub.connected if find_special_range(ip_address(one))]
    assert ssrf_policy or not private, f"web_fetch connected to {private}"
    assert result.is_error or "ok" in result.text, result.text
    return result


async def _look(case: Case, *, is_blocked: bool) -> str:
    """Have the image tool look at the URL; return what is wrong with that, or ""."""
    chain = case.get("redirect_chain", [case["url"]])
    stub = StubInternet(chain, [list(each) for each in case.get("dns_answers", ())])
    fetch = partial(guarded_fetch, resolve=stub.resolve, open_client=stub.open_client)
    config = Config()
    (tool,) = image.tools(ToolSourceContext("main", config, lambda _key: config.tools))
    result = ""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(web_file, "guarded_fetch", fetch),
    ):
        try:
            await tool(ToolContext("agent:main:main", "main", Path(folder)), {"image": case["url"]})
        except ToolError as exc:
            result = str(exc)
    if private := [one for one in stub.connected if find_special_range(ip_address(one))]:
        return f"the image tool connected to {private}"
    if case["url"][:5].lower() == "data:":
        return ""  # nothing is fetched for it
    # What it fetched is no picture.
    is_fetched = "is not a picture" in result or "no model" in result
    return f"the image tool says {result!r}" if is_fetched == is_blocked else ""


async def _call_action(case: Case, *, is_blocked: bool) -> str:
    """Have an action of a skill request the URL; return what is wrong with that, or ""."""
    chain = case.get("redirect_chain", [case["url"]])
    stub = StubInternet(chain, [list(each) for each in case.get("dns_answers", ())])
    fetch = partial(guarded_fetch, resolve=stub.resolve)
    action = {"name": "get", "description": "Get it.", "http": {"url": case["url"]}}
    with tempfile.TemporaryDirectory() as folder:
        skill = write_skill(Path(folder), [action])
        if load_actions(skill).problems:
            return ""  # it is not offered at all
        with (
            mock.patch.object(http_request, "guarded_fetch", fetch),
            mock.patch.object(http_request, "make_client", stub.open_client),
        ):
            result = await ActionCaller(Path(folder)).call(skill, "get", {})
    if private := [one for one in stub.connected if find_special_range(ip_address(one))]:
        return f"the action connected to {private}"
    return f"the action fetched it: {result.text}" if is_blocked and not result.is_error else ""


class _AnyHost(HostAllowlist):
    """A list with every host, on the ports of the web: only the guard refuses."""

    def find(self, host: str, port: int) -> AllowedHost | None:
        return AllowedHost(host) if AllowedHost(host).matches(host, port) else None


def _sandbox_proxy(resolve: Resolve, open_stream: OpenStream) -> AllowProxy:
    return AllowProxy(_AnyHost(()), resolve=resolve, open_stream=open_stream)


def _browser_proxy(resolve: Resolve, open_stream: OpenStream) -> AllowProxy:
    return GuardProxy(NetworkPolicy, resolve=resolve, open_stream=open_stream)


async def _connect_by_proxy(
    case: Case, make_proxy: Callable[[Resolve, OpenStream], AllowProxy]
) -> list[str]:
    """Return the addresses that the proxy connects to for the last URL of a case."""
    url, connected = case.get("redirect_chain", [case["url"]])[-1], list[str]()
    stub = StubInternet((), [list(each) for each in case.get("dns_answers", ())][-1:])

    async def open_stream(target: CheckedTarget, _timeout_s: float) -> Stream:
        connected.extend(target.addresses)
        raise ConnectionRefusedError

    proxy = make_proxy(stub.resolve, open_stream)
    scheme, _, rest = url.partition("://")
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    place = rest[:end] if ":" in rest[:end].rpartition("]")[2] else f"{rest[:end]}:443"
    method, target = ("CONNECT", place) if scheme.lower() == "https" else ("GET", url)
    with suppress(ProxyRefusalError, h11.LocalProtocolError, UnicodeError):
        request = h11.Request(method=method, target=target, headers=[("Host", "a")])
        await proxy.open_target(parse_proxy_target(request))
    if "redirect_chain" in case:  # the client follows redirects, and may follow many
        return [one for one in connected if find_special_range(ip_address(one))]
    return connected
