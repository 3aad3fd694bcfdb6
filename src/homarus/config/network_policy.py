"""The network guard's policy, from the config."""

from homarus.config.schema import Config
from homarus.config.web_schema import SsrfPolicyConfig, WebFetchConfig
from homarus.net.guard import NetworkPolicy


def resolve_network_policy(fetch: WebFetchConfig) -> NetworkPolicy:
    """Return what `tools.web.fetch.ssrfPolicy` allows and blocks."""
    return _make_policy(fetch.ssrf_policy)


def resolve_browser_policy(config: Config) -> NetworkPolicy:
    """Return what `browser.ssrfPolicy` allows and blocks; without it, what holds for fetches."""
    return _make_policy(config.browser.ssrf_policy or config.tools.web.fetch.ssrf_policy)


def _make_policy(policy: SsrfPolicyConfig) -> NetworkPolicy:
    return NetworkPolicy(
        allows_private=policy.dangerously_allow_private_network,
        allows_benchmark=policy.allow_rfc2544_benchmark_range,
        allows_unique_local=policy.allow_ipv6_unique_local_range,
        allowed_hosts=frozenset(policy.allowed_hostnames),
        blocked_hosts=frozenset(policy.blocked_hostnames),
    )
