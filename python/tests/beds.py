"""Starts coordinators and agents for tests: the program in the environment variable `WEIR`, or `weir`, as processes on loopback."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from typing import Callable, Dict, List, Optional

WEIR = shutil.which(os.environ.get("WEIR", "weir"))

# A link of 2 MB/s, so that paced data takes measurable time. After a lease the rest crosses loopback at once, so the lease is longer
# than any delay of a busy machine.
CONFIG = """
weir-serve = 1
store = "weir.redb"
policy = "{policy}"
lease = "{lease}"
{tls}
[listen]
agents = "127.0.0.1:0"
api = "127.0.0.1:0"
[host]
a = "16Mbit"
b = "16Mbit"
[service.default]
[service.ads]
[service.search]
"""

# Two different models, which get different levels.
TABLE = """
version = 1
[[application]]
name = "LR"
coefficients = [5.231, -7.966, 3.723]
[[application]]
name = "flat"
coefficients = [1.13, -0.13]
"""


class Bed(unittest.TestCase):
    """A coordinator, and on request an agent for its host `a`. They stop with the test."""

    policy = "saath"
    tls = ""
    lease = "20s"

    def setUp(self) -> None:
        if WEIR is None:
            self.skipTest("program weir was not found; help: set WEIR to its path, or add it to PATH")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.prepare()
        with open(f"{self.folder}/serve.toml", "w") as config:
            config.write(CONFIG.format(policy=self.policy, tls=self.tls, lease=self.lease))
        self.serve()

    def serve(self) -> None:
        """Starts the coordinator, and waits until it listens."""
        self.serving = self.start("serve", "--log", "json", "--config", f"{self.folder}/serve.toml")
        assert self.serving.stderr is not None
        fields: Dict[str, str] = {}
        while "api" not in fields:
            line = self.serving.stderr.readline()
            self.assertTrue(line.startswith(b"{"), f"the coordinator exited: {line.decode()}")
            fields = json.loads(line)["fields"]
        self.agents, self.api = fields["agents"], fields["api"]

    def restart(self) -> None:
        """Kills the coordinator, and starts it again with the same ports."""
        self.end(self.serving)
        with open(f"{self.folder}/serve.toml") as config:
            text = config.read()
        for key, address in [("agents", self.agents), ("api", self.api)]:
            text = text.replace(f'{key} = "127.0.0.1:0"', f'{key} = "{address}"')
        with open(f"{self.folder}/serve.toml", "w") as config:
            config.write(text)
        self.serve()

    def prepare(self) -> None:
        """Creates the files that the coordinator needs."""

    def start(self, *words: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([str(WEIR), *words], stderr=stderr, stdin=subprocess.DEVNULL)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process: subprocess.Popen[bytes]) -> None:
        if process.returncode is not None:
            return
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()

    def start_agent(self, host: str = "a") -> str:
        """Starts an agent for host `a` or `b`, waits until it is connected, and returns the path of its socket."""
        local_socket = f"{self.folder}/agent-{host}.sock"
        self.agent_process = agent = self.start(
            *["agent", "run", "--name", host, "--rate", "16Mbit", "--coordinator", self.agents, "--socket", local_socket]
        )
        assert agent.stderr is not None
        text = b""
        while b"has a coordinator" not in text:
            line = agent.stderr.readline()
            self.assertTrue(line, f"the agent exited: {text.decode()}")
            text += line
        return local_socket

    def set_table(self) -> None:
        connection = http.client.HTTPConnection(self.api, timeout=15)
        connection.request("PUT", "/v1/sensitivity", TABLE)
        answer = connection.getresponse()
        self.assertEqual((answer.status, answer.read()), (204, b""))
        connection.close()

    def wait_for(self, event: str, has_occurred: Callable[[], bool], timeout: float = 20.0) -> None:
        deadline = time.monotonic() + timeout
        while not has_occurred():
            self.assertLess(time.monotonic(), deadline, f"{event}: not within {timeout} s")
            time.sleep(0.01)


def openssl(folder: str, name: str, names: Optional[str]) -> None:
    """Makes a certificate and its key as in docs/security.md; without names, the certificate of the authority."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", f"/CN={name}"]
    out = ["-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem"]
    issuer: List[str] = []
    if names is not None:
        issuer = ["-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE"]
        issuer += ["-CA", f"{folder}/authority.pem", "-CAkey", f"{folder}/authority.key"]
    subprocess.run(["openssl", "req", "-x509", *key, *issuer, *out], check=True, capture_output=True, timeout=60)
