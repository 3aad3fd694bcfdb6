"""The package as users get it: built here, and installed into an environment without ours."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.program import Done
from tests.peers.install import cache, run
from tests.style.rules import ROOT

INSTALL_S = 600
# What a machine needs to reach its index; nothing else of ours reaches an installed program.
_PASSED_ON = ("PIP_", "UV_", "SSL_", "REQUESTS_", "CURL_", "HTTP_", "HTTPS_", "NO_PROXY", "LANG")


def build(target: str, folder: Path, root: Path = ROOT) -> Path:
    """Build a `wheel` or an `sdist`; return its file."""
    command = (sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder))
    run(*command, cwd=root, env={"HOMARUS_NO_UI": ""})  # a wheel has the control UI
    return next(folder.glob("*.whl" if target == "wheel" else "*.tar.gz"))


def clean_env(home: Path, *folders: Path) -> dict[str, str]:
    """Return the environment of a new user, with these folders on the PATH before the system's."""
    system = [part for part in os.environ["PATH"].split(":") if "venv" not in part]
    passed_on = {k: v for k, v in os.environ.items() if k.upper().startswith(_PASSED_ON)}
    return {
        **passed_on,
        "HOME": str(home),
        "PATH": ":".join([*map(str, folders), *system]),
        "PIP_CACHE_DIR": str(cache() / "pip"),
        "UV_CACHE_DIR": str(cache() / "uv"),
        "NO_PROXY": "127.0.0.1",
    }


@dataclass(frozen=True, slots=True)
class NewUser:
    """A home with nothing in it, and a shell in which commands are typed as they are printed."""

    home: Path
    env: dict[str, str]

    def type(self, line: str, *, folder: Path | None = None) -> Done:
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=folder or self.home,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def must(self, line: str, *, folder: Path | None = None) -> str:
        """Type a command that has to succeed; return what it printed."""
        done = self.type(line, folder=folder)
        assert done.status == 0, f"{line}: {done.out}{done.err}"
        return done.out


def installed(wheel: Path, folder: Path) -> Path:
    """Install the wheel with pip into a new environment; return the folder of its programs."""
    run(sys.executable, "-m", "venv", str(folder))
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    run(*pip, str(wheel), env={"PIP_CACHE_DIR": str(cache() / "pip")})
    return folder / "bin"
