package schedulers_test

import (
	_ "github.com/caddyserver/certmagic"
	_ "github.com/go-co-op/gocron/v2"
	_ "github.com/golang-migrate/migrate/v4/database"
	_ "github.com/google/uuid"
	_ "github.com/hibiken/asynq"
	_ "github.com/pressly/goose/v3/lock"
	_ "github.com/robfig/cron/v3"
)
