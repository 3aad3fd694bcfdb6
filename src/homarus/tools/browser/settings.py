"""How the browser of one agent is started: its profile, its program and its arguments.

A setting that this version cannot obey is refused when the browser is used, with what to change.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from homarus.config.browser_schema import BrowserConfig
from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line

DEFAULT_PROFILE: Final = "openclaw"
# In OpenClaw: the Chrome of the person, by an extension. There is none here.
EXTENSION_PROFILE: Final = "chrome"
INSTALL_FIX: Final = (
    "install one, for example with `apt-get install chromium`, or set browser.executablePath"
)
_PROFILE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_PROGRAMS: Final = (
    "chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "brave-browser",
    "microsoft-edge",
)  # fmt: skip
_APPLICATIONS: Final = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Brave Browser.app/Contents/MacOS/Brave Browser",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
)
# Nothing is sent that no page requested, and nothing by another way than the proxy.
_QUIET_ARGS: Final = (
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--dns-prefetch-disable",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    # Its services of Google have other addresses than the pages of Google: no one listens there.
    *(
        f"--{name}=http://127.0.0.1:1/"
        for name in (
            "apps-gallery-update-url",
            "autofill-server-url",
            "gaia-url",
            "google-apis-url",
            "lso-url",
            "oauth-account-manager-url",
            "variations-server-url",
        )
    ),
    "--component-updater=url-source=http://127.0.0.1:1/",
)
# What is never given to the browser: the keys and tokens of the gateway's environment.
_ENV_NAMES: Final = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
_WINDOW_NAMES: Final = ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR")


@dataclass(frozen=True, slots=True)
class BrowserSettings:
    """The settings of one profile of one agent; `folder` is for this profile alone."""

    agent_id: str
    profile: str
    folder: Path
    headless: bool = True
    no_sandbox: bool = False
    executable: str = ""

    @property
    def user_data(self) -> Path:
        """The folder with cookies, storage and caches."""
        return self.folder / "user-data"

    @property
    def downloads(self) -> Path:
        """The folder in which downloads are until they are complete and reported."""
        return self.folder / "downloads"

    @property
    def files(self) -> Path:
        """The home folder of the browser's processes."""
        return self.folder / "home"


def profile_names(config: BrowserConfig) -> tuple[str, ...]:
    """Return the names of all profiles, the default one first."""
    return tuple(dict.fromkeys((_default_profile(config), DEFAULT_PROFILE, *config.profiles)))


def resolve_browser(
    config: BrowserConfig, state: Path, agent_id: str, profile: str = ""
) -> BrowserSettings:
    """Return the settings for a profile of an agent. Raises ToolError for one that is not there."""
    if not config.enabled:
        raise ToolError("the browser is disabled", fix="browser.enabled: true enables it")
    if config.attach_only or config.cdp_url:
        key = "attachOnly" if config.attach_only else "cdpUrl"
        raise ToolError(
            f"browser.{key} wants a browser that is already running, and this version starts its "
            "own: the connections of another one would not pass the network guard",
            fix=f"remove browser.{key}",
        )
    name = (profile or _default_profile(config)).strip()
    _check_profile(config, name)
    return BrowserSettings(
        agent_id,
        name,
        state / "browser" / agent_id / name,
        config.headless,
        config.no_sandbox,
        config.executable_path or "",
    )


def _default_profile(config: BrowserConfig) -> str:
    return config.default_profile or DEFAULT_PROFILE


def _check_profile(config: BrowserConfig, name: str) -> None:
    own = config.profiles.get(name)
    if own is None and name == EXTENSION_PROFILE:
        raise ToolError(
            "the profile chrome is a person's own browser, which this version does not control",
            fix=f"use profile {DEFAULT_PROFILE}, or set browser.defaultProfile to it",
        )
    if own is None and name != DEFAULT_PROFILE:
        known = ", ".join(profile_names(config))
        raise ToolError(f"there is no profile {one_line(name, 60)}", fix=f"use one of {known}")
    if not _PROFILE_NAME.fullmatch(name):
        raise ToolError(
            f"{one_line(name, 60)} cannot be the name of a profile",
            fix="use lower-case letters, digits and -",
        )
    if own and (own.cdp_url or own.driver == "extension"):
        key = "cdpUrl" if own.cdp_url else "driver"
        raise ToolError(
            f"browser.profiles.{name}.{key} wants a browser that this version does not start",
            fix="remove it: the profile is then a folder of its own",
        )


def find_executable(settings: BrowserSettings, env: Mapping[str, str] = os.environ) -> str:
    """Return the path of the browser's program. Raises ToolError where there is none."""
    if settings.executable:
        named = Path(settings.executable).expanduser()
        if not named.is_file() or not os.access(named, os.X_OK):
            raise ToolError(
                f"browser.executablePath {named} is not a program", fix="name a Chromium"
            )
        return str(named)
    search = env.get("PATH", os.defpath)
    found = (shutil.which(name, path=search) for name in _PROGRAMS)
    installed = (path for path in _APPLICATIONS if Path(path).is_file())
    for path in (*found, *installed):
        if path:
            return path
    raise ToolError("there is no Chromium on this machine", fix=INSTALL_FIX)


def check_user(settings: BrowserSettings, user_id: int | None = None) -> None:
    """Raise ToolError for root without `browser.noSandbox`: Chromium would not start."""
    if settings.no_sandbox or (os.geteuid() if user_id is None else user_id) != 0:
        return
    raise ToolError(
        "the gateway runs as root, and Chromium has no sandbox of its own for root",
        fix="run the gateway as another user, or set browser.noSandbox: true if nothing else on "
        "this machine is worth protecting",
    )


def launch_args(proxy_port: int) -> list[str]:
    """Return the arguments of the program; every connection goes to the proxy at this port."""
    return [
        *_QUIET_ARGS,
        f"--proxy-server=http://127.0.0.1:{proxy_port}",
        "--proxy-bypass-list=<-loopback>",
        # It can resolve no name and reach no address itself, should a part of it try to.
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    ]


def browser_env(
    settings: BrowserSettings, env: Mapping[str, str] = os.environ
) -> dict[str, str | float | bool]:
    """Return the environment of the browser's processes."""
    names = _ENV_NAMES if settings.headless else (*_ENV_NAMES, *_WINDOW_NAMES)
    given: dict[str, str | float | bool] = {name: env[name] for name in names if name in env}
    return {**given, "HOME": str(settings.files)}
