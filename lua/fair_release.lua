-- Ends an owner's grant, whatever its hold count says, or takes its ticket out;
-- and grants the lock, if it is free then, to the next.
--
-- KEYS[4]  fencing counter; only for a fenced lock
-- ARGV[6]  unlock channel, for those who do not queue
-- ARGV[7…] heirs: owners who have had the lock as well, by the owner's client, and
--          whose tickets are still there
--
-- reply    {1, receivers}   released
--          {1, -1, error}   released; the server refused the message
--          {1, 0, message}  released; the next owner is of the same client, which has
--                           to pass the message on
--          {0}              the owner does not hold the lock
--          {0, next}        the same, and next of the same client holds it; an earlier
--                           delivery may have granted it, whose answer was lost
if ARGV[7] then
    redis.pcall('zrem', KEYS[2], unpack(ARGV, 7))
    redis.pcall('hdel', KEYS[3], unpack(ARGV, 7))
end
if redis.pcall('hdel', KEYS[1], ARGV[2]) ~= 1 then -- a key of another type is held by nobody
    if redis.call('zrem', KEYS[2], ARGV[2]) == 1 then
        redis.call('hdel', KEYS[3], ARGV[2])
        if redis.call('exists', KEYS[1]) == 0 then -- the holder has died
            advance(KEYS[4])
        end
        return {0}
    end
    local next = redis.pcall('hlen', KEYS[1]) == 1 and redis.call('hgetall', KEYS[1])[1]
    return {0, next and client(next) == client(ARGV[2]) and next or nil}
end
local receivers, message = advance(KEYS[4], client(ARGV[2]))
receivers = receivers or announce(ARGV[3], ARGV[6], '0')
if type(receivers) == 'table' then
    return {1, -1, receivers.err}
end
return {1, receivers, message}
