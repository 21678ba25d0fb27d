// SPDX-License-Identifier: Apache-2.0
// The numbers of an analysis, as its plugin keeps them with the stage. Any plugin may write such a key: nothing is taken for granted.
import { ANALYSIS_PREFIX as PREFIX } from './stages'
import type { Shown } from './status'

const LARGEST = 64 * 1024
const MOST_ANALYSES = 50
const MOST_EVALUATIONS = 500
const MOST_VALUES = 60
const LONGEST = 1000
/** What is beyond it is drawn as infinite: differences of such numbers are. */
const HUGE = 1e300

export type Verdict = 'EXPECTED' | 'UNEXPECTED' | 'ERROR' | 'NO_DATA'

export interface Sample {
  /** Some of the values, finite or infinite, never NaN. */
  values: number[]
  /** How many there were. */
  count: number
}

export interface AnalysisLook {
  /** Unix seconds. */
  at: number
  verdict: Verdict
  text: string
  warning: string
  sample: Sample
  control: Sample | undefined
  pValue: number | undefined
}

export interface Analysis {
  id: string
  name: string
  kind: string
  strategy: string
  deviation: string
  query: string
  expected: { min?: number; max?: number }
  intervalSeconds: number
  failureLimit: number
  /** Planned and made. */
  looks: number
  done: number
  evaluated: number
  allFailures: number
  /** Those that are not forgotten. */
  countedFailures: number
  /** 0 when none is forgotten. */
  failureWindowSeconds: number
  ended: string
  evaluations: AnalysisLook[]
}

export interface ReadAnalyses {
  analyses: Analysis[]
  /** Keys whose value is nothing that can be drawn. */
  unreadable: string[]
}

export function readAnalyses(metadata: Record<string, string>): ReadAnalyses {
  const keys = Object.keys(metadata)
    .filter((key) => key.startsWith(PREFIX))
    .sort((one, other) => one.localeCompare(other, 'en', { numeric: true }))
    .slice(0, MOST_ANALYSES)
  const found: ReadAnalyses = { analyses: [], unreadable: [] }
  for (const key of keys) {
    const analysis = readAnalysis(key.slice(PREFIX.length), metadata[key] ?? '')
    if (analysis) found.analyses.push(analysis)
    else found.unreadable.push(toText(key))
  }
  found.analyses.sort((one, other) => rank(one) - rank(other))
  return found
}

const KINDS = ['metric', 'log', 'http']

/** What failed comes first, then metrics, logs and checks. */
function rank(analysis: Analysis): number {
  return analysis.countedFailures > analysis.failureLimit ? -2 : KINDS.indexOf(analysis.kind)
}

function readAnalysis(id: string, json: string): Analysis | undefined {
  if (json.length > LARGEST) return undefined
  let raw: unknown
  try {
    raw = JSON.parse(json)
  } catch {
    return undefined
  }
  if (!isObject(raw)) return undefined
  const expected = isObject(raw.expected) ? raw.expected : {}
  const allFailures = toCount(raw.allFailures)
  const windowSeconds = toFinite(raw.failureWindowSeconds) ?? 0
  const remembered = Array.isArray(raw.failures) ? raw.failures.length : 0
  return {
    id: toText(id),
    name: toText(raw.name),
    kind: toText(raw.kind),
    strategy: toText(raw.strategy),
    deviation: toText(raw.deviation),
    query: toText(raw.query),
    expected: { min: toFinite(expected.min), max: toFinite(expected.max) },
    intervalSeconds: Math.max(0, toFinite(raw.intervalSeconds) ?? 0),
    failureLimit: toCount(raw.failureLimit),
    looks: toCount(raw.looks),
    done: toCount(raw.done),
    evaluated: toCount(raw.evaluated),
    allFailures,
    countedFailures: windowSeconds > 0 ? remembered : allFailures,
    failureWindowSeconds: windowSeconds,
    ended: toText(raw.ended),
    evaluations: (Array.isArray(raw.evaluations) ? raw.evaluations.slice(-MOST_EVALUATIONS) : []).flatMap(readLook),
  }
}

const VERDICTS = new Set(['EXPECTED', 'UNEXPECTED', 'ERROR', 'NO_DATA'])

function readLook(raw: unknown): AnalysisLook[] {
  if (!isObject(raw)) return []
  const at = toFinite(raw.at)
  if (at === undefined || at < 0 || at > 1e11 || typeof raw.verdict !== 'string' || !VERDICTS.has(raw.verdict)) return []
  const pValue = toFinite(raw.pValue)
  return [
    {
      at,
      verdict: raw.verdict as Verdict,
      text: toText(raw.text),
      warning: toText(raw.warning),
      sample: readSample(raw.values, raw.count),
      control: Array.isArray(raw.control) ? readSample(raw.control, raw.controlCount) : undefined,
      pValue: pValue !== undefined && pValue >= 0 && pValue <= 1 ? pValue : undefined,
    },
  ]
}

function readSample(raw: unknown, count: unknown): Sample {
  const values = (Array.isArray(raw) ? raw.slice(0, MOST_VALUES) : []).flatMap((each) => {
    const value = toNumber(each)
    return value === undefined ? [] : [value]
  })
  return { values, count: Math.max(values.length, toCount(count)) }
}

