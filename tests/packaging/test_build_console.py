# SPDX-License-Identifier: Apache-2.0
"""The console is built by a real Node, put where the server finds it, never twice for nothing."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = """\
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
rmSync('dist', { recursive: true, force: true })
mkdirSync('dist/assets', { recursive: true })
const text = readFileSync('text.txt', 'utf8')
writeFileSync('dist/index.html', `<!doctype html>${text}` + ' '.repeat(300))
writeFileSync(`dist/assets/app-${text.length}.js`, '// ' + 'x'.repeat(500))
"""


def make_source(folder: Path) -> Path:
    """A console of its own, without packages: npm, Node and what is done with the result count."""
    folder.mkdir()
    package = {
        "name": "c",
        "version": "0.0.0",
        "type": "module",
        "engines": {"node": ">=18"},
        "scripts": {"build": "node build.mjs"},
    }
    (folder / "package.json").write_text(json.dumps(package))
    lock = {"name": "c", "version": "0.0.0", "lockfileVersion": 3, "packages": {"": package}}
    (folder / "package-lock.json").write_text(json.dumps(lock))
    (folder / "build.mjs").write_text(BUILD)
    (folder / "text.txt").write_text("one")
    return folder


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "tools/build_console.py", "--source", source, "--target", target],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


@pytest.mark.timeout(600)
def test_a_build_replaces_the_one_before_and_is_not_repeated(tmp_path: Path) -> None:
    source, target = make_source(tmp_path / "source"), tmp_path / "target"

    first = build(source, target)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "one" in (target / "index.html").read_text()
    packed = (target / "assets" / "app-3.js.gz").read_bytes()
    assert gzip.decompress(packed) == (target / "assets" / "app-3.js").read_bytes()
    assert "already" in build(source, target).stdout

    (source / "text.txt").write_text("another")
    assert build(source, target).returncode == 0
    assert "another" in (target / "index.html").read_text()
    names = {path.name for path in (target / "assets").iterdir()}
    assert names == {"app-7.js", "app-7.js.gz"}


@pytest.mark.timeout(600)
def test_a_build_that_fails_says_why_and_leaves_the_one_before(tmp_path: Path) -> None:
    source, target = make_source(tmp_path / "source"), tmp_path / "target"
    assert build(source, target).returncode == 0
    before = (target / "index.html").read_bytes()

    (source / "build.mjs").write_text("throw new Error('no such luck')")
    failed = build(source, target)

    assert failed.returncode == 1
    assert failed.stderr.startswith("error: the console cannot be built: `npm run` failed:")
    assert "no such luck" in failed.stderr
    assert (target / "index.html").read_bytes() == before
