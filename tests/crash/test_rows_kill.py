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


def die(rig: Rig, fault: str, text: str = ECHO, **more: Any) -> Any:
    """Send a message, let the gateway die at the point, and return what was offered."""
    told = rig.offer(text, **more)
    rig.start(f"{fault}:kill9" if ":" not in fault else fault)
    assert rig.gateway and rig.gateway.wait() == KILLED, rig.output
    return told


def go_on(rig: Rig, told: Any) -> None:
    """Check that the next start answers it once and settles everything."""
    rig.start()
    found = rig.settle()
    assert found.answered == [told["id"]] and not found.doubled and not found.lost
    row = rig.inbox_record(told["id"])
    assert row.state == "answered" and row.reply
    wait_for(lambda: [parcel.state for parcel in rig.outbox()] == ["sent"], "it is receipted")
    assert rig.outbox()[0].run == row.id


def roles(rig: Rig, told: Any) -> list[str]:
    """Return the roles of the messages in a message's session."""
    return [one["role"] for one in rig.messages(rig.inbox_record(told["id"]).session)]


def results(rig: Rig, told: Any) -> list[str]:
    found = rig.messages(rig.inbox_record(told["id"]).session)
    return [str(one["content"]) for one in found if one["role"] == "toolResult"]


def test_row_01_killed_before_message_commit(make_rig: MakeRig) -> None:
    rig = make_rig()
    told = die(rig, "intake.read")
    assert rig.inbox() == [] and rig.verdict().waiting == [told["id"]], "it was not acknowledged"
    go_on(rig, told)
    assert rig.inbox_record(told["id"]).duplicates == 0
    assert roles(rig, told) == ["user", "assistant"]


def test_row_02_killed_after_commit_before_acknowledgement(make_rig: MakeRig) -> None:
    rig = make_rig()
    told = die(rig, "intake.accepted")
    assert rig.inbox_record(told["id"]).state == "accepted" and rig.verdict().waiting == [
        told["id"]
    ]
    # The channel stored how far it had read; a service that keeps no such place offers it again.
    rig.offer(ECHO, id=told["id"])
    go_on(rig, told)
    wait_for(lambda: rig.inbox_record(told["id"]).duplicates == 1, "the second one is counted")
    assert len(rig.inbox()) == 1
    assert roles(rig, told) == ["user", "assistant"]


def test_row_03_killed_after_acknowledgement_before_run(make_rig: MakeRig) -> None:
    rig = make_rig()
    told = die(rig, "intake.acknowledged")
    assert rig.inbox_record(told["id"]).state == "accepted" and rig.verdict().waiting == []
    go_on(rig, told)
    assert (
        rig.inbox_record(told["id"]).duplicates == 0 and rig.inbox_record(told["id"]).attempts == 1
    )
    assert rig.verdict().worst_s < 30


def test_row_04_killed_after_question_saved_before_model_call(
    make_rig: MakeRig,
) -> None:
    rig = make_rig()
    told = die(rig, "run.begun")
    assert roles(rig, told) == ["user"] and rig.model_stats() == []
    go_on(rig, told)
    assert roles(rig, told) == ["user", "assistant"], "no second question"
    assert (
        rig.inbox_record(told["id"]).attempts == 2 and len(rig.model_requests(told["nonce"])) == 1
    )


def test_row_05_killed_before_first_model_output(make_rig: MakeRig) -> None:
    rig = make_rig()
    told = die(rig, "provider.asked", "T#{nonce} MOCK:delay:300 MOCK:echo")
    go_on(rig, told)
    assert roles(rig, told) == ["user", "assistant"]
    assert len(rig.model_requests(told["nonce"])) in {1, 2}, "the call is made again"


def test_row_06_killed_during_model_output(make_rig: MakeRig) -> None:
    rig = make_rig()
    told = die(rig, "provider.streaming", "T#{nonce} MOCK:long:50:5 MOCK:echo")
    go_on(rig, told)
    assert roles(rig, told) == ["user", "assistant"], "what was half said is nowhere"
    assert len(rig.model_requests(told["nonce"])) == 2


