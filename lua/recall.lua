-- Stands in front of the scripts that refuse a lock.
--
-- recall asks the client of an owner to give a lock back that it may be keeping: its hold
-- count is 0, see retain.lua. The message names the owner.
local function recall(key, owner, held, commands)
    if held ~= '0' then
        return
    end
    local name = string.find(key, '{', 1, true) and key or '{' .. key .. '}'
    for command in string.gmatch(commands, '%a+') do -- a server may know, or permit, only one
        redis.pcall(command, 'rlock_channel:' .. name .. ':' .. string.match(owner, '^(.*):'), owner)
    end
end
