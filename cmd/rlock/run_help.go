package main

const runDescription = `Waits for the lock NAME, runs COMMAND, renews the lock while COMMAND runs, and
releases it when COMMAND and everything that it has started have ended. If there
are several names, COMMAND runs under all locks. All users of a name must use the
same kind: plain or --fair, or else a read/write lock, --shared or --exclusive.
Names that begin with "-" follow a "--" of their own.`

const runHelp = `
Waiting:
   Without -n and -w rlock waits without limit, and does not poll. If Redis does not
   respond, rlock ends with 69: with -n after 2s, with -w when the wait ends, otherwise
   after the length of the lease, at least 5s. It takes a second more to withdraw its
   request. If Redis refuses, as for a wrong password, rlock ends at once.

Once for each hour, or day:
   A lock does not prevent a second run after the first. With --once-per D the run
   first claims the newest multiple of D by the clock of Redis, or the next one if
   that is nearer than 10s and half of D. If it has been claimed, rlock exits with 0
   and does not run COMMAND. Give all hosts the same D, the period of the job. A claim
   is not given back, even if the lock is not free then (-n, -w) or COMMAND fails.

The command:
   It runs in a process group of its own. Signals are passed on to the group, and on
   Linux HUP, INT, QUIT, TERM and CONT also to descendants that have left it. When
   COMMAND ends, what it has started and still runs (Linux: in any group or session)
   gets TERM and, after the time of -k, KILL. Then the lock is released. Start a daemon
   that must outlive COMMAND with systemctl or systemd-run.

If the lock is lost:
   All of these processes get TERM, and KILL after the time of -k. They are dead before
   another client can hold the lock. The exception is a lock that was removed by force:
   rlock notices it at the next renewal, or with --lease when the lease ends. With a
   longer -k, TERM comes earlier and renewals have less time.
   If rlock itself is killed, COMMAND is killed with it (Linux), but not what COMMAND
   has started. While rlock is stopped by SIGSTOP, nothing is supervised. If something
   must never happen twice, check RLOCK_TOKEN, which grows with every grant.

Nesting:
   If COMMAND calls "rlock run NAME" with the same NAME, that run does not wait. It
   checks that the lock is still held (79 if not) and becomes its COMMAND. Below
   --shared, only --shared of the same name can run. Below a Go program that holds
   NAME and has set RLOCK_PROOF, the run is refused with 64, because it would wait
   for that program.

Exit status:
   that of COMMAND, 128+N if signal N ended it; otherwise
   64   wrong usage
   65   the key in Redis has other data, or a lock of another kind; it was not changed
   69   Redis cannot be reached, or refuses; COMMAND was not run
   75   another client holds the lock (-n), or held it until the wait ended (-w)
   79   the lock was lost; COMMAND was stopped
   126  COMMAND cannot be run
   127  COMMAND was not found. Both are checked before the lock is acquired, except for
        what only the kernel knows, such as a missing interpreter
   128+N  signal N ended the wait; no lock is held

Environment of COMMAND:
   RLOCK_NAME   NAME, the first of several
   RLOCK_OWNER  the owner in Redis, for "rlock unlock NAME --owner"
   RLOCK_TOKEN  fencing token: greater than those of all earlier grants of NAME;
                with --shared that of the newest --exclusive before
   RLOCK_HELD   all locks around COMMAND, for nesting
   RLOCK_PROOF  their proofs, with which a Go program joins one (Lock.Join of the
                library). --shared and --exclusive have none
   A URL is passed on in RLOCK_URL or REDIS_URL, as it was found, but not from --url.

Examples:
   # cron, on every host: never two at a time
   0 3 * * *  rlock run -n -q -E 0 nightly-report -- report --yesterday

   # cron, on every host: each night once
   0 3 * * *  rlock run --once-per 24h -q nightly-report -- report --yesterday

   # wait up to a minute for a deployment that runs
   rlock run -w 1m deploy:web -- ./deploy.sh

   # a backup that excludes a deployment and a migration
   rlock run deploy:web migrate:web -- ./backup.sh

   # ten seconds to clean up if the lock is lost
   rlock run --ttl 1m -k 10s import -- ./import --resume
`
