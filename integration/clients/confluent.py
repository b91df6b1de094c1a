"""confluent-kafka, which is librdkafka in Python."""
import os

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from driver import serve


class Member:
    def __init__(self, bootstrap, group, topic):
        settings = {
            "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "fetch.wait.max.ms": 200, "reconnect.backoff.max.ms": 500, "group.protocol": os.environ.get("OTTLA_GROUP_PROTOCOL", "classic"),
        }
        if settings["group.protocol"] == "classic":  # the other one is told by the broker
            settings["heartbeat.interval.ms"] = 200
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic])

    def poll(self):
        records = []
        for m in self.consumer.consume(num_messages=500, timeout=0.1):
            if m.error():
                raise KafkaException(m.error())
            records.append((m.partition(), m.offset(), m.key().decode(), m.value().decode(), m.timestamp()[1]))
        return records

    def commit(self):
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as e:
            if e.args[0].code() != KafkaError._NO_OFFSET:  # nothing new since the last commit
                raise

    def close(self):
        self.consumer.close()


class Client:
    def __init__(self, bootstrap):
        self.bootstrap, self.producers = bootstrap, {}
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500})

    def codecs(self):
        return ["none", "gzip", "snappy", "lz4", "zstd"]

    def create(self, topic, partitions):
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)

    def topics(self):
        return sorted(self.admin.list_topics(timeout=20).topics)

    def leaders(self, topic):
        t = self.admin.list_topics(topic, timeout=20).topics[topic]
        if t.error is not None:
            raise KafkaException(t.error)
        return {p.id: p.leader for p in t.partitions.values()}

    def send(self, topic, codec, messages):
        p = self.producers.get(codec)
        if p is None:
            p = self.producers[codec] = Producer({
                "bootstrap.servers": self.bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5,
                "reconnect.backoff.max.ms": 500, "queue.buffering.max.messages": 200000,
            })
        failed = []
        for key, value, ms in messages:
            p.produce(topic, value, key, timestamp=ms, on_delivery=lambda e, _: e is not None and failed.append(e))
            p.poll(0)
        if p.flush(60) > 0 or failed:
            raise KafkaException(failed[0] if failed else "not delivered within a minute")

    def join(self, group, topic):
        return Member(self.bootstrap, group, topic)

    def groups(self):
        return [g.group_id for g in self.admin.list_consumer_groups().result(20).valid]

    def group(self, group):
        g = self.admin.describe_consumer_groups([group])[group].result(20)
        return {"state": g.state.name.title().replace("_", ""), "members": len(g.members)}

    def committed(self, group, topic):
        # by a consumer: the admin client's own call does not end after a broker's restart (2.16.1, on Kafka 4.4.0 too)
        c = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            at = c.committed([TopicPartition(topic, p) for p in self.leaders(topic)], timeout=20)
        finally:
            c.close()
        return {p.partition: p.offset for p in at if p.offset >= 0}

    def offset_at(self, topic, partition, at):
        spec = {-2: OffsetSpec.earliest, -1: OffsetSpec.latest}.get(at, lambda: OffsetSpec.for_timestamp(at))()
        tp = TopicPartition(topic, partition)
        return self.admin.list_offsets({tp: spec})[tp].result(20).offset

    def close(self):
        for p in self.producers.values():
            p.flush(10)


serve(Client)
