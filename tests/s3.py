"""A store that speaks S3, in this process; its clients are configured by the environment, as users' are."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SECRET = "TOP-SECRET-KEY"


class Store:
    """The server, with one bucket named `bucket`."""

    def __init__(self) -> None:
        import boto3
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer(port=0, verbose=False)
        self._server.start()
        self.url = "http://{}:{}".format(*self._server.get_host_and_port())
        self._tell("reset", b"")
        self._tell("reset-auth", b"inf")
        self._client = boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1"
        )
        self._client.create_bucket(Bucket="bucket")

    @property
    def options(self) -> dict[str, Any]:
        """What users pass as `storage_options=` for a store that is not the usual one."""
        return {"key": "somebody", "secret": SECRET, "client_kwargs": {"endpoint_url": self.url}}

    def put(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket="bucket", Key=key, Body=data)

    def get(self, key: str) -> bytes:
        data: bytes = self._client.get_object(Bucket="bucket", Key=key)["Body"].read()
        return data

    def names(self) -> list[str]:
        listed = self._client.list_objects_v2(Bucket="bucket").get("Contents", [])
        return [entry["Key"] for entry in listed]

    def buckets(self) -> list[str]:
        return [bucket["Name"] for bucket in self._client.list_buckets()["Buckets"]]

    def demand_credentials(self) -> None:
        """From now on refuse keys that nobody has made."""
        self._tell("reset-auth", b"0")

    def _tell(self, command: str, data: bytes) -> None:
        """The server keeps its state for the whole process."""
        headers = {"Content-Type": "text/plain"}
        request = urllib.request.Request(f"{self.url}/moto-api/{command}", data=data, headers=headers, method="POST")
        urllib.request.urlopen(request).close()

    def stop(self) -> None:
        self._server.stop()


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Serve a store; clients that know no better find it, with keys that it takes."""
    import s3fs

    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # nobody waits for a server that the test has stopped
    store = Store()
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        yield store
    finally:
        store.stop()
        s3fs.S3FileSystem.clear_instance_cache()
