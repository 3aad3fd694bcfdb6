"""Installs of skills in the complete program: approvals, audit, real npm, failures and timeouts."""

import asyncio
import hashlib
import io
import json
import os
import shutil
import tarfile
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.app import configure
from homarus.agent.approval_ports import ApproverIdentity
from homarus.agent.skill_install import DependencyInstaller, InstallOutcome
from homarus.app import App
from homarus.core.errors import ToolDeniedError, UserError
from homarus.net.guard import NetworkPolicy
from homarus.process import open_app
from homarus.store.approvals import ApprovalRecord
from tests.unit.skills.install_builders import BREW, add_program, make_tar, write_install_skill
from tests.unit.tools.web_builders import SiteRequest, open_site, respond, respond_json
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)


class Person:
    """A person at the terminal with one answer for everything."""

    identity = ApproverIdentity("a person")

    def __init__(self, answer: str = "allow-once") -> None:
        self.answer, self.asked = answer, list[ApprovalRecord]()

    def is_reachable(self, _record: ApprovalRecord) -> bool:
        return True

    async def ask(self, record: ApprovalRecord) -> str | None:
        self.asked.append(record)
        return self.answer


@pytest.fixture
def bins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of programs that is the first of the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@asynccontextmanager
async def open_program(home: Path, settings: Mapping[str, Any] | None = None) -> AsyncIterator[App]:
    configure(home, "http://127.0.0.1:1")
    file = home / "state" / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    given = dict(settings or {})
    config["agents"]["defaults"] |= given.pop("defaults", {})
    config |= given
    file.write_text(json.dumps(config), encoding="utf-8")
    env = {"HOME": str(home), "OPENCLAW_STATE_DIR": str(home / "state")}
    async with open_app({**env, "PATH": os.environ["PATH"]}) as app:
        yield app


async def install(
    app: App, install_id: str = "", *, timeout_s: float = 60.0, **given: Any
) -> InstallOutcome:
    installer = DependencyInstaller(app.gateway_services(), app.skills(), "main", "a test", **given)
    found, skill = await installer.load("helper")
    (plan,) = installer.plan(found, skill, install_id)
    return await installer.install(plan, timeout_s)


async def audit(app: App) -> list[Any]:
    await app.audit.write()
    return [each for each in await app.store.audit_entries() if each.tool == "exec"]


async def test_install_runs_after_an_approval_and_makes_eligible(
    tmp_path: Path, bins: Path
) -> None:
    add_program(
        bins, "brew", f'echo "brew $@"; printf "#!/bin/sh\\n" > {bins}/prog; chmod 755 {bins}/prog'
    )
    write_install_skill(tmp_path / "workspace" / "skills", BREW)
    async with open_program(tmp_path) as app:
        person = Person()
        app.approval_ports.register_approver(person)
        found = app.skills().load("main")
        assert not any(each.name == "helper" for each in found.eligible())
        outcome = await install(app)
        assert outcome.is_success and outcome.output == "brew install prog\n" and outcome.code == 0
        assert any(each.name == "helper" for each in app.skills().load("main").eligible())
        [record] = person.asked
        assert record.request["command"] == "brew install prog" and record.tool == "exec"
        assert "    brew install prog" in str(record.request["detail"])
        stored = await app.store.journal.approval(record.id)
        assert stored and stored.state == "allowed" and stored.used_ms
        rows = await audit(app)
        assert [each.kind for each in rows] == ["decision", "approval", "approval", "execution"]
        assert rows[0].data["action"] == "ask" and rows[-1].data["exitCode"] == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"tools": {"exec": {"security": "full"}}},
        {"tools": {"exec": {"security": "allowlist", "ask": "off"}}},
        {"defaults": {"sandbox": {"mode": "all"}}},
    ],
)
async def test_install_asks_or_is_denied_under_every_setting(
    tmp_path: Path, bins: Path, settings: dict[str, Any]
) -> None:
    add_program(bins, "brew", "echo done")
    write_install_skill(tmp_path / "workspace" / "skills", BREW)
    entries = [{"pattern": f"{bins}/brew"}, {"pattern": "**"}]
    async with open_program(tmp_path, settings) as app:
        file = tmp_path / "state" / "exec-approvals.json"
        file.write_text(json.dumps({"version": 1, "agents": {"main": {"allowlist": entries}}}))
        file.chmod(0o600)
        person = Person()
        app.approval_ports.register_approver(person)
        if settings.get("tools", {}).get("exec", {}).get("ask") == "off":
            with pytest.raises(ToolDeniedError, match="ask is off"):
                await install(app)
            assert person.asked == []
        else:
            assert (await install(app)).is_success and len(person.asked) == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"tools": {"exec": {"security": "deny"}}}, "security is deny"),
        ({"tools": {"deny": ["exec"]}}, "denied by 'exec'"),
        ({"tools": {"deny": ["group:runtime"]}}, "denied by 'group:runtime'"),
    ],
)
async def test_install_that_the_config_denies_is_not_asked_about(
    tmp_path: Path, bins: Path, settings: dict[str, Any], reason: str
) -> None:
    add_program(bins, "brew", f"touch {tmp_path}/ran")
    write_install_skill(tmp_path / "workspace" / "skills", BREW)
    async with open_program(tmp_path, settings) as app:
        person = Person()
        app.approval_ports.register_approver(person)
        with pytest.raises(ToolDeniedError, match=reason):
            await install(app)
        assert person.asked == [] and not (tmp_path / "ran").exists()
        assert [each.data["action"] for each in await audit(app)] == ["deny"]


