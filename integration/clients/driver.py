"""The Python side of driver_test.go: one JSON command a line on standard input, one answer a line on standard output.

An adapter has a class Client with the methods named in COMMANDS (join makes a member) and calls serve(Client).
A member has poll(), which returns a list of (partition, offset, key, value, milliseconds) after at most a moment,
commit() and close(); all three are called on the member's own thread only.
"""
import json
import queue
import sys
import threading
import traceback

COMMANDS = ("codecs", "create", "topics", "leaders", "send", "groups", "group", "committed", "offset_at")
_out = threading.Lock()


def say(line):
    with _out:
        sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
        sys.stdout.flush()


class Runner(threading.Thread):
    """Polls a member until it leaves, and passes commands on to it between two polls."""

    def __init__(self, number, member):
        super().__init__(daemon=True)
        self.number, self.member, self.todo = number, member, queue.Queue()
        self.start()

    def run(self):
        while True:
            try:
                f, done = self.todo.get_nowait()
            except queue.Empty:
                try:
                    records = self.member.poll()
                except Exception as e:  # a broker that is away for a moment: the client goes on by itself
                    print("member %d: %r" % (self.number, e), file=sys.stderr)
                    continue
                if records:
                    say({"member": self.number, "records": records})
                continue
            try:
                f(self.member)
                done.put(None)
            except Exception as e:
                done.put(e)
            if f is close:
                return

    def do(self, f):
        done = queue.Queue()
        self.todo.put((f, done))
        e = done.get(timeout=90)
        if e is not None:
            raise e


def commit(member):
    member.commit()


def close(member):
    member.close()


def serve(client_class):
    client = client_class(sys.argv[1])
    members = {}
    for line in sys.stdin:
        c = json.loads(line)
        number, op = c.pop("id"), c.pop("op")
        try:
            if op == "join":
                value = len(members) + 1
                members[value] = Runner(value, client.join(**c))
            elif op == "commit":
                value = members[c["member"]].do(commit)
            elif op == "leave":
                value = members[c["member"]].do(close)
            elif op in COMMANDS:
                value = getattr(client, op)(**c)
            else:
                raise ValueError("unknown command " + op)
            say({"id": number, "value": value})
        except Exception as e:
            traceback.print_exc()
            say({"id": number, "error": "%s: %r" % (op, e)})
    client.close()
