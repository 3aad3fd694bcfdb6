"""Fetch a file that a model names by URL, through the network guard."""

from posixpath import basename
from typing import Final
from urllib.parse import unquote, urlsplit

from homarus.config.media_schema import UrlLimitsConfig
from homarus.config.network_policy import resolve_network_policy
from homarus.config.schema import Config
from homarus.core.errors import FetchError, ToolDeniedError
from homarus.core.fast_dataclass import replace
from homarus.core.mime import HEAD_BYTES, extension_for, sniff_mime
from homarus.core.text import one_line
from homarus.net.guarded_fetch import FetchLimits, guarded_fetch

MAX_MB: Final = 20.0
_MAX_NAME_CHARS: Final = 80


async def fetch_file(
    config: Config,
    url: str,
    *,
    max_bytes: int | None = None,
    url_limits: UrlLimitsConfig | None = None,
) -> tuple[bytes, str]:
    """Return the content of a URL and a name for it; by default up to `mediaMaxMb`.

    `url_limits` replace the settings for the time and the redirects. Raises ToolError.
    """
    fetch = config.tools.web.fetch
    if not fetch.enabled:
        raise ToolDeniedError("nothing is fetched from the web: tools.web.fetch.enabled is false")
    limits = FetchLimits(
        max_bytes=max_bytes or round((config.agents.defaults.media_max_mb or MAX_MB) * 1_000_000),
        max_redirects=fetch.max_redirects,
        total_s=float(fetch.timeout_seconds),
    )
    policy = resolve_network_policy(fetch)
    if url_limits is not None:
        redirects, total_s = url_limits.max_redirects, url_limits.timeout_ms / 1000
        limits = replace(limits, max_redirects=redirects, total_s=total_s)
        policy = replace(policy, only_hosts=frozenset(url_limits.url_allowlist))
    response = await guarded_fetch(url, limits=limits, policy=policy)
    if response.status != 200:
        raise FetchError(f"the server answered with the status {response.status}")
    return response.body, file_name(response.url, response.body[:HEAD_BYTES])


def file_name(url: str, head: bytes) -> str:
    """Return the last step of a URL as a file name, with the suffix of its type if it has none."""
    step = basename(unquote(urlsplit(url).path)).replace("\\", "_").replace("\0", "_")
    name = one_line(step, _MAX_NAME_CHARS).strip(". ") or "file"
    return name if "." in name else name + extension_for(sniff_mime(head))
