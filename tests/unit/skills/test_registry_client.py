"""The client of a registry: verification, tokens, discovery, and what the guard refuses."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from homarus.core.errors import UserError
from homarus.skills.hub.archive import make_zip
from homarus.skills.hub.prepared_skill import (
    SkillReference,
    is_local_path,
    parse_reference,
    prepare_from_registry,
    prepare_local,
)
from homarus.skills.hub.registry_address import (
    RegistryAddress,
    check_url,
    find_registry,
    find_token,
    is_safe_for_token,
)
from homarus.skills.hub.registry_client import RegistryClient, RegistryError
from homarus.skills.hub.skill_files import SkillFile
from tests.unit.skills.hub_stage import HEAD, HubStage, publication, running_hub

SKILL = SkillFile("SKILL.md", HEAD.encode())
Answers = dict[str, tuple[int, dict[str, str], bytes]]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubStage]:
    with running_hub(tmp_path / "hub") as stage:
        yield stage


class FakeRegistry:
    """A fake registry that answers fixed bytes, to answer what a good one never would."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.answers: Answers = {}
        self.seen: list[tuple[str, str, dict[str, str]]] = []

    def answer(self, path: str, content: object, status: int = 200, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.answers[path] = (status, headers, data)

    def offer(self, files: tuple[SkillFile, ...], archive: bytes) -> None:
        """Offer notes 1.0.0 with a list of files and an archive."""
        rows = [{"path": f.path, "size": len(f.data), "sha256": f.sha256} for f in files]
        skill = {"slug": "notes", "displayName": "N", "tags": {}, "stats": {}}
        latest = {"version": "1.0.0", "createdAt": 1, "changelog": ""}
        self.answer("/api/v1/skills/notes", {"skill": skill, "latestVersion": latest})
        listed = {"version": {**latest, "files": rows}, "skill": skill}
        self.answer("/api/v1/skills/notes/versions/1.0.0", listed)
        self.answer("/api/v1/download", archive)

    def client(self, token: str = "") -> RegistryClient:
        return RegistryClient(RegistryAddress(self.url), token=token)


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    class FixedAnswers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            registry.seen.append((self.command, self.path, headers))
            missing = (404, dict[str, str](), b"Not found")
            status, more, data = registry.answers.get(self.path.partition("?")[0], missing)
            self.send_response(status)
            for name, value in {**more, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815 - the name that the library calls

        def log_message(self, *_args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), FixedAnswers)
    registry = FakeRegistry(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with fake_registry() as registry:
        yield registry


NOTES = SkillReference("notes")


async def test_skill_is_downloaded_verified_and_checked(hub: HubStage) -> None:
    await hub.client().publish(publication(more={"docs/a.md": "text"}))
    prepared = await prepare_from_registry(hub.client(""), NOTES)
    assert (prepared.version, prepared.owner, prepared.registry) == ("1.0.0", "ann", hub.url)
    assert [file.path for file in prepared.files] == ["SKILL.md", "docs/a.md"]
    assert prepared.report.findings == ()


@pytest.mark.parametrize(
    "unpacked",
    [
        (SkillFile("SKILL.md", HEAD.encode() + b"evil"),),
        (SKILL, SkillFile("more.sh", b"x")),
        (SkillFile("other.md", b""),),
    ],
)
async def test_tampered_archive_is_refused(
    fake: FakeRegistry, unpacked: tuple[SkillFile, ...]
) -> None:
    fake.offer((SKILL,), make_zip(unpacked))
    with pytest.raises(RegistryError, match="was changed"):
        await prepare_from_registry(fake.client(), NOTES)


async def test_metadata_file_of_clawhub_is_allowed_in_an_archive(fake: FakeRegistry) -> None:
    fake.offer((SKILL,), make_zip((SKILL, SkillFile("_meta.json", b"{}"))))
    assert len((await prepare_from_registry(fake.client(), NOTES)).files) == 2


async def test_archive_of_a_registry_without_hashes_is_a_warning(fake: FakeRegistry) -> None:
    fake.offer((SKILL,), make_zip((SKILL,)))
    fake.answer("/api/v1/skills/notes/versions/1.0.0", {"version": {"version": "1.0.0"}})
    prepared = await prepare_from_registry(fake.client(), NOTES)
    assert [each.rule for each in prepared.report.warnings] == ["unverified"]


async def test_skill_that_the_registry_blocks_is_refused(fake: FakeRegistry) -> None:
    fake.offer((SKILL,), make_zip((SKILL,)))
    _, _, data = fake.answers["/api/v1/skills/notes"]
    blocked = {"isMalwareBlocked": True, "isSuspicious": True, "summary": "a stealer"}
    fake.answer("/api/v1/skills/notes", {**json.loads(data), "moderation": blocked})
    with pytest.raises(RegistryError, match="malicious: a stealer"):
        await prepare_from_registry(fake.client(), NOTES)


async def test_reads_send_no_token(fake: FakeRegistry) -> None:
    fake.offer((SKILL,), make_zip((SKILL,)))
    fake.answer("/api/v1/search", {"results": []})
    client = fake.client("clh_secret")
    await prepare_from_registry(client, NOTES)
    await client.search("x", 3)
    assert len(fake.seen) == 4
    assert not any("authorization" in headers for _, _, headers in fake.seen)


async def test_token_is_not_sent_to_the_host_of_an_upload(fake: FakeRegistry) -> None:
    with fake_registry() as storage:
        fake.answer("/api/v1/whoami", {"user": {"handle": "ann"}})
        ticket = {"uploadUrl": f"{storage.url}/put", "uploadTicket": "t"}
        fake.answer("/api/v1/skills/-/upload-url", ticket)
        fake.answer("/api/v1/skills", {"ok": True, "versionId": "v"})
        storage.answer("/put", {"storageId": "s"})
        assert await fake.client("clh_secret").publish(publication()) == "v"
        assert [path for _, path, _ in storage.seen] == ["/put"]
        assert "authorization" not in storage.seen[0][2]
        assert all(row[2]["authorization"] == "Bearer clh_secret" for row in fake.seen)


async def test_redirect_takes_no_token_and_no_body_along(fake: FakeRegistry) -> None:
    with fake_registry() as other:
        location = f"{other.url}/api/v1/whoami"
        fake.answer("/api/v1/whoami", b"", status=307, Location=location)
        other.answer("/api/v1/whoami", {"user": {"handle": "ann"}})
        await fake.client("clh_secret").who_am_i()
        assert "authorization" not in other.seen[0][2]
        fake.answer("/api/v1/whoami", {"user": {"handle": "ann"}})
        fake.answer("/api/v1/skills/-/upload-url", b"", status=307, Location=other.url)
        with pytest.raises(RegistryError):
            await fake.client("clh_secret").publish(publication())
        assert len(other.seen) == 1


async def test_site_names_its_registry(fake: FakeRegistry) -> None:
    fake.answer("/.well-known/clawhub.json", {"apiBase": f"{fake.url}/base"})
    client = RegistryClient(RegistryAddress(fake.url, is_site=True), token="clh_x")
    assert await client.base_url() == f"{fake.url}/base"
    fake.answers.clear()
    fake.answer("/.well-known/clawdhub.json", {"registry": fake.url})
    client = RegistryClient(RegistryAddress(fake.url, is_site=True))
    assert await client.base_url() == fake.url


@pytest.mark.parametrize(
    "named", ["http://169.254.169.254", "http://10.0.0.1", "file:///etc", "http://[::1]:9", 7]
)
async def test_site_cannot_lead_into_the_private_network(fake: FakeRegistry, named: object) -> None:
    fake.answer("/.well-known/clawhub.json", {"apiBase": named})
    fake.answer("/api/v1/search", {"results": []})
    client = RegistryClient(RegistryAddress(fake.url, is_site=True), token="clh_x")
    if isinstance(named, str):
        with pytest.raises(UserError):
            await client.search("x", 1)
    else:
        assert await client.search("x", 1) == []
    assert all("authorization" not in headers for _, _, headers in fake.seen)


async def test_token_is_not_sent_to_a_host_that_a_site_names(fake: FakeRegistry) -> None:
    with fake_registry() as other:
        fake.answer("/.well-known/clawhub.json", {"apiBase": other.url})
        client = RegistryClient(RegistryAddress(fake.url, is_site=True), token="clh_x")
        with pytest.raises(RegistryError, match="only the site names"):
            await client.who_am_i()
        assert other.seen == []


@pytest.mark.parametrize(
    "content",
    [b"<html>", b"[]", b"{" * 100_000, {"results": 7}, {"results": [{"slug": "../x"}, 7]}],
)
async def test_search_answer_of_nonsense_has_no_result(fake: FakeRegistry, content: object) -> None:
    fake.answer("/api/v1/search", content)
    if isinstance(content, bytes):
        with pytest.raises(RegistryError, match="JSON"):
            await fake.client().search("x", 5)
    else:
        assert await fake.client().search("x", 5) == []


async def test_texts_of_a_registry_are_escaped(fake: FakeRegistry) -> None:
    row = {"slug": "notes", "displayName": "a\x1b[2J", "summary": "b\u202e\nc", "score": 1}
    fake.answer("/api/v1/search", {"results": [row]})
    [found] = await fake.client().search("x", 5)
    assert (found.name, found.summary) == ("a\\u{1b}[2J", "b\\u{202e} c")
    fake.answer("/api/v1/search", b"no \x1b[2J", status=500)
    with pytest.raises(RegistryError, match=r"500: no .u") as refused:
        await fake.client().search("x", 5)
    assert "\x1b" not in str(refused.value)


async def test_registry_that_cannot_be_reached_is_an_error() -> None:
    with fake_registry() as gone:
        client = gone.client()
    with pytest.raises(RegistryError, match="could not be reached"):
        await client.search("x", 1)


def test_registry_is_found_in_the_order_of_its_sources() -> None:
    env = {"CLAWHUB_REGISTRY": "https://env.example/", "CLAWHUB_SITE": "https://site.example"}
    assert find_registry("https://option.example", env).url == "https://option.example"
    assert find_registry(None, env, "https://set.example").url == "https://env.example"
    del env["CLAWHUB_REGISTRY"]
    assert find_registry(None, env, "https://set.example").url == "https://set.example"
    found = find_registry(None, env)
    assert (found.url, found.is_site) == ("https://site.example", True)
    assert find_registry(None, {}).url == "https://clawhub.ai"


@pytest.mark.parametrize(
    "url", ["x", "ftp://a", "https://u:p@a", "https://a?b=c", "https://a:x", "//a", "https://"]
)
def test_registry_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="not the address"):
        check_url(url)


def test_token_of_another_registry_is_not_used(tmp_path: Path) -> None:
    config = tmp_path / ".config" / "clawhub" / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps({"registry": "https://a.example", "token": "clh_a"}))
    env = {"CLAWHUB_CONFIG_PATH": str(config)}
    assert find_token(RegistryAddress("https://a.example"), env, tmp_path) == "clh_a"
    assert find_token(RegistryAddress("https://b.example"), env, tmp_path) == ""
    assert find_token(RegistryAddress("http://a.example"), env, tmp_path) == ""
    env["CLAWHUB_TOKEN"] = "clh_env"
    assert find_token(RegistryAddress("https://b.example"), env, tmp_path) == "clh_env"


def test_token_is_sent_encrypted_or_on_this_machine() -> None:
    safe = ("https://a.example", "http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1")
    assert [is_safe_for_token(url) for url in safe] == [True] * 4
    assert not is_safe_for_token("http://a.example")


@pytest.mark.parametrize(
    ("text", "is_local"),
    [("./x", True), ("/x", True), ("a.zip", True), ("dir/x", True), ("a", False), ("@o/a", False)],
)
def test_argument_is_a_path_or_a_name(text: str, *, is_local: bool) -> None:
    assert is_local_path(text) is is_local


def test_reference_has_an_owner_or_none() -> None:
    assert parse_reference("@Ann/Notes") == SkillReference("notes", "ann")
    assert parse_reference("notes") == SkillReference("notes")
    with pytest.raises(UserError):
        parse_reference("@a/b/c")


def test_local_folder_is_named_by_its_skill(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text("---\nname: My Ünt Notes!\ndescription: d\n---\n")
    assert prepare_local(tmp_path).slug == "my-unt-notes"
    (tmp_path / "SKILL.md").write_text("---\nname: '???'\ndescription: d\n---\n")
    with pytest.raises(UserError, match="not the name of a skill"):
        prepare_local(tmp_path)
