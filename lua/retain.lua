-- Notes that the owner's client keeps the lock, and nobody holds it: sets the hold count to 0.
-- By the 0 other clients know that the owner's client gives the lock back when asked. If somebody
-- waits for the lock, the script changes nothing. Late or repeated, it does no harm: it gives
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
