"""The gateway process: protocols 3 and 4 over WebSocket, and plain HTTP."""
