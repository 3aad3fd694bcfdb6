"""Approvals with independent peers: OpenClaw's client, and a person on a real IRC server."""

import json
from pathlib import Path

import pytest

from tests.peers.gateway import TOKEN, Running
from tests.peers.install import Original, bare_env

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]  # the first run installs it

RULES = {"version": 1, "defaults": {"security": "allowlist", "ask": "on-miss"}, "agents": {}}


def test_openclaw_client_reads_and_changes_the_rules(
    original: Original, gateway: Running, tmp_path: Path
) -> None:
    to = ("--gateway", "--url", gateway.url, "--token", TOKEN)
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps(RULES), encoding="utf-8")

    def run(*args: str) -> str:
        done = original.run("approvals", *args, env=bare_env(tmp_path), cwd=tmp_path)
        assert done.status == 0, done.err
        return done.out

    run("set", "--file", str(rules), *to)
    run("allowlist", "add", "/usr/bin/rg", "--agent", "main", *to)
    shown = json.loads(run("get", "--json", *to))
    assert shown["file"]["defaults"] == RULES["defaults"] and shown["exists"]
    (entry,) = shown["file"]["agents"]["main"]["allowlist"]
    assert entry["pattern"] == "/usr/bin/rg"
    run("allowlist", "remove", "/usr/bin/rg", "--agent", "main", *to)
    ours = gateway.home.run("approvals", "get", "--json").json
    assert "/usr/bin/rg" not in json.dumps(ours)
    assert not (tmp_path / ".openclaw" / "exec-approvals.json").exists()  # it used the gateway
