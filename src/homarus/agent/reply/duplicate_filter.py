"""Texts that messaging tools have sent to the chat, so that the answer does not repeat them.

Two texts are equal when they differ in case, white space and emoji only. A text that is part of a
sent one, or adds next to nothing to it, is a duplicate, too; one with more content is not.
"""

import re
import unicodedata

from homarus.core.message import Address, Json, ToolCall, ToolResult

_TOOL = "message"
_ACTIONS = frozenset({"send", "reply", "sendwitheffect", "sendattachment", "thread-reply"})
_TEXTS = ("message", "caption", "text", "content")
_MAX_TEXTS = 200
_MIN_CHARS = 10  # a shorter text may be part of another by chance
_MORE_CHARS = 20
_KINDS = "(?:user|dm|direct|group|channel|room|chat)"
_SPACES = re.compile(r"\s+")
_PICTURES = frozenset({"So", "Cf", "Cs"})
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_SELECTORS = range(0xFE00, 0xFE10)


class SentTexts:
    """The texts that messaging tools have sent to one chat during one run."""

    def __init__(self, address: Address | None) -> None:
        self._address = address
        self._started: dict[str, str] = {}  # by call id, until the result is known
        self._sent: list[str] = []

    def start(self, call: ToolCall) -> None:
        """Remember the text that a tool call is about to send to this chat."""
        if text := self._text(call):
            self._started[call.id] = normalize(text)

    def end(self, result: ToolResult) -> None:
        """Record the text as sent, unless the tool failed."""
        text = self._started.pop(result.call_id, "")
        if text and not result.is_error:
            self._sent = [*self._sent, text][-_MAX_TEXTS:]

    @property
    def has_any(self) -> bool:
        return bool(self._sent)

    def contains(self, text: str) -> bool:
        """Return whether a text was sent already."""
        if not self._sent:
            return False
        normalized = normalize(text)
        return bool(normalized) and any(_is_duplicate(normalized, sent) for sent in self._sent)

    def may_contain(self, text: str) -> bool:
        """Return whether a text that still grows may be one that was sent, when it is complete."""
        if not self._sent:
            return False
        longest = max(map(len, self._sent))
        return len(normalize(text)) <= longest + max(_MORE_CHARS, longest // 9 + 1)

    def _text(self, call: ToolCall) -> str:
        if call.name != _TOOL or self._address is None:
            return ""
        args, address = call.args, self._address
        action = args.get("action", "send")
        if str(action).lower() not in _ACTIONS or args.get("dryRun") or not _is_here(args, address):
            return ""
        texts = (args.get(name) for name in _TEXTS)
        return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def normalize(text: str) -> str:
    """Return the text as it is compared."""
    kept = (ch for ch in text if ch.isascii() or not _is_picture(ch))
    return _SPACES.sub(" ", "".join(kept).casefold()).strip()


def _is_picture(ch: str) -> bool:
    code = ord(ch)
    drawn = unicodedata.category(ch) in _PICTURES
    return drawn or code in _SKIN_TONES or code in _SELECTORS


def _is_here(args: Json, address: Address) -> bool:
    """Whether a call sends to this chat; what it does not name is this chat's."""
    named = {"channel": address.channel, "accountId": address.account, "threadId": address.thread}
    for name, ours in named.items():
        theirs = args.get(name)
        if theirs and str(theirs).lower() != str(ours or "").lower():
            return False
    listed = args.get("targets")
    targets = listed if isinstance(listed, list) else [listed]
    chats = [str(to) for to in (args.get("target") or args.get("to"), *targets) if to]
    return not chats or any(_is_chat(chat, address) for chat in chats)


def _is_chat(target: str, address: Address) -> bool:
    """Whether a target names this chat: as `telegram:123`, `user:123` or `123:topic:5` do."""
    target, chat = target.strip().lower(), address.chat.lower()
    head, mark, thread = target.rpartition(":topic:")
    if mark:
        target = head if thread == (address.thread or "").lower() else ""
    names = (re.escape(name.lower()) for name in (address.channel, address.account))
    before = "".join(f"(?:{name}:)?" for name in (*names, _KINDS))
    return re.fullmatch(before + re.escape(chat), target) is not None


def _is_duplicate(text: str, sent: str) -> bool:
    if text == sent:
        return True
    if min(len(text), len(sent)) < _MIN_CHARS:
        return False
    more = len(text) - len(sent)
    return text in sent or (more <= max(_MORE_CHARS, len(text) // 10) and sent in text)
