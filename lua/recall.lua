-- Stands in front of the scripts that refuse a lock.
--
-- recall asks the client of an owner to give back a kept lock: the hold count is 0, see
-- retain.lua. The message names the owner. The script does not know by which command the
-- client hears.
local function recall(key, owner, held)
    if held ~= '0' then
        return
    end
    local name = key -- as Own in names.go has it
    if not string.find(key, '{', 1, true) then
        name = '{' .. key .. '}'
    elseif string.find(key, '^{[^{]*}:*$') then
        name = key .. ':'
    end
    for _, command in ipairs({'publish', 'spublish'}) do -- a server may know, or permit, only one
        redis.pcall(command, 'rlock_channel:' .. name .. ':' .. string.match(owner, '^(.*):'), owner)
    end
end
