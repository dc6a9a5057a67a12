"""What schemathesis cannot read in /openapi.json: the names of a coordinator (serve.toml, or overlay.toml), and TOML bodies.

Requests that name other hosts, services, applications or models are refused with 422. Which names exist is no property of the API.
Without the lists below, hardly any generated request would be accepted.
"""

import os
from pathlib import Path

import schemathesis

TABLE = (Path(__file__).parent / "table.toml").read_text()
TREE = """weir-tree = 1

[default]
policy = "saath"
"""

HOSTS = ["a", "b"]
# A coordinator has hosts, or regions.
IS_OVERLAY = os.environ["CONFIGURATION"] == "overlay"
# Ranges whose first number is above the last one are refused, too.
NUMBERS = [None, [0, 0], [0, 1023], [7, 4294967295]]
NAMES = {
    ("CoflowBody", "service"): ["default", "ads", None],
    ("CoflowBody", "application"): ["default", "sort", None],
    ("FlowBody", "from"): HOSTS,
    ("FlowBody", "to"): HOSTS,
    ("ApplicationBody", "service"): ["default", "ads", None],
    ("ApplicationBody", "model"): ["sort"],
    # tools/check-api registers it.
    ("ConnectionBody", "application"): ["app"],
    ("ConnectionBody", "from"): HOSTS,
    ("ConnectionBody", "to"): HOSTS,
}
# Policies that accept flows of unknown size. Which flows a policy accepts depends on the policy, not on the request.
POLICIES = {"policy": ["saath", "gittins", "weir:turns=0"], "tree": [TREE]}


@schemathesis.hook
def before_load_schema(context, raw_schema):
    schemas = raw_schema["components"]["schemas"]
    for (schema, field), values in NAMES.items():
        schemas[schema]["properties"][field]["enum"] = values
    if IS_OVERLAY:
        limit_to_regions(schemas, raw_schema["paths"])
    else:
        # Only flows between regions have numbers.
        del schemas["FlowBody"]["properties"]["numbers"]
    # With queues of applications, as in serve.toml, each application has a model.
    schemas["ApplicationBody"]["required"] = ["model"]
    for variant in schemas["PolicySpec"]["oneOf"]:
        (field,) = variant["required"]
        variant["properties"][field]["enum"] = POLICIES[field]
    set_service = raw_schema["paths"]["/v1/services/{name}"]["put"]
    set_service["parameters"][0]["schema"]["enum"] = ["default", "ads"]
    set_table = raw_schema["paths"]["/v1/sensitivity"]["put"]
    set_table["requestBody"]["content"]["application/toml"]["schema"]["enum"] = [TABLE]


def limit_to_regions(schemas, paths):
    """Flows from one region to the other. Two flows with the same numbers are refused: one flow has numbers, or several have their
    indices."""
    flow = schemas["FlowBody"]
    flow["properties"]["from"]["enum"] = ["eu", "127.0.1.7"]
    flow["properties"]["to"]["enum"] = ["us", "127.0.2.7"]
    flow["properties"]["bytes"] = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
    flow["properties"]["numbers"] = {"enum": NUMBERS}
    flow["required"] = ["from", "to", "bytes"]
    unnumbered = {field: schema for field, schema in flow["properties"].items() if field != "numbers"}
    flows = {
        "oneOf": [
            {"type": "array", "minItems": 1, "maxItems": 1, "items": flow},
            {"type": "array", "minItems": 2, "items": {**flow, "properties": unnumbered}},
        ]
    }
    coflow = schemas["CoflowBody"]["properties"]
    del coflow["weight"], coflow["deadline"]
    coflow["flows"] = flows
    paths["/v1/coflows/{id}/flows"]["put"]["requestBody"]["content"]["application/json"]["schema"] = flows


@schemathesis.serializer("application/toml")
def serialize_toml(context, value):
    return value if isinstance(value, bytes) else str(value).encode()
