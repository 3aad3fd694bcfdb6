"""The built package: what it contains, and each way in which a user installs and removes it."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tarfile
import termios
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import urlopen

import pytest

from homarus import __version__
from homarus.testing.model_server import ModelServer
from tests.docs.test_readme_commands import TYPED
from tests.e2e.program import PAINT, TAKE_TERMINAL
from tests.peers.install import venv
from tests.peers.wheel import NewUser, build, clean_env
from tests.style.rules import ROOT, tracked

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]

READY_S = 300.0
BUILT_UI = ROOT / "src" / "homarus" / "gateway" / "static_ui"
# These wait for a person, for a bot's code, or keep running; other tests drive them.
ATTENDED = (
    "chat", "gateway", "pairing approve", "channels add", "models set", "onboard", "configure",
    "qr", "tui",
)  # fmt: skip


@pytest.fixture
def user(tmp_path: Path) -> NewUser:
    """A new user who has pipx and uv, and installs programs to ~/.local/bin."""
    home, tools = tmp_path / "home", tmp_path / "tools"
    home.mkdir()
    tools.mkdir()
    pipx = venv(ROOT / "requirements" / "pipx.lock").parent / "pipx"
    uv = find_uv()
    for program in (pipx, uv, uv.with_name("uvx")):
        (tools / program.name).symlink_to(program)
    (tools / "python3").symlink_to(os.path.realpath(sys.executable))
    return NewUser(home, clean_env(home, home / ".local/bin", tools))


def find_uv() -> Path:
    from uv import find_uv_bin

    return Path(find_uv_bin())


# What is in it


def test_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    root = next((tmp_path / "source").iterdir())
    again = build("wheel", tmp_path / "again", root)
    assert again.read_bytes() == wheel.read_bytes()
    assert (root / "dev.py").exists() and (root / "requirements" / "run.lock").exists()


def test_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    source = ROOT / "src"
    expected = {str(p.relative_to(source)) for p in tracked() if p.is_relative_to(source)}
    pages = (p for p in tracked() if p.is_relative_to(ROOT / "docs") and p.suffix == ".md")
    expected |= {f"homarus/{page.relative_to(ROOT)}" for page in pages}
    expected |= {str(p.relative_to(source)) for p in BUILT_UI.rglob("*") if p.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("homarus/")}
        info = f"homarus-{__version__}.dist-info"
        assert archive.read(f"{info}/licenses/LICENSE")
        assert b"homarus = homarus.__main__:main" in archive.read(f"{info}/entry_points.txt")
    assert names == expected
    assert "homarus/gateway/static_ui/index.html" in names


# The program from the wheel


def test_readme_commands_work_from_the_wheel(
    programs: Path, model: ModelServer, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    user = NewUser(home, clean_env(home, programs))
    assert user.must("homarus --version") == f"homarus {__version__}\n"
    assert "uninstall" in user.must("homarus --help")
    user.must("homarus setup")
    assert (home / ".openclaw/workspace/SOUL.md").read_text(encoding="utf-8")
    use_model(home, model)
    (home / "old/.openclaw/agents/main/sessions").mkdir(parents=True)  # the README imports it
    for line in TYPED:
        if line.startswith("homarus ") and not line.removeprefix("homarus ").startswith(ATTENDED):
            done = user.type(line)
            assert done.status == 0 or "doctor" in line, f"{line}: {done.err}"
            use_model(home, model)  # one of them chooses another
    assert (home / ".openclaw/state.sqlite").exists()
    with gateway(user) as address:
        user.must("homarus models status")
        assert address in user.must("homarus dashboard")
        with urlopen(address) as page:
            parts = re.findall(r'(?:src|href)="([^"]+\.(?:js|css))"', page.read().decode())
        assert any(name.startswith("./assets/") for name in parts)  # the control UI
        for name in parts:
            with urlopen(urljoin(address, name)) as part:
                assert part.status == 200 and part.read()
    user.must("homarus memory search lobster")
    user.must("rm -r homarus-backup-*.tar.gz old")
    user.must("homarus uninstall --all --yes")
    assert list(home.iterdir()) == []


def test_installed_program_names_its_documentation(
    programs: Path, model: ModelServer, tmp_path: Path
) -> None:
    user = NewUser(tmp_path, clean_env(tmp_path, programs))
    user.must("homarus setup")
    use_model(tmp_path, model)
    named = re.search(r"documentation of this program is in (\S+):", user.must("homarus prompt"))
    assert named and named[1].endswith("/site-packages/homarus/docs")
    assert (Path(named[1]) / "index.md").is_file()
    assert (Path(named[1]) / "reference" / "config.md").is_file()


def use_model(home: Path, model: ModelServer) -> None:
    """Make the scripted model answer."""
    file = home / ".openclaw/openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    row = {"id": "mock-1", "name": "Mock", "contextWindow": 100_000, "maxTokens": 4_000}
    provider = {"baseUrl": model.url, "apiKey": "sk-test", "models": [row]}
    config["models"] = {"providers": {"mock": provider}}
    config.setdefault("agents", {}).setdefault("defaults", {})["model"] = {"primary": "mock/mock-1"}
    file.write_text(json.dumps(config), encoding="utf-8")


@contextmanager
def gateway(user: NewUser) -> Iterator[str]:
    """Run `homarus gateway run`; yields the address of its page."""
    with subprocess.Popen(
        ["sh", "-c", "exec homarus gateway run --port 0"],
        env={**user.env, "PYTHONUNBUFFERED": "1"},
        cwd=user.home,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
            assert found
            yield f"http://{found[0]}/"
        finally:
            process.send_signal(signal.SIGTERM)


# The tools that install it


@pytest.mark.parametrize("tool", ["pipx", "uv tool"])
def test_tool_installs_and_removes_it_as_printed(user: NewUser, tool: str) -> None:
    line = next(one for one in TYPED if one.startswith(tool))
    user.must(line, folder=ROOT)
    check_program(user)
    assert f"{tool} uninstall homarus" in user.must("homarus uninstall --dry-run")
    user.must("homarus uninstall --all --yes")
    assert user.type("homarus --version").status == 127
    assert not (user.home / ".openclaw").exists()


def check_program(user: NewUser) -> None:
    """Use the installed program; it has what the demo model needs."""
    assert user.must("homarus --version") == f"homarus {__version__}\n"
    user.must("homarus setup")
    assert "xllamacpp" not in user.type("homarus models status").out


def test_uvx_runs_the_wheel_without_installing_it(user: NewUser, wheel: Path) -> None:
    dist = wheel.parent
    assert user.must("uvx --from ./*.whl homarus --version", folder=dist) == (
        f"homarus {__version__}\n"
    )
    done = user.must("uvx --from ./*.whl homarus uninstall --dry-run", folder=dist)
    assert "uv cache clean homarus" in done
    assert not (user.home / ".openclaw").exists()


# The first command of the README


class Shell:
    """A command at a pseudo-terminal."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.fd, child = pty.openpty()
        termios.tcsetwinsize(child, (24, 200))
        self._process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *command],
            stdin=child,
            stdout=child,
            stderr=child,
            env={**env, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(child)
        self.shown = ""

    def wait_for(self, pattern: str) -> None:
        deadline = time.monotonic() + READY_S
        while not re.search(pattern, self.shown):
            assert select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))[0], (
                self.shown
            )
            assert self._read(), f"ended without {pattern!r}: {self.shown}"

    def _read(self) -> bool:
        try:
            data = os.read(self.fd, 65_536)
        except OSError:  # the program has ended
            return False
        self.shown += PAINT.sub("\n", data.decode(errors="replace"))
        return bool(data)

    def type(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def end(self) -> int:
        while self._read():
            pass
        os.close(self.fd)
        return self._process.wait(timeout=60)


def test_first_command_survives_ctrl_c_and_opens_the_chat(user: NewUser, tmp_path: Path) -> None:
    python = str(user.home.parent / "tools" / "python3")
    env = {**user.env, "HOMARUS_VENV": str(tmp_path / "venv")}
    first = Shell([python, str(ROOT / "dev.py"), "run"], env)
    first.wait_for(r"[1-9]\d* of \d+ packages downloaded")
    first.type(b"\x03")
    assert first.end() == 130
    assert "Traceback" not in first.shown and "Stopped." in first.shown
    assert not (tmp_path / "venv/.homarus-stamp").exists()
    second = Shell([python, str(ROOT / "dev.py"), "run"], env)
    second.wait_for("incomplete, made again")
    second.wait_for(r"(\d+) of \1 packages installed")
    second.wait_for(r"is ready: \d+ packages in \d+ s\.")
    second.wait_for(r"Fetching the demo model: \d+ of 93 MB")
    second.wait_for("The demo model is in")
    second.wait_for(r"\n> |❯|demo")
    second.type(b"/quit\n")
    assert second.end() == 0
    assert "Traceback" not in second.shown
