"""The commands a person or a script runs, and their messages when something is wrong."""

import json
import time
from pathlib import Path

import pytest

from tests.e2e.program import Home, Open


def test_setup_creates_files_once_and_overwrites_nothing(home: Home) -> None:
    first = home.run("setup")
    assert first.status == 0 and "openclaw.json" in first.out
    assert (home.workspace / "AGENTS.md").exists() and (home.workspace / ".git").exists()
    assert oct((home.state / "openclaw.json").stat().st_mode)[-3:] == "600"
    (home.workspace / "SOUL.md").write_text("mine")
    config = (home.state / "openclaw.json").read_bytes()
    again = home.run("setup")
    assert again.status == 0 and "in place already" in again.out
    assert (home.workspace / "SOUL.md").read_text() == "mine"
    assert (home.state / "openclaw.json").read_bytes() == config


def test_agent_answers_one_question(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    done = home.run("agent", "--message", "MOCK:short", "--json")
    assert done.status == 0
    assert done.json["status"] == "ok"
    assert done.json["result"]["payloads"][0]["text"] == "Hello from the mock model."
    meta = done.json["result"]["meta"]["agentMeta"]
    assert (meta["provider"], meta["model"]) == ("mock", "mock-1")
    plain = home.run("agent", "--message", "MOCK:short")
    assert plain.out == "Hello from the mock model.\n"


def test_agent_prints_cleaned_answer_and_names_its_files(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    text = "<think>plan</think>[[reply_to:7]] Look:\nMEDIA:./a.png\n[Tool Call: x]\nBye."
    message = f"MOCK:bytes:7 MOCK:say:{text}§"
    plain = home.run("agent", "--message", message)
    assert plain.out == "Look:\nBye.\n" and "./a.png" in plain.err
    payload = home.run("agent", "--message", message, "--json").json["result"]["payloads"][0]
    assert (payload["text"], payload["mediaUrls"], payload["replyToId"]) == (
        "Look:\nBye.",
        ["./a.png"],
        "7",
    )


def test_agent_next_question_continues_session(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    for text in ("MOCK:short one", "MOCK:short two"):
        assert home.run("agent", "--message", text).status == 0
    (entries,) = home.transcripts()
    assert [e["message"]["role"] for e in entries if e["type"] == "message"] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    listed = home.run("sessions", "--json").json
    assert listed["count"] == 1 and listed["sessions"][0]["key"] == "agent:main:main"
    assert "agent:main:main" in home.run("sessions").out


def test_agent_other_session_and_agent_have_own_files(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    config = json.loads((home.state / "openclaw.json").read_text())
    config["agents"]["list"] = [{"id": "main"}, {"id": "work"}]
    home.configure(config)
    assert home.run("agent", "--message", "MOCK:short", "--agent", "work").status == 0
    assert (
        home.run("agent", "--message", "MOCK:short", "--session-key", "agent:main:side").status == 0
    )
    assert len(home.transcripts("work")) == 1 and len(home.transcripts("main")) == 1
    assert (home.state / "workspace-work" / "AGENTS.md").exists()


def test_agent_timeout_ends_question(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    done = home.run("agent", "--message", "MOCK:delay:20000", "--timeout", "0.5")
    assert done.status == 1 and "deadline" in done.err


BROKEN_CONFIGS = {
    "syntax": ("{ agents: { ", "openclaw.json:"),
    "unknown key": ('{"agent": {}, "agents": {"defaults": {"modle": "x"}}}', "model"),
    "wrong type": ('{"agents": {"defaults": {"timeoutSeconds": "soon"}}}', "timeoutSeconds"),
    "missing variable": ('{"models": {"providers": {"x": {"baseUrl": "${NOPE}"}}}}', "NOPE"),
    "not an object": ("[1, 2]", "openclaw.json"),
}


@pytest.mark.parametrize("name", BROKEN_CONFIGS)
def test_agent_broken_config_gives_one_clear_message(home: Home, name: str) -> None:
    text, told = BROKEN_CONFIGS[name]
    home.state.mkdir()
    (home.state / "openclaw.json").write_text(text)
    for command in (["agent", "--message", "hi"], ["config", "validate"], ["models", "status"]):
        done = home.run(*command)
        assert done.status == 2, (command, done)
        assert told in done.err and len(done.err.splitlines()) <= 4
    assert (home.state / "openclaw.json").read_text() == text
    failed = home.run("agent", "--message", "hi", "--json")
    assert failed.json["ok"] is False and told in json.dumps(failed.json)


def test_agent_unreachable_provider_is_reported_with_address(home: Home) -> None:
    home.use_model("http://127.0.0.1:9")
    done = home.run("agent", "--message", "hi")
    assert done.status == 1 and "127.0.0.1:9" in done.err


def test_agent_refused_key_is_reported_without_key(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    done = home.run("agent", "--message", "MOCK:fail:401")
    assert done.status == 1 and "key" in done.err and "sk-test" not in done.err + done.out


def test_agent_failed_run_prints_its_result_as_json(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    done = home.run("agent", "--message", "MOCK:fail:400", "--json")
    assert (done.status, done.json["ok"]) == (1, False)
    result = done.json["result"]
    assert result["payloads"][-1]["isError"] is True
    assert result["meta"]["error"]["kind"] == "provider.bad_request"


def test_agent_missing_key_names_variable(home: Home) -> None:
    home.configure({"agents": {"defaults": {"model": "openai/gpt-5.2"}}})
    done = home.run("agent", "--message", "hi")
    assert done.status == 2 and "OPENAI_API_KEY" in done.err


def test_cli_unknown_names_suggest_closest(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    cases = [
        (("agent", "--message", "x", "--model", "mok/mock-1"), "mock"),
        (("agent", "--message", "x", "--agent", "mian"), "main"),
        (("config", "get", "agents.defualts"), "defaults"),
        (("chatt",), "chat"),
    ]
    for args, nearest in cases:
        done = home.run(*args)
        assert done.status == 2 and nearest in done.err, (args, done)


def test_agent_unusable_workspace_is_reported(home: Home, model_url: str) -> None:
    (home.path / "file").write_text("")
    home.use_model(model_url, workspace=str(home.path / "file" / "w"))
    done = home.run("agent", "--message", "MOCK:short")
    assert done.status == 2 and str(home.path / "file" / "w") in done.err


def test_agent_garbage_in_transcript_loses_only_garbage(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    assert home.run("agent", "--message", "MOCK:short one").status == 0
    (file,) = (home.state / "agents" / "main" / "sessions").glob("*.jsonl")
    with file.open("ab") as out:
        out.write(b'{"type":"message","id":"tor\x00\xff')
    done = home.run("agent", "--message", "MOCK:short two")
    assert done.status == 0 and "1" in done.err
    assert file.with_name(f"{file.name}.corrupt").exists()
    assert home.run("agent", "--message", "MOCK:short three").err == ""


def test_agent_wrong_tool_arguments_are_returned_to_model(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    done = home.run("agent", "--message", 'MOCK:tool:read:{"pth":1}§')
    assert done.status == 0 and done.out == "Hello from the mock model.\n"
    (entries,) = home.transcripts()
    (result,) = [e["message"] for e in entries if e.get("message", {}).get("role") == "toolResult"]
    assert result["isError"] and "path" in result["content"][0]["text"]


def test_cli_usage_error_is_status_2_and_json_on_request(home: Home) -> None:
    assert home.run("agent").status == 2
    failed = home.run("agent", "--json")
    assert failed.status == 2 and failed.json["error"]["type"] == "cli_error"


def test_agent_second_process_on_state_names_holder(
    home: Home, model_url: str, open_chat: Open
) -> None:
    home.use_model(model_url)
    chat = open_chat()
    chat.wait_for("> ")
    done = home.run("agent", "--message", "MOCK:short")
    assert done.status == 2 and "process" in done.err
    assert home.run("sessions").status == 0


def test_agent_continues_existing_openclaw_state(home: Home, model_url: str) -> None:
    samples = Path(__file__).parents[1] / "data" / "samples"
    home.use_model(model_url)
    folder = home.state / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    listed = json.loads((samples / "sessions.json").read_text())
    session_id = listed["agent:main:cap-chat"]["sessionId"]
    listed["agent:main:cap-chat"]["sessionFile"] = str(folder / f"{session_id}.jsonl")
    listed["agent:main:cap-chat"]["updatedAt"] = time.time_ns() // 1_000_000  # no daily reset
    (folder / "sessions.json").write_text(json.dumps(listed))
    before = (samples / "transcript-chat.jsonl").read_bytes()
    (folder / f"{session_id}.jsonl").write_bytes(before)
    done = home.run("agent", "--message", "MOCK:short", "--session-key", "agent:main:cap-chat")
    assert done.status == 0
    after = (folder / f"{session_id}.jsonl").read_bytes()
    assert after.startswith(before) and len(after) > len(before)
    last = json.loads(after.splitlines()[-1])
    assert set(last) == {"type", "id", "parentId", "timestamp", "message"}
    kept = json.loads((folder / "sessions.json").read_text())
    assert set(listed) <= set(kept)
    # The snapshot names OpenClaw's own files: ours takes its place.
    prompt = kept["agent:main:cap-chat"]["skillsSnapshot"]["prompt"]
    assert prompt != listed["agent:main:cap-chat"]["skillsSnapshot"]["prompt"]


def test_doctor_reports_problems_with_fixes(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    done = home.run("doctor")
    assert "workspace" in done.out and "homarus setup" in done.out
    assert home.run("setup").status == 0
    healthy = home.run("doctor", "--json")
    assert healthy.status == 0
    rows = json.loads(healthy.out)["findings"]
    assert {tuple(row) for row in rows} == {("about", "state", "text", "fix")}
    home.configure({"agnts": {}})
    broken = home.run("doctor")
    assert broken.status == 2 and "agents" in broken.out


def test_cli_without_home_and_odd_environment_does_not_crash(home: Home) -> None:
    fresh = str(home.path / "new")
    assert home.run("models", "status", LANG="C", TERM="dumb", HOME=fresh).status == 0


def test_chat_without_model_says_how_to_get_one(home: Home) -> None:
    done = home.run("chat", text="hi\n")
    assert done.status == 2 and "homarus models pull demo" in done.err
    assert "→ homarus onboard" in done.err


def test_agent_denied_tools_are_neither_offered_nor_run(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    config = json.loads((home.state / "openclaw.json").read_text())
    home.configure({**config, "tools": {"deny": ["shell", "file_write"]}})
    done = home.run("agent", "--message", 'MOCK:tool:write:{"path":"a","content":"b"}§')
    assert done.status == 0 and not (home.workspace / "a").exists()
    (entries,) = home.transcripts()
    (result,) = [e["message"] for e in entries if e.get("message", {}).get("role") == "toolResult"]
    assert result["isError"] and "denied by 'file_write'" in result["content"][0]["text"]


def test_agent_unknown_thinking_level_lists_known_ones(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    done = home.run("agent", "--message", "x", "--thinking", "sideways")
    assert done.status == 2 and "medium" in done.err


def test_agent_fallback_answers_when_first_model_is_down(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    config = json.loads((home.state / "openclaw.json").read_text())
    down = {"baseUrl": "http://127.0.0.1:9", "models": [{"id": "gone", "name": "Gone"}]}
    config["models"]["providers"]["down"] = down
    config["agents"]["defaults"]["model"] = {"primary": "down/gone", "fallbacks": ["mock/mock-1"]}
    home.configure(config)
    done = home.run("agent", "--message", "MOCK:short", "--json")
    assert done.status == 0, done
    meta = done.json["result"]["meta"]
    assert meta["agentMeta"]["model"] == "mock-1"
    assert [(a["model"], a["reason"]) for a in meta["attempts"]][-1] == (
        "gone",
        "provider.unreachable",
    )
