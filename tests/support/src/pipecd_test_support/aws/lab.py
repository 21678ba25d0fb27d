# SPDX-License-Identifier: Apache-2.0
"""One server of `aws.server` for a test module, and what tests ask of it directly."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipecd_aws import AwsAccounts

REGION = "eu-central-1"
CREDENTIALS = "[default]\naws_access_key_id = test\naws_secret_access_key = test\n"


class AwsLab:
    """A running server: `lab.ecs` and `lab.elb` are clients of botocore that see it as AWS."""

    def __init__(self, url: str, credentials_file: Path) -> None:
        import botocore.session  # noqa: PLC0415 - only tests of AWS pay for it

        self.url = url
        self.credentials_file = credentials_file
        self._session = botocore.session.Session()
        self.accounts = AwsAccounts()
        """For all plugins that a test makes: signing in takes longer than most tests."""
        self.ecs, self.elb, self.ec2 = (self.make_client(name) for name in ("ecs", "elbv2", "ec2"))

    def make_client(self, service: str, region: str = REGION) -> Any:
        """Returns a client of botocore that sees the server as AWS."""
        return self._session.create_client(
            service,
            region_name=region,
            endpoint_url=self.url,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - moto takes anything
        )

    @property
    def target(self) -> dict[str, str]:
        """Returns the options of a deploy target that leads here."""
        return {
            "region": REGION,
            "credentialsFile": str(self.credentials_file),
            "endpointUrl": self.url,
        }

    def break_next(
        self, action: str, kind: str, *, count: int = 1, after: int = 0, **more: Any
    ) -> None:
        """Lets the next calls of an action go wrong.

        `throttle`, `deny`, `fail` (503), `refuse` (with code and message): AWS does not do it.
        `lost`: AWS does it, and answers 500. `hold`: AWS does it, and does not answer. `hide`: the
        answer lists nothing yet. `stale`: DescribeServices answers as it did last. `untagged`: the
        answer has no tags. `after` calls of it go well first.
        """
        self._post(
            {"faults": [{"action": action, "kind": kind, "count": count, "after": after, **more}]}
        )

    def keep_draining(self, *, drains: bool) -> None:
        """Lets deleted task sets be shown as DRAINING from now on."""
        self._post({"drain": drains})

    def slow_down(self, *, looks: int) -> None:
        """Lets changes of functions be ready only after so many looks."""
        self._post({"slow": looks})

    def fail_next_change(self, reason: str) -> None:
        """Lets the next change of a function be taken, and fail afterwards."""
        self._post({"failing": reason})

    def forget(self) -> None:
        """Forgets calls and faults."""
        self._post({"forget": True})

    def calls(self, action: str = "") -> list[dict[str, Any]]:
        """Returns what was sent, of one action or of all."""
        return [each for each in self._post({}) if action in {"", each["action"]}]

    def _post(self, order: dict[str, Any]) -> list[dict[str, Any]]:
        request = urllib.request.Request(f"{self.url}/lab", data=json.dumps(order).encode())  # noqa: S310 - our own
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own
            found: list[dict[str, Any]] = json.loads(answer.read())
        return found


@contextmanager
def run_aws_lab(folder: Path) -> Iterator[AwsLab]:
    """Runs a server; its port is free, and it ends with the block."""
    file = folder / "credentials"
    file.write_text(CREDENTIALS)
    with subprocess.Popen(
        [sys.executable, "-m", "pipecd_test_support.aws.server"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            port = (process.stdout.readline() if process.stdout else "").strip()
            yield AwsLab(f"http://127.0.0.1:{port}", file)
        finally:
            process.kill()
