-- Stands around a script that acts only while an owner holds the lock.
--
-- KEYS[1]  lock
-- ARGV[1]  owner; the script itself does not see it
--
-- reply    that of the script; the error RLOCKNOTHELD if the owner does not hold the lock
local owner = table.remove(ARGV, 1)
if redis.call('type', KEYS[1]).ok ~= 'hash' or redis.call('hexists', KEYS[1], owner) == 0 then
    -- Only a master can know that. A replica may lack the newest grant, and refuses this write,
    -- which changes nothing, as there is no such field.
    local removed = redis.pcall('hdel', KEYS[1], owner)
    if type(removed) == 'table' and not string.find(removed.err, 'WRONGTYPE', 1, true) then
        return removed
    end
    return redis.error_reply('RLOCKNOTHELD the owner does not hold the lock')
end
return (function()
%s
end)()
