"""`skills.install`: who may ask for it, who must approve it, and what is answered."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import InvalidRequestError, ProtocolError, UnavailableError
from tests.unit.gateway.app_harness import Harness, run
from tests.unit.skills.install_builders import BREW, add_program, write_install_skill

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def brew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that a stand-in for brew creates, on a machine with a skill that wants it."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    add_program(tmp_path / "bin", "brew", f'touch {tmp_path}/ran; echo "$@"; exit $CODE')
    write_install_skill(tmp_path / "state" / "skills", BREW)
    return tmp_path / "ran"


async def install(it: Harness, decision: str, **params: Any) -> Any:
    """Ask for the install, and answer its approval as a client does."""
    it.app.approval_ports.reach.append(lambda _record: True)
    given = {"name": "helper", "installId": "brew", **params}
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(_catch(it, given))
        pending: list[Any] = []
        while not pending and not asked.done():
            pending = await it.ask("exec.approval.list", {}, "approvals")
            await asyncio.sleep(0.01)
        for each in pending:
            request = each["request"]
            assert request["command"] == "brew install prog"
            answer = {"id": each["id"], "decision": decision}
            await it.ask("exec.approval.resolve", answer, "approvals")
    return asked.result()


async def _catch(it: Harness, params: dict[str, Any]) -> Any:
    try:
        return await it.ask("skills.install", params, "admin")
    except ProtocolError as exc:
        return exc


async def test_skills_install_answers_after_approval_and_install(
    tmp_path: Path, brew: Path
) -> None:
    async with run(tmp_path) as it:
        result = await install(it, "allow-once", timeoutMs=30_000)
    assert brew.exists()
    assert result == {
        "ok": True,
        "message": "installed",
        "stdout": "install prog\n",
        "stderr": "",
        "code": 0,
    }


async def test_skills_install_that_is_denied_is_a_clear_error(tmp_path: Path, brew: Path) -> None:
    async with run(tmp_path) as it:
        result = await install(it, "deny")
    assert isinstance(result, UnavailableError) and "was denied by" in result.message
    assert not brew.exists()


async def test_skills_install_that_fails_has_its_output(
    tmp_path: Path, brew: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (tmp_path / "bin" / "brew").read_text().replace("$CODE", "4")
    (tmp_path / "bin" / "brew").write_text(text)
    async with run(tmp_path) as it:
        result = await install(it, "allow-once")
    assert isinstance(result, UnavailableError) and "exit code 4" in result.message
    assert result.payload["ok"] is False and result.payload["code"] == 4
    assert result.payload["stdout"] == "install prog\n" and brew.exists()


@pytest.mark.parametrize("scope", ["read", "write", "approvals", "pairing"])
async def test_skills_install_needs_the_scope_admin(tmp_path: Path, brew: Path, scope: str) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(ProtocolError, match="missing scope"):
            await it.ask("skills.install", {"name": "helper", "installId": "brew"}, scope)
    assert not brew.exists()


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"name": "other"}, "there is no skill"),
        ({"installId": "other"}, "has no install"),
        ({"timeoutMs": 999}, "timeoutMs"),
        ({"agentId": "nobody"}, "unknown agent"),
    ],
)
async def test_skills_install_with_wrong_params_is_refused(
    tmp_path: Path, brew: Path, params: dict[str, Any], problem: str
) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(InvalidRequestError, match=problem):
            await it.ask("skills.install", {"name": "helper", "installId": "brew", **params})
    assert not brew.exists()
