"""kafka-python."""
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from driver import serve


class Member:
    def __init__(self, bootstrap, group, topic):
        self.consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            heartbeat_interval_ms=200, fetch_max_wait_ms=200, reconnect_backoff_max_ms=500)
        # An answer to a Metadata request that was sent before the subscription, and comes just after it, makes this
        # client forget for 300 s to ask for the topic (see suites/FINDINGS.md): none is under way after this.
        self.consumer.topics()
        self.consumer.subscribe([topic])

    def poll(self):
        return [(r.partition, r.offset, r.key.decode(), r.value.decode(), r.timestamp)
                for records in self.consumer.poll(timeout_ms=100).values() for r in records]

    def commit(self):
        self.consumer.commit()

    def close(self):
        self.consumer.close()


class Client:
    def __init__(self, bootstrap):
        self.bootstrap, self.producers = bootstrap, {}
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap, reconnect_backoff_max_ms=500)
        self.consumer = KafkaConsumer(bootstrap_servers=bootstrap, reconnect_backoff_max_ms=500)

    def codecs(self):
        return ["none", "gzip", "snappy", "lz4", "zstd"]

    def create(self, topic, partitions):
        self.admin.create_topics([NewTopic(topic, partitions, 1)])

    def topics(self):
        return self.admin.list_topics()

    def leaders(self, topic):
        (t,) = self.admin.describe_topics([topic])
        return {p["partition_index"]: p["leader_id"] for p in t["partitions"]}

    def send(self, topic, codec, messages):
        p = self.producers.get(codec)
        if p is None:
            p = self.producers[codec] = KafkaProducer(
                bootstrap_servers=self.bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5,
                reconnect_backoff_max_ms=500)
        sent = [p.send(topic, value.encode(), key.encode(), timestamp_ms=ms) for key, value, ms in messages]
        p.flush(60)
        for f in sent:
            f.get(timeout=20)

    def join(self, group, topic):
        return Member(self.bootstrap, group, topic)

    def groups(self):
        return [g["group_id"] for g in self.admin.list_groups()]

    def group(self, group):
        g = self.admin.describe_groups([group])[group]
        if g["error"]:
            raise RuntimeError(g["error"])
        return {"state": g["group_state"], "members": len(g["members"])}

    def committed(self, group, topic):
        at = self.admin.list_group_offsets([group])[group]
        return {tp.partition: o.offset for tp, o in at.items() if tp.topic == topic and o.offset >= 0}

    def offset_at(self, topic, partition, at):
        tp = TopicPartition(topic, partition)
        if at == -2:
            return self.consumer.beginning_offsets([tp])[tp]
        if at == -1:
            return self.consumer.end_offsets([tp])[tp]
        found = self.consumer.offsets_for_times({tp: at})[tp]
        return -1 if found is None else found.offset

    def close(self):
        for c in (*self.producers.values(), self.consumer, self.admin):
            c.close()


serve(Client)
