"""aiokafka; its coroutines run on one loop in a thread of its own."""
import asyncio
import threading

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from driver import serve

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()


def wait(coroutine, seconds=60):
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(seconds)


async def started(make):
    it = make()
    await it.start()
    return it


class Member:
    def __init__(self, bootstrap, group, topic):
        self.consumer = wait(started(lambda: AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            heartbeat_interval_ms=200, fetch_max_wait_ms=200)))

    def poll(self):
        got = wait(self.consumer.getmany(timeout_ms=100))
        return [(r.partition, r.offset, r.key.decode(), r.value.decode(), r.timestamp) for records in got.values() for r in records]

    def commit(self):
        wait(self.consumer.commit())

    def close(self):
        wait(self.consumer.stop())


class Client:
    def __init__(self, bootstrap):
        self.bootstrap, self.producers = bootstrap, {}
        self.admin = wait(started(lambda: AIOKafkaAdminClient(bootstrap_servers=bootstrap)))
        self.consumer = wait(started(lambda: AIOKafkaConsumer(bootstrap_servers=bootstrap)))

    def codecs(self):
        return ["none", "gzip", "snappy", "lz4", "zstd"]

    def create(self, topic, partitions):
        answer = wait(self.admin.create_topics([NewTopic(topic, partitions, 1)])).to_object()
        for t in answer["topic_errors"]:
            if t["error_code"] != 0:
                raise RuntimeError(t)

    def topics(self):
        return wait(self.admin.list_topics())

    def leaders(self, topic):
        (t,) = wait(self.admin.describe_topics([topic]))
        return {p["partition"]: p["leader"] for p in t["partitions"]}

    def send(self, topic, codec, messages):
        if codec not in self.producers:
            self.producers[codec] = wait(started(lambda: AIOKafkaProducer(
                bootstrap_servers=self.bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5,
                enable_idempotence=True)))
        wait(self.send_all(self.producers[codec], topic, messages))

    async def send_all(self, producer, topic, messages):
        sent = [await producer.send(topic, value.encode(), key.encode(), timestamp_ms=ms) for key, value, ms in messages]
        await asyncio.gather(*sent)

    def join(self, group, topic):
        return Member(self.bootstrap, group, topic)

    def groups(self):
        return [g[0] for g in wait(self.admin.list_consumer_groups())]

    def group(self, group):
        (answer,) = wait(self.admin.describe_consumer_groups([group]))
        (g,) = answer.to_object()["groups"]
        if g["error_code"] != 0:
            raise RuntimeError(g)
        return {"state": g["state"], "members": len(g["members"])}

    def committed(self, group, topic):
        at = wait(self.admin.list_consumer_group_offsets(group))
        return {tp.partition: o.offset for tp, o in at.items() if tp.topic == topic and o.offset >= 0}

    def offset_at(self, topic, partition, at):
        tp = TopicPartition(topic, partition)
        if at == -2:
            return wait(self.consumer.beginning_offsets([tp]))[tp]
        if at == -1:
            return wait(self.consumer.end_offsets([tp]))[tp]
        found = wait(self.consumer.offsets_for_times({tp: at}))[tp]
        return -1 if found is None else found.offset

    def close(self):
        for c in self.producers.values():
            wait(c.stop())
        wait(self.consumer.stop())
        wait(self.admin.close())


serve(Client)
