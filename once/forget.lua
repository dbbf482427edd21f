-- Removes a result, or the trace of a run that has ended without one.
--
-- KEYS[1]  companion
-- KEYS[2]  lock
--
-- reply    1; 0 if a run is in progress
if redis.call('exists', KEYS[2]) == 1 and redis.call('hexists', KEYS[1], 'result') == 0 then
    return 0
end
redis.call('del', KEYS[1])
return 1
