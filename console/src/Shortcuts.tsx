// SPDX-License-Identifier: Apache-2.0
import { Fragment, type ReactNode } from 'react'
import type { Place } from './Shell'
import { Dialog } from './ui/dialogs'

export function Shortcuts({ places, onClose }: { places: Place[]; onClose: () => void }): ReactNode {
  const keys: [string[], string][] = [
    [['Ctrl', 'K'], 'Find an application, a deployment, a page'],
    [['/'], 'Search on this page'],
    [['?'], 'Show this'],
    [['Esc'], 'Close what is open'],
    ...places.map((place): [string[], string] => [['g', place.key], `Go to ${place.name}`]),
    [['Enter'], 'On a log line number: link to this line'],
  ]
  return (
    <Dialog title="Shortcuts" onClose={onClose}>
      <div className="shortcuts">
        {keys.map(([pressed, what]) => (
          <Fragment key={what}>
            <span className="row tight">
              {pressed.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </span>
            <span>{what}</span>
          </Fragment>
        ))}
      </div>
      <div className="buttons">
        <button type="button" className="primary" onClick={onClose} autoFocus>
          Close
        </button>
      </div>
    </Dialog>
  )
}
