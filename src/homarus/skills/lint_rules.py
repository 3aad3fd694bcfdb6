"""The shapes of text that the lint looks for, line by line.

A rule blocks where the shape has hardly another purpose than to bring code or take data past its
owner; it warns where the shape also has honest uses. Lines that a backslash continues are one line.
Where a rule has `with_`, the line must also match that.
"""

import re
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass

Severity: TypeAlias = Literal["block", "warn", "info"]


@dataclass(frozen=True, slots=True)
class LineRule:
    """A pattern, what it means, and how bad that is."""

    rule: str
    severity: Severity
    message: str
    pattern: re.Pattern[str]
    with_: re.Pattern[str] | None = None

    def matches(self, line: str) -> bool:
        """Return whether a line has the shape."""
        if self.pattern.search(line) is None:
            return False
        return self.with_ is None or self.with_.search(line) is not None


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_FETCH: Final = r"(?:curl|wget|fetch|aria2c|iwr|irm|invoke-webrequest|invoke-restmethod)\b"
_SHELL: Final = (
    r"(?:sudo\s+(?:-\S+\s+)*)?(?:/usr)?(?:/bin/)?(?:env\s+)?"
    r"(?:(?:ba|z|da|k|fi)?sh|python[\d.]*|perl|ruby|node|bun|deno|php|osascript|pwsh|powershell|iex)\b"
)
# An interpreter with a program of its own: what is piped to it is data.
_PROGRAM: Final = r"(?:-(?!s\b)\w*[cmenp]\w*\s|[\w./~$]+\.\w+)"
_DECODE: Final = (
    r"(?:base64\s+(?:-d|-D|--decode|-\w*d\w*)|base32\s+-d|xxd\s+-r|openssl\s+(?:enc|base64)\b[^|]*-d"
    r"|gunzip\b|gzip\s+-\w*d|rev\b|tr\s+['\"]?[A-Za-z-]+)"
)
_READ: Final = (
    r"(?:\b(?:cat|cp|mv|tar|zip|rsync|scp|find|head|tail|grep|sqlite3|strings|less|base64|rclone)\b"
    r"|open\(|read_text|read_bytes|readFile|createReadStream|@)"
)
_SEND: Final = (
    r"(?:curl|wget|\bnc\b|ncat|requests\.post|fetch\(|axios|urlopen|scp\b|rsync\b|https?://)"
)
_SECRETS: Final = (
    r"(?:\.ssh/(?:id_|authorized|known|config|\*|$|\s|[\"'])|id_(?:rsa|ed25519|ecdsa|dsa)\b"
    r"|\.aws/credentials|\.gnupg\b|\.netrc\b|\.git-credentials|\.npmrc\b|\.pypirc\b"
    r"|\.kube/config|\.docker/config\.json|/etc/shadow"
    r"|auth-profiles\.json|\.(?:openclaw|clawdbot|moltbot)/(?:\S*credentials|openclaw\.json)"
    r"|login\.keychain|Login Data\b|Local State\b|cookies\.sqlite|key4\.db|logins\.json"
    r"|(?:Google/Chrome|BraveSoftware|google-chrome|\.mozilla/firefox|Firefox/Profiles|chromium/)"
    r"|wallet\.dat|\.electrum\b|Exodus/|\.config/solana|keystore/UTC|nkbihfbeogaeaoehlefnkodbefgpgknn"
    r"|MetaMask\b.{0,40}(?:vault|seed|storage|extension)"
    r"|(?:seed|recovery|mnemonic) phrase)"
)
_ARCHIVE: Final = r"(?:\.zip|\.7z|\.rar|\barchive\b|\bunzip\b|\bextract\b|\bunpack\b)"
_PROGRAM_URL: Final = (
    r"https?://\S+\.(?:exe|msi|dmg|pkg|app|zip|7z|rar|scr|bat|cmd|ps1|sh|apk|deb|rpm|jar)\b"
)
_LOCAL: Final = (
    r"(?:localhost|127\.|0\.0\.0\.0|\[::1\]|192\.168\.|10\.|172\.(?:1[6-9]|2\d|3[01])\."
    r"|<|\$|\{|\w+\.local\b|example\.)"
)
_PASTE_HOSTS: Final = (
    r"(?:pastebin\.com|glot\.io|rentry\.(?:co|org)|hastebin|ghostbin|paste\.ee|dpaste|termbin\.com"
    r"|transfer\.sh|file\.io|0x0\.st|anonfiles|bit\.ly|tinyurl\.com|is\.gd|t\.ly|cutt\.ly|rb\.gy)"
)
_CATCHER_HOSTS: Final = (
    r"(?:webhook\.site|requestbin|pipedream\.net|beeceptor|interact\.sh|oast\.\w+|burpcollaborator"
    r"|ngrok(?:-free)?\.(?:io|app|dev)|serveo\.net|discord(?:app)?\.com/api/webhooks)"
)

