"""The /etc of sandboxed commands is made of copies, and made again when the machine's changes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from homarus.tools.sandbox import sandbox_etc
from homarus.tools.sandbox.sandbox_etc import write_etc


def test_etc_has_public_files_and_no_others(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "ssl" / "certs").mkdir(parents=True)
    (source / "ssl" / "private").mkdir()
    (source / "ssl" / "private" / "key.pem").write_text("secret")
    (source / "ssl" / "certs" / "ca.pem").write_text("certificate")
    (source / "ssl" / "certs" / "0a.0").symlink_to("ca.pem")
    (source / "shadow").write_text("secret")
    (source / "resolv.conf").write_text("nameserver 10.0.0.1")
    folder = write_etc(tmp_path / "scratch", source)
    assert (folder / "ssl/certs/0a.0").read_text() == "certificate"
    assert "sandbox:x:1000" in (folder / "passwd").read_text()
    texts = [each.read_text() for each in folder.rglob("*") if each.is_file()]
    assert not [each for each in texts if "secret" in each or "nameserver" in each]
    assert {each.stat().st_mode & 0o077 for each in (folder, folder / "passwd")} == {0}


def test_etc_is_made_again_only_when_a_source_changed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "ld.so.cache").write_text("1")
    first = write_etc(tmp_path / "scratch", source)
    assert write_etc(tmp_path / "scratch", source) == first
    (source / "ld.so.cache").unlink()
    second = write_etc(tmp_path / "scratch", source)
    assert second != first and not (second / "ld.so.cache").exists()
    assert sorted(each.name for each in (tmp_path / "scratch").iterdir()) == sorted(
        [first.name, second.name]
    )


def test_etc_leaves_out_folders_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    (source / "ssl" / "certs" / "closed").mkdir(parents=True)
    (source / "ssl" / "certs" / "ca.pem").write_text("certificate")
    listed = Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path.name == "closed":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    folder = write_etc(tmp_path / "scratch", source)
    assert [each.name for each in (folder / "ssl" / "certs").iterdir()] == ["ca.pem"]


def test_etc_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sandbox_etc, "write_synced", fail)
    with pytest.raises(OSError, match="No space"):
        write_etc(tmp_path / "scratch", tmp_path)
    assert list((tmp_path / "scratch").iterdir()) == []
