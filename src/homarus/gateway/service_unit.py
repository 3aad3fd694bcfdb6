"""The systemd unit and the launchd agent that keep the gateway running. Pure.

These files contain no secrets: only the listed environment variables are copied, and the gateway
reads keys and tokens from its configuration and its `.env`.
"""

import plistlib
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Final

from homarus.config.paths import Paths
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.gateway.exit_status import WRONG_CONFIG

# Copied from the shell; no name that may hold a secret is among them.
COPIED_VARIABLES: Final = (
    "PATH", "LANG", "LC_ALL", "TZ", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "OPENCLAW_OAUTH_DIR", "OPENCLAW_GATEWAY_PORT",
)  # fmt: skip
STOP_S: Final = 30  # an active run has ten seconds to end, then the shutdown completes
_RESTART_S: Final = 5
_SH: Final = ("/bin/sh", "-c", 'exec "$0" "$@"')


@dataclass(frozen=True, slots=True)
class ServiceDefinition:
    """The service's command and environment."""

    python: str
    state: str
    environment: Mapping[str, str]
    profile: str = ""
    port: int | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        # -P: a file in the working directory must not shadow a module.
        port = ("--port", str(self.port)) if self.port is not None else ()
        return (self.python, "-P", "-m", "homarus", "gateway", "run", *port)


def unit_name(profile: str) -> str:
    """Return the name of the systemd unit."""
    return f"homarus-gateway-{profile}.service" if profile else "homarus-gateway.service"


def launchd_label(profile: str) -> str:
    """Return the launchd label."""
    return f"ai.homarus.gateway.{profile}" if profile else "ai.homarus.gateway"


def make_service(
    python: str, paths: Paths, env: Mapping[str, str], port: int | None = None
) -> ServiceDefinition:
    """Return the service for these paths, as this environment would run it."""
    copied = {name: env[name] for name in COPIED_VARIABLES if env.get(name, "").strip()}
    folders = [folder for folder in copied.pop("PATH", "").split(":") if folder.startswith("/")]
    if folders:
        copied["PATH"] = ":".join(dict.fromkeys(folders))
    if paths.profile:
        copied["OPENCLAW_PROFILE"] = paths.profile
    copied["OPENCLAW_STATE_DIR"] = str(paths.state)
    if env.get("OPENCLAW_CONFIG_PATH", "").strip():
        copied["OPENCLAW_CONFIG_PATH"] = str(paths.config)
    program = ServiceDefinition(python, str(paths.state), copied, paths.profile, port)
    for text in (*program.argv, *copied.values()):
        _check(text)
    return program


def systemd_unit(program: ServiceDefinition) -> str:
    """Return the text of the systemd user unit."""
    suffix = f" ({program.profile})" if program.profile else ""
    return "\n".join(
        (
            "# Written by `homarus gateway install`, which also replaces it.",
            "[Unit]",
            f"Description=Homarus gateway{suffix}",
            # A port that stays in use for an hour is no reason to give up.
            "StartLimitIntervalSec=0",
            "",
            "[Service]",
            "Type=exec",
            f"ExecStart={' '.join(_command(program.argv))}",
            *(f"Environment={_quote(f'{k}={v}')}" for k, v in sorted(program.environment.items())),
            "Restart=always",
            f"RestartSec={_RESTART_S}",
            f"RestartPreventExitStatus={WRONG_CONFIG}",
            # Processes that an agent started end with the gateway, not before it.
            "KillMode=mixed",
            "KillSignal=SIGTERM",
            f"TimeoutStopSec={STOP_S}",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        )
    )


def launchd_plist(program: ServiceDefinition) -> str:
    """Return the launchd agent, throttled: launchd has no exit status that prevents restarts."""
    log = f"{program.state}/logs/launchd.log"
    tree = {
        "Label": launchd_label(program.profile),
        "ProgramArguments": list(program.argv),
        "EnvironmentVariables": dict(sorted(program.environment.items())),
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": STOP_S,
        "ExitTimeOut": STOP_S,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    return plistlib.dumps(tree, sort_keys=False).decode()


def _command(argv: tuple[str, ...]) -> Iterator[str]:
    """Return the quoted command; what systemd refuses as a program's name runs through `sh`."""
    program, *rest = argv
    if any(ch in "\\\"'$\n\t" for ch in program):
        program, *rest = (*_SH, program, *rest)
    yield _quote(program)
    yield from (_quote(word).replace("$", "$$") for word in rest)


def _quote(text: str) -> str:
    """Quote one word for systemd, with escapes and without specifiers."""
    for plain, written in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("%", "%%")):
        text = text.replace(plain, written)
    return f'"{text}"'


def _check(text: str) -> None:
    """Refuse text that neither systemd nor launchd can represent."""
    if any(ch not in "\n\t" and unicodedata.category(ch) in {"Cc", "Cs"} for ch in text):
        raise UserError(
            f"{one_line(text)!r} holds a character that no unit file can",
            fix="rename that folder, or run `homarus gateway run` yourself",
        )
