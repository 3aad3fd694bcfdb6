"""The section `tools.web` of the config."""

from homarus.config.section import ConfigSection, HostNames, NonNegativeInt, PositiveInt


class SsrfPolicyConfig(ConfigSection):
    """What URLs that a model or a message names may reach besides the public internet.

    `allowedHostnames` may have private addresses; `blockedHostnames` are refused with all names
    beneath them.
    """

    dangerously_allow_private_network: bool = False
    allow_rfc2544_benchmark_range: bool = False
    allow_ipv6_unique_local_range: bool = False
    allowed_hostnames: HostNames = ()
    blocked_hostnames: HostNames = ()


class WebFetchConfig(ConfigSection):
    """Fetches of URLs that a model or a message names."""

    enabled: bool = True
    timeout_seconds: PositiveInt = 30
    max_redirects: NonNegativeInt = 3
    ssrf_policy: SsrfPolicyConfig = SsrfPolicyConfig.model_construct()


class WebToolsConfig(ConfigSection):
    """What reaches the web."""

    fetch: WebFetchConfig = WebFetchConfig.model_construct()
