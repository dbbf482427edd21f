-- Grants the lock to an owner if it is free.
--
-- KEYS[1]  lock
-- KEYS[2]  fencing counter; only for a fenced lock
-- ARGV[1]  lease, milliseconds
-- ARGV[2]  owner; a new one for every grant
-- ARGV[3]  with a counter: how long it outlives its newest token, milliseconds
-- ARGV[4]  with a counter: how many tokens to reserve behind that of the owner
--
-- reply    1                acquired, without a counter
--          {1, token}       acquired
--          {0, pttl, owner} refused; what is left of the holder's lease, -1 if it has none
--          {-1, key, type}  key belongs to something that is not a lock
--
-- A script that fails half-way is not rolled back, so what may fail comes first:
-- a token that nobody gets does no harm, and a lock without TTL is not left.
local ttl, held = redis.call('pttl', KEYS[1]), false
if ttl ~= -2 then -- which says that the key does not exist
    local what, owner = kind(KEYS[1])
    if what ~= 'lock' then
        return {-1, KEYS[1], what}
    end
    held = owner == ARGV[2]
    if not held then
        return {0, ttl, owner}
    end
end

local token = 0
if KEYS[2] then
    token = newest(KEYS[2])
    if not token then
        return {-1, KEYS[2], redis.call('type', KEYS[2]).ok}
    end
end

if held then -- the answer to an earlier delivery was lost
    if ttl < tonumber(ARGV[1]) then
        redis.call('pexpire', KEYS[1], ARGV[1])
    end
    return KEYS[2] and {1, math.max(token - tonumber(ARGV[4]), 0)} or 1
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
return KEYS[2] and {1, token} or 1
