"""spec/openapi.json: finds the route of a request, validates the request, and generates an answer."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Pattern, Tuple
from urllib.parse import parse_qs, unquote

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT: Dict[str, Any] = json.loads((ROOT / "spec" / "openapi.json").read_text())
_TYPES: Dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}


@dataclass(frozen=True)
class Route:
    """One operation of the document."""

    name: str
    method: str
    path: str
    operation: Dict[str, Any]

    @property
    def body_schema(self) -> Optional[Dict[str, Any]]:
        """None: the route has no JSON body."""
        content = self.operation.get("requestBody", {}).get("content", {})
        schema: Optional[Dict[str, Any]] = content.get("application/json", {}).get("schema")
        return schema

    @property
    def takes_bytes(self) -> bool:
        content = self.operation.get("requestBody", {}).get("content", {})
        return bool({"application/octet-stream", "application/x-tar", "application/vnd.forkd.pack"} & set(content)) or self.is_proxy

    @property
    def is_proxy(self) -> bool:
        """Whether it passes requests on unchanged."""
        return self.operation.get("x-methods") == "all"

    def names(self, place: str) -> List[str]:
        """Names of its path or query parameters."""
        given = [resolve(parameter) for parameter in self.operation.get("parameters", [])]
        return [parameter["name"] for parameter in given if parameter["in"] == place]

    def body_fields(self) -> List[str]:
        """Names of all fields of its JSON body, over all variants."""
        if self.body_schema is None:
            return []
        schema = resolve(self.body_schema)
        forms = schema.get("anyOf") or schema.get("oneOf") or [schema]
        return sorted({name for form in forms for name in resolve(form).get("properties", {})})

    def answer(self) -> Tuple[int, str, bytes]:
        """Status, content type and body of a success; JSON if the route has that."""
        successes = [(int(status), response) for status, response in self.operation["responses"].items() if "2" <= status < "3"]
        for status, response in successes:
            media = response.get("content", {}).get("application/json")
            if media is not None:
                return status, "application/json", json.dumps(sample(media["schema"])).encode()
        status, response = successes[0]
        kind = next(iter(response.get("content", {})), "")
        return status, kind, "content ✓\n".encode() if kind else b""


@functools.cache
def routes() -> List[Route]:
    return [
        Route(operation["operationId"], method.upper(), path, operation)
        for path, item in DOCUMENT["paths"].items()
        for method, operation in item.items()
    ]


def find(method: str, path: str) -> Optional[Tuple[Route, Dict[str, str]]]:
    """The route of a request, and its path parameters."""
    for route, pattern in _patterns():
        match = pattern.fullmatch(path)
        if match and (route.method == method or route.operation.get("x-methods") == "all"):
            return route, {name: unquote(value) for name, value in match.groupdict().items()}
    return None


@functools.cache
def _patterns() -> List[Tuple[Route, Pattern[str]]]:
    """Literal segments take precedence over parameters."""
    ordered = sorted(routes(), key=lambda route: route.path.count("{"))
    return [(route, re.compile(_pattern(route.path))) for route in ordered]


def _pattern(path: str) -> str:
    """A parameter named path matches the rest of the path."""
    escaped = re.escape(path).replace(r"/\{path\}", "/(?P<path>.*)")
    return re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", escaped)


def query_of(route: Route, text: str) -> Dict[str, Any]:
    """Refuses fields that the route does not have."""
    query = {name: values[0] if len(values) == 1 else values for name, values in parse_qs(text, keep_blank_values=True).items()}
    unknown = set(query) - set(route.names("query"))
    if unknown and not route.is_proxy:
        raise ValueError(f"{route.name} has no {sorted(unknown)} in its query")
    return query


def resolve(schema: Dict[str, Any]) -> Dict[str, Any]:
    """Follows a reference."""
    while "$ref" in schema:
        target: Any = DOCUMENT
        for part in schema["$ref"].lstrip("#/").split("/"):
            target = target[part]
        schema = target
    return schema


def problems(schema: Dict[str, Any], value: Any, at: str = "$") -> List[str]:
    """The subset of JSON Schema that the document uses."""
    schema = resolve(schema)
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        tries = [problems(choice, value, at) for choice in choices]
        return [] if any(not found for found in tries) else min(tries, key=len)
    if "const" in schema and value != schema["const"]:
        return [f"{at} is not {schema['const']!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at} is none of {schema['enum']}"]
    kinds = schema.get("type")
    if kinds is not None:
        kinds = kinds if isinstance(kinds, list) else [kinds]
        is_number_like = isinstance(value, bool) and "boolean" not in kinds
        if is_number_like or not any(isinstance(value, _TYPES[kind]) for kind in kinds):
            return [f"{at} is no {' or '.join(kinds)}: {value!r}"]
    if isinstance(value, list):
        return [found for i, item in enumerate(value) for found in problems(schema.get("items", {}), item, f"{at}[{i}]")]
    return _object_problems(schema, value, at) if isinstance(value, dict) else []


def _object_problems(schema: Dict[str, Any], value: Dict[str, Any], at: str) -> List[str]:
    properties = schema.get("properties", {})
    rest = schema.get("additionalProperties", True)
    found = [f"{at}.{name} is missing" for name in schema.get("required", []) if name not in value]
    for name, item in value.items():
        if name in properties:
            found += problems(properties[name], item, f"{at}.{name}")
        elif rest is False:
            found.append(f"{at}.{name} is unknown")
        elif isinstance(rest, dict):
            found += problems(rest, item, f"{at}.{name}")
    return found


def sample(schema: Dict[str, Any], name: str = "") -> Any:
    """The smallest valid value, with one item in each list."""
    schema = resolve(schema)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return sample(choices[0], name)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "array":
        # A recursive schema would not terminate.
        return [] if name == "snapshots" else [sample(schema.get("items", {}), name)]
    if kind == "object":
        required = schema.get("required", [])
        return {key: sample(item, key) for key, item in schema.get("properties", {}).items() if key in required}
    return {"string": name or "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}.get(str(kind))
