-- Ends an owner's grant of a share, and gives the turn to the first ticket.
--
-- key       lock
-- queue     of the share, see turn.lua
-- owner
-- commands  PUBLISH, SPUBLISH, or both; none for an owner of a round that is lost, who gives back
--           what nobody waits for
-- counted   1 if the server knows who is subscribed
-- client    whose ticket is taken out; '' for none
-- number    of the ticket at most, as a later wait may have a ticket by now; 0 for any
--
-- reply    1           released
--          {1, error}  released; the server refused the announcement to all
--          {0}         the owner does not hold the lock
local function yield(key, queue, owner, commands, counted, client, number)
    local held = redis.pcall('hdel', key, owner) -- with its last field the key is gone
    if type(held) == 'table' then
        if not string.find(held.err, 'WRONGTYPE', 1, true) then
            return held
        end
        held = 0
    end
    local failure
    if commands ~= '' then
        if redis.call('exists', queue) == 1 then
            if client ~= '' then
                local ticket = redis.call('zscore', queue, client)
                if number == '0' or not ticket or tonumber(ticket) <= tonumber(number) then
                    redis.call('zrem', queue, client, '!' .. client)
                end
            end
            if redis.call('exists', key) == 0 then
                turn(queue, commands, counted, nil, owner)
            end
        end
        -- For clients of Redisson, and of versions without tickets.
        failure = held == 1 and refusal(announce(commands, unlocks(key), '0'))
    end
    if failure then
        return {1, failure}
    end
    return held == 1 and 1 or {0}
end
