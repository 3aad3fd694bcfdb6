"""The schedule of the control UI: calendar, jobs, form and history, with jobs that really run."""

import time

import pytest
from playwright.sync_api import Locator, expect

from homarus.core.message import Json
from homarus.testing.model_server import Fail, ModelServer
from tests.peers.gateway import Running, call
from tests.peers.ui import UiPage

pytestmark = pytest.mark.peers

EVIL_NAME = "Back up <b>the</b> workspace"
REFUSED = Fail(400, "the quota of this key is used up")
TURN: Json = {"sessionTarget": "isolated", "delivery": {"mode": "none"}}
READY_S = 60.0


def add_job(gateway: Running, name: str, message: str, **fields: Json) -> str:
    """Add a job whose agent turn is answered by the scripted model; return its id."""
    payload = {"kind": "agentTurn", "message": message}
    job = call(gateway, "cron.add", **{**TURN, "name": name, "payload": payload, **fields})
    return str(job["id"])


def find_job(gateway: Running, name: str) -> Json:
    jobs = call(gateway, "cron.list", includeDisabled=True)["jobs"]
    return next(job for job in jobs if job["name"] == name)


def run_job(gateway: Running, job_id: str, times: int) -> None:
    """Run a job some times, each to its end."""
    deadline_s = time.monotonic() + READY_S
    for count in range(1, times + 1):
        call(gateway, "cron.run", id=job_id, mode="force")
        while len(call(gateway, "cron.runs", id=job_id)["entries"]) < count:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)


@pytest.fixture(scope="module")
def scheduled(ui_gateway: Running, model: ModelServer) -> Running:
    """Schedule three jobs: one that works, one that failed three times, one that is disabled."""
    gateway = ui_gateway
    daily = {"kind": "cron", "expr": "30 7 * * *", "tz": "Europe/Berlin"}
    add_job(gateway, "Morning summary", "Sum up MOCK:say:Three mails wait.§", schedule=daily)
    every = {"kind": "every", "everyMs": 12 * 3_600_000}
    failing = add_job(gateway, EVIL_NAME, "Back up", schedule=every)
    model.script(*[[REFUSED]] * 3)
    run_job(gateway, failing, 3)
    once = {"kind": "at", "at": "2099-01-05T08:00:00Z"}
    add_job(gateway, "Dentist", "Remind me", schedule=once, enabled=False)
    return gateway


def jobs_card(ui: UiPage) -> Locator:
    return ui.tab.get_by_role("region", name="Jobs")


def open_schedule(ui: UiPage, gateway: Running) -> None:
    ui.tab.goto(f"{gateway.page}cron")
    ui.wait_for_connection()


def test_schedule_without_jobs_offers_to_add_one(ui: UiPage, ui_gateway: Running) -> None:
    open_schedule(ui, ui_gateway)
    expect(ui.tab.get_by_text("No jobs yet")).to_be_visible()
    expect(ui.tab.get_by_role("button", name="Add job").first).to_be_visible()


def test_jobs_are_shown_on_the_calendar_and_in_the_list(ui: UiPage, scheduled: Running) -> None:
    open_schedule(ui, scheduled)
    tab = ui.tab
    expect(jobs_card(ui).get_by_text("Morning summary")).to_be_visible()
    failed = jobs_card(ui).get_by_role("row").filter(has_text=EVIL_NAME)
    expect(failed).to_contain_text("failed 3 times")
    expect(failed).to_contain_text("the quota of this key is used up")
    expect(tab.locator("b", has_text="the")).to_have_count(0)  # a name is text
    expect(tab.locator(".calendar-run", has_text="Morning").first).to_be_visible()
    expect(tab.locator(".calendar-run", has_text="Dentist")).to_have_count(0)
    ui.take_pictures("cron")
    today = tab.locator(".calendar-day[aria-current=date]")
    today.focus()
    tab.keyboard.press("ArrowRight")
    focused = tab.locator(".calendar-day:focus")
    expect(focused).to_have_attribute("aria-pressed", "true")
    assert focused.get_attribute("data-day") != today.get_attribute("data-day")
    expect(tab.locator(".day-runs")).to_contain_text("Morning summary")
    tab.get_by_role("button", name="Week", exact=True).click()
    expect(tab.locator(".calendar-day")).to_have_count(7)


