"""The gateway as an MCP server: sessions, messages, memory and approvals for MCP clients.

Every tool calls the gateway's own methods, with the caller's scopes, over a WebSocket (`homarus mcp
serve`) or in the gateway's process (`/mcp`).
"""
