"""Uninstalling at a terminal, while the gateway runs."""

from collections.abc import Callable

from tests.e2e.gateway import Gateway
from tests.e2e.program import Home, Terminal


def test_uninstall_at_a_terminal_stops_the_gateway_and_leaves_nothing(
    home: Home, start: Callable[..., Gateway]
) -> None:
    start().wait_ready()
    assert home.run("agent", "--message", "hello").status == 0
    terminal = Terminal(home, "uninstall")
    try:
        shown = terminal.wait_for("Remove the state? [y/N]")
        assert "~/.openclaw: configuration, credentials, conversations and logs" in shown
        terminal.type("y")
        terminal.wait_for("Remove ~/.openclaw/workspace, too?")
        terminal.type("y")
        terminal.wait_for("Stop it? [y/N]")
        terminal.type("y")
        terminal.wait_for("The program itself is still there")
        assert terminal.end() == 0
    finally:
        terminal.close()
    assert [path.name for path in home.path.iterdir()] == ["gateway.out"]  # of this test
