// SPDX-License-Identifier: Apache-2.0
// The values of one analysis over time: what was expected of them or what they were compared with, and each verdict below.
import { type ReactNode, useRef } from 'react'
import { makeLinear, makeScale, makeShareScale, type Scale } from '../lib/plot'
import { useRoom } from '../lib/room'
import { formatClock } from '../lib/times'
import { type Analysis, type AnalysisLook, describeExpected, findMedian, formatNumber, isFailure, nameSides, showVerdict } from '../model/analysis'

const LEFT = 60
const RIGHT = 10
const TOP = 10
const PLOT = 132
const STRIP = 24
const SHARES = 58
const TIMES = 18
/** With more evaluations each is drawn with its ends and its middle alone. */
const MOST_WITH_DOTS = 40
const SIGNIFICANT = 0.05

interface Drawing {
  analysis: Analysis
  x: (look: AnalysisLook) => number
  y: Scale
  width: number
}

interface ChartProps {
  analysis: Analysis
  startSeconds: number | undefined
  isRunning: boolean
}

export function AnalysisChart({ analysis, startSeconds, isRunning }: ChartProps): ReactNode {
  const box = useRef<HTMLDivElement>(null)
  const width = useRoom(box)
  return (
    <div ref={box} className="analysis-chart">
      {width > LEFT + RIGHT && <Picture analysis={analysis} startSeconds={startSeconds} isRunning={isRunning} width={width} />}
    </div>
  )
}

function Picture({ analysis, startSeconds, isRunning, width }: ChartProps & { width: number }): ReactNode {
  const { evaluations, expected } = analysis
  const [begin, end] = findEnds(analysis, startSeconds, isRunning)
  const time = makeLinear(begin, end, LEFT, width - RIGHT - 5)
  const limits = [expected.min, expected.max].filter((each) => each !== undefined)
  const all = evaluations.flatMap((look) => [...look.sample.values, ...(look.control?.values ?? [])])
  const y = makeScale([...all, ...limits], TOP + PLOT, TOP)
  const isComparison = evaluations.some((look) => look.control !== undefined)
  const drawing: Drawing = { analysis, x: (look) => time.place(look.at), y, width }
  const strip = TOP + PLOT + STRIP / 2
  const shares = TOP + PLOT + STRIP
  const height = shares + (isComparison ? SHARES : 0) + TIMES
  return (
    <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={describe(analysis)}>
      <Frame drawing={drawing} limits={limits} />
      {evaluations.map((look, index) => (
        <Look key={index} look={look} drawing={drawing} />
      ))}
      <Line drawing={drawing} pick={(look) => look.control?.values ?? []} className="control" />
      <Line drawing={drawing} pick={(look) => look.sample.values} className="sample" />
      <Verdicts drawing={drawing} y={strip} />
      {isComparison && <Shares drawing={drawing} top={shares} />}
      <text x={LEFT} y={height - 4} className="axis">
        {showTime(begin)}
      </text>
      <text x={width - RIGHT} y={height - 4} className="axis" textAnchor="end">
        {showTime(end)}
      </text>
      {evaluations.map((look, index) => (
        <rect key={index} x={drawing.x(look) - 5} y={TOP} width={10} height={height - TOP} className="hover">
          <title>{`${showTime(look.at)}, ${showVerdict(look.verdict).word.toLowerCase()}: ${look.text}`}</title>
        </rect>
      ))}
    </svg>
  )
}

/** Begin and end of the time that is drawn: what has passed, and while it goes on as much of what is to come. */
function findEnds({ evaluations, intervalSeconds, looks }: Analysis, startSeconds: number | undefined, isRunning: boolean): [number, number] {
  const first = evaluations[0]?.at ?? 0
  const last = evaluations.at(-1)?.at ?? first
  const begin = startSeconds !== undefined && startSeconds <= first ? startSeconds : first - intervalSeconds
  const planned = begin + looks * intervalSeconds
  const ahead = isRunning ? begin + Math.max(2 * (last - begin), 10 * intervalSeconds) : last
  return [begin, Math.max(last, Math.min(planned, ahead), begin + 0.001)]
}

function showTime(seconds: number): string {
  return formatClock(new Date(seconds * 1000))
}

/** The sentence for those who do not see the picture; the table below has every number. */
function describe(analysis: Analysis): string {
  const last = analysis.evaluations.at(-1)
  const expected = describeExpected(analysis)
  const failures = analysis.evaluations.filter(isFailure).length
  return `${analysis.name || analysis.id}: ${analysis.evaluations.length} evaluations, ${failures || 'none'} failed${expected ? `; expected ${expected}` : ''}${last ? `; the last: ${last.text}` : ''}`
}

