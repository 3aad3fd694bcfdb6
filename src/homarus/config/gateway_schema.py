"""The typed section `gateway` of the config: address, authentication, pages, endpoints."""

from typing import Annotated, Literal

from pydantic import (
    ConfigDict,
    Field,
)

from homarus.config.media_schema import DocumentLimitsConfig, ImageLimitsConfig
from homarus.config.section import (
    ConfigSection,
    NonEmptyStr,
    NonNegativeInt,
    PositiveInt,
    StrTuple,
    WholeNumber,
)


class RateLimitConfig(ConfigSection):
    """The rate limit for failed authentications, and the lockout after it."""

    max_attempts: WholeNumber = 10
    window_ms: WholeNumber = 60_000
    lockout_ms: WholeNumber = 300_000
    exempt_loopback: bool = True


class TrustedProxyConfig(ConfigSection):
    """The reverse proxy that authenticates users, and the headers it sends."""

    user_header: str = ""
    required_headers: StrTuple = ()
    allow_users: StrTuple = ()


class GatewayAuthConfig(ConfigSection):
    """How clients authenticate. Without a mode, the secrets that are set decide."""

    mode: Literal["none", "token", "password", "trusted-proxy"] | None = None
    token: str | None = Field(None, repr=False)
    password: str | None = Field(None, repr=False)
    rate_limit: RateLimitConfig = RateLimitConfig.model_construct()
    trusted_proxy: TrustedProxyConfig | None = None


class ControlUiConfig(ConfigSection):
    """The web page of the gateway."""

    enabled: bool = True
    allowed_origins: StrTuple = ()


class ReloadConfig(ConfigSection):
    """How a running gateway applies a changed config."""

    mode: Literal["off", "restart", "hot", "hybrid"] = "hybrid"
    debounce_ms: Annotated[int, Field(ge=0)] = 300


class EndpointConfig(ConfigSection):
    """An HTTP endpoint that is disabled by default."""

    enabled: bool = False


class ResponsesEndpointConfig(EndpointConfig):
    """The endpoint `/v1/responses`; its limits for documents hold for those of chats too."""

    max_body_bytes: PositiveInt = 20 << 20
    max_url_parts: NonNegativeInt = 8
    files: DocumentLimitsConfig = DocumentLimitsConfig.model_construct()
    images: ImageLimitsConfig = ImageLimitsConfig.model_construct()


class EndpointsConfig(ConfigSection):
    """HTTP endpoints besides the web page and `/health`."""

    chat_completions: EndpointConfig = EndpointConfig.model_construct()
    responses: ResponsesEndpointConfig = ResponsesEndpointConfig.model_construct()
    embeddings: EndpointConfig = EndpointConfig.model_construct()
    tools_invoke: EndpointConfig = EndpointConfig.model_construct()
    metrics: EndpointConfig = EndpointConfig.model_construct()
    mcp: EndpointConfig = EndpointConfig.model_construct()


class HttpConfig(ConfigSection):
    """The HTTP server."""

    endpoints: EndpointsConfig = EndpointsConfig.model_construct()


class HttpToolsConfig(ConfigSection):
    """Changes of the list of tools that `/tools/invoke` refuses; `deny` wins over `allow`."""

    allow: StrTuple = ()
    deny: StrTuple = ()


class TlsConfig(ConfigSection):
    """Encrypted connections, with the named certificate or, without one, a self-made one."""

    model_config = ConfigDict(extra="allow")

    enabled: bool = False
    auto_generate: bool = True
    cert_path: str | None = None
    key_path: str | None = None
    ca_path: str | None = None


class RemoteConfig(ConfigSection):
    """The gateway of another machine: how commands with `--url` recognise its certificate."""

    url: str | None = None
    tls_fingerprint: str | None = None


class NodesConfig(ConfigSection):
    """Which commands nodes may be asked for, besides those of their kind of device."""

    allow_commands: StrTuple = ()
    deny_commands: StrTuple = ()


class GatewayConfig(ConfigSection):
    """The gateway: its listen address and authentication."""

    mode: Literal["local", "remote"] | None = None
    port: Annotated[int, Field(gt=0, lt=65_536)] | None = None
    bind: Literal["loopback", "lan", "auto", "custom", "tailnet"] = "loopback"
    custom_bind_host: NonEmptyStr | None = None
    auth: GatewayAuthConfig = GatewayAuthConfig.model_construct()
    control_ui: ControlUiConfig = ControlUiConfig.model_construct()
    trusted_proxies: StrTuple = ()
    reload: ReloadConfig = ReloadConfig.model_construct()
    tls: TlsConfig = TlsConfig.model_construct()
    remote: RemoteConfig = RemoteConfig.model_construct()
    http: HttpConfig = HttpConfig.model_construct()
    nodes: NodesConfig = NodesConfig.model_construct()
    tools: HttpToolsConfig = HttpToolsConfig.model_construct()
