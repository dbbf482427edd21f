"""A lock for Python: rlock hold has it, and releases it when this program ends, however it ends.

    with hold("nightly-report") as lock:
        for row in rows():
            lock.check()                 # raises Lost
            write(row, lock.token)       # the store refuses a smaller token
"""

import json
import subprocess
import threading


class Lost(Exception):
    """Another program may have the lock."""


class hold:
    def __init__(self, *names, options=()):
        self.command = ["rlock", "hold", *options, "--", *names]
        self.lost = threading.Event()  # set when the lock is lost
        self.why = ""
        self.released = False

    def __enter__(self):
        # No other child inherits the pipes, because Popen closes them there.
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:  # what has gone wrong is on stderr
            raise subprocess.CalledProcessError(self.process.wait(), self.command)
        held = json.loads(line)
        self.owner, self.token = held["owner"], held["token"]
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()
        return self

    def _listen(self):
        for line in self.process.stdout:
            self.why = json.loads(line)["lost"]
            self.lost.set()
        if not self.released and not self.why:  # rlock was killed, and nobody renews the lock
            self.why = "rlock hold has ended"
            self.lost.set()

    def check(self):
        if self.lost.is_set():
            raise Lost(self.why)

    def __exit__(self, kind, *_):
        self.released = True
        self.process.stdin.close()  # releases the lock
        code = self.process.wait()
        self.listener.join()
        self.process.stdout.close()
        if code != 0 and kind is None:
            raise Lost(self.why or f"rlock hold has ended with {code}")
