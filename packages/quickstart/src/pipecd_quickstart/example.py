# SPDX-License-Identifier: Apache-2.0
"""The example repository: scripts in the two forms of the script-run documents, and a website.

The website is deployed to two folders by the plugin `files`, the platform that every machine has.
"""

from pathlib import Path

from pipecd_model.errors import PipecdError
from pipecd_quickstart.folder import QuickstartFolder, quote_for_yaml
from pipecd_runtime.process import (
    Argument,
    join_option,
    operator_environment,
    own,
    run_blocking,
    word,
)

BRANCH = "main"
BREAKING = "exit 1"
"""The line that breaks the script that publishes hello."""

# The documented form: `with.run`, `with.env`, `with.onRollback`.
HELLO = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: hello
  labels:
    env: quickstart
  pipeline:
    stages:
      - name: SCRIPT_RUN
        desc: Build what message.txt says
        with:
          env:
            OUT: {out}
          run: |
            echo "building: $(cat message.txt)"
            echo "build $SR_TRIGGERED_COMMIT_HASH" >> "$OUT"
          onRollback: |
            echo "throwing the build away"
            echo "undo-build $SR_TRIGGERED_COMMIT_HASH" >> "$OUT"
      - name: WAIT
        with:
          duration: 1s
      - name: WAIT_APPROVAL
      - name: SCRIPT_RUN
        desc: Publish
        with:
          env:
            OUT: {out}
          run: |
            echo "publish $SR_TRIGGERED_COMMIT_HASH" >> "$OUT"
            sh ./publish.sh
          onRollback: |
            echo "taking the publication back"
            echo "undo-publish $SR_TRIGGERED_COMMIT_HASH" >> "$OUT"
"""

PUBLISH = """\
# Add a line `exit 1` and commit: the deployment fails here and rolls back.
echo "published: $(cat message.txt)"
"""

# The form of the RFC: `runs`, `env` and `runsOnRollback` on the stage itself.
NOTIFY = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: notify
  labels:
    env: quickstart
  pipeline:
    stages:
      - name: SCRIPT_RUN
        env:
          OUT: {out}
        runs:
          - "echo successfully deployed $SR_APPLICATION_NAME"
          - 'echo deployed $SR_TRIGGERED_COMMIT_HASH >> "$OUT"'
        runsOnRollback:
          - 'echo failed-to-deploy $SR_TRIGGERED_COMMIT_HASH >> "$OUT"'
"""

# Two folders play two regions: one gets a change first.
WEBSITE = """\
apiVersion: pipecd.dev/v1beta1
kind: Application
spec:
  name: website
  labels:
    env: quickstart
  plugins:
    files:
      source: public
  pipeline:
    stages:
      - name: FILES_CANARY_ROLLOUT
        desc: One region first
        with:
          targets: [east]
      - name: WAIT
        with:
          duration: 1s
      - name: FILES_PRIMARY_ROLLOUT
        desc: Then the others
"""

PAGE = """\
<!doctype html>
<title>PipeCD quickstart</title>
<h1>Hello from {number}</h1>
"""

APPLICATIONS = ("hello", "notify", "website")
REGIONS = ("east", "west")


def create(folder: QuickstartFolder) -> None:
    """Make the repository with its first commit; leaves an existing one alone."""
    if (folder.repository / ".git").exists():
        return
    folder.repository.mkdir(parents=True, exist_ok=True)
    _git(folder, *own("init", "--quiet"), join_option("--initial-branch=", BRANCH))
    # The repository has an author of its own, so that commits work where git has none configured.
    _git(folder, *own("config", "user.name", "PipeCD quickstart"))
    _git(folder, *own("config", "user.email", "quickstart@localhost"))
    # What a person has set for all repositories does not stop a commit in this one.
    _git(folder, *own("config", "commit.gpgSign", "false"))
    _git(folder, *own("config", "core.hooksPath", ".git/hooks"))
    write(folder, "hello/app.pipecd.yaml", hello_file(folder))
    write(folder, "hello/message.txt", "hello, world\n")
    write(folder, "hello/publish.sh", PUBLISH)
    write(
        folder,
        "notify/app.pipecd.yaml",
        NOTIFY.format(out=quote_for_yaml(folder.out / "notify.txt")),
    )
    write(folder, "website/app.pipecd.yaml", WEBSITE)
    write(folder, "website/public/index.html", PAGE.format(number="version 1"))
    commit(folder, "Say hello")


def hello_file(folder: QuickstartFolder) -> str:
    """Returns the application file of hello."""
    return HELLO.format(out=quote_for_yaml(folder.out / "hello.txt"))


def is_broken(folder: QuickstartFolder) -> bool:
    """Returns whether the script that publishes hello has a line that lets it fail."""
    file = folder.repository / "hello" / "publish.sh"
    return file.is_file() and any(line == BREAKING for line in file.read_text().splitlines())


def has_application(folder: QuickstartFolder, name: str) -> bool:
    """Returns whether the repository has an application; it may be older than this example."""
    return (folder.repository / name / "app.pipecd.yaml").is_file()


def write(folder: QuickstartFolder, path: str, text: str) -> None:
    file = folder.repository / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def commit(folder: QuickstartFolder, message: str) -> str:
    """Commits everything; returns the hash."""
    _git(folder, *own("add", "--all"))
    _git(folder, *own("commit", "--quiet"), join_option("--message=", message))
    return commit_hash(folder)


def commit_hash(folder: QuickstartFolder) -> str:
    """Returns the head of the branch."""
    return _git(folder, *own("rev-parse", "HEAD")).strip()


def output(folder: QuickstartFolder, application: str) -> list[str]:
    """Returns what an application's scripts have written themselves, line by line."""
    file: Path = folder.out / f"{application}.txt"
    return file.read_text().splitlines() if file.exists() else []


def page(folder: QuickstartFolder, region: str) -> str:
    """Returns what the website of a region shows."""
    file = folder.site(region) / "current" / "index.html"
    found = file.read_text() if file.exists() else ""
    return found.partition("<h1>")[2].partition("</h1>")[0]


def _git(folder: QuickstartFolder, *arguments: Argument) -> str:
    command = (*own("git", "-C"), word(folder.repository.absolute()), *arguments)
    # Git's variables would name the repository of the process that started us, e.g. in a hook.
    env = {
        name: value for name, value in operator_environment().items() if not name.startswith("GIT_")
    }
    try:
        done = run_blocking(command, env=env)
    except FileNotFoundError:
        raise PipecdError("there is no git", hint="install git 2.38 or newer") from None
    if done.returncode != 0:
        raise PipecdError(f"git {arguments[0].text} failed: {done.stderr.strip()}")
    return done.stdout
