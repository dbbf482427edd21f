-- Grants the lock to an owner if it is free.
--
-- KEYS[1]  lock
-- KEYS[2]  fencing counter; only for a fenced lock
-- ARGV[1]  lease, milliseconds
-- ARGV[2]  owner; a new one for every grant
-- ARGV[3]  how long the counter outlives its newest token, milliseconds
-- ARGV[4]  how many tokens to reserve behind that of the owner
--
-- reply    {1, token}       acquired; token 0 for a lock that is not fenced
--          {0, pttl, owner} refused; what is left of the holder's lease, -1 if it has none
--          {-1, key, type}  key belongs to something that is not a lock
--
-- A script that fails half-way is not rolled back, so what may fail comes first:
-- a token that nobody gets does no harm, and a lock without TTL is not left.
local what, owner = kind(KEYS[1])
if what ~= 'none' and what ~= 'lock' then
    return {-1, KEYS[1], what}
end
local held = owner == ARGV[2]
if owner and not held then
    return {0, redis.call('pttl', KEYS[1]), owner}
end

local token = 0
if KEYS[2] then
    token = newest(KEYS[2])
    if not token then
        return {-1, KEYS[2], redis.call('type', KEYS[2]).ok}
    end
end

if held then -- the answer to an earlier delivery was lost
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[1]) then
        redis.call('pexpire', KEYS[1], ARGV[1])
    end
    return {1, math.max(token - tonumber(ARGV[4]), 0)}
end

if KEYS[2] then
    token = following(KEYS[2], token, ARGV[3], tonumber(ARGV[4]))
end
redis.call('hset', KEYS[1], ARGV[2], 1)
local armed = redis.pcall('pexpire', KEYS[1], ARGV[1])
if armed ~= 1 then
    redis.call('del', KEYS[1])
    return armed
end
return {1, token}
