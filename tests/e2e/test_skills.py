"""Skills in the real program: listed, read, run with their key, and seen in a real sandbox."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.gateway import Gateway, change, connect_client
from tests.e2e.program import Home
from tests.e2e.test_sandbox import GROUP, Conversation
from tests.unit.agent.skill_builders import SECRET, write_skill
from tests.unit.tools.network_builders import require_bwrap

pytestmark = pytest.mark.slow

METADATA = {"openclaw": {"primaryEnv": "WEATHER_KEY", "requires": {"env": ["WEATHER_KEY"]}}}
SCRIPT = '#!/bin/sh\necho "for $1 with a key of ${#WEATHER_KEY}"; echo "it is $WEATHER_KEY"\n'


def make_skill(home: Home, root: str) -> str:
    """Write a skill with a script; return its SKILL.md."""
    file = write_skill(home.state / root, "weather", "Forecasts.", metadata=METADATA)
    script = file.parent / "scripts" / "forecast.sh"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    script.chmod(0o755)
    return str(file)


def configure(home: Home, **more: object) -> None:
    entries = {"weather": {"apiKey": SECRET}}
    tools = {"exec": {"security": "full", "ask": "off"}}
    change(home, skills={"entries": entries, "allowBundled": ["none"]}, tools=tools, **more)


async def test_workspace_skill_is_listed_read_and_run_with_its_key(
    start: Callable[..., Gateway], home: Home
) -> None:
    configure(home)
    file = make_skill(home, "workspace/skills")
    gateway = start().wait_ready()
    async with connect_client(gateway) as (client, events):
        main = Conversation(client, events, "main")
        command = f"{file.removesuffix('SKILL.md')}scripts/forecast.sh Oslo"
        assert await main.use("exec", command=command) == "for Oslo with a key of 0\nit is "
        assert (await main.use("read", path="skills/weather/SKILL.md")).endswith("Do it.")
        shown = await main.use("exec", command=command)
        assert shown == f"for Oslo with a key of {len(SECRET)}\nit is ***"
        listed: Any = await client.call("commands.list", {"sessionKey": "main"})
        (row,) = [each for each in listed["commands"] if each["source"] == "skill"]
        assert (row["name"], row["textAliases"]) == ("weather", ["/weather"])
        report: Any = await client.call("sessions.list", {})
        assert SECRET not in json.dumps(report)
    gateway.close()
    configs = set(home.state.glob("openclaw*.json*"))
    files = [each for each in home.state.rglob("*") if each.is_file() and each not in configs]
    assert files and not [each for each in files if SECRET.encode() in each.read_bytes()]


@pytest.mark.parametrize("access", ["none", "ro", "rw"])
async def test_sandboxed_session_sees_skills_read_only(
    start: Callable[..., Gateway], home: Home, access: str
) -> None:
    require_bwrap()
    sandbox = {"mode": "non-main", "scope": "session", "workspaceAccess": access}
    config = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
    configure(home, agents={"defaults": config["agents"]["defaults"] | {"sandbox": sandbox}})
    file, own = make_skill(home, "skills"), write_skill(home.workspace / "skills", "own")
    gateway = start().wait_ready()
    async with connect_client(gateway) as (client, events):
        group = Conversation(client, events, GROUP)
        for path in (file, str(own)):
            assert (await group.use("read", path=path)).endswith("Do it.")
            assert (await group.use("exec", command=f"tail -n 1 {path}")).endswith("Do it.")
            refused = await group.use("exec", command=f"echo x > {path} && echo WRITTEN")
            assert "WRITTEN" not in refused
        script = f"{file.removesuffix('SKILL.md')}scripts/forecast.sh Oslo"
        shown = await group.use("exec", command=script)
        assert shown == f"for Oslo with a key of {len(SECRET)}\nit is ***"
        hidden = await group.use("exec", command=f"cat {home.state}/openclaw.json && echo LEAKED")
        assert "LEAKED" not in hidden
