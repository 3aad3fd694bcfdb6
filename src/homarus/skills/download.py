"""Download a file for a skill, check it, and put it into the folder of the skill's tools.

The complete file is fetched and, if it is an archive, checked as archives of skills are, before
anything is written: names that leave the folder, links, devices and bombs are refused. Modes of an
archive are not used: what is a program by its content, or named as one, is made executable.
"""

import hashlib
import os
import shutil
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Final, TypeAlias
from uuid import uuid4

from homarus.core.errors import BlockedUrlError, FetchError, UserError
from homarus.core.private_files import FOLDER_MODE, make_private_dir, open_private
from homarus.core.text import one_line
from homarus.net.guard import CheckedTarget, NetworkPolicy
from homarus.net.guarded_fetch import FetchClient, FetchLimits, guarded_fetch, make_client
from homarus.skills.hub.archive import ArchiveLimits, read_archive
from homarus.skills.hub.entry_names import check_entry_path, check_no_collisions
from homarus.skills.hub.skill_files import SkillFile
from homarus.skills.install_plan import InstallDownload

MAX_DOWNLOAD_BYTES: Final = 200 << 20
LIMITS: Final = ArchiveLimits(
    archive_bytes=MAX_DOWNLOAD_BYTES, files=10_000, file_bytes=500 << 20, total_bytes=800 << 20
)
_PROGRAM_STARTS: Final = (
    b"#!", b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe",
)  # fmt: skip
_PROGRAM_MODE: Final = 0o700
_MAX_REDIRECTS: Final = 5

# Returns the content of a URL. Raises FetchError or BlockedUrlError.
FetchFile: TypeAlias = Callable[[str, NetworkPolicy, float], Awaitable[bytes]]


async def fetch_file(url: str, policy: NetworkPolicy, timeout_s: float) -> bytes:
    """Return the content of a URL, by TLS all the way."""
    limits = FetchLimits(
        max_bytes=MAX_DOWNLOAD_BYTES, max_redirects=_MAX_REDIRECTS, total_s=timeout_s
    )
    response = await guarded_fetch(url, limits=limits, policy=policy, open_client=_open_by_tls)
    if response.status != 200:
        raise FetchError(f"the server answered with the status {response.status}")
    return response.body


def _open_by_tls(target: CheckedTarget, limits: FetchLimits) -> FetchClient:
    if target.url.scheme != "https":
        raise BlockedUrlError(f"{target.host}: the download is redirected to a URL without TLS")
    return make_client(target, limits)


def unpack_download(
    download: InstallDownload, data: bytes, bins: Collection[str] = ()
) -> list[Path]:
    """Write what was downloaded, and return the files. Raises UserError; then nothing is written.

    A file that exists is replaced; other files in the folder stay.
    """
    digest = hashlib.sha256(data).hexdigest()
    if download.sha256 and digest != download.sha256:
        raise UserError(
            f"the download has the sha256 {digest}, not the one that the skill says",
            fix="do not use it: the file was changed, or the skill is out of date",
        )
    files = _files(download, data)
    check_no_collisions(each.path for each in files)
    return _write(download.folder, files, bins)


def _files(download: InstallDownload, data: bytes) -> tuple[SkillFile, ...]:
    if not download.archive:
        return (SkillFile(check_entry_path(download.file_name), data),)
    stripped = (
        SkillFile("/".join(each.path.split("/")[download.strip_components :]), each.data)
        for each in read_archive(data, LIMITS)
    )
    files = tuple(each for each in stripped if each.path)
    if not files:
        raise UserError("the archive has no files below the folders that are left out")
    return files


def _write(folder: Path, files: Collection[SkillFile], bins: Collection[str]) -> list[Path]:
    """Write all files next to the folder, then move each to its place."""
    make_private_dir(folder)
    root = folder.resolve()
    incoming = root / f".incoming-{uuid4().hex}"
    incoming.mkdir(FOLDER_MODE)
    try:
        for file in files:
            _write_file(incoming / check_entry_path(file.path), file, bins)
        return [_move(incoming / each.path, root, each.path) for each in files]
    except OSError as exc:
        raise UserError(f"{folder} cannot be written: {exc.strerror or exc}") from exc
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def _write_file(path: Path, file: SkillFile, bins: Collection[str]) -> None:
    make_private_dir(path.parent)
    with open_private(path, "xb") as out:
        out.write(file.data)
    if path.name in bins or file.data.startswith(_PROGRAM_STARTS):
        path.chmod(_PROGRAM_MODE)


def _move(source: Path, root: Path, name: str) -> Path:
    """Move a file to its place. Raises UserError where a link leads out of the folder."""
    target = root / name
    make_private_dir(target.parent)
    if not target.parent.resolve().is_relative_to(root):
        raise UserError(f"{one_line(name, 80)!r}: a link in {root} leads out of it")
    os.replace(source, target)  # noqa: PTH105 - a link at the target is replaced, not followed
    return target
