"""`python -m tests.live PROVIDER`: a short conversation with a tool call, with a real key.

The key comes from the environment. Without one nothing is run, and that is said.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from homarus.agent.run import RunOutcome
from homarus.config.schema import Config
from homarus.core.message import Address, Inbound, RunOptions
from homarus.process import open_app
from homarus.providers.catalog import vendors

WORD = "lobster"
ASKED = "Use the read tool to read note.md in your workspace, then answer with the word it holds."


def main() -> int:
    known = vendors(Config())
    name = sys.argv[1] if sys.argv[1:] else os.environ.get("PROVIDER", "")
    if name not in known:
        print(f"PROVIDER must be one of {', '.join(known)}; nothing was run.")
        return 2
    vendor = known[name]
    variable, key = vendor.key_in(os.environ)
    if not key and not vendor.is_own_server:
        print(f"No key in {' or '.join(vendor.key_names)}: nothing was run.")
        return 0
    with tempfile.TemporaryDirectory() as home:
        note = Path(home) / ".openclaw" / "workspace" / "note.md"
        note.parent.mkdir(parents=True)
        note.write_text(f"The word is {WORD}.")
        env = {"HOME": home, "PATH": os.environ["PATH"], variable: key}
        outcome = asyncio.run(converse(f"{name}/{vendor.default}", env))
    if outcome.error:
        print(f"{outcome.model or name}: {outcome.error}")
        return 1
    well = WORD in outcome.text.lower()
    print(f"{outcome.model}: {outcome.text.strip()!r}")
    print(f"{int(well)} passed, {int(not well)} failed")
    return int(not well)


async def converse(ref: str, env: dict[str, str]) -> RunOutcome:
    async with open_app(env) as app:
        where = Address("cli", "live")
        inbound = Inbound(uuid4().hex, where, "owner", ASKED, options=RunOptions(model=ref))
        return await app.control.ask(app.control.resolve_key(), inbound)


if __name__ == "__main__":
    sys.exit(main())
