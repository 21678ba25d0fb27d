// SPDX-License-Identifier: Apache-2.0
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'
import './tokens.css'
import './base.css'
import './pages.css'
import { App, prepare } from './App'
import { SessionProvider } from './lib/session'
import { CrashGuard } from './ui/CrashGuard'

const root = document.getElementById('root')
if (!root) throw new Error('the page has no place for the console')
prepare(location.pathname)
createRoot(root).render(
  <StrictMode>
    <CrashGuard>
      <SessionProvider>
        <App />
      </SessionProvider>
    </CrashGuard>
  </StrictMode>,
)
