// SPDX-License-Identifier: Apache-2.0
// Icons of our own, drawn with lines on a field of 16 by 16. Each status has a shape that no other has.
import type { ReactNode } from 'react'

const PATHS = {
  home: 'M2.5 7.5 8 3l5.5 4.5M4 6.5V13h8V6.5',
  apps: 'M3 3h4v4H3zM9 3h4v4H9zM3 9h4v4H3zM9 9h4v4H9z',
  deploys: 'M2 8h7M6 4.500 9.500 8 6 11.500M13 3v10',
  agents: 'M3 3.500h10v4H3zM3 8.500h10v4H3zM5.500 5.500h.01M5.500 10.500h.01',
  settings: 'M3 4.500h6M12 4.500h1M3 8h1M7 8h6M3 11.500h5M11 11.500h2M10.500 3.200v2.600M5.500 6.700v2.600M9.500 10.200v2.600',
  chain: 'M6.500 9.500 9.500 6.500M7 4.500l1-1a3 3 0 0 1 4.500 4.500l-1 1M9 11.500l-1 1A3 3 0 0 1 3.500 8l1-1',
  bell: 'M4 11V7a4 4 0 0 1 8 0v4l1 1H3zM7 14h2',
  book: 'M3.500 3h7.500a1.500 1.500 0 0 1 1.500 1.500V13H5a1.500 1.500 0 0 1-1.500-1.500zM6 6h4M6 8.500h4',
  chart: 'M3 13V3M3 13h10M6 11V8M9 11V5M12 11V7',
  menu: 'M2.500 4.500h11M2.500 8h11M2.500 11.500h11',
  search: 'M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM10.500 10.500 14 14',
  close: 'M4 4l8 8M12 4l-8 8',
  copy: 'M5.500 5.500h7v7h-7zM3.500 10.500v-7h7',
  more: 'M3.500 8h.01M8 8h.01M12.500 8h.01',
  down: 'M4 6.500 8 10.500 12 6.500',
  right: 'M6.500 4 10.500 8 6.500 12',
  download: 'M8 2.500V10M5 7.500 8 10.500 11 7.500M3 13h10',
  link: 'M6.500 9.500 9.500 6.500M7 4.500l1-1a3 3 0 0 1 4.500 4.500l-1 1M9 11.500l-1 1A3 3 0 0 1 3.500 8l1-1',
  out: 'M9.500 3H13v3.500M13 3 7.500 8.500M6.500 4H3v9h9V9.500',
  plus: 'M8 3v10M3 8h10',
  back: 'M6 4 2.500 7.500 6 11M3 7.500h6.500a3.500 3.500 0 0 1 0 7H8',
  again: 'M13 8a5 5 0 1 1-1.500-3.500M13 2.500v2.500h-2.500',
  person: 'M8 8a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM3.500 13.500c.5-2.500 2.200-3.500 4.500-3.500s4 1 4.500 3.500',
  pin: 'M6 2.500h4M6.500 2.500v4L4.500 9h7l-2-2.500v-4M8 9v4.500',
  snow: 'M8 2v12M2.800 5l10.400 6M13.200 5 2.800 11',
  hand: 'M4.500 8V4.500M6.800 7.500V3M9.200 7.500V3M11.500 8V4.500M4.500 8c0 3.500 1.200 5.500 3.500 5.500s3.500-2 3.500-5.500',
  git: 'M5 4.500v7M5 9c0-2 6-1 6-3.500M5 4.500a1.300 1.300 0 1 0 0-.01zM5 12.800a1.300 1.300 0 1 0 0-.01zM11 5a1.300 1.300 0 1 0 0-.01z',
  // Status.
  check: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM5.200 8.200l2 2 3.600-4',
  failed: 'M8 2 14.500 13.500h-13zM8 6.500v3M8 11.500h.01',
  busy: 'M8 2.500a5.500 5.500 0 1 1-5.500 5.500M2.500 8A5.500 5.500 0 0 1 4 4.200',
  queued: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.800V8l2.200 1.500',
  paused: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM6.500 6v4M9.500 6v4',
  stopped: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM6.200 6.200h3.600v3.600H6.200z',
  skipped: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM6 6l2.500 2L6 10zM10.300 6v4',
  notyet: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12z',
  unknown: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM6.500 6.500a1.500 1.500 0 1 1 2.200 1.400c-.5.3-.7.500-.7 1.100M8 11.200h.01',
  differs: 'M4.500 6h7M4.500 10h7M10.500 3.500 5.500 12.500',
  ban: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM3.800 3.800l8.400 8.400',
  plug: 'M6 2.500V5M10 2.500V5M4.500 5h7v2.500a3.500 3.500 0 0 1-7 0zM8 11v2.500',
  unplugged: 'M3 3l10 10M6 2.500V4M10 2.500V5h1.500v2.500c0 .6-.1 1-.4 1.500M4.500 5.500v2A3.500 3.500 0 0 0 8 11v2.500',
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name, turning = false }: { name: IconName; turning?: boolean }): ReactNode {
  return (
    <svg className={turning ? 'icon turning' : 'icon'} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.6" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  )
}
