-- Grants several locks, each to an owner of its own, if all of them are free;
-- otherwise none.
--
-- KEYS[1…n]    locks, all different
-- KEYS[n+1…]   fencing counters
-- ARGV[1]      n
-- ARGV[2]      how long a counter outlives its newest token, milliseconds
-- ARGV[3i…]    lease of lock i, milliseconds; owner, a new one for every grant;
--              place of its counter in KEYS, 0 for a lock that is not fenced
--
-- reply    {1, token, ...}  acquired; in order, token 0 for a lock that is not fenced
--          {0, i, pttl}     lock i is held; what is left of the lease, -1 if it has none
--          {-1, key, type}  key belongs to something that is not a lock
local tokens, mine = {}, {}
for i = 1, tonumber(ARGV[1]) do
    local what, owner = kind(KEYS[i])
    if what ~= 'none' and what ~= 'lock' then
        return {-1, KEYS[i], what}
    end
    mine[i] = owner == ARGV[3 * i + 1] -- the answer to an earlier delivery was lost
    if owner and not mine[i] then
        return {0, i, redis.call('pttl', KEYS[i])}
    end
    local counter = KEYS[tonumber(ARGV[3 * i + 2])]
    tokens[i] = counter and newest(counter) or 0
    if counter and not newest(counter) then
        return {-1, counter, redis.call('type', counter).ok}
    end
end

local reply = {1}
for i, token in ipairs(tokens) do
    local lease = ARGV[3 * i]
    if not mine[i] then
        local counter = KEYS[tonumber(ARGV[3 * i + 2])]
        if counter then
            token = following(counter, token, ARGV[2])
        end
        redis.call('hset', KEYS[i], ARGV[3 * i + 1], 1)
    end
    if redis.call('pttl', KEYS[i]) < tonumber(lease) then
        local armed = redis.pcall('pexpire', KEYS[i], lease)
        if armed ~= 1 then -- a lock without TTL is not left
            for j = 1, i do
                redis.call('del', KEYS[j])
            end
            return armed
        end
    end
    reply[i + 1] = token
end
return reply