function isObject(raw: unknown): raw is Record<string, unknown> {
  return typeof raw === 'object' && raw !== null && !Array.isArray(raw)
}

/** A number, infinite ones too: JSON has these as texts. */
function toNumber(raw: unknown): number | undefined {
  if (raw === 'Infinity') return Infinity
  if (raw === '-Infinity') return -Infinity
  if (typeof raw !== 'number' || Number.isNaN(raw)) return undefined
  return Math.abs(raw) > HUGE ? Math.sign(raw) * Infinity : raw
}

function toFinite(raw: unknown): number | undefined {
  const value = toNumber(raw)
  return value !== undefined && Number.isFinite(value) ? value : undefined
}

function toCount(raw: unknown): number {
  const value = toFinite(raw)
  return value === undefined ? 0 : Math.min(Math.max(0, Math.floor(value)), 1e9)
}

// Control characters, and those that turn the direction of what follows.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

function toText(raw: unknown): string {
  return typeof raw === 'string' ? raw.slice(0, LONGEST).replace(UNSEEN, '\ufffd') : ''
}

export function isFailure(look: AnalysisLook): boolean {
  return look.verdict === 'UNEXPECTED' || look.verdict === 'ERROR'
}

const VERDICT_SHOWN: Record<Verdict, Shown> = {
  EXPECTED: { word: 'As expected', icon: 'check', tone: 'good' },
  UNEXPECTED: { word: 'Not as expected', icon: 'failed', tone: 'bad' },
  ERROR: { word: 'Could not tell', icon: 'unknown', tone: 'bad' },
  NO_DATA: { word: 'No data', icon: 'notyet', tone: 'off' },
}

export function showVerdict(verdict: Verdict): Shown {
  return VERDICT_SHOWN[verdict]
}

/** What an analysis came to, or has come to so far. */
export function showAnalysis(analysis: Analysis, isRunning: boolean): Shown {
  if (analysis.countedFailures > analysis.failureLimit) return { word: 'Failed', icon: 'failed', tone: 'bad' }
  if (analysis.ended) return { word: 'Nothing to compare', icon: 'skipped', tone: 'off' }
  if (analysis.looks > 0 && analysis.done >= analysis.looks) return { word: 'Passed', icon: 'check', tone: 'good' }
  return isRunning ? { word: 'In progress', icon: 'busy', tone: 'busy' } : { word: 'Not finished', icon: 'stopped', tone: 'off' }
}

/** What the two samples of a comparison are. */
export function nameSides(strategy: string): [string, string] {
  if (strategy === 'CANARY_BASELINE') return ['canary', 'baseline']
  if (strategy === 'CANARY_PRIMARY') return ['canary', 'primary']
  if (strategy === 'PREVIOUS') return ['now', 'previous deployment']
  return ['values', '']
}

/** What was expected, in words. */
export function describeExpected({ expected, strategy, deviation }: Analysis): string {
  const words = [expected.min === undefined ? '' : `at least ${formatNumber(expected.min)}`, expected.max === undefined ? '' : `at most ${formatNumber(expected.max)}`].filter(Boolean)
  if (words.length > 0) return words.join(' and ')
  const [, other] = nameSides(strategy)
  if (!other) return ''
  const way = deviation === 'HIGH' ? 'not higher than' : deviation === 'LOW' ? 'not lower than' : 'no different from'
  return `${way} ${other}`
}

export function findMedian(values: readonly number[]): number | undefined {
  const ordered = values.toSorted((one, other) => (one < other ? -1 : one > other ? 1 : 0))
  const half = Math.floor(ordered.length / 2)
  const middle = ordered[half]
  if (middle === undefined || ordered.length % 2 === 1) return middle
  const below = ordered[half - 1] ?? middle
  return below === middle ? middle : below + (middle - below) / 2
}

/** Few digits, and an exponent where there would be many. */
export function formatNumber(value: number, digits = 4): string {
  if (value === Infinity) return '∞'
  if (value === -Infinity) return '-∞'
  if (Number.isNaN(value)) return '-'
  const size = Math.abs(value)
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) return value.toExponential(digits - 2).replace('e+', 'e')
  return String(Number(value.toPrecision(digits)))
}

/** A sample in words: its middle, its ends and its size. */
export function describeSample({ values, count }: Sample): string {
  if (values.length === 0) return 'none'
  const middle = findMedian(values) ?? 0
  if (count === 1) return formatNumber(middle)
  const low = values.reduce((one, other) => Math.min(one, other))
  const high = values.reduce((one, other) => Math.max(one, other))
  return `${formatNumber(middle)} (${formatNumber(low)} to ${formatNumber(high)}, ${count} values)`
}

/** Each warning once, with the number of evaluations that have it; the most frequent first. */
export function countWarnings(analysis: Analysis): [string, number][] {
  const counted = new Map<string, number>()
  for (const { warning } of analysis.evaluations) if (warning) counted.set(warning, (counted.get(warning) ?? 0) + 1)
  return [...counted].sort((one, other) => other[1] - one[1]).slice(0, 3)
}
