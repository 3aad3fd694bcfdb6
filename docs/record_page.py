"""Take pictures of the chat page: `python docs/record_page.py` writes page.png and page-phone.png.

The real gateway runs in an empty home directory with a scripted model, and Chromium, which has to
be installed, shows its page: on a desktop in light colours, and on a phone in dark ones. The time
of day is replaced by a fixed one.
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from homarus.testing.model_server import CallTools, Say, ScriptedCall
from tests.peers.browser import Browser, Page, chromium
from tests.peers.chat_page import ENDED, ask
from tests.peers.gateway import TOKEN, Running, model_server, new_home, running_gateway

FOLDER = Path(__file__).parent
MAX_BYTES = 150_000
QUESTION = "How is my basil doing?"
LOOK = "I read the sensor first."
ANSWER = """## Thirsty, but healthy

The soil is **dry** two centimetres down (0.21), so water it *tonight*:

1. Fill the tray, not the pot
   - 200 ml are enough
   - wait 20 minutes
2. Pour away what is left

- [x] Moved away from the window
- [ ] Repot on Saturday

| Plant | Water | Next |
|:--|--:|:--|
| Basil | 200 ml | tonight |
| Rosemary | 50 ml | Sunday |

> Basil likes warm water.

```python
def needs_water(moisture: float) -> bool:
    return moisture < 0.35
```

More in [the plant book](https://plants.example/basil)."""
FIXED_TIME = "for (const time of document.querySelectorAll('time')) time.textContent = '09:41'"


def converse(browser: Browser, gateway: Running) -> Page:
    """Return the page after one question and its answer."""
    page = browser.open(f"{gateway.page}#token={TOKEN}")
    page.wait_for_text("#state", "Connected")
    ask(page, QUESTION)
    page.wait_for_text(ENDED, "the plant book")
    page.wait_until("document.querySelector('#past .tool')")  # as it is stored
    return page


def take(page: Page, name: str, *, width: int, height: int, dark: bool) -> None:
    """Write a picture of the end of the conversation."""
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1.5 if dark else 1,
        mobile=dark,
    )
    page.call("Emulation.setTouchEmulationEnabled", enabled=dark)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    page.call("Emulation.setEmulatedMedia", features=[scheme])
    page.run("document.activeElement.blur()")
    page.run(FIXED_TIME)
    page.run("(log => { log.scrollTop = log.scrollHeight; })(document.querySelector('#log'))")
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    file = FOLDER / name
    page.screenshot(file)
    size = file.stat().st_size
    assert size < MAX_BYTES, f"{file} has {size} bytes"
    print(f"{file.name}: {size} bytes")


def main() -> None:
    """Record both pictures."""
    env = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    with tempfile.TemporaryDirectory() as folder, model_server() as model:
        home = new_home(Path(folder), env, model)
        with running_gateway(home) as gateway, chromium(Path(folder) / "chromium") as browser:
            home.workspace.mkdir(parents=True, exist_ok=True)
            (home.workspace / "moisture.txt").write_text("0.21\n", encoding="utf-8")
            read = CallTools(ScriptedCall("read", {"path": "moisture.txt"}))
            model.script([Say(LOOK), read], [Say(ANSWER)])
            page = converse(browser, gateway)
            take(page, "page.png", width=1080, height=960, dark=False)
            take(page, "page-phone.png", width=390, height=844, dark=True)


if __name__ == "__main__":
    main()