async def test_install_that_a_person_denies_does_not_run(tmp_path: Path, bins: Path) -> None:
    add_program(bins, "brew", f"touch {tmp_path}/ran")
    write_install_skill(tmp_path / "workspace" / "skills", BREW)
    async with open_program(tmp_path) as app:
        app.approval_ports.register_approver(Person("deny"))
        with pytest.raises(ToolDeniedError, match="was denied by a person"):
            await install(app)
        assert not (tmp_path / "ran").exists()


async def test_install_without_an_approver_is_refused(tmp_path: Path, bins: Path) -> None:
    add_program(bins, "brew", f"touch {tmp_path}/ran")
    write_install_skill(tmp_path / "workspace" / "skills", BREW)
    async with open_program(tmp_path) as app:
        with pytest.raises(ToolDeniedError, match="no approver can be reached"):
            await install(app)
        assert not (tmp_path / "ran").exists()


async def test_install_that_fails_returns_its_output_and_code(tmp_path: Path, bins: Path) -> None:
    add_program(bins, "brew", "yes x | head -c 100000; echo no >&2; exit 3")
    write_install_skill(tmp_path / "workspace" / "skills", BREW)
    async with open_program(tmp_path) as app:
        app.approval_ports.register_approver(Person())
        outcome = await install(app)
    assert not outcome.is_success and outcome.code == 3 and "exit code 3" in outcome.message
    assert outcome.output.endswith("no\n") and len(outcome.output) < 21_000


async def test_install_that_takes_too_long_is_ended_with_its_children(
    tmp_path: Path, bins: Path
) -> None:
    add_program(bins, "brew", f"sleep 600 & echo $! > {tmp_path}/child; wait")
    write_install_skill(tmp_path / "workspace" / "skills", BREW)
    async with open_program(tmp_path) as app:
        app.approval_ports.register_approver(Person())
        outcome = await install(app, timeout_s=2.0)
        assert not outcome.is_success and "not done after 2 s" in outcome.message
        child = int((tmp_path / "child").read_text())
        await until(lambda: not Path(f"/proc/{child}").exists(), 0.01)


async def test_install_whose_asker_is_gone_cancels_its_approval(tmp_path: Path, bins: Path) -> None:
    add_program(bins, "brew", f"touch {tmp_path}/ran")
    write_install_skill(tmp_path / "workspace" / "skills", BREW)
    async with open_program(tmp_path) as app:
        app.approval_ports.reach.append(lambda _record: True)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(install(app))
            pending = list[ApprovalRecord]()
            while not pending:
                await asyncio.sleep(0.01)
                pending = list(await app.approvals().list_pending())
            task.cancel()
        [record] = pending
        stored = await app.store.journal.approval(record.id)
        assert stored and stored.state == "cancelled" and not (tmp_path / "ran").exists()


