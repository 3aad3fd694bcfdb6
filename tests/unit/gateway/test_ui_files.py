"""The control UI is served from a fixed list of files, and from nothing else."""

import gzip
from pathlib import Path

import pytest

from homarus.gateway import ui_files
from tests.unit.gateway.test_http_server import HERE, KNOWN, look

INDEX = '<!doctype html><script type="module" src="./assets/index-abc.js"></script>'
SCRIPT = "export const answer = 42;" * 100


@pytest.fixture(autouse=True)
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a built UI, which the gateway serves."""
    folder = tmp_path / "static_ui"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "routes.txt").write_text("chat\napprovals\n../secret\n")
    (folder / "secret.js").write_text("no")
    (folder / "assets" / "index-abc.js").write_text(SCRIPT)
    (folder / "assets" / "index-abc.js.gz").write_bytes(gzip.compress(SCRIPT.encode()))
    (folder / "assets" / "notes.txt").write_text("no")
    monkeypatch.setattr(ui_files, "FOLDER", folder)
    monkeypatch.delenv("HOMARUS_NO_UI", raising=False)
    return folder


@pytest.mark.parametrize("path", ["/", "/chat", "/approvals"])
async def test_ui_is_served_at_the_paths_of_its_pages(tmp_path: Path, path: str) -> None:
    page = await look(tmp_path, path)
    assert (page.status, page.body) == (200, INDEX)
    policy = page.headers["content-security-policy"]
    assert "script-src 'self';" in policy and "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy and "frame-ancestors 'none'" in policy


async def test_ui_page_is_checked_for_updates_each_time(tmp_path: Path) -> None:
    first = await look(tmp_path, "/")
    assert first.headers["cache-control"] == "no-cache"
    again = await look(tmp_path, "/chat", headers={**HERE, "if-none-match": first.headers["etag"]})
    assert (again.status, again.body) == (304, "")


async def test_ui_asset_is_sent_compressed_and_kept_for_good(tmp_path: Path) -> None:
    plain = await look(tmp_path, "/assets/index-abc.js")
    assert plain.body == SCRIPT and "immutable" in plain.headers["cache-control"]
    assert plain.headers["content-type"].startswith("text/javascript")
    packed = await look(
        tmp_path, "/assets/index-abc.js", headers={**HERE, "accept-encoding": "gzip"}
    )
    assert packed.headers["content-encoding"] == "gzip" and packed.body == SCRIPT
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])


@pytest.mark.parametrize(
    "path",
    ["/assets/other.js", "/assets/notes.txt", "/assets/index-abc.js.gz", "/assets/..%2fsecret.js",
     "/secret.js", "/routes.txt", "/chat.js", "/chat/", "/assets/", "/settings"],
)  # fmt: skip
async def test_file_outside_the_list_is_not_served(tmp_path: Path, path: str) -> None:
    assert (await look(tmp_path, path, headers=KNOWN)).status == 404
    assert (await look(tmp_path, path)).status == 401


async def test_plain_page_is_served_without_built_ui(tmp_path: Path, built: Path) -> None:
    (built / "index.html").unlink()
    assert (await look(tmp_path, "/chat.js")).status == 200


async def test_plain_page_is_served_when_ui_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOMARUS_NO_UI", "1")
    assert "chat.js" in (await look(tmp_path, "/")).body
