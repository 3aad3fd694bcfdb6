"""`python -m homarus.testing.slack_server`."""

from homarus.testing.slack_server.server import main

main()
