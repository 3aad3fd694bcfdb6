"""Methods of the protocol that are not implemented, each with the reason.

A client that calls one gets UNAVAILABLE and the reason; `status` counts them.
"""

from collections.abc import Mapping
from typing import Final

_QR = "channels that are paired by a picture are not built"
_NODE_RULES = "nodes have no rules for commands: no command is started on one"
_NODE_PAIRING = "a node is paired as a device, when it connects"
_SPEECH = "speech is not built"

UNIMPLEMENTED: Final[Mapping[str, str]] = {
    "update.run": "updating itself is not built; use your package manager",
    "web.login.start": _QR,
    "web.login.wait": _QR,
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
    "exec.approvals.node.get": _NODE_RULES,
    "exec.approvals.node.set": _NODE_RULES,
    "node.pair.request": _NODE_PAIRING,
    "node.pair.verify": _NODE_PAIRING,
    "node.event": "events of nodes are not built",
}