def test_row_06_killed_during_tool_call_output(make_rig: MakeRig) -> None:
    rig = make_rig()
    call = side_effect_call(rig.side).replace("MOCK:tool", "MOCK:bytes:16 MOCK:tool")
    told = die(rig, "provider.streaming:kill9:1", call)
    assert roles(rig, told) == ["user"], "no half of a call is kept"
    go_on(rig, told)
    assert roles(rig, told) == ["user", "assistant", "toolResult", "assistant"]
    assert rig.side_effects(told["nonce"]) == 1


def test_row_07_killed_after_call_saved_before_start(make_rig: MakeRig) -> None:
    rig = make_rig()
    told = die(rig, "tool.asked", side_effect_call(rig.side))
    assert rig.side_effects(told["nonce"]) == 0
    go_on(rig, told)
    assert rig.side_effects(told["nonce"]) == 1, "it had not begun: it is safe to run"
    assert roles(rig, told) == ["user", "assistant", "toolResult", "assistant"]
    assert "interrupted" not in results(rig, told)[0]


def test_row_07_killed_after_call_marked_started(make_rig: MakeRig) -> None:
    rig = make_rig()
    told = die(rig, "tool.started", side_effect_call(rig.side))
    go_on(rig, told)
    assert rig.side_effects(told["nonce"]) == 0, "it may have begun: it is not run again"
    (result,) = results(rig, told)
    assert "interrupted" in result and "not known" in result


def test_row_08_killed_during_tool_run(make_rig: MakeRig) -> None:
    rig = make_rig()
    pid_file = rig.folder / "pid"
    told = rig.offer(side_effect_call(rig.side, f"echo $$ > {pid_file}; sleep 600"))
    rig.start()
    wait_for(lambda: pid_file.exists() and pid_file.read_text().strip(), "the command runs")
    assert rig.side_effects(told["nonce"]) == 1
    rig.kill()
    wait_for(lambda: not lives(int(pid_file.read_text())), "the command dies with its gateway")
    go_on(rig, told)
    assert rig.side_effects(told["nonce"]) == 1, "it was not run again"
    (result,) = results(rig, told)
    assert "interrupted" in result and "not known" in result


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
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
    told = die(rig, "tool.ended", side_effect_call(rig.side))
    assert rig.side_effects(told["nonce"]) == 1
    go_on(rig, told)
    assert rig.side_effects(told["nonce"]) == 1, "it was not run again"
    (result,) = results(rig, told)
    assert "interrupted" in result and "not known" in result


def test_row_09_idempotent_tool_is_run_again(make_rig: MakeRig) -> None:
    rig = make_rig()
    read = 'T#{nonce} MOCK:tool:read:{"path":"AGENTS.md","limit":3}§ MOCK:next MOCK:echo'
    told = die(rig, "tool.ended", read)
    go_on(rig, told)
    (result,) = results(rig, told)
    assert "AGENTS.md" in result and "interrupted" not in result


@pytest.mark.parametrize("fault", ["tool.asked", "tool.ended"])
def test_row_09_memory_note_in_progress_is_written_once(make_rig: MakeRig, fault: str) -> None:
    rig = make_rig()
    write = 'T#{nonce} MOCK:tool:memory_write:{"text":"{nonce} came by."}§ MOCK:next MOCK:echo'
    told = die(rig, fault, write)
    go_on(rig, told)
    (result,) = results(rig, told)
    assert "interrupted" not in result and '"path"' in result
    notes = (rig.state / "workspace" / "memory").rglob("*.md")
    text = "".join(one.read_text(encoding="utf-8") for one in notes)
    assert text.count(f"{told['nonce']} came by.") == 1


def test_row_10_killed_after_result_saved_before_model_call(
    make_rig: MakeRig,
) -> None:
    rig = make_rig()
    told = die(rig, "tool.saved", side_effect_call(rig.side))
    assert roles(rig, told) == ["user", "assistant", "toolResult"]
    go_on(rig, told)
    assert rig.side_effects(told["nonce"]) == 1, "it was not run again"
    assert "interrupted" not in results(rig, told)[0]
    assert [one["after_tool"] for one in rig.model_requests(told["nonce"])] == [False, True]


def test_row_11_killed_after_reply_saved_before_send(make_rig: MakeRig) -> None:
    rig = make_rig(flavour="plain")
    told = die(rig, "reply.saved")
    assert (
        rig.inbox_record(told["id"]).state == "answered"
        and rig.ledger.get("/ledger")["sends"] == []
    )
    go_on(rig, told)
    assert len(rig.model_requests(told["nonce"])) == 1, "the model was not asked again"


