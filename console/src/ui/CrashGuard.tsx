// SPDX-License-Identifier: Apache-2.0
// A mistake in one page does not take the console away.
import { Component, type ReactNode } from 'react'

interface Props {
  children: ReactNode
}

export class CrashGuard extends Component<Props, { message: string }> {
  override state = { message: '' }

  static getDerivedStateFromError(error: unknown): { message: string } {
    return { message: error instanceof Error ? error.message : String(error) }
  }

  override render(): ReactNode {
    if (!this.state.message) return this.props.children
    return (
      <div className="page">
        <div className="notice bad" role="alert">
          <h2>This page has a fault</h2>
          <p>It is the console's, not yours. Nothing was changed by it. Meanwhile, pipectl works in a terminal.</p>
          <p>
            <code>{this.state.message}</code>
          </p>
          <div className="row">
            <button type="button" onClick={() => location.reload()}>
              Load the page again
            </button>
            <a className="button" href="/">
              Home
            </a>
          </div>
        </div>
      </div>
    )
  }
}
