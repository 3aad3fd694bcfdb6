"""The control UI with a lot to show: a long conversation, and many pieces of text in a second.

What is asserted is the amount of work: how much is in the page, and how much is added in one frame.
`python -m bench page` measures how long it takes.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from homarus.testing.model_server import ModelServer, Say
from tests.peers.gateway import Running, new_home, running_gateway
from tests.peers.test_ui_chat import answers, new_conversation, saved, write
from tests.peers.ui import UiPage, new_page

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

MESSAGES = 5_000
SESSION = "5f0c2a9b-e1d4-4c07-8a11-000000005000"
KEY = "agent:main:long"
STARTED_MS = 1_767_225_600_000  # 1 January 2026
MAX_ADDED = 700  # elements of one frame, which has 2,500 characters
MAX_ARTICLES = 60
PARAGRAPHS = 120
# Records the most articles that were in the page, and the most elements that one frame added.
OBSERVE = """() => {
  globalThis.work = {articles: 0, added: 0};
  let added = 0;
  const size = (node) => (node.querySelectorAll ? node.querySelectorAll('*').length + 1 : 0);
  new MutationObserver((records) => {
    for (const {addedNodes} of records) for (const node of addedNodes) added += size(node);
    work.added = Math.max(work.added, added);
    work.articles = Math.max(work.articles, document.querySelectorAll('article').length);
  }).observe(document, {subtree: true, childList: true});
  const reset = () => { added = 0; requestAnimationFrame(reset); };
  reset();
}"""
# Records every change of an element and of what is in it.
WATCH = """(box) => {
  box.dataset.watched = 'yes';
  globalThis.changes = 0;
  new MutationObserver((records) => { changes += records.length; })
    .observe(box, {subtree: true, childList: true, characterData: true});
}"""

# Scrolls to the oldest message; resolves when older ones are there, to false when there are none.
LOAD_OLDER = """(box) => new Promise((done, fail) => {
  box.scrollTo(0, 0);
  const startedMs = performance.now();
  const check = () => {
    if (!box.querySelector('.chat-older')) done(false);
    else if (box.scrollTop > 100) done(true);
    else if (performance.now() > startedMs + 30_000)
      fail(new Error(`nothing older is loaded at ${box.scrollTop} of ${box.scrollHeight} px`));
    else requestAnimationFrame(check);
  };
  requestAnimationFrame(check);
})"""


def write_long_session(state: Path) -> None:
    """Write a session of OpenClaw's format with many messages; each answer cost a cent."""
    folder = state / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    lines = [{"type": "session", "version": 3, "id": SESSION, "timestamp": "2026-01-01T00:00:00Z"}]
    parent = None
    for at in range(MESSAGES):
        role = "assistant" if at % 2 else "user"
        text = f"Message {at}. " + "Some **words** with `code` and a list:\n\n- one\n- two\n" * 2
        message = {
            "role": role,
            "content": [{"type": "text", "text": text}],
            "timestamp": STARTED_MS,
        }
        usage = {"input": 8, "output": 2, "totalTokens": 10, "cost": {"total": 0.01}}
        if role == "assistant":
            message |= {"usage": usage, "provider": "test", "model": "test"}
        entry = {"type": "message", "id": f"{at:08x}", "parentId": parent, "message": message}
        lines.append({**entry, "timestamp": "2026-01-01T00:00:00Z"})
        parent = f"{at:08x}"
    file = folder / f"{SESSION}.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    # Used just now: a session of yesterday would be reset with the next message.
    used_ms = round(time.time() * 1000)
    record = {"sessionId": SESSION, "updatedAt": used_ms, "sessionFile": str(file)}
    (folder / "sessions.json").write_text(json.dumps({KEY: record}))


