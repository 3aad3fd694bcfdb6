"""The gateway's own certificate: made on request, kept while it is good, renewed before it ends.

It is signed by its own key. A renewal keeps the key and the addresses of earlier networks, so that
a machine that moves between networks keeps its fingerprint. Files, in the state directory:
`gateway/tls/gateway-cert.pem` and `gateway/tls/gateway-key.pem`.
"""

import errno
import os
import re
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from homarus.core.atomic_file import write_atomic
from homarus.core.errors import DiskFullError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.private_files import make_private_dir

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName

COMMON_NAME: Final = "homarus-gateway"
VALID_DAYS: Final = 820  # iOS accepts no more than 825
RENEW_DAYS: Final = 30
MAX_NAMES: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where a certificate and its key are."""

    cert: Path
    key: Path

    @classmethod
    def of_state(cls, state: Path) -> "CertificateFiles":
        """Return the files of the certificate that the gateway makes itself."""
        folder = state / "gateway" / "tls"
        return cls(folder / "gateway-cert.pem", folder / "gateway-key.pem")


def ensure_certificate(files: CertificateFiles, hosts: Collection[str], now_ms: int) -> None:
    """Make the certificate, or renew it when it ends soon or lacks one of these names.

    A certificate that another program put there is left as it is. Raises StoreError.
    """
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    wanted = [each for each in dict.fromkeys(hosts) if _is_name(each)]
    before, key = _read_certificate(files.cert), _read_key(files.key)
    if before and not _is_self_made(before):
        return
    names = _names(before) if before else ()
    is_sound = before is not None and key is not None and _is_pair(before, key)
    if is_sound and before and _is_valid(before, now) and set(wanted) <= set(names):
        return
    earlier = [each for each in names if each not in wanted] if is_sound else []
    _write(files, key, [*wanted, *earlier][:MAX_NAMES], now)


def _write(
    files: CertificateFiles,
    key: "EllipticCurvePrivateKey | None",
    names: list[str],
    now: datetime,
) -> None:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        make_private_dir(files.key.parent)
        if key is None:
            key = ec.generate_private_key(ec.SECP256R1())
            plain = form.NoEncryption()
            pem = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, plain)
            write_atomic(files.key, pem)
        write_atomic(files.cert, _sign(key, names, now).public_bytes(form.Encoding.PEM))
    except OSError as exc:
        kind = DiskFullError if exc.errno in {errno.ENOSPC, errno.EDQUOT} else StoreError
        raise kind(
            f"the certificate in {files.cert.parent} cannot be written: {exc.strerror or exc}",
            fix="check who owns the folder and the room on its disk",
        ) from exc


def _sign(key: "EllipticCurvePrivateKey", names: Iterable[str], now: datetime) -> "Certificate":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    title = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, COMMON_NAME)])
    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=False, crl_sign=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(title)
        .issuer_name(title)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks of phones differ
        .not_valid_after(now + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(map(_general_name, names)), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )


def _general_name(text: str) -> "GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _is_name(text: str) -> bool:
    """Return whether a text can be a name of a certificate: an address or a host name."""
    try:
        ip_address(text)
    except ValueError:
        return bool(_NAME.fullmatch(text))
    return True


def _names(certificate: "Certificate") -> tuple[str, ...]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = found.get_values_for_type(x509.IPAddress)
    return (*found.get_values_for_type(x509.DNSName), *map(str, addresses))


def _is_self_made(certificate: "Certificate") -> bool:
    from cryptography.x509.oid import NameOID

    subjects = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return certificate.issuer == certificate.subject and COMMON_NAME in {s.value for s in subjects}


def _is_valid(certificate: "Certificate", now: datetime) -> bool:
    ends = certificate.not_valid_after_utc - timedelta(days=RENEW_DAYS)
    return certificate.not_valid_before_utc <= now < ends


def _is_pair(certificate: "Certificate", key: "EllipticCurvePrivateKey") -> bool:
    return certificate.public_key() == key.public_key()


def _read_certificate(path: Path) -> "Certificate | None":
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return None


def _read_key(path: Path) -> "EllipticCurvePrivateKey | None":
    """Return the key; None when there is none that is ours and that only we can read."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        found = path.lstat()
        if found.st_mode & 0o077 or found.st_uid != os.geteuid():
            return None
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, EllipticCurvePrivateKey) else None
