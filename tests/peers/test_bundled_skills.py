"""The bundled skills against their real programs: every example is run as its page shows it.

The programs are installed as the skills say: the Debian packages of their headers, or PyPI's.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from homarus.skills.catalog import BUNDLED_FOLDER
from homarus.skills.find import SkillRoot, find_skills
from homarus.skills.skill import Skill, SkillTier
from tests.contract.journals import postgres_server
from tests.contract.sandboxes import container_problem
from tests.peers.install import Original, alone, cache, debian, run
from tests.peers.wheel import clean_env
from tests.skill_examples import ExampleRunner, examples_of, new_env

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]

SKILLS = {
    skill.name: skill
    for skill in find_skills([SkillRoot(SkillTier.BUNDLED, BUNDLED_FOLDER)]).skills
}
MIN_PROGRAMS = 60
# As many words in the same order as in a skill of OpenClaw are a copy; commands are alike sooner.
MIN_COPIED_WORDS = 6
MIN_COPIED_COMMAND_WORDS = 9
NEEDS_ACCOUNT = 4  # the status of gh for a command that it understands, without a login
READY_S = 30.0


def texts() -> dict[str, str]:
    return {name: skill.file.read_text(encoding="utf-8") for name, skill in SKILLS.items()}


@pytest.fixture(scope="module")
def tools() -> Path:
    """Return a folder with the programs that are not the system's: homarus, uv and PyPI's."""
    from uv import find_uv_bin

    folder = cache() / "skill-programs"
    folder.mkdir(exist_ok=True)
    uv = Path(find_uv_bin())
    for program in (uv, uv.with_name("uvx"), Path(sys.executable).with_name("homarus")):
        link = folder / program.name
        link.unlink(missing_ok=True)
        link.symlink_to(program)
    return folder


def install(skill: Skill, tools: Path) -> None:
    """Install the programs of a skill as its header says, Debian's packages first."""
    missing = {name for name in _required(skill) if not _is_there(name, tools)}
    for one in skill.metadata.install:
        if one.kind == "apt":
            debian(**dict.fromkeys(one.bins, one.package))
            missing -= set(one.bins)
    for one in skill.metadata.install:
        if one.kind == "uv" and missing.intersection(one.bins):
            env = {"UV_TOOL_DIR": str(tools / "tools"), "UV_TOOL_BIN_DIR": str(tools)}
            with alone("skill-programs"):
                run(str(tools / "uv"), "tool", "install", "--quiet", one.package, env=env)
    assert [name for name in _required(skill) if not _is_there(name, tools)] == []


def _required(skill: Skill) -> list[str]:
    requires = skill.metadata.requires
    assert requires is not None
    return [*requires.bins, *requires.any_bins[:1]]


def _is_there(name: str, tools: Path) -> bool:
    return shutil.which(name, path=f"{tools}:{os.environ['PATH']}:/usr/sbin:/sbin") is not None