function Frame({ drawing: { y, width, analysis }, limits }: { drawing: Drawing; limits: number[] }): ReactNode {
  const { min, max } = analysis.expected
  const top = max === undefined ? TOP : y.place(max)
  const bottom = min === undefined ? TOP + PLOT : y.place(min)
  const marks = [y.low, y.high].filter((mark) => limits.every((limit) => Math.abs(y.place(limit) - y.place(mark)) > 14))
  return (
    <>
      {limits.length > 0 && <rect x={LEFT} y={top} width={width - LEFT - RIGHT} height={Math.max(0, bottom - top)} className="expected" />}
      <path d={`M${LEFT} ${TOP}V${TOP + PLOT}H${width - RIGHT}`} className="frame" />
      {limits.map((limit) => (
        <g key={limit}>
          <path d={`M${LEFT} ${y.place(limit)}H${width - RIGHT}`} className="limit" />
          <text x={LEFT - 6} y={y.place(limit) + 4} textAnchor="end" className="axis strong">
            {formatNumber(limit, 3)}
          </text>
        </g>
      ))}
      {marks.map((mark) => (
        <text key={mark} x={LEFT - 6} y={y.place(mark) + 4} textAnchor="end" className="axis">
          {formatNumber(mark, 3)}
        </text>
      ))}
    </>
  )
}

function Look({ look, drawing }: { look: AnalysisLook; drawing: Drawing }): ReactNode {
  const x = drawing.x(look)
  const shift = look.control ? 3 : 0
  return (
    <>
      {look.control && <Values values={look.control.values} x={x + shift} drawing={drawing} className="control" />}
      <Values values={look.sample.values} x={x - shift} drawing={drawing} className={isFailure(look) ? 'sample bad' : 'sample'} />
    </>
  )
}

function Values({ values, x, drawing: { analysis, y }, className }: { values: number[]; x: number; drawing: Drawing; className: string }): ReactNode {
  if (values.length === 0) return null
  const places = values.map((value) => y.place(value))
  const isDense = analysis.evaluations.length > MOST_WITH_DOTS
  const shown = [...new Set(values)].filter((value) => !isDense || !Number.isFinite(value))
  return (
    <g className={className}>
      <path d={`M${x} ${Math.min(...places)}V${Math.max(...places)}`} className="ends" />
      {shown.map((value) =>
        Number.isFinite(value) ? (
          <circle key={value} cx={x} cy={y.place(value)} r={2.500} />
        ) : (
          <path key={value} d={value > 0 ? `M${x - 4} ${TOP + 7}l4 -7l4 7z` : `M${x - 4} ${TOP + PLOT - 7}l4 7l4 -7z`} className="infinite" />
        ),
      )}
    </g>
  )
}

function Line({ drawing, pick, className }: { drawing: Drawing; pick: (look: AnalysisLook) => number[]; className: string }): ReactNode {
  const places = drawing.analysis.evaluations.flatMap((look) => {
    const middle = findMedian(pick(look))
    return middle === undefined ? [] : [`${drawing.x(look)} ${drawing.y.place(middle)}`]
  })
  return places.length > 1 ? <path d={`M${places.join('L')}`} className={`middle ${className}`} /> : null
}

/** One sign for each evaluation; where they would touch, strokes that are longer for a failure. */
function Verdicts({ drawing, y }: { drawing: Drawing; y: number }): ReactNode {
  const { evaluations } = drawing.analysis
  const places = evaluations.map(drawing.x)
  const isDense = places.some((place, index) => index > 0 && place - (places[index - 1] ?? 0) < 9)
  return evaluations.map((look, index) => <path key={index} d={drawSign(look, drawing.x(look), y, isDense)} className={`sign-of ${showVerdict(look.verdict).tone}`} />)
}

function drawSign(look: AnalysisLook, x: number, y: number, isDense: boolean): string {
  if (isDense) return isFailure(look) ? `M${x} ${y - 8}v16` : `M${x} ${y - 2}v4`
  if (look.verdict === 'UNEXPECTED') return `M${x - 3.500} ${y - 3.500}l7 7m0 -7l-7 7`
  if (look.verdict === 'ERROR') return `M${x} ${y - 5}v6m0 3.500v.5`
  if (look.verdict === 'NO_DATA') return `M${x - 3.500} ${y}h7`
  return `M${x - 3.500} ${y}l2.500 3l4.500 -6`
}

function Shares({ drawing, top }: { drawing: Drawing; top: number }): ReactNode {
  const y = makeShareScale(top + SHARES - 8, top + 8)
  const right = drawing.width - RIGHT
  return (
    <>
      <path d={`M${LEFT} ${top}V${top + SHARES - 4}H${right}`} className="frame" />
      <path d={`M${LEFT} ${y.place(SIGNIFICANT)}H${right}`} className="limit" />
      <text x={LEFT - 6} y={y.place(1) + 4} textAnchor="end" className="axis">
        p = 1
      </text>
      <text x={LEFT - 6} y={y.place(SIGNIFICANT) + 4} textAnchor="end" className="axis strong">
        {SIGNIFICANT}
      </text>
      {drawing.analysis.evaluations.map((look, index) =>
        look.pValue === undefined ? null : <circle key={index} cx={drawing.x(look)} cy={y.place(look.pValue)} r={3} className={look.pValue <= SIGNIFICANT && isFailure(look) ? 'share bad' : 'share'} />,
      )}
    </>
  )
}

/** What the signs of the picture mean. */
export function ChartLegend({ analysis }: { analysis: Analysis }): ReactNode {
  const [first, second] = nameSides(analysis.strategy)
  const expected = describeExpected(analysis)
  return (
    <p className="legend soft small">
      <span className="key sample">{first}</span>
      {second && <span className="key control">{second}</span>}
      {!second && expected && <span className="key expected">expected {expected}</span>}
      {second && <span className="key share">p-value: {SIGNIFICANT} or less differs</span>}
    </p>
  )
}
