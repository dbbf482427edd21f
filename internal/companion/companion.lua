-- Stands in front of the scripts about the companion of a lock.
--
-- KEYS[1]  companion, a hash
-- KEYS[2]  lock; only if the script asks held
-- ARGV[1]  what the companion is; not seen by the script
--
-- reply    that of the script; the error NOTMINE with the type of the key, if there is another one
do
    local mine = table.remove(ARGV, 1)
    local is = redis.pcall('hget', KEYS[1], 'is')
    if type(is) == 'table' then
        if not string.find(is.err, 'WRONGTYPE', 1, true) then
            return is
        end
        return redis.error_reply('NOTMINE ' .. redis.call('type', KEYS[1]).ok)
    end
    if is ~= mine and (is or redis.call('exists', KEYS[1]) == 1) then
        return redis.error_reply('NOTMINE ' .. (is or 'hash'))
    end
end
-- Reports whether an owner holds the lock. Only a master may say that it does not: a replica may lack
-- the newest grant, and refuses the write, which changes nothing, as there is no such field. As in
-- lua/nothing.lua, but a refusal ends the script.
local function held(owner)
    local kind = redis.call('type', KEYS[2]).ok
    if kind == 'hash' and redis.call('hexists', KEYS[2], owner) == 1 then
        return true
    end
    if kind == 'hash' or kind == 'none' then
        redis.call('hdel', KEYS[2], owner)
    end
    return false
end
-- Tells the subscribers of the channel. The command is an argument from package companion.
local function announce(commands, channel, message)
    for command in string.gmatch(commands, '%a+') do
        redis.pcall(command, channel, message)
    end
end
-- Returns the server's time in milliseconds since 1970.
local function now()
    local time = redis.call('time')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end
