"""Convert markers in a message to the steps of an answer. The package's docstring lists them."""

import re
from collections import Counter
from collections.abc import Callable, Sequence

from homarus.testing.model_server.dialect import ServerMessage, ServerRequest
from homarus.testing.model_server.script import (
    BodyFraming,
    CallTools,
    Comments,
    Delay,
    Fail,
    HangUntilDisconnect,
    Overflow,
    Raw,
    Say,
    ScriptedCall,
    ScriptStep,
    Stop,
    Think,
)

SHORT = ("Hello from ", "the mock ", "model.")

_TAG = re.compile(r"T#([A-Za-z0-9_.-]+)")
_MARKER = re.compile(
    r"MOCK:(?:(?P<tool>tool):(?P<name>[\w.-]+):(?P<args>\{.*?\})§"
    r"|(?P<free>say|think):(?P<text>.*?)§"
    r"|(?P<word>[a-z]+)(?P<numbers>(?::\d+(?:\.\d+)?)*))",
    re.DOTALL,
)


class Markers:
    """Answers requests as the markers in their messages say."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def steps(self, ask: ServerRequest) -> list[ScriptStep]:
        """Return the answer to a request without a script."""
        text, turn = _question(ask.said)
        sections = text.split("MOCK:next")
        if turn >= len(sections):
            return [Say(SHORT)]
        steps = self._read(sections[turn], text)
        content = any(
            isinstance(s, Say | CallTools | HangUntilDisconnect | Comments | Raw) for s in steps
        )
        return steps if content or "MOCK:empty" in sections[turn] else [*steps, Say(SHORT)]

    def _read(self, section: str, whole: str) -> list[ScriptStep]:
        steps: list[ScriptStep] = []
        calls: list[ScriptedCall] = []
        for match in _MARKER.finditer(section):
            if match["tool"]:
                calls.append(ScriptedCall(match["name"], match["args"]))
            elif match["free"]:
                steps.append((Say if match["free"] == "say" else Think)(match["text"]))
            else:
                numbers = [float(n) for n in match["numbers"].split(":") if n]
                steps += self._word(match["word"], numbers, whole)
        return [*steps, CallTools(*calls)] if calls else steps

    def _word(self, word: str, numbers: list[float], whole: str) -> list[ScriptStep]:
        if word == "echo":
            return [Say(_MARKER.sub("", whole).strip())]
        if word in {"fail", "overflow"}:
            return self._refusal(word, numbers, whole)
        if word == "delay" and len(numbers) > 1 and self._is_over(word, whole, numbers[1]):
            return []
        make = _WORDS.get(word)
        return make(numbers) if make else []

    def _refusal(self, word: str, numbers: list[float], whole: str) -> list[ScriptStep]:
        status = int(numbers.pop(0)) if word == "fail" and numbers else 500
        if numbers and self._is_over(word, whole, numbers[0]):
            return []
        wait = f"{numbers[1]:g}" if len(numbers) > 1 else ""
        return [Overflow() if word == "overflow" else Fail(status, retry_after=wait)]

    def _is_over(self, word: str, whole: str, times: float) -> bool:
        """Count a request with this text; return whether there were more than `times`."""
        self._seen[word, whole] += 1
        return self._seen[word, whole] > times


def _first(numbers: Sequence[float], otherwise: float) -> float:
    return numbers[0] if numbers else otherwise


def _long(numbers: Sequence[float]) -> list[ScriptStep]:
    pieces = [f"word{i:04d} " for i in range(int(_first(numbers, 100)))]
    return [Say(pieces, gap_s=numbers[1] / 1000 if len(numbers) > 1 else 0.0)]


_WORDS: dict[str, Callable[[list[float]], list[ScriptStep]]] = {
    "short": lambda _: [Say(SHORT)],
    "long": _long,
    "length": lambda _: [Stop("length")],
    "filtered": lambda _: [Say(SHORT[:1]), Stop("filtered")],
    "delay": lambda numbers: [Delay(_first(numbers, 0) / 1000)],
    "cut": lambda numbers: [BodyFraming(cut_at_byte=int(_first(numbers, 0)))],
    "malformed": lambda _: [Raw(b'data: {"choices":[{"delta":\n\n')],
    "bytes": lambda numbers: [BodyFraming(piece_bytes=int(_first(numbers, 1)))],
    "crlf": lambda _: [BodyFraming(newline=b"\r\n")],
    "comments": lambda _: [Comments()],
    "hold": lambda _: [HangUntilDisconnect()],
}


def tag_of(ask: ServerRequest) -> str | None:
    """Return the `T#token` of a question, by which a client finds its request in the statistics."""
    tags = _TAG.findall(_question(ask.said)[0])
    return tags[-1] if tags else None


def _question(said: Sequence[ServerMessage]) -> tuple[str, int]:
    """Return the last user message, and how often it was answered already.

    A gateway may add messages of its own after the person's: the one with a marker counts, as
    long as the model has not finished answering it.
    """
    begun = max(
        (i for i, m in enumerate(said) if m.role == "assistant" and not m.calls), default=-1
    )
    users = [i for i, m in enumerate(said) if m.role == "user"]
    fresh = [i for i in users if i > begun and ("MOCK:" in said[i].text or "T#" in said[i].text)]
    chosen = (fresh or users or [-1])[-1]
    if chosen < 0:
        return "", 0
    turn = sum(m.role == "assistant" for m in said[chosen + 1 :])
    return said[chosen].text, turn
