"""Ask for approvals in chats: which chats get a prompt, its text, and what becomes of it.

A prompt goes to the chat that led to the call, if its sender is the owner, and to the chats of
`approvals.exec.targets`. It is an outbox record that is saved with the approval. When the approval
is answered, expires or is cancelled, the prompt is edited, or a short notice follows it where the
service cannot edit.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from homarus.agent.approval_ports import requester_address
from homarus.agent.question_prompts import format_question, format_question_outcome
from homarus.config.schema import ApprovalForwardingConfig, ApprovalTargetConfig, Config
from homarus.core.approval_button import make_approval_buttons, make_choice_buttons
from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Button, Extras, Inbound, InboundMetadata
from homarus.core.session_keys import normalize_agent_id
from homarus.core.text import one_line
from homarus.store.approvals import ApprovalRecord
from homarus.store.journal import BuildReply, Journal, OutboxRecord

SHORT_ID_CHARS: Final = 8
MAX_DETAIL_CHARS: Final = 12_000  # of one prompt: more than that cannot be allowed in a chat
_MAX_REASON_CHARS: Final = 300
_MAX_MESSAGES: Final = 100
_BACKTICKS: Final = re.compile("`+")
_OUTCOMES: Final[Mapping[str, str]] = {
    "allow-once": "allowed once",
    "allow-always": "allowed for good",
    "deny": "denied",
}


@dataclass(frozen=True, slots=True)
class PromptServices:
    """What prompts use of the program; accounts are the running ones, as channel and account.

    `resolve_target` returns the chat of a configured target; None when its account does not run.
    """

    get_config: Callable[[], Config]
    get_accounts: Callable[[], Collection[tuple[str, str]]]
    resolve_target: Callable[[ApprovalTargetConfig], Address | None]
    can_edit: Callable[[Address], bool]
    build_reply: BuildReply
    journal: Journal
    clock: Clock
    on_enqueued: Callable[[], None]


class ChatPrompts:
    """The prompts and notices of all chats."""

    def __init__(self, services: PromptServices) -> None:
        self._services = services
        self._answered_in: dict[str, Address] = {}

    @contextmanager
    def answering(self, record_id: str, chat: Address) -> Iterator[None]:
        """Record that an approval is answered in a chat, which gets a reply and no notice."""
        self._answered_in[record_id] = chat
        try:
            yield
        finally:
            del self._answered_in[record_id]

    def build(self, record: ApprovalRecord) -> list[OutboxRecord]:
        """Return the prompts for an approval; none where no chat is to be asked."""
        chats = self.find_chats(record)
        if not chats:
            return []
        text = format_prompt(record, now_ms=self._services.clock.now_ms())
        extras = Extras(buttons=_make_buttons(record))
        build = self._services.build_reply
        return [
            message
            for index, to in enumerate(chats)
            for message in build(
                _recipient(to, record), _prompt_run(record.id, index), text, extras=extras
            )
        ]

    def find_chats(self, record: ApprovalRecord) -> tuple[Address, ...]:
        """Return the chats that are asked about a call, on accounts that run."""
        rules = self._services.get_config().approvals.exec
        if not _is_forwarded(rules, record):
            return ()
        chats = list[Address]()
        if rules.mode in {"session", "both"} and (own := requesting_chat(record)):
            is_running = (own.channel, own.account) in self._services.get_accounts()
            chats += [own] if is_running else []
        if rules.mode in {"targets", "both"}:
            chats += filter(None, map(self._services.resolve_target, rules.targets))
        return tuple(dict.fromkeys(chats))

    def is_asked_in(self, record: ApprovalRecord, chat: Address) -> bool:
        """Return whether a chat is asked about this call."""
        return any(_is_same_chat(each, chat) for each in self.find_chats(record))

    def is_target(self, record: ApprovalRecord, chat: Address) -> bool:
        """Return whether the config names a chat as one that is asked about this call."""
        rules = self._services.get_config().approvals.exec
        if rules.mode == "session" or not _is_forwarded(rules, record):
            return False
        targets = map(self._services.resolve_target, rules.targets)
        return any(each and _is_same_chat(each, chat) for each in targets)

    def find_answering_chat(self, record_id: str) -> Address | None:
        """Return the chat in which an approval is being answered now."""
        return self._answered_in.get(record_id)

    async def show_outcome(
        self, record: ApprovalRecord, answered_in: Address | None = None
    ) -> None:
        """Show in every chat that was asked what became of the approval.

        The chat where it was answered gets a reply, and the one that led to the call a notice of
        the expiry: in those, the prompt is only edited.
        """
        notified = [answered_in]
        if record.state in {"expired", "cancelled"}:
            notified.append(requesting_chat(record))
        messages = [
            message
            for index, parts in enumerate(await self._find_prompts(record.id))
            for message in self._outcome_messages(record, index, parts, notified)
        ]
        if messages:
            async with self._services.journal.transaction() as transaction:
                transaction.enqueue(*messages)
            self._services.on_enqueued()

    async def _find_prompts(self, record_id: str) -> list[list[OutboxRecord]]:
        """Return the messages of each prompt of an approval."""
        prompts = list[list[OutboxRecord]]()
        while len(prompts) < _MAX_MESSAGES:
            run, parts = _prompt_run(record_id, len(prompts)), list[OutboxRecord]()
            while found := await self._services.journal.outbox_record(f"{run}:{len(parts)}"):
                parts.append(found)
            if not parts:
                break
            prompts.append(parts)
        return prompts

    def _outcome_messages(
        self,
        record: ApprovalRecord,
        index: int,
        parts: Sequence[OutboxRecord],
        notified: Sequence[Address | None],
    ) -> Sequence[OutboxRecord]:
        last, outcome = parts[-1], format_outcome(record)
        run, to = f"{_prompt_run(record.id, index)}:outcome", _recipient(last.address, record)
        build = self._services.build_reply
        if last.receipt and self._services.can_edit(last.address):
            edit = Extras(replaces=last.receipt)
            if len(parts) == 1:
                found = build(to, run, format_prompt(record, outcome=outcome), extras=edit)
                if len(found) == 1:
                    return found
            return build(to, run, outcome, extras=edit)
        if any(each and _is_same_chat(each, last.address) for each in notified):
            return ()
        return build(to, run, outcome)


def _make_buttons(record: ApprovalRecord) -> tuple[tuple[Button, ...], ...]:
    """Return the rows of buttons: the decisions in one, each choice of a question in its own."""
    if record.is_question:
        return tuple((button,) for button in make_choice_buttons(record.id, record.choices))
    if not is_shown_completely(record):
        return ()
    return (make_approval_buttons(record.id, offers_always=offers_always(record)),)


def requesting_chat(record: ApprovalRecord) -> Address | None:
    """Return the chat that led to the call, if its sender is the owner, who may approve there."""
    return requester_address(record) if record.extra.get("isOwner") is True else None


def format_prompt(record: ApprovalRecord, *, now_ms: int = 0, outcome: str = "") -> str:
    """Return the prompt in markdown; with an outcome, as it is shown after that."""
    if record.is_question:
        left = format_time_left(record.expires_ms - now_ms)
        return format_question(record, time_left=left, outcome=outcome)
    title = one_line(str(record.request.get("title") or "May the agent do this?"), 200)
    lines = [f"**Approval {short_id(record)}**: {_plain(title)}", _code_block(shown_detail(record))]
    reason = one_line(str(record.request.get("reason") or ""), _MAX_REASON_CHARS)
    if reason and reason not in _detail(record):
        lines.append(f"Why it asks: {_plain(reason)}")
    lines.append(outcome or _format_answers(record, now_ms))
    return "\n".join(lines)


def format_outcome(record: ApprovalRecord) -> str:
    """Return what became of an approval, in one line."""
    if record.is_question:
        return format_question_outcome(record)
    by = f" by {_plain(one_line(record.resolved_by))}" if record.resolved_by else ""
    if record.state in {"expired", "cancelled"}:
        ending = "expired without an answer" if record.state == "expired" else "was withdrawn"
        return f"Approval {short_id(record)} {ending}."
    return f"Approval {short_id(record)} was {_OUTCOMES.get(record.decision, 'resolved')}{by}."


def format_pending(record: ApprovalRecord, now_ms: int) -> str:
    """Return a pending approval in one line of a list."""
    subject = one_line(str(record.request.get("command") or shown_detail(record)), 60)
    left = format_time_left(record.expires_ms - now_ms)
    if record.is_question:
        return f"{short_id(record)} question ({record.agent}): {subject} · {left} left"
    return f"{short_id(record)} {record.tool} ({record.agent}): {subject} · {left} left"


def short_id(record: ApprovalRecord) -> str:
    """Return the start of the id, which is what people type."""
    return record.id[:SHORT_ID_CHARS]


def offers_always(record: ApprovalRecord) -> bool:
    """Return whether the call can be allowed for good."""
    return bool(record.request.get("always"))


def is_shown_completely(record: ApprovalRecord) -> bool:
    """Return whether a prompt in a chat shows everything that would be done."""
    return len(_detail(record)) <= MAX_DETAIL_CHARS


def shown_detail(record: ApprovalRecord) -> str:
    """Return what would be done, at most MAX_DETAIL_CHARS of it."""
    detail = _detail(record)
    if len(detail) <= MAX_DETAIL_CHARS:
        return detail
    left_out = len(detail) - MAX_DETAIL_CHARS
    return f"{detail[:MAX_DETAIL_CHARS]}\n[… {left_out} more characters are not shown here …]"


def format_time_left(left_ms: int) -> str:
    """Return a time until an expiry, rounded up."""
    minutes = max(0, left_ms + 59_999) // 60_000
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def _detail(record: ApprovalRecord) -> str:
    return str(record.request.get("detail") or "")


def _format_answers(record: ApprovalRecord, now_ms: int) -> str:
    left = format_time_left(record.expires_ms - now_ms)
    command = f"/approve {short_id(record)}"
    if not is_shown_completely(record):
        return f"This is too long to be allowed here; `{command} deny` denies it."
    always = str(record.request.get("always") or "")
    words = ["`allow-once`"]
    if offers_always(record):
        is_shown = always in _detail(record)
        words.append("`allow-always`" + ("" if is_shown else f" ({_plain(one_line(always))})"))
    answers = f"{', '.join(words)} or `deny`"
    return f"Answer with `{command}` and {answers}. It expires in {left}; until then nothing runs."


def _code_block(text: str) -> str:
    """Return the text in a code block that it cannot end."""
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _plain(text: str) -> str:
    r"""Return text whose markdown has no effect."""
    return re.sub(r"([\\`*_\[\]<>~|#])", r"\\\1", text)


def _is_forwarded(rules: ApprovalForwardingConfig, record: ApprovalRecord) -> bool:
    """Return whether chats are asked about the calls of this agent and session."""
    if rules.enabled is False:
        return False
    agents = {normalize_agent_id(each) for each in rules.agent_filter}
    if agents and normalize_agent_id(record.agent) not in agents:
        return False
    return not rules.session_filter or any(
        _matches(each, record.session) for each in rules.session_filter
    )


def _matches(pattern: str, session: str) -> bool:
    from homarus.core.regex import compile_search  # only for a filter

    return pattern in session or compile_search(pattern)(session)


def _recipient(to: Address, record: ApprovalRecord) -> Inbound:
    """Return a message of the chat, to which the prompt is the reply."""
    own = requesting_chat(record)
    holder = str(record.extra.get("holder") or "") if own and _is_same_chat(own, to) else ""
    return Inbound("", to, "", "", metadata=InboundMetadata(holder=holder))


def _prompt_run(record_id: str, index: int) -> str:
    return f"approval:{record_id}:{index}"


def _is_same_chat(one: Address, other: Address) -> bool:
    return (one.channel, one.account, one.chat) == (other.channel, other.account, other.chat)
