// SPDX-License-Identifier: Apache-2.0
// Dialogs that say what will happen, and short messages about what did.
import { type FormEvent, type ReactNode, useEffect, useId, useRef, useState, useSyncExternalStore } from 'react'
import { explainShortly } from '../api/errors'
import { Icon } from './icons'
import { Link } from '../lib/router'

// Toasts.

interface Toast {
  id: number
  text: string
  isError: boolean
  link: { to: string; text: string } | undefined
}

let toasts: Toast[] = []
let nextId = 1
const listeners = new Set<() => void>()

function change(next: Toast[]): void {
  toasts = next
  for (const listener of listeners) listener()
}

function removeToast(id: number): void {
  change(toasts.filter((toast) => toast.id !== id))
}

export function toast(text: string, how: { isError?: boolean; link?: { to: string; text: string } } = {}): void {
  const id = nextId++
  change([...toasts.slice(-3), { id, text, isError: how.isError ?? false, link: how.link }])
  // Errors stay until they are closed.
  if (!how.isError) setTimeout(() => removeToast(id), 6000)
}

export function toastError(error: unknown): void {
  toast(explainShortly(error), { isError: true })
}

export function Toasts(): ReactNode {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => toasts,
  )
  return (
    <div className="toasts" role="region" aria-label="Messages" aria-live="polite">
      {shown.map((each) => (
        <div className={each.isError ? 'toast bad' : 'toast'} key={each.id} role={each.isError ? 'alert' : 'status'}>
          <p>
            {each.text} {each.link && <Link to={each.link.to}>{each.link.text}</Link>}
          </p>
          <button type="button" className="plain icon-only" aria-label="Close the message" onClick={() => removeToast(each.id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  )
}

// Dialogs.

export function Dialog({ title, onClose, children, isWide = false }: { title: string; onClose: () => void; children: ReactNode; isWide?: boolean }): ReactNode {
  const ref = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const dialog = ref.current
    if (dialog && !dialog.open) dialog.showModal()
    return () => dialog?.close()
  }, [])
  return (
    <dialog
      ref={ref}
      className={isWide ? 'wide' : ''}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault()
        onClose()
      }}
      onClick={(event) => {
        if (event.target === ref.current) onClose()
      }}
    >
      <div className="inside">
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </dialog>
  )
}

export interface Question {
  title: string
  /** What will happen. */
  text: ReactNode
  /** The word on the button: the thing that is done. */
  action: string
  isDangerous?: boolean
  /** A reason or comment that is asked for. */
  field?: { label: string; isRequired?: boolean }
  /** The word that has to be typed first, for what cannot be undone. */
  typeToConfirm?: string
  isWide?: boolean
  /** Does it; the dialog stays open and shows the error when this fails. */
  act: (text: string) => Promise<void>
}

let question: Question | undefined
const questionListeners = new Set<() => void>()

/** Asks before something is done. */
export function ask(next: Question): void {
  question = next
  for (const listener of questionListeners) listener()
}

function closeQuestion(): void {
  question = undefined
  for (const listener of questionListeners) listener()
}

export function Questions(): ReactNode {
  const current = useSyncExternalStore(
    (listener) => {
      questionListeners.add(listener)
      return () => questionListeners.delete(listener)
    },
    () => question,
  )
  return current ? <QuestionDialog key={current.title} question={current} /> : null
}

function QuestionDialog({ question: asked }: { question: Question }): ReactNode {
  const [text, setText] = useState('')
  const [typed, setTyped] = useState('')
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState('')
  const canAct = !isBusy && (!asked.field?.isRequired || text.trim() !== '') && (!asked.typeToConfirm || typed === asked.typeToConfirm)
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault()
    if (!canAct) return
    setBusy(true)
    setError('')
    try {
      await asked.act(text.trim())
      closeQuestion()
    } catch (failure) {
      setError(explainShortly(failure))
      setBusy(false)
    }
  }
  return (
    <Dialog title={asked.title} onClose={closeQuestion} isWide={asked.isWide}>
      <form className="bare" onSubmit={(event) => void submit(event)}>
        <div className="stack">{asked.text}</div>
        {asked.field && (
          <label className="field">
            <span>
              {asked.field.label} {!asked.field.isRequired && <small>(optional)</small>}
            </span>
            <input value={text} onChange={(event) => setText(event.target.value)} autoFocus />
          </label>
        )}
        {asked.typeToConfirm && (
          <label className="field">
            <span>
              Type <code>{asked.typeToConfirm}</code> to confirm
            </span>
            <input value={typed} onChange={(event) => setTyped(event.target.value)} autoComplete="off" />
          </label>
        )}
        {error && (
          <p className="bad" role="alert">
            {error}
          </p>
        )}
        <div className="buttons">
          <button type="button" onClick={closeQuestion}>
            Back
          </button>
          <button type="submit" className={asked.isDangerous ? 'primary danger' : 'primary'} disabled={!canAct}>
            {asked.action}
          </button>
        </div>
      </form>
    </Dialog>
  )
}
