"""Files of messages: stored by their content, never by their name."""

import asyncio
import base64
import stat
import time
from pathlib import Path
from threading import Barrier

import pytest

from homarus.channels.media import DEFAULT_MB, KEEP_MS, MAX_FILES, MediaDownloader
from homarus.config.channels import AccountSettings
from homarus.core.errors import ChannelError, MediaTooLargeError
from homarus.core.message import Address, Inbound, Media
from homarus.testing.clock import START_MS, FakeClock
from homarus.testing.fakes import ListChannel

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


class Shelf(ListChannel):
    """A service with files by name; an error is what fetching one raises."""

    def __init__(self, **files: bytes | Exception) -> None:
        super().__init__([])
        self.files = files
        self.asked: list[str] = []

    async def fetch(self, media: Media, max_bytes: int) -> bytes:
        self.asked.append(media.ref)
        found = self.files[media.ref]
        if isinstance(found, Exception):
            raise found
        if len(found) > max_bytes:
            raise MediaTooLargeError("too large")
        return found


async def fetch(
    tmp_path: Path, shelf: ListChannel, *media: Media, settings: AccountSettings | None = None
) -> Inbound:
    message = Inbound("1", Address("list", "chat"), "ann", "look", media=media)
    files = MediaDownloader(tmp_path, lambda: START_MS)
    return await files.fetch(shelf, settings or AccountSettings(), message)


async def test_media_image_is_stored_and_shown_to_model(tmp_path: Path) -> None:
    found = await fetch(
        tmp_path, Shelf(f=PNG), Media("image", "image/jpeg", "../../evil.sh", ref="f")
    )
    (kept,) = found.media
    path = Path(kept.path)
    assert path.read_bytes() == PNG and path.parent == tmp_path / "media" / "inbound"
    assert path.suffix == ".png" and "evil" not in kept.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (kept.mime, kept.size, kept.problem) == ("image/png", len(PNG), "")
    (image,) = found.images
    assert (image.mime, base64.b64decode(image.data)) == ("image/png", PNG)


async def test_media_same_file_is_stored_once(tmp_path: Path) -> None:
    shelf = Shelf(a=PNG, b=PNG)
    found = await fetch(tmp_path, shelf, Media("image", ref="a"), Media("image", ref="b"))
    assert len({media.path for media in found.media}) == 1
    assert len(list((tmp_path / "media" / "inbound").iterdir())) == 1


async def test_media_same_file_from_two_chats_at_once_is_stored_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, real = Barrier(2, timeout=30), Path.replace

    def replace(half: Path, path: Path) -> Path:
        both.wait()
        return real(half, path)

    monkeypatch.setattr(Path, "replace", replace)
    # The real clock: by another, a file being written may look like an old one.
    files, got = MediaDownloader(tmp_path, lambda: time.time_ns() // 1_000_000), list[Media]()

    async def ask(number: int) -> None:
        message = Inbound(str(number), Address("list", "c"), "ann", "x", media=(Media(ref="f"),))
        got.extend((await files.fetch(Shelf(f=PNG), AccountSettings(), message)).media)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(ask(number))

    await main()
    assert [one.problem for one in got] == ["", ""]
    (path,) = (tmp_path / "media" / "inbound").iterdir()
    assert path.read_bytes() == PNG and {one.path for one in got} == {str(path)}


async def test_media_file_that_only_claims_to_be_image_is_none(tmp_path: Path) -> None:
    found = await fetch(
        tmp_path, Shelf(f=b"#!/bin/sh\nrm -rf /\n"), Media("image", "image/png", ref="f")
    )
    assert found.images == () and not found.media[0].mime
    assert Path(found.media[0].path).suffix == ""


@pytest.mark.parametrize("told", ["text/csv", "text/csv; charset=x"])
async def test_media_type_of_service_is_used_where_bytes_are_silent(
    tmp_path: Path, told: str
) -> None:
    found = await fetch(tmp_path, Shelf(f=b"a,b\n"), Media("document", told, ref="f"))
    assert found.media[0].mime == "text/csv"


async def test_media_file_of_known_excess_size_is_not_fetched(tmp_path: Path) -> None:
    shelf = Shelf(f=PNG)
    size = round(DEFAULT_MB * 1_000_000) + 1
    found = await fetch(tmp_path, shelf, Media("document", ref="f", size=size))
    assert shelf.asked == [] and "5 MB" in found.media[0].problem and found.text == "look"


async def test_media_file_found_too_large_is_dropped(tmp_path: Path) -> None:
    settings = AccountSettings.model_validate({"mediaMaxMb": 0.00001})
    found = await fetch(tmp_path, Shelf(f=PNG), Media("document", ref="f"), settings=settings)
    assert "larger" in found.media[0].problem and not (tmp_path / "media").exists()


@pytest.mark.parametrize("trouble", [ChannelError("gone"), TimeoutError(), OSError("no room")])
async def test_media_failed_download_is_noted_and_message_continues(
    tmp_path: Path, trouble: Exception
) -> None:
    shelf = Shelf(bad=trouble, good=PNG)
    found = await fetch(tmp_path, shelf, Media("image", ref="bad"), Media("image", ref="good"))
    assert [bool(media.problem) for media in found.media] == [True, False]
    assert len(found.images) == 1


async def test_media_service_without_files_is_noted(tmp_path: Path) -> None:
    found = await fetch(tmp_path, ListChannel([]), Media("image", ref="f"))
    assert found.media[0].problem and not found.images


async def test_media_concurrent_downloads_are_limited(tmp_path: Path) -> None:
    shelf = Shelf(f=PNG)
    found = await fetch(tmp_path, shelf, *[Media("image", ref="f")] * (MAX_FILES + 2))
    assert len(shelf.asked) == MAX_FILES
    assert [bool(media.problem) for media in found.media[-3:]] == [False, True, True]


async def test_media_files_unused_for_long_are_deleted(tmp_path: Path) -> None:
    clock = FakeClock()
    files = MediaDownloader(tmp_path, clock.now_ms)
    message = Inbound("1", Address("list", "c"), "ann", "x", media=(Media(ref="f"),))

    async def send(content: bytes) -> Path:
        found = await files.fetch(Shelf(f=content), AccountSettings(), message)
        return Path(found.media[0].path)

    old = await send(PNG)
    await clock.advance(10 * KEEP_MS / 1000 + 3e9)
    new = await send(b"%PDF-1.7")
    assert new.exists() and not old.exists()
