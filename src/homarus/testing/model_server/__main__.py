"""`python -m homarus.testing.model_server --port P`: prints its URL, serves until stopped."""

import argparse
import asyncio
import sys
from contextlib import suppress

from homarus.testing.model_server.server import ModelServer


async def _serve(host: str, port: int) -> None:
    async with ModelServer(host=host, port=port) as server:
        sys.stdout.write(f"{server.url}\n")  # how a parent process learns the port
        sys.stdout.flush()
        await server.serve()


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m homarus.testing.model_server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(options.host, options.port))


if __name__ == "__main__":
    main()
