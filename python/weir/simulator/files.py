"""Writes files that appear complete or not at all."""

from __future__ import annotations

import os
import secrets
import stat

from .errors import InputError


def write_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes ``data`` to a temporary file in the same folder, and renames it to ``path``.

    A symbolic link stays, and its target is replaced. Devices and pipes are written directly.

    :raises InputError: if the name is that of a compressed file.
    """
    name = os.fspath(path)
    plain, dot, extension = name.rpartition(".")
    if dot and extension in ("gz", "zst"):
        expected = f"a name such as {plain}"
        raise InputError(f"{name}: no output is compressed; expected {expected}", file=name, expected=expected)
    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG | 0o666
    if not stat.S_ISREG(mode):
        # A folder is an error here.
        with open(target, "wb") as file:
            file.write(data)
        return
    temporary = os.path.join(os.path.dirname(target), f".weir-{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IMODE(mode))
    except FileNotFoundError as error:
        # The name of the missing folder, not that of the temporary file.
        raise FileNotFoundError(error.errno, error.strerror, name) from None
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
