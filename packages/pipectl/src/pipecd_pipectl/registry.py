# SPDX-License-Identifier: Apache-2.0
"""The commands of `pipectl`, in the order of `--help`: a new command is one line here.

A line is the name, `module:attribute` below `pipecd_pipectl.commands`, and the first sentence of
the command's own help; a test compares the sentences.
"""

from collections.abc import Iterator
from typing import Final

from pipecd_runtime.lazy_commands import CommandEntry


def _list(section: str, *commands: tuple[str, str, str]) -> Iterator[CommandEntry]:
    for name, target, short_help in commands:
        yield CommandEntry(name, f"pipecd_pipectl.commands.{target}", short_help, section)


_DAILY = _list(
    "Applications and deployments",
    (
        "overview",
        "overview:overview",
        "Say what is broken, what waits, what runs and what changed.",
    ),
    ("search", "search:search", "Find applications by words, labels and state."),
    (
        "application",
        "application:application",
        "Applications: add them, look at them, deploy them.",
    ),
    ("deployment", "deployment:deployment", "Deployments: follow them, approve them, stop them."),
    (
        "why",
        "why:why",
        "Say what an application waits for, and what to do.",
    ),
    ("queue", "queue:queue", "List what waits for its turn, and for what."),
    ("event", "event:event", "Events: what programs told, and what became of it."),
    ("trace", "event:trace", "Traces: from the commit of a program to what it has deployed."),
    ("chain", "chain:chain", "Chains: applications that are deployed one after the other."),
    (
        "window",
        "window:window",
        "Windows: when deployments may begin, and the emergency stop.",
    ),
    (
        "plan-preview",
        "planpreview:plan_preview",
        "Show what merging a branch would deploy and change.",
    ),
)
_FILES = _list(
    "Files in git, no server needed",
    ("init", "init:init", "Write an application's file, by questions or flags."),
    ("lint", "lint:lint", "Check files, folders or whole repositories."),
    ("simulate", "simulate:simulate", "Print which stages of an application run, and why."),
    ("render", "render:render", "Show what an application's templates become."),
    ("schema", "schema:schema", "Print the JSON Schema of a kind."),
    ("migrate", "migrate:migrate", "Rewrite older files as they are written today."),
)
_SETUP = _list(
    "Agents, secrets and plugins",
    ("piped", "piped:piped", "Agents: register them, list them, turn them on and off."),
    ("hook", "hook:hook", "Hooks: let git hosts say at once that something was pushed."),
    (
        "repository",
        "repository:repository",
        "Git repositories: have agents look at them now.",
    ),
    ("encrypt", "encrypt:encrypt", "Close a secret, so that it can be kept in git."),
    ("keygen", "keygen:keygen", "Make a key pair for secrets."),
    ("plugin", "plugin:plugin", "Write, test and ship plugins."),
)
_ACCESS = _list(
    "Signing in",
    ("login", "login:login", "Sign in to a control plane, and make it the current context."),
    ("logout", "login:logout", "End the session of the context, on the server and here."),
    ("whoami", "login:whoami", "Print who calls: the person of the session, or the API key."),
    ("context", "context:context", "Contexts: the control planes that you are signed in to."),
    ("api-key", "apikey:api_key", "API keys for programs: make them, list them, disable them."),
    (
        "user-group",
        "usergroup:user_group",
        "User groups: the roles of people from single sign-on.",
    ),
    ("audit", "audit:audit", "Audit: list who did what, export it, verify that it is whole."),
)
_HERE = _list(
    "This command line",
    ("doctor", "doctor:doctor", "Find out what is wrong, and what to do about it."),
    (
        "completion",
        "completion:completion",
        "Print the script that completes commands and names with TAB.",
    ),
    ("version", "version:version", "Print the version."),
)

COMMANDS: Final = (*_DAILY, *_FILES, *_SETUP, *_ACCESS, *_HERE)
