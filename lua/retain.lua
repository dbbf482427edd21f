-- Notes that nobody holds the lock although its owner keeps it: sets the hold count to 0,
-- by which others know that they can have it by asking the owner's client. It changes
-- nothing if somebody waits for the lock. Late or repeated, it does no harm: it gives
-- nothing away.
--
-- KEYS[1]  lock
-- KEYS[2]  queue
-- ARGV[1]  owner
-- ARGV[2]  PUBLISH, SPUBLISH, or both
--
-- reply    1  done
--          0  somebody waits; or the owner does not hold the lock
local first = redis.pcall('zrange', KEYS[2], 0, 1)
local waits = first[1] and first[1] ~= '!' .. ARGV[1] or first[2] -- see queue.lua
for command in string.gmatch(ARGV[2], '%a+') do -- those who cannot queue; some servers do not tell
    local reply = redis.pcall('pubsub', command == 'SPUBLISH' and 'shardnumsub' or 'numsub', unlocks(KEYS[1]))
    waits = waits or not reply.err and reply[2] > 0
end
if waits or redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return 0
end
redis.call('hset', KEYS[1], ARGV[1], '0')
return 1
