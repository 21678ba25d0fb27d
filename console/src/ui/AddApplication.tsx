// SPDX-License-Identifier: Apache-2.0
// Adding applications that pipeds have found in git.
import { type ReactNode, useState } from 'react'
import { applications, pipeds } from '../api/clients'
import { explainShortly } from '../api/errors'
import type { ApplicationInfo } from '../api/gen/pipecd_wire/model/common_pb'
import { useQuery } from '../lib/query'
import { navigate } from '../lib/router'
import { Empty, Labels } from './basics'
import { Dialog, toast } from './dialogs'
import { groupTargets, listTargets, TargetChoice } from './TargetChoice'

export function AddApplication({ offered, onClose }: { offered: ApplicationInfo[]; onClose: () => void }): ReactNode {
  const [chosen, setChosen] = useState<ApplicationInfo>()
  return (
    <Dialog title={chosen ? `Add ${chosen.name}` : 'Add an application'} onClose={onClose} isWide>
      {chosen ? <Confirm info={chosen} onBack={() => setChosen(undefined)} onClose={onClose} /> : <Choose offered={offered} onChoose={setChosen} onClose={onClose} />}
    </Dialog>
  )
}

function Choose({ offered, onChoose, onClose }: { offered: ApplicationInfo[]; onChoose: (info: ApplicationInfo) => void; onClose: () => void }): ReactNode {
  return (
    <>
      {offered.length === 0 ? (
        <Empty title="No piped has found one that is not added yet" command="pipectl application add --help">
          <p>Commit an application file to a repository that a piped watches: it shows here by itself. Or name it by hand:</p>
        </Empty>
      ) : (
        <ul className="list panel">
          {offered.map((info) => (
            <li key={`${info.pipedId}/${info.repoId}/${info.path}/${info.configFilename}`}>
              <div className="row">
                <span className="strong">{info.name}</span>
                <Labels labels={info.labels} />
                <button type="button" className="push" onClick={() => onChoose(info)} aria-label={`Choose ${info.name}`}>
                  Choose
                </button>
              </div>
              <code className="soft small anywhere">
                {info.repoId}: {info.path}/{info.configFilename}
              </code>
            </li>
          ))}
        </ul>
      )}
      <div className="buttons">
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </>
  )
}

function Confirm({ info, onBack, onClose }: { info: ApplicationInfo; onBack: () => void; onClose: () => void }): ReactNode {
  const piped = useQuery('pipeds', () => pipeds.listPipeds({})).data?.pipeds.find((each) => each.piped?.id === info.pipedId)?.piped
  const [targets, setTargets] = useState<string[]>([])
  const [error, setError] = useState('')
  const [isBusy, setBusy] = useState(false)
  const offered = listTargets(piped?.plugins ?? [])
  async function add(): Promise<void> {
    setBusy(true)
    try {
      const made = await applications.addApplication({
        name: info.name,
        pipedId: info.pipedId,
        gitPath: { repo: { id: info.repoId }, path: info.path, configFilename: info.configFilename },
        description: info.description,
        labels: info.labels,
        deployTargetsByPlugin: groupTargets(offered, targets),
      })
      toast(`${info.name} is added. Its first deployment begins by itself.`)
      onClose()
      navigate(`/applications/${made.applicationId}`)
    } catch (failure) {
      setError(explainShortly(failure))
      setBusy(false)
    }
  }
  return (
    <>
      <p>
        {piped?.name ?? 'Its piped'} deploys it from <code>{info.path}</code> at once, and then each commit that changes it.
      </p>
      <TargetChoice offered={offered} chosen={targets} onChange={setTargets} />
      {error && (
        <p className="bad" role="alert">
          {error}
        </p>
      )}
      <div className="buttons">
        <button type="button" onClick={onBack}>
          Back
        </button>
        <button type="button" className="primary" onClick={() => void add()} disabled={isBusy}>
          Add {info.name}
        </button>
      </div>
    </>
  )
}
