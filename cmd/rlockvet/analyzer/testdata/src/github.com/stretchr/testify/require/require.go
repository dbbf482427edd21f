package require

func NoError(t any, err error, msg ...any) {}
