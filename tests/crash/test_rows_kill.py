"""Rows 1 to 14: `kill -9` at the row's own point, then at random moments of its turn.

The first test of each row asserts the exact result of the matrix; `test_rows_01_to_14_random_kills`
asserts that nothing was lost, doubled or executed twice. `make crash N=200` does more of these.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.crash.conftest import MakeRig
from tests.crash.harness import Flavour, Launch, Rig, wait_for
from tests.crash.random_kills import (
    ECHO,
    PART_CHARS,
    PARTS,
    KillScenario,
    RandomKills,
    kill_scenarios,
    long_reply,
    side_effect_call,
)

TIMINGS = 10
SEED = 20261115
KILLED = -9


def kill_at(rig: Rig, fault: str, text: str = ECHO, **more: Any) -> Any:
    """Send a message, let the gateway die at the point, and return what was offered."""
    message = rig.offer(text, **more)
    rig.start(f"{fault}:kill9" if ":" not in fault else fault)
    assert rig.gateway and rig.gateway.wait() == KILLED, rig.output
    return message


def restart_and_check(rig: Rig, message: Any) -> None:
    """Check that the next start answers it once and settles everything."""
    rig.start()
    verdict = rig.settle()
    assert verdict.answered == [message["id"]] and not verdict.doubled and not verdict.lost
    row = rig.inbox_record(message["id"])
    assert row.state == "answered" and row.reply
    wait_for(lambda: [record.state for record in rig.outbox()] == ["sent"], "it is receipted")
    assert rig.outbox()[0].run == row.id


def roles(rig: Rig, message: Any) -> list[str]:
    """Return the roles of the messages in a message's session."""
    return [one["role"] for one in rig.messages(rig.inbox_record(message["id"]).session)]


def results(rig: Rig, message: Any) -> list[str]:
    found = rig.messages(rig.inbox_record(message["id"]).session)
    return [str(one["content"]) for one in found if one["role"] == "toolResult"]


