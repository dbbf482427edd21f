package main

const leadDescription = `Waits until this host leads the election NAME, and runs COMMAND while it does. Of
all hosts that do the same, COMMAND runs on one. If the leadership is lost, COMMAND
and everything that it has started are ended before another host can lead, and
rlock waits for the next term. When COMMAND ends by itself, rlock resigns, another
host follows at once, and rlock ends with the status of COMMAND.
"rlock run --help" explains how COMMAND is run and stopped. Go programs can take part
in the same election with package election.`

const leadHelp = `
The takeover delay:
   If the lock is removed by hand, this host notices it within a third of the lease.
   Until then, COMMAND can run next to that of the next leader. To prevent this, give
   all hosts the same --takeover-delay D: a third of the lease, plus the time that
   COMMAND needs to stop. A leader then waits for D, unless the one before has resigned.

If Redis does not respond:
   rlock retries as long as it runs, at least every 5s, and prints one message. It ends
   with 69 only if Redis refuses, because of a wrong password or a missing right.

Exit status:
   As for "rlock run", except:
   69   Redis refuses; COMMAND was not run
   79   the lock was lost, which was noticed after COMMAND had ended by itself

Environment of COMMAND:
   As for "rlock run". RLOCK_TOKEN is the number of the term, which is greater than
   those of all earlier terms.

Examples:
   # one scheduler for all hosts, which the service manager restarts when it ends
   rlock lead --value "$(hostname):8080" scheduler -- ./scheduler

   # who it is
   rlock leader scheduler
`
