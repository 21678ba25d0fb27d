// SPDX-License-Identifier: Apache-2.0
import { create, type MessageInitShape } from '@bufbuild/protobuf'
import { describe, expect, test } from 'vitest'
import { ApplicationSchema, ApplicationSyncStatus } from '../src/api/gen/pipecd_wire/model/application_pb'
import { StageStatus } from '../src/api/gen/pipecd_wire/model/deployment_pb'
import { ResourceState_HealthStatus as Health } from '../src/api/gen/pipecd_wire/model/application_live_state_pb'
import { findAddressFault } from '../src/lib/addresses'
import { hasChanges, parseDiff } from '../src/lib/diff'
import { LineStore } from '../src/lib/lines'
import { nameProgram } from '../src/lib/programs'
import { Pace } from '../src/live/pace'
import { buildTrees, type Resource } from '../src/model/livestate'
import { findInteresting, findNote, findTimes } from '../src/model/stages'
import { showSyncOf } from '../src/model/status'

function stage(id: string, status: StageStatus, moment: number, more: { requires?: string[]; rollback?: boolean } = {}) {
  return { id, status, requires: more.requires ?? [], rollback: more.rollback ?? false, completedAt: BigInt(moment), updatedAt: BigInt(moment), createdAt: 100n }
}

describe('findTimes', () => {
  test('a stage began when the one before it ended', () => {
    const times = findTimes([
      stage('a', StageStatus.STAGE_SUCCESS, 110),
      stage('b', StageStatus.STAGE_SUCCESS, 140, { requires: ['a'] }),
      stage('c', StageStatus.STAGE_RUNNING, 141, { requires: ['b'] }),
      stage('d', StageStatus.STAGE_NOT_STARTED_YET, 100, { requires: ['c'] }),
    ])
    expect(times.get('a')).toEqual({ began: 100, ended: 110 })
    expect(times.get('b')).toEqual({ began: 110, ended: 140 })
    expect(times.get('c')).toEqual({ began: 141, ended: 0 })
    expect(times.get('d')).toEqual({ began: 0, ended: 0 })
  })
  test('rollback begins after all that was done', () => {
    const times = findTimes([
      stage('a', StageStatus.STAGE_FAILURE, 120),
      stage('r1', StageStatus.STAGE_SUCCESS, 130, { rollback: true }),
      stage('r2', StageStatus.STAGE_SUCCESS, 150, { rollback: true }),
    ])
    expect(times.get('r1')).toEqual({ began: 120, ended: 130 })
    expect(times.get('r2')).toEqual({ began: 130, ended: 150 })
  })
})

test('what failed is looked at first, then what runs, then what was last', () => {
  const done = stage('a', StageStatus.STAGE_SUCCESS, 1)
  expect(findInteresting([done, stage('b', StageStatus.STAGE_FAILURE, 2), stage('r', StageStatus.STAGE_RUNNING, 3)])).toBe('b')
  expect(findInteresting([done, stage('b', StageStatus.STAGE_RUNNING, 2)])).toBe('b')
  expect(findInteresting([done, stage('b', StageStatus.STAGE_NOT_STARTED_YET, 2)])).toBe('a')
  expect(findInteresting([])).toBeUndefined()
})

test('a difference knows what is added and removed', () => {
  expect(parseDiff('--- a\n+++ b\n@@ 1 @@\n-x\n+y\n z\n').map((line) => line.kind)).toEqual(['place', 'place', 'place', 'removed', 'added', 'same'])
  expect(hasChanges('nothing here')).toBe(false)
})

describe('LineStore', () => {
  const line = (number: number) => ({ number, text: String(number), severity: 0, at: 0 })
  test('knows what it has and what is missing', () => {
    const store = new LineStore()
    store.add([line(501), line(502)])
    store.total = 1000
    expect(store.get(502)?.text).toBe('502')
    expect(store.findMissing(501, 502)).toEqual([])
    expect(store.findMissing(990, 2000)).toEqual([990])
  })
  // One that is lost must not hide the next one, which can be read.
  test('names what is missing once for each block', () => {
    const store = new LineStore()
    store.total = 2000
    expect(store.findMissing(490, 1010)).toEqual([490, 501, 1001])
  })
  // An answer may be shorter than its block: to read the block anew would bring the same lines for ever.
  test('names what is missing behind what was read of a block', () => {
    const store = new LineStore()
    store.add([line(501), line(502)])
    store.total = 1000
    expect(store.findMissing(501, 600)).toEqual([503])
  })
  test('forgets what is far away', () => {
    const store = new LineStore()
    for (let block = 0; block < 100; block += 1) store.add([line(block * 500 + 1)])
    store.forgetFarFrom(1)
    expect(store.get(1)).toBeDefined()
    expect(store.get(99 * 500 + 1)).toBeUndefined()
  })
})

