"""Prompts for approvals in chats: who gets them, what they show, and what becomes of them."""

from collections.abc import Mapping
from typing import Any

import pytest

from homarus.agent.approval_prompts import (
    MAX_DETAIL_CHARS,
    ChatPrompts,
    PromptServices,
    format_outcome,
    format_prompt,
)
from homarus.channels.base import Capabilities
from homarus.channels.markup import parts
from homarus.channels.outbound import build_outbox_records
from homarus.config.channels import common_settings
from homarus.config.schema import ApprovalTargetConfig, Config
from homarus.core.message import NO_EXTRAS, Address, Extras, Inbound, Json
from homarus.store.approvals import ApprovalRecord
from homarus.store.journal import OutboxRecord
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from homarus.tools.exec.approval import describe_command

CHAT = Address("telegram", "42")
TARGET = Address("irc", "#ops")
TARGETS = [{"channel": "irc", "to": "#ops"}]


def record(
    command: str = "ls -l",
    *,
    is_owner: bool = True,
    request: Mapping[str, Json] | None = None,
    **fields: Any,
) -> ApprovalRecord:
    detail = describe_command(command, folder="/ws", env={}, timeout_s=60)
    shown = {"title": "Run this command?", "detail": detail, "command": command}
    asked = {**shown, **(request or {})}
    address = {"channel": "telegram", "chat": "42", "account": "default", "thread": None}
    given = {
        "id": "4f2a91c0-0000-4000-8000-000000000000",
        "agent": "main",
        "session": "agent:main:main",
        "run": "r",
        "call_id": "c",
        "tool": "exec",
        "requester": "telegram:42",
        "digest": "d",
        "request": asked,
        "created_ms": 0,
        "expires_ms": FakeClock().now_ms() + 86_400_000,
        "extra": {"address": address, "isOwner": is_owner},
    }
    return ApprovalRecord(**{**given, **fields})


class World:
    """Prompts on two running channels, telegram with edits and irc without."""

    def __init__(self, rules: Mapping[str, Json] | None = None) -> None:
        self.config = Config.model_validate({"approvals": {"exec": rules or {}}})
        self.journal = MemoryStore().journal
        self.prompts = ChatPrompts(
            PromptServices(
                get_config=lambda: self.config,
                get_accounts=lambda: {("telegram", "default"), ("irc", "default")},
                resolve_target=self._resolve_target,
                can_edit=lambda to: to.channel == "telegram",
                build_reply=self._build_reply,
                journal=self.journal,
                clock=FakeClock(),
                on_enqueued=lambda: None,
            )
        )

    def _resolve_target(self, target: ApprovalTargetConfig) -> Address | None:
        return Address(target.channel, target.to) if target.channel != "gone" else None

    def _build_reply(
        self, inbound: Inbound, run: str, text: str, first: int = 0, extras: Extras = NO_EXTRAS
    ) -> list[OutboxRecord]:
        settings = common_settings(self.config, inbound.address.channel, "default")
        return build_outbox_records(
            run,
            text,
            inbound.address,
            Capabilities(max_buttons=9),
            settings,
            at_ms=0,
            extras=extras,
        )

    async def send(self, asked: ApprovalRecord, receipt: str = "77") -> None:
        """Send the prompts, as the outbox worker does."""
        prompts = self.prompts.build(asked)
        async with self.journal.transaction() as transaction:
            transaction.enqueue(*prompts)
        async with self.journal.lease("outbox") as lease:
            for each in prompts:
                async with self.journal.transaction() as transaction:
                    transaction.send_started(each.id, lease)
                    transaction.send_ended(each.id, lease, "sent", receipt=receipt)

    async def outcomes(self, resolved: ApprovalRecord, **named: Any) -> list[OutboxRecord]:
        await self.prompts.show_outcome(resolved, **named)
        return list(await self.journal.outbox_records("pending"))


def test_prompt_goes_to_the_chat_of_the_owner_with_three_buttons() -> None:
    found = World().prompts.build(record(request={"always": "/bin/ls"}))
    assert [each.address for each in found] == [CHAT]
    buttons = [button for row in found[0].extras.buttons for button in row]
    assert [each.label for each in buttons] == ["Allow once", "Always allow", "Deny"]
    assert all(len(each.data.encode()) <= 64 for each in buttons)
    assert "/approve 4f2a91c0" in found[0].text and "ls -l" in found[0].text
    assert "expires in 24 h" in found[0].text and "/bin/ls" in found[0].text


def test_prompt_without_always_offers_no_allow_always() -> None:
    (found,) = World().prompts.build(record())
    labels = [button.label for row in found.extras.buttons for button in row]
    assert labels == ["Allow once", "Deny"] and "allow-always" not in found.text


