-- Ends an owner's grant, whatever its hold count says, and wakes a waiter.
--
-- key       lock
-- owner
-- commands  PUBLISH, SPUBLISH, or both
-- channel   unlock channel
--
-- reply    1               released, and nobody was listening
--          {1, receivers}  released
--          {1, -1, error}  released; the server refused the message
--          {0}             the owner does not hold the lock
local function release(key, owner, commands, channel)
    local held = redis.pcall('hdel', key, owner) -- with its last field the key is gone
    if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
        return held
    end
    if held ~= 1 then
        return {0}
    end
    local receivers = announce(commands, channel, '0')
    if type(receivers) == 'table' then
        return {1, -1, receivers.err}
    end
    return receivers > 0 and {1, receivers} or 1
end
