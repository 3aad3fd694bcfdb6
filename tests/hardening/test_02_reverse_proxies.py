"""A reverse proxy on the gateway's machine makes no client local.

A request is local only if no header contradicts it and it carries the owner's token. Trusted
proxies are believed about the client's address; in mode trusted-proxy one authenticates its users,
but never from the gateway's own machine, whose other users could send the same headers.
"""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from homarus.cli.doctor import command as doctor
from homarus.config.check import check_config
from homarus.config.gateway_schema import GatewayConfig
from homarus.core.errors import ConfigError, NotPairedError, ProtocolError
from homarus.gateway.auth import SharedSecretAuth, check_bearer, resolve_auth
from homarus.gateway.foreign_hosts import FILE, MAX_HOSTS
from homarus.gateway.handshake import AuthenticatedClient, ConnectionAuthenticator
from homarus.gateway.identity import DeviceIdentity
from homarus.gateway.listen_address import resolve_listen_address
from homarus.gateway.origin_policy import OriginPolicy, RequestBlockedError, RequestInfo
from homarus.testing.clock import FakeClock

ADMIN, READ = "operator.admin", "operator.read"
HOST = (b"host", b"127.0.0.1:18789")
PROXY = "10.0.0.7"
PROXY_HEADERS = (
    "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
    "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-User", "X-Forwarded-Prefix",
    "X-Forwarded", "Forwarded-For", "X-Real-IP", "X-Client-IP", "X-Cluster-Client-IP",
    "True-Client-IP", "Client-IP", "CF-Connecting-IP", "CF-Ray", "CF-Visitor", "CDN-Loop",
    "Fastly-Client-IP", "Fly-Client-IP", "Tailscale-User-Login", "Tailscale-User-Name",
    "Tailscale-Headers-Info", "X-Original-Forwarded-For", "X-Original-Host",
    "X-Envoy-External-Address", "X-Amzn-Trace-Id", "X-Azure-ClientIP", "X-Appengine-User-IP",
    "X-Remote-User", "Remote-User", "X-Auth-Request-Email", "X-Goog-Authenticated-User-Email",
    "X-MS-Client-Principal-Name", "X-Vercel-Id", "Ngrok-Trace-Id", "X-Scheme", "X-NginX-Proxy",
)  # fmt: skip
TRUSTED: dict[str, Any] = {
    "bind": "lan",
    "trustedProxies": [PROXY],
    "controlUi": {"allowedOrigins": ["http://gw.example"]},
    "auth": {
        "mode": "trusted-proxy",
        "token": "right",
        "trustedProxy": {
            "userHeader": "X-Auth-User",
            "requiredHeaders": ["X-Forwarded-Proto"],
            "allowUsers": ["ann@example.com"],
        },
    },
}
ANN = {"x-auth-user": "ann@example.com", "x-forwarded-proto": "https"}
PAGE = {"id": "openclaw-control-ui", "version": "1", "platform": "web", "mode": "ui"}
CLI = {"id": "cli", "version": "1", "platform": "linux", "mode": "cli"}


def config(settings: dict[str, Any]) -> GatewayConfig:
    checked = check_config({"gateway": settings})
    assert checked.config, checked.problems
    return checked.config.gateway


