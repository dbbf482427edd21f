-- Grants the lock to an owner if it is free.
--
-- key      lock
-- counter  fencing counter; nil for a lock without tokens
-- lease    milliseconds
-- owner    a new one for every grant
-- keep     with a counter: how long it outlives its newest token, milliseconds
-- spare    with a counter: how many tokens to reserve behind that of the owner
--
-- reply    1                acquired, without a counter
--          {1, token}       acquired
--          {0, pttl, owner} refused; what is left of the holder's lease, -1 if it has none
--          {-1, key, type}  key belongs to something that is not a lock
--
-- A script that fails half-way is not rolled back, so what may fail comes first:
-- a token that nobody gets does no harm, and a lock without TTL is not left. The
-- count is a string because Redis formats numbers for what a double may hold.
local function acquire(key, counter, lease, owner, keep, spare)
    local ttl, held = redis.call('pttl', key), false
    if ttl ~= -2 then -- which says that the key does not exist
        local what, holder = kind(key)
        if what ~= 'lock' then
            return {-1, key, what}
        end
        held = holder == owner
        if not held then
            return {0, ttl, holder}
        end
    end

    local token = 0
    if counter then
        token = newest(counter)
        if not token then
            return {-1, counter, redis.call('type', counter).ok}
        end
    end

    if held then -- the answer to an earlier delivery was lost
        if ttl < tonumber(lease) then
            redis.call('pexpire', key, lease)
        end
        return counter and {1, math.max(token - tonumber(spare), 0)} or 1
    end

    if counter then
        token = following(counter, token, keep, tonumber(spare))
    end
    redis.call('hset', key, owner, '1')
    local armed = redis.pcall('pexpire', key, lease)
    if armed ~= 1 then
        redis.call('del', key)
        return armed
    end
    return counter and {1, token} or 1
end
