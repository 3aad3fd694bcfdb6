"""Signatures of webhooks, and replays. Recorded requests are in tests/attacks."""

import base64
import hashlib
import hmac
import subprocess
import sys
from collections.abc import Callable
from random import Random
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels import signatures as s

SECRET, NOW_S = "whsec", 1_760_000_000
OWN = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
TIMES = ["NaN", "1e400", "inf", "-1", "", f" {NOW_S}", f"{NOW_S}.0", f"{NOW_S}\n", f"0x{NOW_S:x}"]
TIMES += ["١٧٦٠٠٠٠٠٠٠", "9" * 5_000]
KEY = OWN.public_key().public_bytes_raw()
PAIRS = st.lists(
    st.tuples(st.text("abXY", min_size=1, max_size=4), st.text(max_size=5)), max_size=4
)


def sign(signed: bytes, algorithm: str = "sha256") -> bytes:
    return hmac.new(SECRET.encode(), signed, algorithm).digest()


def github(body: bytes) -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + sign(body).hex()}


def slack(body: bytes, at: str = str(NOW_S)) -> dict[str, str]:
    signature = "v0=" + sign(b"v0:" + at.encode() + b":" + body).hex()
    return {"x-slack-request-timestamp": at, "x-slack-signature": signature}


def line(body: bytes) -> dict[str, str]:
    return {"x-line-signature": base64.b64encode(sign(body)).decode()}


def telnyx(body: bytes, at: str = str(NOW_S)) -> dict[str, str]:
    signature = base64.b64encode(OWN.sign(at.encode() + b"|" + body)).decode()
    return {"telnyx-timestamp": at, "telnyx-signature-ed25519": signature}


def discord(body: bytes, at: str = str(NOW_S)) -> dict[str, str]:
    signature = OWN.sign(at.encode() + body).hex()
    return {"x-signature-timestamp": at, "x-signature-ed25519": signature}


CHECKS: dict[str, tuple[Callable[..., dict[str, str]], Callable[..., str | None]]] = {
    "github": (github, lambda h, b, k=SECRET: s.verify_github(h, b, k)),
    "slack": (slack, lambda h, b, k=SECRET: s.verify_slack(h, b, k, NOW_S)),
    "line": (line, lambda h, b, k=SECRET: s.verify_line(h, b, k)),
    "telnyx": (telnyx, lambda h, b, k=KEY: s.verify_telnyx(h, b, k, NOW_S)),
    "discord": (discord, lambda h, b, k=KEY: s.verify_discord(h, b, k, NOW_S)),
}


@pytest.mark.parametrize("scheme", CHECKS)
@given(body=st.binary(max_size=50), other=st.binary(max_size=50))
def test_signature_is_valid_for_its_body_only(scheme: str, body: bytes, other: bytes) -> None:
    make, check = CHECKS[scheme]
    mark = check(make(body), body)
    assert mark and mark == check(make(body), body)
    if other != body:
        assert check(make(body), other) is None
        assert check(make(other), other) != mark


@pytest.mark.parametrize("scheme", CHECKS)
@given(data=st.data())
def test_signature_changed_or_forged_header_is_refused(scheme: str, data: st.DataObject) -> None:
    make, check = CHECKS[scheme]
    headers = make(b"{}")
    name = data.draw(st.sampled_from(sorted(headers)))
    made_up = data.draw(st.one_of(st.text(max_size=90), st.just(headers[name] + "\n")))
    if made_up != headers[name]:
        assert check({**headers, name: made_up}, b"{}") is None
    assert check({n: v for n, v in headers.items() if n != name}, b"{}") is None


@pytest.mark.parametrize("scheme", CHECKS)
def test_signature_without_secret_is_refused(scheme: str) -> None:
    make, check = CHECKS[scheme]
    empty = "" if scheme in {"github", "slack", "line"} else b""
    assert check(make(b"{}"), b"{}", empty) is None
    unsigned = hmac.new(b"", b"{}", "sha256")
    for headers in (
        {"x-hub-signature-256": "sha256=" + unsigned.hexdigest()},
        {"x-line-signature": base64.b64encode(unsigned.digest()).decode()},
    ):
        assert check(headers, b"{}", empty) is None


@pytest.mark.parametrize("scheme", ["slack", "telnyx", "discord"])
@pytest.mark.parametrize("at", [NOW_S - 301, NOW_S + 301, *TIMES])
def test_signature_signed_old_timestamp_is_refused(scheme: str, at: int | str) -> None:
    sign_at = {"slack": slack, "telnyx": telnyx, "discord": discord}[scheme]
    check = CHECKS[scheme][1]
    assert check(sign_at(b"{}", str(at)), b"{}") is None


