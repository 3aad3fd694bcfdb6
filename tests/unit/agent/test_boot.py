"""BOOT.md is submitted as a message when the gateway starts."""

import asyncio
from pathlib import Path

from homarus.agent.agent import Agent
from homarus.agent.boot import run_boot_prompts
from homarus.core.message import Inbound
from homarus.store.journal import Acceptance, InboxRecord
from homarus.testing.memory_store import MemoryStore


def test_boot_agent_with_boot_file_gets_message_in_own_session(tmp_path: Path) -> None:
    for name, text in (("ada", "Say hello to nobody."), ("bob", "# Only a title\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "BOOT.md").write_text(text)
    agents = [Agent(name, name, tmp_path / name) for name in ("ada", "bob", "eve")]
    store, submitted = MemoryStore(), list[InboxRecord]()

    async def accept(key: str, inbound: Inbound) -> Acceptance:
        return await store.journal.accept(key, inbound, at_ms=1)

    asyncio.run(run_boot_prompts(agents, accept, lambda _key, record: submitted.append(record), 5))
    (record,) = submitted
    assert (record.session, record.channel) == ("agent:ada:boot", "boot")
    assert record.inbound and "Say hello to nobody." in record.inbound.text
