"""Fault points: named places where a test can kill, fail or delay the program.

`HOMARUS_FAULT=point:action[:n][,…]` enables some; without it a point costs one lookup in an empty
dict. The action happens when the point is passed for the `n`-th time (default 1), with `n+` then
and every later time. Actions: kill9, raise, delay (a second), slow (5 ms), hang (as a dead disk
may), enospc, eio.
"""

import errno
import os
import signal
import time
from typing import Final

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass

VARIABLE: Final = "HOMARUS_FAULT"
ACTIONS: Final = ("kill9", "raise", "delay", "slow", "hang", "enospc", "eio")
DELAY_S: Final = 1.0
SLOW_S: Final = 0.005
HANG_S: Final = 3_600.0

# Every fault point, with the state of the program when it is passed.
POINTS: Final = {
    "intake.read": "a message was read from its service, and is not in the journal",
    "intake.accepted": "it is in the journal, and not acknowledged to the service",
    "intake.acknowledged": "it is acknowledged, and no run has started",
    "media.fetched": "the files of an accepted message are here, and its record has none of them",
    "media.described": "what a model says of a file is stored, and not in the transcript",
    "run.begun": "the question is in the transcript, and no model was called",
    "provider.asked": "the model was called, and has not answered",
    "provider.streaming": "the model has started to answer",
    "block.saved": "blocks of an answer are in the outbox, and the answer is not complete",
    "tool.asked": "the call is in the transcript, and not marked as started",
    "tool.started": "the call is marked as started, and the tool has not started",
    "tool.ended": "the tool is done, and its result is not saved",
    "tool.saved": "the result is in the transcript, and the model was not called again",
    "approval.asked": "the approval is saved with its prompts, and no approver was asked",
    "approval.answered": "the answer is saved, and the run that waits was not resumed",
    "approval.resumed": "the run is running again, and its call is not marked as started",
    "subagent.spawned": "the child's task is accepted, and its run not started",
    "subagent.ended": "the child's end and its announcement are saved, and the parent not told",
    "subagent.steered": "the message that steers a child is accepted, and its old run not stopped",
    "subagent.archived": "the child's session and record are archived",
    "exchange.saved": "a message to another session is saved, and not accepted there",
    "exchange.accepted": "it is accepted in the other session, and no run has started",
    "exchange.advanced": "the next message of the exchange is saved, and not accepted",
    "exchange.ended": "the exchange is removed, and what its chat is told is in the outbox",
    "memory.named": "the name of a session's note is saved, and the note not written",
    "memory.noted": "the note of a session is written, and the session not reset",
    "heartbeat.accepted": "a heartbeat is in the journal, and no run has started",
    "heartbeat.saved": "the answer of a heartbeat is saved, and an alert in the outbox",
    "reply.saved": "the reply is in the outbox, and its message settled",
    "deliver.started": "the outbox record is marked as being sent, and the service not called",
    "deliver.answered": "the service has accepted it, and the record is not marked as sent",
    "deliver.ended": "an outbox record is marked as sent, and the next one is not read",
    "cron.due": "a slot of a job is due, and not claimed",
    "cron.claimed": "the slot is claimed with its turn or its notice, and nothing else was done",
    "cron.ended": "the end of the slot is saved, and no file or client has it",
    "cron.mirrored": "jobs.json is written, and its stamp is not saved",
    "cron.posted": "a webhook was called, and its record is not deleted",
    "turn.accepted": "a turn of a job or a webhook is accepted, and its run not started",
    "turn.ended": "the end of a turn is saved, and its notice not added",
    "drain.begun": "the program is shutting down, and runs are active",
    "hook.read": "the request of a webhook is allowed, and nothing of it is stored",
    "hook.stored": "what a webhook caused is stored, and the request not answered",
    "hook.called": "the handlers of a command were called, and the command is not executed",
    "hub.staged": "a version is written to a registry, and not under its name yet",
    "import.file": "an imported file is complete, and not under its name yet",
    "import.item": "an item of an import is stored, and the next one is not read",
    "skill.staged": "a change of a skill is prepared, and its folder is as before",
    "skill.moved": "the old folder of a skill is moved away, and the new one not in its place",
    "skill.replaced": "the folder of a skill is changed, and the lock file says otherwise",
    "skill.locked": "the lock file says what is installed, and the old folder is not deleted",
    "store.commit": "a transaction is about to be committed",
    "store.sync": "a transaction was committed, and the caller does not know it yet",
}


class InjectedFaultError(Exception):
    """Raised by the action `raise`; the program treats it as a bug of its own."""


@dataclass(slots=True)
class _Fault:
    action: str
    first: int
    repeats: bool
    passes: int = 0

    def is_due(self) -> bool:
        self.passes += 1
        return self.passes == self.first or (self.repeats and self.passes > self.first)


def parse_faults(text: str) -> dict[str, _Fault]:
    """Parse the value of HOMARUS_FAULT. Raises UserError for an unknown point or action."""
    faults: dict[str, _Fault] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        point, action, count = (*item.split(":"), "1")[:3] if ":" in item else (item, "", "1")
        number = count.removesuffix("+")
        if point not in POINTS or action not in ACTIONS or not number.isdecimal():
            raise UserError(
                f"{VARIABLE}: {item!r} is not point:action[:n]",
                fix=f"points: {', '.join(POINTS)}; actions: {', '.join(ACTIONS)}",
            )
        faults[point] = _Fault(action, max(1, int(number)), count.endswith("+"))
    return faults


_faults = parse_faults(os.environ.get(VARIABLE, ""))


def fault_point(point: str) -> None:
    """Pass a fault point, performing the action that is enabled for it."""
    if (enabled := _faults.get(point)) is not None and enabled.is_due():
        _perform(point, enabled.action)


def _perform(point: str, action: str) -> None:
    match action:
        case "kill9":
            os.kill(os.getpid(), signal.SIGKILL)
        case "delay":
            time.sleep(DELAY_S)
        case "slow":
            time.sleep(SLOW_S)
        case "hang":
            time.sleep(HANG_S)
        case "enospc":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        case "eio":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        case _:
            raise InjectedFaultError(point)
