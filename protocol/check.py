"""Checks the vectors against a server: check.py HOST:PORT [COMMAND...]. The server loses all its data.

Without COMMAND the scripts in scripts/ are executed. COMMAND is your own implementation. It is started once, gets
each request as a line of JSON, and answers with the reply as a line of JSON. docs/protocol.md explains the fields.
"""

import glob, json, os, socket, subprocess, sys

here = os.path.dirname(os.path.abspath(__file__))


class Redis:
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.file = socket.create_connection((host, int(port))).makefile("rwb")

    def __call__(self, *words):
        words = [str(w).encode() for w in words]
        self.file.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        self.file.flush()
        return self.read()

    def read(self):
        kind, text = (line := self.file.readline()[:-2])[:1], line[1:].decode()
        if kind == b"*":
            return [self.read() for _ in range(int(text))]
        if kind == b"$":
            return None if text == "-1" else self.file.read(int(text) + 2)[:-2].decode()
        return int(text) if kind == b":" else text


def same(want, got):
    if isinstance(want, dict) and "ms" in want:
        return want["ms"] - 1000 <= int(got) <= want["ms"]
    if isinstance(want, dict) and "clock" in want:
        return int(got) > 1e15
    if isinstance(want, list):
        return isinstance(got, list) and len(want) == len(got) and all(map(same, want, got))
    if isinstance(want, str) and isinstance(got, str) and "CLOCK" in want:  # a message
        pairs = list(zip(want.split(), got.split(), strict=True))
        return all(w == g or w == "CLOCK" and int(g) > 1e15 for w, g in pairs)
    return want == got


def put(name, key):
    value = key["value"]
    if key["type"] == "hash":
        redis("HSET", name, *sum(value.items(), ()))
    elif key["type"] == "zset":
        redis("ZADD", name, *sum(((score, member) for member, score in value.items()), ()))
    elif key["type"] == "list":
        redis("RPUSH", name, *value)
    else:
        redis("SET", name, value if isinstance(value, str) else redis("TIME")[0] + "000000")
    if "ttl" in key:
        redis("PEXPIRE", name, key["ttl"]["ms"])


def state():
    keys = {}
    for name in redis("KEYS", "*"):
        kind = redis("TYPE", name)
        read = {"hash": ["HGETALL"], "zset": ["ZRANGE", 0, -1, "WITHSCORES"], "list": ["LRANGE", 0, -1], "string": ["GET"]}[kind]
        value = redis(read[0], name, *read[1:])
        if kind in ("hash", "zset"):
            value = dict(zip(value[::2], value[1::2] if kind == "hash" else map(int, value[1::2])))
        ttl = redis("PTTL", name)
        keys[name] = {"type": kind, "value": value} | ({"ttl": ttl} if ttl > 0 else {})
    return keys


def check(vector):
    redis("FLUSHALL")
    for name, key in vector["before"].items():
        put(name, key)
    listener = Redis(sys.argv[1])
    for channel in vector.get("subscribed", []):
        listener("SUBSCRIBE", channel)
    request = vector["request"]
    for want in (vector["reply"], vector["again"]):
        got = perform(request)
        if not same(want, got):
            return f"reply {got}, not {want}"
        after = state()
        if after.keys() != vector["after"].keys():
            return f"keys {after}"
        for name, key in vector["after"].items():
            if key["type"] != after[name]["type"] or ("ttl" in key) != ("ttl" in after[name]):
                return f"{name}: {after[name]}"
            if not same(key["value"], after[name]["value"]) or "ttl" in key and not same(key["ttl"], after[name]["ttl"]):
                return f"{name}: {after[name]}"
    for want in vector.get("messages", []):
        got = listener.read()[1:]
        if not same(want, got):
            return f"message {got}, not {want}"


def script(request):
    with open(f"{here}/scripts/{request['script']}.lua") as source:
        return redis("EVAL", source.read(), len(request["keys"]), *request["keys"], *request["args"])


def command(request):
    own.stdin.write(json.dumps(request) + "\n")
    own.stdin.flush()
    return json.loads(own.stdout.readline())


redis, perform = Redis(sys.argv[1]), script
if sys.argv[2:]:
    own, perform = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True), command
checked = wrong = 0
for path in sorted(glob.glob(f"{here}/vectors/*.json")):
    with open(path) as file:
        for vector in json.load(file):
            checked += 1
            if why := check(vector):
                wrong += 1
                print(f"{os.path.basename(path)}: {vector['title']}: {why}")
print(f"{checked} vectors, {wrong} wrong")
sys.exit(wrong > 0 or checked == 0)
