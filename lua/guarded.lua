-- Stands around a script that acts only while an owner holds the lock, and behind nothing.
--
-- KEYS[1]  lock
-- ARGV[1]  owner; the script itself does not see it
--
-- reply    that of the script; the error RLOCKNOTHELD if the owner does not hold the lock
local owner = table.remove(ARGV, 1)
if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], owner) == 0 then
    local refusal = nothing(KEYS[1], owner)
    return refusal ~= 0 and refusal or redis.error_reply('RLOCKNOTHELD the owner does not hold the lock')
end
redis.call('hdel', KEYS[1], '') -- no such field; a replica, which may not know of another owner yet, refuses
return (function()
%s
end)()
