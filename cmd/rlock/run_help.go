package main

const runDescription = `Waits until it holds the lock NAME, runs COMMAND, and renews the lock until COMMAND has
ended. Then rlock stops everything that COMMAND has left running, and releases the
lock. If there are several names, COMMAND runs while all of these locks are held. All
users of a name must use the same kind of lock: either a plain lock (with or without
--fair) or a read/write lock (--shared or --exclusive). Put an additional "--" before
names that begin with "-".`

const runHelp = `
Waiting:
   Without -n and -w, rlock waits without limit, and does not poll. If Redis does not
   respond, rlock ends with 69: with -n after 2s, with -w when the wait ends, otherwise
   after the length of the lease, but at least 5s. Before it ends, it takes up to a second
   to withdraw its request. If Redis rejects the request, as for a wrong password, rlock
   ends at once.

Once for each hour, or day:
   A lock does not prevent a second run after the first. With --once-per D, rlock first
   claims the current period of length D, by the clock of Redis. If the next period begins
   within 10s (or half of D, if that is less), it claims the next period instead. If
   another host has already claimed it, rlock ends with 0 and does not run COMMAND. All
   hosts must use the same D. It must be longer than the time by which the clocks and the
   starts of the hosts differ, and not longer than the period of the job. Use 1h for a
   nightly job, because with 24h the change to daylight saving time can move two nights
   into one period. A claim is not given back, even if the lock cannot be acquired
   after it (-n, -w) or COMMAND fails.

The command:
   COMMAND runs in a process group of its own. rlock passes signals on to this group. On
   Linux, it passes HUP, INT, QUIT, TERM and CONT on to all descendants of COMMAND, in any
   group or session. When COMMAND has ended, rlock sends TERM to those that still run
   (elsewhere: to the group) and, after the time of -k, KILL. Then it releases the lock.
   Start a daemon that must outlive COMMAND with systemctl or systemd-run.

If the lock is lost:
   rlock sends TERM to COMMAND and to all of these processes, and KILL after the time of
   -k. They have ended before another client can hold the lock. The exception is a lock
   that was removed by force: rlock notices this at the next renewal, or with --lease when
   the lease ends. With a longer -k, rlock sends TERM earlier, so renewals have less time.
   If rlock itself is killed, COMMAND is killed with it (Linux), but not what COMMAND
   has started. While rlock is stopped by SIGSTOP, it supervises nothing. If something
   must never happen twice, let your database check RLOCK_TOKEN, which increases with
   every acquisition.

Nesting:
   If COMMAND calls "rlock run NAME" with the same NAME, the inner run does not wait. It
   checks that the outer run still holds the lock (79 if not), and is then replaced by its
   COMMAND, which the outer run supervises. If the outer run is --shared, the inner run
   must be --shared too (otherwise 64). If a Go program holds NAME and has set
   RLOCK_PROOF, a run of NAME ends with 64, because the two would wait for each other.

Exit status:
   the status of COMMAND, or 128+N if signal N ended COMMAND. Otherwise:
   64   wrong usage
   65   the key in Redis contains other data, or a lock of another kind, and is unchanged
   69   Redis cannot be reached, or rejects the request
   75   another client holds the lock (-n), or held it until the wait ended (-w)
   79   the lock was lost; COMMAND was stopped if it still ran
   126  COMMAND cannot be run
   127  COMMAND was not found. rlock checks both before it acquires the lock, except for
        what only the kernel knows, such as a missing interpreter
   128+N  signal N ended the wait; no lock is held

Environment of COMMAND:
   RLOCK_NAME   NAME, or the first of several names
   RLOCK_OWNER  the owner in Redis, for "rlock unlock NAME --owner"
   RLOCK_TOKEN  the fencing token, which is greater than all earlier tokens of NAME; with
                --shared the token of the newest --exclusive holder before
   RLOCK_HELD   all locks around COMMAND, for nested runs
   RLOCK_PROOF  the proofs of these locks, with which a Go program can join one of them
                (Lock.Join). Locks with --shared or --exclusive have no proof
   COMMAND also gets RLOCK_URL or REDIS_URL if rlock has it, but not the URL of --url.

Examples:
   # cron, on every host: never two at a time
   0 3 * * *  rlock run -n -q -E 0 nightly-report -- report --yesterday

   # cron, on every host: each night once
   0 3 * * *  rlock run --once-per 1h -q nightly-report -- report --yesterday

   # wait up to a minute for a deployment that runs
   rlock run -w 1m deploy:web -- ./deploy.sh

   # a backup that excludes a deployment and a migration
   rlock run deploy:web migrate:web -- ./backup.sh

   # ten seconds to clean up if the lock is lost
   rlock run --ttl 1m -k 10s import -- ./import --resume
`
