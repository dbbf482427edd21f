package main

const leadDescription = `Waits until this host leads the election NAME, and runs COMMAND while it does. Of
all hosts that do the same, COMMAND runs on one. If the leadership is lost, COMMAND
and everything that it has started are ended before another host can lead, and
rlock waits for the next term. When COMMAND ends by itself, rlock resigns, another
host follows at once, and rlock ends with the status of COMMAND.
What "rlock run --help" says about the command, and about the loss of the lock,
holds for "lead". Go programs take part in the same election: package election.`

const leadHelp = `
The takeover delay:
   The lock may be removed by hand, and this host notices that at the next renewal,
   within a third of the lease. COMMAND works until then, beside the next leader. If
   that must not be, give all hosts the same --takeover-delay D: a third of the lease,
   and the time that COMMAND needs to stop. A leader then waits for D, unless the
   one before has resigned.

If Redis does not respond:
   rlock tries again for as long as it runs, every 5s or sooner, and says so once.
   Only a refusal ends it, with 69: a wrong password, or a right that is missing.

Exit status:
   that of COMMAND, 128+N if signal N ended it; otherwise
   64   wrong usage
   65   the key in Redis holds something that is not an election; it was not touched
   69   Redis refuses; COMMAND was not run
   79   the lock was lost, which was noticed when COMMAND had ended by itself
   126  COMMAND cannot be run
   127  COMMAND was not found
   128+N  signal N ended the wait; this host does not lead

Environment of COMMAND:
   RLOCK_NAME   NAME
   RLOCK_OWNER  the owner of the lock in Redis
   RLOCK_TOKEN  number of the term: greater than those of all earlier terms
   RLOCK_HELD   all locks around COMMAND, for nesting
   RLOCK_PROOF  their proofs, by which a Go program joins one: Lock.Join of the
                library

Examples:
   # one scheduler for all hosts, which the service manager restarts when it ends
   rlock lead --value "$(hostname):8080" scheduler -- ./scheduler

   # who it is
   rlock leader scheduler
`
