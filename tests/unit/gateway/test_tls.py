"""The gateway's certificate: what is served, when it is made again, and what refuses a start."""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from homarus.config.gateway_schema import TlsConfig
from homarus.config.paths import Paths
from homarus.core.errors import ConfigError, StoreError
from homarus.gateway.serve import _renew_certificate
from homarus.gateway.tls import (
    REFRESH_S,
    GatewayTls,
    check_tls,
    describe_certificate,
    load_fingerprint,
)
from homarus.gateway.tls_certificate import (
    MAX_NAMES,
    RENEW_DAYS,
    VALID_DAYS,
    CertificateFiles,
    ensure_certificate,
)
from homarus.testing.clock import START_MS, FakeClock
from tests.unit.gateway.tls_files import write_certificate
from tests.waiting import until

DAY_S = 86_400
HOSTS = ("localhost", "127.0.0.1", "192.0.2.7")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.find({"HOME": str(tmp_path), "OPENCLAW_STATE_DIR": str(tmp_path / "state")})


def settings(**tls: Any) -> TlsConfig:
    return TlsConfig.model_validate({"enabled": True, **tls})


def read(files: CertificateFiles) -> tuple[bytes, bytes, x509.Certificate]:
    cert = files.cert.read_bytes()
    return cert, files.key.read_bytes(), x509.load_pem_x509_certificate(cert)


