package main

const holdDescription = `Waits for the lock NAME, prints one line of JSON, renews the lock, and releases it
when standard input ends or a signal arrives. A program in any language starts it
with pipes for input and output: if that program ends, however it ends, its end of
the pipe is closed, and the lock is free at once. Several names are all held.
Names that begin with "-" follow a "--".`

const holdHelp = `
Output:
   {"names":["NAME"],"owner":"…","token":7,"proof":"…","until":"2026-11-28T18:00:30Z"}
      The locks are held. "token" is the fencing token, "proof" is for a Go program that
      joins the lock, "until" is when the lease would end without a renewal. They are
      those of the first NAME; of several, "locks" has those of each.
   {"lost":"…"}
      The lock was lost: stop. If Redis does not answer, this line comes before the lease
      ends, and so before anybody else can hold the lock. If somebody removed the lock,
      it comes at the next renewal. Read this line while you work, in a thread, or look
      whether there is one before each step that matters.

Input:
   It is read and ignored. It has to be a pipe or a socket: a terminal, /dev/null and a
   file need --until-signal, because they do not end when the other program does. A child
   of that program that inherits the writing end keeps the lock as long as it lives.

Exit status:
   0    the lock was released
   64   wrong usage
   65   the key in Redis holds something that is not a lock, or a lock of another kind
   69   Redis cannot be reached, or refuses
   75   somebody else holds the lock (-n), or did so until the wait was over (-w)
   79   the lock was lost
   128+N  signal N ended the wait; nothing is held. 129 (HUP) also if input ended first

Examples:
   # bash: a coprocess
   coproc LOCK { exec rlock hold nightly-report; }
   read -r line <&"${LOCK[0]}" && report --yesterday
   exec {LOCK[1]}>&-     # releases it

   # until the service manager stops it
   rlock hold --until-signal maintenance </dev/null
`
