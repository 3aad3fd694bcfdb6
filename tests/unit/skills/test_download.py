"""Downloads of skills: what is written where, and archives that are refused."""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import BlockedUrlError, UserError
from homarus.net.guard import NetworkPolicy
from homarus.skills.download import fetch_file, unpack_download
from homarus.skills.install_plan import InstallDownload
from tests.unit.skills.install_builders import make_tar
from tests.unit.tools.web_builders import always, open_site, respond


def make_link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def download(folder: Path, **changes: Any) -> InstallDownload:
    given = {"archive": "tar.gz", **changes}
    return InstallDownload("https://a.example/x.tar.gz", folder, "x.tar.gz", **given)


def test_archive_is_unpacked_without_its_first_folder(tmp_path: Path) -> None:
    data = make_tar(("prog-1.0/bin/prog", b"\x7fELF.."), ("prog-1.0/notes.txt", b"hi"),
                    ("README", b"x"))  # fmt: skip
    folder = tmp_path / "tools" / "helper"
    files = unpack_download(download(folder, strip_components=1), data)
    assert sorted(each.name for each in files) == ["notes.txt", "prog"]
    assert (folder / "bin" / "prog").stat().st_mode & 0o777 == 0o700
    assert (folder / "notes.txt").stat().st_mode & 0o777 == 0o600
    assert not (folder / "README").exists()
    assert [each.name for each in folder.iterdir() if each.name.startswith(".")] == []


def test_download_that_is_no_archive_is_kept_as_it_is(tmp_path: Path) -> None:
    given = InstallDownload("https://a.example/prog", tmp_path / "x", "prog")
    [file] = unpack_download(given, b"data", ["prog"])
    assert file.read_bytes() == b"data" and file.stat().st_mode & 0o777 == 0o700


def test_download_with_another_hash_writes_nothing(tmp_path: Path) -> None:
    data = make_tar(("a", b"x"))
    folder = tmp_path / "x"
    with pytest.raises(UserError, match="not the one that the skill says"):
        unpack_download(download(folder, sha256="0" * 64), data)
    assert not folder.exists()
    digest = hashlib.sha256(data).hexdigest()
    assert unpack_download(download(folder, sha256=digest), data)


def _zip(name: str, mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, b"x")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        make_tar(("good", b"x"), ("../evil", b"x")),
        make_tar(("good", b"x"), ("/etc/evil", b"x")),
        make_tar(("a/../../evil", b"x")),
        make_tar(("good", b"x"), make_link("a", "/etc/passwd")),
        make_tar(make_link("a", ".."), ("a/evil", b"x")),
        make_tar(("good", b"x"), make_link("a", "good", tarfile.LNKTYPE)),
        make_tar(("good", b"x"), make_link("a", "", tarfile.CHRTYPE)),
        make_tar(("A", b"x"), ("a", b"y")),
        make_tar(("a", b"\0" * 3_000_000)),
        _zip("../evil"),
        _zip("..\\evil"),
        _zip("link", 0o120777),
        b"no archive at all",
        b"",
        make_tar(("a", b"x" * 100_000))[:-200],
    ],
)
def test_archive_that_is_unsafe_writes_nothing(tmp_path: Path, data: bytes) -> None:
    folder = tmp_path / "tools" / "helper"
    with pytest.raises(UserError):
        unpack_download(download(folder), data)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_archive_of_nothing_below_the_stripped_folders_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no files below"):
        unpack_download(download(tmp_path / "x", strip_components=3), make_tar(("a/b", b"x")))


def test_download_replaces_files_and_follows_no_link_out(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    unpack_download(download(folder), make_tar(("a", b"old"), ("keep", b"k")))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "victim").write_bytes(b"v")
    (folder / "b").symlink_to(tmp_path / "outside" / "victim")
    (folder / "d").symlink_to(tmp_path / "outside")
    unpack_download(download(folder), make_tar(("a", b"new"), ("b", b"b")))
    assert (folder / "a").read_bytes() == b"new" and (folder / "keep").exists()
    assert not (folder / "b").is_symlink()
    assert (tmp_path / "outside" / "victim").read_bytes() == b"v"
    with pytest.raises(UserError, match="leads out"):
        unpack_download(download(folder), make_tar(("d/evil", b"x")))
    assert not (tmp_path / "outside" / "evil").exists()


async def test_download_without_tls_is_refused() -> None:
    policy = NetworkPolicy(allowed_hosts=frozenset({"127.0.0.1"}))
    async with open_site(always(respond("x"))) as site:
        with pytest.raises(BlockedUrlError, match="without TLS"):
            await fetch_file(f"{site.url}/x", policy, 5.0)
    assert site.requests == []
