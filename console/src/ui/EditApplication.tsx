// SPDX-License-Identifier: Apache-2.0
// Changing which piped deploys an application, where to, and from which file.
import { type FormEvent, type ReactNode, useState } from 'react'
import { pipeds, web } from '../api/clients'
import { explainShortly } from '../api/errors'
import type { Application } from '../api/gen/pipecd_wire/model/application_pb'
import { Kind, ofKinds } from '../lib/concerns'
import { useQuery } from '../lib/query'
import { ErrorBox, Loading } from './basics'
import { Dialog, toast } from './dialogs'
import { groupTargets, listTargets, TargetChoice, toTargetWords } from './TargetChoice'

export function EditApplication({ application, onClose }: { application: Application; onClose: () => void }): ReactNode {
  const { data, error, again } = useQuery('pipeds', () => pipeds.listPipeds({}), ofKinds(Kind.PIPED))
  return (
    <Dialog title={`Change ${application.name}`} onClose={onClose} isWide>
      {data ? <Form application={application} found={data} onClose={onClose} /> : error ? <ErrorBox error={error} again={again} /> : <Loading />}
    </Dialog>
  )
}

type Found = Awaited<ReturnType<typeof pipeds.listPipeds>>

function Form({ application, found, onClose }: { application: Application; found: Found; onClose: () => void }): ReactNode {
  const [pipedId, setPipedId] = useState(application.pipedId)
  const [file, setFile] = useState(application.gitPath?.configFilename ?? '')
  const [chosen, setChosen] = useState(() => toTargetWords(application.deployTargetsByPlugin))
  const [error, setError] = useState('')
  const choices = found.pipeds.map((item) => item.piped).filter((piped) => piped && (!piped.disabled || piped.id === application.pipedId))
  // What it has now stays on offer, even if the piped does not tell of it at present.
  const known = listTargets(choices.find((piped) => piped?.id === pipedId)?.plugins ?? [])
  const own = pipedId === application.pipedId ? toTargetWords(application.deployTargetsByPlugin) : []
  const offered = [...known, ...own.filter((word) => !known.some((each) => each.word === word)).map((word) => ({ word, plugin: word.split('/')[0] ?? '', target: word.split('/').slice(1).join('/') }))]
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault()
    try {
      await web.updateApplication({
        applicationId: application.id,
        name: application.name,
        pipedId,
        kind: application.kind,
        platformProvider: application.platformProvider,
        configFilename: file.trim(),
        deployTargetsByPlugin: groupTargets(offered, chosen),
      })
      onClose()
      toast(`${application.name} is changed. It counts from the next deployment on.`)
    } catch (failure) {
      setError(explainShortly(failure))
    }
  }
  return (
    <form onSubmit={(event) => void submit(event)}>
      <p>Name, labels and pipeline come from its file in git. What is set here counts from the next deployment on; what runs now goes on running.</p>
      <label className="field">
        The piped that deploys it
        <select value={pipedId} onChange={(event) => setPipedId(event.target.value)}>
          {choices.map((piped) => (
            <option key={piped?.id} value={piped?.id}>
              {piped?.name}
            </option>
          ))}
        </select>
      </label>
      <label className="field">
        <span>
          Its file, in <code>{application.gitPath?.path}</code>
        </span>
        <input value={file} onChange={(event) => setFile(event.target.value)} required spellCheck={false} />
      </label>
      <TargetChoice offered={offered} chosen={chosen} onChange={setChosen} />
      {error && (
        <p className="bad" role="alert">
          {error}
        </p>
      )}
      <div className="buttons">
        <button type="button" onClick={onClose}>
          Back
        </button>
        <button type="submit" className="primary" disabled={file.trim() === ''}>
          Change it
        </button>
      </div>
    </form>
  )
}
