"""What is said about errors of Kerberos. The texts are those that MIT's library and Java gave in a realm."""

from __future__ import annotations

import pytest

from mpca.kerberos import remedy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SPNEGO cannot find mechanisms to negotiate", "there is no ticket: run kinit"),
        ("No Kerberos credentials available (default cache: FILE:/tmp/krb5cc_0)", "there is no ticket: run kinit"),
        ("org.apache.hadoop.security.AccessControlException: Client cannot authenticate via:[TOKEN, KERBEROS]", "no ticket"),
        ("GSS initiate failed: Failed to find any Kerberos tgt", "there is no ticket"),
        ("Ticket expired", "has expired: run kinit"),
        ("javax.security.auth.login.LoginException: Clock skew too great (37) - PROCESS_TGS", "one time server for all"),
        ("Cannot contact any KDC for realm 'A'", "no KDC answers"),
        (
            "GSS initiate failed [Caused by GSSException: No valid credentials provided (Mechanism level: Connection refused)]",
            "no KDC",
        ),
        ("javax.security.auth.login.LoginException: Connection refused", "no KDC answers"),
        ("java.net.ConnectException: Connection refused", ""),
        ("javax.security.auth.login.LoginException: Checksum failed", "the keytab has an old key"),
        ("kinit: Preauthentication failed while getting initial credentials", "the keytab has an old key"),
        ("Server not found in Kerberos database (7) - LOOKING_UP_SERVER", "the realm has no such service"),
        ("java.lang.IllegalArgumentException: Can't get Kerberos realm", "krb5.conf does not name the realm"),
        ("KerberosName$NoMatchingRule: No rules applied to alice@MPCA.DEV", "krb5.conf does not name the realm"),
        ("Permission denied: user=bob", ""),
    ],
)
def test_errors_of_kerberos_come_with_what_to_do(text: str, says: str) -> None:
    assert says in remedy(text)
    assert bool(says) == bool(remedy(text))
