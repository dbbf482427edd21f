-- Grants a share of a quorum lock to an owner: if it is free, and no other client has the turn.
--
-- key       lock
-- queue     of the share, see turn.lua
-- counter   fencing counter; nil for a lock without tokens
-- lease     milliseconds
-- owner     a new one for every round
-- commands  PUBLISH, SPUBLISH, or both
-- counted   1 if the server knows who is subscribed
-- client    the ticket; '' for an owner who takes none, '*' for one who takes none, and takes the
--           share from whoever has the turn: the client cannot be told
-- number    of the ticket at least; 0 for the number behind the last ticket
--
-- reply     as the reply of try.lua, but
--           {0, pttl, holder, number}  refused
--             holder  '' if the share is free, and another client has the turn, for pttl
--             number  of the ticket; 0 without a ticket, or if the server has no memory for one
local function share(key, queue, counter, lease, owner, commands, counted, client, number)
    local ttl, holder = redis.call('pttl', key), ''
    if ttl ~= -2 then -- which says that the key does not exist
        local what
        what, holder = kind(key)
        if what ~= 'lock' then
            return {-1, key, what}
        elseif holder == owner then
            return again(key, counter, lease, ttl)
        end
    elseif redis.call('exists', queue) == 0 then -- as for most locks
        return grant(key, counter, lease, owner)
    end
    local what = redis.call('type', queue).ok
    if what ~= 'zset' and what ~= 'none' then
        return {-1, queue, what}
    end
    local place = 0
    if client ~= '' and client ~= '*' then
        local old = redis.call('zscore', queue, client)
        place = math.max(tonumber(old or 0), tonumber(number))
        if place == 0 then
            local last = redis.call('zrange', queue, -1, -1, 'withscores')
            place = math.max(tonumber(last[2] or 0), 0) + 1
        end
        if place ~= tonumber(old) then
            local added = redis.pcall('zadd', queue, string.format('%.0f', place), client)
            if type(added) == 'table' then
                if not string.find(added.err, 'OOM ', 1, true) then
                    return added
                end
                place = 0
            end
        end
        if place > 0 and redis.call('pttl', queue) < keep / 2 then
            redis.call('pexpire', queue, keep)
        end
    end
    if ttl == -2 then
        local other, left = turn(queue, commands, counted, client, owner)
        if not other then
            return grant(key, counter, lease, owner)
        end
        ttl, holder = left, ''
    end
    return {0, ttl, holder, place}
end
