"""A gateway with an account that receives webhooks: `python -m tests.attacks.listening`.

Otherwise it equals `homarus gateway run --port 0`. The account writes one line for each message to
the file `heard` of the home directory.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from homarus.channels.base import (
    Capabilities,
    InboundHandler,
    Receipt,
    WebhookRequest,
    WebhookResponse,
)
from homarus.channels.signatures import verify_telegram
from homarus.core.message import Outbound
from homarus.process import serve

PATH = "/hooks/test"
SECRET = "tg-secret"


class Ear:
    """The account that records its messages."""

    name, account, path = "listening", "default", PATH
    capabilities = Capabilities()

    async def run(self, receive: InboundHandler) -> None:
        await asyncio.Event().wait()

    async def send(self, message: Outbound) -> Receipt:
        return Receipt()

    def verify_request(self, request: WebhookRequest) -> bool:
        return verify_telegram(request.headers, SECRET)

    async def handle_webhook(self, request: WebhookRequest) -> WebhookResponse:
        try:
            json.loads(request.body)
        except ValueError:
            return WebhookResponse(400)
        with (Path.home() / "heard").open("a", encoding="utf-8") as file:
            file.write(f"{len(request.body)}\n")
        return WebhookResponse()


def ready(url: str) -> None:
    sys.stdout.write(f"ready on {url}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(os.environ, port=0, ready=ready, channels=lambda: (Ear(),)))
