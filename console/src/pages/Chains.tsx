// SPDX-License-Identifier: Apache-2.0
// Deployments of several applications that follow each other.
import { type ReactNode, useState } from 'react'
import { web } from '../api/clients'
import type { DeploymentChain } from '../api/gen/pipecd_wire/model/deployment_chain_pb'
import { Kind, ofKinds } from '../lib/concerns'
import { useQuery } from '../lib/query'
import { Link } from '../lib/router'
import { showChain, showDeployment } from '../model/status'
import { Empty, ErrorBox, Loading, Status, Time, Took, useTitle } from '../ui/basics'
import { toastError } from '../ui/dialogs'

const PAGE = 30

const EXAMPLE = `spec:
  postSync:
    chain:
      applications:
        - name: database
        - labels: {env: staging}`

export function Chains(): ReactNode {
  useTitle('Chains')
  const { data, error, again } = useQuery('chains', () => web.listDeploymentChains({ pageSize: PAGE }), ofKinds(Kind.DEPLOYMENT_CHAIN))
  const [older, setOlder] = useState<DeploymentChain[]>([])
  const [cursor, setCursor] = useState<string>()
  if (!data) return error ? <ErrorBox error={error} again={again} /> : <Loading lines={6} />
  const next = cursor ?? (data.deploymentChains.length < PAGE ? '' : data.cursor)
  async function readMore(): Promise<void> {
    try {
      const page = await web.listDeploymentChains({ pageSize: PAGE, cursor: next })
      setOlder((before) => [...before, ...page.deploymentChains])
      setCursor(page.deploymentChains.length < PAGE ? '' : page.cursor)
    } catch (failure) {
      toastError(failure)
    }
  }
  const all = [...data.deploymentChains, ...older]
  return (
    <div className="stack wide">
      <h1>Chains</h1>
      {all.length === 0 && (
        <div className="panel">
          <Empty title="There is no chain yet" command="pipectl chain list">
            <p>An application can deploy others after itself, one block after the other. Its file names them:</p>
            <pre className="text-block example" tabIndex={0} aria-label="A chain in an application file">
              {EXAMPLE}
            </pre>
            <p>The next time it is deployed, its chain shows here, and in a terminal:</p>
          </Empty>
        </div>
      )}
      {all.map((chain) => (
        <section className="panel" key={chain.id} aria-label={`Chain ${chain.id}`}>
          <header>
            <Status shown={showChain(chain.status)} pill />
            <span className="soft">
              <Time at={chain.createdAt} />, <Took from={chain.createdAt} to={chain.completedAt} />
            </span>
            <code className="soft small push hide-phone">{chain.id}</code>
          </header>
          <ol className="blocks">
            {chain.blocks.map((block, index) => (
              <li key={index}>
                <h3>
                  <span className="soft">{index + 1}</span> <Status shown={showChain(block.status)} />
                </h3>
                {block.nodes.length === 0 && <p className="soft small">no application</p>}
                <ul className="stack">
                  {block.nodes.map((node) => (
                    <li key={node.applicationRef?.applicationId}>
                      {node.deploymentRef ? (
                        <>
                          <Status shown={showDeployment(node.deploymentRef.status)} /> <Link to={`/deployments/${node.deploymentRef.deploymentId}`}>{node.applicationRef?.applicationName}</Link>
                        </>
                      ) : (
                        <Link to={`/applications/${node.applicationRef?.applicationId ?? ''}`}>{node.applicationRef?.applicationName}</Link>
                      )}
                      {node.deploymentRef?.statusReason && <p className="soft small anywhere">{node.deploymentRef.statusReason}</p>}
                    </li>
                  ))}
                </ul>
              </li>
            ))}
          </ol>
        </section>
      ))}
      {next !== '' && (
        <div>
          <button type="button" onClick={() => void readMore()}>
            Show older ones
          </button>
        </div>
      )}
    </div>
  )
}
