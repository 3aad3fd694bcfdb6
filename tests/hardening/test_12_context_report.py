"""`/context json` and `/status` show no path of the host to members of a group."""

from pathlib import Path

import pytest

from tests.unit.gateway.app_harness import Harness, answer, run
from tests.unit.gateway.test_dispatcher import said

GROUP = "agent:main:telegram:group:-100"
OWNER, OTHER = ("read", "write", "admin"), ("read", "write")


async def shown(it: Harness, key: str, text: str, scopes: tuple[str, ...]) -> str:
    run_id = f"{key}-{text}-{len(scopes)}".replace(" ", "-")
    params = {"sessionKey": key, "message": text, "idempotencyKey": run_id}
    await it.ask("chat.send", params, *scopes)
    await it.ended(run_id)
    return said(it, run_id)


@pytest.mark.parametrize("text", ["/context json", "/context detail", "/status"])
async def test_report_in_group_has_no_host_paths(tmp_path: Path, text: str) -> None:
    async with run(tmp_path, answer("hello")) as it:
        for key, scopes in ((GROUP, OWNER), (GROUP, OTHER), ("main", OTHER)):
            report = await shown(it, key, text, scopes)
            assert str(tmp_path) not in report and len(report) > 50
        report = await shown(it, "main", text, OWNER)
        assert (str(tmp_path) in report) == (text != "/context detail")


async def test_report_in_group_still_names_files(tmp_path: Path) -> None:
    async with run(tmp_path, answer("hello")) as it:
        (it.app.agent("main").workspace / "AGENTS.md").write_text("Be kind.")
        assert '"AGENTS.md"' in await shown(it, GROUP, "/context json", OTHER)


async def test_export_in_group_writes_no_prompt_file(tmp_path: Path) -> None:
    async with run(tmp_path, answer("hello"), answer("hello")) as it:
        workspace = it.app.agent("main").workspace
        await shown(it, GROUP, "hi", OWNER)
        for name in ("BOOT.md", "skills/x/notes.md", "memory/x.md"):
            refused = await shown(it, GROUP, f"/export {name}", OWNER)
            assert "not written from this conversation" in refused
        assert "to exports/" in await shown(it, GROUP, "/export", OTHER)
        assert not (workspace / "skills").exists() and not (workspace / "memory" / "x.md").exists()
