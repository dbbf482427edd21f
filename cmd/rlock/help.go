package main

// The help of each command is commandHelp, which urfave/cli fills in, followed
// by what the command adds to it. A command that does not connect to a server has
// localHelp, without the options of the connection.
const (
	commandHelp = localOptions + `{{range .VisiblePersistentFlags}}
   {{.}}{{end}}
`

	localHelp = localOptions + "\n"

	localOptions = `{{.FullName}} - {{.Usage}}

Usage:
   {{if .UsageText}}{{.UsageText}}{{else}}{{.FullName}}{{end}}
{{with .Description}}
{{.}}
{{end}}
Options:{{range .VisibleFlags}}
   {{.}}{{end}}`

	rootHelp = `{{.Name}} - {{.Usage}}

Usage:
   {{.UsageText}}

Commands:{{range .VisibleCommands}}
   {{.Name}}` + "\t" + `{{.Usage}}{{end}}

   "rlock COMMAND --help" describes each of them. "rlock demo" needs no Redis.

Options:{{range .VisibleFlags}}
   {{.}}{{end}}

Exit status:
   0    success; "run" and "lead" end with the status of their command
   1    "unlock": nothing was released; "inspect -q": a lock is free;
        "leader": there is no leader;
        "demo": a scene failed; "bench": a run failed;
        "doctor": there are warnings; all: the output cannot be written
   2    "doctor": something is broken, or the server cannot be reached
   64   wrong usage
   65   the key in Redis contains other data, or a lock of another kind
   69   Redis cannot be reached, or rejects the request
   75   "run", "hold": another client holds the lock
   79   "run", "hold": the lock was lost
   126  "run", "lead": the command cannot be run
   127  "run", "lead": the command was not found
   128+N  signal N ended the command ("run", "lead"), the wait ("run", "lead", "hold"),
        or rlock itself ("bench", "doctor")

Environment:
   RLOCK_URL  URL of the server if --url is not given. Put a password here or into
              REDIS_URL, because all users who can list processes can read --url.
   REDIS_URL  URL of the server if neither --url nor RLOCK_URL is given.
   RLOCK_PASSWORD           password for a URL without one, as in redis://USER@HOST
   RLOCK_SENTINEL_PASSWORD  password of the Sentinels
   If an option has a variable of its own, the help shows it in brackets.

Examples:
   rlock run nightly-report -- /usr/local/bin/report
   rlock run -n nightly-report -- /usr/local/bin/report
   rlock lead scheduler -- /usr/local/bin/scheduler
   rlock hold nightly-report
   rlock ls 'nightly-*'
   rlock inspect --json nightly-report
   rlock top
   rlock --url rediss://locks@redis:6380 --cacert ca.pem --password-file secret doctor
   rlock --sentinel s1:26379,s2:26379,s3:26379 --master mymaster doctor
`
)
