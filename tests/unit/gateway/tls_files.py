"""Certificates for tests: an authority, and certificates that it or they themselves sign."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_certificate(
    folder: Path,
    name: str = "own",
    *,
    now_ms: int,
    days: tuple[int, int] = (-1, 90),
    password: bytes = b"",
    by: str = "",
) -> tuple[Path, Path]:
    """Write `<name>.pem` and `<name>.key`, valid for these days around now; return both."""
    key = ec.generate_private_key(ec.SECP256R1())
    title = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer, issuer = key, title
    if by:
        loaded = serialization.load_pem_private_key((folder / f"{by}.key").read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, by)])
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    names = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(title)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=not by, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    protection = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
    )
    cert_path, key_path = folder / f"{name}.pem", folder / f"{name}.key"
    cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(pem)
    key_path.chmod(0o600)
    return cert_path, key_path
