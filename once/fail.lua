-- Removes the trace of a run, so that another may begin.
--
-- KEYS[1]  companion
-- KEYS[2]  lock
-- ARGV[1]  owner of the run
--
-- reply    1; 0 if the owner does not hold the lock
if not held(ARGV[1]) then
    return 0
end
redis.call('del', KEYS[1])
return 1
