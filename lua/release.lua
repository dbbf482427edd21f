-- Ends an owner's grant, whatever its hold count says, and wakes a waiter.
--
-- KEYS[1]  lock
-- ARGV[1]  owner
-- ARGV[2]  PUBLISH, SPUBLISH, or both
-- ARGV[3]  unlock channel
--
-- reply    {1, receivers}  released
--          {1, -1, error}  released; the server refused the message
--          {0}             the owner does not hold the lock
if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return {0}
end
redis.call('del', KEYS[1])
local receivers = announce(ARGV[2], ARGV[3], '0')
if type(receivers) == 'table' then
    return {1, -1, receivers.err}
end
return {1, receivers}
