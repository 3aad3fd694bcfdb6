"""Scopes: what an operator may do, and which scopes include others.

A client is granted what it requests *and* was approved for.
"""

from collections.abc import Collection

ADMIN = "operator.admin"
READ = "operator.read"
WRITE = "operator.write"
APPROVALS = "operator.approvals"
PAIRING = "operator.pairing"
SCOPES = (ADMIN, READ, WRITE, APPROVALS, PAIRING)


def implied(scopes: Collection[str]) -> frozenset[str]:
    """Return these scopes and those they include: admin includes all, write includes read."""
    if ADMIN in scopes:
        return frozenset(SCOPES)
    known = frozenset(SCOPES).intersection(scopes)
    return known | {READ} if WRITE in known else known


def missing(requested: Collection[str], approved: Collection[str]) -> tuple[str, ...]:
    """Return the requested scopes that are not approved; unknown words are ignored."""
    return tuple(sorted(frozenset(SCOPES).intersection(requested) - implied(approved)))


def granted(requested: Collection[str], approved: Collection[str]) -> frozenset[str]:
    """Return the scopes that a requesting client is granted."""
    return implied(approved).intersection(requested)
