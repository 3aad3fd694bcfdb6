"""The chat that a client of the gateway names."""

from homarus.core.errors import InvalidRequestError, ToolError, UserError
from homarus.core.message import Address
from homarus.core.session_keys import normalize_account_id
from homarus.tools.tool import Messenger


def find_address(
    messenger: Messenger,
    target: str,
    channel: str | None = None,
    account: str | None = None,
    thread: str | None = None,
) -> Address:
    """Return the address of a target. Raises InvalidRequestError for one that is unknown."""
    try:
        return messenger.resolve_address(
            target,
            channel=channel or "",
            account=normalize_account_id(account) if account else "",
            thread=thread or "",
        )
    except (ToolError, UserError) as exc:
        raise InvalidRequestError(str(exc)) from exc
