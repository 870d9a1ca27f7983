"""A managed key names its identity, and no other key does."""

import pytest

from weightctl.controller.core.identity import (
    Identity,
    identity_of_key,
    manifest_key,
    payload_prefix,
)

ODD = Identity(
    namespace="prod east", resource_id="family/model", revision="v1%\u4fee", weight_generation=7
)


@pytest.mark.parametrize("key", [manifest_key(ODD), f"{payload_prefix(ODD)}00000003"])
def test_a_managed_key_gives_its_identity_back(key: str) -> None:
    assert identity_of_key(key) == ODD


@pytest.mark.parametrize(
    "key",
    [
        "",
        "kv/1",
        "weights/a/b/c/manifest",
        "weights/a/b/c/0/manifest",
        "weights/a/b/c/1",
        "weights/a b/b/c/1/manifest",
        "weights/a/b/%2d/1/manifest",
        "weights/\ud800/b/c/1/manifest",
    ],
)
def test_no_other_key_does(key: str) -> None:
    assert identity_of_key(key) is None
