"""`python -m homarus.testing.telegram_server`."""

from homarus.testing.telegram_server.server import main

main()
