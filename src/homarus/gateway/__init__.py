"""The process people keep running: protocol 3 over WebSocket, and a little HTTP."""
