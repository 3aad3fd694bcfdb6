"""audit.list and audit.verify: filters, pages, and a log that was changed."""

from pathlib import Path

import pytest

from homarus.core.errors import InvalidRequestError, ProtocolError
from homarus.store.audit import AuditEntry
from tests.unit.gateway.app_harness import Harness, answer, run


async def add_rows(it: Harness) -> None:
    """Add five rows of two kinds and two agents; the last one is not stored yet."""
    rows = [
        AuditEntry(1_000 + n, "decision" if n % 2 else "config", agent, tool="exec", data={"n": n})
        for n, agent in enumerate(("main", "work", "main", "work"))
    ]
    await it.app.audit.write(*rows)
    it.app.audit.record(AuditEntry(2_000, "config", "main", data={"n": 4}))


async def test_audit_rows_are_listed_newest_first_in_pages(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        await add_rows(it)
        first = await it.ask("audit.list", limit=2)
        assert [row["data"]["n"] for row in first["rows"]] == [4, 3]
        second = await it.ask("audit.list", limit=3, beforeSeq=first["nextBeforeSeq"])
        assert [row["data"]["n"] for row in second["rows"]] == [2, 1, 0]
        assert second["nextBeforeSeq"] is None
        assert first["rows"][0]["hash"] != first["rows"][1]["hash"]


async def test_audit_rows_are_filtered(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        await add_rows(it)
        by_kind = await it.ask("audit.list", kind="decision")
        assert [row["agent"] for row in by_kind["rows"]] == ["work", "work"]
        assert len((await it.ask("audit.list", agentId="main"))["rows"]) == 3
        assert len((await it.ask("audit.list", tool="exec", sinceMs=1_002))["rows"]) == 2
        assert (await it.ask("audit.list", tool="no such tool"))["rows"] == []


@pytest.mark.parametrize(
    "asked", [{"kind": "x"}, {"limit": 0}, {"limit": 501}, {"beforeSeq": 0}, {"sinceMs": -1}]
)
async def test_audit_list_refuses_invalid_params(asked: dict[str, object], tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(InvalidRequestError):
            await it.ask("audit.list", asked)


async def test_audit_is_refused_without_admin(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        for method in ("audit.list", "audit.verify"):
            with pytest.raises(ProtocolError, match=r"operator\.admin"):
                await it.ask(method, None, "write")


async def test_audit_verify_finds_rows_that_were_cut_off(tmp_path: Path) -> None:
    async with run(tmp_path, answer("x")) as it:
        await add_rows(it)
        found = await it.ask("audit.verify")
        assert (found["ok"], found["problem"]) == (True, "")
        anchor = it.app.paths.state / "audit-anchor.json"
        anchor.write_text('{"seq": 900, "hash": "' + "0" * 64 + '"}', encoding="ascii")
        broken = await it.ask("audit.verify")
        assert broken["ok"] is False and "cut off" in broken["problem"]
