// SPDX-License-Identifier: Apache-2.0
// The program of a session, in the words of people.

const BROWSERS: [RegExp, string][] = [
  [/Edg\/(\d+)/, 'Edge'],
  [/OPR\/(\d+)/, 'Opera'],
  [/(?:Headless)?Chrome\/(\d+)/, 'Chrome'],
  [/Firefox\/(\d+)/, 'Firefox'],
  [/Version\/(\d+).*Safari\//, 'Safari'],
]
const SYSTEMS: [RegExp, string][] = [
  [/Android/, 'Android'],
  [/iPhone|iPad/, 'iOS'],
  [/Windows/, 'Windows'],
  [/Mac OS X/, 'macOS'],
  [/Linux|X11/, 'Linux'],
]

/** Says `Chrome 150 on Linux`; what is no browser stays as it is. */
export function nameProgram(userAgent: string): string {
  for (const [pattern, name] of BROWSERS) {
    const found = pattern.exec(userAgent)
    if (!found) continue
    const system = SYSTEMS.find(([each]) => each.test(userAgent))?.[1]
    return `${name} ${found[1]}${system ? ` on ${system}` : ''}`
  }
  return userAgent
}
