package main

const holdDescription = `Waits until it holds the lock NAME, prints one line of JSON, renews the lock, and
releases it when its standard input ends. A program in any language can start it with
one pipe for its input and one for its output. When that program ends in any way, the
input ends, and rlock releases the lock at once. If there are several names, all of
these locks are held. Put "--" before names that begin with "-".`

const holdHelp = `
Output:
   {"names":["NAME"],"owner":"…","token":7,"proof":"…","until":"2026-11-28T18:00:30Z"}
      The locks are held. "owner" is the owner in Redis, "token" is the fencing token, and
      a Go program can join the lock with "proof". The lease ends at "until" unless it is
      renewed. If there are several names, these are the values for the first one, and
      "locks" contains those for each name.
   {"lost":"…"}
      The lock was lost, so stop your work. Read this line in a thread, or check for it
      before each important step. If Redis does not respond, rlock prints it before the
      lease ends, so before another client can hold the lock. If the lock was removed by
      force, rlock prints it at the next renewal.
   the end of the output
      If the output ends before you have closed the input, rlock itself was killed. Its
      lock is not renewed any longer, so this is a loss too: stop your work.

Input:
   rlock reads its input and ignores it. The input must be a pipe or a socket, because a
   terminal, /dev/null or a file does not end when the other program ends. For these, use
   --until-signal. If a child of that program inherits the writing end of the pipe, the
   lock stays held until the child has ended too.

Signals:
   While rlock waits for the lock, and with --until-signal, a signal ends it. Once it holds
   the lock for a program at the other end of its input, HUP, INT, QUIT or TERM does not
   release the lock, because that program may have received the same signal and may still
   work. rlock prints a message to standard error, and releases the lock when the input
   ends. At a second signal, rlock prints {"lost":"…"} and then releases the lock.

Exit status:
   0    the lock was released
   64   wrong usage
   65   the key in Redis contains other data, or a lock of another kind
   69   Redis cannot be reached, or rejects the request
   75   another client holds the lock (-n), or held it until the wait ended (-w)
   79   the lock was lost, or was released by a second signal
   128+N  signal N ended the wait, and no lock is held. It is 129 (HUP) too if the input
        ended before rlock held the lock

Examples:
   # bash: a coprocess
   coproc LOCK { exec rlock hold nightly-report; }
   read -r line <&"${LOCK[0]}" && report --yesterday
   exec {LOCK[1]}>&-     # releases it

   # until the service manager stops it
   rlock hold --until-signal maintenance </dev/null
`
