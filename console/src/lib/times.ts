// SPDX-License-Identifier: Apache-2.0
// Times for people: how long ago, how long it took, and exactly when.

export interface TimestampLike {
  seconds: bigint
  nanos: number
}

/** Unix seconds of a field that is either a number of seconds or a timestamp; 0 for none. */
export function toSeconds(value: bigint | number | TimestampLike | undefined): number {
  if (value === undefined) return 0
  if (typeof value === 'object') return Number(value.seconds) + value.nanos / 1e9
  return Number(value)
}

/** "just now", "5 min ago", "in 2 h", and a date when it is long ago. */
export function formatAgo(seconds: number, now: number): string {
  if (!seconds) return 'never'
  const passed = now - seconds
  const size = Math.abs(passed)
  if (size < 5) return 'just now'
  if (size >= 30 * 86_400) return formatDate(seconds, now)
  const words = formatRough(size)
  return passed < 0 ? `in ${words}` : `${words} ago`
}

function formatRough(seconds: number): string {
  if (seconds < 60) return `${Math.floor(seconds)} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`
  const days = Math.floor(seconds / 86_400)
  return days === 1 ? '1 day' : `${days} days`
}

function formatDate(seconds: number, now: number): string {
  const date = new Date(seconds * 1000)
  const isThisYear = date.getFullYear() === new Date(now * 1000).getFullYear()
  return date.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', ...(isThisYear ? {} : { year: 'numeric' }) })
}

/** "0.4 s", "12 s", "3 min 05 s", "2 h 07 min", "3 d 4 h". */
export function formatDuration(seconds: number): string {
  if (seconds < 0) return '0 s'
  const whole = Math.floor(seconds)
  if (whole < 60) return `${whole} s`
  const minutes = Math.floor(whole / 60)
  if (minutes < 60) return `${minutes} min ${pad(whole % 60)} s`
  const hours = Math.floor(minutes / 60)
  if (hours < 24) return `${hours} h ${pad(minutes % 60)} min`
  return `${Math.floor(hours / 24)} d ${hours % 24} h`
}

/** The exact time in the person's own zone, with the zone. */
export function formatExactly(seconds: number): string {
  const date = new Date(seconds * 1000)
  const offset = -date.getTimezoneOffset()
  const zone = `${offset < 0 ? '-' : '+'}${pad(Math.floor(Math.abs(offset) / 60))}:${pad(Math.abs(offset) % 60)}`
  return `${formatDay(date)} ${formatClock(date)} ${zone}`
}

export function formatDay(date: Date): string {
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`
}

export function formatClock(date: Date): string {
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`
}

function pad(number: number): string {
  return String(number).padStart(2, '0')
}
