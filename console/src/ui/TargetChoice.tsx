// SPDX-License-Identifier: Apache-2.0
// Choosing among the deploy targets that the plugins of a piped have.
import type { ReactNode } from 'react'

export interface OfferedTarget {
  plugin: string
  target: string
  /** Names the target among all: `plugin/target`. */
  word: string
}

export function listTargets(plugins: readonly { name: string; deployTargets: string[] }[]): OfferedTarget[] {
  return plugins.flatMap((plugin) => plugin.deployTargets.map((target) => ({ plugin: plugin.name, target, word: `${plugin.name}/${target}` })))
}

export function toTargetWords(byPlugin: Record<string, { deployTargets: string[] }>): string[] {
  return Object.entries(byPlugin).flatMap(([plugin, { deployTargets }]) => deployTargets.map((target) => `${plugin}/${target}`))
}

export function groupTargets(offered: readonly OfferedTarget[], chosen: readonly string[]): Record<string, { deployTargets: string[] }> {
  const byPlugin: Record<string, { deployTargets: string[] }> = {}
  for (const each of offered.filter(({ word }) => chosen.includes(word))) (byPlugin[each.plugin] ??= { deployTargets: [] }).deployTargets.push(each.target)
  return byPlugin
}

export function TargetChoice({ offered, chosen, onChange }: { offered: readonly OfferedTarget[]; chosen: readonly string[]; onChange: (chosen: string[]) => void }): ReactNode {
  if (offered.length === 0) return null
  return (
    <fieldset>
      <legend>Where to (for plugins that have deploy targets)</legend>
      {offered.map(({ word, target, plugin }) => (
        <label className="check" key={word}>
          <input type="checkbox" checked={chosen.includes(word)} onChange={() => onChange(chosen.includes(word) ? chosen.filter((each) => each !== word) : [...chosen, word])} />
          {target} <span className="soft">({plugin})</span>
        </label>
      ))}
    </fieldset>
  )
}
