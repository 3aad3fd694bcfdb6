"""End-to-end encryption of Matrix rooms, for an account with `encryption: true`.

The cryptography is matrix-nio's machine with vodozemac; requests and events are ours. Every module
here imports the library, so this package is imported by an encrypted account alone
(`matrix/encrypted.py`).
"""
