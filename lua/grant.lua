-- Stands in front of the scripts that grant a lock.

-- grant gives the lock, which is free, to an owner. It returns the answer to the
-- owner, see try.lua.
--
-- A script that fails half-way is not rolled back, so what may fail comes first:
-- a token that nobody gets does no harm, and a lock without TTL is not left. The
-- count is a string because Redis formats numbers for what a double may hold.
local function grant(key, counter, lease, owner, spare)
    local token, reserved
    if counter then
        local last = newest(counter)
        if not last then
            return strange(counter)
        end
        token, reserved = following(counter, last, spare)
    end
    local set = redis.pcall('hset', key, owner, '1')
    if type(set) == 'table' then
        return set
    end
    local armed = redis.pcall('pexpire', key, lease)
    if armed ~= 1 then
        redis.call('del', key)
        return armed
    end
    return counter and {1, number(token), reserved} or 1
end

-- again answers an owner that holds the lock: the answer to an earlier delivery was
-- lost, or the message that granted it. It gets a token of its own, as the earlier
-- one is not known here, or was never given. PEXPIRE comes first because a server out
-- of memory refuses a script its first SET only.
local function again(key, counter, lease, ttl, spare)
    local last
    if counter then
        last = newest(counter)
        if not last then
            return strange(counter)
        end
    end
    -- Without a write here, WAIT behind it would not wait for the one that granted the lock.
    redis.call('pexpire', key, math.max(ttl, tonumber(lease)))
    if not counter then
        return 1
    end
    local token, reserved = following(counter, last, spare)
    return {1, number(token), reserved}
end
