"""Policies by name."""

from __future__ import annotations

import os

from .own_policy import class_spec


class Policy:
    """A policy of Weir with parameters: ``Policy("saath", start="1MB")`` is ``saath:start=1MB``.

    ``weir policies`` lists names and parameters. Underscores of parameters stand for hyphens.
    """

    def __init__(self, name: str, **parameters: object) -> None:
        self.spec = name + "".join(":{}={}".format(*parameter(key, value)) for key, value in parameters.items())

    @classmethod
    def tree(cls, file: str | os.PathLike[str]) -> Policy:
        """The policy tree of a file."""
        return cls(f"tree:{os.fspath(file)}")

    def __repr__(self) -> str:
        return f"weir.Policy({self.spec!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(self.spec)


def parameter(name: str, value: object) -> tuple[str, str]:
    """The name and the value of a parameter in a specification: an underscore of the name is a hyphen there, and a truth value ``on`` or
    ``off``."""
    text = ("on" if value else "off") if isinstance(value, bool) else str(value)
    return name.replace("_", "-"), text


def spec_text(policy: object) -> str:
    """The specification of a policy."""
    if isinstance(policy, str):
        return policy
    if isinstance(policy, Policy):
        return policy.spec
    spec = class_spec(policy)
    if spec is None:
        expected = "a policy's name, such as 'saath:start=1MB', a weir.Policy, or the class of a policy of one's own"
        raise TypeError(f"{policy!r}: expected {expected}")
    return spec
