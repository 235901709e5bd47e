"""Secrets inside URLs: what is shown, logged or written down goes through `masked`."""

from __future__ import annotations

import re

MASK = "***"

_URL = re.compile(r"[a-zA-Z][\w+.-]*://[^\s'\"<>]+")
_USER = re.compile(r"^([\w+.-]+://)([^/?#]*)@")
_PARAMETER = re.compile(
    r"([?&;][^=&;#]*(?:sig|token|secret|key|credential|password|passwd|pwd|auth|session|policy)[^=&;#]*=)[^&;#]*",
    re.IGNORECASE,
)
_CONTAINERS = ("abfs://", "abfss://", "wasb://", "wasbs://")
"""Here what stands before the "@" is a container, and no secret unless a password comes with it."""


def masked(text: str) -> str:
    """Return a text in which URLs show no user, no password, and no signature or key among their parameters.

    >>> masked("cannot read https://ann:pa55@host/a.csv?v=1&sig=x%2Fy: no route")
    'cannot read https://***@host/a.csv?v=1&sig=***: no route'
    >>> masked("s3://bucket/a.csv"), masked("abfs://data@account.dfs.core.windows.net/a")
    ('s3://bucket/a.csv', 'abfs://data@account.dfs.core.windows.net/a')
    """
    if "://" not in text:
        return text
    return _URL.sub(lambda found: _masked_url(found[0]), text)


def _masked_url(url: str) -> str:
    user = _USER.match(url)
    if user and (":" in user[2] or not url.lower().startswith(_CONTAINERS)):
        url = f"{user[1]}{MASK}@{url[user.end() :]}"
    # What follows the URL in a message ("…: no route") is kept.
    end = len(url.rstrip(":;,.)]}"))
    return _PARAMETER.sub(rf"\g<1>{MASK}", url[:end]) + url[end:]
