"""`homarus models auth` as a person or a script meets it."""

import json
import stat
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

from homarus.cli import models_auth
from homarus.cli.models import command
from homarus.core.errors import HomarusError, UnknownNameError, UserError
from homarus.providers.catalog import VENDORS
from homarus.providers.oauth import DeviceCode
from homarus.testing.clock import FakeClock
from tests.openclaw_databases import put_profiles
from tests.unit.providers.oauth_peers import authlib_server

KEY = "sk-proj-0123456789abcdef"


class Home:
    """A person's home and what they type."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env: dict[str, str] = {}

    def file(self, agent: str = "main") -> Path:
        return self.path / ".openclaw" / "agents" / agent / "agent" / "auth-profiles.json"

    def stored(self, agent: str = "main") -> Any:
        return json.loads(self.file(agent).read_text())

    def put(self, content: Any) -> None:
        self.file().parent.mkdir(parents=True)
        self.file().write_text(json.dumps(content))
        self.file().chmod(0o600)

    def configure(self, config: Any) -> None:
        folder = self.path / ".openclaw"
        folder.mkdir(exist_ok=True)
        (folder / "openclaw.json").write_text(json.dumps(config))

    def run(self, *args: str, typed: str = "") -> Result:
        names = [name for vendor in VENDORS.values() for name in vendor.key_names]
        names += ["OPENCLAW_STATE_DIR", "OPENCLAW_CONFIG_PATH", "OPENCLAW_PROFILE"]
        names += ["OPENCLAW_OAUTH_DIR", "DISPLAY", "WAYLAND_DISPLAY"]
        env = {**dict.fromkeys(names), "HOME": str(self.path), **self.env}
        result = CliRunner().invoke(command, ["auth", *args], env=env, input=typed)
        assert KEY not in result.output
        assert KEY not in str(result.exception)
        return result

    def done(self, *args: str, typed: str = "") -> Result:
        result = self.run(*args, typed=typed)
        assert result.exception is None, result.exception
        return result

    def refused(self, *args: str, typed: str = "") -> HomarusError:
        result = self.run(*args, typed=typed)
        assert isinstance(result.exception, UserError), result.output
        return result.exception

    def told(self, *args: str) -> Any:
        return json.loads(self.done(*args, "--json").stdout)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_add_key_from_stdin_is_stored_with_owner_mode(home: Home) -> None:
    result = home.done("add", "OpenAI", "--key-stdin", typed=f"{KEY}\n")
    assert "openai:default is in ~/.openclaw/agents/main/agent/auth-profiles.json" in result.stdout
    assert home.stored() == {
        "version": 1,
        "profiles": {"openai:default": {"type": "api_key", "provider": "openai", "key": KEY}},
    }
    assert stat.S_IMODE(home.file().stat().st_mode) == 0o600


def test_add_at_a_terminal_prompts_for_provider_and_key(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models_auth, "_is_terminal", lambda: True)
    home.done("add", typed=f"groq\n{KEY}\n")
    assert home.stored()["profiles"]["groq:default"]["key"] == KEY
    home.done("paste-token", "anthropic", typed=f"{KEY}\n")
    assert home.stored()["profiles"]["anthropic:manual"]["token"] == KEY


def test_add_without_terminal_prompts_for_nothing(home: Home) -> None:
    assert "--key-stdin" in home.refused("add", "openai", typed=KEY).fix
    assert "PROVIDER" in home.refused("add", typed=KEY).fix
    assert not home.file().exists()


def test_add_has_no_option_for_the_key() -> None:
    group = models_auth.auth
    for name in group.commands:
        for param in group.commands[name].params:
            assert param.name not in {"key", "token", "api_key", "client_secret"}


@pytest.mark.parametrize("typed", ["", "\n", "two words\n", "sk-\u00e9\n", "x" * 20_000])
def test_add_invalid_key_is_refused_without_echo(home: Home, typed: str) -> None:
    error = home.refused("add", "openai", "--key-stdin", typed=typed)
    assert not typed.strip() or typed.strip() not in str(error)
    assert not home.file().exists()


def test_add_key_may_be_a_reference(home: Home) -> None:
    home.done("add", "openai", "--key-env", "MY_KEY")
    assert home.stored()["profiles"]["openai:default"]["key"] == "${MY_KEY}"
    home.done("add", "openai", "--key-file", "~/k", "--profile-id", "openai:work")
    entry = {
        "type": "api_key",
        "provider": "openai",
        "keyFrom": {"source": "file", "path": "~/k"},
    }
    assert home.stored()["profiles"]["openai:work"] == entry
    home.done("add", "openai", "--key-stdin", "--profile-id", "openai:work", typed=f"{KEY}\n")
    assert "keyFrom" not in home.stored()["profiles"]["openai:work"]
    assert "one place" in home.refused("add", "x", "--key-env", "A", "--key-stdin").message
    error = home.refused("add", "openai", "--key-env", KEY)
    assert "name" in error.fix


@pytest.mark.parametrize("name", ["", "../../x", "a b", "x" * 65, ".x", "\u202e"])
def test_add_provider_must_be_a_plain_name(home: Home, name: str) -> None:
    home.refused("paste-token", name, typed=KEY)


@pytest.mark.parametrize("id_", ["a b", "\x1b[2J", "x" * 200, ""])
def test_add_profile_must_be_a_plain_name(home: Home, id_: str) -> None:
    if id_:
        home.refused("add", "openai", "--key-stdin", "--profile-id", id_, typed=KEY)
    else:  # nothing said: the usual one
        home.done("add", "openai", "--key-stdin", "--profile-id", id_, typed=KEY)


@pytest.mark.parametrize(
    "args",
    [
        ("add", "opnai", "--key-stdin"),
        ("paste-token", "opnai"),
        ("login", "opnai", "--client-id", "cli"),
        ("order", "get", "--provider", "opnai"),
        ("order", "set", "--provider", "opnai", "x"),
        ("order", "clear", "--provider", "opnai"),
    ],
    ids=" ".join,
)
def test_unknown_provider_is_refused_with_the_nearest(home: Home, args: tuple[str, ...]) -> None:
    error = home.refused(*args, typed=KEY)
    assert isinstance(error, UnknownNameError) and error.nearest[0] == "openai"
    assert not home.file().exists()


def test_unknown_provider_without_a_near_name_can_be_described(home: Home) -> None:
    assert "models.providers.acme" in home.refused("add", "acme", "--key-stdin", typed=KEY).fix
    home.configure({"models": {"providers": {"Acme": {"baseUrl": "http://127.0.0.1:9/v1"}}}})
    home.done("add", "acme", "--key-stdin", typed=KEY)


FULL = {
    "version": 1,
    "profiles": {
        "openai:a": {"type": "api_key", "provider": "openai", "key": KEY},
        "openai:b": {"type": "api_key", "provider": "openai", "key": "other"},
        "groq:a": {"type": "api_key", "provider": "groq", "key": "third"},
    },
    "order": {"openai": ["openai:a", "openai:b"], "groq": ["groq:a"]},
    "lastGood": {"openai": "openai:a", "groq": "groq:a"},
    "usageStats": {"openai:a": {"errorCount": 1}, "openai:b": {"errorCount": 2}},
    "x": 1,
}


def test_remove_deletes_profile_and_its_references(home: Home) -> None:
    home.put(FULL)
    auth = {
        "profiles": {
            "openai:a": {"provider": "openai", "mode": "api_key"},
            "groq:a": {"provider": "groq", "mode": "api_key"},
        },
        "order": {"openai": ["openai:a"], "groq": ["groq:a", "openai:a"]},
    }
    home.configure({"auth": auth})
    result = home.done("remove", "openai:a", "--yes")
    assert "openai:a is removed from ~/.openclaw" in result.stdout
    stored = home.stored()
    assert set(stored["profiles"]) == {"openai:b", "groq:a"}
    assert stored["order"] == {"openai": ["openai:b"], "groq": ["groq:a"]}
    assert stored["lastGood"] == {"groq": "groq:a"}
    assert stored["usageStats"] == {"openai:b": {"errorCount": 2}} and stored["x"] == 1
    assert stat.S_IMODE(home.file().stat().st_mode) == 0o600
    written = json.loads((home.path / ".openclaw" / "openclaw.json").read_text())["auth"]
    assert written["order"] == {"groq": ["groq:a"]}, "an empty order would exclude all"
    assert set(written["profiles"]) == {"groq:a"}
    assert home.told("remove", "openai:b", "--yes")["profileId"] == "openai:b"
    assert home.stored()["order"] == {"groq": ["groq:a"]}


def test_remove_unknown_profile_names_the_nearest(home: Home) -> None:
    home.put(FULL)
    error = home.refused("remove", "openai:c", "--yes")
    assert isinstance(error, UnknownNameError)
    assert set(error.nearest) >= {"openai:a", "openai:b"}
    home.env["GROQ_API_KEY"] = "of the environment"
    assert "GROQ_API_KEY" in home.refused("remove", "env:GROQ_API_KEY", "--yes").fix
    assert home.stored() == FULL


def test_remove_needs_confirmation_and_the_right_agent(home: Home) -> None:
    home.put(FULL)
    assert "--yes" in home.refused("remove", "openai:a").fix
    home.configure({"agents": {"list": [{"id": "main"}, {"id": "ops"}]}})
    error = home.refused("remove", "openai:a", "--agent", "ops", "--yes")
    assert "--agent main" in error.fix
    assert home.stored() == FULL


def test_remove_keeps_settings_that_another_agent_uses(home: Home) -> None:
    home.put(FULL)
    order = {"openai": ["openai:default"]}
    home.configure({"agents": {"list": [{"id": "main"}, {"id": "ops"}]}, "auth": {"order": order}})
    for agent in ("main", "ops"):
        home.done("add", "openai", "--key-stdin", "--agent", agent, typed=KEY)
    home.done("remove", "openai:default", "--yes", "--agent", "ops")
    written = json.loads((home.path / ".openclaw" / "openclaw.json").read_text())
    assert written["auth"]["order"] == order and "openai:default" in home.stored()["profiles"]


def test_paste_token_is_stored_with_its_expiry(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(models_auth, "SystemClock", lambda: clock)
    home.done("paste-token", "anthropic", "--expires-in", "30d", typed=f"{KEY}\n")
    assert home.stored()["profiles"]["anthropic:manual"] == {
        "type": "token",
        "provider": "anthropic",
        "token": KEY,
        "expires": clock.now_ms() + 30 * 86_400_000,
    }
    home.done("paste-token", "anthropic", typed=f"{KEY}\n")
    assert "expires" not in home.stored()["profiles"]["anthropic:manual"]
    for wrong in ("0d", "soon", "-1h", "5", "9999999d"):
        home.refused("paste-token", "anthropic", "--expires-in", wrong, typed=KEY)


def test_add_new_key_resets_cooldown_and_keeps_other_fields(home: Home) -> None:
    entry = {"type": "api_key", "provider": "openai", "key": "old", "metadata": {"a": 1}}
    usage = {"openai:default": {"errorCount": 4}, "other": {"errorCount": 1}}
    home.put({"version": 1, "profiles": {"openai:default": entry}, "usageStats": usage, "x": 1})
    home.done("add", "openai", "--key-stdin", typed=KEY)
    assert home.stored() == {
        "version": 1,
        "profiles": {"openai:default": {**entry, "key": KEY}},
        "usageStats": {"other": {"errorCount": 1}},
        "x": 1,
    }


def test_add_archives_a_damaged_file_and_reports_it(home: Home) -> None:
    home.put([])
    result = home.done("add", "openai", "--key-stdin", typed=KEY)
    assert "not a JSON object" in result.stderr
    assert home.file().with_name("auth-profiles.json.corrupt").read_text() == "[]"


def test_add_for_an_agent_uses_its_own_file(home: Home) -> None:
    home.configure({"agents": {"list": [{"id": "main"}, {"id": "ops"}]}})
    home.done("add", "openai", "--key-stdin", "--agent", "ops", typed=KEY)
    assert not home.file().exists()
    assert "openai:default" in home.stored("ops")["profiles"]
    error = home.refused("add", "openai", "--key-stdin", "--agent", "opps", typed=KEY)
    assert isinstance(error, UnknownNameError)


def test_order_is_set_shown_and_cleared(home: Home) -> None:
    for name in ("a", "b"):
        home.done("add", "openai", "--key-stdin", "--profile-id", f"openai:{name}", typed=KEY)
    assert "No order" in home.done("order", "get", "--provider", "openai").stdout
    home.done("order", "set", "--provider", "openai", "openai:b", "openai:a")
    assert home.told("order", "get", "--provider", "OpenAI") == {
        "agentId": "main",
        "provider": "openai",
        "order": ["openai:b", "openai:a"],
    }
    error = home.refused("order", "set", "--provider", "openai", "openai:c")
    assert isinstance(error, UnknownNameError)
    assert home.stored()["order"] == {"openai": ["openai:b", "openai:a"]}
    assert "no order" in home.done("order", "clear", "--provider", "openai").stdout
    assert "order" not in home.stored()
    home.configure({"auth": {"order": {"openai": ["openai:a"]}}})
    assert "set elsewhere" in home.done("order", "clear", "--provider", "openai").stdout


def test_status_shows_state_of_each_credential_without_secrets(home: Home) -> None:
    far = 4_102_444_800_000
    login = {"type": "oauth", "provider": "acme", "access": KEY, "refresh": KEY, "expires": far}
    home.put(
        {
            "version": 1,
            "profiles": {
                "openai:default": {"type": "api_key", "provider": "openai", "key": KEY},
                "acme:me": login,
                "odd\x1b[2J": {"type": "token", "provider": "x"},
            },
            "lastGood": {"openai": "openai:default"},
            "usageStats": {
                "openai:default": {
                    "lastUsed": 1_700_000_000_000,
                    "disabledReason": "billing",
                    "models": {"gpt\x1b": {"errorCount": 1}},
                },
                "acme:me": {"lastUsed": 8_640_000_000_000_000},
            },
        }
    )
    home.env["GROQ_API_KEY"] = KEY
    told = home.told("status")
    rows = {row["profileId"]: row for row in told["profiles"]}
    assert rows["openai:default"]["shown"] == "sk-…cdef"
    assert rows["openai:default"]["lastGood"] is True
    assert rows["openai:default"]["source"].startswith("~/.openclaw")
    assert rows["acme:me"]["expires"] == far
    assert rows["env:GROQ_API_KEY"]["source"] == "GROQ_API_KEY"
    shown = home.done("status").stdout
    assert "\x1b" not in shown
    for words in ("acme:me  oauth", "runs out 2100-01-01", "worked last", "it holds no key"):
        assert words in shown, words


def test_status_without_credentials_explains_how_to_start(home: Home) -> None:
    assert "homarus models auth add" in home.done("status").stdout
    assert home.told("status") == {"agentId": "main", "profiles": [], "warnings": []}
    assert not home.file().exists()


def test_status_shows_a_cooldown_with_its_end(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(models_auth, "SystemClock", lambda: clock)
    until = clock.now_ms() + 60_000
    stats = {"cooldownUntil": until, "models": {"gpt": {"cooldownUntil": until + 60_000}}}
    entry = {"type": "api_key", "provider": "openai", "key": KEY}
    home.put({"version": 1, "profiles": {"a": entry}, "usageStats": {"a": stats}})
    (row,) = home.told("status")["profiles"]
    assert row["restsUntil"] == until
    assert row["restsUntilByModel"] == {"gpt": until + 60_000}
    shown = home.done("status").stdout
    assert "rests until" in shown and "rests for gpt until" in shown


# Logging in


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    yield from authlib_server()


class Browser:
    """Opens the address it is given and goes where it leads."""

    def __init__(self) -> None:
        self.walk: threading.Thread | None = None
        self.seen: list[str] = []

    def open(self, url: str) -> bool:
        self.seen.append(url)
        self.walk = threading.Thread(target=self._go, args=(url,))
        self.walk.start()
        return True

    def _go(self, url: str) -> None:
        with httpx2.Client(follow_redirects=True, trust_env=False) as web:
            web.get(url)


@pytest.fixture
def browser(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    made = Browser()
    monkeypatch.setattr(webbrowser, "open", made.open)
    home.env["DISPLAY"] = ":0"
    yield made
    if made.walk:
        made.walk.join(30)


def addresses(server: str) -> list[str]:
    words = ["--client-id", "cli", "--token-url", f"{server}/token"]
    words += ["--authorize-url", f"{server}/authorize", "--device-url", f"{server}/device"]
    return [*words, "--scope", "a", "--scope", "b"]


def test_login_in_a_browser_stores_a_renewable_profile(
    home: Home, server: str, browser: Browser
) -> None:
    result = home.done("login", "acme", *addresses(server))
    entry = home.stored()["profiles"]["acme:default"]
    assert (entry["type"], entry["clientId"]) == ("oauth", "cli")
    assert entry["tokenUrl"] == f"{server}/token"
    assert entry["access"] and entry["refresh"]
    assert entry["access"] not in result.output and entry["refresh"] not in result.output
    assert "scope=a+b" in browser.seen[0]
    assert browser.seen[0] in result.stderr, "who has no browser here sees the address"


def test_login_uses_addresses_of_the_configuration(
    home: Home, server: str, browser: Browser
) -> None:
    client = {
        "clientId": "cli",
        "tokenUrl": f"{server}/token",
        "authorizeUrl": f"{server}/authorize",
        "scopes": ["models"],
    }
    home.configure({"auth": {"clients": {"acme": client}}})
    home.done("login", "acme", "--profile-id", "acme:work")
    assert list(home.stored()["profiles"]) == ["acme:work"]


def test_login_by_device_code_prints_it_and_waits(
    home: Home, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[DeviceCode] = []
    show = models_auth._show_code

    def read(code: DeviceCode) -> None:
        shown.append(code)
        show(code)
        form = {"user_code": code.code, "allow": "yes"}
        httpx2.post(f"{server}/approve", data=form, trust_env=False)

    monkeypatch.setattr(models_auth, "_show_code", read)
    monkeypatch.setattr(models_auth, "SystemClock", lambda: FakeClock(patient=False))
    result = home.done("login", "acme", "--device", *addresses(server))
    assert shown[0].code in result.stderr and "https://example.com/device" in result.stderr
    assert home.stored()["profiles"]["acme:default"]["refresh"]


def test_login_without_redirect_reads_the_pasted_address(home: Home, server: str) -> None:
    error = home.refused("login", "acme", "--paste", *addresses(server), typed="c#wrong\n")
    assert "not the end of this login" in error.message
    error = home.refused("login", "acme", "--paste", *addresses(server))
    assert "nothing was pasted" in error.message


def test_login_without_client_reports_what_is_missing(home: Home) -> None:
    assert "auth.clients.acme" in home.refused("login", "acme").fix
    error = home.refused("login", "acme", "--client-id", "x")
    assert "authorizeUrl" in error.message
    error = home.refused("login", "acme", "--client-id", "x", "--client-secret-env", "NOT_SET")
    assert "NOT_SET is not set" in error.message
    plain = ["--authorize-url", "http://example.com/a", "--token-url", "https://example.com/t"]
    error = home.refused("login", "acme", "--client-id", "x", *plain)
    assert "not https" in error.message


def test_status_and_remove_of_a_profile_in_openclaws_database(home: Home) -> None:
    profile = {"type": "api_key", "provider": "openai", "key": KEY}
    put_profiles(home.path / ".openclaw", {"openai:manual": profile})
    home.configure(
        {"auth": {"profiles": {"openai:manual": {"provider": "openai", "mode": "api_key"}}}}
    )
    config = (home.path / ".openclaw/openclaw.json").read_bytes()
    (row,) = home.told("status")["profiles"]
    assert row["inherited"] and row["source"] == "~/.openclaw/state/openclaw.sqlite"
    assert "openclaw.sqlite (OpenClaw, read only)" in home.done("status").stdout
    removed = home.done("remove", "openai:manual", "--yes").stdout
    assert "not used here from now on. OpenClaw still has it" in removed
    assert home.told("status")["profiles"] == []
    assert (home.path / ".openclaw/openclaw.json").read_bytes() == config, "OpenClaw uses it"
    home.refused("remove", "openai:manual", "--yes")
    home.done("add", "openai", "--profile-id", "openai:manual", "--key-stdin", typed=f"{KEY}\n")
    (row,) = home.told("status")["profiles"]
    assert not row["inherited"] and row["source"].endswith("auth-profiles.json")
