"""The JSON documents are stable: golden files, schemas, and what a reader of them may rely on."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.support.golden_documents import documents
from weightctl.controller.api.documents import KINDS
from weightctl.controller.cli import tables

GOLDEN = Path(__file__).parents[1] / "data" / "documents.json"


def test_documents_are_what_they_were() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert json.loads(json.dumps(documents())) == golden


@pytest.mark.parametrize("document", documents(), ids=lambda document: str(document["kind"]))
def test_a_document_has_exactly_the_fields_of_its_schema(document: Any) -> None:
    shape = KINDS[document["kind"]]
    assert TypeAdapter(shape).validate_python(document, strict=True) == document
    assert document["apiVersion"] == "weightctl/v1"


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_names_its_kind_and_version(kind: str) -> None:
    schema = TypeAdapter(KINDS[kind]).json_schema()
    assert schema["properties"]["apiVersion"]["const"] == "weightctl/v1"
    assert {"apiVersion", "kind"} <= set(schema["required"])


@pytest.mark.parametrize("document", documents(), ids=lambda document: str(document["kind"]))
def test_every_document_can_be_printed_for_people(document: Any) -> None:
    if document["kind"] != "Error":
        assert tables.table(document, color=True)
        assert tables.names(document)