def names(certificate: x509.Certificate) -> set[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {
        *found.get_values_for_type(x509.DNSName),
        *map(str, found.get_values_for_type(x509.IPAddress)),
    }


def test_self_made_certificate_has_names_and_private_key_file(tmp_path: Path) -> None:
    files = CertificateFiles.of_state(tmp_path)
    ensure_certificate(files, [*HOSTS, "bad name", "", "host_x", "ä.local"], START_MS)
    _, _, certificate = read(files)
    assert names(certificate) == set(HOSTS)
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(files.key.parent.stat().st_mode) == 0o700
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert lifetime.days <= 825
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert not constraints.value.ca


def test_self_made_certificate_is_kept_and_renewed_with_its_key(tmp_path: Path) -> None:
    files, day_ms = CertificateFiles.of_state(tmp_path), DAY_S * 1000
    ensure_certificate(files, HOSTS, START_MS)
    first = read(files)
    ensure_certificate(files, HOSTS[:2], START_MS + 300 * day_ms)
    assert read(files)[:2] == first[:2]  # an address that is away for a time changes nothing
    ensure_certificate(files, [*HOSTS[:2], "10.0.0.5"], START_MS)
    moved = read(files)
    assert moved[0] != first[0] and moved[1] == first[1]
    assert names(moved[2]) == {*HOSTS, "10.0.0.5"}
    ensure_certificate(files, HOSTS, START_MS)
    assert read(files)[:2] == moved[:2]  # back in the first network
    ensure_certificate(files, HOSTS, START_MS + (VALID_DAYS - RENEW_DAYS) * day_ms)
    renewed = read(files)
    assert renewed[0] != moved[0] and renewed[1] == first[1]
    ensure_certificate(files, HOSTS, START_MS - 10 * day_ms)  # a clock that was set back
    assert read(files)[0] != renewed[0]


def test_self_made_certificate_names_are_bounded(tmp_path: Path) -> None:
    files = CertificateFiles.of_state(tmp_path)
    for number in range(MAX_NAMES + 5):
        ensure_certificate(files, ["localhost", f"10.0.0.{number}"], START_MS)
    found = names(read(files)[2])
    assert len(found) == MAX_NAMES and {"localhost", f"10.0.0.{MAX_NAMES + 4}"} <= found


def test_key_that_others_can_read_or_garbage_is_replaced(tmp_path: Path) -> None:
    files = CertificateFiles.of_state(tmp_path)
    ensure_certificate(files, HOSTS, START_MS)
    first = read(files)
    files.key.chmod(0o644)
    ensure_certificate(files, HOSTS, START_MS)
    second = read(files)
    assert second[1] != first[1] and stat.S_IMODE(files.key.stat().st_mode) == 0o600
    files.key.write_text("garbage")
    ensure_certificate(files, HOSTS, START_MS)
    assert read(files)[1] not in {first[1], second[1], b"garbage"}
    files.cert.write_text("garbage")
    ensure_certificate(files, HOSTS, START_MS)
    assert names(read(files)[2]) == set(HOSTS)


def test_certificate_of_another_program_is_used_unchanged(paths: Paths) -> None:
    files = CertificateFiles.of_state(paths.state)
    files.cert.parent.mkdir(parents=True)
    cert, key = write_certificate(files.cert.parent, "openclaw-gateway", now_ms=START_MS)
    cert.rename(files.cert)
    key.rename(files.key)
    before = files.cert.read_bytes()
    tls = GatewayTls(settings(), paths, FakeClock(), lambda: HOSTS)
    assert files.cert.read_bytes() == before
    assert load_fingerprint(settings(), paths) == tls.fingerprint
    assert GatewayTls(settings(autoGenerate=False), paths, FakeClock()).fingerprint


def test_unwritable_state_directory_is_reported(paths: Paths) -> None:
    paths.state.mkdir()
    (paths.state / "gateway").write_text("a file")
    with pytest.raises(StoreError, match=r"gateway/tls cannot be written"):
        GatewayTls(settings(), paths, FakeClock())


Make = Callable[[Path], dict[str, Any]]


def named(folder: Path, name: str = "own", **options: Any) -> dict[str, Any]:
    cert, key = write_certificate(folder, name, now_ms=START_MS, **options)
    return {"certPath": str(cert), "keyPath": str(key)}


def mixed(folder: Path) -> dict[str, Any]:
    return named(folder) | {"keyPath": named(folder, "other")["keyPath"]}


def with_file(key: str, content: bytes) -> Make:
    def make(folder: Path) -> dict[str, Any]:
        file = folder / "broken"
        file.write_bytes(content)
        return named(folder) | {key: str(file)}

    return make


def with_pipe(folder: Path) -> dict[str, Any]:
    os.mkfifo(folder / "pipe")
    return named(folder) | {"certPath": str(folder / "pipe")}


@pytest.mark.parametrize(
    ("make", "key", "text"),
    [
        (lambda _: {"certPath": "/no/c", "keyPath": "/no/k"}, "certPath", r"/no/c cannot be read"),
        (lambda f: named(f) | {"keyPath": "/no/k"}, "keyPath", r"/no/k cannot be read: No such"),
        (lambda f: {"certPath": named(f)["certPath"]}, "keyPath", "belong together"),
        (lambda f: {"keyPath": named(f)["keyPath"]}, "certPath", "belong together"),
        (lambda f: named(f) | {"certPath": str(f)}, "certPath", "Is a directory"),
        (with_pipe, "certPath", "is no file"),
        (lambda f: named(f, days=(-90, -1)), "certPath", r"own\.pem has expired on 20\d\d-"),
        (lambda f: named(f, days=(1, 90)), "certPath", "is not valid before 20"),
        (mixed, "keyPath", r"other\.key does not belong to the certificate in .*own\.pem"),
        (lambda f: named(f, password=b"secret"), "keyPath", "must not have a password"),
        (with_file("certPath", b"nothing"), "certPath", "holds no certificate"),
        (with_file("certPath", b""), "certPath", "holds no certificate"),
        (with_file("certPath", b"x" * 1_100_000), "certPath", "larger than 1 MB"),
        (with_file("keyPath", b"nothing"), "keyPath", "holds no key that can be used"),
        (with_file("caPath", b"nothing"), "caPath", "holds no certificate of an authority"),
        (lambda f: named(f) | {"caPath": "/no/a"}, "caPath", "/no/a cannot be read"),
        (lambda _: {"autoGenerate": False}, "autoGenerate", "may not make one"),
    ],
)
def test_unusable_certificate_refuses_the_start_by_name(
    make: Make, key: str, text: str, tmp_path: Path, paths: Paths
) -> None:
    found = settings(**make(tmp_path))
    for start in (check_tls, GatewayTls):
        with pytest.raises(ConfigError, match=text) as refused:
            start(found, paths, FakeClock())
        assert refused.value.key == f"gateway.tls.{key}" and refused.value.fix
    assert not (paths.state / "gateway").exists()


def test_changed_certificate_file_is_taken_up_while_running(
    tmp_path: Path, paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    tls = GatewayTls(settings(**named(tmp_path)), paths, clock)
    first, context = tls.fingerprint, tls.context_for("192.0.2.1")
    assert not tls.is_self_made and not tls.refresh()
    named(tmp_path)
    assert tls.refresh() and tls.fingerprint != first
    assert tls.context_for("192.0.2.1") is not context
    second = tls.fingerprint
    (tmp_path / "own.key").write_text("broken")
    assert not tls.refresh() and tls.fingerprint == second
    assert not tls.refresh()
    assert caplog.text.count("the certificate in use is kept") == 1


def test_new_address_of_the_machine_renews_the_certificate(paths: Paths) -> None:
    hosts = ["192.0.2.7"]
    tls = GatewayTls(settings(), paths, FakeClock(), lambda: hosts)
    first = tls.fingerprint
    assert tls.is_self_made and not tls.refresh()
    hosts.append("192.0.2.8")
    assert tls.refresh() and tls.fingerprint != first
    assert load_fingerprint(settings(), paths) == tls.fingerprint
    again = GatewayTls(settings(), paths, FakeClock(), lambda: hosts)
    assert again.fingerprint == tls.fingerprint


def test_authority_is_required_of_clients_from_elsewhere(tmp_path: Path, paths: Paths) -> None:
    authority, _ = write_certificate(tmp_path, "authority", now_ms=START_MS)
    tls = GatewayTls(settings(**named(tmp_path), caPath=str(authority)), paths, FakeClock())
    assert tls.context_for("192.0.2.1").verify_mode.name == "CERT_REQUIRED"
    assert tls.context_for("::ffff:127.0.0.1").verify_mode.name == "CERT_NONE"
    assert tls.context_for("").verify_mode.name == "CERT_REQUIRED"


def test_problems_of_named_files_are_logged(
    tmp_path: Path, paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    files = named(tmp_path, days=(-80, 3))
    Path(files["keyPath"]).chmod(0o644)
    GatewayTls(settings(**files), paths, FakeClock())
    assert "expires on" in caplog.text and "every user can read the key" in caplog.text


def test_fingerprint_of_missing_certificate_is_empty(paths: Paths) -> None:
    assert load_fingerprint(settings(), paths) == ""
    assert load_fingerprint(settings(certPath="/no/c"), paths) == ""
    lines = describe_certificate("ab" * 32, is_self_made=True)
    assert "AB:AB:AB" in lines[0] and "trust" in lines[1]


async def test_renewed_certificate_is_published_while_the_gateway_runs(
    paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    clock, hosts, published = FakeClock(), ["192.0.2.7"], list[str]()
    tls = GatewayTls(settings(), paths, clock, lambda: hosts)
    async with asyncio.TaskGroup() as group:
        renewing = _renew_certificate(tls, lambda: published.append(tls.fingerprint), clock)
        task = group.create_task(renewing)
        await until(lambda: clock.sleepers)
        hosts.append("192.0.2.8")
        await clock.advance(REFRESH_S)
        await until(lambda: published)
        task.cancel()
    assert published == [load_fingerprint(settings(), paths)]
    assert "a new certificate" in caplog.text