@pytest.mark.parametrize(
    ("rules", "is_owner", "chats"),
    [
        ({}, False, []),
        ({"enabled": False}, True, []),
        ({"enabled": False, "mode": "both", "targets": TARGETS}, True, []),
        ({"enabled": True}, True, [CHAT]),
        ({"mode": "targets"}, True, []),
        ({"mode": "targets", "targets": TARGETS}, True, [TARGET]),
        ({"mode": "both", "targets": TARGETS * 2}, True, [CHAT, TARGET]),
        ({"mode": "both", "targets": TARGETS}, False, [TARGET]),
        ({"mode": "targets", "targets": [{"channel": "gone", "to": "x"}]}, True, []),
        ({"agentFilter": ["work"]}, True, []),
        ({"agentFilter": ["Main"]}, True, [CHAT]),
        ({"sessionFilter": ["telegram:"]}, True, []),
        ({"sessionFilter": ["^agent:.*:main$"]}, True, [CHAT]),
    ],
)
def test_prompt_chats_follow_the_config(
    rules: Mapping[str, Json], is_owner: bool, chats: list[Address]
) -> None:
    found = World(rules).prompts.find_chats(record(is_owner=is_owner))
    assert list(found) == chats


def test_prompt_chat_of_an_account_that_does_not_run_is_left_out() -> None:
    address = {"channel": "matrix", "chat": "!r", "account": "default", "thread": None}
    asked = record(extra={"address": address, "isOwner": True})
    assert World().prompts.find_chats(asked) == ()


def test_prompt_command_cannot_leave_its_code_block() -> None:
    command = "echo '```' '<b>x</b>' **bold** ~~~ [a](b)\n```\nApproval 1: denied"
    text = format_prompt(record(command))
    assert text.count("\n````\n") == 2
    (rendered,) = parts(text, Capabilities(dialect="telegram"), limit=4_000)
    shown = rendered.text
    block = shown[shown.index("<pre>") : shown.index("</pre>")]
    assert "&lt;b&gt;x&lt;/b&gt;" in block and "**bold**" in block and "[a](b)" in block
    assert "Approval 1: denied" in block and shown.count("<pre>") == 1


def test_prompt_title_and_reason_have_no_markdown() -> None:
    text = format_prompt(record(request={"title": "[x](y) `a`", "reason": "**rule**\n# x"}))
    (rendered,) = parts(text, Capabilities(dialect="telegram"), limit=4_000)
    shown = rendered.text
    assert "[x](y) `a`" in shown and "**rule** # x" in shown


def test_prompt_that_is_too_long_can_only_be_denied() -> None:
    (first, *_rest) = found = World().prompts.build(record("x" * (MAX_DETAIL_CHARS + 50)))
    assert all(not each.extras.buttons for each in found) and first.address == CHAT
    together = "".join(each.text for each in found)
    assert "more characters are not shown here" in together
    assert "deny` denies it" in together and "allow-once" not in together


async def test_outcome_edits_the_prompt_and_removes_its_buttons() -> None:
    world, asked = World(), record()
    await world.send(asked)
    resolved = record(state="allowed", decision="allow-once", resolved_by="Ann (telegram:42)")
    (edit,) = await world.outcomes(resolved)
    assert edit.extras.replaces == "77" and not edit.extras.buttons
    assert "allowed once by Ann" in edit.text and "ls -l" in edit.text
    assert await world.outcomes(resolved) == [edit]  # once


async def test_outcome_is_a_notice_where_the_service_cannot_edit() -> None:
    world, asked = World({"mode": "both", "targets": TARGETS}), record()
    await world.send(asked)
    resolved = record(state="denied", decision="deny", resolved_by="cli")
    edit, notice = await world.outcomes(resolved)
    assert (edit.address, notice.address) == (CHAT, TARGET)
    assert notice.text == "Approval 4f2a91c0 was denied by cli." and not notice.extras.replaces


async def test_outcome_sends_no_notice_to_the_chat_that_answered() -> None:
    world = World({"mode": "targets", "targets": TARGETS})
    await world.send(record())
    resolved = record(state="denied", decision="deny", resolved_by="irc:ann")
    assert await world.outcomes(resolved, answered_in=TARGET) == []


async def test_outcome_of_unsent_prompt_is_a_notice() -> None:
    world = World()
    await world.send(record(), receipt="")
    (notice,) = await world.outcomes(record(state="denied", decision="deny", resolved_by="cli"))
    assert not notice.extras.replaces and "denied by cli" in notice.text


def test_outcome_names_expiry_and_withdrawal() -> None:
    assert "expired without an answer" in format_outcome(record(state="expired"))
    assert "was withdrawn" in format_outcome(record(state="cancelled"))


def test_target_chat_is_recognised_only_by_the_config() -> None:
    asked = record()
    assert not World().prompts.is_target(asked, TARGET)
    assert World({"mode": "targets", "targets": TARGETS}).prompts.is_target(asked, TARGET)
    assert not World({"mode": "targets", "targets": TARGETS}).prompts.is_target(asked, CHAT)
    off = {"enabled": False, "mode": "targets", "targets": TARGETS}
    assert not World(off).prompts.is_target(asked, TARGET)
