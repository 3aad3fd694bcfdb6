"""The gateway process: protocol 3 over WebSocket, and plain HTTP."""
