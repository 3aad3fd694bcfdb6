"""Ask the person at the terminal to approve something, so that only a key pressed now counts.

What was typed before the question, pasted text, and every key of the first second are discarded;
the prompt for the answer appears when keys count. The question is read from the terminal itself
and not by the line reader, so that a question that was cancelled takes no line that is typed after
it.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Final, Protocol

from homarus.agent.approval_ports import ApproverIdentity
from homarus.cli.terminal import TerminalView
from homarus.policy.approvals import ApprovalDecision
from homarus.store.approvals import ApprovalRecord

ANSWER_DELAY_S: Final = 1.0
_QUIET_S: Final = 0.3  # a text that is still arriving after ANSWER_DELAY_S is not an answer either
_IGNORED_NOTE: Final = "What was typed before this line was ignored."
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_PASTE_START, _PASTE_END = b"\x1b[200~", b"\x1b[201~"
_ENTER, _ERASE, _CLEAR, _CANCEL = b"\r\n", b"\x7f\x08", b"\x15", b"\x03\x04"
_MAX_CHARS: Final = 20
_MAX_TEXT_BYTES: Final = 2_000  # of the answer to a question of the agent
_YES: Final = frozenset({b"y", b"yes", b"once"})
_ALWAYS: Final = frozenset({b"a", b"always"})


class SupportsExclusive(Protocol):
    """What reads the terminal at other times, and can give it to the prompt."""

    def exclusive(self) -> AbstractAsyncContextManager[None]: ...


class ApprovalPrompt:
    """Asks one question at a time, while no line is being read."""

    def __init__(self, view: TerminalView, lines: SupportsExclusive) -> None:
        self._view, self._lines = view, lines
        self._answer: asyncio.Future[bool] | None = None

    async def decide(self, title: str, detail: str, *, offers_always: bool) -> ApprovalDecision:
        """Show a question and return the decision. A cancelled question is removed."""
        import termios

        async with self._lines.exclusive():
            with suppress(termios.error), _raw_terminal() as descriptor:
                self._view.open_question(title, detail)
                try:
                    keys = _AnswerKeys(offers_always=offers_always)
                    is_allowed = await self._wait(descriptor, keys)
                    allowed: ApprovalDecision = "allow-always" if keys.is_always else "allow-once"
                    return allowed if is_allowed else "deny"
                finally:
                    self._view.close_question()
        return "deny"  # the terminal is gone

    async def choose(self, title: str, choices: Sequence[str], *, takes_text: bool) -> str | None:
        """Show a question of the agent, and return the answer; None when it is dismissed."""
        import termios

        numbered = [f"{number}. {choice}" for number, choice in enumerate(choices, 1)]
        keys = _ChoiceKeys(len(choices), takes_text=takes_text)
        async with self._lines.exclusive():
            with suppress(termios.error), _raw_terminal() as descriptor:
                self._view.open_question("The agent asks:", "\n".join([title, *numbered]))
                try:
                    is_answered = await self._wait(descriptor, keys)
                    return keys.text if is_answered else None
                finally:
                    self._view.close_question()
        return None  # the terminal is gone

    def cancel(self) -> None:
        """Deny the open question, if there is one."""
        if self._answer and not self._answer.done():
            self._answer.set_result(False)

    async def _wait(self, descriptor: int, keys: "_AnswerKeys") -> bool:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()
        self._answer = answer
        key_at_s = 0.0

        def read() -> None:
            nonlocal key_at_s
            key_at_s = loop.time()
            data = b""
            with suppress(OSError):
                data = os.read(descriptor, 4096)
            before = keys.typed
            found = keys.add(data) if data else False  # without data, the terminal is gone
            if not keys.are_ignored:
                texts = (each.decode("utf-8", "ignore") for each in (before, keys.typed))
                self._view.echo_answer(*texts)
            if found is not None:
                loop.remove_reader(descriptor)
                if not answer.done():
                    answer.set_result(found)

        answerable_at_s = loop.time() + ANSWER_DELAY_S
        loop.add_reader(descriptor, read)
        try:
            while (wait_s := answerable_at_s - loop.time()) > 0 and not answer.done():
                await asyncio.wait([answer], timeout=wait_s)
                if key_at_s:
                    answerable_at_s = max(answerable_at_s, key_at_s + _QUIET_S)
            if not answer.done():
                note = _IGNORED_NOTE if key_at_s else ""
                self._view.prompt_for_answer(
                    note, offers_always=keys.offers_always, prompt=keys.prompt
                )
            keys.typed, keys.are_ignored = b"", False
            return await answer
        finally:
            loop.remove_reader(descriptor)
            self._answer = None


class TerminalApprover:
    """The person at the terminal of a program without a gateway, who may answer everything."""

    identity = ApproverIdentity("the person at the terminal")

    def __init__(self, prompt: ApprovalPrompt) -> None:
        self._prompt = prompt

    def is_reachable(self, record: ApprovalRecord) -> bool:
        return True

    async def ask(self, record: ApprovalRecord) -> str | None:
        """Ask about a call, as it is recorded."""
        request = record.request
        if record.is_question:
            title, takes_text = str(request.get("title") or ""), record.takes_text
            return await self._prompt.choose(title, record.choices, takes_text=takes_text)
        return await self._prompt.decide(
            str(request.get("title") or record.tool),
            str(request.get("detail") or ""),
            offers_always=bool(request.get("always")),
        )


class _AnswerKeys:
    """Collects one line of ASCII letters from keys, without pasted text and escape sequences."""

    prompt = ""  # the default one

    def __init__(self, *, offers_always: bool = False) -> None:
        self.typed = b""
        self.offers_always, self.is_always = offers_always, False
        self.are_ignored = True  # until the question can be answered
        self._pending = b""  # what may be the start of a longer sequence
        self._is_pasting = False

    def add(self, data: bytes) -> bool | None:
        """Return the answer once there is one."""
        for key in self._without_pastes(data):
            if self.are_ignored:
                continue
            if key in _CANCEL:
                return False
            if key in _ENTER:
                self.is_always = self.offers_always and self.typed.lower() in _ALWAYS
                return self.is_always or self.typed.lower() in _YES
            if key in _ERASE:
                self.typed = self.typed[:-1]
            elif key in _CLEAR:
                self.typed = b""
            elif len(self.typed) < _MAX_CHARS:
                # An arrow key or a letter of another alphabet is no answer to this question.
                self.typed += key if 0x20 <= key[0] < 0x7F else b"?"
        return None

    def _without_pastes(self, data: bytes) -> Iterator[bytes]:
        """Yield the keys one by one, without what the terminal marks as pasted."""
        data, self._pending = self._pending + data, b""
        while data:
            if self._is_pasting:
                pasted, ended, data = data.partition(_PASTE_END)
                self._is_pasting = not ended
                self._pending = b"" if ended else pasted[1 - len(_PASTE_END) :]
            elif data.startswith(_PASTE_START):
                data, self._is_pasting = data[len(_PASTE_START) :], True
            elif _PASTE_START.startswith(data):
                data, self._pending = b"", data
            else:
                yield data[:1]
                data = data[1:]


class _ChoiceKeys(_AnswerKeys):
    """Collects the number of a choice, or a line of text where that is accepted."""

    def __init__(self, count: int, *, takes_text: bool) -> None:
        super().__init__()
        self._count, self._takes_text = count, takes_text
        numbers = [f"1 to {count}"] if count else []
        self.prompt = f"Answer [{' or '.join([*numbers, *(['a text'] if takes_text else [])])}]:"

    @property
    def text(self) -> str:
        return self.typed.decode("utf-8", "ignore").strip()

    def add(self, data: bytes) -> bool | None:
        """Return True once an answer was typed, False when it was cancelled."""
        for key in self._without_pastes(data):
            if self.are_ignored:
                continue
            if key in _CANCEL:
                return False
            if key in _ENTER:
                number = self.text
                is_number = number.isascii() and number.isdigit()
                if (is_number and 1 <= int(number) <= self._count) or (self._takes_text and number):
                    return True
                self.typed = b""
            elif key in _ERASE:
                self.typed = self.typed.decode("utf-8", "ignore")[:-1].encode()
            elif key in _CLEAR:
                self.typed = b""
            elif len(self.typed) < _MAX_TEXT_BYTES and key[0] >= 0x20:
                self.typed += key
        return None


@contextmanager
def _raw_terminal() -> Iterator[int]:
    """Give every key at once, without echo, after discarding what was typed before."""
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    mode = termios.tcgetattr(descriptor)
    mode[3] &= ~(termios.ICANON | termios.ECHO)
    mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
    mode[6][termios.VSUSP] = b"\0"  # a stopped program would leave the terminal like this
    termios.tcsetattr(descriptor, termios.TCSANOW, mode)
    termios.tcflush(descriptor, termios.TCIFLUSH)
    try:
        sys.stdout.write(_PASTE_ON)
        sys.stdout.flush()
        yield descriptor
    finally:
        sys.stdout.write(_PASTE_OFF)
        sys.stdout.flush()
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
