"""Files that a model names by URL are fetched through the network guard, or not at all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from homarus.config.network_policy import resolve_network_policy
from homarus.config.schema import Config
from homarus.core.errors import BlockedUrlError, FetchError, ToolDeniedError
from homarus.core.message import Media
from homarus.policy.workspace_access import FULL_ACCESS, WorkspaceAccess, session_access
from homarus.tools.attachments import AttachmentStore
from homarus.tools.web_file import fetch_file, file_name

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def config(**fetch: Any) -> Config:
    policy = {"allowedHostnames": ["127.0.0.1"]}
    return Config.model_validate({"tools": {"web": {"fetch": {"ssrfPolicy": policy} | fetch}}})


@asynccontextmanager
async def server(status: str = "200 OK", body: bytes = PNG) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def attach(
    folder: Path, url: str, access: WorkspaceAccess = FULL_ACCESS, found: Config | None = None
) -> Media:
    store = AttachmentStore(folder / "media", partial(fetch_file, found or config()))
    (media,) = await store([url], folder, access)
    return media


async def test_attachment_by_url_is_fetched_and_stored(tmp_path: Path) -> None:
    async with server() as base:
        media = await attach(tmp_path, f"{base}/a/cat%20one.png?x=1#y")
    assert (media.name, media.mime, media.size, media.problem) == (
        "cat one.png", "image/png", len(PNG), "",
    )  # fmt: skip
    assert Path(media.path).read_bytes() == PNG


async def test_attachment_by_url_of_a_private_address_is_refused(tmp_path: Path) -> None:
    for url in ("http://169.254.169.254/latest", "HTTP://localhost:8080/", "http://[::1]/x"):
        media = await attach(tmp_path, url)
        assert "public internet" in media.problem and not media.path


async def test_attachment_by_url_needs_a_conversation_that_may_fetch(tmp_path: Path) -> None:
    async with server() as base:
        for access in (replace(FULL_ACCESS, can_fetch=False), session_access("agent:main:irc:x")):
            media = await attach(tmp_path, f"{base}/x", replace(access, can_fetch=False))
            assert "not fetched from the web in this conversation" in media.problem
        off = await attach(tmp_path, f"{base}/x", found=config(enabled=False))
        assert "tools.web.fetch.enabled is false" in off.problem


async def test_attachment_by_url_failure_gives_its_reason(tmp_path: Path) -> None:
    async with server("404 Not Found") as base:
        assert "status 404" in (await attach(tmp_path, f"{base}/x")).problem
    async with server(body=b"") as base:
        assert (await attach(tmp_path, f"{base}/x")).problem == "it is empty"
    assert "could not be fetched" in (await attach(tmp_path, f"{base}/x")).problem


async def test_attachment_of_a_file_sent_to_another_conversation_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "media" / "inbound" / "a.txt"
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    group = session_access("agent:main:telegram:group:-1")
    store = AttachmentStore(tmp_path / "media")
    (media,) = await store([str(path)], tmp_path, group)
    assert media.problem == "it was not sent to this conversation"
    own = replace(group, get_media=lambda: frozenset({str(path)}))
    assert not (await store([str(path)], tmp_path, own))[0].problem


async def test_fetch_file_obeys_size_and_redirect_settings() -> None:
    found = config()
    limited = found.model_copy(
        update={
            "agents": found.agents.model_copy(
                update={"defaults": found.agents.defaults.model_copy(update={"media_max_mb": 1e-5})}
            )
        }
    )
    async with server() as base:
        with pytest.raises(FetchError, match="larger than 10 bytes"):
            await fetch_file(limited, f"{base}/x")
    async with server("302 Found\r\nLocation: /x") as base:
        with pytest.raises(BlockedUrlError, match="more than 0 redirects"):
            await fetch_file(config(maxRedirects=0), f"{base}/x")
    with pytest.raises(ToolDeniedError):
        await fetch_file(Config(), "http://127.0.0.1/")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://a.com/x/photo.jpg", "photo.jpg"),
        ("http://a.com/x/photo", "photo.png"),
        ("http://a.com/", "file.png"),
        ("http://a.com/..%2f..%2fetc%2fpasswd", "passwd.png"),
        ("http://a.com/%2e%2e", "file.png"),
        ("http://a.com/a%00b%0a%5cc.txt", "a_b _c.txt"),
    ],
)
def test_file_name_of_a_url_is_one_plain_name(url: str, name: str) -> None:
    assert file_name(url, PNG) == name


def test_network_policy_is_that_of_the_config() -> None:
    policy = {
        "dangerouslyAllowPrivateNetwork": True,
        "allowRfc2544BenchmarkRange": True,
        "allowIpv6UniqueLocalRange": True,
        "allowedHostnames": ["NAS.lan.", "[::1]", "127.1"],
        "blockedHostnames": ["*.bücher.example"],
    }
    found = Config.model_validate({"tools": {"web": {"fetch": {"ssrfPolicy": policy}}}})
    made = resolve_network_policy(found.tools.web.fetch)
    assert made.allows_private and made.allows_benchmark and made.allows_unique_local
    assert made.allowed_hosts == {"nas.lan", "::1", "127.0.0.1"}
    assert made.blocked_hosts == {"*.xn--bcher-kva.example"}
    default = resolve_network_policy(Config().tools.web.fetch)
    assert not (default.allows_private or default.allowed_hosts or default.blocked_hosts)


@pytest.mark.parametrize(
    "host", ["http://a.com", "a.com:80", "*.a.com/", "*", "a.*.com", "a b", "", "me@a.com"]
)
def test_network_policy_host_that_is_none_is_a_config_error(host: str) -> None:
    tree = {"tools": {"web": {"fetch": {"ssrfPolicy": {"allowedHostnames": [host]}}}}}
    with pytest.raises(ValueError, match="is not a host name or an address"):
        Config.model_validate(tree)
