"""The panel with a tool call to approve, or a question of the agent, above the input.

As in `homarus chat`, only a key that is pressed now counts: keys of the first second, and those
that follow another within a moment, are not an answer. Pasted text never is. A plan that is longer
than the panel can be allowed after its end was in view.
"""

import time
from collections.abc import Callable
from typing import Final

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from homarus.cli.approval_prompt import ANSWER_DELAY_S
from homarus.cli.text_layout import divide, printable, wrap
from homarus.cli.tui.pending_questions import Pending, PendingApproval
from homarus.core.text import escape_invisible, one_line
from homarus.gateway.question_payloads import ShownQuestion

_QUIET_S: Final = 0.3
_OTHER_ROWS: Final = 5  # of the panel: the border, the title, the facts, the keys
_MAX_DETAIL_CHARS: Final = 100_000
_ANSWERS: Final = {"y": "allow-once", "a": "allow-always", "n": "deny"}


def _left(seconds: int) -> str:
    """Format the time that is left: `59 min`, and the seconds of the last five minutes."""
    if seconds < 300:
        return f"{seconds // 60}:{seconds % 60:02}"
    return f"{seconds // 60} min" if seconds < 7_200 else f"{seconds // 3_600} h"


class ApprovalPanel(Vertical, can_focus=True):
    """Shows one question at a time; hidden while there is none."""

    class Answered(Message):
        """The person has answered."""

        def __init__(self, pending: Pending, decision: str) -> None:
            super().__init__()
            self.pending, self.decision = pending, decision

    class Left(Message):
        """The person goes back to the input without an answer."""

    def __init__(self, *, now_ms: Callable[[], int], delay_s: float = ANSWER_DELAY_S) -> None:
        super().__init__(id="approval")
        self._now_ms, self._delay_s = now_ms, delay_s
        self._pending: Pending | None = None
        self._total = 0
        self._answerable_at_s = 0.0
        self._has_seen_all = False
        self._columns = 80
        self.display = False

    @property
    def pending(self) -> Pending | None:
        return self._pending

    def compose(self) -> ComposeResult:
        yield Static(id="approval-title", markup=False)
        with VerticalScroll(id="approval-plan", can_focus=False):
            yield Static(id="approval-detail", markup=False)
        yield Static(id="approval-facts", markup=False)
        yield Static(id="approval-keys", markup=False)
        yield Input(id="approval-text", placeholder="Type the answer, Enter sends it", compact=True)

    def on_mount(self) -> None:
        self.set_interval(1.0, self._show_facts)

    def fit(self, columns: int, rows: int) -> None:
        """Leave room for the keys, and for some of the conversation, on a screen of this size."""
        self._columns = columns
        self.query_one("#approval-plan").styles.max_height = max(2, rows * 3 // 5 - _OTHER_ROWS)
        self._draw_detail()
        self.call_after_refresh(self._show_facts)

    def _draw_detail(self) -> None:
        """Show the plan, with the mark of a question before each line of the screen."""
        if self._pending is None:
            return
        room = max(10, self._columns - 3)
        lines = [
            "".join(part for part, _ in each)
            for line in self._detail(self._pending).split("\n")
            for each in divide([(line, "")], room)
        ]
        shown = Content("\n".join(f"┃ {line}" for line in lines))
        self.query_one("#approval-detail", Static).update(shown)
        self.call_after_refresh(self._show_facts)

    def _count_hidden(self) -> int:
        """Return how many lines of the plan are below what is in view; none once all were seen."""
        plan = self.query_one("#approval-plan", VerticalScroll)
        left = max(0, round(plan.max_scroll_y - plan.scroll_offset.y))
        if not left and plan.size.height:
            self._has_seen_all = True
        return 0 if self._has_seen_all else left

    def show_question(self, pending: Pending | None, total: int) -> None:
        """Show a question and how many wait; None hides the panel."""
        self._total = total
        if pending is not None and self._pending is not None and pending.id == self._pending.id:
            self._show_facts()
            return
        self._pending, self.display = pending, pending is not None
        text = self.query_one("#approval-text", Input)
        text.value, text.display = "", False
        if pending is None:
            return
        self._answerable_at_s = time.monotonic() + self._delay_s
        self.query_one("#approval-title", Static).update(Content(self._title(pending)))
        self._has_seen_all = False
        self._draw_detail()
        self.query_one("#approval-plan", VerticalScroll).scroll_home(animate=False)
        self._show_facts()

    def _title(self, pending: Pending) -> str:
        if isinstance(pending, PendingApproval):
            return f"┃ {one_line(pending.title, 200)}"
        return "┃ The agent asks"

    def _detail(self, pending: Pending) -> str:
        if isinstance(pending, PendingApproval):
            text = printable(pending.detail[:_MAX_DETAIL_CHARS]).expandtabs(4)
        else:
            numbered = [
                f"{n}. {escape_invisible(each)}" for n, each in enumerate(pending.choices, 1)
            ]
            text = "\n".join([escape_invisible(pending.text), *numbered])
        return text

    def _keys(self, pending: Pending) -> str:
        if isinstance(pending, PendingApproval):
            if hidden := self._count_hidden():
                return f"┃ ↓  {hidden} more lines first   n  deny"
            always = "   a  always" if pending.always else ""
            return f"┃ y  allow once{always}   n  deny"
        numbers = f"1-{min(9, len(pending.choices))}  choose   " if pending.choices else ""
        text = "t  type an answer   " if pending.accepts_text else ""
        return f"┃ {numbers}{text}n  dismiss"

    def _show_facts(self) -> None:
        pending = self._pending
        if pending is None or not self.is_mounted:
            return
        facts = [f"asked by {one_line(pending.agent_id or 'the agent', 60)}"]
        if isinstance(pending, PendingApproval):
            if pending.session_key:
                facts.append(f"in {one_line(pending.session_key, 80)}")
            if pending.expires_ms:
                left_s = max(0, pending.expires_ms - self._now_ms()) // 1000
                facts.append(f"expires in {_left(left_s)}")
        if self._total > 1:
            facts.append(f"1 of {self._total}")
        if not self.has_focus_within:
            facts.append("F2 answers")
        room = max(10, self._columns - 3)
        lines = wrap([(" · ".join(facts), "")], room)
        shown = "\n".join(f"┃ {''.join(part for part, _ in line)}" for line in lines)
        self.query_one("#approval-facts", Static).update(Content(shown))
        self.query_one("#approval-keys", Static).update(Content(self._keys(pending)))

    def on_focus(self) -> None:
        self._answerable_at_s = max(self._answerable_at_s, time.monotonic() + _QUIET_S)
        self._show_facts()

    def on_blur(self) -> None:
        self._show_facts()

    def on_key(self, event: events.Key) -> None:
        if self._pending is None or self.query_one("#approval-text", Input).has_focus:
            if event.key == "escape":
                self.focus()
                event.stop()
            return
        plan = self.query_one("#approval-plan", VerticalScroll)
        moves = {"up": plan.scroll_up, "down": plan.scroll_down,
                 "pageup": plan.scroll_page_up, "pagedown": plan.scroll_page_down}  # fmt: skip
        if event.key in moves:
            moves[event.key](animate=False)
            self.call_after_refresh(self._show_facts)
            event.stop()
        elif event.key in {"tab", "f2"}:
            self.post_message(self.Left())
            event.stop()
            event.prevent_default()
        elif event.key == "escape" or event.is_printable:
            event.stop()
            event.prevent_default()
            self._press(event.key if event.key == "escape" else event.character or "")

    def scroll_plan(self, step: int) -> None:
        """Show the next or the previous page of the plan."""
        plan = self.query_one("#approval-plan", VerticalScroll)
        (plan.scroll_page_up if step < 0 else plan.scroll_page_down)(animate=False)
        self.call_after_refresh(self._show_facts)

    def _press(self, key: str) -> None:
        """Take a key as the answer, unless it may have been meant for something else."""
        now_s = time.monotonic()
        if now_s < self._answerable_at_s:
            self._answerable_at_s = max(self._answerable_at_s, now_s + _QUIET_S)
            return
        pending = self._pending
        if isinstance(pending, PendingApproval):
            decision = _ANSWERS.get("n" if key == "escape" else key.lower())
            is_offered = decision != "allow-always" or bool(pending.always)
            is_read = decision == "deny" or not self._count_hidden()
            if decision and is_offered and is_read:
                self.post_message(self.Answered(pending, decision))
        elif isinstance(pending, ShownQuestion):
            self._choose(pending, key)

    def _choose(self, question: ShownQuestion, key: str) -> None:
        if key in {"n", "escape"}:
            self.post_message(self.Answered(question, ""))
        elif key.isascii() and key.isdigit() and 1 <= int(key) <= len(question.choices):
            self.post_message(self.Answered(question, question.choices[int(key) - 1]))
        elif key == "t" and question.accepts_text:
            text = self.query_one("#approval-text", Input)
            text.display = True
            text.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._pending is not None and event.value.strip():
            self.post_message(self.Answered(self._pending, event.value.strip()))
