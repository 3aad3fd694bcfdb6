"""The gateway as something the machine keeps running: what systemd and launchd are told. Pure.

Secrets have no place in these files: of the environment only what is listed here is taken along,
and the gateway reads keys and tokens from its own configuration and its `.env`.
"""

import plistlib
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Final

from homarus.config.paths import Paths
from homarus.core.errors import UserError
from homarus.core.text import one_line
from homarus.core.value import dataclass

# What the gateway must find as the shell had it; a name that may hold a secret is not among them.
KEPT: Final = (
    "PATH", "LANG", "LC_ALL", "TZ", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "OPENCLAW_OAUTH_DIR", "OPENCLAW_GATEWAY_PORT",
)  # fmt: skip
STOP_S: Final = 30  # a live answer has ten seconds to end, then all is put in order
_RESTART_S: Final = 5
_WRONG: Final = 2  # how a wrong configuration ends: to try again changes nothing
_SH: Final = ("/bin/sh", "-c", 'exec "$0" "$@"')


@dataclass(frozen=True, slots=True)
class Program:
    """What is to be kept running, and with which environment."""

    python: str
    state: str
    environment: Mapping[str, str]
    profile: str = ""
    port: int | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        # -P: a file in the directory we are started in is nobody's module.
        port = ("--port", str(self.port)) if self.port is not None else ()
        return (self.python, "-P", "-m", "homarus", "gateway", "run", *port)


def unit_name(profile: str) -> str:
    """What systemd calls it."""
    return f"homarus-gateway-{profile}.service" if profile else "homarus-gateway.service"


def label(profile: str) -> str:
    """What launchd calls it."""
    return f"ai.homarus.gateway.{profile}" if profile else "ai.homarus.gateway"


def make_program(
    python: str, paths: Paths, env: Mapping[str, str], port: int | None = None
) -> Program:
    """The gateway of these places, as this environment would run it."""
    kept = {name: env[name] for name in KEPT if env.get(name, "").strip()}
    folders = [folder for folder in kept.pop("PATH", "").split(":") if folder.startswith("/")]
    if folders:
        kept["PATH"] = ":".join(dict.fromkeys(folders))
    if paths.profile:
        kept["OPENCLAW_PROFILE"] = paths.profile
    kept["OPENCLAW_STATE_DIR"] = str(paths.state)
    if env.get("OPENCLAW_CONFIG_PATH", "").strip():
        kept["OPENCLAW_CONFIG_PATH"] = str(paths.config)
    program = Program(python, str(paths.state), kept, paths.profile, port)
    for text in (*program.argv, *kept.values()):
        _check(text)
    return program


def unit_text(program: Program) -> str:
    """The user unit for systemd."""
    which = f" ({program.profile})" if program.profile else ""
    return "\n".join(
        (
            "# Written by `homarus gateway install`, which also replaces it.",
            "[Unit]",
            f"Description=Homarus gateway{which}",
            "",
            "[Service]",
            "Type=exec",
            f"ExecStart={' '.join(_command(program.argv))}",
            *(f"Environment={_word(f'{k}={v}')}" for k, v in sorted(program.environment.items())),
            "Restart=always",
            f"RestartSec={_RESTART_S}",
            f"RestartPreventExitStatus={_WRONG}",
            # Programs that an agent started end with the gateway, not before it.
            "KillMode=mixed",
            "KillSignal=SIGTERM",
            f"TimeoutStopSec={STOP_S}",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        )
    )


def plist_text(program: Program) -> str:
    """The agent for launchd. It knows no exit status to stay down for, and waits instead."""
    log = f"{program.state}/logs/launchd.log"
    tree = {
        "Label": label(program.profile),
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
    """The words of a command. What systemd takes for no program's name is run by way of `sh`."""
    program, *rest = argv
    if any(ch in "\\\"'$\n\t" for ch in program):
        program, *rest = (*_SH, program, *rest)
    yield _word(program)
    yield from (_word(word).replace("$", "$$") for word in rest)


def _word(text: str) -> str:
    """One word as systemd reads it: quoted, with escapes, and no specifier in it."""
    for plain, written in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("%", "%%")):
        text = text.replace(plain, written)
    return f'"{text}"'


def _check(text: str) -> None:
    """Refuse what neither of the two can carry."""
    if any(ch not in "\n\t" and unicodedata.category(ch) in {"Cc", "Cs"} for ch in text):
        raise UserError(
            f"{one_line(text)!r} holds a character that no unit file can",
            fix="rename that folder, or run `homarus gateway run` yourself",
        )
