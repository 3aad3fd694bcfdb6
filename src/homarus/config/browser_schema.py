"""The section `browser` of the config, and `sandbox.browser` of agents."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from homarus.config.section import ConfigSection, NonEmptyStr, NonNegativeInt
from homarus.config.web_schema import SsrfPolicyConfig


class BrowserProfileConfig(ConfigSection):
    """A further profile: each agent has a folder of its own for it."""

    cdp_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    cdp_url: str | None = None
    driver: Literal["clawd", "extension"] | None = None
    color: str | None = None


class SnapshotDefaultsConfig(ConfigSection):
    """What a snapshot is like that says nothing else."""

    mode: Literal["efficient"] | None = None


class BrowserConfig(ConfigSection):
    """The browser of agents: which program, how it is started, and what may be done with it.

    It has no window unless `headless` is false: a gateway usually runs where no one looks. Without
    `ssrfPolicy`, pages may reach what `tools.web.fetch.ssrfPolicy` allows.
    """

    enabled: bool = True
    evaluate_enabled: bool = True
    cdp_url: str | None = None
    remote_cdp_timeout_ms: NonNegativeInt | None = None
    remote_cdp_handshake_timeout_ms: NonNegativeInt | None = None
    color: str | None = None
    executable_path: NonEmptyStr | None = None
    headless: bool = True
    no_sandbox: bool = False
    attach_only: bool = False
    default_profile: NonEmptyStr | None = None
    snapshot_defaults: SnapshotDefaultsConfig = SnapshotDefaultsConfig.model_construct()
    profiles: Mapping[str, BrowserProfileConfig] = {}
    ssrf_policy: SsrfPolicyConfig | None = None


class SandboxBrowserConfig(ConfigSection):
    """The browser of sandboxed sessions: whether they may use the one of this machine."""

    allow_host_control: bool | None = None
