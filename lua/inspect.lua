-- Reads a lock.
--
-- KEYS     lock; queue, fencing counter
-- ARGV[1]  NUMSUB or SHARDNUMSUB
-- ARGV[2]  unlock channel
-- ARGV[3]  place of the queue in KEYS, 0 if the lock has none
-- ARGV[4]  place of the counter, 0 for a lock without tokens
-- ARGV[5]  least score of a ticket in the queue: what is below is no ticket
--
-- reply    {1, pttl, token, waiters, field, value, ...}
--            pttl     -2 free, -1 held without TTL
--            token    newest one, 0 if there is none
--            waiters  tickets, and connections that listen on the unlock channel; -1 if the
--                     server does not tell
--          {-1, key, type}  the key is no lock
local kind = redis.call('type', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then
    return {-1, KEYS[1], kind}
end
local queue, counter = KEYS[tonumber(ARGV[3])], KEYS[tonumber(ARGV[4])]
local tickets = queue and redis.pcall('zcount', queue, ARGV[5], '+inf') or 0
if type(tickets) == 'table' then
    local what = redis.call('type', queue).ok
    return what ~= 'zset' and what ~= 'none' and {-1, queue, what} or tickets
end
local token = counter and redis.pcall('get', counter)
if type(token) == 'table' then
    return strange(counter)
end
local listeners = redis.pcall('pubsub', ARGV[1], ARGV[2])
local waiters = listeners.err and (tickets > 0 and tickets or -1) or listeners[2] + tickets
local reply = {1, redis.call('pttl', KEYS[1]), token and tonumber(token) and number(token) or 0, waiters}
for _, item in ipairs(redis.call('hgetall', KEYS[1])) do
    reply[#reply + 1] = item
end
return reply
