"""Objects of the API, generated from spec/openapi.json."""

from __future__ import annotations

from typing import Any, Dict

from . import spec


def sandbox() -> Dict[str, Any]:
    made: Dict[str, Any] = {**spec.sample({"$ref": "#/components/schemas/Sandbox"}), "id": "sb-1"}
    return made


def snapshot() -> Dict[str, Any]:
    made: Dict[str, Any] = spec.sample({"$ref": "#/components/schemas/Snapshot"})
    return made
