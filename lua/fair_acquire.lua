-- Grants a fair lock to an owner if it is free and no live ticket is before its
-- own. Otherwise it takes a ticket for the owner, if that waits, or keeps it
-- alive in its place.
--
-- KEYS[4]  queue of Redisson's fair lock
-- KEYS[5]  its time-outs
-- KEYS[6]  fencing counter; only for a fenced lock
-- ARGV[6]  how long the ticket lives, milliseconds; 0: no ticket
-- ARGV[7]  its claim, milliseconds
-- ARGV[8]  how long queue and tickets are kept, milliseconds; half of it at least
--
-- reply    {1, token, time, 0}       acquired; token 0 for a lock that is not fenced
--          {0, pttl, time, first}    refused; what is left of the holder's lease, -1
--                                    if it has none; first 1 if no ticket is before its own
--          {-1, key, type}           key belongs to something that is not a lock, or
--                                    to a lock that queues in another way
local ttl, what, holder = redis.call('pttl', KEYS[1])
if ttl ~= -2 then -- which says that the key does not exist
    what, holder = kind(KEYS[1])
    if what ~= 'lock' then
        return {-1, KEYS[1], what}
    end
end
if redis.call('exists', KEYS[4], KEYS[5]) > 0 then
    local key = redis.call('exists', KEYS[4]) == 1 and KEYS[4] or KEYS[5]
    return {-1, key, "queue of Redisson's fair lock"}
end

-- strange is the reply if a command on a key has failed: what else there is.
local function strange(key, failure)
    if string.find(failure.err, 'WRONGTYPE', 1, true) then
        return {-1, key, redis.call('type', key).ok}
    end
    return failure
end

local last = redis.pcall('zrevrange', KEYS[2], 0, 0, 'withscores')
if last.err then
    return strange(KEYS[2], last)
end
if not last[1] or ARGV[6] == '0' then -- otherwise the owner's ticket will tell
    local tickets = redis.pcall('hlen', KEYS[3])
    if type(tickets) == 'table' then
        return strange(KEYS[3], tickets)
    end
end

if holder == ARGV[2] then -- the message, or the answer to an earlier delivery, was lost
    if ttl < tonumber(ARGV[1]) then
        redis.call('pexpire', KEYS[1], ARGV[1])
    end
    return {1, KEYS[6] and newest(KEYS[6]) or 0, now, 0}
end

-- stand takes the place after the last one, or stays in its own. It returns 1 if
-- that is the first; or nil and a reply.
local function stand(last)
    if ARGV[6] == '0' then
        return 0
    end
    local told = redis.pcall('hset', KEYS[3], ARGV[2], text(now + ARGV[6] * 1000) .. ' ' .. ARGV[7])
    if type(told) == 'table' then
        return nil, strange(KEYS[3], told)
    end
    local came = redis.call('zadd', KEYS[2], 'nx', (tonumber(last[2]) or 0) + 1, ARGV[2])
    -- PEXPIRE takes three times as long as PTTL.
    if math.min(redis.call('pttl', KEYS[2]), redis.call('pttl', KEYS[3])) < ARGV[8] / 2 then
        redis.call('pexpire', KEYS[2], ARGV[8])
        redis.call('pexpire', KEYS[3], ARGV[8])
    end
    if came == 0 then
        return redis.call('zrange', KEYS[2], 0, 0)[1] == ARGV[2] and 1 or 0
    end
    return last[1] and 0 or 1
end

if not holder then
    local next, claim
    if last[1] then
        local first, reply = stand(last)
        if not first then
            return reply
        end
        next, claim = pop()
        last = redis.call('zrevrange', KEYS[2], 0, 0, 'withscores')
    end
    if not next or next == ARGV[2] then
        local token, conflict = grant(ARGV[2], ARGV[1], KEYS[6])
        if not token then
            return conflict
        end
        return {1, token, now, 0}
    end
    call(next, claim, KEYS[6])
    ttl = redis.call('pttl', KEYS[1])
end
local first, reply = stand(last)
return reply or {0, ttl, now, first}
