-- Reads a fair lock.
--
-- KEYS[1]  lock
-- KEYS[2]  queue
-- KEYS[3]  fencing counter; only for a fenced lock
--
-- reply    as inspect.lua, with the number of tickets in place of subscribers
local kind = redis.call('type', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then
    return {-1, KEYS[1], kind}
end
local queue = redis.pcall('zcard', KEYS[2])
if type(queue) == 'table' then
    return {-1, KEYS[2], redis.call('type', KEYS[2]).ok}
end
local token = KEYS[3] and redis.pcall('get', KEYS[3]) or 0
if type(token) == 'table' then
    return {-1, KEYS[3], redis.call('type', KEYS[3]).ok}
end
local reply = {1, redis.call('pttl', KEYS[1]), tonumber(token) or 0, queue}
for _, item in ipairs(redis.call('hgetall', KEYS[1])) do
    reply[#reply + 1] = item
end
return reply
