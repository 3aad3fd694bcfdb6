"""Transforms run in a process of their own: what they return, and how they fail alone."""

from pathlib import Path

import pytest

from homarus.gateway.hooks.refusal import HookRefusedError
from homarus.gateway.hooks.templates import HookValues
from homarus.gateway.hooks.transform_files import find_transform
from homarus.gateway.hooks.transforms import TransformRunner

VALUES = HookValues({"n": 2, "text": "ä\ud800"}, {"x-a": "b"}, {"q": "1"}, "build", 0)


def write(folder: Path, source: str, name: str = "t.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(source, "utf-8")
    file.chmod(0o600)
    folder.chmod(0o700)
    return file


async def run(folder: Path, source: str, export: str = "", wall_s: float = 30.0) -> object:
    write(folder, source)
    return await TransformRunner(wall_s).run(folder, "t.py", export, VALUES)


async def test_transform_gets_the_values_and_returns_fields(tmp_path: Path) -> None:
    source = (
        "def transform(values):\n"
        "    return {'message': f\"{values['path']} {values['payload']['n']}\"}\n"
    )
    assert await run(tmp_path, source) == {"message": "build 2"}
    assert await run(tmp_path, "def f(values): return values", "f") == VALUES.encode() | {
        "payload": {"n": 2, "text": "ä?"}
    }


async def test_transform_may_return_nothing_or_be_async(tmp_path: Path) -> None:
    assert await run(tmp_path, "def transform(values): return None") is None
    assert await run(tmp_path, "async def transform(values): return {'a': 1}") == {"a": 1}


async def test_transform_imports_files_next_to_it(tmp_path: Path) -> None:
    write(tmp_path, "WORD = 'beside'\n", "words.py")
    source = "import words\ndef transform(values): return {'message': words.WORD}"
    assert await run(tmp_path, source) == {"message": "beside"}


@pytest.mark.parametrize(
    "source",
    [
        "def transform(values): raise ValueError('private detail')",
        "raise SystemExit(0)",
        "def transform(values): import os; os._exit(0)",
        "def transform(values): return 3",
        "def transform(values): return {'a': object()}",
        "def transform(values): return {'a': 'x' * 600_000}",
        "def transform(values): return {'a': 'x' * (1 << 30)}",
        "def other(values): return None",
        "this is no Python",
        "def transform(values):\n    with open(__file__ + 'x', 'w') as file: file.write('x')",
        "def transform(values): return transform(values)",
    ],
)
async def test_transform_that_fails_is_refused_without_its_details(
    tmp_path: Path, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(HookRefusedError) as caught:
        await run(tmp_path, source)
    assert caught.value.status == 500 and caught.value.reason == "transform"
    assert "private detail" not in str(caught.value) and "t.py" in caplog.text


async def test_transform_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    source = (
        "import subprocess, time\n"
        "def transform(values):\n"
        "    subprocess.Popen(['sleep', '600'])\n"
        "    while True: time.sleep(1)\n"
    )
    with pytest.raises(HookRefusedError, match="failed"):
        await run(tmp_path, source, wall_s=1.5)


async def test_transform_that_prints_without_end_has_no_effect(tmp_path: Path) -> None:
    source = "def transform(values):\n    print('x' * 10_000_000)\n    return {'a': 1}"
    assert await run(tmp_path, source) == {"a": 1}


async def test_transform_has_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "sk-secret")
    source = "import os\ndef transform(values): return dict(os.environ)"
    found = await run(tmp_path, source)
    assert isinstance(found, dict) and "SECRET_KEY" not in found


@pytest.mark.parametrize("module", ["a.js", "a.mjs", "A.TS", "../a.cjs"])
def test_javascript_is_reported_as_not_runnable(tmp_path: Path, module: str) -> None:
    with pytest.raises(HookRefusedError) as caught:
        find_transform(tmp_path, module)
    assert caught.value.status == 501 and "Python" in caught.value.fix


@pytest.mark.parametrize("module", ["../out.py", "/etc/passwd", "link.py", "dir/../../out.py", "x"])
def test_file_outside_of_the_folder_is_refused(tmp_path: Path, module: str) -> None:
    folder = tmp_path / "transforms"
    write(folder, "")
    write(tmp_path, "", "out.py")
    (folder / "link.py").symlink_to(tmp_path / "out.py")
    with pytest.raises(HookRefusedError) as caught:
        find_transform(folder, module)
    assert caught.value.status == 500


def test_file_that_others_can_change_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "transforms"
    file = write(folder, "")
    imported = write(folder, "", "words.py")
    assert find_transform(folder, "t.py") == file.resolve()
    for path in (file, imported, folder):
        before = path.stat().st_mode
        path.chmod(before | 0o020)
        with pytest.raises(HookRefusedError, match="others"):
            find_transform(folder, "t.py")
        path.chmod(before)