@contextmanager
def _dns_server(home: Path) -> Iterator[Mapping[str, str]]:
    """Run a name server with the records of the examples; dig asks it."""
    debian(dnsmasq="dnsmasq-base")
    words = (
        "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
        "--port=15353", "--listen-address=127.0.0.1", "--bind-interfaces", "--pid-file=",
        "--local=/example/", "--local-ttl=300", "--host-record=shop.example,192.0.2.10",
        "--mx-host=shop.example,mail.shop.example,10", "--txt-record=shop.example,v=spf1 mx -all",
    )  # fmt: skip
    (home / ".digrc").write_text("@127.0.0.1 -p 15353\n", encoding="utf-8")
    program = shutil.which("dnsmasq", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program
    with subprocess.Popen([program, *words]) as server:
        try:
            ask = ["dig", "@127.0.0.1", "-p", "15353", "+tries=1", "+time=1", "shop.example"]
            deadline = time.monotonic() + READY_S
            while subprocess.run(ask, capture_output=True, check=False).returncode:
                assert server.poll() is None and time.monotonic() < deadline
            yield {}
        finally:
            server.terminate()


@contextmanager
def _database(home: Path) -> Iterator[Mapping[str, str]]:
    with postgres_server() as address:
        parts = urlsplit(address)
        host = parts.hostname or parse_qs(parts.query)["host"][0]
        yield {"PGHOST": host, "PGUSER": str(parts.username), "PGDATABASE": parts.path.strip("/")}


@contextmanager
def _container_settings(home: Path) -> Iterator[Mapping[str, str]]:
    """Set limits that hold where a process may not raise its own."""
    problem = container_problem()
    if problem:
        pytest.skip(problem)
    file = home / "containers.conf"
    limits = '[containers]\ndefault_ulimits = ["nofile=256:256", "nproc=256:256"]\n'
    file.write_text(f'{limits}[engine]\nruntime = "runc"\n', encoding="utf-8")
    yield {"CONTAINERS_CONF": str(file)}


@contextmanager
def _nothing(home: Path) -> Iterator[Mapping[str, str]]:
    yield {}


STAGES: Mapping[str, Callable[[Path], AbstractContextManager[Mapping[str, str]]]] = {
    "dns": _dns_server,
    "postgres": _database,
    "containers": _container_settings,
}


@pytest.mark.parametrize("name", SKILLS)
def test_bundled_skill_runs_its_program_as_shown(name: str, tools: Path) -> None:
    install(SKILLS[name], tools)
    # A short path: sockets of gpg-agent have at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="skill-") as folder:
        home = Path(folder) / "home"
        env = new_env(home) | clean_env(home, tools)
        with (
            STAGES.get(name, _nothing)(home) as more,
            ExampleRunner(Path(folder) / "work", {**env, **more}) as runner,
        ):
            for example in examples_of(texts()[name]):
                if example.runs:
                    runner.check(example)


def test_github_commands_are_understood_without_an_account(tools: Path) -> None:
    install(SKILLS["github"], tools)
    with tempfile.TemporaryDirectory(prefix="skill-") as folder:
        env = new_env(Path(folder) / "home")
        with ExampleRunner(Path(folder) / "work", env) as runner:
            blocks = [e for e in examples_of(texts()["github"]) if e.kind == "account"]
            lines = [line for block in blocks for line in block.script.splitlines()]
            assert len(lines) > 10
            for line in lines:
                status, printed = runner.run(line)
                assert status == NEEDS_ACCOUNT and "gh auth login" in printed, f"{line}: {printed}"
            status, _ = runner.run("gh pr list --no-such-option")
            assert status == 1


def test_bundled_skills_run_many_distinct_programs() -> None:
    programs = set[str]()
    for skill in SKILLS.values():
        declared = set[str]().union(*(one.bins for one in skill.metadata.install))
        for example in examples_of(texts()[skill.name]):
            if example.runs:
                programs |= example.programs() & declared
    assert len(programs) >= MIN_PROGRAMS, sorted(programs)


def test_bundled_skills_are_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name, text in texts().items():
            stored = archive.read(f"homarus/skills/bundled/{name}/SKILL.md")
            assert stored.decode() == text


@pytest.mark.parametrize("version", ["original", "newest"])
def test_bundled_skills_share_no_sentence_with_openclaw(
    version: str, request: pytest.FixtureRequest
) -> None:
    theirs: Original = request.getfixturevalue(version)
    files = list((theirs.entry.parent / "skills").rglob("*.md"))
    assert len(files) > 40
    their_texts = [file.read_text(encoding="utf-8", errors="ignore") for file in files]
    # The metadata is a format: the same program has the same fields.
    bodies = {name: text.split("\n---\n", 1)[1] for name, text in texts().items()}
    prose = {
        name: SKILLS[name].description + re.sub(r"(?ms)^```.*?^```$", "", body)
        for name, body in bodies.items()
    }
    assert _copies(prose, their_texts, MIN_COPIED_WORDS) == {}
    assert _copies(bodies, their_texts, MIN_COPIED_COMMAND_WORDS) == {}


def _copies(ours: Mapping[str, str], theirs: Sequence[str], min_words: int) -> dict[str, set[str]]:
    """Return the rows of words that are in both, by skill."""
    known = set[str]().union(*(_rows(text, min_words) for text in theirs))
    found = {name: _rows(text, min_words) & known for name, text in ours.items()}
    return {name: rows for name, rows in found.items() if rows}


def _rows(text: str, count: int) -> set[str]:
    words = re.findall(r"[\w'-]+", text.lower())
    return {" ".join(words[at : at + count]) for at in range(len(words) - count + 1)}