@pytest.mark.parametrize("flavour", ["idempotent", "lookup"])
@pytest.mark.parametrize("arrives", [True, False])
def test_row_12_killed_during_send(make_rig: MakeRig, flavour: Flavour, arrives: bool) -> None:
    rig = make_rig(flavour=flavour)
    told = hang_in_the_send(rig, arrives=arrives)
    go_on(rig, told)
    (send,) = rig.ledger.get("/ledger")["sends"]
    again = arrives and flavour == "idempotent"
    assert send["repeats"] == again, "sent again under its key, or looked up and found"
    assert len(rig.ledger.get("/ledger")["attempts"]) == 1 + (again or not arrives)


@pytest.mark.parametrize("arrives", [True, False])
def test_row_12_plain_service_is_not_sent_twice(make_rig: MakeRig, arrives: bool) -> None:
    rig = make_rig(flavour="plain")
    told = hang_in_the_send(rig, arrives=arrives)
    rig.start()
    wait_for(rig.unknown, "the parcel is marked as unknown")
    (parcel,) = rig.outbox()
    assert parcel.state == "unknown" and rig.unknown() == {told["id"]}
    # The next message is answered as ever, and the first reply stays as it is.
    later = rig.offer(ECHO)
    found = rig.settle(unknown=True)
    assert found.answered == ([told["id"]] if arrives else []) + [later["id"]]
    assert not found.doubled
    texts = [send["text"] for send in rig.ledger.get("/ledger")["sends"]]
    assert sum(told["nonce"] in text for text in texts) == arrives


def hang_in_the_send(rig: Rig, *, arrives: bool) -> Any:
    """Let the service receive the request and not answer, then let the gateway die."""
    rig.fail_sends({"taken": arrives, "status": 0, "waitS": 600})
    told = rig.offer(ECHO)
    rig.start()
    wait_for(lambda: rig.ledger.get("/ledger")["attempts"], "the reply is sent")
    rig.kill()
    (parcel,) = rig.outbox()
    assert parcel.state == "sending"
    return told


@pytest.mark.parametrize("flavour", ["idempotent", "lookup"])
def test_row_12_lost_send_answer_is_resolved_without_restart(
    make_rig: MakeRig, flavour: Flavour
) -> None:
    rig = make_rig(flavour=flavour)
    rig.fail_sends({"taken": True, "status": 0})
    told = rig.offer(ECHO)
    go_on(rig, told)
    (send,) = rig.ledger.get("/ledger")["sends"]
    assert send["repeats"] == (flavour == "idempotent")


@pytest.mark.parametrize("flavour", ["idempotent", "lookup", "plain"])
def test_row_13_killed_after_send_before_receipt_saved(make_rig: MakeRig, flavour: Flavour) -> None:
    rig = make_rig(flavour=flavour)
    told = die(rig, "deliver.answered")
    assert [parcel.state for parcel in rig.outbox()] == ["sending"]
    if flavour != "plain":
        go_on(rig, told)
    else:
        rig.start()
        wait_for(rig.unknown, "the parcel is marked as unknown")
    (send,) = rig.ledger.get("/ledger")["sends"]
    assert send["repeats"] == (flavour == "idempotent")
    assert rig.verdict().answered == [told["id"]]


@pytest.mark.parametrize("parts", [1, PARTS - 1])
def test_row_14_killed_between_parts_of_reply(make_rig: MakeRig, parts: int) -> None:
    rig = make_rig(flavour="plain", text_limit=PART_CHARS)
    text, marks = long_reply()
    told = die(rig, f"deliver.ended:kill9:{parts}", text, marks=marks)
    before = rig.ledger.get("/ledger")["sends"]
    assert len(before) == parts
    rig.start()
    found = rig.settle()
    assert found.answered == [told["id"]] and not found.doubled
    sends = rig.ledger.get("/ledger")["sends"]
    assert sends[:parts] == before and len(sends) == PARTS, "those parts were not sent again"
    for send, mark in zip(sends, told["marks"], strict=True):
        assert mark in send["text"], "the parts are in order"
    wait_for(lambda: {p.state for p in rig.outbox()} == {"sent"}, "every part is marked as sent")


@pytest.mark.parametrize(
    "scene", kill_scenarios(), ids=lambda scenario: f"{scenario.row:02}-{scenario.flavour}"
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
