"""A wizard that a client of the gateway answers, step by step."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from homarus.core.clock import Clock
from homarus.core.errors import HomarusError, InvalidRequestError
from homarus.core.message import Json
from homarus.gateway.wizard.step import Prompter, WizardStep

WizardStatus: TypeAlias = Literal["running", "done", "cancelled", "error"]
IDLE_MS: Final = 15 * 60_000  # after this time without a request, another client may start one


class WizardSession:
    """One run of a wizard; it is the prompter of that run.

    `next` answers the current step and returns the following one. A `progress` step has no answer:
    `next` then waits for the step after it.
    """

    is_interactive = True

    def __init__(self, clock: Clock) -> None:
        self.id = str(uuid.uuid4())
        self.status: WizardStatus = "running"
        self._clock, self._used_at_ms = clock, clock.now_ms()
        self._error, self._rejected = "", ""
        self._step: WizardStep | None = None
        self._shown: WizardStep | None = None  # the last one that the client received
        self._answer: asyncio.Future[Json] | None = None
        self._changed = asyncio.Event()
        self._steps = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the client seems to be gone."""
        return self._clock.now_ms() - self._used_at_ms > IDLE_MS

    async def next(self, answer: tuple[str, Json] | None = None) -> dict[str, Json]:
        """Answer the current step, if it has an answer, and return the next one."""
        self._used_at_ms = self._clock.now_ms()
        shown = self._shown
        if answer is not None:
            self._accept(*answer)
        elif shown is not None and shown is self._step and shown.type == "note":
            self._accept(shown.id, None)
        while self.status == "running" and not self._has_news():
            self._changed.clear()
            await self._changed.wait()
        self._shown = self._step
        return self.describe()

    def describe(self) -> dict[str, Json]:
        """Return the state as clients receive it."""
        state: dict[str, Json] = {"done": self.status != "running", "status": self.status}
        if self._step is not None and self.status == "running":
            state["step"] = self._step.encode()
        return state | ({"error": self._error} if self._error else {})

    async def cancel(self) -> None:
        """End the wizard; what its finished sections wrote stays."""
        if self.status == "running":
            self.status = "cancelled"
            if self._task:
                self._task.cancel()
                await asyncio.wait([self._task])
        self._changed.set()

    async def ask(self, step: WizardStep) -> Json:
        if self._rejected:
            lines = (self._rejected, step.message)
            step = replace(step, message="\n".join(filter(None, lines)))
            self._rejected = ""
        self._answer = asyncio.get_running_loop().create_future()
        self._show(step)
        try:
            return await self._answer
        finally:
            self._answer, self._step = None, None

    def show_progress(self, step: WizardStep) -> None:
        self._show(step)

    def reject(self, step: WizardStep, error: HomarusError) -> None:
        del step
        self._rejected = str(error)

    def _accept(self, step_id: str, value: Json) -> None:
        if self.status != "running":
            raise InvalidRequestError("wizard not running")
        shown = self._shown
        if shown is not None and shown.type == "progress" and shown.id == step_id:
            return  # it needs no answer, and may be over by now
        if self._step is None or self._step.id != step_id:
            raise InvalidRequestError("wizard: that is not the current step")
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(value)
            self._step = None

    def _has_news(self) -> bool:
        """Whether there is a step to send: a new one, or a question without an answer."""
        if self._step is None:
            return False
        return self._step is not self._shown or self._answer is not None

    def _show(self, step: WizardStep) -> None:
        self._steps += 1
        self._step = replace(step, id=f"{step.id}-{self._steps}")
        self._changed.set()

    async def run(self, wizard: Callable[[Prompter], Awaitable[None]]) -> None:
        """Run a wizard whose prompter this is; only unexpected errors are raised."""
        self._task = asyncio.current_task()
        try:
            await wizard(self)
            self.status = "done"
        except asyncio.CancelledError:
            if self.status == "running":  # the gateway stops
                raise
        except (HomarusError, OSError) as exc:
            self.status, self._error = "error", str(exc)
        finally:
            if self.status == "running":
                self.status, self._error = "error", "the wizard failed: the log says why"
            self._step = None
            self._changed.set()
