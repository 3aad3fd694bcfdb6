"""The service client: typed addresses, and files that cannot be sent."""

import pytest

from homarus.channels.service_client import ServiceClient, UploadFile
from homarus.core.errors import ConfigError, SendError
from homarus.testing.telegram_server import ADA, TelegramServer


@pytest.mark.parametrize(
    "address",
    ["", "x", "ftp://x", "http://", "http://[x", "http://x:port", "http://x:99999", "http://x:0"],
)
def test_service_client_invalid_address_raises_config_error(address: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        ServiceClient("svc", address)


@pytest.mark.parametrize("address", ["http://x", "https://x:8443/base", "http://[::1]:8008"])
def test_service_client_created_opens_no_connection(address: str) -> None:
    ServiceClient("svc", address)


async def test_upload_file_name_not_utf8_is_sent() -> None:
    async with TelegramServer() as telegram:
        telegram.say("hello")
        api = ServiceClient("svc", telegram.url)
        file = UploadFile(b"caf\xe9.txt".decode("utf-8", "surrogateescape"), b"bytes")
        fields = {"chat_id": str(ADA), "caption": "half \ud800"}
        path = f"/bot{telegram.token}/sendDocument"
        answer = await api.send_form(path, fields, {"document": file})
        await api.close()
        assert answer.status == 200
        (sent,) = telegram.sent(ADA)
        assert (sent["document"]["file_name"], sent["caption"]) == ("caf?.txt", "half ?")


async def test_upload_impossible_file_fails_without_retry() -> None:
    async with TelegramServer() as telegram:
        api = ServiceClient("svc", telegram.url)
        with pytest.raises(SendError) as caught:
            await api.request("POST", "/x", b"", {"Evil": "a\r\nX: 1"})
        await api.close()
        assert not caught.value.retryable and not telegram.books.asked
