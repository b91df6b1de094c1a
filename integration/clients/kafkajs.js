// kafkajs, driven as driver_test.go says: one JSON command a line on standard input, one answer a line.
'use strict'
const readline = require('readline')
const { createRequire } = require('module')
const need = createRequire(process.env.OTTLA_NODE_MODULES + '/') // where setup.sh put the packages

const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = need('kafkajs')
const [, , bootstrap] = process.argv

const codecs = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
}
CompressionCodecs[CompressionTypes.Snappy] = need('kafkajs-snappy')
const lz4 = need('lz4-napi')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4.compressFrame(encoder.buffer),
  decompress: async buffer => lz4.decompressFrame(buffer),
})
const zstd = new Promise(done => need('zstd-codec').ZstdCodec.run(z => done(new z.Streaming())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from((await zstd).compress(encoder.buffer)),
  decompress: async buffer => Buffer.from((await zstd).decompress(buffer)),
})

const log = () => ({ namespace, log }) => console.error(namespace, log.message, log.error || '')
const kafka = new Kafka({
  clientId: 'ottla-integration', brokers: [bootstrap], logLevel: logLevel.ERROR, logCreator: log,
  retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 60 },
})
const say = line => process.stdout.write(JSON.stringify(line) + '\n')

class Member {
  constructor (number, group) {
    this.number = number
    // kafkajs joins anew after a lost connection, and the group then waits for the member that it was: hence the short session
    this.consumer = kafka.consumer({ groupId: group, sessionTimeout: 15000, rebalanceTimeout: 20000, heartbeatInterval: 200, maxWaitTimeInMs: 200, retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 60 } })
    this.ends = new Map() // by topic and partition: what is handed out and not yet committed
  }

  async start (topic) {
    await this.consumer.connect()
    await this.consumer.subscribe({ topic, fromBeginning: true })
    await this.consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: true,
      eachBatch: async ({ batch, isStale, heartbeat }) => {
        if (isStale()) return
        const records = batch.messages.map(m => [batch.partition, Number(m.offset), m.key.toString(), m.value.toString(), Number(m.timestamp)])
        if (records.length > 0) say({ member: this.number, records })
        this.ends.set(`${batch.topic} ${batch.partition}`, { topic: batch.topic, partition: batch.partition, offset: String(Number(batch.lastOffset()) + 1) })
        await heartbeat()
      },
    })
  }

  async commit () {
    const offsets = [...this.ends.values()]
    this.ends.clear()
    if (offsets.length > 0) await this.consumer.commitOffsets(offsets)
  }
}

const admin = kafka.admin()
const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
const members = []

const commands = {
  codecs: async () => Object.keys(codecs),
  create: async ({ topic, partitions }) => {
    if (!await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: partitions, replicationFactor: 1 }] })) throw new Error('the topic existed')
  },
  topics: () => admin.listTopics(),
  leaders: async ({ topic }) => {
    const { topics: [t] } = await admin.fetchTopicMetadata({ topics: [topic] })
    return Object.fromEntries(t.partitions.map(p => [p.partitionId, p.leader]))
  },
  send: async ({ topic, codec, messages }) => {
    for (let i = 0; i < messages.length; i += 2000) {
      await producer.send({
        topic, acks: -1, compression: codecs[codec],
        messages: messages.slice(i, i + 2000).map(([key, value, ms]) => ({ key, value, timestamp: String(ms) })),
      })
    }
  },
  join: async ({ group, topic }) => {
    const m = new Member(members.length + 1, group)
    members.push(m)
    await m.start(topic)
    return m.number
  },
  commit: ({ member }) => members[member - 1].commit(),
  leave: ({ member }) => members[member - 1].consumer.disconnect(),
  groups: async () => (await admin.listGroups()).groups.map(g => g.groupId),
  group: async ({ group }) => {
    const { groups: [g] } = await admin.describeGroups([group])
    return { state: g.state, members: g.members.length }
  },
  committed: async ({ group, topic }) => {
    const [t] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
    return Object.fromEntries(t.partitions.filter(p => Number(p.offset) >= 0).map(p => [p.partition, Number(p.offset)]))
  },
  offset_at: async ({ topic, partition, at }) => {
    // fetchTopicOffsetsByTimestamp puts the end offset where there is none so late: tell the two apart
    const ends = (await admin.fetchTopicOffsets(topic)).find(p => p.partition === partition)
    if (at === -2) return Number(ends.low)
    if (at === -1) return Number(ends.high)
    const found = Number((await admin.fetchTopicOffsetsByTimestamp(topic, at)).find(p => p.partition === partition).offset)
    return found === Number(ends.high) ? -1 : found
  },
}

async function main () {
  await admin.connect()
  await producer.connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { id, op, ...args } = JSON.parse(line)
    try {
      const value = await commands[op](args)
      say({ id, value: value === undefined ? null : value })
    } catch (e) {
      say({ id, error: `${op}: ${e}` })
    }
  }
  // a connection that kafkajs lost keeps its timers for a while: the process does not wait for them
  setTimeout(() => process.exit(0), 3000)
  await producer.disconnect()
  await admin.disconnect()
  process.exit(0)
}

main().catch(e => { console.error(e); process.exit(1) })
