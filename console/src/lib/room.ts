// SPDX-License-Identifier: Apache-2.0
// How much room a picture has.
import { type RefObject, useLayoutEffect, useState } from 'react'

/** The width inside a box, also after the window has changed; 0 before it is known. */
export function useRoom(box: RefObject<HTMLElement | null>): number {
  const [room, setRoom] = useState(0)
  useLayoutEffect(() => {
    const element = box.current
    if (!element) return
    const measure = (): void => setRoom(element.clientWidth)
    measure()
    const observer = new ResizeObserver(measure)
    observer.observe(element)
    return () => observer.disconnect()
  }, [box])
  return room
}
