"""TLS of the gateway: the certificate of the config or a self-made one, and its renewal.

Named files are read and never written. A changed file, and a self-made certificate that ends soon
or lacks an address of this machine, is taken up while the gateway runs, for new connections.
Imported only when `gateway.tls.enabled` is set.
"""

import logging
import os
import socket
import ssl
import stat
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from homarus.config.gateway_schema import TlsConfig
from homarus.config.paths import Paths, expand
from homarus.core.clock import Clock
from homarus.core.errors import ConfigError, HomarusError
from homarus.core.fast_dataclass import dataclass
from homarus.gateway.origin_policy import is_loopback
from homarus.gateway.tls_certificate import CertificateFiles, ensure_certificate
from homarus.net.pinned_tls import certificate_fingerprint, format_fingerprint

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

log = logging.getLogger(__name__)

REFRESH_S: Final = 60.0
_MAX_BYTES: Final = 1 << 20
_WARN_DAYS: Final = 14
_SELF_MADE_FIX: Final = "or remove certPath and keyPath, and the gateway makes one itself"


@dataclass(frozen=True, slots=True)
class CertificateSource:
    """The files of the certificate, and whether the gateway makes and renews them."""

    files: CertificateFiles
    is_generated: bool
    ca: Path | None = None

    @classmethod
    def from_config(cls, settings: TlsConfig, paths: Paths) -> "CertificateSource":
        """Return the files that the config names; raises ConfigError when it names half of them."""
        cert, key = (settings.cert_path or "").strip(), (settings.key_path or "").strip()
        if bool(cert) != bool(key):
            missing = "keyPath" if cert else "certPath"
            raise ConfigError(
                "a certificate and its key belong together, and one of them is not named",
                key=f"gateway.tls.{missing}",
                fix=f"set gateway.tls.{missing} too, {_SELF_MADE_FIX}",
            )
        ca = (settings.ca_path or "").strip()
        files = (
            CertificateFiles(expand(cert, paths.home), expand(key, paths.home))
            if cert
            else CertificateFiles.of_state(paths.state)
        )
        generated = not cert and settings.auto_generate
        if not (cert or generated or files.cert.exists()):
            raise ConfigError(
                "no certificate is named, and the gateway may not make one",
                key="gateway.tls.autoGenerate",
                fix="set gateway.tls.certPath and keyPath, or autoGenerate to true",
            )
        return cls(files, generated, expand(ca, paths.home) if ca else None)


def load_fingerprint(settings: TlsConfig, paths: Paths) -> str:
    """Return the fingerprint of the gateway's certificate; empty when it cannot be read."""
    try:
        source = CertificateSource.from_config(settings, paths)
        pem = _read(source.files.cert, "gateway.tls.certPath").decode("ascii")
        return certificate_fingerprint(ssl.PEM_cert_to_DER_cert(_first_certificate(pem)))
    except (HomarusError, ValueError):
        return ""


