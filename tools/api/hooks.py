"""What schemathesis cannot read in /openapi.json: the names of one coordinator (serve.toml), and TOML bodies.

Requests that name other hosts, services, applications or models are refused with 422. Which names exist is no property of the API.
Without the lists below, hardly any generated request would be accepted.
"""

from pathlib import Path

import schemathesis

TABLE = (Path(__file__).parent / "table.toml").read_text()
TREE = """weir-tree = 1

[default]
policy = "saath"
"""

HOSTS = ["a", "b"]
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
    # Only flows between regions have numbers, and this coordinator has hosts.
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


@schemathesis.serializer("application/toml")
def serialize_toml(context, value):
    return value if isinstance(value, bytes) else str(value).encode()
