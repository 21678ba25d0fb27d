# SPDX-License-Identifier: Apache-2.0
"""What the tests of our three programs ask of a command line whose commands are imported late."""

import subprocess
import sys

import click

from pipecd_runtime.lazy_commands import LazyGroup

HEAVY = frozenset({"asyncio", "google", "grpc", "httpx2", "msgspec", "sqlalchemy", "yaml"})
"""What takes long to import, and no list of commands needs."""

_LONGEST = 1000
_LIST = """
import sys
from {module} import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


def find_differing_help(group: LazyGroup) -> dict[str, tuple[str, str]]:
    """Returns the commands whose text in the registry is not the first sentence of their help."""
    ctx = click.Context(group)
    differing = {}
    for name, entry in group.find_entries().items():
        own = entry.load().get_short_help_str(_LONGEST)
        if entry.short_help != own:
            differing[name] = (entry.short_help, own)
        assert group.get_command(ctx, name) is entry.load()
    return differing


def find_imports(module: str, *arguments: str) -> frozenset[str]:
    """Returns the modules that a program has imported when it ends well."""
    done = subprocess.run(
        [sys.executable, "-c", _LIST.format(module=module), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return frozenset(done.stderr.split())