@pytest.fixture(scope="module")
def gateway(
    ui_tools: None, model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    home = new_home(tmp_path_factory.mktemp("speed"), {"PATH": "/usr/bin:/bin"}, model)
    write_long_session(home.state)
    with running_gateway(home, ui=True) as gateway:
        yield gateway


@pytest.fixture
def page(ui_browser: Browser, gateway: Running) -> Iterator[UiPage]:
    page = new_page(ui_browser)
    yield page
    page.tab.context.close()


def check_work(page: UiPage) -> None:
    work = page.tab.evaluate("work")
    assert work["articles"] <= MAX_ARTICLES and work["added"] <= MAX_ADDED, work


def test_long_conversation_is_rendered_in_a_window(page: UiPage, gateway: Running) -> None:
    page.open(gateway, f"chat?session={KEY}")
    expect(page.tab.get_by_text(f"Message {MESSAGES - 1}.")).to_be_visible()
    page.tab.evaluate(OBSERVE)
    first = page.tab.locator("article", has_text="Message 0.")
    log = page.tab.get_by_role("log")
    while log.evaluate(LOAD_OLDER):
        pass
    log.evaluate("(box) => box.scrollTo(0, 0)")
    expect(first).to_be_visible()
    check_work(page)
    assert page.problems == []


def test_messages_that_are_far_from_the_end_are_forgotten(page: UiPage, gateway: Running) -> None:
    page.open(gateway, f"chat?session={KEY}")
    expect(page.tab.get_by_text(f"Message {MESSAGES - 1}.")).to_be_visible()
    log, chunks = page.tab.get_by_role("log"), page.tab.locator(".chat-chunk")
    for _ in range(10):
        assert log.evaluate(LOAD_OLDER)
    grown = chunks.count()
    log.evaluate("(box) => box.scrollTo(0, box.scrollHeight)")
    expect(page.tab.get_by_text(f"Message {MESSAGES - 1}.")).to_be_in_viewport()
    write(page, "More MOCK:say:A new answer.§")
    expect(saved(page).filter(has_text="A new answer.")).to_be_in_viewport()
    expect(page.tab.get_by_text(f"Message {MESSAGES - 400}.")).to_have_count(0)
    assert chunks.count() < grown / 2
    assert log.evaluate(LOAD_OLDER)  # and loaded again when they are read
    assert page.problems == []


def test_header_counts_the_whole_conversation(page: UiPage, gateway: Running) -> None:
    page.open(gateway, f"chat?session={KEY}")
    badge = page.tab.get_by_title("Tokens and cost of this conversation")
    expect(badge).to_contain_text(re.compile(r"k tokens · \$25\.\d\d"))


def test_stream_is_drawn_once_and_stays_when_it_is_saved(
    page: UiPage, gateway: Running, model: ModelServer
) -> None:
    page.open(gateway)
    new_conversation(page)
    page.tab.evaluate(OBSERVE)
    text = "".join(f"Paragraph {n} with **some** words.\n\n" for n in range(PARAGRAPHS))
    table = "| a | b |\n| - | - |\n" + "".join(f"| row {n} | {n} |\n" for n in range(PARAGRAPHS))
    whole = f"{text}{table}\n```python\nprint(1)\n```\n\nThe end."
    pieces = [whole[at : at + 12] for at in range(0, len(whole), 12)]
    model.script([Say(pieces, gap_s=0.01)])
    write(page, "Tell me")
    expect(answers(page)).to_contain_text("Paragraph 3 with")
    block = page.tab.locator("article.chat-answer p").first
    block.evaluate(WATCH)
    expect(saved(page)).to_contain_text("The end.", timeout=60_000)
    kept = saved(page).locator("p").first
    expect(kept).to_have_attribute("data-watched", "yes")
    expect(saved(page).locator("p")).to_have_count(PARAGRAPHS + 1)
    expect(saved(page).locator("tbody tr")).to_have_count(PARAGRAPHS)
    assert page.tab.evaluate("changes") == 0
    assert page.problems == []


def test_long_answer_of_the_history_is_drawn_in_parts(
    page: UiPage, gateway: Running, model: ModelServer
) -> None:
    page.open(gateway)
    new_conversation(page)
    rows = "".join(f"| row {n} | {n} | `x` |\n" for n in range(400))
    items = "- item\n" * 400
    model.script([Say(f"| a | b | c |\n| - | - | - |\n{rows}\n{items}\nThe end.")])
    write(page, "Tell me")
    expect(saved(page)).to_contain_text("The end.")
    page.tab.add_init_script(f"({OBSERVE})()")
    page.tab.reload()
    expect(saved(page).locator("tbody tr")).to_have_count(400)
    expect(saved(page).locator("li")).to_have_count(400)
    work = page.tab.evaluate("work")
    assert work["added"] <= MAX_ADDED, work  # of about 3,000


def test_first_load_needs_the_scripts_of_the_chat_alone(page: UiPage, gateway: Running) -> None:
    page.open(gateway)
    expect(page.tab.get_by_label("Message", exact=True)).to_be_visible()
    scripts = [url for url in page.requested if url.endswith(".js")]
    pages = [name for url in scripts if (name := re.search(r"/(\w+Page)-", url))]
    assert [name[1] for name in pages] == ["ChatPage"]
