"""What is secret among Spark's settings, by which rule, and how it reaches Java."""

from __future__ import annotations

import pytest

from mpca.redaction import MASK, properties, redacted, redaction, secrets_of


@pytest.mark.parametrize(
    ("key", "value", "secret"),
    [
        ("spark.ssl.keyPassword", "x", True),
        ("spark.hadoop.fs.s3a.secret.key", "x", True),
        ("spark.hadoop.fs.s3a.ACCESS.KEY", "x", True),
        ("spark.hadoop.accessKey", "x", True),
        ("spark.my.Token", "x", True),
        ("spark.kerberos.keytab", "/x", True),
        ("spark.yarn.appMasterEnv.WANDB_API_KEY", "x", True),
        ("spark.hadoop.fs.azure.account.key.ann.dfs.core.windows.net", "x", True),
        ("spark.hadoop.fs.gs.auth.service.account.private.key", "x", True),
        ("spark.driver.extraJavaOptions", "-Dtrust.password=x", True),
        ("spark.authenticate", "true", False),
        ("spark.kerberos.principal", "ann@REALM", False),
        ("spark.redaction.regex", "(?i)secret|password", False),
    ],
)
def test_sparks_own_rule(key: str, value: str, secret: bool) -> None:
    assert redacted({key: value}) == {key: MASK if secret else value}


def test_the_settings_own_rule_outranks_the_one_given() -> None:
    conf = {"spark.zebra": "1", "spark.password": "2"}
    assert secrets_of(conf, "zebra") == {"spark.zebra"}
    assert secrets_of({**conf, "spark.redaction.regex": "nothing"}, "zebra") == set()
    with pytest.raises(ValueError, match="is not a regular expression that Python reads"):
        redaction("a|(?i)b")


def test_properties_are_read_back_by_javas_rules() -> None:
    """By those of java.util.Properties.load, written down here once more."""
    conf = {"a=b: c": " two  words ", "#k": "!v", "s": "back\\slash\nline\ttab", "utf": "schlüssel", "empty": ""}
    names = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}

    def unescaped(text: str) -> str:
        found, at = "", 0
        while at < len(text):
            if text[at] == "\\":
                at += 1
                found += names.get(text[at], text[at])
            else:
                found += text[at]
            at += 1
        return found

    seen = {}
    for line in properties(conf).splitlines():
        at = next(i for i, sign in enumerate(line) if sign == "=" and line[i - 1] != "\\")
        assert line[0] not in "#! "
        assert not line[at + 1 :].startswith(" ")
        seen[unescaped(line[:at])] = unescaped(line[at + 1 :])
    assert seen == conf
