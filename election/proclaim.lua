-- Begins a term, or changes what its leader says of itself.
--
-- KEYS[1]  companion: owner, term, seq, wait, value (absent while the leader waits), resigned
-- KEYS[2]  lock
-- ARGV[1]  owner
-- ARGV[2]  term
-- ARGV[3]  number of the request in the term; 0 begins the term
-- ARGV[4]  value
-- ARGV[5]  1 if the leader is to wait for a former leader who has not resigned
-- ARGV[6]  commands for announce
-- ARGV[7]  channel
--
-- reply    nil: the owner does not hold the lock; 1: the leader must wait, and nobody sees the value; 0
if not held(ARGV[1]) then
    return false
end
local former = redis.call('hmget', KEYS[1], 'owner', 'seq', 'wait', 'resigned')
if former[1] == ARGV[1] and tonumber(former[2]) >= tonumber(ARGV[3]) then
    return tonumber(former[3]) -- repeated, or late: the answer is that of the first time
end
local wait = 0
if former[1] ~= ARGV[1] then
    -- Without a companion, as after a FLUSHALL, nobody knows whether the former leader has stopped.
    if ARGV[5] == '1' and not former[4] then
        wait = 1
    end
    redis.call('del', KEYS[1])
end
redis.call('hset', KEYS[1], 'is', 'election', 'owner', ARGV[1], 'term', ARGV[2], 'seq', ARGV[3], 'wait', wait)
if wait == 0 then
    redis.call('hset', KEYS[1], 'value', ARGV[4])
    announce(ARGV[6], ARGV[7], ARGV[2])
end
return wait
