"""A scripted model server: says what it is told, breaks how it is told.

In a test, in the same process:

    async with ModelServer() as server:
        server.script([CallTools(Call("read", {"path": "a"}))], [Say("done")], [Fail(429)])
        ... ask `server.url` ...
        assert server.requests[0].body["model"] == "m"

Each list is the answer to one request, in order; when none is left, markers in the request decide.

As a process of its own, `python -m homarus.testing.model_server --port P` prints its URL, and
markers in the last user message steer it (`§` ends free text):

    MOCK:short                        a short reply (also without any marker)
    MOCK:long:N[:GAP_MS]              N pieces of text, with a gap after each
    MOCK:say:TEXT§  MOCK:think:TEXT§  that text, that reasoning
    MOCK:echo                         the message back, without its markers
    MOCK:empty                        nothing at all
    MOCK:length                       end as if the output limit was reached
    MOCK:filtered                     begin, and end as if a content filter stopped it
    MOCK:tool:NAME:{JSON}§            a tool call; several are made together
    MOCK:next                         what follows is for the next request of this message
    MOCK:delay:MS[:TIMES]             wait before the first byte; only TIMES times if given
    MOCK:fail:STATUS[:TIMES[:WAIT_S]] refuse; only TIMES times if given; with Retry-After
    MOCK:overflow[:TIMES]             refuse: the context is too long
    MOCK:cut:BYTES                    hang up after so many bytes of the body
    MOCK:malformed                    a chunk that is not JSON
    MOCK:bytes:N  MOCK:crlf           send N bytes at a time; end lines with CRLF
    MOCK:comments  MOCK:hold          keep-alives for ever; nothing for ever

`GET /_stats` lists the requests with their times (`?clear=1` forgets them).
"""

from homarus.testing.model_server.script import (
    BodyFraming,
    CallTools,
    Comments,
    Cut,
    Delay,
    Fail,
    HangUntilDisconnect,
    LongLine,
    Overflow,
    Raw,
    Replay,
    ReportedUsage,
    Say,
    ScriptedAnswer,
    ScriptedCall,
    ScriptStep,
    Stop,
    StreamFault,
    Think,
    WaitForTest,
)
from homarus.testing.model_server.server import ModelServer, ReceivedRequest

__all__ = [
    "BodyFraming",
    "CallTools",
    "Comments",
    "Cut",
    "Delay",
    "Fail",
    "HangUntilDisconnect",
    "LongLine",
    "ModelServer",
    "Overflow",
    "Raw",
    "ReceivedRequest",
    "Replay",
    "ReportedUsage",
    "Say",
    "ScriptStep",
    "ScriptedAnswer",
    "ScriptedCall",
    "Stop",
    "StreamFault",
    "Think",
    "WaitForTest",
]
