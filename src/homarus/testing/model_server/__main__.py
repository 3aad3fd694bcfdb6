"""`python -m homarus.testing.model_server --port P`: prints its URL, serves until stopped."""

import argparse

from homarus.testing.model_server.server import ModelServer
from homarus.testing.stream_server import serve


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m homarus.testing.model_server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options = parser.parse_args()
    serve(ModelServer(host=options.host, port=options.port))


if __name__ == "__main__":
    main()
