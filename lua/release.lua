-- Ends an owner's grant, whatever its hold count says, and wakes a waiter.
--
-- KEYS[1]  lock
-- ARGV[1]  owner
-- ARGV[2]  PUBLISH, SPUBLISH, or both
-- ARGV[3]  unlock channel
--
-- reply    1               released, and nobody was listening
--          {1, receivers}  released
--          {1, -1, error}  released; the server refused the message
--          {0}             the owner does not hold the lock
local held = redis.pcall('hdel', KEYS[1], ARGV[1]) -- with its last field the key is gone
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
end
if held ~= 1 then
    return {0}
end
local receivers = announce(ARGV[2], ARGV[3], '0')
if type(receivers) == 'table' then
    return {1, -1, receivers.err}
end
return receivers > 0 and {1, receivers} or 1
