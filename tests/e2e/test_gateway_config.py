"""The config of a running gateway: changed by command, broken in the file, reloaded."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from homarus.gateway.client import GatewaySecret
from tests.e2e.gateway import TOKEN, Gateway, change, connect_client, message_text, send, wait_for
from tests.e2e.program import Home

Start = Callable[..., Gateway]


def config_of(home: Home) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home.state / "openclaw.json").read_text(encoding="utf-8"))
    return found


def add_model(home: Home, name: str) -> None:
    config = config_of(home)
    models = config["models"]["providers"]["mock"]["models"]
    models.append({"id": name, "name": name, "contextWindow": 50_000, "maxTokens": 4_000})
    home.configure(config)


def model_of(home: Home, *args: str) -> str:
    done = home.run("agent", "--message", "MOCK:short", "--json", *args)
    assert done.status == 0, done.err
    return str(done.json["result"]["meta"]["agentMeta"]["model"])


def test_config_set_through_gateway_is_in_use_when_command_ends(home: Home, start: Start) -> None:
    add_model(home, "mock-2")
    gateway = start().wait_ready()
    assert model_of(home) == "mock-1"
    done = home.run("config", "set", "agents.defaults.model.primary", "mock/mock-2")
    assert (done.status, done.err) == (0, "")
    assert done.out == (
        "agents.defaults.model.primary is set in ~/.openclaw/openclaw.json;"
        " the gateway uses it now\n"
    )
    assert model_of(home) == "mock-2"
    told = home.run("config", "set", "agents.defaults.timeoutSeconds", "99", "--json").json
    assert told["changed"] == ["agents.defaults.timeoutSeconds"]
    assert told["gateway"] == "the gateway uses it now"
    assert (
        "says so already" in home.run("config", "set", "agents.defaults.timeoutSeconds", "99").out
    )
    gone = home.run("config", "unset", "agents.defaults.timeoutSeconds")
    assert gone.out.endswith("the gateway uses it now\n")
    assert "timeoutSeconds" not in config_of(home)["agents"]["defaults"]
    assert config_of(home)["models"]["providers"]["mock"]["apiKey"] == "sk-test"
    assert home.run("config", "get", "models.providers.mock.apiKey").out == "sk-test\n"
    valid = home.run("config", "validate")
    assert valid.out == "~/.openclaw/openclaw.json is valid; the gateway uses it\n"
    log = (home.path / "log.jsonl").read_text(encoding="utf-8")
    assert "client connected: cli" in log and "sk-test" not in log + gateway.output


def test_config_set_invalid_is_refused_and_file_unchanged(home: Home, gateway: Gateway) -> None:
    before = (home.state / "openclaw.json").read_bytes()
    cases = [
        (("agents.defaults.maxConcurrent", "many"), "whole number"),
        (("agents.defaults.nosuch", "1"), "unknown key"),
        (("gateway", '{auth: {mode: "none"}, bind: "lan"}'), "refusing to listen"),
        (("models.providers.mock.baseUrl", "${NOT_SET_ANYWHERE}"), "NOT_SET_ANYWHERE"),
    ]
    for args, why in cases:
        done = home.run("config", "set", *args)
        assert done.status == 2 and why in done.err, (args, done)
        assert (home.state / "openclaw.json").read_bytes() == before
    assert gateway.process.poll() is None


async def test_config_set_that_needs_it_restarts_gateway(home: Home, gateway: Gateway) -> None:
    done = home.run("config", "set", "gateway.auth.token", "another-token")
    assert done.out.endswith("the gateway restarts with it\n"), done
    gateway.wait_ready(times=2)
    assert home.run("health").status == 0
    async with connect_client(gateway, secret=GatewaySecret("another-token")) as (client, _events):
        assert await client.call("health")


def test_config_set_protected_key_is_written_by_owner_only(home: Home, gateway: Gateway) -> None:
    file = str(home.path / "other.jsonl")
    done = home.run("config", "set", "logging.file", file)
    assert done.status == 0, done.err
    assert done.out.endswith("the gateway uses it now\n")
    wait_for(lambda: (home.path / "other.jsonl").exists())

    far = home.run(
        "config", "set", "logging.file", "/tmp/x", "--url", gateway.url, "--token", TOKEN
    )
    assert far.status == 2 and "cannot be set through the gateway" in far.err
    assert config_of(home)["logging"]["file"] == file


def test_config_get_of_remote_gateway_hides_secrets(home: Home, gateway: Gateway) -> None:
    there = ("--url", gateway.url, "--token", TOKEN)
    elsewhere = {"OPENCLAW_STATE_DIR": str(home.path / "elsewhere")}
    shown = home.run("config", "get", "models.providers.mock.apiKey", *there, **elsewhere)
    assert shown.out == "__OPENCLAW_REDACTED__\n"
    done = home.run("config", "set", "agents.defaults.maxConcurrent", "3", *there, **elsewhere)
    assert done.status == 0 and "the gateway uses it now" in done.out
    assert config_of(home)["agents"]["defaults"]["maxConcurrent"] == 3
    assert config_of(home)["models"]["providers"]["mock"]["apiKey"] == "sk-test"
    assert not (home.path / "elsewhere" / "openclaw.json").exists()
    assert (
        home.run("models", "status", "--json", *there, **elsewhere).json["model"] == "mock/mock-1"
    )


def test_config_set_changes_file_the_gateway_uses(home: Home, start: Start) -> None:
    real = home.path / "service.json"
    real.write_bytes((home.state / "openclaw.json").read_bytes())
    (home.state / "openclaw.json").unlink()
    home.env["OPENCLAW_CONFIG_PATH"] = str(real)
    start().wait_ready()
    del home.env["OPENCLAW_CONFIG_PATH"]  # the service has it, this shell does not
    done = home.run("config", "set", "agents.defaults.maxConcurrent", "3")
    assert done.out.startswith("agents.defaults.maxConcurrent is set in ~/service.json;"), done
    assert home.run("config", "get", "agents.defaults.maxConcurrent").out == "3\n"
    assert not (home.state / "openclaw.json").exists()
    local = home.run("config", "get", "agents.defaults.maxConcurrent", "--local")
    assert local.status == 2 and "is not set" in local.err


def test_models_list_uses_gateways_own_keys(home: Home, start: Start) -> None:
    config = config_of(home)
    config["models"]["providers"]["mock"]["apiKey"] = "${MOCK_KEY}"
    home.configure(config)
    add_model(home, "mock-2")
    home.env["MOCK_KEY"] = "sk-only-the-gateway-knows"
    start().wait_ready()
    del home.env["MOCK_KEY"]
    assert "MOCK_KEY" in home.run("models", "status", "--local").err  # from here it cannot be
    told = home.run("models", "status", "--json").json
    assert (told["model"], told["problem"]) == ("mock/mock-1", None)
    rows = {row["key"]: row for row in home.run("models", "list", "--json").json["models"]}
    assert rows["mock/mock-1"]["available"] and rows["mock/mock-1"]["tags"] == ["default"]
    done = home.run("models", "set", "mock/mock-2")
    assert done.status == 0, done.err
    assert done.out == (
        "mock/mock-2 answers from now on (~/.openclaw/openclaw.json; the gateway uses it now).\n"
    )
    assert model_of(home) == "mock-2"
    wrong = home.run("models", "set", "mok/mock-2")
    assert wrong.status == 2 and "mock" in wrong.err
    assert home.run("config", "validate").status == 0


def test_agent_model_option_does_not_change_session_model(home: Home, start: Start) -> None:
    add_model(home, "mock-2")
    start().wait_ready()
    assert model_of(home, "--model", "mock/mock-2") == "mock-2"
    assert model_of(home) == "mock-1"
    wrong = home.run("agent", "--message", "x", "--model", "mok/mock-2")
    assert wrong.status == 2 and "mock" in wrong.err


async def test_config_raised_run_limit_admits_waiting_runs(home: Home, start: Start) -> None:
    config = config_of(home)
    config["agents"]["defaults"]["maxConcurrent"] = 1
    home.configure(config)
    gateway = start().wait_ready()
    async with connect_client(gateway) as (client, events):
        first = await send(client, "MOCK:long:2000:20", "one")
        await events.wait(lambda n, p: n == "chat" and "word0003" in message_text(p))
        second = await send(client, "MOCK:short", "two")
        told: Any = await client.call("config.get")
        patch = {"raw": '{"agents": {"defaults": {"maxConcurrent": 2}}}', "baseHash": told["hash"]}
        assert not [p for n, p in events.all if n == "agent" and p["runId"] == second]
        done: Any = await client.call("config.patch", patch)
        assert (done["applied"]["action"], done["restart"]["ok"]) == ("apply", False)
        assert (await events.end_of(second))["state"] == "final"
        await client.call("chat.abort", {"sessionKey": "one"})
        assert (await events.end_of(first))["state"] == "aborted"


def test_gateway_broken_config_file_starts_with_last_good(home: Home, start: Start) -> None:
    first = start().wait_ready()
    kept = home.state / "openclaw.last-good.json"
    wait_for(kept.exists)
    assert home.run("gateway", "stop").status == 0
    first.end()
    good = (home.state / "openclaw.json").read_text(encoding="utf-8")
    (home.state / "openclaw.json").write_text("{ agents: ", encoding="utf-8")

    again = start().wait_ready(times=2)
    assert "starting with the last good config" in again.output
    assert "openclaw.json:1" in again.output
    status = home.run("status")
    assert status.status == 0 and "config    changed, wrong, not in use" in status.out
    assert "configProblem" in home.run("gateway", "status", "--json").json
    assert home.run("agent", "--message", "MOCK:short").out == "Hello from the mock model.\n"
    validated = home.run("config", "validate")
    assert validated.status == 2 and "goes on with the last good one" in validated.err
    refused = home.run("config", "set", "agents.defaults.maxConcurrent", "3")
    assert refused.status == 2 and "openclaw.json:1" in refused.err
    doctor = home.run("doctor")
    assert doctor.status == 2 and "last config that was in use" in doctor.out

    (home.state / "openclaw.json").write_text(good, encoding="utf-8")
    wait_for(lambda: "config    " not in home.run("status").out)


def test_gateway_without_good_config_refuses_start_with_fixes(home: Home, start: Start) -> None:
    assert home.run("config", "set", "agents.defaults.maxConcurrent", "3").status == 0
    (home.state / "openclaw.json").write_text('{"agnts": {}}', encoding="utf-8")
    refused = start()
    assert refused.end() == 2
    for words in ("agnts", "did you mean agents", "openclaw.json.bak", "homarus doctor"):
        assert words in refused.output, refused.output
    assert "cp ~/.openclaw/openclaw.json.bak" in home.run("doctor").out


@pytest.mark.parametrize("text", ["", "[1]", '{"agnts": 1}', "\x00"])
def test_gateway_damaged_last_good_config_is_not_used(home: Home, start: Start, text: str) -> None:
    (home.state / "openclaw.last-good.json").write_text(text, encoding="utf-8")
    (home.state / "openclaw.json").write_text("{ agents: ", encoding="utf-8")
    refused = start()
    assert refused.end() == 2 and "openclaw.json:1" in refused.output


async def test_gateway_running_survives_config_file_coming_and_going(
    home: Home, gateway: Gateway
) -> None:
    async with connect_client(gateway) as (client, events):
        file = home.state / "openclaw.json"
        good = file.read_text(encoding="utf-8")
        for text in ("{", "[]", '{"agents": 5}'):
            file.write_text(text, encoding="utf-8")
            await events.wait(lambda name, _: name == "config.rejected")
            events.all.clear()
        await events.end_of(await send(client, "MOCK:short"))
        file.write_text(good, encoding="utf-8")
        change(home, tools={"deny": ["exec"]})
        await events.wait(lambda name, _: name == "config.reloaded")
        status: Any = await client.call("status")
        assert "configProblem" not in status
