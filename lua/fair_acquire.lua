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
-- ARGV[9…] further owners: they ask one after the other, in this order
--
-- reply    {1, token, time, 0}       acquired; token 0 for a lock that is not fenced
--          {0, pttl, time, first}    refused; what is left of the holder's lease, -1
--                                    if it has none; first 1 if no ticket is before its own
--          {-1, key, type}           key belongs to something that is not a lock, or
--                                    to a lock that queues in another way
--          {reply…}                  if there are several owners: one for each, errors
--                                    as text

-- strange is the reply if a command on a key has failed: what else there is.
local function strange(key, failure)
    if string.find(failure.err, 'WRONGTYPE', 1, true) then
        return {-1, key, redis.call('type', key).ok}
    end
    return failure
end

-- What one owner has found out is true for the next, as long as the lock is held:
-- what is left of the lease, nil if it is not known; the holder; and the last in the
-- queue with its place.
local ttl, holder, last

-- look finds that out, or returns a reply.
local function look()
    local left, what = redis.call('pttl', KEYS[1]), nil
    holder = nil
    if left ~= -2 then -- which says that the key does not exist
        what, holder = kind(KEYS[1])
        if what ~= 'lock' then
            return {-1, KEYS[1], what}
        end
    end
    if redis.call('exists', KEYS[4], KEYS[5]) > 0 then
        local key = redis.call('exists', KEYS[4]) == 1 and KEYS[4] or KEYS[5]
        return {-1, key, "queue of Redisson's fair lock"}
    end
    last = redis.pcall('zrevrange', KEYS[2], 0, 0, 'withscores')
    if last.err then
        return strange(KEYS[2], last)
    end
    if not last[1] or ARGV[6] == '0' then -- otherwise the owner's ticket will tell
        local tickets = redis.pcall('hlen', KEYS[3])
        if type(tickets) == 'table' then
            return strange(KEYS[3], tickets)
        end
    end
    ttl = left
end

-- stand takes the place after the last one, or stays in its own. It returns 1 if
-- that is the first; or nil and a reply.
local kept = false
local function stand(owner)
    if ARGV[6] == '0' then
        return 0
    end
    local told = redis.pcall('hset', KEYS[3], owner, text(now + ARGV[6] * 1000) .. ' ' .. ARGV[7])
    if type(told) == 'table' then
        return nil, strange(KEYS[3], told)
    end
    local place = (tonumber(last[2]) or 0) + 1
    local came = redis.call('zadd', KEYS[2], 'nx', place, owner)
    -- PEXPIRE takes three times as long as PTTL.
    if not kept and math.min(redis.call('pttl', KEYS[2]), redis.call('pttl', KEYS[3])) < ARGV[8] / 2 then
        redis.call('pexpire', KEYS[2], ARGV[8])
        redis.call('pexpire', KEYS[3], ARGV[8])
    end
    kept = true
    if came == 0 then
        return redis.call('zrange', KEYS[2], 0, 0)[1] == owner and 1 or 0
    end
    local first = last[1] and 0 or 1
    last = {owner, place}
    return first
end

local function ask(owner)
    local obstacle = not ttl and look()
    if obstacle then
        return obstacle
    end
    local left = ttl
    if holder == owner then -- the message, or the answer to an earlier delivery, was lost
        if left < tonumber(ARGV[1]) then
            ttl = nil
            redis.call('pexpire', KEYS[1], ARGV[1])
        end
        return {1, KEYS[6] and newest(KEYS[6]) or 0, now, 0}
    end
    if not holder then
        ttl = nil
        local next, claim
        if last[1] then
            local first, reply = stand(owner)
            if not first then
                return reply
            end
            next, claim = pop()
            kept = false -- the queue may have become empty, and is made anew
        end
        if not next or next == owner then
            local token, conflict = grant(owner, ARGV[1], KEYS[6])
            if not token then
                return conflict
            end
            return {1, token, now, 0}
        end
        call(next, claim, KEYS[6])
        last = redis.call('zrevrange', KEYS[2], 0, 0, 'withscores')
        left = redis.call('pttl', KEYS[1])
    end
    local first, reply = stand(owner)
    return reply or {0, left, now, first}
end

if not ARGV[9] then
    return ask(ARGV[2])
end
local owners = {ARGV[2], unpack(ARGV, 9)}
return outcomes(#owners, function(i)
    return ask(owners[i])
end)
