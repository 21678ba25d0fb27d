// SPDX-License-Identifier: Apache-2.0
// What merging a branch would deploy and change, before it is merged.
import { Code, ConnectError } from '@connectrpc/connect'
import { type FormEvent, type ReactNode, useEffect, useState } from 'react'
import { pipeds } from '../api/clients'
import { explainShortly } from '../api/errors'
import { programs } from '../api/programs'
import type { ApplicationPlanPreviewResult, PlanPreviewCommandResult, PluginPlanPreviewResult } from '../api/gen/pipecd_wire/model/planpreview_pb'
import { SyncStrategy } from '../api/gen/pipecd_wire/model/common_pb'
import { Kind, ofKinds } from '../lib/concerns'
import { hasChanges } from '../lib/diff'
import { useQuery } from '../lib/query'
import { Link, useSearch } from '../lib/router'
import { useSession } from '../lib/session'
import { onChanges } from '../live/live'
import { DiffView, Empty, ErrorBox, Labels, Loading, Panel, Status, useTitle } from '../ui/basics'

export function Previews(): ReactNode {
  useTitle('Previews')
  const session = useSession()
  const [search] = useSearch()
  const commands = (search.get('commands') ?? '').split(',').filter((id) => id !== '')
  return (
    <div className="stack wide">
      <h1>Previews</h1>
      {session.can('APIService/RequestPlanPreview') && <Ask />}
      {commands.length > 0 ? (
        <section className="stack" aria-label="What would change">
          {commands.map((id) => (
            <Answer key={id} commandId={id} />
          ))}
        </section>
      ) : (
        <div className="panel">
          <Empty title="Nothing is previewed yet" command="pipectl plan-preview --help">
            <p>A preview says what merging a branch would deploy and change. Nothing is deployed by it. A build can ask too:</p>
          </Empty>
        </div>
      )}
    </div>
  )
}

function Ask(): ReactNode {
  const [search, setSearch] = useSearch()
  const { data, error: failed, again } = useQuery('pipeds', () => pipeds.listPipeds({}), ofKinds(Kind.PIPED))
  const [chosen, setChosen] = useState(search.get('repository') ?? '')
  const [branch, setBranch] = useState(search.get('branch') ?? '')
  const [commit, setCommit] = useState(search.get('commit') ?? '')
  const [error, setError] = useState('')
  const [isBusy, setBusy] = useState(false)
  if (!data) return failed ? <ErrorBox error={failed} again={again} /> : <Loading />
  const known = new Map<string, { remote: string; branch: string }>()
  for (const { piped } of data.pipeds) {
    if (piped?.disabled) continue
    for (const { remote, branch: base } of piped?.repositories ?? []) known.set(`${remote} ${base}`, { remote, branch: base })
  }
  const word = known.has(chosen) ? chosen : ([...known.keys()][0] ?? '')
  const repository = known.get(word)
  if (!repository)
    return (
      <div className="panel">
        <Empty title="No piped has told of a repository" command="pipectl piped list">
          <p>Previews are made by the pipeds that deploy from the repository.</p>
        </Empty>
      </div>
    )
  const { remote, branch: base } = repository
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault()
    setBusy(true)
    setError('')
    try {
      const { commands } = await programs.requestPlanPreview({ repoRemoteUrl: remote, baseBranch: base, headBranch: branch.trim(), headCommit: commit.trim() })
      if (commands.length === 0) setError('No enabled piped has this repository any more.')
      else setSearch({ repository: word, branch: branch.trim(), commit: commit.trim(), commands: commands.join(',') })
    } catch (failure) {
      setError(explainShortly(failure))
    } finally {
      setBusy(false)
    }
  }
  return (
    <Panel title="Preview a branch">
      <form className="body stack narrow" onSubmit={(event) => void submit(event)}>
        <label className="field">
          Repository, and the branch that is deployed
          <select value={word} onChange={(event) => setChosen(event.target.value)}>
            {[...known].map(([key, each]) => (
              <option key={key} value={key}>
                {each.remote} ({each.branch})
              </option>
            ))}
          </select>
        </label>
        <label className="field">
          Branch that would be merged
          <input value={branch} onChange={(event) => setBranch(event.target.value)} required spellCheck={false} />
        </label>
        <label className="field">
          Its newest commit
          <input className="mono" value={commit} onChange={(event) => setCommit(event.target.value)} required spellCheck={false} placeholder="the whole hash" />
        </label>
        {error && (
          <p className="bad" role="alert">
            {error}
          </p>
        )}
        <div>
          <button type="submit" className="primary" disabled={isBusy || branch.trim() === '' || commit.trim() === ''}>
            Preview
          </button>
        </div>
      </form>
    </Panel>
  )
}

