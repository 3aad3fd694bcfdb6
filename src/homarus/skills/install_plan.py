"""Plan how the programs of a skill are installed: the exact command, or the exact download. Pure.

A skill says what it needs as data (`metadata.openclaw.install`), and its author is not trusted: a
name that a package manager could read as an option, a path or a URL is refused, and a download
stays in the folder `tools/<skill>` of the state directory. Nothing is run here.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from homarus.config.skills_schema import SkillInstallConfig
from homarus.core.errors import BlockedUrlError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.net.guard import parse_url
from homarus.skills.hub.entry_names import find_path_problem
from homarus.skills.skill import Install, InstallKind, Skill
from homarus.skills.status import label_install, list_installs

TOOLS_FOLDER: Final = "tools"
MAX_NAME_CHARS: Final = 200
MAX_STRIP: Final = 10

_BREW: Final = re.compile(r"(?:[a-z0-9][a-z0-9_-]*/[a-z0-9][a-z0-9_-]*/)?[a-z0-9][a-z0-9@+._-]*")
_APT: Final = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_NODE: Final = re.compile(
    r"(?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*(?:@[A-Za-z0-9][A-Za-z0-9.+_-]*)?"
)
_GO: Final = re.compile(
    r"[a-z0-9][a-z0-9-]*(?:\.[a-z0-9-]+)+(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+"
    r"(?:@[A-Za-z0-9][A-Za-z0-9.+_-]*)?"
)
_UV: Final = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9,._-]+\])?"
    r"(?:==[A-Za-z0-9][A-Za-z0-9.+!_-]*)?"
)
_KEY: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_ARCHIVES: Final = {
    ".zip": "zip", ".tar": "tar", ".tar.gz": "tar.gz", ".tgz": "tar.gz", ".tar.bz2": "tar.bz2",
    ".tbz2": "tar.bz2",
}  # fmt: skip
ARCHIVE_KINDS: Final = frozenset(_ARCHIVES.values())
# Lifecycle scripts of a package would run while it is installed, before any approval of them.
_NODE_COMMANDS: Final = {
    "npm": ("npm", "install", "--global", "--ignore-scripts"),
    "pnpm": ("pnpm", "add", "--global", "--ignore-scripts"),
    "yarn": ("yarn", "global", "add", "--ignore-scripts"),
    "bun": ("bun", "add", "--global", "--ignore-scripts"),
}
_ORDER: Final[tuple[InstallKind, ...]] = ("uv", "node", "apt", "brew", "go", "download")


@dataclass(frozen=True, slots=True)
class InstallFacts:
    """What is known of this machine: programs that exist, who runs this, and where tools go."""

    platform: str
    has_program: Callable[[str], bool]
    is_root: bool
    state: Path
    home: Path
    settings: SkillInstallConfig

    def program(self, install: Install) -> str:
        """Return the program that an install needs, "" for a download."""
        programs = {"brew": "brew", "apt": "apt-get", "go": "go", "uv": "uv", "download": ""}
        return programs.get(install.kind, self.settings.node_manager)


@dataclass(frozen=True, slots=True)
class InstallDownload:
    """A file to download, and what becomes of it; `archive` is "" for one that stays as it is."""

    url: str
    folder: Path
    file_name: str
    archive: str = ""
    strip_components: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """One way to install something for a skill: a command, or a download."""

    skill: Skill
    install_id: str
    install: Install
    argv: tuple[str, ...] = ()
    download: InstallDownload | None = None

    @property
    def label(self) -> str:
        return label_install(self.install)

    @property
    def command(self) -> str:
        """The command as a shell would read it, "" for a download."""
        return shlex.join(self.argv)

    @property
    def digest(self) -> str:
        """What an approval is bound to."""
        found = self.download
        download = [] if found is None else [
            found.url, str(found.folder), found.file_name, found.archive,
            found.strip_components, found.sha256,
        ]  # fmt: skip
        values = [self.skill.name, self.skill.key, self.install_id, list(self.argv), download]
        return hashlib.sha256(json.dumps(values).encode("utf-8", "surrogatepass")).hexdigest()

    def describe(self) -> list[str]:
        """Return everything that would happen, a fact in each line."""
        lines = [
            f"skill: {self.skill.name} ({self.skill.tier.value}), {self.skill.folder}",
            f"install: {self.label} [{self.install_id}]",
        ]
        if self.install.bins:
            lines.append(f"programs: {', '.join(self.install.bins)}")
        if not self.download:
            return [*lines, f"command: {self.command}"]
        found = self.download
        lines += [f"download: {found.url}", f"folder: {found.folder}"]
        if found.archive:
            strip = f", without the first {found.strip_components} folders of each name" if (
                found.strip_components
            ) else ""  # fmt: skip
            lines.append(f"unpack: {found.archive}{strip}")
        else:
            lines.append(f"file: {found.file_name}")
        known = found.sha256 or "none: the skill does not say what the file must be"
        return [*lines, f"sha256: {known}"]


def choose_installs(
    skill: Skill, missing: Collection[str], facts: InstallFacts
) -> tuple[InstallPlan, ...]:
    """Return the plans that provide the missing programs, the best one for each.

    Without missing programs, these are the installs that provide something else, as a model.
    Raises UserError when nothing fits this machine.
    """
    options = list(list_installs(skill, facts.platform))
    if not missing:
        found = [each for each in options if not each[1].bins and each[1].kind == "download"]
        return tuple(make_install_plan(skill, *each, facts) for each in found)
    chosen: dict[str, InstallPlan] = {}
    problems: list[str] = []
    for program in sorted(missing):
        fitting = [each for each in options if not each[1].bins or program in each[1].bins]
        if any(each[0] in chosen for each in fitting):
            continue
        plan = _choose(skill, fitting, facts, problems)
        if plan is None:
            why = "; ".join(problems) or "the skill does not say how"
            raise UserError(
                f"{program} cannot be installed here: {why}",
                fix=f"install {program} yourself, or see {skill.homepage or skill.file}",
            )
        chosen[plan.install_id] = plan
    return tuple(chosen.values())


def _choose(
    skill: Skill,
    options: Sequence[tuple[str, Install]],
    facts: InstallFacts,
    problems: list[str],
) -> InstallPlan | None:
    for install_id, install in _sorted(options, facts):
        program = facts.program(install)
        if install.kind == "apt" and not facts.platform.startswith("linux"):
            problems.append(f"{install_id} is for Linux")
        elif program and not facts.has_program(program):
            problems.append(f"{install_id} needs {program}, which is not on the PATH")
        else:
            try:
                return make_install_plan(skill, install_id, install, facts)
            except UserError as exc:
                problems.append(exc.message)
    return None


def _sorted(
    options: Sequence[tuple[str, Install]], facts: InstallFacts
) -> Iterator[tuple[str, Install]]:
    """Yield the ways to install something, the preferred one first."""
    order = ("brew", *_ORDER) if facts.settings.prefer_brew else _ORDER
    yield from sorted(options, key=lambda each: order.index(each[1].kind))


def find_install(skill: Skill, install_id: str, facts: InstallFacts) -> InstallPlan:
    """Return the plan of one way to install, by its id. Raises UserError."""
    options = dict(list_installs(skill, facts.platform))
    install = options.get(install_id)
    if install is None:
        known = ", ".join(options) or "none on this system"
        raise UserError(
            f"the skill {skill.name} has no install {one_line(install_id, 60)!r}",
            fix=f"it has {known}",
        )
    return make_install_plan(skill, install_id, install, facts)


def make_install_plan(
    skill: Skill, install_id: str, install: Install, facts: InstallFacts
) -> InstallPlan:
    """Return the plan. Raises UserError for a specification that is not what it should be."""
    plan = InstallPlan(skill, install_id, install)
    match install.kind:
        case "brew":
            name = _check_name(plan, "formula", install.formula, _BREW)
            argv: tuple[str, ...] = ("brew", "install", name)
        case "apt":
            name = _check_name(plan, "package", install.package, _APT)
            sudo = () if facts.is_root else ("sudo", "-n")  # it must not ask for a password
            argv = (*sudo, "apt-get", "install", "-y", "--no-install-recommends", name)
        case "node":
            name = _check_name(plan, "package", install.package, _NODE)
            argv = (*_NODE_COMMANDS[facts.settings.node_manager], name)
        case "go":
            name = _check_name(plan, "module", install.module, _GO)
            argv = ("go", "install", name if "@" in name else f"{name}@latest")
        case "uv":
            name = _check_name(plan, "package", install.package, _UV)
            argv = ("uv", "tool", "install", name)
        case "download":
            download = _make_download(plan, facts)
            return InstallPlan(skill, install_id, install, download=download)
    return InstallPlan(skill, install_id, install, argv)


def _check_name(plan: InstallPlan, key: str, name: str, pattern: re.Pattern[str]) -> str:
    """Return a name. Raises UserError for an option, a path, a URL or another text."""
    is_plain = len(name) <= MAX_NAME_CHARS and pattern.fullmatch(name) and ".." not in name
    if not is_plain:
        raise _refusal(plan, f"{key} {one_line(name, 60)!r} is no name for {plan.install.kind}")
    return name


def _refusal(plan: InstallPlan, reason: str) -> UserError:
    return UserError(
        f"the install {plan.install_id} of the skill {plan.skill.name} is refused: {reason}",
        fix=f"correct {plan.skill.file}, or install it yourself",
    )


# Downloads


def tools_folder(skill: Skill, state: Path) -> Path:
    """Return the folder that downloads of a skill go to. Raises UserError for a strange key."""
    if not _KEY.fullmatch(skill.key):
        raise UserError(f"the key {one_line(skill.key, 60)!r} of the skill is no name of a folder")
    return state / TOOLS_FOLDER / skill.key


def _make_download(plan: InstallPlan, facts: InstallFacts) -> InstallDownload:
    install = plan.install
    try:
        parts, _, _ = parse_url(install.url)
    except BlockedUrlError as exc:
        raise _refusal(plan, exc.message) from exc
    if parts.scheme != "https":
        raise _refusal(plan, "a download is made by https:// alone")
    name = unquote(parts.path.rpartition("/")[2]) or "download"
    if problem := find_path_problem(name):
        raise _refusal(plan, f"the file name {one_line(name, 60)!r}: {problem}")
    archive = _find_archive(plan, name)
    sha256 = install.sha256.lower()
    if sha256 and not _SHA256.fullmatch(sha256):
        raise _refusal(plan, "sha256 has not 64 hexadecimal digits")
    strip = install.strip_components or 0
    if not 0 <= strip <= MAX_STRIP:
        raise _refusal(plan, f"stripComponents is not a number from 0 to {MAX_STRIP}")
    folder = _target_folder(plan, tools_folder(plan.skill, facts.state), facts.home)
    return InstallDownload(parts.geturl(), folder, name, archive, strip if archive else 0, sha256)


def _find_archive(plan: InstallPlan, name: str) -> str:
    """Return the kind of archive that is unpacked, "" for none."""
    install = plan.install
    found = next((kind for end, kind in _ARCHIVES.items() if name.lower().endswith(end)), "")
    named = install.archive.lower().removeprefix(".")
    kind = {"tgz": "tar.gz", "tbz2": "tar.bz2"}.get(named, named) or found
    if kind and kind not in ARCHIVE_KINDS:
        raise _refusal(plan, f"archive {one_line(kind, 20)!r} is not one of zip, tar.gz, tar.bz2")
    if install.extract and not kind:
        raise _refusal(plan, "extract is set, and the file is no archive that is known")
    return kind if install.extract is None or install.extract else ""


def _target_folder(plan: InstallPlan, root: Path, home: Path) -> Path:
    """Return the folder of a download, which is in the folder of the skill's tools."""
    target = plan.install.target_dir
    if target.startswith("~/"):
        target = f"{home}/{target[2:]}"
    if target.startswith("/"):
        if not Path(target).is_relative_to(root) or ".." in Path(target).parts:
            raise _refusal(plan, f"targetDir is outside {root}")
        return Path(target)
    if target and (problem := find_path_problem(target.rstrip("/"))):
        raise _refusal(plan, f"targetDir {one_line(target, 60)!r}: {problem}")
    return root / target if target else root
