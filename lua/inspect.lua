-- Reads a lock.
--
-- KEYS[1]  lock
-- KEYS[2]  fencing counter; only for a fenced lock
-- ARGV[1]  NUMSUB or SHARDNUMSUB
-- ARGV[2]  unlock channel
--
-- reply    {1, pttl, token, subscribers, field, value, ...}
--            pttl         -2 free, -1 held without TTL
--            token        newest one, 0 if there is none
--            subscribers  -1 if the server does not tell
--          {-1, key, type}  key belongs to something that is not a lock
local kind = redis.call('type', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then
    return {-1, KEYS[1], kind}
end
local token
if KEYS[2] then
    local what = redis.call('type', KEYS[2]).ok
    if what ~= 'none' and what ~= 'string' then
        return {-1, KEYS[2], what}
    end
    token = redis.call('get', KEYS[2])
end
local numsub = redis.pcall('pubsub', ARGV[1], ARGV[2])
local reply = {1, redis.call('pttl', KEYS[1]), tonumber(token) or 0, numsub.err and -1 or numsub[2]}
for _, item in ipairs(redis.call('hgetall', KEYS[1])) do
    reply[#reply + 1] = item
end
return reply
