"""Approvals with independent peers: OpenClaw's client, and a person on a real IRC server."""

import json
import re
from pathlib import Path

import pytest

from homarus.testing.model_server import CallTools, ModelServer, Say, ScriptedCall
from tests.peers.gateway import TOKEN, Running, new_home, running_gateway
from tests.peers.install import Original, bare_env
from tests.peers.ircd import ngircd, person

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


def test_ngircd_approval_is_answered_in_chat_and_command_runs(
    model: ModelServer, gateway: Running, tmp_path: Path
) -> None:
    home = new_home(tmp_path, gateway.home.env, model)
    with ngircd(tmp_path) as server, person(server.port, "ann") as ann:
        file = home.state / "openclaw.json"
        config = json.loads(file.read_text(encoding="utf-8"))
        irc = {"host": "127.0.0.1", "port": server.port, "tls": False, "nick": "lobster"}
        irc |= {"allowFrom": ["ann!~ann@127.0.0.1"], "channels": ["#reef"]}
        ann.join("#reef")
        home.configure({**config, "channels": {"irc": irc}})
        made = ScriptedCall("exec", {"command": "touch approved.txt"})
        model.script([CallTools(made)], [Say("Done.")])
        with running_gateway(home), person(server.port, "eve") as eve:
            ann.wait(lambda: ann.saw("join", by="lobster"))
            ann.say("lobster", "Please make the file")
            ann.wait(lambda: any("/approve" in text for text in ann.messages()))
            shown = "\n".join(ann.messages())
            assert "touch approved.txt" in shown
            approval = re.search(r"/approve ([0-9a-f]{8})", shown)
            assert approval
            eve.say("lobster", f"/approve {approval[1]} allow-once")
            ann.say("lobster", f"/approve {approval[1]} allow-once")
            ann.wait(lambda: "Done." in ann.messages())
            ann.wait(lambda: any("allowed once by" in text for text in ann.messages()))
        assert (home.workspace / "approved.txt").exists()