class GatewayTls:
    """The certificate in use and the contexts of new connections.

    `get_hosts` returns the addresses under which this gateway is reached.
    """

    def __init__(
        self,
        settings: TlsConfig,
        paths: Paths,
        clock: Clock,
        get_hosts: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._source = CertificateSource.from_config(settings, paths)
        self._clock, self._get_hosts = clock, get_hosts
        self._stamp: tuple[tuple[int, int], ...] = ()
        self.fingerprint = ""
        self._load()

    @property
    def is_self_made(self) -> bool:
        return self._source.is_generated

    def context_for(self, peer: str) -> ssl.SSLContext:
        """Return the context for a client: with `caPath`, one from elsewhere needs a certificate.

        A program of this machine proves by the token that it may connect.
        """
        return self._local_context if is_loopback(peer) else self._context

    def refresh(self) -> bool:
        """Take up changed files, and renew a self-made certificate; return if it is another one.

        What cannot be used is logged, and the certificate in use stays.
        """
        before = self.fingerprint
        try:
            if self._source.is_generated:
                self._ensure()
            if self._find_stamp() != self._stamp:
                self._load()
        except HomarusError as exc:
            log.warning("the certificate in use is kept: %s", exc)
            self._stamp = self._find_stamp()  # reported once
        return self.fingerprint != before

    def _ensure(self) -> None:
        own = socket.gethostname()
        names = ("localhost", own, f"{own.partition('.')[0]}.local", "127.0.0.1", "::1")
        ensure_certificate(self._source.files, [*names, *self._get_hosts()], self._clock.now_ms())

    def _load(self) -> None:
        if self._source.is_generated:
            self._ensure()
        self._stamp = self._find_stamp()
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        certificate = check_certificate(self._source, now)
        self._local_context, self._context = _make_contexts(self._source)
        if not self._source.is_generated:
            _warn_of_problems(self._source.files, certificate.not_valid_after_utc, now)
        self.fingerprint = certificate_fingerprint(_der(certificate))

    def _find_stamp(self) -> tuple[tuple[int, int], ...]:
        files = (self._source.files.cert, self._source.files.key, self._source.ca)
        return tuple(_stamp(each) for each in files if each is not None)


def check_certificate(source: CertificateSource, now: datetime) -> "Certificate":
    """Return the certificate of the files, if it can be served now; raises ConfigError."""
    from cryptography import x509

    file = source.files.cert
    try:
        certificate = x509.load_pem_x509_certificates(_read(file, "gateway.tls.certPath"))[0]
    except (ValueError, IndexError):
        raise ConfigError(
            f"{file} holds no certificate",
            key="gateway.tls.certPath",
            fix=f"name a PEM file that begins with the gateway's certificate, {_SELF_MADE_FIX}",
        ) from None
    _read(source.files.key, "gateway.tls.keyPath")
    if now >= certificate.not_valid_after_utc:
        raise ConfigError(
            f"the certificate in {file} has expired on {certificate.not_valid_after_utc:%Y-%m-%d}",
            key="gateway.tls.certPath",
            fix=f"renew it, {_SELF_MADE_FIX}",
        )
    if now < certificate.not_valid_before_utc:
        raise ConfigError(
            f"the certificate in {file} is not valid before"
            f" {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC",
            key="gateway.tls.certPath",
            fix=f"check the clock of this machine; {_SELF_MADE_FIX}",
        )
    return certificate


def check_tls(settings: TlsConfig, paths: Paths, clock: Clock) -> None:
    """Raise ConfigError when a gateway could not serve the files that this config names."""
    source = CertificateSource.from_config(settings, paths)
    if not source.is_generated:
        check_certificate(source, datetime.fromtimestamp(clock.now_ms() / 1000, UTC))
        _make_contexts(source)


def _warn_of_problems(files: CertificateFiles, ends: datetime, now: datetime) -> None:
    if ends - now < timedelta(days=_WARN_DAYS):
        log.warning("the certificate in %s expires on %s", files.cert, ends.strftime("%Y-%m-%d"))
    if files.key.stat().st_mode & 0o007:
        log.warning("every user can read the key %s: chmod 600 %s", files.key, files.key)


def _make_contexts(source: CertificateSource) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts for programs of this machine and for clients from elsewhere."""
    local = _make_context(source)
    if source.ca is None:
        return local, local
    required = _make_context(source)
    _require_client_certificates(required, source.ca)
    return local, required


def _make_context(source: CertificateSource) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    cert, key = source.files.cert, source.files.key
    try:
        # OpenSSL would ask for the password of an encrypted key at the terminal.
        context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as exc:
        reason = str(exc).lower()
        is_other = "mismatch" in reason
        raise ConfigError(
            f"the key in {key} does not belong to the certificate in {cert}"
            if is_other
            else f"{key} holds no key that can be used; it must not have a password",
            key="gateway.tls.keyPath",
            fix=f"name the key that the certificate was made with, {_SELF_MADE_FIX}",
        ) from None
    return context


def _require_client_certificates(context: ssl.SSLContext, authority: Path) -> None:
    pem = _read(authority, "gateway.tls.caPath").decode("ascii", "replace")
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        raise ConfigError(
            f"{authority} holds no certificate of an authority",
            key="gateway.tls.caPath",
            fix="name a PEM file of the authority that signs the clients' certificates",
        ) from None
    context.verify_mode = ssl.CERT_REQUIRED


def _read(path: Path, key: str) -> bytes:
    """Return a file's content; raises ConfigError, and never waits for a pipe."""
    fix = f"check the path and who may read it; {_SELF_MADE_FIX}"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{path} is no file", key=key, fix=fix)
            data = file.read(_MAX_BYTES + 1)
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be read: {exc.strerror or exc}", key=key, fix=fix
        ) from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path} is larger than 1 MB", key=key, fix=fix)
    return data


def _first_certificate(pem: str) -> str:
    begin = pem.index("-----BEGIN CERTIFICATE-----")
    end = "-----END CERTIFICATE-----"
    return pem[begin : pem.index(end, begin) + len(end)] + "\n"


def _der(certificate: "Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def describe_certificate(fingerprint: str, *, is_self_made: bool) -> list[str]:
    """Return lines for people about the certificate of a gateway that is ready."""
    lines = [f"Its certificate has the SHA-256 fingerprint {format_fingerprint(fingerprint)}."]
    if is_self_made:
        lines.append(
            "It is self-made: a browser asks once whether to trust it, and shows the fingerprint."
        )
    return lines