async def test_install_whose_program_was_replaced_does_not_run(tmp_path: Path, bins: Path) -> None:
    add_program(bins, "brew", "echo good")
    write_install_skill(tmp_path / "workspace" / "skills", BREW)

    class Attacker(Person):
        async def ask(self, record: ApprovalRecord) -> str | None:
            add_program(bins, "brew", f"touch {tmp_path}/ran")
            return await super().ask(record)

    async with open_program(tmp_path) as app:
        app.approval_ports.register_approver(Attacker())
        outcome = await install(app)
    assert not outcome.is_success and not (tmp_path / "ran").exists()


async def test_download_is_written_after_an_approval(tmp_path: Path) -> None:
    data = make_tar(("prog-1/prog", b"#!/bin/sh\necho hi\n"))
    spec = {"id": "get", "kind": "download", "url": "https://a.example/prog.tgz", "bins": ["prog"],
            "stripComponents": 1, "sha256": hashlib.sha256(data).hexdigest()}  # fmt: skip
    write_install_skill(tmp_path / "workspace" / "skills", spec)
    fetched: list[str] = []

    async def fetch(url: str, _policy: NetworkPolicy, _timeout_s: float) -> bytes:
        fetched.append(url)
        return data

    async with open_program(tmp_path) as app:
        denier = Person("deny")
        remove = app.approval_ports.register_approver(denier)
        with pytest.raises(ToolDeniedError):
            await install(app, "get", fetch=fetch)
        assert fetched == []
        remove()
        app.approval_ports.register_approver(Person())
        outcome = await install(app, "get", fetch=fetch)
        assert outcome.is_success, outcome.message
        program = tmp_path / "state" / "tools" / "helper" / "prog"
        assert program.stat().st_mode & 0o777 == 0o700 and str(program) in outcome.output
        detail = str(denier.asked[0].request["detail"])
        assert "download: https://a.example/prog.tgz" in detail and str(spec["sha256"]) in detail


async def test_install_of_an_unknown_skill_or_id_is_refused(tmp_path: Path) -> None:
    write_install_skill(tmp_path / "workspace" / "skills", BREW)
    async with open_program(tmp_path) as app:
        with pytest.raises(UserError, match="has no install"):
            await install(app, "other")
        installer = DependencyInstaller(app.gateway_services(), app.skills(), "main", "a test")
        with pytest.raises(UserError, match="there is no skill"):
            await installer.load("other")


# A real package manager, on a registry of our own


def make_package(name: str) -> bytes:
    """Return the archive of a package with a program, and a script that must not run."""
    manifest = {
        "name": name,
        "version": "1.0.0",
        "bin": {name: "cli.js"},
        "scripts": {"install": "touch ran", "postinstall": "touch ran"},
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        program = b"#!/usr/bin/env node\nconsole.log('hello from npm')\n"
        for path, data in (
            ("package/package.json", json.dumps(manifest).encode()),
            ("package/cli.js", program),
        ):
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), 0o755
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
async def test_install_by_npm_installs_a_package_without_its_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, name = make_package("homarus-test-prog"), "homarus-test-prog"

    def answer(request: SiteRequest) -> bytes:
        if request.path.endswith(".tgz"):
            return respond(data, kind="application/octet-stream")
        integrity = f"sha512-{b64encode(hashlib.sha512(data).digest()).decode()}"
        version = {
            "name": name,
            "version": "1.0.0",
            "bin": {name: "cli.js"},
            "hasInstallScript": True,
            "dist": {"tarball": f"{site.url}/{name}-1.0.0.tgz", "integrity": integrity},
        }
        tags = {"latest": "1.0.0"}
        return respond_json({"name": name, "dist-tags": tags, "versions": {"1.0.0": version}})

    spec = {"id": "node", "kind": "node", "package": name, "bins": [name]}
    write_install_skill(tmp_path / "workspace" / "skills", spec, bins=(name,))
    prefix = tmp_path / "prefix"
    async with open_site(answer) as site:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("npm_config_registry", site.url)
        monkeypatch.setenv("npm_config_prefix", str(prefix))
        monkeypatch.setenv("PATH", f"{prefix}/bin:{os.environ['PATH']}")
        async with open_program(tmp_path) as app:
            app.approval_ports.register_approver(Person())
            outcome = await install(app)
            assert outcome.is_success, outcome.output
            assert any(each.name == "helper" for each in app.skills().load("main").eligible())
    assert (prefix / "bin" / name).exists()
    assert list(prefix.rglob("ran")) == []
