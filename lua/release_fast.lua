-- Stands before everything else of release: a lock that one releases and nobody
-- queues for. To define the functions below would cost more than this.
if #KEYS == 2 and ARGV[3] == '' and ARGV[2] ~= 'PUBLISH SPUBLISH' and redis.call('exists', KEYS[2]) == 0
    and redis.pcall('hdel', KEYS[1], ARGV[1]) == 1 then
    local tag = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
    local heard = redis.pcall(ARGV[2], 'redisson_lock__channel:' .. tag, '-0')
    return type(heard) == 'table' and {1, heard.err} or 1
end
