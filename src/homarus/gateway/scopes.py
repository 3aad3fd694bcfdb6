"""Scopes: what an operator may do, and which of them include others.

What a client gets is what it asks for *and* was approved for; its own word is never enough.
"""

from collections.abc import Collection

ADMIN = "operator.admin"
READ = "operator.read"
WRITE = "operator.write"
APPROVALS = "operator.approvals"
PAIRING = "operator.pairing"
SCOPES = (ADMIN, READ, WRITE, APPROVALS, PAIRING)


def implied(scopes: Collection[str]) -> frozenset[str]:
    """These scopes and those they include: admin all of them, write read."""
    if ADMIN in scopes:
        return frozenset(SCOPES)
    known = frozenset(SCOPES).intersection(scopes)
    return known | {READ} if WRITE in known else known


def missing(asked: Collection[str], approved: Collection[str]) -> tuple[str, ...]:
    """The scopes that are asked for and not approved. Words that are no scope give nothing."""
    return tuple(sorted(frozenset(SCOPES).intersection(asked) - implied(approved)))


def granted(asked: Collection[str], approved: Collection[str]) -> frozenset[str]:
    """What a client that asks gets."""
    return implied(approved).intersection(asked)
