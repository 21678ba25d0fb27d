// SPDX-License-Identifier: Apache-2.0
// The picture of a pipeline: stages from left to right, and below them what runs to undo them.
import { type ReactNode, useEffect, useRef } from 'react'
import type { PipelineStage } from '../api/gen/pipecd_wire/model/deployment_pb'
import { StageStatus } from '../api/gen/pipecd_wire/model/deployment_pb'
import { fitCards, layOut } from '../lib/graph'
import { useRoom } from '../lib/room'
import { findNote, type StageTimes } from '../model/stages'
import { showStage } from '../model/status'
import { Status, Took } from './basics'
import { Icon } from './icons'

const HEIGHT = 84
const GAP_Y = 14

interface Props {
  stages: PipelineStage[]
  times: Map<string, StageTimes>
  chosenId: string | undefined
  onChoose: (stage: PipelineStage) => void
}

export function PipelineGraph({ stages, times, chosenId, onChoose }: Props): ReactNode {
  const forward = stages.filter((stage) => !stage.rollback)
  const rollback = stages.filter((stage) => stage.rollback)
  if (stages.length === 0) return null
  return (
    <section className="panel pipeline" aria-label="Pipeline">
      <Part stages={forward} nodes={forward} times={times} chosenId={chosenId} onChoose={onChoose} name="Stages" />
      {rollback.length > 0 && (
        <div className={`rollback-part${rollback.every((stage) => stage.status === StageStatus.STAGE_NOT_STARTED_YET) ? ' unused' : ''}`}>
          <h3 className="part-name">
            <Icon name="back" /> Rollback
            {rollback.every((stage) => stage.status === StageStatus.STAGE_NOT_STARTED_YET) && <span className="soft small"> runs only if a stage fails or is cancelled</span>}
          </h3>
          <Part
            stages={rollback}
            nodes={rollback.map((stage, index) => ({ id: stage.id, requires: rollback[index - 1] ? [rollback[index - 1]!.id] : [] }))}
            times={times}
            chosenId={chosenId}
            onChoose={onChoose}
            name="Rollback stages"
          />
        </div>
      )}
    </section>
  )
}

const EDGES = 6

interface PartProps extends Props {
  nodes: { id: string; requires: readonly string[] }[]
  name: string
}

function Part({ stages, nodes, times, chosenId, onChoose, name }: PartProps): ReactNode {
  const box = useRef<HTMLDivElement>(null)
  const { columns, edges } = layOut(nodes)
  const { width: cardWidth, gap: gapX } = fitCards(columns.length, useRoom(box) - EDGES)
  const places = new Map<string, { x: number; y: number }>()
  const rows = Math.max(1, ...columns.map((column) => column.length))
  for (const [column, ids] of columns.entries()) {
    const top = ((rows - ids.length) * (HEIGHT + GAP_Y)) / 2
    for (const [row, id] of ids.entries()) places.set(id, { x: column * (cardWidth + gapX), y: top + row * (HEIGHT + GAP_Y) })
  }
  const width = columns.length * (cardWidth + gapX) - gapX
  const height = rows * (HEIGHT + GAP_Y) - GAP_Y
  const running = stages.find((stage) => stage.status === StageStatus.STAGE_RUNNING)?.id
  const wanted = running ?? (stages.some((stage) => stage.id === chosenId) ? chosenId : undefined)
  useEffect(() => {
    const place = places.get(wanted ?? '')
    // What runs, else the one that is chosen, is in sight also where the pipeline is wider than the screen.
    if (place && box.current) box.current.scrollLeft = place.x - box.current.clientWidth / 2 + cardWidth / 2
  }, [wanted, cardWidth])
  return (
    <div className="graph" ref={box} role="group" aria-label={name} tabIndex={width > 600 ? 0 : -1}>
      <div className="graph-space" style={{ width, height }}>
        <svg width={width} height={height} aria-hidden="true">
          {edges.map(({ from, to }) => {
            const begin = places.get(from)
            const end = places.get(to)
            if (!begin || !end) return null
            const [x1, y1, x2, y2] = [begin.x + cardWidth, begin.y + HEIGHT / 2, end.x, end.y + HEIGHT / 2]
            const middle = (x1 + x2) / 2
            return <path key={`${from} ${to}`} d={`M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`} />
          })}
        </svg>
        <ol>
          {stages.map((stage) => {
            const place = places.get(stage.id) ?? { x: 0, y: 0 }
            return (
              <li key={stage.id} style={{ left: place.x, top: place.y, width: cardWidth, height: HEIGHT }}>
                <StageCard stage={stage} times={times.get(stage.id)} isChosen={stage.id === chosenId} onChoose={() => onChoose(stage)} />
              </li>
            )
          })}
        </ol>
      </div>
    </div>
  )
}

function StageCard({ stage, times, isChosen, onChoose }: { stage: PipelineStage; times: StageTimes | undefined; isChosen: boolean; onChoose: () => void }): ReactNode {
  const shown = showStage(stage)
  const text = findNote(stage.metadata) || stage.desc || stage.statusReason
  return (
    <button type="button" className={`stage-card ${shown.tone}`} aria-pressed={isChosen} onClick={onChoose} data-stage={stage.name} data-status={StageStatus[stage.status]}>
      <span className="stage-name cut" title={stage.name}>
        {stage.name}
      </span>
      <span className="stage-desc soft small">
        <span className="cut" title={text}>
          {text || '\u00a0'}
        </span>
        {times && times.began > 0 && (
          <span className="push">
            <Took from={times.began} to={times.ended} />
          </span>
        )}
      </span>
      <span className="stage-foot">
        <Status shown={shown} />
      </span>
    </button>
  )
}
