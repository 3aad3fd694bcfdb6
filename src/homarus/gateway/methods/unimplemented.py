"""Methods of the protocol that are not implemented, each with the reason.

A client that calls one gets UNAVAILABLE and the reason; `status` counts them.
"""

from collections.abc import Mapping
from typing import Final

_QR = "channels that are paired by a picture are not built"
_CRON = "scheduled jobs are not built"
_HEARTBEAT = "heartbeats are not built"
_NODES = "nodes are not built"
_SPEECH = "speech is not built"
_UI = "the control UI's charts are not built; sessions.usage has the figures"

UNIMPLEMENTED: Final[Mapping[str, str]] = {
    "set-heartbeats": _HEARTBEAT,
    "update.run": "updating itself is not built; use your package manager",
    "poll": "polls are not built",
    "web.login.start": _QR,
    "web.login.wait": _QR,
    "cron.list": _CRON,
    "cron.status": _CRON,
    "cron.add": _CRON,
    "cron.update": _CRON,
    "cron.remove": _CRON,
    "cron.run": _CRON,
    "cron.runs": _CRON,
    "talk.config": _SPEECH,
    "talk.mode": _SPEECH,
    "tts.status": _SPEECH,
    "tts.providers": _SPEECH,
    "tts.enable": _SPEECH,
    "tts.disable": _SPEECH,
    "tts.convert": _SPEECH,
    "tts.setProvider": _SPEECH,
    "voicewake.get": _SPEECH,
    "voicewake.set": _SPEECH,
    "exec.approvals.node.get": _NODES,
    "exec.approvals.node.set": _NODES,
    "node.pair.request": _NODES,
    "node.pair.list": _NODES,
    "node.pair.approve": _NODES,
    "node.pair.reject": _NODES,
    "node.pair.verify": _NODES,
    "node.rename": _NODES,
    "node.list": _NODES,
    "node.describe": _NODES,
    "node.invoke": _NODES,
    "node.invoke.result": _NODES,
    "node.event": _NODES,
    "sessions.usage.timeseries": _UI,
    "sessions.usage.logs": _UI,
}
