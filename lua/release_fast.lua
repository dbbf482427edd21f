-- Stands before the rest of release: locks without a queue. To define the functions below, and
-- to call them for each lock, would cost more than this. A lock that fails here is left to
-- the functions below, and fails there in the same way.
local call, replies, left = redis.pcall, {}, false
for i = 1, #KEYS / 2 do
    local key, owner, command = KEYS[2 * i - 1], ARGV[3 * i - 2], ARGV[3 * i - 1]
    if ARGV[3 * i] == '' and command ~= 'PUBLISH SPUBLISH' and call('exists', KEYS[2 * i]) == 0
        and call('hdel', key, owner) == 1 then
        local channel = string.find(key, '{', 1, true) and 'redisson_lock__channel:' .. key or 'redisson_lock__channel:{' .. key .. '}'
        local heard = call(command, channel, '-0')
        replies[i] = type(heard) == 'table' and {1, heard.err} or 1
    end
    left = left or not replies[i]
end
if not left then
    return #KEYS == 2 and replies[1] or replies
end
