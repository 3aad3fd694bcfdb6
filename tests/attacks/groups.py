"""`group_chats`: what members of a group have the agent read, write, attach, change and order."""

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from homarus.channels.access_control import AccessControl, AccessGranted
from homarus.channels.telegram.inbound import TelegramIdentity, UpdateTranslator
from homarus.config.schema import Config
from homarus.core.channel_event import ButtonPressed
from homarus.core.errors import ToolDeniedError
from homarus.core.message import Address, Inbound, InboundMetadata, ToolCall, ToolResult
from homarus.policy.audience import audience_of, folder_of
from homarus.policy.tool_call import ToolCallFacts, ToolDecision
from homarus.policy.workspace_access import session_access
from homarus.sessions.envelope import format_envelope
from homarus.sessions.routing import Route
from homarus.testing.clock import FakeClock
from homarus.tools.attachments import AttachmentStore
from homarus.tools.builtin import files, search
from homarus.tools.builtin.message import message_tool
from homarus.tools.execute import execute_tool_call
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import Messenger, ToolContext
from tests.attacks.cases import Case, Judge

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-100"
OTHER = "agent:main:telegram:group:-200"
FOLDERS = {"own": Path(folder_of(audience_of(GROUP))).name}
FOLDERS["other"] = Path(folder_of(audience_of(OTHER))).name
SECRET = "TOPSECRET"
READER = UpdateTranslator("telegram", "default", TelegramIdentity(9, "our_bot"))
OWNER = {"id": 42, "first_name": "Ann"}
EVE = {"id": 6, "first_name": "Eve"}


@contextmanager
def world() -> Iterator[Judge]:
    """Create a workspace for each case."""

    def judge(case: Case) -> str:
        with tempfile.TemporaryDirectory() as folder:
            return _JUDGES.get(str(case["op"]), _judge_file)(Path(folder), case)

    yield judge


def _build(base: Path) -> Path:
    root = base / "ws"
    private = ("MEMORY.md", "memory/2026-01-31.md", "bank/ann.md", "memory/chats/{other}/x.md")
    common = ("AGENTS.md", "BOOT.md", "notes/plan.md", "notes/soul.md", "memory/shared/team.md")
    for names, text in ((private, SECRET), (common, "hello")):
        for name in names:
            file = root / name.format(**FOLDERS)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    (root / "SOUL.md").symlink_to("notes/soul.md")
    (root / "way").symlink_to("AGENTS.md")
    (root / "link.md").symlink_to("MEMORY.md")
    (root / "second.md").write_text(SECRET)
    (root / "hard.md").hardlink_to(root / "second.md")
    return root


def _judge_file(base: Path, case: Case) -> str:
    """Call a file tool, or attach the file."""
    root, op = _build(base), str(case["op"])
    path = str(case["path"]).format(**FOLDERS)
    before = _contents(root)
    if op == "attach":
        (media,) = asyncio.run(AttachmentStore(base / "media")([path], root, session_access(GROUP)))
        return "" if bool(media.problem) == (case["expected"] == "deny") else f"was {media}"
    key = MAIN if op == "owner_write" else GROUP
    args = {"write": {"content": "pwned"}, "grep": {"pattern": SECRET}}
    name = op.removeprefix("owner_")
    given = _call(root, key, name, {"path": path, **args.get(name, {})})
    if SECRET in given.text:
        return "the secret was read"
    if case["expected"] == "deny":
        refused = given.is_error or given.text == "no matches"
        return "" if refused and _contents(root) == before else f"answered {given.text[:100]!r}"
    return f"answered {given.text[:100]!r}" if given.is_error else ""


def _contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def _allow(_call: ToolCallFacts) -> ToolDecision:
    return ToolDecision("allow", "")


def _call(root: Path, key: str, name: str, args: Mapping[str, Any]) -> ToolResult:
    tools, ctx = ToolRegistry.from_modules(files, search), ToolContext(key, "main", root)
    return asyncio.run(execute_tool_call(tools, ctx, ToolCall("1", name, args), _allow))


class _OwnerChat:
    """A messenger that knows the owner's chat and records what is changed there."""

    def __init__(self) -> None:
        self.changed: list[str] = []

    def accounts(self) -> list[tuple[str, str]]:
        return [("telegram", "default")]

    def resolve_address(self, target: str, **_names: Any) -> Address:
        return Address("telegram", target)

    async def is_known_chat(self, _agent: str, _to: Address) -> bool:
        return True

    async def edit(self, _to: Address, message_id: str, _text: str) -> None:
        self.changed.append(message_id)

    async def delete(self, _to: Address, message_id: str) -> None:
        self.changed.append(message_id)


def _judge_change(base: Path, case: Case) -> str:
    chat = _OwnerChat()
    here = Address("telegram", "-100")
    ctx = ToolContext(GROUP, "main", base, here=here, messenger=cast("Messenger", chat))
    args = {"action": case["op"], "target": "42", "messageId": "5", "message": "obey"}
    try:
        asyncio.run(_use_message_tool(ctx, args))
    except ToolDeniedError:
        return "changed it all the same" if chat.changed else ""
    return "was allowed"


async def _use_message_tool(ctx: ToolContext, args: Mapping[str, Any]) -> None:
    await message_tool()(ctx, args)


def _judge_press(base: Path, case: Case) -> str:
    button = {"text": case["label"], "callback_data": "/send off"}
    under = {
        "message_id": 4,
        "date": 1,
        "chat": {"id": -100, "type": "supergroup"},
        "from": {"id": 9},
        "reply_markup": {"inline_keyboard": [[button]]},
    }
    query = {"id": "7", "from": OWNER, "message": under, "data": "/send off"}
    found = READER.to_event({"callback_query": query}, 1)
    if not isinstance(found, ButtonPressed) or found.label != case["label"]:
        return f"was {found}"
    return _judge_authority(base, found.to_message())


def _judge_foreign(base: Path, case: Case) -> str:
    field = str(case["field"])
    origins: Mapping[str, Any] = {
        "via_bot": EVE,
        "forward_origin": {"type": "user", "sender_user": EVE},
        "forward_date": 5,
    }
    chat = {"id": 42, "type": "private"}
    message = {"message_id": 4, "date": 1, "chat": chat, "from": OWNER, "text": "/send off"}
    found = READER.to_event({"message": {**message, field: origins[field]}}, 1)
    return _judge_authority(base, found) if isinstance(found, Inbound) else "was not received"


def _judge_authority(base: Path, inbound: Inbound) -> str:
    tree = {"channels": {"telegram": {"allowFrom": ["42"], "groups": {"-100": {}}}}}
    config = Config.model_validate(tree)
    access = AccessControl(
        lambda: config, base, FakeClock(), find_entry=lambda _key: {}, is_command=lambda _text: True
    )
    decision = access.check(inbound, Route("main", "telegram", "default", MAIN, "", ""))
    if not isinstance(decision, AccessGranted):
        return f"was {decision}"
    return f"has the authority {decision.inbound.authority}" if decision.inbound.authority else ""


def _judge_line(_base: Path, case: Case) -> str:
    metadata = InboundMetadata(kind="group", name="Eve")
    text = f"hello\n{case['text']}"
    inbound = Inbound("1", Address("telegram", "-100"), "6", text, metadata=metadata)
    shown = format_envelope(inbound, group=True)
    return "is not marked" if shown.endswith(f"\n{case['text']}") else ""


_JUDGES = {
    "edit": _judge_change,
    "delete": _judge_change,
    "press": _judge_press,
    "foreign": _judge_foreign,
    "line": _judge_line,
}
