package main

const leadDescription = `Waits until this host is the leader of the election NAME, and runs COMMAND while it
leads. If several hosts run this, COMMAND runs on one of them. If this host loses the
leadership, rlock stops COMMAND and everything that it has started before another host
can lead, and then waits until this host leads again. When COMMAND ends by itself, rlock
resigns, another host leads at once, and rlock ends with the status of COMMAND.
"rlock run --help" explains how COMMAND is run and stopped. Go programs can take part
in the same election with package election.`

const leadHelp = `
The takeover delay:
   If someone removes the lock in Redis, this host notices it within a third of the lease.
   Until then, the next leader can run COMMAND at the same time. To prevent this, give all
   hosts the same --takeover-delay D: a third of the lease, plus the time that COMMAND
   needs to stop. A host that cannot reach Redis notices the removal only when its lease
   ends. To cover this case as well, use nine tenths of the lease instead of a third. A
   new leader waits for D before it runs COMMAND, unless the former leader has resigned.

If Redis does not respond:
   rlock prints one message and keeps trying, at least every 5s. It ends with 69 only if
   Redis rejects the request, because of a wrong password or a missing right.

Exit status:
   As for "rlock run", except:
   69   Redis rejects the request; COMMAND was not run
   79   the lock was lost, but COMMAND had already ended by itself
   128+N  signal N ended the wait, or rlock received it and then lost the lock before
        COMMAND had ended

Environment of COMMAND:
   As for "rlock run". RLOCK_TOKEN is the number of the term, which is greater than
   the numbers of all earlier terms.

Examples:
   # one scheduler for all hosts, which the service manager restarts when it ends
   rlock lead --value "$(hostname):8080" scheduler -- ./scheduler

   # show the leader
   rlock leader scheduler
`
