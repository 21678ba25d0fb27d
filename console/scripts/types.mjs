// SPDX-License-Identifier: Apache-2.0
// Generates src/api/gen from the protos of the repository, with the protoc that `make proto` uses.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import path from 'node:path'

const here = path.dirname(fileURLToPath(import.meta.url))
const root = path.resolve(here, '..', '..')
const python = process.env.PIPECD_PYTHON ?? path.join(root, '.venv', 'bin', 'python')
if (!existsSync(python)) {
  console.error(`there is no ${python}: run \`make setup\` first, or name a Python in PIPECD_PYTHON`)
  process.exit(1)
}
const done = spawnSync(python, [path.join(root, 'tools', 'gen_console.py')], { stdio: 'inherit' })
process.exit(done.status ?? 1)