def test_job_is_added_run_and_found_in_the_history(ui: UiPage, scheduled: Running) -> None:
    open_schedule(ui, scheduled)
    tab = ui.tab
    tab.get_by_role("button", name="Add job").click()
    form = tab.get_by_role("dialog")
    form.get_by_label("Name").fill("Water the plants")
    tab.mouse.click(5, 5)  # beside the dialog: what was typed stays
    form.get_by_label("Expression").fill("99 * * * *")
    expect(form.get_by_role("status")).to_contain_text("99")
    form.get_by_label("Expression").fill("1 0 * * *")
    expect(form.get_by_role("status")).to_contain_text("Next:")
    form.get_by_label("Task").fill("Remind me MOCK:say:Water them: <i>two</i> litres.§")
    form.get_by_label("Result").select_option("none")
    ui.check_accessibility()
    form.get_by_role("button", name="Add job").click()
    expect(tab.get_by_text("Water the plants is scheduled.")).to_be_visible()
    stored = find_job(scheduled, "Water the plants")
    assert stored["schedule"]["expr"] == "1 0 * * *"
    expect(tab.locator(".calendar-run", has_text="Water").first).to_be_visible()
    tab.get_by_role("button", name="Run Water the plants now").click()
    expect(tab.get_by_text("Water the plants runs now.")).to_be_visible()
    runs = tab.get_by_role("region", name="Runs", exact=True).locator("table")
    newest = runs.get_by_role("row").filter(has_text="Water the plants")
    expect(newest).to_contain_text("Water them: <i>two</i> litres.")
    expect(newest).to_contain_text("ok")
    tab.get_by_role("button", name="More for Water the plants").click()
    tab.get_by_role("menuitem", name="Show runs").click()
    expect(tab.get_by_role("region", name="Runs of Water the plants")).to_be_visible()
    expect(runs.locator("tbody tr")).to_have_count(1)
    runs.get_by_role("link", name="Open").click()
    expect(tab.get_by_label("The agent answered")).to_contain_text("Water them")


def test_job_is_edited_disabled_and_removed(ui: UiPage, scheduled: Running) -> None:
    add_job(scheduled, "Rename me", "Do it", schedule={"kind": "every", "everyMs": 7_200_000})
    open_schedule(ui, scheduled)
    tab = ui.tab
    tab.get_by_role("button", name="More for Rename me").click()
    tab.get_by_role("menuitem", name="Edit").click()
    form = tab.get_by_role("dialog")
    expect(form.get_by_label("Every")).to_have_value("2")
    form.get_by_label("Name").fill("Renamed")
    form.get_by_label("Every").fill("3")
    form.get_by_role("button", name="Save job").click()
    expect(tab.get_by_text("Renamed is changed.")).to_be_visible()
    assert find_job(scheduled, "Renamed")["schedule"]["everyMs"] == 3 * 3_600_000
    more = tab.get_by_role("button", name="More for Renamed")
    more.click()
    tab.get_by_role("menuitem", name="Disable").click()
    expect(jobs_card(ui).get_by_role("row").filter(has_text="Renamed")).to_contain_text("disabled")
    assert not find_job(scheduled, "Renamed")["enabled"]
    more.click()
    tab.get_by_role("menuitem", name="Remove").click()
    tab.get_by_role("dialog").get_by_role("button", name="Remove job").click()
    expect(tab.get_by_text("Renamed is removed.")).to_be_visible()
    expect(more).to_have_count(0)
    names = [job["name"] for job in call(scheduled, "cron.list", includeDisabled=True)["jobs"]]
    assert "Renamed" not in names


def test_job_that_changed_meanwhile_is_not_overwritten(ui: UiPage, scheduled: Running) -> None:
    job_id = add_job(scheduled, "Shared", "Do it", schedule={"kind": "every", "everyMs": 7_200_000})
    open_schedule(ui, scheduled)
    tab = ui.tab
    tab.get_by_role("button", name="More for Shared").click()
    tab.get_by_role("menuitem", name="Edit").click()
    form = tab.get_by_role("dialog")
    form.get_by_label("Task").fill("Mine")
    call(scheduled, "cron.update", id=job_id, patch={"description": "changed elsewhere"})
    form.get_by_role("button", name="Save job").click()
    expect(form.get_by_text("the job was changed since it was read")).to_be_visible()
    assert find_job(scheduled, "Shared")["payload"]["message"] == "Do it"
    call(scheduled, "cron.remove", id=job_id)
    tab.keyboard.press("Escape")
    expect(jobs_card(ui).get_by_text("Shared")).to_have_count(0)  # by its event
