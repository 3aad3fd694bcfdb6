"""Changes of config, session settings and devices are in the audit log, with who made them."""

import json
from pathlib import Path

from homarus.agent.commands.catalog import BY_NAME
from homarus.config.change_log import changes_by
from homarus.config.load import load_config
from homarus.config.write import write_config
from homarus.core.message import Json
from homarus.store.audit import AuditEntry
from tests.unit.gateway.app_harness import CONFIG, Harness, run

KEY = "agent:main:main"


async def rows(harness: Harness, target: str) -> list[AuditEntry]:
    found = await harness.store.audit_entries(kind="config")
    return [row for row in found if row.data["target"] == target]


async def test_config_write_is_audited_with_author_and_without_secrets(tmp_path: Path) -> None:
    async with run(tmp_path) as harness:
        app, env = harness.app, {"HOME": str(tmp_path)}
        token = "gateway-token-of-mine-1"

        def change(tree: dict[str, Json]) -> Json:
            return {**tree, "gateway": {"auth": {"token": token}}, "tools": {"deny": ["exec"]}}

        with changes_by("telegram:42"):
            write_config(app.paths, env, change)
        await app.reload(load_config(app.paths, app.loaded.env))
        written, loaded = await rows(harness, "config")
        assert (written.data["by"], written.data["action"]) == ("telegram:42", "write")
        changed = str(written.data["changed"])
        assert "tools" in changed and "exec" in changed and token not in changed
        assert loaded.data["action"] == "load" and "tools" in str(loaded.data["changed"])
        assert written.data["hash"] == loaded.data["hash"] and token not in str(loaded)


async def test_config_edited_by_hand_is_audited_when_it_is_loaded(tmp_path: Path) -> None:
    async with run(tmp_path) as harness:
        app = harness.app
        app.paths.config.write_text(json.dumps({**CONFIG, "tools": {"deny": ["exec"]}}))
        await app.reload(load_config(app.paths, app.loaded.env))
        (loaded,) = await rows(harness, "config")
        assert loaded.data["action"] == "load" and "tools" in str(loaded.data["changed"])


async def test_session_policy_patch_is_audited_and_other_fields_not(tmp_path: Path) -> None:
    async with run(tmp_path) as harness:
        await harness.ask("sessions.patch", {"key": "main", "label": "mine"})
        assert await rows(harness, "session") == []
        await harness.ask("sessions.patch", {"key": "main", "execSecurity": "full"})
        (row,) = await rows(harness, "session")
        assert (row.agent, row.session) == ("main", KEY)
        assert row.data["changed"] == {"execSecurity": "unset → full"}


async def test_chat_command_that_changes_policy_names_its_sender(tmp_path: Path) -> None:
    assert "send" in BY_NAME
    async with run(tmp_path) as harness:
        await harness.send("/send off")
        (row,) = await rows(harness, "session")
        assert row.data["changed"] == {"sendPolicy": "unset → deny"}
        assert str(row.data["by"]).startswith("webchat:")
