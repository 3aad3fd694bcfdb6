"""The sources of the control UI: lint, types, unit tests and the size of the first load."""

import gzip
import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.peers.install import run
from tests.peers.ui import WEB
from tests.style.rules import ROOT

pytestmark = pytest.mark.peers

MAX_SCRIPT_BYTES = 150_000  # compressed, of the first load
BUILT = ROOT / "src" / "homarus" / "gateway" / "static_ui"


@pytest.mark.usefixtures("ui_tools")
def test_sources_pass_their_checks() -> None:
    with ThreadPoolExecutor() as pool:  # the lint takes as long as the others together
        checks = [
            pool.submit(run, "npm", "run", "--silent", script, cwd=WEB)
            for script in ("lint", "types", "test")
        ]
    for check in checks:
        check.result()


@pytest.mark.usefixtures("ui_tools")
def test_first_load_stays_within_its_budget() -> None:
    html = (BUILT / "index.html").read_text(encoding="utf-8")
    names = re.findall(r'"\./(assets/[^"]+\.js)"', html)
    chat = next((BUILT / "assets").glob("ChatPage-*.js"))
    scripts = [*(BUILT / name for name in names), chat]
    assert names
    assert sum(len(gzip.compress(file.read_bytes())) for file in scripts) < MAX_SCRIPT_BYTES


def test_lock_file_names_no_registry() -> None:
    packages = json.loads((WEB / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert [name for name, one in packages.items() if "resolved" in one] == []
