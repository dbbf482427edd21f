-- Wakes who waits: a run has ended without a result, and its lock is free.
--
-- KEYS[1]  companion
-- ARGV[1]  channel
-- ARGV[2]  command of announce
--
-- reply    1
announce(ARGV[2], ARGV[1], 'free')
return 1
