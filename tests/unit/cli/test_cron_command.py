"""`homarus cron` without a gateway: jobs are added, listed, changed and removed in the state."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from homarus.cli.completion_values import cron_jobs
from homarus.cli.cron import command
from homarus.cli.job_id import find_job_id
from homarus.cli.status import command as status_command
from homarus.core.errors import UnknownNameError, UserError
from homarus.schedule.internal_jobs import KIND
from homarus.store.slots import SlotRecord
from homarus.store.sqlite import open_store

TEA = ("--name", "tea", "--system-event", "Make tea.")


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def ask(*args: str) -> Any:
    result = run(*args, "--json")
    assert result.exception is None, result.exception
    return json.loads(result.stdout)


@pytest.fixture
def job_id(home: Path) -> str:
    assert home.exists()
    found: str = ask("add", *TEA, "--every", "2h")["id"]
    return found


def test_cron_job_is_added_shown_changed_and_removed(job_id: str, home: Path) -> None:
    shown = run("list").output
    assert f"{job_id}  tea  [waiting]" in shown and "every 2h, next run " in shown
    assert "event     Make tea." in run("get", job_id[:8]).output
    edited = ask("edit", job_id[:8], "--cron", "0 9 * * *", "--tz", "UTC", "--name", "late tea")
    assert edited["schedule"]["expr"] == "0 9 * * *" and edited["name"] == "late tea"
    assert ask("disable", job_id)["enabled"] is False
    assert "There is no job that is enabled." in run("list").output
    everything = run("list", "--all").output
    assert "[disabled]" in everything and "session-maintenance  [internal]" in everything
    assert {job["name"] for job in ask("list", "--all")["internal"]} >= {"session-maintenance"}
    assert ask("enable", job_id)["enabled"] is True
    status = run("status").output
    assert "jobs       1" in status and "the gateway does not run" in status
    assert "cron/jobs.json" in status
    stored = json.loads((home / ".openclaw/cron/jobs.json").read_text(encoding="utf-8"))
    assert [job["id"] for job in stored["jobs"]] == [job_id], "mirrored for OpenClaw"
    assert run("delete", job_id).output == "Removed.\n"
    assert ask("list", "--all")["jobs"] == []


def test_internal_jobs_have_their_last_run_without_a_gateway(home: Path, job_id: str) -> None:
    async def record() -> None:
        async with open_store(home / ".openclaw") as store, store.transaction() as transaction:
            transaction.put_record(KIND, "session-maintenance", {"lastRunAtMs": 1_700_000_000_000})

    assert job_id
    asyncio.run(record())
    found = {job["name"]: job["lastRunAtMs"] for job in ask("list", "--all")["internal"]}
    assert found["session-maintenance"] == 1_700_000_000_000
    assert "last run Tue 2023-11-14" in run("list", "--all").output


def test_cron_status_shows_what_is_wrong_with_the_file(home: Path, job_id: str) -> None:
    assert ask("show", job_id)["id"] == job_id
    file = home / ".openclaw/cron/jobs.json"
    text = file.read_text(encoding="utf-8")
    file.write_text(text[:-9], encoding="utf-8")
    assert "problem    " in (shown := run("status").output) and "not valid JSON" in shown
    assert "not valid JSON" in ask("status")["problem"]
    file.write_text(text, encoding="utf-8")
    assert "problem" not in ask("status")


@pytest.mark.usefixtures("home")
def test_cron_create_is_add_and_shows_the_job() -> None:
    result = run("create", "--name", "once", "--at", "20m", "--message", "Tea?", "--no-deliver")
    assert "Added " in result.output and "message   Tea?" in result.output
    assert (
        "once at " in result.output and "(in 20m)" in result.output
    ) or "(in 19m" in result.output


def test_cron_run_without_a_gateway_names_the_fix(job_id: str) -> None:
    refused = run("run", job_id).exception
    assert isinstance(refused, UserError) and "homarus gateway run" in refused.fix
    assert "No run has ended yet." in run("runs", job_id).output
    assert ask("runs", "--id", job_id, "--limit", "3") == {"entries": []}
    assert ask("runs") == {"entries": []}


def test_cron_runs_of_an_unknown_id_names_the_nearest(job_id: str) -> None:
    unknown = f"{job_id[:-1]}{'0' if job_id[-1] != '0' else '1'}"
    for wanted in (("runs", unknown), ("runs", "--id", unknown, "--json")):
        refused = run(*wanted).exception
        assert isinstance(refused, UnknownNameError)
        assert unknown in str(refused) and job_id in str(refused)


def test_cron_runs_of_a_removed_job_are_shown_by_its_id(home: Path, job_id: str) -> None:
    async def record() -> None:
        async with open_store(home / ".openclaw") as store, store.transaction() as transaction:
            at_ms = 1_700_000_000_000
            transaction.claim_slot(SlotRecord(job_id, at_ms, state="skipped", reason="no kettle"))

    asyncio.run(record())
    assert run("rm", job_id).exception is None
    assert "no kettle" in run("runs", job_id).output
    assert isinstance(run("runs", job_id[:-1]).exception, UnknownNameError), "of the complete id"


@pytest.mark.parametrize(
    "args",
    [
        ("get", "nosuch"),
        ("add", *TEA, "--cron", "nope"),
        ("add", *TEA, "--cron", "0 9 * * *", "--tz", "Mars/Base"),
        ("add", *TEA, "--at", "2020-01-01T00:00:00Z"),
        ("add", *TEA),
    ],
)
@pytest.mark.usefixtures("home")
def test_cron_input_that_is_wrong_is_refused_with_a_fix(args: tuple[str, ...]) -> None:
    refused = run(*args).exception
    assert isinstance(refused, UserError) and refused.fix
    assert ask("list", "--all")["jobs"] == []


def test_cron_ids_are_completed_and_status_counts_jobs(job_id: str) -> None:
    context = click.Context(command)
    argument = click.Argument(["job"])
    assert cron_jobs(context, argument, job_id[:4]) == [job_id]
    assert cron_jobs(context, argument, "x") == []
    shown = CliRunner().invoke(status_command, [], standalone_mode=False).output
    assert "jobs      1; none runs without the gateway" in shown


def test_job_id_may_be_shortened_while_it_is_unique() -> None:
    ids = ["abc1", "abd2", "x"]
    assert find_job_id("abc", ids) == "abc1" and find_job_id("x", ids) == "x"
    assert find_job_id("gone", ids, may_be_gone=True) == "gone"
    with pytest.raises(UserError, match="2 jobs start with 'ab'"):
        find_job_id("ab", ids)
    with pytest.raises(UnknownNameError, match="unknown job 'abx1'"):
        find_job_id("abx1", ids)
