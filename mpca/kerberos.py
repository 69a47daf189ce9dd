"""What a person does about an error of Kerberos, in the words of MIT's library and of Java's."""

from __future__ import annotations

import re

__all__ = ["remedy"]

#: What is in an error's text -> what to do. MIT's words stand before Java's.
_REMEDIES = (
    (r"ticket expired|tickets? .*expired|credentials .*expired", "the ticket has expired: run kinit"),
    (
        r"no kerberos credentials|no credentials cache|cannot find mechanisms|"
        r"cannot authenticate via|find any kerberos tgt|invalid credentials provided",
        "there is no ticket: run kinit",
    ),
    (
        r"clock skew|\bskew\b|ticket not yet valid",
        "this machine's clock and the cluster's differ by more than five minutes: use one time server for all",
    ),
    (
        r"cannot (contact|find|locate|resolve).*kdc|icmp port unreachable|get kdc|"
        r"(mechanism level|loginexception): (connection refused|connect timed out|receive timed out|network is unreachable)",
        "no KDC answers: see kdc = in krb5.conf (KRB5_CONFIG; Java: java.security.krb5.conf), and whether it is up",
    ),
    (
        r"server .*not found in kerberos|server not found|identifier doesn't match|cannot find key|not found in keytab",
        "the realm has no such service: the ticket is of another realm, or the host is not written as in its principal",
    ),
    (
        r"checksum failed|preauthentication failed|pre-authentication information was invalid|password incorrect",
        "the keytab has an old key of the principal, or another's: export it again",
    ),
    (
        r"is not allowed to impersonate|unauthorized connection for super-user",
        "the cluster lets a service act for others by hadoop.proxyuser.SERVICE.hosts, and .users or .groups, in core-site.xml",
    ),
    (
        r"no rules applied to|default realm|cannot find .*realm|can't get kerberos realm|unknown realm",
        "krb5.conf does not name the realm: point KRB5_CONFIG, and for Java java.security.krb5.conf, to the cluster's",
    ),
)


def remedy(text: str) -> str:
    """What to do about an error of Kerberos; empty when the text is of no such error.

    Example:
        >>> remedy("Cannot contact any KDC for realm 'A'")[:17]
        'no KDC answers: s'
    """
    found = (said for pattern, said in _REMEDIES if re.search(pattern, text, re.IGNORECASE))
    return next(found, "")
