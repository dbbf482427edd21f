-- Stands before everything else of release: locks that nobody queues for. To define the
-- functions below, and to call them for each, would cost more than this. What fails here
-- is left to them, and fails there in the same way.
local replies, left = {}, false
for i = 1, #KEYS / 2 do
    local key, owner, command = KEYS[2 * i - 1], ARGV[3 * i - 2], ARGV[3 * i - 1]
    if ARGV[3 * i] == '' and command ~= 'PUBLISH SPUBLISH' and redis.pcall('exists', KEYS[2 * i]) == 0
        and redis.pcall('hdel', key, owner) == 1 then
        local tag = string.find(key, '{', 1, true) and key or '{' .. key .. '}'
        local heard = redis.pcall(command, 'redisson_lock__channel:' .. tag, '-0')
        replies[i] = type(heard) == 'table' and {1, heard.err} or 1
    end
    left = left or not replies[i]
end
if not left then
    return #KEYS == 2 and replies[1] or replies
end
