"""What clients may not set: programs, modules, files, and variables that load code."""

from typing import Any

import pytest

from homarus.config.guarded import refuse_guarded
from homarus.core.errors import UserError


@pytest.mark.parametrize(
    "change",
    [
        {"channels": {"signal": {"cliPath": "/tmp/evil"}}},
        {"channels": {"signal": {"accounts": {"a": {"cliPath": "/tmp/evil"}}}}},
        {"agents": {"defaults": {"cliBackends": {"x": {"command": "sh", "args": ["-c", "id"]}}}}},
        {"agents": {"list": [{"id": "a", "agentDir": "/root"}]}},
        {"browser": {"executablePath": "/tmp/evil"}},
        {"hooks": {"mappings": [{"transform": {"module": "../../evil.js"}}]}},
        {"plugins": {"load": {"paths": ["/tmp"]}}},
        {"logging": {"file": "/home/user/.bashrc"}},
        {"channels": {"telegram": {"tokenFile": "/etc/shadow"}}},
        {"models": {"providers": {"x": {"apiKeyFrom": {"source": "exec", "command": ["id"]}}}}},
        {"tools": {"exec": {"pathPrepend": ["/tmp"]}}},
        {"tools": {"media": {"models": [{"command": "sh"}]}}},
        {"env": {"vars": {"LD_PRELOAD": "/tmp/x.so"}}},
        {"env": {"PATH": "/tmp"}},
        {"agents": {"$include": "/etc/passwd"}},
    ],
)
def test_what_is_run_or_read_is_not_set_from_afar(change: Any) -> None:
    with pytest.raises(UserError, match="cannot be set through the gateway"):
        refuse_guarded({}, change)
    refuse_guarded(change, change)  # as it is, it may be sent back


def test_everything_else_may_be_set() -> None:
    new = {
        "agents": {"defaults": {"model": "a/b", "workspace": "~/w"}},
        "env": {"vars": {"OPENAI_API_KEY": "k"}},
        "channels": {"telegram": {"customCommands": [{"command": "hi", "description": "d"}]}},
    }
    refuse_guarded({}, new)


def test_a_list_may_be_reordered_and_shortened_but_not_changed() -> None:
    old = {"tools": {"links": {"models": [{"command": "a"}, {"command": "b"}]}}}
    refuse_guarded(old, {"tools": {"links": {"models": [{"command": "b"}]}}})
    with pytest.raises(UserError, match=r"tools\.links\.models\.command"):
        refuse_guarded(old, {"tools": {"links": {"models": [{"command": "c"}]}}})


def test_what_is_guarded_may_be_taken_away() -> None:
    refuse_guarded({"logging": {"file": "/x"}}, {"logging": {}})
