"""Tools of MCP servers: configured programs and addresses, started or connected on first use."""
