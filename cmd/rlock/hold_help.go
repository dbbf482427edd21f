package main

const holdDescription = `Waits for the lock NAME, prints one line of JSON, renews the lock, and releases it
when standard input ends or a signal arrives. A program in any language starts it
with pipes for input and output. If that program ends in any way, its end of the
pipe is closed, and the lock is released at once. If there are several names, all
locks are held. Names that begin with "-" follow a "--".`

const holdHelp = `
Output:
   {"names":["NAME"],"owner":"…","token":7,"proof":"…","until":"2026-11-28T18:00:30Z"}
      The locks are held. "token" is the fencing token, "proof" is for a Go program that
      joins the lock, and "until" is when the lease ends if it is not renewed. They are
      those of the first NAME. If there are several, "locks" has those of each.
   {"lost":"…"}
      The lock was lost: stop. Read this line in a thread, or check for it before each
      important step. If Redis does not respond, the line comes before the lease ends,
      so before another client can hold the lock. If the lock was removed by force, it
      comes at the next renewal.

Input:
   It is read and ignored. It must be a pipe or a socket. Use --until-signal with a
   terminal, /dev/null or a file, because they do not end when the other program does.
   A child of that program that inherits the writing end keeps the lock as long as it
   runs.

Exit status:
   0    the lock was released
   64   wrong usage
   65   the key in Redis has other data, or a lock of another kind
   69   Redis cannot be reached, or refuses
   75   another client holds the lock (-n), or held it until the wait ended (-w)
   79   the lock was lost
   128+N  signal N ended the wait; no lock is held. 129 (HUP) also if input ended first

Examples:
   # bash: a coprocess
   coproc LOCK { exec rlock hold nightly-report; }
   read -r line <&"${LOCK[0]}" && report --yesterday
   exec {LOCK[1]}>&-     # releases it

   # until the service manager stops it
   rlock hold --until-signal maintenance </dev/null
`
