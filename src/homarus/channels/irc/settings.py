"""The config of one IRC account, with OpenClaw's keys."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field, SecretStr

from homarus.channels.irc.message import is_channel, is_nick
from homarus.config.channels import ChannelSettings, SettingPrompt
from homarus.config.section import ConfigSection, NonEmptyStr, StrTuple

TLS_PORT, PLAIN_PORT = 6697, 6667
TEXT_LIMIT: Final = 350  # bytes of a message, for names and hosts of common length


def _nick(name: str) -> str:
    if not is_nick(name):
        raise ValueError("that cannot be a nick")
    return name


def _one_line(text: str) -> str:
    if any(mark in text for mark in "\r\n\0"):
        raise ValueError("it must be one line")
    return text


def _one_line_secret(secret: SecretStr) -> SecretStr:
    _one_line(secret.get_secret_value())
    return secret


def _word(text: str) -> str:
    if not text or any(mark.isspace() or mark in "\0@:" for mark in text):
        raise ValueError("it must be one word, without @ and :")
    return text


def _rooms(rooms: tuple[str, ...]) -> tuple[str, ...]:
    for room in rooms:
        name, *keys = room.split(" ")
        if not is_channel(name) or len(keys) > 1 or any("," in key or not key for key in keys):
            raise ValueError(f'{room!r} is no channel: write "#name", or "#name key"')
    return rooms


Nick = Annotated[str, AfterValidator(_nick)]
Password = Annotated[SecretStr, AfterValidator(_one_line_secret)]
OneLine = Annotated[str, AfterValidator(_one_line)]
Word = Annotated[str, AfterValidator(_word)]
_HOST: Final = SettingPrompt("The IRC server", "For example irc.libera.chat; TLS is used.")
_PASSWORD: Final = SettingPrompt("The server's password", is_optional=True)


class NickServ(ConfigSection):
    """The bot that registers nicks. With a password, we identify to it."""

    enabled: bool = True
    service: Nick = "NickServ"
    password: Password | None = None
    password_file: str | None = None
    register_: bool = Field(default=False, alias="register")
    register_email: OneLine | None = None


class IrcSettings(ChannelSettings):
    """One account: a server and our nick there."""

    host: Annotated[NonEmptyStr, _HOST]
    port: int | None = Field(None, ge=1, le=65_535)
    tls: bool = True
    nick: Annotated[Nick, SettingPrompt("The bot's nick")]
    username: Word | None = None
    realname: OneLine | None = None
    password: Annotated[Password | None, _PASSWORD] = None
    password_file: str | None = None
    nickserv: NickServ = NickServ.model_construct()
    channels: Annotated[StrTuple, AfterValidator(_rooms)] = ()
    # Keys of OpenClaw that are accepted and not used.
    capabilities: StrTuple = ()

    @property
    def actual_port(self) -> int:
        return self.port or (TLS_PORT if self.tls else PLAIN_PORT)
