// SPDX-License-Identifier: Apache-2.0
// Addresses that people type.

/** What is wrong with an address, before it is sent; empty when nothing is. */
export function findAddressFault(text: string): string {
  if (text === '') return ''
  try {
    const { protocol } = new URL(text)
    return protocol === 'https:' || protocol === 'http:' ? '' : 'It begins with https://'
  } catch {
    return 'It is no address: it begins with https://'
  }
}
