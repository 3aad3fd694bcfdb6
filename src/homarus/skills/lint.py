"""A static check of a skill before it is installed: dropper shapes, and what the skill asks for.

Nothing is executed and nothing is fetched. A finding has a file, a line and a severity: `block`
refuses the install, `warn` asks, `info` is shown. The check finds known shapes; a skill without
findings can still be bad, and what a skill asks for is therefore always shown with it.
"""

import io
import json
import re
import unicodedata
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.skills.hub.skill_files import SKILL_FILE, SkillFile, is_hidden
from homarus.skills.lint_rules import DATA_URL, LINE_RULES, LONG_BLOB, Severity
from homarus.skills.skill import Install
from homarus.skills.skill_needs import SCRIPT_SUFFIXES, SkillNeeds, format_install, read_needs

MAX_LINE_CHARS: Final = 1_500
MAX_FINDINGS: Final = 200
MAX_TEXT_CHARS: Final = 2_000_000  # of all files of a skill; the time of the check is bounded by it
_RANK: Final = {"block": 0, "warn": 1, "info": 2}
_PROGRAMS: Final = (
    (b"\x7fELF", "a Linux program"),
    (b"MZ", "a Windows program"),
    (b"\xcf\xfa\xed\xfe", "a macOS program"),
    (b"\xce\xfa\xed\xfe", "a macOS program"),
    (b"\xca\xfe\xba\xbe", "a macOS program or Java class"),
    (b"\x00asm", "a WebAssembly program"),
    (b"!<arch>\n", "a program library or package"),
    (b"xar!", "an installer"),
)
_PROGRAM_SUFFIXES: Final = frozenset(
    {".exe", ".dll", ".so", ".dylib", ".msi", ".pkg", ".dmg", ".deb", ".rpm", ".jar", ".class",
     ".pyc", ".pyo", ".wasm", ".scr", ".com", ".lnk", ".apk", ".appimage", ".node", ".o", ".a"}
)  # fmt: skip
_ARCHIVE_SUFFIXES: Final = frozenset({".zip", ".7z", ".rar", ".tar", ".gz", ".tgz", ".bz2", ".xz"})
_ARCHIVE_MAGIC: Final = (b"PK\x03\x04", b"7z\xbc\xaf", b"Rar!")
_MEDIA_SUFFIXES: Final = frozenset(
    {".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".bmp", ".svg", ".pdf", ".ttf", ".otf",
     ".woff", ".woff2", ".mp3", ".wav", ".ogg", ".mp4", ".webm", ".sqlite", ".db", ".xlsx", ".docx",
     ".pptx", ".parquet", ".npy"}
)  # fmt: skip
# Characters that reorder or hide text. Joiners within emoji and marks of direction are usual.
_REORDERING: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ZERO_WIDTH: Final = frozenset("\u200b\u200c\u2060\u2061\u2062\u2063\u2064\ufeff\u00ad\u180e")
_SHELL_MARKS: Final = re.compile(r"[\s;&|`$<>(){}\\\"'*?!]")
_KNOWN_HOSTS: Final = frozenset(
    {"github.com", "objects.githubusercontent.com", "raw.githubusercontent.com", "gitlab.com",
     "codeberg.org", "files.pythonhosted.org", "pypi.org", "registry.npmjs.org", "huggingface.co",
     "dl.google.com", "storage.googleapis.com", "go.dev", "nodejs.org", "releases.hashicorp.com"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One finding: the rule, where it is, and what was found there."""

    rule: str
    severity: Severity
    file: str
    line: int
    message: str
    excerpt: str = ""

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class LintReport:
    """The findings, the worst first, and what the skill asks for."""

    findings: tuple[LintFinding, ...]
    needs: SkillNeeds

    @property
    def blocks(self) -> tuple[LintFinding, ...]:
        return tuple(each for each in self.findings if each.severity == "block")

    @property
    def warnings(self) -> tuple[LintFinding, ...]:
        return tuple(each for each in self.findings if each.severity == "warn")


def lint_skill(files: Iterable[SkillFile]) -> LintReport:
    """Check the files of a skill."""
    files = tuple(files)
    texts: dict[str, str] = {}
    findings: list[LintFinding] = []
    left = MAX_TEXT_CHARS
    for file in sorted(files, key=lambda each: (not _is_instruction(each.path), each.path)):
        findings += _check_file(file)
        if (text := _decode(file)) is not None:
            texts[file.path] = text[:left]
            findings += _check_text(file.path, text[:left])
            findings += _check_rest(file.path, len(text) - left)
            left -= min(left, len(text))
    needs = read_needs(texts, (file.path for file in files))
    if needs.problem:
        text = f"the skill cannot be offered: {needs.problem}"
        findings.append(LintFinding("unreadable", "warn", SKILL_FILE, 0, text))
    for install in needs.installs:
        findings += _check_install(install)
    unique = dict.fromkeys(findings)
    ordered = sorted(unique, key=lambda each: (_RANK[each.severity], each.file, each.line))
    return LintReport(tuple(ordered[:MAX_FINDINGS]), needs)


def encode_report(report: LintReport) -> dict[str, Json]:
    """Return a report as clients and `--json` show it."""
    return {
        "asksFor": dict(report.needs.rows()),
        "findings": [
            {
                "rule": each.rule,
                "severity": each.severity,
                "file": each.file,
                "line": each.line,
                "message": each.message,
                "excerpt": each.excerpt,
            }
            for each in report.findings
        ],
    }


def _is_instruction(path: str) -> bool:
    """Return whether a file is one that an agent follows or runs, and not data."""
    suffix = PurePosixPath(path).suffix.lower()
    return suffix in SCRIPT_SUFFIXES or suffix in ("", ".md", ".txt")


def _check_rest(path: str, unread: int) -> Iterator[LintFinding]:
    if unread > 0:
        severity: Severity = "block" if _is_instruction(path) else "warn"
        text = f"{unread} characters of it were not read: the skill has too much text"
        yield LintFinding("too-much-text", severity, path, 0, text)


def _decode(file: SkillFile) -> str | None:
    if b"\0" in file.data[:4096]:
        return None
    try:
        return file.data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _check_file(file: SkillFile) -> Iterator[LintFinding]:
    """Check what a file is by its first bytes and its name."""
    suffix = PurePosixPath(file.path).suffix.lower()
    program = next((name for magic, name in _PROGRAMS if file.data.startswith(magic)), "")
    if program or suffix in _PROGRAM_SUFFIXES:
        text = f"it is {program or 'a program'}, which cannot be read here"
        yield LintFinding("program-file", "block", file.path, 0, text)
    elif suffix in _ARCHIVE_SUFFIXES or file.data.startswith(
        (b"PK\x03\x04", b"7z\xbc\xaf", b"Rar!")
    ):
        yield from _check_nested_archive(file, suffix)
    elif suffix not in _MEDIA_SUFFIXES and _decode(file) is None:
        yield LintFinding("binary-file", "warn", file.path, 0, "it is not text, and was not read")
    if is_hidden(file.path):
        yield LintFinding("hidden-file", "warn", file.path, 0, "its name begins with a dot")
    if file.path.endswith("package.json"):
        yield from _check_package(file)


def _check_nested_archive(file: SkillFile, suffix: str) -> Iterator[LintFinding]:
    encrypted = suffix in (".7z", ".rar")
    if file.data.startswith(b"PK"):
        try:
            with zipfile.ZipFile(io.BytesIO(file.data)) as archive:
                encrypted = any(info.flag_bits & 0x1 for info in archive.infolist()[:10_000])
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
            encrypted = True
        if suffix in _MEDIA_SUFFIXES and not encrypted:
            return
    severity: Severity = "block" if encrypted else "warn"
    what = "an archive that cannot be read" if encrypted else "an archive, which was not read"
    yield LintFinding("nested-archive", severity, file.path, 0, f"it is {what}")


def _check_package(file: SkillFile) -> Iterator[LintFinding]:
    try:
        scripts = json.loads(file.data).get("scripts", {})
    except (ValueError, AttributeError, RecursionError):
        return
    for name in ("preinstall", "install", "postinstall", "prepare"):
        if isinstance(scripts, dict) and name in scripts:
            text = f"npm would run its script {name}; nothing is run when a skill is installed"
            yield LintFinding("install-script", "warn", file.path, 0, text)


def _check_text(path: str, text: str) -> Iterator[LintFinding]:
    for number, line in _logical_lines(text):
        yield from _check_hidden_text(path, number, line)
        plain = _without_hidden(line)
        for piece in _pieces(plain):
            seen: set[str] = set()
            for rule in LINE_RULES:  # of a rule that blocks and warns, the first counts
                if rule.rule not in seen and rule.matches(piece):
                    seen.add(rule.rule)
                    shown = one_line(piece.strip(), 160)
                    yield LintFinding(rule.rule, rule.severity, path, number, rule.message, shown)
        yield from _check_blobs(path, number, plain)
    yield from _check_steps(path, text)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line; lines that a backslash continues are one."""
    start, parts = 0, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        start = start if parts else number
        stripped = line.rstrip("\r")
        if stripped.endswith("\\") and len(parts) < 50:
            parts.append(stripped[:-1])
            continue
        yield start, " ".join([*parts, stripped])
        parts = []
    if parts:
        yield start, " ".join(parts)


def _pieces(line: str) -> Iterator[str]:
    """Yield a line in overlapping pieces: the time of a pattern is bounded by its length."""
    for start in range(0, max(1, len(line)), MAX_LINE_CHARS - 500):
        yield line[start : start + MAX_LINE_CHARS]
        if start + MAX_LINE_CHARS >= len(line):
            return


def _check_hidden_text(path: str, number: int, line: str) -> Iterator[LintFinding]:
    if line.isascii():
        return
    shown = one_line(line, 160)
    if any(ch in _REORDERING for ch in line):
        text = "has characters that show text in another order than it is read"
        yield LintFinding("hidden-text", "block", path, number, text, shown)
    if _has_tags(line):
        text = "has invisible characters that a model reads as letters"
        yield LintFinding("hidden-text", "block", path, number, text, shown)
    for at, ch in enumerate(line):
        if ch in _ZERO_WIDTH and not (number == 1 and at == 0 and ch == "\ufeff"):
            inside = 0 < at < len(line) - 1 and line[at - 1].isalpha() and line[at + 1].isalpha()
            is_script = inside and line[at - 1].isascii()
            severity: Severity = "block" if is_script else "warn"
            text = "has characters without a width, which hide words from a reader"
            yield LintFinding("hidden-text", severity, path, number, text, shown)
            return


def _has_tags(line: str) -> bool:
    """Return whether there are tag characters other than those of a flag."""
    plain = re.sub("\U0001f3f4[\U000e0020-\U000e007f]{1,8}", "", line)
    return any(0xE0000 <= ord(ch) <= 0xE007F or 0xE0100 <= ord(ch) <= 0xE01EF for ch in plain)


def _without_hidden(line: str) -> str:
    if line.isascii():
        return line
    kept = (ch for ch in line if ch not in _ZERO_WIDTH and unicodedata.category(ch) != "Cf")
    return unicodedata.normalize("NFKC", "".join(kept))


def _check_blobs(path: str, number: int, line: str) -> Iterator[LintFinding]:
    is_script = PurePosixPath(path).suffix.lower() in SCRIPT_SUFFIXES
    for found in LONG_BLOB.finditer(line):
        if DATA_URL.search(line[: found.start()][-100:]):
            continue
        severity: Severity = "block" if is_script or path == SKILL_FILE else "warn"
        text = f"has {len(found[0])} characters of encoded text"
        yield LintFinding("obfuscation", severity, path, number, text, one_line(found[0], 60))
        return
    if is_script and len(line) > 5_000:
        text = f"has a line of {len(line)} characters, which nobody can review"
        yield LintFinding("obfuscation", "warn", path, number, text)


_SAVED: Final = re.compile(
    r"(?:curl|wget)\b[^\n|]*(?:\s-\w*[oO]\s*|\s--output[ =]|>\s*)[\"']?([\w./~$-]+)", re.IGNORECASE
)
_STEPS_APART: Final = 6


def _check_steps(path: str, text: str) -> Iterator[LintFinding]:
    """Find a file that is downloaded in one line and run in one of the next."""
    lines = [line for _, line in _logical_lines(text)]
    numbers = [number for number, _ in _logical_lines(text)]
    for at, line in enumerate(lines):
        if (saved := _SAVED.search(line[:MAX_LINE_CHARS])) is None:
            continue
        name = re.escape(saved[1].rpartition("/")[2])
        runs = re.compile(
            rf"(?:chmod\s+\S*[x7]\S*\s+\S*|(?:ba|z)?sh\s+\S*|python3?\s+\S*|(?:^|\s)\./\S*|"
            rf"open\s+\S*|(?:^|\s)/tmp/){name}\b"
        )
        for later in range(at + 1, min(len(lines), at + 1 + _STEPS_APART)):
            if runs.search(lines[later][:MAX_LINE_CHARS]):
                shown = one_line(lines[later].strip(), 160)
                what = "runs a file that a line above downloads"
                yield LintFinding("download-and-run", "block", path, numbers[later], what, shown)
                break


def _check_install(install: Install) -> Iterator[LintFinding]:
    """Check where an install spec would take a program from."""
    shown = format_install(install)
    for severity, text in (*_check_package_name(install), *_check_download(install)):
        yield LintFinding("install-source", severity, SKILL_FILE, 0, text, shown)


def _check_package_name(install: Install) -> Iterator[tuple[Severity, str]]:
    source = install.formula or install.package or install.module
    if source and (_SHELL_MARKS.search(source) or source.startswith(("-", "/", ".", "~"))):
        yield "block", "an install spec is not the name of a package"
    elif "://" in source or source.startswith("git+"):
        yield "block", "an install spec takes a package from an address"
    elif install.kind == "brew" and source.count("/") >= 2:
        yield "warn", "an install spec takes a formula from a tap of somebody"


def _check_download(install: Install) -> Iterator[tuple[Severity, str]]:
    if install.target_dir.startswith(("/", "~", "..")) or "/../" in f"{install.target_dir}/":
        yield "block", "an install spec writes outside of the folder of tools"
    if not install.url:
        return
    try:
        parts = urlsplit(install.url)
        host = (parts.hostname or "").lower()
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.scheme != "https" or not host or parts.username:
        yield "block", "an install spec downloads without encryption, or not from the web"
    elif not re.search(r"[a-z]", host) or ":" in host:
        yield "block", "an install spec downloads from a bare address"
    elif host not in _KNOWN_HOSTS:
        yield "warn", f"an install spec downloads from {one_line(host, 80)}"