LINE_RULES: Final = (
    LineRule(
        "pipe-to-shell",
        "block",
        "runs what it downloads",
        _compile(rf"{_FETCH}[^|;\n]*\|(?:[^|;\n]*\|)*\s*{_SHELL}(?!\s+{_PROGRAM})"),
    ),
    LineRule(
        "pipe-to-shell",
        "block",
        "runs what it downloads",
        _compile(
            rf"(?:\b{_SHELL}|\beval|\bsource|(?:^|[;&|(])\s*\.|\bexec)\s+(?:-\S+\s+)*[\"']?"
            rf"(?:<\(|\$\(|`)\s*{_FETCH}"
        ),
    ),
    LineRule(
        "pipe-to-shell",
        "block",
        "runs what it downloads",
        _compile(
            r"iex\s*\(?\s*\(?\s*(?:new-object|iwr|irm|invoke-web)|DownloadString\(|mshta\s+https?:"
            r"|regsvr32\b.*https?:|bitsadmin\s+/transfer|certutil\b.*-urlcache"
        ),
    ),
    LineRule(
        "download-and-run",
        "block",
        "downloads a file and runs it",
        _compile(
            rf"{_FETCH}[^\n]*(?:&&|;)\s*(?:sudo\s+)?(?:chmod\s+\S*(?:x|7)\S*\s|{_SHELL}\s+\S|open\s"
            r"|installer\s|\./)"
        ),
    ),
    LineRule(
        "decode-to-shell",
        "block",
        "decodes text and runs it",
        _compile(rf"{_DECODE}[^\n|]*\|(?:[^|\n]*\|)*\s*{_SHELL}"),
    ),
    LineRule(
        "decode-to-shell",
        "block",
        "decodes text and runs it",
        _compile(
            rf"(?:\beval|\b{_SHELL}\s+-c|\bsource|(?:^|[;&|(])\s*\.)\s+[\"']?"
            rf"(?:<\(|\$\(|`)[^\n]*{_DECODE}"
        ),
    ),
    LineRule(
        "run-decoded-text",
        "block",
        "runs text that is decoded or downloaded",
        _compile(
            r"\b(?:exec|eval|compile|Function|execSync|spawnSync|os\.system|popen)\s*\([^\n]{0,200}"
            r"(?:b64decode|b32decode|a85decode|unhexlify|fromhex|atob\(|Buffer\.from\([^\n]*base64"
            r"|zlib\.decompress|marshal\.loads|codecs\.decode|urlopen|requests\.get|httpx\.get"
            r"|\.text\b|fetch\()"
        ),
    ),
    LineRule(
        "run-decoded-text",
        "block",
        "runs text that is encoded",
        _compile(r"(?:powershell|pwsh)\S*\s+[^\n]*-e(?:nc\w*|c)?\s+[A-Za-z0-9+/=]{20,}"),
    ),
    LineRule(
        "run-decoded-text",
        "warn",
        "runs text as a program",
        _compile(
            r"(?:^|[^\w.])(?:eval|exec)\s*\(\s*(?![\"'])[\w$]|\bpickle\.loads\(|marshal\.loads\("
        ),
    ),
    LineRule(
        "reverse-shell",
        "block",
        "opens a shell for another machine",
        _compile(
            r"/dev/tcp/|\bnc(?:at)?\b[^\n]*\s-\w*[ec]\w*\s+/?\w*/?(?:ba)?sh|bash\s+-i\s*[>&]"
            r"|mkfifo\b[^\n]*\|\s*nc\b|socat\b[^\n]*exec:|dup2\([^\n]*fileno"
        ),
    ),
    LineRule(
        "secret-files",
        "block",
        "reads keys, wallets, browser data or credentials",
        _compile(_SECRETS),
        _compile(rf"{_SEND}|\b(?:zip|tar|scp|rsync|rclone)\b|sqlite3|@~|@\$HOME"),
    ),
    LineRule(
        "secret-files",
        "block",
        "reads keys, wallets, browser data or credentials",
        _compile(
            r"dump-keychain|\.ssh/id_\w+|(?:Login Data|key4\.db|logins\.json|cookies\.sqlite"
            r"|wallet\.dat|/etc/shadow|auth-profiles\.json)"
        ),
        _compile(_READ),
    ),
    LineRule(
        "secret-files",
        "warn",
        "mentions keys, wallets, browser data or credentials",
        _compile(rf"{_SECRETS}|find-(?:generic|internet)-password"),
    ),
    LineRule(
        "sends-environment",
        "block",
        "sends variables, which have keys, to another machine",
        _compile(
            r"\b(?:env|printenv|export\s+-p|set)\s*\|[^\n]*(?:curl|wget|nc\b)"
            r"|(?:curl|wget)[^\n]*(?:\$\((?:env|printenv)|`(?:env|printenv))"
            r"|(?:requests\.post|fetch|axios\.post|urlopen)\([^\n]*(?:os\.environ\b(?![.\[])|process\.env\b(?![.\[]))"
        ),
    ),
    LineRule(
        "collecting-host",
        "block",
        "sends data to a host that collects requests",
        _compile(_CATCHER_HOSTS),
        _compile(r"curl|wget|post|fetch|send|upload|-d\b|--data|-F\b"),
    ),
    LineRule(
        "persistence",
        "block",
        "installs itself to run later, or lets somebody in",
        _compile(
            r"authorized_keys"
            r"|(?:>|tee|cp|mv|cat|write|install|ln)[^\n]*(?:Library/Launch(?:Agents|Daemons)|/etc/cron|"
            r"/etc/systemd|\.config/systemd|\.config/autostart|/etc/ld\.so\.preload|/etc/sudoers)"
            r"|launchctl\s+(?:load|bootstrap)|\|\s*crontab\b|crontab\s+(?:-\s|-$|/|\w+\.)|schtasks\b[^\n]*/create"
            r"|CurrentVersion\\+Run\b"
        ),
    ),
    LineRule(
        "persistence",
        "warn",
        "changes what runs later or at a login",
        _compile(
            r"(?:>>|tee\s+-a)\s*[\"']?(?:~|\$HOME)/\.(?:bash|zsh|profile|config/fish)|crontab\s+-e"
            r"|Library/Launch(?:Agents|Daemons)|systemctl\b[^\n]*\benable\b|/etc/cron"
        ),
    ),
    LineRule(
        "removes-protection",
        "block",
        "switches off a protection of the system or of this program",
        _compile(
            r"xattr\s+[^\n]*(?:com\.apple\.quarantine|-c\w*\s)|spctl\s+--(?:master|global)-disable"
            r"|csrutil\s+disable|setenforce\s+0|Set-MpPreference|Set-ExecutionPolicy\s+(?:Bypass|Unrestricted)"
            r"|(?:openclaw|clawdbot|homarus)\s+config\s+set\s+\S*(?:exec\.(?:security|ask)|sandbox\.mode|approvals|elevated|allowFrom)\S*"
        ),
    ),
    LineRule(
        "removes-protection",
        "warn",
        "does not verify certificates, or gives rights to everybody",
        _compile(
            r"\bcurl\b[^\n]*\s(?:(?-i:-k)|--insecure)\b|--no-check-certificate|chmod\s+(?:-R\s+)?0?777"
        ),
    ),
    LineRule(
        "destroys-files",
        "block",
        "deletes a home, a disk or the whole system",
        _compile(
            r"\brm\s+(?:-\w+\s+)*-\w*[rf]\w*\s+(?:--no-preserve-root\s+)?[\"']?(?:/|~|\$HOME|\$\{HOME\})/?\*?[\"']?(?:\s|$|;)"
            r"|\bdd\b[^\n]*of=/dev/(?:sd|nvme|disk|hd)|\bmkfs\.\w+\s+/dev/|:\(\)\s*\{\s*:\|:&\s*\};:"
        ),
    ),
    LineRule(
        "password-archive",
        "block",
        "unpacks an archive with a password, which scanners cannot read",
        _compile(r"unzip\s+[^\n]*(?-i:-P)\s*\S|7z\w*\s+[xe]\s[^\n]*-p\S|unrar\s+[^\n]*-p\S"),
    ),
    LineRule(
        "password-archive",
        "block",
        "unpacks an archive with a password, which scanners cannot read",
        _compile(r"\b(?:password|passcode|pass)\b\s*(?:is|:|=|[\"'`])"),
        _compile(_ARCHIVE),
    ),
    LineRule(
        "run-a-download",
        "block",
        "tells the reader to download a program and to run it",
        _compile(
            r"\b(?:download|fetch|get|grab)\b[^\n]{0,160}\b(?:run|execute|open|launch|install|start|double-click)\b"
        ),
        _compile(_PROGRAM_URL),
    ),
    LineRule(
        "run-a-download",
        "block",
        "tells the reader to run commands of another page",
        _compile(
            r"(?:copy|paste|enter|run|execute)\b[^\n]{0,160}"
            r"(?:terminal|command prompt|powershell|console|shell|command)"
            r"|(?:terminal|powershell)\b[^\n]{0,80}\b(?:paste|copy)"
        ),
        _compile(
            rf"{_PASTE_HOSTS}|(?:from|at|of|on|visit|see|open)\s+(?:this\s+(?:page|link|url|site)|\[?\S*https?://)"
        ),
    ),
    LineRule(
        "paste-host",
        "block",
        "fetches from a host of pastes or short links",
        _compile(_PASTE_HOSTS),
        _compile(rf"{_FETCH}|requests\.get|urlopen|fetch\("),
    ),
    LineRule(
        "paste-host", "warn", "leads to a host of pastes or short links", _compile(_PASTE_HOSTS)
    ),
    LineRule(
        "address-url",
        "block",
        "fetches from a bare address",
        _compile(rf"https?://(?!{_LOCAL})\d{{1,3}}(?:\.\d{{1,3}}){{3}}"),
        _compile(rf"{_FETCH}|requests|urlopen|fetch\("),
    ),
    LineRule(
        "address-url",
        "warn",
        "leads to a bare address",
        _compile(rf"https?://(?!{_LOCAL})\d{{1,3}}(?:\.\d{{1,3}}){{3}}"),
    ),
    LineRule(
        "plain-http",
        "block",
        "downloads a file without encryption",
        _compile(
            rf"(?:wget|curl\b[^\n]*\s(?:-\w*[oO]\w*|--output|--remote-name))\b[^\n]*http://(?!{_LOCAL})"
            rf"|curl\b[^\n]*http://(?!{_LOCAL})\S+[^\n]*\s(?:-\w*[oO]\w*|--output|--remote-name|>)\s*"
            rf"|(?:pip|npm|uv)\S*\s+install\b[^\n]*http://(?!{_LOCAL})"
        ),
    ),
    LineRule(
        "plain-http",
        "warn",
        "uses a connection without encryption",
        _compile(rf"(?:{_FETCH}|requests\.\w+\(|urlopen\(|fetch\()[^\n]*http://(?!{_LOCAL})"),
    ),
    LineRule(
        "instructs-model",
        "block",
        "tells the model to ignore its instructions or to hide something from the user",
        _compile(
            r"\b(?:ignore|disregard|forget|override)\s+(?:all\s+|any\s+|the\s+|your\s+|my\s+)*"
            r"(?:previous|prior|above|earlier|preceding|system|safety|other)\s+(?:\w+\s+)?(?:instructions?|prompts?|rules?|messages?|guidelines?)"
            r"|\b(?:do\s+not|don'?t|never|without)\s+(?:ever\s+)?(?:tell|inform|mention|reveal|notify"
            r"|alert|(?<=without\s)ask)(?:ing)?\s+(?:this\s+(?:to\s+)?|anything\s+to\s+|it\s+to\s+)?"
            r"(?:the\s+|your\s+)?(?:user|owner|human|operator)\b"
            r"|\byou\s+are\s+now\s+(?:in\s+)?(?:developer|admin|root|jailbreak|dan|unrestricted)\b"
            r"|\b(?:bypass|skip|disable|turn\s+off|auto-?approve)\s+(?:all\s+|any\s+|the\s+|every\s+)*"
            r"(?:approvals?|approval\s+prompts?|sandbox(?:ing)?|safety|guardrails?"
            r"|security\s+(?:checks?|warnings?))\b"
        ),
    ),
    LineRule(
        "instructs-model",
        "block",
        "tells the model to fetch instructions and to follow them",
        _compile(
            r"\b(?:fetch|download|read|get|load|visit|open)\b[^\n]{0,120}https?://[^\n]{0,160}\b(?:follow|obey|execute|carry\s+out|act\s+on|do\s+what)\b[^\n]{0,60}"
            r"\b(?:it|them|instructions?|steps|commands?|there|says)\b"
        ),
    ),
    LineRule(
        "writes-memory",
        "warn",
        "has the agent change its own standing instructions",
        _compile(
            r"(?:add|append|write|save|put|insert|>>)[^\n]{0,80}\b(?:SOUL|AGENTS|MEMORY|HEARTBEAT|BOOT|TOOLS|USER)\.md\b"
        ),
    ),
    LineRule(
        "obfuscation",
        "block",
        "hides a program in escapes",
        _compile(
            r"(?:\\x[0-9a-f]{2}){24,}|(?:\\[0-7]{3}){24,}|(?:chr\(\d+\)\s*[+.,]\s*){6,}"
            r"|fromCharCode\((?:\s*\d+\s*,){8,}|(?:\\u00[0-9a-f]{2}){16,}"
        ),
    ),
    LineRule(
        "uses-sudo",
        "warn",
        "asks for the rights of the administrator",
        _compile(r"(?:^|[\s`$(;&|])sudo\s+\w"),
    ),
)

# A text that needs a person's judgement when it is long: base64 or hexadecimal digits.
LONG_BLOB: Final = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{300,}={0,2}(?![A-Za-z0-9+/=])")
DATA_URL: Final = re.compile(r"data:(?:image|font|audio)/[\w.+-]+;base64,\s*\Z")
URL_HOST: Final = re.compile(r"\bhttps?://([A-Za-z0-9][A-Za-z0-9.-]*[A-Za-z0-9])")