def test_row_01_killed_before_message_commit(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = kill_at(rig, "intake.read")
    assert rig.inbox() == [] and rig.verdict().waiting == [message["id"]], "it was not acknowledged"
    restart_and_check(rig, message)
    assert rig.inbox_record(message["id"]).duplicates == 0
    assert roles(rig, message) == ["user", "assistant"]


def test_row_02_killed_after_commit_before_acknowledgement(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = kill_at(rig, "intake.accepted")
    assert rig.inbox_record(message["id"]).state == "accepted" and rig.verdict().waiting == [
        message["id"]
    ]
    # The channel stored how far it had read; a service that keeps no such place offers it again.
    rig.offer(ECHO, id=message["id"])
    restart_and_check(rig, message)
    wait_for(lambda: rig.inbox_record(message["id"]).duplicates == 1, "the second one is counted")
    assert len(rig.inbox()) == 1
    assert roles(rig, message) == ["user", "assistant"]


def test_row_03_killed_after_acknowledgement_before_run(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = kill_at(rig, "intake.acknowledged")
    assert rig.inbox_record(message["id"]).state == "accepted" and rig.verdict().waiting == []
    restart_and_check(rig, message)
    assert (
        rig.inbox_record(message["id"]).duplicates == 0
        and rig.inbox_record(message["id"]).attempts == 1
    )
    assert rig.verdict().worst_s < 30


def test_row_04_killed_after_question_saved_before_model_call(
    make_rig: MakeRig,
) -> None:
    rig = make_rig()
    message = kill_at(rig, "run.begun")
    assert roles(rig, message) == ["user"] and rig.model_stats() == []
    restart_and_check(rig, message)
    assert roles(rig, message) == ["user", "assistant"], "no second question"
    assert (
        rig.inbox_record(message["id"]).attempts == 2
        and len(rig.model_requests(message["nonce"])) == 1
    )


def test_row_05_killed_before_first_model_output(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = kill_at(rig, "provider.asked", "T#{nonce} MOCK:delay:300 MOCK:echo")
    restart_and_check(rig, message)
    assert roles(rig, message) == ["user", "assistant"]
    assert len(rig.model_requests(message["nonce"])) in {1, 2}, "the call is made again"


def test_row_06_killed_during_model_output(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = kill_at(rig, "provider.streaming", "T#{nonce} MOCK:long:50:5 MOCK:echo")
    restart_and_check(rig, message)
    assert roles(rig, message) == ["user", "assistant"], "what was half said is nowhere"
    assert len(rig.model_requests(message["nonce"])) == 2


def test_row_06_killed_during_tool_call_output(make_rig: MakeRig) -> None:
    rig = make_rig()
    call = side_effect_call(rig.side).replace("MOCK:tool", "MOCK:bytes:16 MOCK:tool")
    message = kill_at(rig, "provider.streaming:kill9:1", call)
    assert roles(rig, message) == ["user"], "no half of a call is kept"
    restart_and_check(rig, message)
    assert roles(rig, message) == ["user", "assistant", "toolResult", "assistant"]
    assert rig.side_effects(message["nonce"]) == 1


def test_row_07_killed_after_call_saved_before_start(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = kill_at(rig, "tool.asked", side_effect_call(rig.side))
    assert rig.side_effects(message["nonce"]) == 0
    restart_and_check(rig, message)
    assert rig.side_effects(message["nonce"]) == 1, "it had not begun: it is safe to run"
    assert roles(rig, message) == ["user", "assistant", "toolResult", "assistant"]
    assert "interrupted" not in results(rig, message)[0]


def test_row_07_killed_after_call_marked_started(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = kill_at(rig, "tool.started", side_effect_call(rig.side))
    restart_and_check(rig, message)
    assert rig.side_effects(message["nonce"]) == 0, "it may have begun: it is not run again"
    (result,) = results(rig, message)
    assert "interrupted" in result and "not known" in result


def test_row_08_killed_during_tool_run(make_rig: MakeRig) -> None:
    rig = make_rig()
    pid_file = rig.folder / "pid"
    message = rig.offer(side_effect_call(rig.side, f"echo $$ > {pid_file}; sleep 600"))
    rig.start()
    wait_for(lambda: pid_file.exists() and pid_file.read_text().strip(), "the command runs")
    assert rig.side_effects(message["nonce"]) == 1
    rig.kill()
    wait_for(lambda: not lives(int(pid_file.read_text())), "the command dies with its gateway")
    restart_and_check(rig, message)
    assert rig.side_effects(message["nonce"]) == 1, "it was not run again"
    (result,) = results(rig, message)
    assert "interrupted" in result and "not known" in result


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self").exists():
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return state != "Z"


def test_row_09_killed_after_tool_end_before_result_saved(make_rig: MakeRig) -> None:
    rig = make_rig()
    message = kill_at(rig, "tool.ended", side_effect_call(rig.side))
    assert rig.side_effects(message["nonce"]) == 1
    restart_and_check(rig, message)
    assert rig.side_effects(message["nonce"]) == 1, "it was not run again"
    (result,) = results(rig, message)
    assert "interrupted" in result and "not known" in result


def test_row_09_idempotent_tool_is_run_again(make_rig: MakeRig) -> None:
    rig = make_rig()
    read = 'T#{nonce} MOCK:tool:read:{"path":"AGENTS.md","limit":3}§ MOCK:next MOCK:echo'
    message = kill_at(rig, "tool.ended", read)
    restart_and_check(rig, message)
    (result,) = results(rig, message)
    assert "AGENTS.md" in result and "interrupted" not in result


@pytest.mark.parametrize("fault", ["tool.asked", "tool.ended"])
def test_row_09_memory_note_in_progress_is_written_once(make_rig: MakeRig, fault: str) -> None:
    rig = make_rig()
    write = 'T#{nonce} MOCK:tool:memory_write:{"text":"{nonce} came by."}§ MOCK:next MOCK:echo'
    message = kill_at(rig, fault, write)
    restart_and_check(rig, message)
    (result,) = results(rig, message)
    assert "interrupted" not in result and '"path"' in result
    notes = (rig.state / "workspace" / "memory").rglob("*.md")
    text = "".join(one.read_text(encoding="utf-8") for one in notes)
    assert text.count(f"{message['nonce']} came by.") == 1


def test_row_10_killed_after_result_saved_before_model_call(
    make_rig: MakeRig,
) -> None:
    rig = make_rig()
    message = kill_at(rig, "tool.saved", side_effect_call(rig.side))
    assert roles(rig, message) == ["user", "assistant", "toolResult"]
    restart_and_check(rig, message)
    assert rig.side_effects(message["nonce"]) == 1, "it was not run again"
    assert "interrupted" not in results(rig, message)[0]
    assert [one["after_tool"] for one in rig.model_requests(message["nonce"])] == [False, True]


def test_row_11_killed_after_reply_saved_before_send(make_rig: MakeRig) -> None:
    rig = make_rig(flavour="plain")
    message = kill_at(rig, "reply.saved")
    assert (
        rig.inbox_record(message["id"]).state == "answered"
        and rig.ledger.get("/ledger")["sends"] == []
    )
    restart_and_check(rig, message)
    assert len(rig.model_requests(message["nonce"])) == 1, "the model was not asked again"


@pytest.mark.parametrize("flavour", ["idempotent", "lookup"])
@pytest.mark.parametrize("arrives", [True, False])
def test_row_12_killed_during_send(make_rig: MakeRig, flavour: Flavour, arrives: bool) -> None:
    rig = make_rig(flavour=flavour)
    message = hang_during_send(rig, arrives=arrives)
    restart_and_check(rig, message)
    (send,) = rig.ledger.get("/ledger")["sends"]
    again = arrives and flavour == "idempotent"
    assert send["repeats"] == again, "sent again under its key, or looked up and found"
    assert len(rig.ledger.get("/ledger")["attempts"]) == 1 + (again or not arrives)


@pytest.mark.parametrize("arrives", [True, False])
def test_row_12_plain_service_is_not_sent_twice(make_rig: MakeRig, arrives: bool) -> None:
    rig = make_rig(flavour="plain")
    message = hang_during_send(rig, arrives=arrives)
    rig.start()
    wait_for(rig.unknown, "the parcel is marked as unknown")
    (record,) = rig.outbox()
    assert record.state == "unknown" and rig.unknown() == {message["id"]}
    # The next message is answered as ever, and the first reply stays as it is.
    later = rig.offer(ECHO)
    verdict = rig.settle(unknown=True)
    assert verdict.answered == ([message["id"]] if arrives else []) + [later["id"]]
    assert not verdict.doubled
    texts = [send["text"] for send in rig.ledger.get("/ledger")["sends"]]
    assert sum(message["nonce"] in text for text in texts) == arrives


def hang_during_send(rig: Rig, *, arrives: bool) -> Any:
    """Let the service receive the request and not answer, then let the gateway die."""
    rig.fail_sends({"taken": arrives, "status": 0, "waitS": 600})
    message = rig.offer(ECHO)
    rig.start()
    wait_for(lambda: rig.ledger.get("/ledger")["attempts"], "the reply is sent")
    rig.kill()
    (record,) = rig.outbox()
    assert record.state == "sending"
    return message


@pytest.mark.parametrize("flavour", ["idempotent", "lookup"])
def test_row_12_lost_send_answer_is_resolved_without_restart(
    make_rig: MakeRig, flavour: Flavour
) -> None:
    rig = make_rig(flavour=flavour)
    rig.fail_sends({"taken": True, "status": 0})
    message = rig.offer(ECHO)
    restart_and_check(rig, message)
    (send,) = rig.ledger.get("/ledger")["sends"]
    assert send["repeats"] == (flavour == "idempotent")


@pytest.mark.parametrize("flavour", ["idempotent", "lookup", "plain"])
def test_row_13_killed_after_send_before_receipt_saved(make_rig: MakeRig, flavour: Flavour) -> None:
    rig = make_rig(flavour=flavour)
    message = kill_at(rig, "deliver.answered")
    assert [record.state for record in rig.outbox()] == ["sending"]
    if flavour != "plain":
        restart_and_check(rig, message)
    else:
        rig.start()
        wait_for(rig.unknown, "the parcel is marked as unknown")
    (send,) = rig.ledger.get("/ledger")["sends"]
    assert send["repeats"] == (flavour == "idempotent")
    assert rig.verdict().answered == [message["id"]]


@pytest.mark.parametrize("parts", [1, PARTS - 1])
def test_row_14_killed_between_parts_of_reply(make_rig: MakeRig, parts: int) -> None:
    rig = make_rig(flavour="plain", text_limit=PART_CHARS)
    text, marks = long_reply()
    message = kill_at(rig, f"deliver.ended:kill9:{parts}", text, marks=marks)
    before = rig.ledger.get("/ledger")["sends"]
    assert len(before) == parts
    rig.start()
    verdict = rig.settle()
    assert verdict.answered == [message["id"]] and not verdict.doubled
    sends = rig.ledger.get("/ledger")["sends"]
    assert sends[:parts] == before and len(sends) == PARTS, "those parts were not sent again"
    for send, mark in zip(sends, message["marks"], strict=True):
        assert mark in send["text"], "the parts are in order"
    wait_for(lambda: {p.state for p in rig.outbox()} == {"sent"}, "every part is marked as sent")


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario", kill_scenarios(), ids=lambda one: f"{one.row:02}-{one.flavour}"
)
def test_rows_01_to_14_random_kills(launch: Launch, tmp_path: Path, scenario: KillScenario) -> None:
    kinds = sum(other.row == scenario.row for other in kill_scenarios())
    kills = RandomKills(launch, tmp_path, scenario, SEED)
    try:
        results = kills.run(-(-TIMINGS // kinds))
    finally:
        kills.rig.close()
    assert results.is_good, f"{results}\n{kills.rig.output[-4000:]}"
    assert results.unknown == 0 or scenario.flavour == "plain"