const LONGEST_SECONDS = 300

/** What one piped answers; read again when its command changes, and when its time is over. */
function useAnswer(commandId: string): { result: PlanPreviewCommandResult | undefined; error: string } {
  const [result, setResult] = useState<PlanPreviewCommandResult>()
  const [error, setError] = useState('')
  useEffect(() => {
    let isOver = false
    async function look(): Promise<void> {
      try {
        const { results } = await programs.getPlanPreviewResults({ commands: [commandId], commandHandleTimeout: BigInt(LONGEST_SECONDS) })
        if (isOver) return
        setResult(results[0])
        finish()
      } catch (failure) {
        // Not found: it is still at work.
        if (isOver || ConnectError.from(failure).code === Code.NotFound) return
        setError(explainShortly(failure))
        finish()
      }
    }
    const stop = onChanges((changes) => {
      if (changes === 'everything' || changes.some((change) => change.kind === Kind.COMMAND && change.id === commandId)) void look()
    })
    const timer = setTimeout(() => void look(), (LONGEST_SECONDS + 1) * 1000)
    function finish(): void {
      isOver = true
      stop()
      clearTimeout(timer)
    }
    void look()
    return finish
  }, [commandId])
  return { result, error }
}

function Answer({ commandId }: { commandId: string }): ReactNode {
  const { result, error } = useAnswer(commandId)
  if (error || result?.error)
    return (
      <div className="notice bad" role="alert">
        <Status shown={{ word: result?.pipedName ? `${result.pipedName} made no preview` : 'There is no preview', icon: 'failed', tone: 'bad' }} />
        <p className="anywhere">{error || result?.error}</p>
      </div>
    )
  if (!result)
    return (
      <div className="notice" role="status">
        <Status shown={{ word: 'A piped works it out', icon: 'busy', tone: 'busy' }} />
      </div>
    )
  if (result.results.length === 0)
    return (
      <div className="notice" role="status">
        <p>The change touches no application of {result.pipedName}.</p>
      </div>
    )
  return (
    <>
      {result.results.map((each) => (
        <ApplicationPreview key={each.applicationId} found={each} />
      ))}
    </>
  )
}

const HOW: Record<number, string> = {
  [SyncStrategy.AUTO]: 'would be deployed',
  [SyncStrategy.QUICK_SYNC]: 'would be deployed at once (quick sync)',
  [SyncStrategy.PIPELINE]: 'would be deployed through its pipeline',
}

function ApplicationPreview({ found }: { found: ApplicationPlanPreviewResult }): ReactNode {
  return (
    <section className="panel" aria-label={found.applicationName}>
      <header>
        <h2>
          <Link to={`/applications/${found.applicationId}`}>{found.applicationName}</Link>
        </h2>
        <span className="soft">{found.noChange ? 'would be deployed, and nothing would change' : HOW[found.syncStrategy]}</span>
        <Labels labels={found.labels} />
        <code className="soft small push hide-phone">{found.applicationDirectory}</code>
      </header>
      <div className="body stack">
        {found.error && (
          <p className="bad anywhere" role="alert">
            {found.error}
          </p>
        )}
        {found.pluginPlanResults.map((plan, index) => (
          <PluginPreview key={index} plan={plan} />
        ))}
      </div>
    </section>
  )
}

function PluginPreview({ plan }: { plan: PluginPlanPreviewResult }): ReactNode {
  const decoder = new TextDecoder()
  const details = decoder.decode(plan.planDetails)
  return (
    <div className="stack">
      <p>
        <b>{plan.pluginName}</b>
        {plan.deployTarget && ` to ${plan.deployTarget}`}: <span className="anywhere">{decoder.decode(plan.planSummary) || 'no summary'}</span>
      </p>
      {details.trim() &&
        (plan.diffLanguage === 'diff' || hasChanges(details) ? (
          <DiffView text={details} />
        ) : (
          <pre className="text-block" tabIndex={0}>
            {details}
          </pre>
        ))}
    </div>
  )
}
