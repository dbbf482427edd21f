-- Ends an owner's grant, whatever its hold count says, and passes the lock on.
--
-- key       lock
-- queue     nil for a lock without a queue: the release is announced as Redisson does
-- counter   fencing counter; nil for a lock without tokens
-- freed     true if the owner is removed already
-- owner
-- commands  PUBLISH, SPUBLISH, or both
-- tickets   tickets to take out: owners, with spaces between
-- used      with a counter: the newest token used
-- reserved  with a counter: the last reserved token
--
-- reply    1                     released
--          {1, error}            released; the server refused the announcement
--          {1, '', message}      released; the next owner is of the same client, and the client
--                                delivers the message to its waiter
--          {0}                   the owner does not hold the lock
--          {0, next}             the same, and next of the same client holds the lock; an earlier
--                                delivery with a lost answer may have granted it
--
-- A repetition, after a lost answer:
--
--   release a:1                   a:2 is next, the lock is granted to a:2; the answer is lost
--   release a:1 again             {0, a:2}: the client of a:2 asks, and learns of the grant
local function release(key, queue, counter, freed, owner, commands, tickets, used, reserved)
    local led = false -- the first in the queue is among them
    -- Before the last ticket goes, as a node whose slot moves tells nothing of what is gone.
    local queued = queue and redis.call('exists', queue) == 1
    for ticket in string.gmatch(tickets or '', '%S+') do
        led = led or first(queue) == ticket
        redis.pcall('zrem', queue, ticket)
    end
    if queued then -- a late request may have left the own ticket
        redis.pcall('zrem', queue, owner)
    end
    local held = freed and 1 or redis.pcall('hdel', key, owner) -- with its last field the key is gone
    if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
        return held
    end
    local failure, message
    if not queue then
        if held ~= 1 then
            return {0}
        end
        failure = refusal(announce(commands, unlocks(key), '0'))
    else
        if held == 1 and counter and used ~= reserved then
            restore(counter, used, reserved)
        end
        if held == 1 and not queued then -- as for most locks
            failure = refusal(announce(commands, unlocks(key), '-0'))
            return failure and {1, failure} or 1
        end
        local ticket, _, record = first(queue)
        if held ~= 1 and not ((ticket or record) and redis.call('exists', key) == 0) then -- nothing to pass on
            local _, next = kind(key)
            if led and next and foreign(next) then -- whose release only the first in the queue hears
                wake(queue, commands, 0, client(owner))
            end
            return {0, next and client(next) == client(owner) and next or nil}
        end
        settle(queue, commands, owner)
        -- If the owner did not hold the lock, this is a repetition, whose answer may be read
        -- by nobody: the next owner is told by a message, also if it is of the same client.
        failure, message = pass(key, queue, counter, commands, held == 1 and client(owner) or nil)
        if held ~= 1 then
            return {0}
        end
    end
    if failure then
        return {1, failure}
    end
    return message and {1, '', message} or 1
end
