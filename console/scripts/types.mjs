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
// The service of programs too: previews are asked of it.
const program = 'import gen_console as own; own.SERVICES += ("pipecd_wire/apiservice",); raise SystemExit(own.main())'
const environment = { ...process.env, PYTHONPATH: path.join(root, 'tools') }
const done = spawnSync(python, ['-c', program], { stdio: 'inherit', env: environment })
process.exit(done.status ?? 1)
