// SPDX-License-Identifier: Apache-2.0
// What an analysis has found: its verdict with its numbers, drawn and in a table. Fetched when a stage has some.
import { type ReactNode, useMemo, useState } from 'react'
import type { PipelineStage } from '../api/gen/pipecd_wire/model/deployment_pb'
import { StageStatus } from '../api/gen/pipecd_wire/model/deployment_pb'
import { formatClock, formatDuration, formatExactly } from '../lib/times'
import { type Analysis, countWarnings, describeExpected, describeSample, formatNumber, nameSides, readAnalyses, showAnalysis, showVerdict } from '../model/analysis'
import { findNote } from '../model/stages'
import { showStage } from '../model/status'
import { AnalysisChart, ChartLegend } from './AnalysisChart'
import { Panel, Status } from './basics'
import { Icon } from './icons'
import './analysis.css'

export function AnalysisView({ stage }: { stage: PipelineStage }): ReactNode {
  const { analyses, unreadable } = useMemo(() => readAnalyses(stage.metadata), [stage.metadata])
  const startSeconds = Number(stage.metadata.startTime) || undefined
  const isRunning = stage.status === StageStatus.STAGE_RUNNING
  const note = findNote(stage.metadata)
  return (
    <Panel title="Analysis" className="analysis" actions={<Status shown={showStage(stage)} pill />}>
      <div className="body stack wide">
        {(stage.statusReason || note) && <p className={stage.status === StageStatus.STAGE_FAILURE ? 'bad anywhere' : 'soft anywhere'}>{stage.statusReason || note}</p>}
        {analyses.map((analysis) => (
          <One key={analysis.id} analysis={analysis} isRunning={isRunning} startSeconds={startSeconds} />
        ))}
        {unreadable.length > 0 && <p className="soft anywhere">What is kept under {unreadable.join(', ')} cannot be read.</p>}
      </div>
    </Panel>
  )
}

const KINDS: Record<string, string> = { metric: 'Metric', log: 'Logs', http: 'Check' }

function One({ analysis, isRunning, startSeconds }: { analysis: Analysis; isRunning: boolean; startSeconds: number | undefined }): ReactNode {
  const expected = describeExpected(analysis)
  const last = analysis.evaluations.at(-1)
  return (
    <section className="stack" aria-label={analysis.name || analysis.id} data-analysis={analysis.id}>
      <div className="row">
        <h3 className="anywhere">
          {KINDS[analysis.kind] ?? 'Analysis'} <code>{analysis.name || analysis.id}</code>
        </h3>
        <Status shown={showAnalysis(analysis, isRunning)} />
        <span className="push count">{describeCount(analysis)}</span>
      </div>
      {analysis.query && (
        <code className="query anywhere clamp" title={analysis.query}>
          {analysis.query}
        </code>
      )}
      {analysis.ended && <p className="soft anywhere">{analysis.ended}</p>}
      {countWarnings(analysis).map(([warning, count]) => (
        <p key={warning} className="wait anywhere analysis-warning">
          <Icon name="failed" /> {count === 1 ? 'In one evaluation' : `In ${count} evaluations`}: {warning}
        </p>
      ))}
      {last && (
        <>
          <AnalysisChart analysis={analysis} startSeconds={startSeconds} isRunning={isRunning} />
          <ChartLegend analysis={analysis} />
          <dl className="facts">
            <dt>Last</dt>
            <dd>
              {describeSample(last.sample)}
              {last.control && ` against ${describeSample(last.control)}`}
              {last.pValue !== undefined && `; p-value ${formatNumber(last.pValue)}`}
            </dd>
            {expected && (
              <>
                <dt>Expected</dt>
                <dd>{expected}</dd>
              </>
            )}
            <dt>Failures</dt>
            <dd>{describeFailures(analysis)}</dd>
          </dl>
          <Numbers analysis={analysis} />
        </>
      )}
      {!last && !analysis.ended && <p className="soft">{isRunning ? 'Its first evaluation is still to come.' : 'It was not evaluated.'}</p>}
    </section>
  )
}

function describeCount({ evaluated, looks, evaluations }: Analysis): string {
  const kept = evaluations.length < evaluated ? `, the last ${evaluations.length} are kept` : ''
  return looks > 0 ? `${evaluated} of ${looks} evaluations${kept}` : `${evaluated} evaluations${kept}`
}

function describeFailures({ allFailures, countedFailures, failureLimit, failureWindowSeconds }: Analysis): string {
  if (failureWindowSeconds === 0) return `${allFailures}, ${failureLimit} allowed`
  return `${countedFailures} within ${formatDuration(failureWindowSeconds)}, ${failureLimit} allowed; ${allFailures} in all`
}

/** The same as a table, the newest first: for those who want it exactly, or do not see the picture. */
function Numbers({ analysis }: { analysis: Analysis }): ReactNode {
  const [isOpen, setOpen] = useState(false)
  const [first, second] = nameSides(analysis.strategy)
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>All numbers</summary>
      {isOpen && (
        <div className="scroll-x" tabIndex={0} role="group" aria-label={`All numbers of ${analysis.name || analysis.id}`}>
          <table className="stacked">
            <thead>
              <tr>
                <th scope="col">Time</th>
                <th scope="col">Verdict</th>
                <th scope="col">{second ? first : 'Values'}</th>
                {second && <th scope="col">{second}</th>}
                {second && <th scope="col">p-value</th>}
                <th scope="col">In words</th>
              </tr>
            </thead>
            <tbody>
              {analysis.evaluations.toReversed().map((look, index) => (
                <tr key={index}>
                  <td className="nowrap">
                    <time dateTime={new Date(look.at * 1000).toISOString()} title={formatExactly(look.at)}>
                      {formatClock(new Date(look.at * 1000))}
                    </time>
                  </td>
                  <td className="nowrap">
                    <Status shown={showVerdict(look.verdict)} />
                  </td>
                  <td data-label={second ? first : 'Values'}>{describeSample(look.sample)}</td>
                  {second && <td data-label={second}>{look.control ? describeSample(look.control) : '-'}</td>}
                  {second && <td data-label="p-value">{look.pValue === undefined ? '-' : formatNumber(look.pValue)}</td>}
                  <td className="anywhere first">
                    {look.text}
                    {look.warning && <span className="wait"> {look.warning}</span>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  )
}
