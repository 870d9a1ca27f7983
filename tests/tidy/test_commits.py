"""No part of the product commits an import without having looked at its payload group."""

import ast

from tests.tidy.tree import parsed, sources

CASES = ("adapters", "conformance", "suite")
"""Tests that are shipped: they bring a revision in for a tier, and look at it afterwards."""


def test_every_commit_gives_what_was_seen_of_the_group() -> None:
    found = [
        (str(path), {keyword.arg: keyword.value for keyword in node.keywords})
        for path in sources()
        if path.parts[0] in {"controller", "adapters", "examples"} and path.parts[:3] != CASES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "commit_import"
    ]
    assert found
    for path, given in found:
        group = given.get("group")
        assert group is not None, path
        assert not isinstance(group, ast.Constant), path
