-- Stands in front of the scripts that announce something.
--
-- announce sends a message by PUBLISH or by SPUBLISH, or by one after the other
-- ("PUBLISH SPUBLISH"). It returns how many connections the last of them that the
-- server permits has reached, or why it permits none.
local function announce(commands, channel, message)
    if not string.find(commands, ' ', 1, true) then -- most often
        return redis.pcall(commands, channel, message)
    end
    local receivers
    for command in string.gmatch(commands, '%a+') do
        local reply = redis.pcall(command, channel, message)
        if type(receivers) ~= 'number' or type(reply) == 'number' then
            receivers = reply
        end
    end
    return receivers
end