class Gateway:
    """An authenticator of a config, and requests to it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.clock = FakeClock()
        self.config = config(settings or {"auth": {"token": "right"}})
        auth = resolve_auth(self.config, {})
        self.authenticator = ConnectionAuthenticator.from_config(
            self.config, auth, 18789, folder, self.clock
        )
        self.identity = DeviceIdentity.load_or_create(folder / "device.json", 1)

    def connect(
        self,
        request: RequestInfo,
        token: str = "right",
        client: dict[str, str] | None = None,
        *,
        with_device: bool = True,
    ) -> AuthenticatedClient:
        named = client or CLI
        params: dict[str, Any] = {
            "minProtocol": 3, "maxProtocol": 3, "client": named, "role": "operator",
            "scopes": [ADMIN], "auth": {"token": token} if token else {},
        }  # fmt: skip
        if with_device:
            params["device"] = self.identity.device_params(
                client_id=named["id"], client_mode=named["mode"], role="operator",
                scopes=[ADMIN], signed_at_ms=self.clock.now_ms(), token=token or None, nonce="n",
            )  # fmt: skip
        self.authenticator.check_request(request)
        return self.authenticator.authenticate(params, request, "n", "c1")

    def refusal(self, request: RequestInfo, **kwargs: Any) -> str:
        with pytest.raises(ProtocolError) as caught:
            self.connect(request, **kwargs)
        return caught.value.message


def local(**headers: str) -> RequestInfo:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    return RequestInfo.read("127.0.0.1", [HOST, *pairs], own="127.0.0.1")


def proxied(peer: str = PROXY, own: str = "10.0.0.2", **headers: str) -> RequestInfo:
    pairs = [(b"host", b"gw.example"), (b"origin", b"http://gw.example")]
    pairs += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return RequestInfo.read(peer, pairs, own=own)


@pytest.mark.parametrize("name", PROXY_HEADERS)
@pytest.mark.parametrize("value", ["203.0.113.5", "127.0.0.1", "localhost", ""])
def test_header_of_a_proxy_makes_the_request_remote(tmp_path: Path, name: str, value: str) -> None:
    gateway = Gateway(tmp_path)
    request = local(**{name: value})
    assert not gateway.authenticator.origin_policy.is_local(request)
    with pytest.raises(NotPairedError, match="pairing required"):
        gateway.connect(request)
    assert gateway.authenticator.devices.listing()["paired"] == []


def test_proxy_without_headers_lets_no_one_in_without_the_token(tmp_path: Path) -> None:
    """An nginx snippet for WebSockets forwards no header and the address of the gateway as Host."""
    gateway = Gateway(tmp_path)
    request = local(Upgrade="websocket", Connection="upgrade")
    assert "token missing" in gateway.refusal(request, token="")
    assert "token mismatch" in gateway.refusal(request, token="guess")
    assert gateway.connect(request).caller.is_local


def test_device_token_alone_does_not_make_a_client_local(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path)
    first = gateway.connect(local())
    assert first.caller.is_local and first.auth
    again = gateway.connect(local(), token=str(first.auth["deviceToken"]))
    assert again.method == "device-token" and not again.caller.is_local


def test_trusted_proxy_address_tells_clients_apart_but_not_local(tmp_path: Path) -> None:
    settings = {"auth": {"token": "right"}, "trustedProxies": ["127.0.0.1"]}
    gateway = Gateway(tmp_path, **settings)
    policy = gateway.authenticator.origin_policy
    request = local(**{"X-Forwarded-For": "203.0.113.5"})
    assert policy.client_ip(request) == "203.0.113.5" and not policy.is_local(request)
    spoofed = local(**{"X-Forwarded-For": "127.0.0.1"})
    assert not policy.is_local(spoofed)
    assert gateway.refusal(spoofed) == "pairing required"


def test_trusted_proxy_user_opens_the_page_without_pairing(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, **TRUSTED)
    for with_device in (True, False):
        found = gateway.connect(proxied(**ANN), token="", client=PAGE, with_device=with_device)
        assert found.method == "trusted-proxy" and found.caller.scopes == {ADMIN}
        assert not found.caller.is_local
    # A program behind the proxy is a device like any other.
    assert gateway.refusal(proxied(**ANN), token="") == "pairing required"
    evil = RequestInfo.read(
        PROXY,
        [(b"host", b"gw.example"), (b"origin", b"https://evil.example"),
         *((name.encode(), value.encode()) for name, value in ANN.items())],
    )  # fmt: skip
    with pytest.raises(RequestBlockedError):
        gateway.connect(evil, client=PAGE)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (proxied("10.0.0.8", **ANN), "does not come from gateway.trustedProxies"),
        (proxied(x_forwarded_proto="https"), "did not name a user"),
        (proxied(x_auth_user="ann@example.com"), "did not send every header"),
        (proxied(**{**ANN, "x-auth-user": "bob@example.com"}), "not in allowUsers"),
        (proxied(**{**ANN, "x-auth-user": " "}), "did not name a user"),
        (proxied(own=PROXY, **ANN), "gateway's own machine"),
    ],
)
def test_trusted_proxy_request_that_lacks_something_is_refused(
    tmp_path: Path, request_: RequestInfo, reason: str
) -> None:
    gateway = Gateway(tmp_path, **TRUSTED)
    assert reason in gateway.refusal(request_, token="", client=PAGE)
    assert reason in gateway.refusal(request_, token="right", client=PAGE), "a token is for here"
    policy, limiter = gateway.authenticator.origin_policy, gateway.authenticator.limiter
    with pytest.raises(RequestBlockedError):
        check_bearer(request_, policy, gateway.authenticator.auth, limiter)


def test_trusted_proxy_two_users_in_one_request_are_none(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, **TRUSTED)
    twice = RequestInfo.read(
        PROXY,
        [(b"host", b"gw.example"), (b"origin", b"http://gw.example"),
         (b"x-forwarded-proto", b"https"),
         (b"x-auth-user", b"bob@example.com"), (b"X-Auth-User", b"ann@example.com")],
    )  # fmt: skip
    assert "did not name a user" in gateway.refusal(twice, token="", client=PAGE)


def test_trusted_proxy_on_own_machine_is_refused_and_token_works(tmp_path: Path) -> None:
    settings = {**TRUSTED, "trustedProxies": ["127.0.0.1", "::1"]}
    gateway = Gateway(tmp_path, **settings)
    assert "own machine" in gateway.refusal(local(**ANN), token="")
    assert "own machine" in gateway.refusal(local(**ANN), token="right"), "the header contradicts"
    assert gateway.connect(local()).caller.is_local


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"trustedProxies": []}, "gateway.trustedProxies"),
        ({"auth": {"mode": "trusted-proxy", "token": "t"}}, "gateway.auth.trustedProxy.userHeader"),
        ({"bind": "loopback"}, "gateway.auth.mode"),
    ],
)
def test_trusted_proxy_config_that_cannot_work_raises(changes: dict[str, Any], key: str) -> None:
    settings = config({**TRUSTED, **changes})
    with pytest.raises(ConfigError) as caught:
        resolve_listen_address(settings, {}, resolve_auth(settings, {}))
    assert caught.value.key == key and caught.value.fix


def test_doctor_warns_of_a_foreign_host_on_loopback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    state = tmp_path / ".openclaw"
    gateway = Gateway(state)
    gateway.authenticator.check_request(local())
    assert not (state / FILE).exists(), "a local request is nothing to report"
    assert "gateway" not in CliRunner().invoke(doctor, ["--json"]).output.partition("notBuilt")[0]
    for name in ("gw.example", *(f"n{number}.example" for number in range(50)), "x" * 5_000):
        with pytest.raises(RequestBlockedError):
            gateway.authenticator.check_request(
                RequestInfo.read("127.0.0.1", [(b"host", name.encode())], own="127.0.0.1")
            )
    assert (state / FILE).stat().st_size < 2_000, f"at most {MAX_HOSTS} names are recorded"
    shown = CliRunner().invoke(doctor).output
    assert "gw.example" in shown and "reached the gateway on loopback" in shown


def test_trusted_proxy_on_loopback_is_not_reported(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, auth={"token": "right"}, trustedProxies=["127.0.0.1"])
    gateway.authenticator.check_request(local(**{"X-Forwarded-For": "203.0.113.5"}))
    assert not (tmp_path / FILE).exists()


def test_auth_none_behind_any_proxy_header_is_refused() -> None:
    policy = OriginPolicy.from_config(18789)
    for name in PROXY_HEADERS:
        request = local(**{name: "203.0.113.5"})
        assert SharedSecretAuth().check_request(request, policy, None, None) == "local_only"
