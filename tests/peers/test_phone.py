"""A phone in the local network: the page over https with the self-made certificate, and clients.

The browser accepts the certificate by the hash of its key, as a person does who compares the
fingerprint; everything else is checked as always.
"""

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterator

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from homarus.gateway.machine_addresses import machine_addresses
from homarus.testing.model_server import ModelServer, Say
from tests.peers.browser import Page, chromium
from tests.peers.gateway import TOKEN, Running, new_home, running_gateway
from tests.peers.install import Original, bare_env, debian

pytestmark = [pytest.mark.peers, pytest.mark.timeout(1200)]  # the first run installs it

ENDED = "article[data-role=assistant]:not([data-live])"
SCREEN = {"width": 390, "height": 844, "deviceScaleFactor": 3, "mobile": True}


@pytest.fixture(scope="module")
def gateway(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run a gateway with TLS that listens on every address of this machine."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = new_home(tmp_path_factory.mktemp("tls"), kept, model)
    file = home.state / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    home.configure({**config, "gateway": {"bind": "lan", "tls": {"enabled": True}}})
    home.env["OPENCLAW_GATEWAY_TOKEN"] = TOKEN
    with running_gateway(home) as gateway:
        yield gateway


def key_hash(gateway: Running) -> str:
    """Return the hash of the certificate's public key, as Chromium takes it."""
    pem = (gateway.home.state / "gateway" / "tls" / "gateway-cert.pem").read_bytes()
    key = x509.load_pem_x509_certificate(pem).public_key()
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


@pytest.fixture
def phone(gateway: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Open the link of `homarus qr` in a browser of a phone's size."""
    debian(chromium="chromium")
    trusted = f"--ignore-certificate-errors-spki-list={key_hash(gateway)}"
    link = gateway.home.run("qr", "--json").json["url"]
    assert link.startswith(f"https://{machine_addresses()[0]}:{gateway.port}/#token=")
    with chromium(tmp_path_factory.mktemp("phone"), trusted, "--no-proxy-server") as browser:
        page = browser.open("about:blank")
        page.call("Emulation.setDeviceMetricsOverride", **SCREEN)
        page.call("Emulation.setTouchEmulationEnabled", enabled=True)
        page.go(link)
        yield page


def test_phone_pairs_over_https_and_chats(
    phone: Page, gateway: Running, model: ModelServer
) -> None:
    assert phone.run("window.isSecureContext && location.protocol === 'https:'")
    phone.wait_until("document.body.innerText.includes('approve')")
    assert TOKEN not in phone.run("location.href")
    assert "waits for your approval" in gateway.home.run("status").out
    done = gateway.home.run("devices", "approve", "--latest")
    assert done.status == 0 and "is paired" in done.out, done.err
    phone.wait_for_text("#state", "Connected")
    model.script([Say("Hello, phone.")])
    phone.type("#text", "Are you there?")
    phone.click("#send")
    assert phone.wait_for_text(ENDED, "Hello, phone.")
    assert all(url.startswith("wss://") for url in phone.sockets())
    assert phone.run("document.documentElement.scrollWidth") <= SCREEN["width"]
    assert phone.problems() == []


def test_openclaw_client_pins_our_certificate(
    original: Original, gateway: Running, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = json.loads((gateway.home.state / "gateway.json").read_text())
    folder = tmp_path_factory.mktemp("remote")
    env = {**bare_env(folder), "TERM": "dumb"}

    def ask(fingerprint: str) -> tuple[int, str]:
        remote = {"url": found["url"], "token": TOKEN, "tlsFingerprint": fingerprint}
        config = {"gateway": {"mode": "remote", "remote": remote}}
        (folder / ".openclaw").mkdir(exist_ok=True)
        (folder / ".openclaw" / "openclaw.json").write_text(json.dumps(config))
        done = original.run("gateway", "call", "health", "--json", env=env, cwd=folder)
        return done.status, done.out + done.err

    status, text = ask(found["tlsFingerprint"])
    assert status == 0 and '"ok": true' in text, text
    status, text = ask("ab" * 32)
    assert status != 0 and re.search("fingerprint", text), text


def test_openclaw_client_of_the_same_home_finds_our_certificate(
    original: Original, gateway: Running
) -> None:
    env = {**bare_env(gateway.home.path), "TERM": "dumb", "OPENCLAW_GATEWAY_TOKEN": TOKEN}
    env["OPENCLAW_GATEWAY_PORT"] = str(gateway.port)
    before = (gateway.home.state / "gateway" / "tls" / "gateway-cert.pem").read_bytes()
    done = original.run("health", "--json", env=env, cwd=gateway.home.path)
    assert done.status == 0 and done.json["ok"], done.err
    assert (gateway.home.state / "gateway" / "tls" / "gateway-cert.pem").read_bytes() == before
