package main

const runDescription = `Waits for the lock NAME, runs COMMAND, renews the lock while COMMAND runs, and
releases it when COMMAND and everything that it has started have ended. Of
several names, COMMAND runs under all locks. One name needs one kind everywhere:
plain or --fair, or else a read/write lock, --shared or --exclusive.
Names that begin with "-" follow a "--" of their own.`

const runHelp = `
Waiting:
   Without -n and -w rlock waits without limit, and does not poll. If Redis gives no
   answer, rlock ends with 69: with -n after one attempt, which takes 2s; with -w when
   the wait is over; otherwise after the length of the lease, at least 5s. Before it
   ends it withdraws its request, which takes a second more while Redis is silent. If
   Redis refuses, as for a wrong password, it ends at once. A signal ends the wait.

Once for each hour, or day:
   A lock alone does not keep a second host from running the same job again after
   the first. With --once-per D the run claims the newest multiple of D first, or
   the next one if that is nearer than 10s and half of D, by the clock of Redis. If
   another run has claimed it, COMMAND is not run, and rlock exits with 0. Give the
   period of the job, and the same on all hosts. A claim is not given back: if the
   lock is not free then (-n, -w), or the run fails, the run is not repeated. If
   Redis gives no answer, rlock ends with 69 after 5s.

The command:
   It runs in a process group of its own, in the foreground if rlock is there and
   not part of a pipeline. HUP, INT, QUIT, TERM, USR1, USR2, TSTP, CONT and WINCH
   are passed on to the group; of those that rlock was started to ignore, COMMAND
   ignores HUP and INT only. HUP, INT, QUIT, TERM and CONT also go to what has left
   the group (Linux). When COMMAND ends, what it has started and what still runs, in
   whatever group or session (Linux; elsewhere in its group), gets TERM and, after
   the time of -k, KILL; only then is the lock released. A daemon that is to outlive
   it is started by a service manager: systemctl, systemd-run.
   As process 1 of a container rlock reaps whatever lost its parent.

If the lock is lost:
   Renewals may fail, --lease may be over, or somebody removes the lock. Then
   all of that gets TERM, and KILL after the time of -k, in any case before the lease
   ends: it is dead before anybody else can hold the lock, unless the lock was
   removed. With --lease, a removal is noticed only when the lease is over. A -k
   longer than the default makes TERM come earlier, and leaves less time for
   renewals.
   If rlock itself is killed, COMMAND is killed with it (Linux), but not what
   COMMAND has started, nor a set-user-ID program; nothing is supervised while
   rlock is stopped by SIGSTOP. What must not happen twice, whatever happens, has
   to check RLOCK_TOKEN, which grows with every grant.

Nesting:
   Under a command that runs under NAME, "rlock run NAME" does not wait for itself:
   it checks that the lock is still held, 79 if not, and becomes its COMMAND. Below
   --shared, only --shared of the same name can run: another kind is refused.
   Below a Go program that holds NAME and has set RLOCK_PROOF, it is refused, 64:
   that program would wait for it, and it for that program.

Exit status:
   that of COMMAND, 128+N if signal N ended it; otherwise
   64   wrong usage
   65   the key in Redis holds something that is not a lock, or a lock of another
        kind; it was not touched
   69   Redis cannot be reached, or refuses; COMMAND was not run
   75   somebody else holds the lock (-n), or did so until the wait was over (-w)
   79   the lock was lost; COMMAND was stopped
   126  COMMAND cannot be run
   127  COMMAND was not found; like 126, found out before the lock is taken, but for
        what only the kernel knows, as an interpreter that is missing
   128+N  signal N ended the wait; nothing is held

Environment of COMMAND:
   RLOCK_NAME   NAME, the first of several
   RLOCK_OWNER  the owner in Redis: "rlock unlock NAME --owner" takes it
   RLOCK_TOKEN  fencing token: greater than those of all earlier grants of NAME;
                with --shared that of the newest --exclusive before
   RLOCK_HELD   all locks around COMMAND, for nesting
   RLOCK_PROOF  their proofs, by which a Go program joins one: Lock.Join of the
                library. --shared and --exclusive have none
   A URL is passed on as it was found, in RLOCK_URL or REDIS_URL, never from --url.

Examples:
   # cron, on every host: never two at a time
   0 3 * * *  rlock run -n -q -E 0 nightly-report -- report --yesterday

   # cron, on every host: each night once
   0 3 * * *  rlock run --once-per 24h -q nightly-report -- report --yesterday

   # wait at most a minute for a deployment that runs
   rlock run -w 1m deploy:web -- ./deploy.sh

   # a backup that excludes a deployment and a migration, whichever comes first
   rlock run deploy:web migrate:web -- ./backup.sh

   # ten seconds to clean up if the lock is lost
   rlock run --ttl 1m -k 10s import -- ./import --resume
`
