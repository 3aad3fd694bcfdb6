"""`homarus usage`, `message` and `nodes` with a running gateway, and `usage` without one."""

from collections.abc import Callable

import pytest

from tests.e2e.gateway import Gateway, wait_for
from tests.e2e.program import Home

pytestmark = pytest.mark.slow

Start = Callable[..., Gateway]
NOBODY = ("--host", "127.0.0.1", "--port", "9", "--nick", "bot", "--set", "tls=false")


def test_operator_commands_reach_the_gateway(home: Home, start: Start) -> None:
    assert home.run("usage", "--json").json["totals"]["calls"] == 0
    start().wait_ready()
    found = home.run("usage", "--by", "model", "--json")
    assert found.status == 0 and found.json["rows"] == []
    assert home.run("gateway", "usage-cost", "--json").json["totals"]["totalTokens"] == 0
    assert home.run("nodes", "status", "--json").json["nodes"] == []
    done = home.run("message", "send", "--target", "irc:ann", "-m", "hi", "--json")
    assert done.status == 2 and "homarus channels add" in done.json["error"]["message"]
    home.run("channels", "add", "irc", *NOBODY)
    dry = ("message", "send", "--target", "irc:ann", "-m", "hi", "--dry-run", "--json")
    wait_for(lambda: home.run(*dry).json.get("dryRun"))
    assert home.run(*dry).json["chatId"] == "ann"
    lacking = home.run("message", "pins", "--target", "irc:ann")
    assert lacking.status == 2 and "discord, matrix, slack, telegram can" in lacking.err
    reset = home.run("reset", "--scope", "config", "--yes")
    assert reset.status != 0 and "gateway stop" in reset.err