test('the pace slows down, with an end, and begins anew', () => {
  const pace = new Pace(() => 1)
  const waits = Array.from({ length: 12 }, () => pace.next())
  expect(waits[0]).toBe(300)
  expect(waits.at(-1)).toBe(8000)
  pace.reset()
  expect(pace.next()).toBe(300)
})

describe('buildTrees', () => {
  const make = (id: string, parentIds: string[], more: Partial<Resource> = {}): Resource => ({ id, parentIds, name: id, type: 'T', health: Health.HEALTHY, healthText: '', target: 't', plugin: 'p', metadata: {}, createdAt: 0n, ...more })
  test('hangs children under their parents, what is in trouble first', () => {
    const [group] = buildTrees([make('root', []), make('good', ['root']), make('worse', ['root'], { health: Health.UNHEALTHY })])
    expect(group?.roots.map((node) => node.resource.id)).toEqual(['root'])
    expect(group?.roots[0]?.children.map((node) => node.resource.id)).toEqual(['worse', 'good'])
  })
  test('separates deploy targets', () => {
    expect(buildTrees([make('a', [], { target: 'east' }), make('b', [], { target: 'west' })]).map((group) => group.target)).toEqual(['east', 'west'])
  })
  test('loses nothing in a circle', () => {
    const groups = buildTrees([make('a', ['b']), make('b', ['a']), make('c', ['c'])])
    const count = (nodes: { children: unknown[] }[]): number => nodes.reduce((sum, node) => sum + 1 + count(node.children as { children: unknown[] }[]), 0)
    expect(count(groups[0]?.roots ?? [])).toBe(3)
  })
})

test('an application of scripts alone has no live state, which is no trouble', () => {
  const make = (fields: MessageInitShape<typeof ApplicationSchema>) => create(ApplicationSchema, fields)
  expect(showSyncOf(make({})).word).toBe('No live state')
  expect(showSyncOf(make({ platformProvider: 'cluster' })).word).toBe('Not known yet')
  expect(showSyncOf(make({ deployTargetsByPlugin: { files: { deployTargets: ['east'] } } })).word).toBe('Not known yet')
  expect(showSyncOf(make({ deploying: true, syncState: { status: ApplicationSyncStatus.OUT_OF_SYNC } })).word).toBe('Deploying')
  expect(showSyncOf(make({ deploying: true, syncState: { status: ApplicationSyncStatus.INVALID_CONFIG } })).word).toBe('Invalid configuration')
})

test('an address is checked before it is sent', () => {
  expect(findAddressFault('')).toBe('')
  expect(findAddressFault('https://id.example.com/realms/x')).toBe('')
  expect(findAddressFault('javascript:alert(1)')).not.toBe('')
  expect(findAddressFault('id.example.com')).not.toBe('')
})

test('a session says which browser it is in words', () => {
  expect(nameProgram('Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/150.0.0.0 Safari/537.36')).toBe('Chrome 150 on Linux')
  expect(nameProgram('Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Mobile Safari/604.1')).toBe('Safari 18 on iOS')
  expect(nameProgram('Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0')).toBe('Firefox 140 on Windows')
  expect(nameProgram('pipectl/1.0')).toBe('pipectl/1.0')
})

test('a stage shows what its plugin says of it, also an older one', () => {
  expect(findNote({})).toBe('')
  expect(findNote({ 'pipecd/stage-display-metadata': 'Approved by ann' })).toBe('Approved by ann')
  expect(findNote({ ApprovedBy: 'ann' })).toBe('Approved by ann')
  expect(findNote({ 'primary-percentage': '90', 'canary-percentage': '10' })).toBe('primary 90 %, canary 10 %')
})
