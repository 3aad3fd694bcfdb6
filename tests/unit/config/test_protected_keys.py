"""What clients may not set: programs, modules, files, and variables that load code."""

from pathlib import Path
from typing import Any

import pytest

from homarus.config.paths import Paths
from homarus.config.protected_keys import ClientRules
from homarus.config.protected_keys import check_protected_keys as check_with_rules
from homarus.core.errors import UserError

RULES = ClientRules(Paths.find({}, Path("/home/user")))


def check_protected_keys(old: Any, new: Any) -> None:
    check_with_rules(old, new, RULES)


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
        {"channels": {"matrix": {"encryptionTrust": "all"}}},
        {"models": {"providers": {"x": {"apiKeyFrom": {"source": "exec", "command": ["id"]}}}}},
        {"tools": {"exec": {"pathPrepend": ["/tmp"]}}},
        {"tools": {"media": {"models": [{"command": "sh"}]}}},
        {"tools": {"media": {"models": [{"baseUrl": "https://x.example", "apiKey": "k"}]}}},
        {"tools": {"media": {"audio": {"baseUrl": "https://x.example"}}}},
        {"tools": {"media": {"audio": {"models": [{"baseUrl": "https://x.example"}]}}}},
        {"env": {"vars": {"LD_PRELOAD": "/tmp/x.so"}}},
        {"env": {"PATH": "/tmp"}},
        {"agents": {"$include": "/etc/passwd"}},
        {"mcp": {"servers": {"x": {"command": "sh"}}}},
        {"mcp": {"servers": {"x": {"url": "https://evil.example", "headers": {"A": "b"}}}}},
        {"mcp": {"servers": {"x": {"env": {"API_KEY": "k"}}}}},
        {"mcp": {"servers": {"x": {"enabled": True}}}},
        {"agents": {"list": [{"id": "a", "mcp": {"servers": ["x"]}}]}},
    ],
)
def test_protected_key_changed_raises_user_error(change: Any) -> None:
    with pytest.raises(UserError, match="cannot be set through the gateway"):
        check_protected_keys({}, change)
    check_protected_keys(change, change)  # as it is, it may be sent back


def test_unprotected_keys_may_be_set() -> None:
    new = {
        "agents": {"defaults": {"model": "a/b", "workspace": "~/.openclaw/workspace-w"}},
        "env": {"vars": {"OPENAI_API_KEY": "k"}},
        "channels": {"telegram": {"customCommands": [{"command": "hi", "description": "d"}]}},
    }
    check_protected_keys({}, new)


def test_protected_list_entries_may_move_but_not_change() -> None:
    old = {"tools": {"links": {"models": [{"command": "a"}, {"command": "b"}]}}}
    check_protected_keys(old, {"tools": {"links": {"models": [{"command": "b"}]}}})
    with pytest.raises(UserError, match=r"tools\.links\.models\.command"):
        check_protected_keys(old, {"tools": {"links": {"models": [{"command": "c"}]}}})


def test_protected_entry_may_not_be_combined_with_another() -> None:
    first, second = {"command": "a", "args": ["x"]}, {"command": "b", "args": ["y"]}
    old = {"tools": {"links": {"models": [first, second]}}}
    check_protected_keys(old, {"tools": {"links": {"models": [second, first]}}})
    mixed = {"command": "a", "args": ["y"]}
    with pytest.raises(UserError, match=r"tools\.links\.models\.command"):
        check_protected_keys(old, {"tools": {"links": {"models": [mixed]}}})


def test_protected_key_may_be_removed() -> None:
    check_protected_keys({"logging": {"file": "/x"}}, {"logging": {}})
