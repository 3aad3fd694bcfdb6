"""The person at this terminal as an approver of a gateway's runs.

A question that is answered by another approver, or expires, is removed from the terminal.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

from homarus.cli.approval_prompt import ApprovalPrompt
from homarus.core.errors import HomarusError
from homarus.core.message import Json
from homarus.core.text import escape_invisible, one_line
from homarus.gateway.question_payloads import (
    ShownQuestion,
    make_resolve_params,
    parse_question,
    parse_question_list,
)

_OUTCOMES: Final[Mapping[str, str]] = {
    "allow-once": "allowed once",
    "allow-always": "allowed for good",
    "deny": "denied",
}


class CallMethod(Protocol):
    """Call a method of the gateway."""

    async def __call__(self, method: str, params: Mapping[str, Json]) -> Json: ...


class GatewayApprover:
    """Answers the approvals of one session of a gateway at this terminal."""

    def __init__(
        self,
        prompt: ApprovalPrompt,
        session_key: str,
        group: asyncio.TaskGroup,
        call: CallMethod,
        notify: Callable[[str], None],
    ) -> None:
        self._prompt, self._key = prompt, session_key
        self._group: asyncio.TaskGroup = group
        self._call, self._notify = call, notify
        self._open: dict[str, asyncio.Task[None]] = {}

    async def load(self) -> None:
        """Ask about the approvals that are pending in the session."""
        with suppress(HomarusError):  # the client may lack the scope
            found = await self._call("exec.approval.list", {})
            for each in found if isinstance(found, list) else ():
                self.on_requested(each)
            for question in parse_question_list(await self._call("question.list", {})):
                self._show_question(question)

    def on_event(self, name: str, payload: Json) -> None:
        """Handle an event of the gateway."""
        if name == "exec.approval.requested":
            self.on_requested(payload)
        elif name == "exec.approval.resolved":
            self.on_resolved(payload)
        elif name == "question.requested":
            self.on_question(payload)
        elif name == "question.resolved":
            self.on_question_resolved(payload)

    def on_question(self, payload: Json) -> None:
        """Ask a question of the agent, if it is of this session."""
        if question := parse_question(payload):
            self._show_question(question)

    def _show_question(self, question: ShownQuestion) -> None:
        if question.session_key != self._key:
            session = one_line(question.session_key or "another session")
            self._notify(f"A question waits in {session}: homarus approvals list")
        elif question.id not in self._open:
            task = self._group.create_task(self._ask_question(question))
            self._open[question.id] = task
            task.add_done_callback(lambda _done: self._open.pop(question.id, None))

    def on_question_resolved(self, payload: Json) -> None:
        """Remove a question that was answered elsewhere, dismissed or withdrawn."""
        resolved = payload if isinstance(payload, dict) else {}
        if task := self._open.pop(str(resolved.get("id")), None):
            task.cancel()
            self._notify(f"The question was {one_line(str(resolved.get('status')))}.")

    def on_requested(self, payload: Json) -> None:
        """Ask, if the approval is of this session."""
        request = payload.get("request") if isinstance(payload, dict) else None
        if not isinstance(request, dict):
            return
        approval_id = str(payload.get("id"))
        if request.get("sessionKey") != self._key:
            session = one_line(str(request.get("sessionKey") or "another program"))
            command = f"homarus approvals allow {one_line(approval_id[:8])}"
            self._notify(f"An approval waits in {session}: homarus approvals list, {command}")
        elif approval_id not in self._open:
            task = self._group.create_task(self._ask(approval_id, request))
            self._open[approval_id] = task
            task.add_done_callback(lambda _done: self._open.pop(approval_id, None))

    def on_resolved(self, payload: Json) -> None:
        """Remove the question of an approval that was resolved elsewhere."""
        resolved = payload if isinstance(payload, dict) else {}
        if task := self._open.pop(str(resolved.get("id")), None):
            task.cancel()
            outcome = _OUTCOMES.get(str(resolved.get("decision")), "not answered in time")
            by = one_line(str(resolved.get("resolvedBy") or ""))
            self._notify(f"{outcome} by {by}" if by else f"It was {outcome}.")

    def close(self) -> None:
        """Remove every question."""
        for task in self._open.values():
            task.cancel()

    async def _ask_question(self, question: ShownQuestion) -> None:
        title = escape_invisible(question.text)
        offered = [escape_invisible(each) for each in question.choices]
        answer = await self._prompt.choose(title, offered, takes_text=question.accepts_text)
        self._open.pop(question.id, None)  # from here on, the outcome is ours
        try:
            await self._call("question.resolve", make_resolve_params(question.id, answer or ""))
        except HomarusError as exc:
            self._notify(str(exc))

    async def _ask(self, approval_id: str, request: Mapping[str, Json]) -> None:
        title = one_line(str(request.get("title") or "Run this command?"))
        detail = str(request.get("detail") or escape_invisible(str(request.get("command") or "")))
        decision = await self._prompt.decide(
            title, detail, offers_always=bool(request.get("always"))
        )
        self._open.pop(approval_id, None)  # from here on, the outcome is ours
        try:
            params = {"id": approval_id, "decision": decision}
            await self._call("exec.approval.resolve", params)
        except HomarusError as exc:
            self._notify(str(exc))
