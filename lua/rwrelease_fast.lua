-- Stands before the rest of rwrelease: nobody queues, and no token is given back. Then a writer
-- without a read hold leaves, or the last reader, or a reader beside others, one of whom, picked at
-- random, lives, and lasts half as long as the lock if they are few: see rw.lua. What fails here is left to the functions below, and fails there in the same way.
if KEYS[2] and ARGV[5] == '' and not string.find(ARGV[3], ' ', 1, true) and redis.pcall('exists', KEYS[2]) == 0 then
    local call, lock, owner = redis.pcall, KEYS[1], ARGV[1]
    local found = call('hmget', lock, 'mode', owner, owner .. ':write')
    local reads = found[1] == 'read' and found[2] == '1'
    local size = (reads or found[1] == 'write' and found[3]) and call('hlen', lock)
    if size == 2 then
        if (not reads or type(call('del', KEYS[3])) == 'number') and call('del', lock) == 1 then
            local heard = call(ARGV[3], ARGV[4], reads and '-0' or '+1')
            if not reads then
                call(ARGV[3], ARGV[4], '-0') -- see announce.lua
            end
            return type(heard) == 'table' and {1, heard.err} or {1}
        end
    elseif size and reads then
        local some = call('hrandfield', lock)
        if some == 'mode' or some == owner then
            some = call('hrandfield', lock)
        end
        local ttl = type(some) == 'string' and some ~= 'mode' and some ~= owner and call('pttl', ARGV[2] .. some .. ':rwlock_timeout:1')
        if type(ttl) == 'number' and ttl > 0 and (size > 18 or ttl >= call('pttl', lock) / 2) and type(call('del', KEYS[3])) == 'number' and call('hdel', lock, owner) == 1 then
            return {1}
        end
    end
end
