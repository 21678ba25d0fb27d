// SPDX-License-Identifier: Apache-2.0
// What a change does: the files of the application that differ, the lines, and what its plugins say.
import type { ReactNode } from 'react'
import type { PluginDiff } from '../api/gen/pipecd_wire/pipecd/control/control_pb'
import { DiffView } from './basics'

export function FileList({ files, leftOut }: { files: string[]; leftOut: number }): ReactNode {
  return (
    <>
      {files.length === 0 && 'none of the application differs'}
      {files.map((file) => (
        <div key={file}>
          <code className="anywhere">{file}</code>
        </div>
      ))}
      {leftOut > 0 && <span className="soft">and {leftOut} more</span>}
    </>
  )
}

export function PluginDiffs({ diffs }: { diffs: PluginDiff[] }): ReactNode {
  return diffs.map((diff, index) => (
    <div className="stack" key={index}>
      <h3>
        {diff.deployTarget || diff.pluginName}: <span className="soft">{diff.noChange ? 'nothing changes' : diff.summary}</span>
      </h3>
      {!diff.noChange && diff.details && <DiffView text={diff.details} />}
    </div>
  ))
}
