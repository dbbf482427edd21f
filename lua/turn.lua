-- Stands in front of the scripts for a share: the data of a quorum lock on one of its servers.
--
-- A share has the data of a plain lock, and a queue: a sorted set of the waiting clients, their
-- tickets. The score of a ticket is its number. A client has the same number on all servers, so
-- all servers have the same order without knowing each other; the client id decides between
-- equal numbers. A new ticket gets the number behind the last one on each server. If the servers
-- disagree, the client raises its tickets to the greatest of these numbers:
--
--   server 1: a 4, b 5     x asks: 6      x raises: 6
--   server 2: a 4          x asks: 5      x raises: 6
--
-- A ticket is never granted the share. A release gives the first ticket the turn, and tells its
-- client, who then asks all servers in one round. As long as the turn lasts, nobody else is
-- granted the share. Otherwise several clients would ask at once, and split the servers between
-- them. The member '!' .. client, with score -t, is no ticket: that client has the turn until t,
-- in milliseconds of the server's clock.
--
-- The message to a client, on its channel rlock_channel:{name}:client:
--
--   "owner"    the client has the turn, by the release, or the request, of that owner
--   "owner +"  another client has the turn; ask if nothing comes after the turn

-- keep is how long a queue is kept after the last request, and term how long a turn lasts, in
-- milliseconds.
local keep, term = 60000, 200

-- tell sends a message to a client. It returns false if the server knows that the client is not
-- subscribed: the client has gone.
local function tell(queue, commands, counted, client, message)
    local channel = 'rlock_channel' .. string.sub(queue, 13) .. ':' .. client -- less rlock_quorum
    if counted == '1' then
        local found = redis.pcall('pubsub', commands == 'PUBLISH' and 'numsub' or 'shardnumsub', channel)
        if found[2] == 0 then -- nil if it may not be asked
            return false
        end
    end
    announce(commands, channel, message)
    return true
end

-- turn returns which client other than asker has the turn, and for how long; nil if nobody else
-- has, and the asker's turn is over, as it takes the share. The first ticket gets the turn if
-- nobody has it; by is the owner in its message. A client that has missed its turn loses its
-- ticket, and so does a client that has gone. The asker '*' takes the turn of anybody.
local function turn(queue, commands, counted, asker, by)
    local now = math.floor(tonumber(clock()) / 1000)
    local found = redis.call('zrange', queue, 0, 0, 'withscores')
    if found[1] and tonumber(found[2]) < 0 then
        local client, left = string.sub(found[1], 2), -found[2] - now
        local comes = client == asker or asker == '*'
        if not comes and left > 0 and left <= term and redis.call('zscore', queue, client) then
            return client, left
        end
        redis.call('zrem', queue, found[1])
        if comes then
            return nil
        end
        redis.call('zrem', queue, client)
    end
    local first = redis.call('zrange', queue, 0, 1)
    while first[1] and first[1] ~= asker and asker ~= '*' do
        if tell(queue, commands, counted, first[1], by) then
            redis.call('pexpire', queue, keep) -- first, as a server out of memory refuses a script its first ZADD only
            redis.call('zadd', queue, string.format('%.0f', -(now + term)), '!' .. first[1])
            if first[2] and first[2] ~= asker then
                tell(queue, commands, counted, first[2], by .. ' +')
            end
            return first[1], term
        end
        redis.call('zrem', queue, first[1])
        first = redis.call('zrange', queue, 0, 1)
    end
end
