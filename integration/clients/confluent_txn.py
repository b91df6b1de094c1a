"""Transactions of confluent-kafka (librdkafka), driven as driver_test.go says by the commands of java/Transactions.java.

Commands run side by side. A call of a producer is answered with "ok" or with the name of its error and what the client says of it.
"""
import json
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

lock = threading.Lock()
bootstrap = sys.argv[1]
producers, consumers = {}, {}


def say(line):
    with lock:
        sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
        sys.stdout.flush()


def outcome(call):
    try:
        call()
        return "ok"
    except KafkaException as e:
        print(e, file=sys.stderr)
        e = e.args[0]
        says = [n for n, is_so in (("fatal", e.fatal()), ("abortable", e.txn_requires_abort()), ("retriable", e.retriable())) if is_so]
        return " ".join([e.name()] + says)


def send(p, topic, partition, value):
    failed = []
    p.produce(topic, value, partition=partition, on_delivery=lambda e, _: failed.append(e) if e is not None else None)
    if p.flush(30) > 0:
        raise TimeoutError("not delivered within 30 s")
    if failed:
        raise KafkaException(failed[0])


def consumer(group, settings):
    return Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        "heartbeat.interval.ms": 300, "fetch.wait.max.ms": 100, "reconnect.backoff.max.ms": 300, **(settings or {}),
    })


def offsets(p, topic, partition, offset, group, member=""):
    by = consumers[member] if member else consumer(group, None)
    try:
        p.send_offsets_to_transaction([TopicPartition(topic, partition, offset)], by.consumer_group_metadata(), 30)
    finally:
        if not member:
            by.close()


def join(name, group, topic, settings=None):
    c = consumers[name] = consumer(group, settings)
    c.subscribe([topic])
    for _ in range(200):
        c.poll(0.1)
        if c.assignment():
            break
    return c.memberid()


def run(op, name="", **a):
    if op == "open":
        # without error_cb a fatal error is thrown by whichever call comes next, through its callbacks too
        producers[name] = Producer({
            "error_cb": lambda e: print(e, file=sys.stderr), "bootstrap.servers": bootstrap, "transactional.id": a["producer"], "linger.ms": 0, "reconnect.backoff.max.ms": 300, **(a.get("settings") or {}),
        })
        return "ok"
    if op == "join":
        return join(name, **a)
    if op == "leave":
        return outcome(lambda: consumers.pop(name).close())
    p = producers[name]
    calls = {
        "init": lambda: p.init_transactions(30), "begin": p.begin_transaction, "send": lambda: send(p, **a), "offsets": lambda: offsets(p, **a),
        "commit": lambda: p.commit_transaction(30), "abort": lambda: p.abort_transaction(30), "close": lambda: producers.pop(name).flush(5),
    }
    return outcome(calls[op])


def answer(number, a):
    try:
        say({"id": number, "value": run(**a)})
    except Exception as e:
        traceback.print_exc()
        say({"id": number, "error": "%s: %r" % (a.get("op"), e)})


with ThreadPoolExecutor(32) as threads:
    for line in sys.stdin:
        command = json.loads(line)
        threads.submit(answer, command.pop("id"), command)
