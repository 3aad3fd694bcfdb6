"""What a run has said in this chat by a messaging tool, so that its answer does not say it again.

Two texts are the same when they differ in case, white space and emoji only. A text that stands
within what was sent, or adds next to nothing to it, is a repetition too; one that says more is not,
whatever it begins with.
"""

import re
import unicodedata

from homarus.core.message import Address, Json, ToolCall, ToolReturn

_TOOL = "message"
_ACTIONS = frozenset({"send", "reply", "sendwitheffect", "sendattachment", "thread-reply"})
_TEXTS = ("message", "caption", "text", "content")
_MOST = 200
_MIN_CHARS = 10  # a shorter text stands in another by chance
_MORE_CHARS = 20
_KINDS = "(?:user|dm|direct|group|channel|room|chat)"
_SPACES = re.compile(r"\s+")
_PICTURES = frozenset({"So", "Cf", "Cs"})
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_SELECTORS = range(0xFE00, 0xFE10)


class Said:
    """What messaging tools have sent to one chat during one run."""

    def __init__(self, here: Address | None) -> None:
        self._here = here
        self._begun: dict[str, str] = {}  # by call: not known yet whether it arrived
        self._sent: list[str] = []

    def start(self, call: ToolCall) -> None:
        """A tool begins; it may be about to say something here."""
        if text := self._text(call):
            self._begun[call.id] = normalize(text)

    def end(self, result: ToolReturn) -> None:
        """A tool has ended; what it was to say is said, unless it failed."""
        text = self._begun.pop(result.call_id, "")
        if text and not result.is_error:
            self._sent = [*self._sent, text][-_MOST:]

    @property
    def anything(self) -> bool:
        return bool(self._sent)

    def repeats(self, text: str) -> bool:
        """Whether this was said already."""
        if not self._sent:
            return False
        asked = normalize(text)
        return bool(asked) and any(_same(asked, sent) for sent in self._sent)

    def _text(self, call: ToolCall) -> str:
        if call.name != _TOOL or self._here is None:
            return ""
        args, here = call.args, self._here
        action = args.get("action", "send")
        if str(action).lower() not in _ACTIONS or args.get("dryRun") or not _is_here(args, here):
            return ""
        texts = (args.get(name) for name in _TEXTS)
        return next((text for text in texts if isinstance(text, str) and text.strip()), "")


def normalize(text: str) -> str:
    """The text as it is compared."""
    kept = (ch for ch in text if ch.isascii() or not _is_picture(ch))
    return _SPACES.sub(" ", "".join(kept).casefold()).strip()


def _is_picture(ch: str) -> bool:
    code = ord(ch)
    drawn = unicodedata.category(ch) in _PICTURES
    return drawn or code in _SKIN_TONES or code in _SELECTORS


def _is_here(args: Json, here: Address) -> bool:
    """Whether a call speaks to this chat: what it does not name is this chat's."""
    named = {"channel": here.channel, "accountId": here.account, "threadId": here.thread}
    for name, ours in named.items():
        theirs = args.get(name)
        if theirs and str(theirs).lower() != str(ours or "").lower():
            return False
    several = args.get("targets")
    targets = several if isinstance(several, list) else [several]
    chats = [str(to) for to in (args.get("target") or args.get("to"), *targets) if to]
    return not chats or any(_is_chat(chat, here) for chat in chats)


def _is_chat(target: str, here: Address) -> bool:
    """`telegram:123`, `telegram:default:123`, `user:123` and `123:topic:5` name the chat 123."""
    target, chat = target.strip().lower(), here.chat.lower()
    head, mark, thread = target.rpartition(":topic:")
    if mark:
        target = head if thread == (here.thread or "").lower() else ""
    names = (re.escape(name.lower()) for name in (here.channel, here.account))
    before = "".join(f"(?:{name}:)?" for name in (*names, _KINDS))
    return re.fullmatch(before + re.escape(chat), target) is not None


def _same(asked: str, sent: str) -> bool:
    if asked == sent:
        return True
    if min(len(asked), len(sent)) < _MIN_CHARS:
        return False
    more = len(asked) - len(sent)
    return asked in sent or (more <= max(_MORE_CHARS, len(asked) // 10) and sent in asked)
