"""How this program was installed, and the commands that extend, update and remove it."""

import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Final, Literal

from homarus.core.fast_dataclass import dataclass

_PACKAGE: Final = "homarus"


@dataclass(frozen=True, slots=True)
class Installation:
    """The tool that installed this program, and the folder that contains it."""

    tool: Literal["uv", "uvx", "pipx", "checkout", "pip"]
    folder: Path

    @property
    def removal(self) -> str:
        """The command, or the sentence, that removes the program."""
        match self.tool:
            case "uv":
                return f"uv tool uninstall {_PACKAGE}"
            case "uvx":
                return f"uv cache clean {_PACKAGE}"
            case "pipx":
                return f"pipx uninstall {_PACKAGE}"
            case "checkout":
                return f"delete the folder {self.folder}"
            case "pip":
                return f"{_pip()} uninstall {_PACKAGE}"

    @property
    def update(self) -> str:
        """The command, or the sentence, that installs the newest version."""
        match self.tool:
            case "uv":
                return f"uv tool upgrade {_PACKAGE}"
            case "uvx":
                return f"uvx --refresh {_PACKAGE}"
            case "pipx":
                return f"pipx upgrade {_PACKAGE}"
            case "checkout":
                return f"git -C {_quote(str(self.folder))} pull"
            case "pip":
                return f"{_pip()} install --upgrade {_PACKAGE}"


def find_installation() -> Installation:
    """Return how the running program was installed."""
    prefix = Path(sys.prefix)
    code = Path(__file__).resolve().parents[2]
    if (prefix / "uv-receipt.toml").is_file():
        return Installation("uv", prefix)
    if (prefix / "pipx_metadata.json").is_file():
        return Installation("pipx", prefix)
    if (code.parent / "dev.py").is_file():
        return Installation("checkout", code.parent)
    if any(part.startswith("archive-v") for part in prefix.parts):  # in the cache of uv
        return Installation("uvx", prefix)
    return Installation("pip", prefix)


@cache
def find_docs() -> Path | None:
    """Return the folder of the program's documentation: in the package, else in the checkout."""
    package = Path(__file__).resolve().parents[1]
    folders = [package / "docs"]
    if (package.parents[1] / "dev.py").is_file():
        folders.append(package.parents[1] / "docs")
    return next((folder for folder in folders if (folder / "index.md").is_file()), None)


def extra_command(extra: str) -> str:
    """Return the command that adds the packages of an extra to this installation."""
    match find_installation().tool:
        case "pipx":
            return f"pipx inject {_PACKAGE} {_requirements(extra)}"
        case "uv":
            python = _quote(sys.executable)
            return f"uv pip install --python {python} {_requirements(extra)}"
        case "uvx":
            return f"uvx --with {_requirements(extra).replace(' ', ' --with ')} {_PACKAGE}"
        case _:
            return f"{_pip()} install '{_PACKAGE}[{extra}]'"


def _requirements(extra: str) -> str:
    from importlib.metadata import PackageNotFoundError, requires

    try:
        listed = requires(_PACKAGE) or []
    except PackageNotFoundError:
        listed = []
    mine = [one.partition(";")[0].strip() for one in listed if f"extra == '{extra}'" in one]
    return " ".join(_quote(one) for one in mine) or f"'{_PACKAGE}[{extra}]'"


def _pip() -> str:
    """Return how the pip of this Python is run in the user's shell."""
    found = shutil.which("pip")
    if found and Path(found).parent == Path(sys.prefix) / "bin":
        return "pip"
    return f"{_quote(sys.executable)} -m pip"


def _quote(text: str) -> str:
    from shlex import quote  # the gateway needs this module at start, and shlex never

    return quote(text)
