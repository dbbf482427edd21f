-- Grants the lock to an owner whose turn it is, or has it stand in the queue.
--
-- key       lock
-- queue
-- counter   fencing counter; nil for a lock without tokens
-- lease     milliseconds
-- owner     a new one for every grant
-- commands  PUBLISH, SPUBLISH, or both
-- claim     milliseconds, less than 8192; 0 if the owner does not wait
-- how       the owner hears: see queue.lua
-- spare     with a counter: how many tokens to reserve behind the owner's token
--
-- reply     as the reply of try.lua, but
--           {0, pttl, holder, time, before, new, length, absent}  refused
--             time    the server's clock, in microseconds
--             before  so many tickets are before the owner's; 1 without a ticket
--             new     1 if the owner had no ticket before; -1 if the server has no memory for one
--             length  so many tickets were in the queue, or a few less
--             absent  1 if the owner's client hears by PUBLISH, and is not subscribed here
local function ask(key, queue, counter, lease, owner, commands, claim, how, spare)
    local ttl, holder, held = redis.call('pttl', key), '', nil
    if ttl ~= -2 then -- which says that the key does not exist
        local what
        what, holder, held = kind(key)
        if what ~= 'lock' then
            return {-1, key, what}
        elseif holder == owner then
            return again(key, counter, lease, ttl, spare)
        end
    end
    local length, none = tickets(queue)
    if none then
        return none
    end
    if ttl == -2 then
        if length == 0 then
            return grant(key, counter, lease, owner, spare)
        end
        settle(queue, commands, owner)
    end
    local place, new = 0, 0
    if claim ~= '0' then
        place, new = stand(queue, owner, claim, how)
        if type(place) == 'table' then
            return place
        end
    end
    if ttl == -2 then
        local told, _, next = serve(key, queue, counter, commands, false, nil, owner)
        if not told then -- nobody is before the owner
            if next then
                redis.call('zrem', queue, owner)
            end
            return grant(key, counter, lease, owner, spare)
        elseif told ~= true and told[1] == -1 then -- no counter
            if new == 1 then -- the answer tells of no ticket, and nobody would take it out
                redis.call('zrem', queue, owner)
            end
            return told
        end
        ttl, holder = redis.call('pttl', key), next or ''
        if ttl == -2 then -- the server refuses to hand it over: it is free, and next may ask
            ttl, holder = 0, ''
        end
    end
    recall(key, holder, held) -- behind the ticket, to which the lock then goes
    return refused(queue, commands, owner, place, new, length, how, ttl, holder)
end