@pytest.mark.parametrize("at_s", [NOW_S - 300, NOW_S, NOW_S + 300])
def test_signature_clock_skew_of_minutes_is_accepted(at_s: int) -> None:
    assert s.verify_slack(slack(b"{}", str(at_s)), b"{}", SECRET, NOW_S)


@given(form=PAIRS, order=st.randoms(use_true_random=False))
def test_signature_order_of_form_and_query_is_irrelevant(
    form: list[tuple[str, str]], order: Random
) -> None:
    url = "https://gw.example.com/voice"
    signed = url + "".join(name + value for name, value in sorted(set(form)))
    headers = {"x-twilio-signature": base64.b64encode(sign(signed.encode(), "sha1")).decode()}
    mixed = list(form)
    order.shuffle(mixed)
    mark = s.verify_twilio(headers, url, form, SECRET)
    assert mark and mark == s.verify_twilio(headers, url, mixed, SECRET)
    assert s.verify_twilio(headers, "https://evil.example/voice", form, SECRET) is None
    assert s.verify_twilio(headers, url, [*form, ("new", "1")], SECRET) is None
    assert s.verify_twilio(headers, url, form, "") is None


def plivo(signed: str, nonce: str = "n") -> dict[str, str]:
    signature = base64.b64encode(sign(f"{signed}.{nonce}".encode())).decode()
    return {"x-plivo-signature-v3": f"other,{signature}", "x-plivo-signature-v3-nonce": nonce}


@pytest.mark.parametrize(
    ("query", "form", "signed"),
    [
        ("", [], "https://gw.example.com/v"),
        ("?b=2&a=1", [], "https://gw.example.com/v?a=1&b=2"),
        ("", [("To", "2"), ("From", "1")], "https://gw.example.com/v?From1To2"),
        ("?b=2&a=1", [("To", "2"), ("From", "1")], "https://gw.example.com/v?a=1&b=2.From1To2"),
    ],
)
def test_signature_plivo_covers_url_form_and_nonce(
    query: str, form: list[tuple[str, str]], signed: str
) -> None:
    url = f"https://gw.example.com/v{query}"
    mark = s.verify_plivo(plivo(signed), url, form, SECRET)
    assert mark
    back = "?" + "&".join(reversed(query[1:].split("&"))) if query else ""
    again = s.verify_plivo(plivo(signed), f"https://gw.example.com/v{back}", form[::-1], SECRET)
    assert again == mark
    assert s.verify_plivo(plivo(signed, "m"), url, form, SECRET) != mark
    assert (
        s.verify_plivo({**plivo(signed), "x-plivo-signature-v3-nonce": "m"}, url, form, SECRET)
        is None
    )
    assert s.verify_plivo(plivo(signed, ""), url, form, SECRET) is None
    assert s.verify_plivo(plivo(signed), url, form, "") is None


def test_signature_invalid_url_is_refused_without_error() -> None:
    many = "https://gw.example.com/v?" + urlencode([("a", str(n)) for n in range(1_000)])
    for url in ("https://[::1/v", many, ""):
        assert s.verify_plivo(plivo(url), url, [], SECRET) is None or not url


def test_signature_invalid_key_is_refused_without_error() -> None:
    for key in (b"", b"short", b"\xff" * 32, b"\0" * 32, b"k" * 64):
        assert s.verify_discord(discord(b"{}"), b"{}", key, NOW_S) is None


@given(st.text(max_size=20))
def test_signature_telegram_secret_must_be_equal(given_: str) -> None:
    header = {"x-telegram-bot-api-secret-token": given_}
    assert s.verify_telegram(header, SECRET) is (given_ == SECRET)
    assert s.verify_telegram(header, "") is False
    assert s.verify_telegram({}, SECRET) is False


def test_replay_guard_mark_is_new_once_and_oldest_are_dropped() -> None:
    seen = s.ReplayGuard(max_marks=3)
    assert [seen.is_new(mark) for mark in "aabacb"] == [True, False, True, False, True, False]
    assert seen.is_new("d") and len(seen) == 3  # a was seen longest ago
    assert seen.is_new("a") and not seen.is_new("b")
    for number in range(1_000):
        seen.is_new(str(number))
    assert len(seen) == 3


def test_signature_of_one_scheme_fails_for_another() -> None:
    body = b"{}"
    assert s.verify_github(github(body), body, SECRET) != s.verify_line(line(body), body, SECRET)
    assert hashlib.sha256(body).hexdigest() != s.verify_github(github(body), body, SECRET)


def test_signature_key_library_is_imported_with_first_key() -> None:
    code = "import sys, homarus.channels.signatures; sys.exit('cryptography' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
