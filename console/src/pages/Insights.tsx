// SPDX-License-Identifier: Apache-2.0
// The four measures of delivery: how often, how many fail, how long until repaired, how long from commit to live.
import type { ReactNode } from 'react'
import { web } from '../api/clients'
import { explainShortly } from '../api/errors'
import { type InsightDataPoint, InsightMetricsKind, InsightResolution } from '../api/gen/pipecd_wire/model/insight_pb'
import { useQuery } from '../lib/query'
import { useSearch } from '../lib/router'
import { formatDuration } from '../lib/times'
import { Loading, Panel, useTitle } from '../ui/basics'

const RANGES: [string, string, number][] = [
  ['week', 'A week', 7],
  ['month', 'A month', 30],
  ['quarter', 'Three months', 90],
  ['year', 'A year', 365],
]

interface Measure {
  kind: InsightMetricsKind
  title: string
  explanation: string
  format: (value: number) => string
  sum: boolean
  none: string
}

const percent = (value: number): string => `${Math.round(value * 100)} %`
const count = (value: number): string => value.toLocaleString('en', { maximumFractionDigits: 1 })

const MEASURES: Measure[] = [
  { kind: InsightMetricsKind.DEPLOYMENT_FREQUENCY, title: 'Deployment frequency', explanation: 'deployments a day', format: count, sum: true, none: 'No deployment' },
  { kind: InsightMetricsKind.CHANGE_FAILURE_RATE, title: 'Change failure rate', explanation: 'share of deployments that failed', format: percent, sum: false, none: 'No failure' },
  { kind: InsightMetricsKind.LEAD_TIME, title: 'Lead time', explanation: 'from the commit to its deployment', format: formatDuration, sum: false, none: 'No data yet' },
  { kind: InsightMetricsKind.MTTR, title: 'Time to repair', explanation: 'from a failure to the next success', format: formatDuration, sum: false, none: 'No repair' },
]

export function Insights(): ReactNode {
  useTitle('Insights')
  const [search, setSearch] = useSearch()
  const range = RANGES.find(([word]) => word === search.get('range')) ?? RANGES[1]!
  return (
    <div className="stack wide">
      <div className="head">
        <h1>Insights</h1>
        <label className="row tight">
          <span className="soft">Over</span>
          <select value={range[0]} onChange={(event) => setSearch({ range: event.target.value })}>
            {RANGES.map(([word, text]) => (
              <option key={word} value={word}>
                {text}
              </option>
            ))}
          </select>
        </label>
      </div>
      <div className="home-grid">
        {MEASURES.map((measure) => (
          <Chart key={`${measure.kind}/${range[0]}`} measure={measure} days={range[2]} />
        ))}
      </div>
    </div>
  )
}

const DAY = 86_400
const WIDTH = 560
const HEIGHT = 120

function Chart({ measure, days }: { measure: Measure; days: number }): ReactNode {
  const to = Math.ceil(Date.now() / 1000 / DAY) * DAY
  const { data, error } = useQuery(`insight/${measure.kind}/${days}/${to}`, () =>
    web.getInsightData({ metricsKind: measure.kind, rangeFrom: BigInt(to - days * DAY), rangeTo: BigInt(to), resolution: InsightResolution.DAILY }),
  )
  const points = data?.matrix[0]?.dataPoints ?? []
  const values = points.filter((point) => point.value > 0)
  const total = values.reduce((sum, point) => sum + point.value, 0)
  const figure = values.length === 0 ? undefined : measure.sum ? total / days : total / values.length
  return (
    <Panel title={measure.title}>
      <div className="body stack">
        {error !== undefined && !data ? (
          <p className="soft anywhere">{explainShortly(error)}</p>
        ) : !data ? (
          <Loading />
        ) : (
          <>
            <div>
              <p className={figure === undefined ? 'big soft' : 'big strong'}>{figure === undefined ? measure.none : measure.format(figure)}</p>
              <p className="soft">{measure.explanation}</p>
            </div>
            {values.length > 0 && <Bars points={points} measure={measure} />}
          </>
        )}
      </div>
    </Panel>
  )
}

function Bars({ points, measure }: { points: InsightDataPoint[]; measure: Measure }): ReactNode {
  const highest = Math.max(...points.map((point) => point.value))
  const step = WIDTH / points.length
  return (
    <figure>
      <svg className="bars" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${measure.title}, day by day; highest ${measure.format(highest)}`}>
        {points.map((point, index) => {
          const height = (point.value / highest) * (HEIGHT - 4)
          return (
            <rect key={index} x={index * step + step * 0.1} y={HEIGHT - height} width={Math.max(1, step * 0.8)} height={height}>
              <title>{`${new Date(Number(point.timestamp) * 1000).toLocaleDateString('en-GB')}: ${measure.format(point.value)}`}</title>
            </rect>
          )
        })}
      </svg>
      <figcaption className="soft small">highest: {measure.format(highest)}</figcaption>
    </figure>
  )
}
